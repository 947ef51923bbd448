//! One way to run the server, and in what two of them differ.

use planner::GroupSizeRule;

/// What can be chosen.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Choice {
    pub(super) tensor_parallel: u32,
    pub(super) expert_parallel: bool,
    pub(super) max_num_seqs: u32,
    pub(super) max_num_batched_tokens: u32,
    /// `None` is the platform's.
    pub(super) block_size: Option<u64>,
    /// `None` is the engine's.
    pub(super) rule: Option<GroupSizeRule>,
}

/// One of the things that can be chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Setting {
    TensorParallel,
    ExpertParallel,
    MaxNumSeqs,
    MaxNumBatchedTokens,
    BlockSize,
    GroupSize,
}

impl Setting {
    pub(super) const ALL: [Self; 6] = [
        Self::TensorParallel,
        Self::ExpertParallel,
        Self::MaxNumSeqs,
        Self::MaxNumBatchedTokens,
        Self::BlockSize,
        Self::GroupSize,
    ];

    /// Its key in JSON.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::TensorParallel => "tensor_parallel",
            Self::ExpertParallel => "expert_parallel",
            Self::MaxNumSeqs => "max_num_seqs",
            Self::MaxNumBatchedTokens => "max_num_batched_tokens",
            Self::BlockSize => "block_size",
            Self::GroupSize => "group_size_rule",
        }
    }
}

/// A rule's name, as `--grouping` takes it.
pub(super) fn rule_name(rule: Option<GroupSizeRule>) -> String {
    match rule {
        None => "default".to_owned(),
        Some(GroupSizeRule::Fixed(size)) => format!("36143={size}"),
        Some(GroupSizeRule::PaddingPlusGroups { padding_per_group_milli: 1000 }) => "49472".to_owned(),
        Some(GroupSizeRule::PaddingPlusGroups { padding_per_group_milli }) => {
            format!("49472={}", thousandths(padding_per_group_milli))
        }
        Some(GroupSizeRule::SkipSingleLayers) => "51742".to_owned(),
        Some(GroupSizeRule::LeastPadding) => "31275".to_owned(),
        Some(GroupSizeRule::DivideFullAttention) => "58175".to_owned(),
        Some(GroupSizeRule::MinOrMax { .. }) => "old-1.25".to_owned(),
    }
}

fn thousandths(milli: u64) -> String {
    let text = format!("{}.{:03}", milli / 1000, milli % 1000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

impl Choice {
    /// Where it differs from `other`.
    pub(super) fn changes(&self, other: &Self) -> Vec<Setting> {
        Setting::ALL.into_iter().filter(|setting| !self.agrees(other, *setting)).collect()
    }

    fn agrees(&self, other: &Self, setting: Setting) -> bool {
        match setting {
            Setting::TensorParallel => self.tensor_parallel == other.tensor_parallel,
            Setting::ExpertParallel => self.expert_parallel == other.expert_parallel,
            Setting::MaxNumSeqs => self.max_num_seqs == other.max_num_seqs,
            Setting::MaxNumBatchedTokens => self.max_num_batched_tokens == other.max_num_batched_tokens,
            Setting::BlockSize => self.block_size == other.block_size,
            Setting::GroupSize => self.rule == other.rule,
        }
    }

    /// A setting and its value, for people.
    pub(super) fn words(&self, setting: Setting) -> String {
        match setting {
            Setting::TensorParallel => format!("tp {}", self.tensor_parallel),
            Setting::ExpertParallel if self.expert_parallel => "expert parallelism".to_owned(),
            Setting::ExpertParallel => "no expert parallelism".to_owned(),
            Setting::MaxNumSeqs => format!("max-num-seqs {}", self.max_num_seqs),
            Setting::MaxNumBatchedTokens => format!("max-num-batched-tokens {}", self.max_num_batched_tokens),
            Setting::BlockSize => match self.block_size {
                Some(size) => format!("block-size {size}"),
                None => "block-size of the platform".to_owned(),
            },
            Setting::GroupSize => format!("grouping {}", rule_name(self.rule)),
        }
    }

    /// The flags of `vllm serve`; a group size rule has none.
    pub(super) fn flags(&self) -> String {
        let mut out = format!("--tensor-parallel-size {}", self.tensor_parallel);
        if self.expert_parallel {
            out.push_str(" --enable-expert-parallel");
        }
        out.push_str(&format!(
            " --max-num-seqs {} --max-num-batched-tokens {}",
            self.max_num_seqs, self.max_num_batched_tokens
        ));
        if let Some(size) = self.block_size {
            out.push_str(&format!(" --block-size {size}"));
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rule_names_are_what_grouping_reads() {
        for rule in [
            None,
            Some(GroupSizeRule::Fixed(7)),
            Some(GroupSizeRule::SkipSingleLayers),
            Some(GroupSizeRule::LeastPadding),
            Some(GroupSizeRule::DivideFullAttention),
            Some(GroupSizeRule::PaddingPlusGroups { padding_per_group_milli: 1000 }),
            Some(GroupSizeRule::PaddingPlusGroups { padding_per_group_milli: 1500 }),
            Some(GroupSizeRule::MinOrMax { numerator: 5, denominator: 4 }),
        ] {
            let name = rule_name(rule);
            let read = crate::scenario::grouping::parse(&name);
            assert!(read.as_ref().is_ok_and(|read| *read == rule), "{name}: {read:?}");
        }
    }
}
