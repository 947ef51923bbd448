//! Which engine decides: vLLM's versions as data, and the rules that each one plans by.

mod batch;
mod changes;
mod quantization;

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

pub use batch::{BatchDefaults, BatchDevice};
pub use changes::{CHANGES, Change, Rule, holds_in_minor};

use crate::settings::GroupSizeRule;

/// A minor version of vLLM whose planning is known, such as 0.33.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EngineVersion(u16);

impl EngineVersion {
    /// The oldest version that is known.
    pub const OLDEST: Self = Self(24);
    /// The newest version that is known.
    pub const LATEST: Self = Self(33);

    /// The known version 0.`minor`.
    pub const fn from_minor(minor: u16) -> Option<Self> {
        if minor >= Self::OLDEST.0 && minor <= Self::LATEST.0 { Some(Self(minor)) } else { None }
    }

    /// N of 0.N.
    pub const fn minor(self) -> u16 {
        self.0
    }

    /// Every known version, oldest first.
    pub fn all() -> impl DoubleEndedIterator<Item = Self> + Clone {
        (Self::OLDEST.0..=Self::LATEST.0).map(Self)
    }

    /// The rules of this version.
    pub fn rules(self) -> Rules {
        Rules::of(self)
    }
}

impl Default for EngineVersion {
    fn default() -> Self {
        Self::LATEST
    }
}

impl fmt::Display for EngineVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0.{}", self.0)
    }
}

/// A text that names no known version.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("vLLM `{0}` is not known; known are {oldest} to {latest}", oldest = EngineVersion::OLDEST, latest = EngineVersion::LATEST)]
pub struct UnknownVersion(pub String);

impl FromStr for EngineVersion {
    type Err = UnknownVersion;

    /// Takes `0.33`, `0.33.0`, `v0.33.1`, `vllm 0.32.0`, `0.33.0+cpu` and `0.33.1rc1`.
    fn from_str(text: &str) -> Result<Self, UnknownVersion> {
        let unknown = || UnknownVersion(text.to_owned());
        let version = text.trim().trim_start_matches("vllm").trim_start_matches([' ', '-', '=']);
        let version = version.strip_prefix('v').unwrap_or(version);
        let minor = version.strip_prefix("0.").ok_or_else(unknown)?;
        let (minor, rest) = minor.split_at(minor.find(|c: char| !c.is_ascii_digit()).unwrap_or(minor.len()));
        if !(rest.is_empty() || rest.starts_with('.')) {
            return Err(unknown());
        }
        minor.parse().ok().and_then(Self::from_minor).ok_or_else(unknown)
    }
}

impl Serialize for EngineVersion {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for EngineVersion {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// Which of two page layouts an engine's special groups have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TupleGroups {
    /// Tuples of layers of different page sizes, window pages padded to the latents' sizes.
    PaddedPages,
    /// The same without padding.
    OwnPages,
    /// No such groups: block-outermost layouts pack instead.
    None,
}

/// Which block a sliding-window layer takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WindowBlocks {
    /// The engine's.
    Engine,
    /// The smallest that its backend takes.
    Smallest,
    /// The largest that its backend takes and that is not above the engine's.
    LargestWithin,
}

/// The decisions that differ between versions, for one version.
///
/// Built from [`CHANGES`]; each field is one of its rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules {
    /// The version.
    pub version: EngineVersion,
    /// [`Rule::GroupSize`].
    pub group_size: GroupSizeRule,
    /// [`Rule::BucketMerge`].
    pub bucket_merge: bool,
    /// [`Rule::StatePagesPad`].
    pub state_pages_pad: bool,
    /// [`Rule::AttentionPagesPad`].
    pub attention_pages_pad: bool,
    /// [`Rule::FullAllocationFallback`].
    pub full_allocation_fallback: bool,
    /// [`Rule::PromoteToFullBlockSize`].
    pub promote_to_full_block_size: bool,
    /// [`Rule::PromoteKeepsFields`].
    pub promote_keeps_fields: bool,
    /// [`Rule::PromoteByDcpSharding`].
    pub promote_by_dcp_sharding: bool,
    /// [`Rule::TupleGroups`] and [`Rule::TuplePagesKept`].
    pub tuple_groups: TupleGroups,
    /// [`Rule::TuplesOfMixedPages`].
    pub tuples_of_mixed_pages: bool,
    /// [`Rule::StateSlotGroups`].
    pub state_slot_groups: bool,
    /// [`Rule::PromotionFailsForSlidingMla`].
    pub promotion_fails_for_sliding_mla: bool,
    /// [`Rule::PackedGroups`].
    pub packed_groups: bool,
    /// [`Rule::PackedWindowsSplit`].
    pub packed_windows_split: bool,
    /// [`Rule::PageFromStateContent`].
    pub page_from_state_content: bool,
    /// [`Rule::Int4Halves`].
    pub int4_halves: bool,
    /// [`Rule::TokensPerState`].
    pub tokens_per_state: bool,
    /// [`Rule::HeadSizeVMerges`].
    pub head_size_v_must_match: bool,
    /// [`Rule::MlaChecksAttentionFields`].
    pub mla_checks_attention_fields: bool,
    /// [`Rule::MlaDecodeRowsMustMatch`].
    pub mla_decode_rows_must_match: bool,
    /// [`Rule::DcpShardedDeclared`].
    pub dcp_sharded_is_declared: bool,
    /// [`Rule::TpReplicas`].
    pub tp_replicas: bool,
    /// [`Rule::StatePagesMustMatch`].
    pub state_pages_must_match: bool,
    /// [`Rule::StateModeAllGrows`].
    pub state_mode_all_grows: bool,
    /// [`Rule::PcpShardsPositions`].
    pub pcp_shards_positions: bool,
    /// [`Rule::ConcurrencyByGroup`].
    pub concurrency_by_group: bool,
    /// [`Rule::NullBlockReserved`].
    pub null_block_reserved: bool,
    /// [`Rule::BlocksFromGroups`].
    pub blocks_from_groups: bool,
    /// [`Rule::StrideAlignmentAlways`].
    pub stride_alignment_always: bool,
    /// [`Rule::LayoutCheckedFirst`].
    pub layout_checked_first: bool,
    /// [`Rule::RetainedTokensByEngine`].
    pub retained_tokens_by_engine: bool,
    /// [`Rule::InFlightTokens`].
    pub in_flight_tokens: bool,
    /// [`Rule::OneCapacityLine`].
    pub one_capacity_line: bool,
    /// [`Rule::HiddenStatesDivide`].
    pub hidden_states_divide: bool,
    /// [`Rule::HiddenStatesScale`].
    pub hidden_states_scale: bool,
    /// [`Rule::LatentBlocksOf128`].
    pub latent_blocks_of_128: bool,
    /// [`Rule::BlocksOfEveryBackend`].
    pub blocks_of_every_backend: bool,
    /// [`Rule::PoolPages`].
    pub pool_pages: bool,
    /// [`Rule::StatesCheckpoint`].
    pub states_checkpoint: bool,
    /// [`Rule::DeltaNetsCheckpoint`].
    pub delta_nets_checkpoint: bool,
    /// [`Rule::WindowsChooseBlock`] and [`Rule::WindowsTakeSmallestBlock`].
    pub window_blocks: WindowBlocks,
    /// [`Rule::GroupSizesLogged`].
    pub group_sizes_logged: bool,
}

