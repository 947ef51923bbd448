//! Limits that a plan keeps whatever the lock says.

use serde::Deserialize;

use super::Entry;

/// Limits; one that is absent does not hold.
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Policy {
    /// KV cache groups at most.
    pub(crate) max_groups: Option<u64>,
    /// Empty layer slots at most, in percent of all slots.
    pub(crate) max_padding_percent: Option<f64>,
    /// Requests of the longest length at least.
    pub(crate) min_concurrency: Option<f64>,
}

impl Policy {
    /// These limits, with those of `special` in their place where it has any.
    pub(crate) fn overlaid(self, special: Option<&Self>) -> Self {
        let Some(special) = special else { return self };
        Self {
            max_groups: special.max_groups.or(self.max_groups),
            max_padding_percent: special.max_padding_percent.or(self.max_padding_percent),
            min_concurrency: special.min_concurrency.or(self.min_concurrency),
        }
    }

    /// The limits that `entry`, of `layers` layers, breaks.
    #[expect(clippy::cast_precision_loss, reason = "a percentage")]
    pub(crate) fn broken(&self, entry: &Entry, layers: usize) -> Vec<String> {
        let mut broken = Vec::new();
        if let Some(most) = self.max_groups.filter(|most| entry.groups > *most) {
            broken.push(format!("{} groups, and `max_groups` is {most}", entry.groups));
        }
        if let (Some(most), Some(padding)) = (self.max_padding_percent, entry.padding_layers) {
            let percent = padding as f64 / (padding as f64 + layers as f64).max(1.0) * 100.0;
            if percent > most {
                broken.push(format!("{percent:.2}% padding, and `max_padding_percent` is {most}"));
            }
        }
        if let (Some(least), Some(concurrency)) = (self.min_concurrency, entry.max_concurrency)
            && concurrency < least
        {
            broken.push(format!("a concurrency of {concurrency:.2}, and `min_concurrency` is {least}"));
        }
        broken
    }
}
