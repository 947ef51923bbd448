//! The launches of one step over a pool.

use super::plan::{Kept, ReplayGroup, ReplayLayer, ReplayPlan};
use super::pool::{Pool, Sharing, blocks_of};
use super::{Batch, ReplayError};
use crate::device::{Device, Launch, Memory};
use crate::kernel::blocks::{self, Slots, Tables, Writes};
use crate::kernel::builder::{self, Requests, Rule, States};
use crate::kernel::cache::{self, Cache};
use crate::kernel::state::{self, StateBatch, StateCache};
use crate::launch_limits::read_shape;

/// Tokens a chunk of linear attention (`FLA_CHUNK_SIZE` in vLLM's flash_linear_attention).
const CHUNK_SIZE: usize = 64;
/// Elements of the rotary part of an MLA row (`qk_rope_head_dim` of all MLA models so far).
const ROPE_SIZE: usize = 64;

/// A step, ready to run.
pub struct Step {
    /// Its launches, in order.
    pub launches: Vec<Launch>,
    /// What of the plan has no kernel.
    pub not_replayed: Vec<&'static str>,
}

fn up<const N: usize, T: Copy>(
    device: &dyn Device,
    values: &[T],
    bytes: impl Fn(T) -> [u8; N],
) -> Result<Memory, ReplayError> {
    let all: Vec<u8> = values.iter().flat_map(|value| bytes(*value)).collect();
    let memory = device.allocate(all.len().max(N))?;
    device.upload(&memory, 0, &all)?;
    Ok(memory)
}

fn up_i32(device: &dyn Device, values: &[i32]) -> Result<Memory, ReplayError> {
    up(device, values, i32::to_le_bytes)
}

fn up_i64(device: &dyn Device, values: &[i64]) -> Result<Memory, ReplayError> {
    up(device, values, i64::to_le_bytes)
}

fn int(what: &'static str, value: usize) -> Result<i32, ReplayError> {
    let too_large = ReplayError::TooLarge { what, value: u64::try_from(value).unwrap_or(u64::MAX) };
    i32::try_from(value).map_err(|_beyond| too_large)
}

/// The block tables of a batch, and what was appended in this step.
struct Layout {
    offsets: Vec<usize>,
    strides: Vec<usize>,
    ids: Vec<i32>,
    num_blocks: Vec<i32>,
    held: usize,
    writes: [Vec<i32>; 5],
}

fn lay_out(plan: &ReplayPlan, batch: &Batch, num_blocks: usize) -> Result<Layout, ReplayError> {
    let requests = batch.requests.len();
    let mut layout = Layout {
        offsets: Vec::new(),
        strides: Vec::new(),
        ids: Vec::new(),
        num_blocks: Vec::new(),
        held: 0,
        writes: [Vec::new(), Vec::new(), Vec::new(), vec![0], Vec::new()],
    };
    // Block 0 is the null block. A group's blocks follow one another, so they differ as long as there are enough.
    let usable = num_blocks.saturating_sub(1).max(1);
    for (number, group) in plan.groups.iter().enumerate() {
        let stride = (0..requests).map(|r| blocks_of(group, batch, r)).max().unwrap_or(0).max(1);
        layout.offsets.push(layout.ids.len());
        layout.strides.push(stride);
        for request in 0..requests {
            let count = blocks_of(group, batch, request);
            for column in 0..stride {
                let id = if column < count { 1 + (layout.held + column) % usable } else { 0 };
                layout.ids.push(int("a block id", id)?);
            }
            layout.num_blocks.push(int("blocks", count)?);
            // The last block is this step's.
            if count > 0 {
                let last = layout.ids.len() - stride + count - 1;
                let [groups, rows, starts, cu_lens, ids] = &mut layout.writes;
                groups.push(int("a group", number)?);
                rows.push(int("a row", request)?);
                starts.push(int("a column", count - 1)?);
                ids.extend(layout.ids.get(last));
                cu_lens.push(int("ids", ids.len())?);
            }
            layout.held += count;
        }
    }
    Ok(layout)
}

