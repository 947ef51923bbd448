//! What each version changed about planning: one row a rule, with where it can be read.

use super::EngineVersion;

macro_rules! rules {
    ($($rule:ident $since:literal $(..= $until:literal)?, $what:literal, $source:literal;)+) => {
        /// A decision that some versions take and others do not.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Rule {
            $(#[doc = $what] $rule),+
        }

        /// Every rule, in the order in which planning meets it.
        pub const CHANGES: &[Change] = &[
            $(Change {
                rule: Rule::$rule,
                since: $since,
                until: rules!(@until $($until)?),
                what: $what,
                source: $source,
            }),+
        ];
    };
    (@until) => { None };
    (@until $until:literal) => { Some($until) };
}

/// One rule, and the versions that plan by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Change {
    /// The rule.
    pub rule: Rule,
    /// N of the first version 0.N that has it; 0 is before the oldest that is known.
    pub since: u16,
    /// N of the last version 0.N that has it; `None` is still there.
    pub until: Option<u16>,
    /// What it says.
    pub what: &'static str,
    /// Where it stands in vLLM.
    pub source: &'static str,
}

impl Change {
    /// Whether `version` plans by the rule.
    pub const fn holds_in(&self, version: EngineVersion) -> bool {
        self.holds_in_minor(version.minor())
    }

    /// Whether version 0.`minor` does, also where it is not known otherwise.
    pub const fn holds_in_minor(&self, minor: u16) -> bool {
        minor >= self.since
            && match self.until {
                None => true,
                Some(until) => minor <= until,
            }
    }
}

/// Whether version 0.`minor` follows `rule`; logs are also of versions that cannot be planned for.
pub fn holds_in_minor(rule: Rule, minor: u16) -> bool {
    CHANGES.iter().any(|change| change.rule == rule && change.holds_in_minor(minor))
}

/// Whether `version` plans by `rule`.
pub(super) fn holds(rule: Rule, version: EngineVersion) -> bool {
    CHANGES.iter().any(|change| change.rule == rule && change.holds_in(version))
}

