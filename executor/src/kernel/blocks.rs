//! Block tables and slot mappings of all groups.

use kernels::{Kernel, args};

use super::ShapeError;
use super::shape::Draft;
use crate::device::{Launch, Memory};

/// The block tables of all groups in one memory.
#[derive(Debug, Clone)]
pub struct Tables {
    /// i32 [`tables_len`].
    pub tables: Memory,
    /// i64 [groups]: where each group's table starts.
    pub table_offsets: Memory,
    /// i64 [groups]: ids a row.
    pub strides: Memory,
    /// Ids in all tables.
    pub tables_len: usize,
    /// Groups.
    pub num_groups: usize,
    /// Rows of every table.
    pub max_num_reqs: usize,
}

impl Tables {
    fn addresses(&self, draft: &mut Draft) -> Result<[u64; 3], ShapeError> {
        Ok([
            draft.array("tables", &self.tables, &[self.tables_len], 4)?,
            draft.array("table_offsets", &self.table_offsets, &[self.num_groups], 8)?,
            draft.array("strides", &self.strides, &[self.num_groups], 8)?,
        ])
    }
}

/// Block ids to append.
#[derive(Debug, Clone)]
pub struct Writes {
    /// i32 [writes].
    pub groups: Memory,
    /// i32 [writes].
    pub rows: Memory,
    /// i32 [writes].
    pub starts: Memory,
    /// i32 [writes + 1].
    pub cu_lens: Memory,
    /// i32 [`ids_len`].
    pub ids: Memory,
    /// Writes.
    pub writes: usize,
    /// Ids.
    pub ids_len: usize,
}

/// Appends to the tables; `num_blocks` is i32 [groups, `max_num_reqs`].
///
/// # Errors
/// [`ShapeError`].
pub fn append(writes: &Writes, tables: &Tables, num_blocks: &Memory) -> Result<Launch, ShapeError> {
    let kernel = Kernel::BlockTableAppend;
    let mut d = Draft::new(kernel);
    let [table, table_offsets, strides] = tables.addresses(&mut d)?;
    let n = writes.writes;
    let args = args::Append {
        groups: d.array("groups", &writes.groups, &[n], 4)?,
        rows: d.array("rows", &writes.rows, &[n], 4)?,
        starts: d.array("starts", &writes.starts, &[n], 4)?,
        cu_lens: d.array("cu_lens", &writes.cu_lens, &[n + 1], 4)?,
        ids: d.array("ids", &writes.ids, &[writes.ids_len], 4)?,
        tables: table,
        table_offsets,
        strides,
        num_blocks: d.array("num_blocks", num_blocks, &[tables.num_groups, tables.max_num_reqs], 4)?,
        writes: d.size("writes", n)?,
        num_groups: d.size("num_groups", tables.num_groups)?,
        max_num_reqs: d.size("max_num_reqs", tables.max_num_reqs)?,
        ids_len: d.size("ids_len", writes.ids_len)?,
        tables_len: d.size("tables_len", tables.tables_len)?,
    };
    d.launch(
        [n, 1, 1],
        kernel.threads(),
        args.words(),
        [16 * n + 4 * writes.ids_len, 4 * n + 4 * writes.ids_len],
    )
}