/// Makes the launches of a batch's step.
///
/// # Errors
/// [`ReplayError`].
pub fn step(device: &dyn Device, plan: &ReplayPlan, batch: &Batch, pool: &Pool) -> Result<Step, ReplayError> {
    let requests = batch.requests.len();
    let layout = lay_out(plan, batch, pool.num_blocks)?;
    let tables = Tables {
        tables: up_i32(device, &layout.ids)?,
        table_offsets: up_i64(device, &as_i64(&layout.offsets))?,
        strides: up_i64(device, &as_i64(&layout.strides))?,
        tables_len: layout.ids.len(),
        num_groups: plan.groups.len(),
        max_num_reqs: requests,
    };
    let counts = up_i32(device, &layout.num_blocks)?;
    let input_tables = device.allocate(4 * layout.ids.len())?;
    let rows: Vec<i32> = (0..requests).map(|r| int("a row", r)).collect::<Result<_, _>>()?;
    let idx_mapping = up_i32(device, &rows)?;
    let [groups, write_rows, starts, cu_lens, ids] = &layout.writes;
    let writes = Writes {
        groups: up_i32(device, groups)?,
        rows: up_i32(device, write_rows)?,
        starts: up_i32(device, starts)?,
        cu_lens: up_i32(device, cu_lens)?,
        ids: up_i32(device, ids)?,
        writes: groups.len(),
        ids_len: ids.len(),
    };
    let num_tokens = usize::try_from(batch.num_tokens()).unwrap_or(usize::MAX);
    let of = |f: fn(&super::Request) -> u32| {
        batch.requests.iter().map(f).map(u32::cast_signed).collect::<Vec<_>>()
    };
    let standing = Requests {
        num_computed: up_i32(device, &of(|r| r.num_computed))?,
        query_lens: up_i32(device, &of(|r| r.query_len))?,
        query_start_loc: device.allocate(4 * (requests + 1))?,
        seq_lens: device.allocate(4 * requests)?,
        num_reqs: requests,
        num_reqs_padded: requests,
    };
    let block_sizes: Vec<i32> =
        plan.groups.iter().map(|g| int("a block size", g.block_size)).collect::<Result<_, _>>()?;
    let has_slots: Vec<i32> = plan.groups.iter().map(|g| i32::from(g.kept().has_slots())).collect();
    let slots = Slots {
        idx_mapping: idx_mapping.clone(),
        query_start_loc: standing.query_start_loc.clone(),
        positions: device.allocate(8 * num_tokens)?,
        block_sizes: up_i32(device, &block_sizes)?,
        enabled: up_i32(device, &has_slots)?,
        dcp_sharded: up_i32(device, &vec![0; plan.groups.len()])?,
        slots: device.allocate(8 * plan.groups.len() * num_tokens)?,
        num_reqs: requests,
        max_num_tokens: num_tokens,
        context_parallel: [1, 0, 1],
    };

    let mut launches = vec![
        blocks::append(&writes, &tables, &counts)?,
        blocks::gather(&idx_mapping, requests, requests, &tables, &counts, &input_tables, layout.held)?,
        builder::sequence_starts(&standing)?,
        builder::positions(&standing, &slots.positions, num_tokens)?,
        blocks::slot_mapping(&slots, &tables)?,
    ];
    let mut not_replayed = Vec::new();
    let mut work = Work::new(device, batch, &standing, &input_tables, &slots)?;
    for (number, group) in plan.groups.iter().enumerate() {
        let table = GroupTable {
            number,
            start: layout.offsets.get(number).copied().unwrap_or(0),
            stride: layout.strides.get(number).copied().unwrap_or(0),
        };
        let indices = work.metadata(group, table, &mut launches)?;
        for (index, layer) in group.layers.iter().enumerate() {
            match layer_cache(plan, group, index, layer, pool) {
                Ok(LayerCache::Tokens(cache, window)) => work.layer(&cache, window, table, &mut launches)?,
                Ok(LayerCache::States(cache)) => {
                    if let Some(indices) = &indices {
                        launches.push(work.states(&cache, indices)?);
                    }
                }
                Err(why) if !not_replayed.contains(&why) => not_replayed.push(why),
                Err(_) => {}
            }
        }
    }
    Ok(Step { launches, not_replayed })
}

fn as_i64(values: &[usize]) -> Vec<i64> {
    values.iter().map(|n| i64::try_from(*n).unwrap_or(i64::MAX)).collect()
}

/// Where a group's table lies in the gathered tables.
#[derive(Clone, Copy)]
struct GroupTable {
    number: usize,
    start: usize,
    stride: usize,
}