rules! {
    PromoteByDcpSharding 31,
        "With the hybrid manager off, layers that context parallelism shards and those that it does not are promoted apart.",
        "kv_cache_utils.py unify_hybrid_kv_cache_specs";
    PromoteToFullBlockSize 27,
        "A promoted layer takes the block size of the full-attention layers.",
        "kv_cache_utils.py _promote_local_kv_cache_specs";
    PromoteKeepsFields 28,
        "A promoted layer keeps every field that its new class has.",
        "kv_cache_interface.py replace_as";
    PromotionFailsForSlidingMla 31,
        "A promoted sliding-window MLA layer has a field that its new class does not know, an error.",
        "kv_cache_interface.py replace_as, SlidingWindowMLASpec.bounded_replay";
    HeadSizeVMerges 28,
        "Layers whose value head size differs do not merge.",
        "kv_cache_interface.py AttentionSpec.head_size_v";
    MlaChecksAttentionFields 27,
        "MLA layers merge only if every attention field is equal.",
        "kv_cache_interface.py MLAAttentionSpec.merge";
    MlaDecodeRowsMustMatch 29 ..= 29,
        "MLA layers merge only if they agree on `non_causal_multi_token_decode`.",
        "kv_cache_interface.py MLAAttentionSpec.merge";
    DcpShardedDeclared 31,
        "A spec says whether context parallelism shards it (`dcp_sharded`).",
        "kv_cache_interface.py KVCacheSpec.dcp_sharded";
    StatePagesMustMatch 29,
        "State layers share a mixed group only if their pages, checkpoints and replication agree.",
        "kv_cache_interface.py MambaSpec.is_uniform_with_collection";
    PageFromStateContent 28,
        "The page follows from head slots and bytes a state that the backend publishes.",
        "kv_cache_interface.py AttentionSpec.unpadded_page_size_bytes";
    Int4Halves 25 ..= 27,
        "Four-bit caches with a scale a token and head take half a byte an element.",
        "kv_cache_interface.py AttentionSpec.real_page_size_bytes";
    TokensPerState 29,
        "`tokens_per_state` replaces `compress_ratio`.",
        "kv_cache_interface.py AttentionSpec.tokens_per_state";
    TupleGroups 0 ..= 28,
        "Sliding-window MLA next to MLA is grouped by tuples of layers of different page sizes.",
        "kv_cache_utils.py group_and_unify_kv_cache_specs";
    TuplesOfMixedPages 26 ..= 28,
        "Tuples are made only where page sizes differ.",
        "kv_cache_utils.py group_and_unify_kv_cache_specs";
    TuplePagesKept 27 ..= 28,
        "Tuples keep their own page sizes.",
        "kv_cache_utils.py _get_kv_cache_groups_uniform_groups";
    PackedGroups 29,
        "Block-outermost layouts pack layers of different page sizes into one block.",
        "kv_cache_utils.py _get_packed_kv_cache_groups";
    PackedWindowsSplit 30,
        "A packed bucket of sliding-window layers may be split as state layers are.",
        "kv_cache_utils.py _get_packed_kv_cache_groups";
    StatePagesPad 26,
        "A state page smaller than the largest page is padded to it.",
        "kv_cache_utils.py unify_kv_cache_spec_page_size";
    AttentionPagesPad 29,
        "An attention page that does not divide the largest is padded to it, except MLA; before, only if its backend indexes by block stride.",
        "kv_cache_utils.py unify_kv_cache_spec_page_size";
    FullAllocationFallback 27,
        "Where pages cannot be unified, MLA next to sliding-window layers falls back to full allocation.",
        "kv_cache_utils.py _try_get_full_allocation_fallback_groups";
    HiddenStatesDivide 28,
        "A hidden-state layer's block size divides the groups' common block size.",
        "kv_cache_utils.py get_kv_cache_groups";
    HiddenStatesScale 30,
        "Block sizes scale up until the common page holds one token's hidden state.",
        "kv_cache_utils.py _ensure_min_page_size";
    StateSlotGroups 30 ..= 31,
        "States beside MLA layers with an indexer take the MLA layers' slots.",
        "kv_cache_utils.py _get_kv_cache_groups_glm5_next";
    BucketMerge 27,
        "Buckets of unequal specs merge where the merged spec is valid.",
        "kv_cache_utils.py _get_kv_cache_groups_uniform_page_size";
    GroupSize 0,
        "Group size is the smallest bucket, or the largest if that is below 1.5 times the smallest.",
        "kv_cache_utils.py _get_kv_cache_groups_uniform_page_size";
    RetainedTokensByEngine 28,
        "The engine sets `extra_retained_tokens` of every sliding-window layer before it groups.",
        "kv_cache_utils.py get_kv_cache_configs";
    TpReplicas 31,
        "Specs say how many distinct shards they split into (`max_tp_shards`); `kv_tp_replicas` is their gcd.",
        "kv_cache_utils.py kv_cache_groups_tp_replicas";
    BlocksFromGroups 29,
        "Bytes a block are the largest group's pages, and a request needs the sum of the groups' blocks.",
        "kv_cache_utils.py _get_kv_cache_bytes_per_block";
    StrideAlignmentAlways 32,
        "A block stride alignment also pads pages of layer-outermost layouts.",
        "kv_cache_utils.py _get_layer_block_stride";
    LayoutCheckedFirst 33,
        "The layout is checked before memory is.",
        "kv_cache_planning.py _pool_bytes_per_block_from_builder";
    NullBlockReserved 29,
        "The capacity check holds back the null block.",
        "kv_cache_utils.py get_kv_cache_configs";
    PcpShardsPositions 0 ..= 25,
        "Prefill context parallelism also shards the positions of full attention.",
        "kv_cache_interface.py FullAttentionSpec.max_memory_usage_bytes";
    InFlightTokens 26,
        "Windows and chunks reserve for every batch in flight, not for one.",
        "kv_cache_interface.py SlidingWindowSpec.max_admission_blocks_per_request";
    StateModeAllGrows 0 ..= 31,
        "State mode `all` keeps a state for every block of a request.",
        "kv_cache_interface.py MambaSpec.max_memory_usage_bytes";
    ConcurrencyByGroup 27,
        "Concurrency divides by the sum of the groups' blocks; before, by bytes over the first group's page.",
        "kv_cache_utils.py get_max_concurrency_for_kv_cache_config";
    OneCapacityLine 28,
        "Cache size and concurrency are logged in one line.",
        "kv_cache_utils.py update_kv_cache_capacity";
    TokensByBlocks 0 ..= 20,
        "The tokens that are logged are the blocks of a group times the smallest block; since then, concurrency times the longest request.",
        "kv_cache_utils.py _report_kv_cache_config";
    LatentBlocksOf128 27,
        "A hybrid model's latents take blocks of a multiple of 128 tokens.",
        "platforms/interface.py _align_hybrid_block_size";
    BlocksOfEveryBackend 32,
        "A hybrid model's block is a multiple of every backend's smallest one.",
        "platforms/interface.py _align_hybrid_block_size";
    PoolPages 32,
        "The block of a model whose indexer pools keys is a multiple of the pages that its kernels take.",
        "v1/attention/backends/mla/indexer.py Glm5NextIndexerBackend";
    StatesCheckpoint 32,
        "States of Mamba 2 and of GLM-5.3's KDA can be kept from inside a prefill; before, those of Kimi-K3 alone.",
        "model_executor/layers/mamba/mamba_mixer2.py and models/glm5next/common/kda.py get_kv_cache_spec";
    DeltaNetsCheckpoint 33,
        "FlashInfer's prefill of a gated delta net keeps states at the ends of blocks, which are multiples of 64 tokens then.",
        "model_executor/layers/mamba/gdn/qwen_gdn_linear_attn.py get_kv_cache_spec, platforms/interface.py _align_hybrid_block_size";
    WindowsTakeSmallestBlock 25 ..= 29,
        "Sliding-window layers take their backend's smallest block.",
        "layers/attention/attention.py _largest_kernel_block_within";
    WindowsChooseBlock 25,
        "Sliding-window layers choose a block of their own; since 0.30 the largest within the engine's.",
        "layers/attention/attention.py Attention.get_kv_cache_spec";
    GroupSizesLogged 30,
        "The groups' block sizes are logged (`kv cache group sizes`).",
        "kv_cache_utils.py resolve_kv_cache_block_sizes";
}