/// Gathers the rows of a batch into `input_tables`, laid out as the tables; `idx_mapping` is i32 [`num_reqs`].
/// `blocks` is how many ids the rows hold together, for the bytes moved.
///
/// # Errors
/// [`ShapeError`].
pub fn gather(
    idx_mapping: &Memory,
    num_reqs: usize,
    num_reqs_padded: usize,
    tables: &Tables,
    num_blocks: &Memory,
    input_tables: &Memory,
    blocks: usize,
) -> Result<Launch, ShapeError> {
    let kernel = Kernel::BlockTableGather;
    let mut d = Draft::new(kernel);
    let [table, table_offsets, strides] = tables.addresses(&mut d)?;
    d.need(
        num_reqs_padded <= tables.max_num_reqs,
        "num_reqs_padded",
        num_reqs_padded,
        "at most `max_num_reqs` wanted",
    )?;
    let args = args::Gather {
        idx_mapping: d.array("idx_mapping", idx_mapping, &[num_reqs], 4)?,
        tables: table,
        input_tables: d.array("input_tables", input_tables, &[tables.tables_len], 4)?,
        table_offsets,
        strides,
        num_blocks: d.array("num_blocks", num_blocks, &[tables.num_groups, tables.max_num_reqs], 4)?,
        num_reqs: d.size("num_reqs", num_reqs)?,
        num_reqs_padded: d.size("num_reqs_padded", num_reqs_padded)?,
        num_groups: d.size("num_groups", tables.num_groups)?,
        max_num_reqs: d.size("max_num_reqs", tables.max_num_reqs)?,
        tables_len: d.size("tables_len", tables.tables_len)?,
    };
    d.launch(
        [num_reqs_padded, tables.num_groups, 1],
        kernel.threads(),
        args.words(),
        [4 * blocks, 4 * blocks],
    )
}

/// What the slot mapping needs beside the tables.
#[derive(Debug, Clone)]
pub struct Slots {
    /// i32 [`num_reqs`].
    pub idx_mapping: Memory,
    /// i32 [`num_reqs` + 1].
    pub query_start_loc: Memory,
    /// i64 [`max_num_tokens`].
    pub positions: Memory,
    /// i32 [groups].
    pub block_sizes: Memory,
    /// i32 [groups]: 0 for groups of state layers.
    pub enabled: Memory,
    /// i32 [groups].
    pub dcp_sharded: Memory,
    /// i64 [groups, `max_num_tokens`], the result.
    pub slots: Memory,
    /// Requests.
    pub num_reqs: usize,
    /// Tokens there is room for.
    pub max_num_tokens: usize,
    /// Ranks, this rank, and tokens that stay together.
    pub context_parallel: [usize; 3],
}

/// The slots of all groups.
///
/// # Errors
/// [`ShapeError`].
pub fn slot_mapping(slots: &Slots, tables: &Tables) -> Result<Launch, ShapeError> {
    let kernel = Kernel::SlotMapping;
    let mut d = Draft::new(kernel);
    let [table, table_offsets, strides] = tables.addresses(&mut d)?;
    let groups = tables.num_groups;
    let [size, rank, interleave] = slots.context_parallel;
    d.need(size > 0, "cp_size", size, "from 1 wanted")?;
    d.need(interleave > 0, "cp_interleave", interleave, "from 1 wanted")?;
    let args = args::SlotMapping {
        idx_mapping: d.array("idx_mapping", &slots.idx_mapping, &[slots.num_reqs], 4)?,
        query_start_loc: d.array("query_start_loc", &slots.query_start_loc, &[slots.num_reqs + 1], 4)?,
        positions: d.array("positions", &slots.positions, &[slots.max_num_tokens], 8)?,
        tables: table,
        table_offsets,
        strides,
        block_sizes: d.array("block_sizes", &slots.block_sizes, &[groups], 4)?,
        enabled: d.array("enabled", &slots.enabled, &[groups], 4)?,
        dcp_sharded: d.array("dcp_sharded", &slots.dcp_sharded, &[groups], 4)?,
        slots: d.array("slots", &slots.slots, &[groups, slots.max_num_tokens], 8)?,
        num_reqs: d.size("num_reqs", slots.num_reqs)?,
        num_groups: d.size("num_groups", groups)?,
        max_num_reqs: d.size("max_num_reqs", tables.max_num_reqs)?,
        max_num_tokens: d.size("max_num_tokens", slots.max_num_tokens)?,
        tables_len: d.size("tables_len", tables.tables_len)?,
        cp_size: d.size("cp_size", size)?,
        cp_rank: d.size("cp_rank", rank)?,
        cp_interleave: d.size("cp_interleave", interleave)?,
    };
    // Slots are written to the end, positions read by every group.
    let bytes = 8 * groups * slots.max_num_tokens;
    d.launch([slots.num_reqs + 1, groups, 1], kernel.threads(), args.words(), [bytes, bytes])
}
