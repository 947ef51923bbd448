//! How many layers a group has: vLLM's rule, and the proposals that people compare with it.

use super::{Bucket, SpecTable};
use crate::settings::GroupSizeRule;
use crate::size;

/// The layers of one group under `rule`, at least 1.
pub fn choose(rule: GroupSizeRule, buckets: &[Bucket], table: &SpecTable) -> u64 {
    let counts: Vec<u64> = buckets.iter().map(|bucket| bucket.layers.len() as u64).collect();
    let full: Vec<u64> = buckets
        .iter()
        .filter(|bucket| bucket.specs.first().is_some_and(|id| table.spec(*id).kind().is_full_family()))
        .map(|bucket| bucket.layers.len() as u64)
        .collect();
    size_for(rule, &counts, &full)
}

/// The layers of one group under `rule`, from the layers of each bucket and of each full-attention bucket.
pub fn size_for(rule: GroupSizeRule, counts: &[u64], full_attention: &[u64]) -> u64 {
    let (Some(smallest), Some(largest)) = (counts.iter().copied().min(), counts.iter().copied().max()) else {
        return 1;
    };
    let size = match rule {
        GroupSizeRule::MinOrMax { numerator, denominator } => {
            min_or_max(smallest, largest, numerator, denominator)
        }
        GroupSizeRule::Fixed(size) => size,
        GroupSizeRule::SkipSingleLayers => {
            let repeated = counts.iter().copied().filter(|n| *n > 1).min().unwrap_or(smallest);
            min_or_max(repeated, largest, 3, 2)
        }
        GroupSizeRule::PaddingPlusGroups { padding_per_group_milli } => (1..=largest)
            .min_by_key(|size| {
                let groups = groups(counts, *size);
                let cost = u128::from(padding(counts, *size)) * 1000
                    + u128::from(padding_per_group_milli) * u128::from(groups);
                (cost, groups)
            })
            .unwrap_or(smallest),
        GroupSizeRule::LeastPadding => least_padding(counts, largest),
        GroupSizeRule::DivideFullAttention => {
            let size = min_or_max(smallest, largest, 3, 2);
            let common = full_attention.iter().copied().fold(0, size::gcd);
            if size == largest || common == 0 {
                size
            } else {
                (1..=size).rev().find(|size| common.is_multiple_of(*size)).unwrap_or(size)
            }
        }
    };
    size.max(1)
}

fn min_or_max(smallest: u64, largest: u64, numerator: u64, denominator: u64) -> u64 {
    let below = u128::from(largest) * u128::from(denominator) < u128::from(smallest) * u128::from(numerator);
    if below { largest } else { smallest }
}

/// Groups that buckets of `counts` layers are cut into.
pub fn groups(counts: &[u64], size: u64) -> u64 {
    counts.iter().map(|n| n.div_ceil(size.max(1))).sum()
}

/// Layer slots that stay empty.
pub fn padding(counts: &[u64], size: u64) -> u64 {
    counts.iter().map(|n| n.div_ceil(size.max(1)) * size.max(1) - n).sum()
}

fn least_padding(counts: &[u64], largest: u64) -> u64 {
    let total: u64 = counts.iter().sum();
    let within = |size: &u64| padding(counts, *size) * 10 <= total;
    if let Some(size) = (3..=largest).rev().find(within) {
        return size;
    }
    (1..=largest).rev().min_by_key(|size| padding(counts, *size)).unwrap_or(1)
}