impl Rules {
    /// The rules of `version`.
    pub fn of(version: EngineVersion) -> Self {
        Self::with(version, |rule| changes::holds(rule, version))
    }

    /// The rules of a version but for one, which is as it was before or after.
    pub fn but(version: EngineVersion, other: Rule) -> Self {
        Self::with(version, |rule| changes::holds(rule, version) != (rule == other))
    }

    fn with(version: EngineVersion, holds: impl Fn(Rule) -> bool) -> Self {
        Self {
            version,
            group_size: GroupSizeRule::MinOrMax { numerator: 3, denominator: 2 },
            bucket_merge: holds(Rule::BucketMerge),
            state_pages_pad: holds(Rule::StatePagesPad),
            attention_pages_pad: holds(Rule::AttentionPagesPad),
            full_allocation_fallback: holds(Rule::FullAllocationFallback),
            promote_to_full_block_size: holds(Rule::PromoteToFullBlockSize),
            promote_keeps_fields: holds(Rule::PromoteKeepsFields),
            promote_by_dcp_sharding: holds(Rule::PromoteByDcpSharding),
            tuple_groups: match (holds(Rule::TupleGroups), holds(Rule::TuplePagesKept)) {
                (false, _) => TupleGroups::None,
                (true, false) => TupleGroups::PaddedPages,
                (true, true) => TupleGroups::OwnPages,
            },
            tuples_of_mixed_pages: holds(Rule::TuplesOfMixedPages),
            state_slot_groups: holds(Rule::StateSlotGroups),
            promotion_fails_for_sliding_mla: holds(Rule::PromotionFailsForSlidingMla),
            packed_groups: holds(Rule::PackedGroups),
            packed_windows_split: holds(Rule::PackedWindowsSplit),
            page_from_state_content: holds(Rule::PageFromStateContent),
            int4_halves: holds(Rule::Int4Halves),
            tokens_per_state: holds(Rule::TokensPerState),
            head_size_v_must_match: holds(Rule::HeadSizeVMerges),
            mla_checks_attention_fields: holds(Rule::MlaChecksAttentionFields),
            mla_decode_rows_must_match: holds(Rule::MlaDecodeRowsMustMatch),
            dcp_sharded_is_declared: holds(Rule::DcpShardedDeclared),
            tp_replicas: holds(Rule::TpReplicas),
            state_pages_must_match: holds(Rule::StatePagesMustMatch),
            state_mode_all_grows: holds(Rule::StateModeAllGrows),
            pcp_shards_positions: holds(Rule::PcpShardsPositions),
            concurrency_by_group: holds(Rule::ConcurrencyByGroup),
            null_block_reserved: holds(Rule::NullBlockReserved),
            blocks_from_groups: holds(Rule::BlocksFromGroups),
            stride_alignment_always: holds(Rule::StrideAlignmentAlways),
            layout_checked_first: holds(Rule::LayoutCheckedFirst),
            retained_tokens_by_engine: holds(Rule::RetainedTokensByEngine),
            in_flight_tokens: holds(Rule::InFlightTokens),
            one_capacity_line: holds(Rule::OneCapacityLine),
            hidden_states_divide: holds(Rule::HiddenStatesDivide),
            hidden_states_scale: holds(Rule::HiddenStatesScale),
            latent_blocks_of_128: holds(Rule::LatentBlocksOf128),
            blocks_of_every_backend: holds(Rule::BlocksOfEveryBackend),
            pool_pages: holds(Rule::PoolPages),
            states_checkpoint: holds(Rule::StatesCheckpoint),
            delta_nets_checkpoint: holds(Rule::DeltaNetsCheckpoint),
            window_blocks: match (holds(Rule::WindowsChooseBlock), holds(Rule::WindowsTakeSmallestBlock)) {
                (false, _) => WindowBlocks::Engine,
                (true, true) => WindowBlocks::Smallest,
                (true, false) => WindowBlocks::LargestWithin,
            },
            group_sizes_logged: holds(Rule::GroupSizesLogged),
        }
    }
}
