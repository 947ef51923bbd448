//! Random plans and batches from a seed.

use executor::device::{Device, Memory};

/// SplitMix64.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// From `low` to `high`, both included.
    pub(crate) fn range(&mut self, low: usize, high: usize) -> usize {
        low + usize::try_from(self.next() % u64::try_from(high - low + 1).unwrap()).unwrap()
    }

    pub(crate) fn int(&mut self, low: i32, high: i32) -> i32 {
        let width = u64::try_from(i64::from(high) - i64::from(low) + 1).unwrap();
        i32::try_from(i64::from(low) + i64::try_from(self.next() % width).unwrap()).unwrap()
    }

    pub(crate) fn one_of<T: Copy>(&mut self, values: &[T]) -> T {
        values[self.range(0, values.len() - 1)]
    }

    pub(crate) fn chance(&mut self, one_in: u64) -> bool {
        self.next().is_multiple_of(one_in)
    }
}

/// Groups with their tables, and where requests stand.
pub(crate) struct Plan {
    pub(crate) block_sizes: Vec<i32>,
    pub(crate) strides: Vec<i64>,
    pub(crate) table_offsets: Vec<i64>,
    pub(crate) enabled: Vec<i32>,
    pub(crate) dcp_sharded: Vec<i32>,
    pub(crate) max_num_reqs: usize,
    pub(crate) tables_len: usize,
    pub(crate) num_computed: Vec<i32>,
    pub(crate) query_lens: Vec<i32>,
    pub(crate) padded: usize,
}

impl Plan {
    pub(crate) fn new(random: &mut Random, small: bool) -> Self {
        let groups = random.range(1, if small { 3 } else { 20 });
        let max_num_reqs = random.range(1, if small { 4 } else { 40 });
        let mut plan = Self {
            block_sizes: Vec::new(),
            strides: Vec::new(),
            table_offsets: Vec::new(),
            enabled: Vec::new(),
            dcp_sharded: Vec::new(),
            max_num_reqs,
            tables_len: 0,
            num_computed: Vec::new(),
            query_lens: Vec::new(),
            padded: 0,
        };
        for _ in 0..groups {
            let stride = random.range(1, 24);
            plan.block_sizes.push(random.one_of(&[1, 3, 16, 64, 1536, 262_144]));
            plan.enabled.push(i32::from(!random.chance(3)));
            plan.dcp_sharded.push(i32::from(random.chance(2)));
            plan.table_offsets.push(i64::try_from(plan.tables_len).unwrap());
            plan.strides.push(i64::try_from(stride).unwrap());
            // Tables need not lie side by side.
            plan.tables_len += max_num_reqs * stride + random.range(0, 3);
        }
        let num_reqs = random.range(0, max_num_reqs);
        plan.padded = random.range(num_reqs.max(1), max_num_reqs);
        let draft = random.int(0, 7);
        for _ in 0..num_reqs {
            plan.num_computed.push(if random.chance(4) { 0 } else { random.int(0, 3000) });
            plan.query_lens.push(match random.range(0, 5) {
                0 => random.int(0, if small { 70 } else { 600 }),
                1 => 1,
                _ => 1 + draft,
            });
        }
        plan
    }
}

/// Plain numbers as bytes, and back.
pub(crate) trait Plain: Copy + Default {
    const SIZE: usize;
    fn put(self, to: &mut Vec<u8>);
    fn get(from: &[u8]) -> Self;
}

macro_rules! plain {
    ($($kind:ty),*) => {$(
        impl Plain for $kind {
            const SIZE: usize = size_of::<$kind>();
            fn put(self, to: &mut Vec<u8>) {
                to.extend_from_slice(&self.to_le_bytes());
            }
            fn get(from: &[u8]) -> Self {
                Self::from_le_bytes(from.try_into().unwrap())
            }
        }
    )*};
}

plain!(u8, u16, u32, i32, i64, f32);

pub(crate) fn up<T: Plain>(device: &dyn Device, values: &[T]) -> Memory {
    let mut bytes = Vec::new();
    values.iter().for_each(|value| value.put(&mut bytes));
    let memory = device.allocate(bytes.len()).unwrap();
    device.upload(&memory, 0, &bytes).unwrap();
    memory
}

pub(crate) fn down<T: Plain>(device: &dyn Device, memory: &Memory) -> Vec<T> {
    let mut bytes = vec![0; memory.bytes()];
    device.download(memory, 0, &mut bytes).unwrap();
    bytes.chunks_exact(T::SIZE).map(T::get).collect()
}