/// A layer's part of the pool.
enum LayerCache {
    /// Keys and values, or latents; the last tokens that are read.
    Tokens(Cache, Option<usize>),
    States(StateCache),
}

/// How a layer lies in its tensor, or why it has no kernel.
fn layer_cache(
    plan: &ReplayPlan,
    group: &ReplayGroup,
    index: usize,
    layer: &ReplayLayer,
    pool: &Pool,
) -> Result<LayerCache, &'static str> {
    let (tensor, offset) = plan.place(group, index);
    let Some((memory, block_stride)) = pool.tensor(tensor) else { return Err("layers without a tensor") };
    let (memory, num_blocks, block_size) = (memory.clone(), pool.num_blocks, group.block_size);
    let (kv_heads, head_size, fp8, values, window) = match layer.kept {
        Kept::Attention { kv_heads, head_size, fp8, window } => (kv_heads, head_size, fp8, true, window),
        Kept::Mla { head_size, fp8, window } => (1, head_size, fp8, false, window),
        Kept::State { conv_bytes, state_bytes, .. } => {
            if conv_bytes + state_bytes > layer.page_bytes {
                return Err("pages that are smaller than a state");
            }
            if pool.sharing == Sharing::Requests {
                return Err("states, whose pages do not fit the memory all at once");
            }
            return Ok(LayerCache::States(StateCache {
                memory,
                offset,
                num_blocks,
                block_stride,
                conv_bytes,
                state_bytes,
            }));
        }
        Kept::Other(why) => return Err(why),
    };
    let head = head_size * if fp8 { 1 } else { 2 };
    let token_stride = kv_heads * head;
    let value_offset = values.then_some(block_size * token_stride);
    if value_offset.unwrap_or(0) + block_size * token_stride > layer.page_bytes {
        return Err("pages that hold less than a row a token");
    }
    let cache = Cache {
        memory,
        offset,
        num_blocks,
        block_size,
        block_stride,
        value_offset,
        token_stride,
        head_stride: head,
        kv_heads,
        head_size,
        fp8,
        scale: 1.0,
    };
    Ok(LayerCache::Tokens(cache, window))
}

/// What the launches of groups and layers share.
struct Work<'a> {
    device: &'a dyn Device,
    batch: &'a Batch,
    standing: &'a Requests,
    tables: &'a Memory,
    slots: &'a Slots,
    num_tokens: usize,
    num_spec: usize,
    prefills: usize,
    is_prefilling: Memory,
    accepted: Memory,
    counts: Memory,
    /// Keys, values and results of a layer, as large as the largest layer needs.
    rows: Option<(usize, Memory)>,
    sums: Option<(usize, Memory)>,
}

impl<'a> Work<'a> {
    fn new(
        device: &'a dyn Device,
        batch: &'a Batch,
        standing: &'a Requests,
        tables: &'a Memory,
        slots: &'a Slots,
    ) -> Result<Self, ReplayError> {
        let requests = batch.requests.len();
        Ok(Self {
            device,
            batch,
            standing,
            tables,
            slots,
            num_tokens: slots.max_num_tokens,
            num_spec: usize::try_from(batch.num_speculative_tokens).unwrap_or(0),
            prefills: batch.prefills(),
            is_prefilling: up_i32(device, &vec![0; requests])?,
            // One token: the state to go on from is the first.
            accepted: up_i32(device, &vec![1; requests])?,
            counts: device.allocate(16)?,
            rows: None,
            sums: None,
        })
    }

    /// What the group's builder fills; the state indices, where its layers have states.
    fn metadata(
        &self,
        group: &ReplayGroup,
        table: GroupTable,
        launches: &mut Vec<Launch>,
    ) -> Result<Option<(Memory, usize)>, ReplayError> {
        let requests = self.standing;
        let rule = Rule {
            decode_threshold: self.num_spec + 1,
            require_uniform: false,
            short_extends_are_decodes: true,
        };
        let starts = &requests.query_start_loc;
        let n = requests.num_reqs;
        launches.push(builder::decode_prefill_split(starts, &self.is_prefilling, n, rule, &self.counts)?);
        let Kept::State { num_speculative_blocks, aligned, .. } = group.kept() else { return Ok(None) };
        let width = num_speculative_blocks + 1;
        let indices = self.device.allocate(4 * n * width)?;
        let states = States {
            stride: table.stride,
            num_spec: num_speculative_blocks,
            block_size: aligned.then_some(group.block_size),
        };
        launches.push(builder::kda_state_indices(self.tables, table.start, requests, states, &indices)?);
        if self.prefills > 0 {
            let most = self.num_tokens.div_ceil(CHUNK_SIZE) + n;
            let chunks = self.device.allocate(8 * most)?;
            let offsets = self.device.allocate(8 * (n + 1))?;
            launches.push(builder::chunk_indices(starts, n, CHUNK_SIZE, &chunks, most, &offsets)?);
        }
        Ok(Some((indices, width)))
    }

