//! The pool as the plan lays it out, and the launches of one step.

use super::calibrate::fill;
use super::plan::{Kept, ReplayGroup, ReplayPlan};
use super::{Batch, ReplayError};
use crate::device::{Device, Launch, Memory};
use crate::kernel::blocks::{self, Slots, Tables, Writes};
use crate::kernel::builder::{self, Requests, Rule, States};
use crate::kernel::cache::{self, Cache};
use crate::launch_limits::read_shape;

/// Tokens a chunk of linear attention (`FLA_CHUNK_SIZE` in vLLM's flash_linear_attention).
const CHUNK_SIZE: usize = 64;
/// Elements of the rotary part of an MLA row (`qk_rope_head_dim` of all MLA models so far).
const ROPE_SIZE: usize = 64;

/// A step, ready to run.
pub struct Step {
    /// Its launches, in order.
    pub launches: Vec<Launch>,
    /// Blocks of the pool that was laid out.
    pub num_blocks: usize,
    /// Whether requests share blocks, because the pool had to be smaller than the batch needs.
    pub aliased: bool,
    /// What of the plan has no kernel.
    pub not_replayed: Vec<&'static str>,
    /// The KV cache tensors and all else; kept for as long as the step.
    pub bytes: usize,
}

/// The blocks of a request in a group.
fn blocks_of(group: &ReplayGroup, batch: &Batch, request: usize) -> usize {
    let tokens = batch.requests.get(request).map_or(0, |r| r.num_computed.saturating_add(r.query_len));
    let tokens = usize::try_from(tokens).unwrap_or(0);
    match group.kept {
        Kept::State { num_speculative_blocks, aligned: false } => 1 + num_speculative_blocks,
        Kept::State { num_speculative_blocks, aligned: true } => {
            tokens.div_ceil(group.block_size.max(1)) + num_speculative_blocks
        }
        _ => tokens.div_ceil(group.block_size.max(1)),
    }
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
    aliased: bool,
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
        aliased: false,
        writes: [Vec::new(), Vec::new(), Vec::new(), vec![0], Vec::new()],
    };
    // Block 0 is the null block.
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
    layout.aliased = layout.held > usable;
    Ok(layout)
}

/// Lays out the pool within `budget_bytes` and makes the launches.
///
/// # Errors
/// [`ReplayError`].
pub fn step(
    device: &dyn Device,
    plan: &ReplayPlan,
    batch: &Batch,
    budget_bytes: usize,
) -> Result<Step, ReplayError> {
    let requests = batch.requests.len();
    let (tensors, page_bytes) = (plan.tensors(), plan.page_bytes().next_multiple_of(16));
    let fits = budget_bytes / (tensors * page_bytes).max(1);
    if fits < 2 {
        return Err(ReplayError::Budget { tensors, page_bytes, budget_bytes });
    }
    let needed =
        plan.groups.iter().flat_map(|g| (0..requests).map(move |r| blocks_of(g, batch, r))).sum::<usize>()
            + 1;
    let planned = plan.num_blocks.and_then(|n| usize::try_from(n).ok()).unwrap_or(usize::MAX);
    let num_blocks = needed.min(planned).min(fits).max(2);
    let layout = lay_out(plan, batch, num_blocks)?;
    let mut pool = Vec::new();
    for _ in 0..tensors {
        let tensor = device.allocate(num_blocks * page_bytes)?;
        fill(device, &tensor)?;
        pool.push(tensor);
    }

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
    let has_slots: Vec<i32> =
        plan.groups.iter().map(|g| i32::from(!matches!(g.kept, Kept::State { .. }))).collect();
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
        let start = layout.offsets.get(number).copied().unwrap_or(0);
        let stride = layout.strides.get(number).copied().unwrap_or(0);
        work.metadata(group, start, stride, &mut launches)?;
        match layer_cache(group, num_blocks, page_bytes) {
            Ok(make) => {
                for tensor in pool.iter().take(group.layers) {
                    work.layer(&make(tensor.clone()), number, start, stride, &mut launches)?;
                }
            }
            Err(why) if !not_replayed.contains(&why) => not_replayed.push(why),
            Err(_) => {}
        }
    }
    let bytes = tensors * num_blocks * page_bytes;
    Ok(Step { launches, num_blocks, aliased: layout.aliased, not_replayed, bytes })
}

fn as_i64(values: &[usize]) -> Vec<i64> {
    values.iter().map(|n| i64::try_from(*n).unwrap_or(i64::MAX)).collect()
}

