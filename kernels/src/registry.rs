//! Which kernels are there, what their symbols are, and how each spreads over programs and threads?

/// A kernel. The order is that of `csrc/table.h`: the discriminant is its number there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(i32)]
pub enum Kernel {
    /// Does nothing: the cost of a launch.
    Noop,
    /// Reads memory once, in order: the bandwidth to compare with.
    StreamRead,
    /// Writes new block ids into the block tables of all groups.
    BlockTableAppend,
    /// Gathers the batch's rows of the block tables of all groups.
    BlockTableGather,
    /// The slot of each scheduled token in each group.
    SlotMapping,
    /// `query_start_loc` and `seq_lens`.
    SequenceStarts,
    /// The position of each scheduled token.
    Positions,
    /// Where decodes end and prefills begin.
    DecodePrefillSplit,
    /// Chunk indices and chunk offsets of linear attention.
    ChunkIndices,
    /// The state indices of a group of KDA layers.
    KdaStateIndices,
    /// Keys and values into the paged cache.
    KvCacheWrite,
    /// Latents into the paged cache.
    MlaCacheWrite,
    /// Keys and values of a batch, bf16.
    GqaReadBf16,
    /// Keys and values of a batch, fp8.
    GqaReadFp8,
    /// Latents of a batch, bf16.
    MlaReadBf16,
    /// Latents of a batch, fp8.
    MlaReadFp8,
    /// Adds the parts of a read.
    ReadCombine,
    /// Reads, changes and writes recurrent states.
    StateUpdate,
    /// Writes memory once, in order: the bandwidth to compare with.
    StreamWrite,
}

impl Kernel {
    /// All kernels, by number.
    pub const ALL: [Self; 19] = [
        Self::Noop,
        Self::StreamRead,
        Self::BlockTableAppend,
        Self::BlockTableGather,
        Self::SlotMapping,
        Self::SequenceStarts,
        Self::Positions,
        Self::DecodePrefillSplit,
        Self::ChunkIndices,
        Self::KdaStateIndices,
        Self::KvCacheWrite,
        Self::MlaCacheWrite,
        Self::GqaReadBf16,
        Self::GqaReadFp8,
        Self::MlaReadBf16,
        Self::MlaReadFp8,
        Self::ReadCombine,
        Self::StateUpdate,
        Self::StreamWrite,
    ];

    /// The number in `csrc/table.h`.
    pub fn number(self) -> i32 {
        self as i32
    }

    /// The name of the function in the compiled module.
    pub fn symbol(self) -> &'static str {
        match self {
            Self::Noop => "k3_noop",
            Self::StreamRead => "k3_stream_read",
            Self::BlockTableAppend => "k3_block_table_append",
            Self::BlockTableGather => "k3_block_table_gather",
            Self::SlotMapping => "k3_slot_mapping",
            Self::SequenceStarts => "k3_sequence_starts",
            Self::Positions => "k3_positions",
            Self::DecodePrefillSplit => "k3_decode_prefill_split",
            Self::ChunkIndices => "k3_chunk_indices",
            Self::KdaStateIndices => "k3_kda_state_indices",
            Self::KvCacheWrite => "k3_kv_cache_write",
            Self::MlaCacheWrite => "k3_mla_cache_write",
            Self::GqaReadBf16 => "k3_gqa_read_bf16",
            Self::GqaReadFp8 => "k3_gqa_read_fp8",
            Self::MlaReadBf16 => "k3_mla_read_bf16",
            Self::MlaReadFp8 => "k3_mla_read_fp8",
            Self::ReadCombine => "k3_read_combine",
            Self::StateUpdate => "k3_state_update",
            Self::StreamWrite => "k3_stream_write",
        }
    }

    /// The symbol without its prefix: what a person reads.
    pub fn name(self) -> &'static str {
        self.symbol().trim_start_matches("k3_")
    }

    /// Whether it reads keys, values or latents by block table.
    pub fn is_paged_read(self) -> bool {
        matches!(self, Self::GqaReadBf16 | Self::GqaReadFp8 | Self::MlaReadBf16 | Self::MlaReadFp8)
    }

    /// Whether it is of the step's host-side kind: block tables, slots and what builders fill.
    pub fn is_metadata(self) -> bool {
        matches!(
            self,
            Self::BlockTableAppend
                | Self::BlockTableGather
                | Self::SlotMapping
                | Self::SequenceStarts
                | Self::Positions
                | Self::DecodePrefillSplit
                | Self::ChunkIndices
                | Self::KdaStateIndices
        )
    }

    /// Whether the CPU may spread a launch over its cores: its programs write apart, whatever the data say.
    pub fn spreads(self) -> bool {
        let streams = matches!(self, Self::StreamRead | Self::StreamWrite);
        self.is_paged_read() || streams || matches!(self, Self::StateUpdate | Self::SlotMapping)
    }

    /// The grid that this many threads of a CPU run instead of a GPU's, for the kernels that take any grid there.
    /// Slots are filled by a program a thread, which looks at a request once for all its groups; states by one a
    /// piece. So two programs never write to the same bytes, whatever requests and pages the data name.
    pub fn cpu_grid(self, grid: [u32; 3], threads: u32) -> [u32; 3] {
        match self {
            Self::SlotMapping => [1, grid[1].min(threads), 1],
            Self::StateUpdate => [1, grid[1], 1],
            _ => grid,
        }
    }

    /// Threads a block that suit the kernel on a GPU; the reads choose by the size of a row.
    pub fn threads(self) -> u32 {
        match self {
            Self::Noop => 1,
            Self::KdaStateIndices => 32,
            Self::StreamRead | Self::StreamWrite | Self::ReadCombine | Self::StateUpdate => 256,
            _ => 128,
        }
    }
}