    /// The update of a layer's states.
    fn states(&self, cache: &StateCache, indices: &(Memory, usize)) -> Result<Launch, ReplayError> {
        let (indices, width) = indices.clone();
        let written = |request: &super::Request| match usize::try_from(request.query_len) {
            Ok(tokens) if tokens <= width => tokens,
            _ => 1,
        };
        let batch = StateBatch {
            indices,
            width,
            accepted: self.accepted.clone(),
            query_start_loc: self.standing.query_start_loc.clone(),
            num_reqs: self.standing.num_reqs,
            states_written: self.batch.requests.iter().map(written).sum(),
        };
        Ok(state::update(cache, &batch)?)
    }

    /// A layer's write and read.
    fn layer(
        &mut self,
        cache: &Cache,
        window: Option<usize>,
        table: GroupTable,
        launches: &mut Vec<Launch>,
    ) -> Result<(), ReplayError> {
        let row = cache.kv_heads * cache.head_size;
        let keys = self.scratch(2 * self.num_tokens * row, false)?;
        let first_slot = table.number * self.num_tokens;
        let slots = &self.slots.slots;
        let n = self.num_tokens;
        launches.push(if cache.value_offset.is_some() {
            cache::kv_cache_write(cache, &keys, &keys, slots, first_slot, n)?
        } else {
            let rope = ROPE_SIZE.min(cache.head_size);
            cache::mla_cache_write(cache, &keys, &keys, rope, slots, first_slot, n)?
        });

        let info = self.device.info();
        let values = if cache.value_offset.is_some() { 2 } else { 1 };
        let num_reqs = self.standing.num_reqs;
        let pieces = u32::try_from(row * if cache.fp8 { 1 } else { 2 } / 16).unwrap_or(u32::MAX);
        let threads = info.limits.threads.min(256);
        let read = |request: &super::Request| {
            let tokens = request.num_computed.saturating_add(request.query_len);
            usize::try_from(tokens).unwrap_or(0).min(window.unwrap_or(usize::MAX))
        };
        let longest = self.batch.requests.iter().map(read).max().unwrap_or(0);
        let shape = read_shape(
            info.units,
            u32::try_from(num_reqs).unwrap_or(u32::MAX),
            u32::try_from(longest).unwrap_or(u32::MAX),
            pieces,
            threads,
        );
        let parts = usize::try_from(shape.splits * shape.workers).unwrap_or(usize::MAX);
        let out_bytes = 4 * num_reqs * values * row;
        let sums = self.scratch(out_bytes * (parts + 1), true)?;
        let batch = cache::Batch {
            tables: self.tables.clone(),
            table_start: table.start,
            stride: table.stride,
            seq_lens: self.standing.seq_lens.clone(),
            num_reqs,
            window,
            num_tokens: self.batch.requests.iter().map(read).sum(),
        };
        launches.push(cache::read(cache, &batch, shape, &sums)?);
        let out = self.device.allocate(out_bytes)?;
        launches.push(cache::combine(&sums, num_reqs, parts, values * row, &out)?);
        Ok(())
    }

    /// Memory that the layers share, grown where a layer needs more.
    fn scratch(&mut self, bytes: usize, sums: bool) -> Result<Memory, ReplayError> {
        let place = if sums { &mut self.sums } else { &mut self.rows };
        match place {
            Some((size, memory)) if *size >= bytes => Ok(memory.clone()),
            _ => {
                let memory = self.device.allocate(bytes)?;
                *place = Some((bytes, memory.clone()));
                Ok(memory)
            }
        }
    }
}
