//! Times the block-table and slot-mapping work of a step on the CPU device: what
//! `scripts/compare-block-tables.sh` compares with vLLM's NumPy paths.
//!
//! Arguments: requests, groups, ids appended a row, tokens a request. Prints JSON: nanoseconds, medians. Staging
//! the ids and copying them to the device is part of the append, as it is of vLLM's.

use std::time::Instant;

use executor::device::{CpuDevice, Device, DeviceError, Memory};
use executor::kernel::blocks::{Slots, Tables, Writes, append, gather, slot_mapping};
use executor::measure::{Repeats, repeat};

const BLOCK_SIZE: usize = 16;
const WIDTH: usize = 512;

fn i32s(device: &dyn Device, values: &[i32]) -> Result<Memory, DeviceError> {
    let memory = device.allocate(4 * values.len())?;
    device.upload(&memory, 0, &values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>())?;
    Ok(memory)
}

fn i64s(device: &dyn Device, values: &[i64]) -> Result<Memory, DeviceError> {
    let memory = device.allocate(8 * values.len())?;
    device.upload(&memory, 0, &values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>())?;
    Ok(memory)
}

fn int(n: usize) -> i32 {
    i32::try_from(n).unwrap_or(i32::MAX)
}

/// The arrays of the writes, kept between steps.
#[derive(Default)]
struct Staged {
    groups: Vec<u8>,
    rows: Vec<u8>,
    starts: Vec<u8>,
    cu_lens: Vec<u8>,
    ids: Vec<u8>,
}

impl Staged {
    fn fill(&mut self, new_ids: &[Vec<Vec<i32>>]) {
        let Self { groups, rows, starts, cu_lens, ids } = self;
        [&mut *groups, rows, starts, cu_lens, ids].into_iter().for_each(Vec::clear);
        let mut end = 0;
        cu_lens.extend(0_i32.to_le_bytes());
        for (group, of_group) in new_ids.iter().enumerate() {
            for (row, of_row) in of_group.iter().enumerate() {
                groups.extend(int(group).to_le_bytes());
                rows.extend(int(row).to_le_bytes());
                starts.extend(0_i32.to_le_bytes());
                of_row.iter().for_each(|id| ids.extend(id.to_le_bytes()));
                end += of_row.len();
                cu_lens.extend(int(end).to_le_bytes());
            }
        }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<usize> = std::env::args().skip(1).map(|a| a.parse()).collect::<Result<_, _>>()?;
    let [reqs, groups, ids_each, tokens_each] = arguments.as_slice() else {
        return Err("wanted: requests, groups, ids appended a row, tokens a request".into());
    };
    let (reqs, groups, ids_each, tokens) = (*reqs, *groups, *ids_each, reqs * tokens_each);
    let device = CpuDevice::new(None);
    let offsets: Vec<i64> = (0..groups).map(|g| i64::from(int(g * reqs * WIDTH))).collect();
    let tables = Tables {
        tables: device.allocate(4 * groups * reqs * WIDTH)?,
        table_offsets: i64s(&device, &offsets)?,
        strides: i64s(&device, &vec![i64::from(int(WIDTH)); groups])?,
        tables_len: groups * reqs * WIDTH,
        num_groups: groups,
        max_num_reqs: reqs,
    };
    let counts = device.allocate(4 * groups * reqs)?;
    let new_ids: Vec<Vec<Vec<i32>>> = (0..groups)
        .map(|g| (0..reqs).map(|r| (0..ids_each).map(|i| int(g + r + i)).collect()).collect())
        .collect();
    let mut staged = Staged::default();
    staged.fill(&new_ids);
    let writes = Writes {
        groups: device.allocate(staged.groups.len())?,
        rows: device.allocate(staged.rows.len())?,
        starts: device.allocate(staged.starts.len())?,
        cu_lens: device.allocate(staged.cu_lens.len())?,
        ids: device.allocate(staged.ids.len())?,
        writes: groups * reqs,
        ids_len: groups * reqs * ids_each,
    };
    let appended = append(&writes, &tables, &counts)?;
    let repeats = Repeats { warm_up: 20, runs: 201 };
    let append_ns = repeat(repeats, || -> Result<f64, DeviceError> {
        let start = Instant::now();
        staged.fill(&new_ids);
        device.upload(&writes.groups, 0, &staged.groups)?;
        device.upload(&writes.rows, 0, &staged.rows)?;
        device.upload(&writes.starts, 0, &staged.starts)?;
        device.upload(&writes.cu_lens, 0, &staged.cu_lens)?;
        device.upload(&writes.ids, 0, &staged.ids)?;
        device.launch(&appended)?;
        Ok(start.elapsed().as_secs_f64() * 1e9)
    })?;

    let rows: Vec<i32> = (0..reqs).map(int).collect();
    let idx_mapping = i32s(&device, &rows)?;
    let input = device.allocate(4 * tables.tables_len)?;
    let gathered = gather(&idx_mapping, reqs, reqs, &tables, &counts, &input, groups * reqs * ids_each)?;
    let starts: Vec<i32> = (0..=reqs).map(|r| int(r * tokens_each)).collect();
    // Requests stand at different places of their blocks.
    let place = |t: usize| i64::from(int(t / tokens_each * 7 % (ids_each * BLOCK_SIZE) + t % tokens_each));
    let slots = Slots {
        idx_mapping: idx_mapping.clone(),
        query_start_loc: i32s(&device, &starts)?,
        positions: i64s(&device, &(0..tokens).map(place).collect::<Vec<_>>())?,
        block_sizes: i32s(&device, &vec![int(BLOCK_SIZE); groups])?,
        enabled: i32s(&device, &vec![1; groups])?,
        dcp_sharded: i32s(&device, &vec![0; groups])?,
        slots: device.allocate(8 * groups * tokens)?,
        num_reqs: reqs,
        max_num_tokens: tokens,
        context_parallel: [1, 0, 1],
    };
    let mapped = slot_mapping(&slots, &tables)?;
    let timed = |launch| {
        repeat(repeats, || -> Result<f64, DeviceError> {
            let start = Instant::now();
            device.launch(launch)?;
            Ok(start.elapsed().as_secs_f64() * 1e9)
        })
    };
    let (gather_ns, slots_ns) = (timed(&gathered)?, timed(&mapped)?);
    let out = format!(
        "{{\"append_ns\": {:.0}, \"gather_ns\": {:.0}, \"slot_mapping_ns\": {:.0}}}\n",
        append_ns.median_ns, gather_ns.median_ns, slots_ns.median_ns
    );
    std::io::Write::write_all(&mut std::io::stdout(), out.as_bytes())?;
    Ok(())
}
