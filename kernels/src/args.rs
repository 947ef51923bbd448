//! What does each kernel take? One struct by value, in words of eight bytes, as the structs in `csrc/`.
//!
//! A pointer is the address on the device, a size an `i64`. The fields, their meaning and their shapes are those
//! of the struct of the same place in `csrc/`.

macro_rules! arguments {
    ($($(#[$doc:meta])* $name:ident { $($field:ident : $kind:ty),* $(,)? })*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq)]
        #[repr(C)]
        pub struct $name { $(#[doc = concat!("`", stringify!($field), "` of the struct in `csrc/`.")] pub $field: $kind),* }
        impl $name {
            /// The words, in order.
            pub fn words(&self) -> Vec<u64> {
                vec![$(Word::word(self.$field)),*]
            }
        }
    )*};
}

/// A value that fills one word.
pub trait Word {
    /// The word's bits.
    fn word(self) -> u64;
}

impl Word for u64 {
    fn word(self) -> u64 {
        self
    }
}

impl Word for i64 {
    fn word(self) -> u64 {
        self.cast_unsigned()
    }
}

impl Word for f64 {
    fn word(self) -> u64 {
        self.to_bits()
    }
}

arguments! {
    /// `K3Noop`.
    Noop { nothing: i64 }
    /// `K3StreamRead`.
    StreamRead { from: u64, sums: u64, bytes: i64, programs: i64 }
    /// `K3Append`.
    Append {
        groups: u64, rows: u64, starts: u64, cu_lens: u64, ids: u64, tables: u64, table_offsets: u64,
        strides: u64, num_blocks: u64, writes: i64, num_groups: i64, max_num_reqs: i64, ids_len: i64,
        tables_len: i64,
    }
    /// `K3Gather`.
    Gather {
        idx_mapping: u64, tables: u64, input_tables: u64, table_offsets: u64, strides: u64, num_blocks: u64,
        num_reqs: i64, num_reqs_padded: i64, num_groups: i64, max_num_reqs: i64, tables_len: i64,
    }
    /// `K3SlotMapping`.
    SlotMapping {
        idx_mapping: u64, query_start_loc: u64, positions: u64, tables: u64, table_offsets: u64, strides: u64,
        block_sizes: u64, enabled: u64, dcp_sharded: u64, slots: u64, num_reqs: i64, num_groups: i64,
        max_num_reqs: i64, max_num_tokens: i64, tables_len: i64, cp_size: i64, cp_rank: i64, cp_interleave: i64,
    }
    /// `K3SequenceStarts`.
    SequenceStarts {
        num_computed: u64, query_lens: u64, query_start_loc: u64, seq_lens: u64, num_reqs: i64,
        num_reqs_padded: i64,
    }
    /// `K3Positions`.
    Positions { num_computed: u64, query_start_loc: u64, positions: u64, num_reqs: i64, max_num_tokens: i64 }
    /// `K3Split`.
    Split {
        query_start_loc: u64, is_prefilling: u64, counts: u64, num_reqs: i64, decode_threshold: i64,
        require_uniform: i64, short_extends_are_decodes: i64,
    }
    /// `K3ChunkIndices`.
    ChunkIndices {
        cu_seqlens: u64, chunk_indices: u64, chunk_offsets: u64, num_seqs: i64, chunk_size: i64,
        max_num_chunks: i64,
    }
    /// `K3StateIndices`.
    StateIndices {
        table: u64, seq_lens: u64, indices: u64, num_reqs: i64, num_reqs_padded: i64, stride: i64, num_spec: i64,
        block_size: i64,
    }
    /// `K3CacheWrite`.
    CacheWrite {
        key: u64, value: u64, slots: u64, cache: u64, num_tokens: i64, num_heads: i64, head_size: i64,
        block_size: i64, num_blocks: i64, block_stride: i64, value_offset: i64, token_stride: i64,
        head_stride: i64, fp8: i64, inverse_scale: f64,
    }
    /// `K3MlaWrite`.
    MlaWrite {
        latent: u64, rope: u64, slots: u64, cache: u64, num_tokens: i64, latent_size: i64, rope_size: i64,
        block_size: i64, num_blocks: i64, block_stride: i64, token_stride: i64, fp8: i64, inverse_scale: f64,
    }
    /// `K3Read`.
    Read {
        cache: u64, table: u64, seq_lens: u64, sums: u64, num_reqs: i64, stride: i64, num_blocks: i64,
        block_size: i64, kv_heads: i64, head_size: i64, splits: i64, workers: i64, window: i64, block_stride: i64,
        value_offset: i64, token_stride: i64, head_stride: i64, scale: f64,
    }
    /// `K3Combine`.
    Combine { sums: u64, out: u64, rows: i64, parts: i64, row_size: i64 }
    /// `K3StateUpdate`.
    StateUpdate {
        cache: u64, indices: u64, accepted: u64, query_start_loc: u64, num_reqs: i64, width: i64, num_blocks: i64,
        block_stride: i64, conv_bytes: i64, state_bytes: i64, pieces: i64,
    }
    /// `K3StreamWrite`.
    StreamWrite { to: u64, bytes: i64, programs: i64, value: i64 }
}