/// How a layer of the group lies in its tensor, or why it has no kernel.
fn layer_cache(
    group: &ReplayGroup,
    num_blocks: usize,
    page_bytes: usize,
) -> Result<impl Fn(Memory) -> Cache, &'static str> {
    let (kv_heads, head_size, fp8, values) = match group.kept {
        Kept::Attention { kv_heads, head_size, fp8 } => (kv_heads, head_size, fp8, true),
        Kept::Mla { head_size, fp8 } => (1, head_size, fp8, false),
        Kept::State { .. } => return Err("reads and writes of recurrent states"),
        Kept::Other(why) => return Err(why),
    };
    let head = head_size * if fp8 { 1 } else { 2 };
    let token_stride = kv_heads * head;
    let value_offset = values.then_some(group.block_size * token_stride);
    if value_offset.unwrap_or(0) + group.block_size * token_stride > page_bytes {
        return Err("pages that hold less than a row a token");
    }
    let block_size = group.block_size;
    Ok(move |memory| Cache {
        memory,
        num_blocks,
        block_size,
        block_stride: page_bytes,
        value_offset,
        token_stride,
        head_stride: head,
        kv_heads,
        head_size,
        fp8,
        scale: 1.0,
    })
}

/// What the launches of groups and layers share.
struct Work<'a> {
    device: &'a dyn Device,
    standing: &'a Requests,
    tables: &'a Memory,
    slots: &'a Slots,
    num_tokens: usize,
    read_tokens: usize,
    longest: u32,
    num_spec: usize,
    prefills: usize,
    is_prefilling: Memory,
    counts: Memory,
    /// Keys, values and results of a layer, as large as the largest layer needs.
    rows: Option<(usize, Memory)>,
    sums: Option<(usize, Memory)>,
}

impl<'a> Work<'a> {
    fn new(
        device: &'a dyn Device,
        batch: &Batch,
        standing: &'a Requests,
        tables: &'a Memory,
        slots: &'a Slots,
    ) -> Result<Self, ReplayError> {
        let decode = batch.num_speculative_tokens.saturating_add(1);
        let total = |r: &super::Request| r.num_computed.saturating_add(r.query_len);
        Ok(Self {
            device,
            standing,
            tables,
            slots,
            num_tokens: slots.max_num_tokens,
            read_tokens: batch.requests.iter().map(|r| usize::try_from(total(r)).unwrap_or(0)).sum(),
            longest: batch.requests.iter().map(total).max().unwrap_or(0),
            num_spec: usize::try_from(batch.num_speculative_tokens).unwrap_or(0),
            prefills: batch.requests.iter().filter(|r| r.query_len > decode).count(),
            is_prefilling: up_i32(device, &vec![0; batch.requests.len()])?,
            counts: device.allocate(16)?,
            rows: None,
            sums: None,
        })
    }

    /// What the group's builder fills.
    fn metadata(
        &self,
        group: &ReplayGroup,
        start: usize,
        stride: usize,
        launches: &mut Vec<Launch>,
    ) -> Result<(), ReplayError> {
        let requests = self.standing;
        let rule = Rule {
            decode_threshold: self.num_spec + 1,
            require_uniform: false,
            short_extends_are_decodes: true,
        };
        let starts = &requests.query_start_loc;
        let n = requests.num_reqs;
        launches.push(builder::decode_prefill_split(starts, &self.is_prefilling, n, rule, &self.counts)?);
        if let Kept::State { num_speculative_blocks, aligned } = group.kept {
            let width = num_speculative_blocks + 1;
            let indices = self.device.allocate(4 * n * width)?;
            let states = States {
                stride,
                num_spec: num_speculative_blocks,
                block_size: aligned.then_some(group.block_size),
            };
            launches.push(builder::kda_state_indices(self.tables, start, requests, states, &indices)?);
            if self.prefills > 0 {
                let most = self.num_tokens.div_ceil(CHUNK_SIZE) + n;
                let chunks = self.device.allocate(8 * most)?;
                let offsets = self.device.allocate(8 * (n + 1))?;
                launches.push(builder::chunk_indices(starts, n, CHUNK_SIZE, &chunks, most, &offsets)?);
            }
        }
        Ok(())
    }

    /// A layer's write and read.
    fn layer(
        &mut self,
        cache: &Cache,
        group: usize,
        start: usize,
        stride: usize,
        launches: &mut Vec<Launch>,
    ) -> Result<(), ReplayError> {
        let row = cache.kv_heads * cache.head_size;
        let keys = self.scratch(2 * self.num_tokens * row, false)?;
        let first_slot = group * self.num_tokens;
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
        let shape = read_shape(
            info.units,
            u32::try_from(num_reqs).unwrap_or(u32::MAX),
            self.longest,
            pieces,
            threads,
        );
        let parts = usize::try_from(shape.splits * shape.workers).unwrap_or(usize::MAX);
        let out_bytes = 4 * num_reqs * values * row;
        let sums = self.scratch(out_bytes * (parts + 1), true)?;
        let batch = cache::Batch {
            tables: self.tables.clone(),
            table_start: start,
            stride,
            seq_lens: self.standing.seq_lens.clone(),
            num_reqs,
            num_tokens: self.read_tokens,
        };
        launches.push(cache::read(cache, &batch, shape, &sums)?);
        // The result stands behind the parts of its own memory.
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
