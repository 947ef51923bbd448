//! How many requests and tokens does a server take into a step where nobody says it?

use super::EngineVersion;

/// What the default batch depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BatchDevice<'a> {
    /// A CPU, with all ranks of the model: tensor times pipeline parallel.
    Cpu {
        /// Ranks.
        world_size: u64,
    },
    /// A device with memory of its own.
    Gpu {
        /// Its memory, bytes.
        memory_bytes: u64,
        /// Its name, where it is known.
        name: &'a str,
    },
}

/// `max_num_seqs` and `max_num_batched_tokens` of an API server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchDefaults {
    /// Requests that run at once at most.
    pub max_num_seqs: u64,
    /// Tokens of a step at most.
    pub max_num_batched_tokens: u64,
}

/// One row: devices from a memory size on.
struct Tier {
    /// N of the first version 0.N that has it.
    since: u16,
    /// Of the device at least, bytes.
    memory_bytes: u64,
    /// Devices that it passes over, by a part of their name, and N of the first version 0.N that does.
    but: &'static [(&'static str, u16)],
    batch: BatchDefaults,
}

const GIB: u64 = 1 << 30;

/// The first row that fits counts.
///
/// # Source
/// `EngineArgs.get_batch_defaults` with `UsageContext.OPENAI_API_SERVER`, vLLM 0.24 to 0.33. `LLM` in a program of
/// one's own takes 16384 tokens where a server takes 8192, and 8192 where it takes 2048.
const TIERS: &[Tier] = &[
    Tier {
        since: 28,
        memory_bytes: 160 * GIB,
        but: &[],
        batch: BatchDefaults { max_num_seqs: 1024, max_num_batched_tokens: 16_384 },
    },
    Tier {
        since: 0,
        memory_bytes: 70 * GIB,
        but: &[("a100", 0), ("gb10", 33)],
        batch: BatchDefaults { max_num_seqs: 1024, max_num_batched_tokens: 8192 },
    },
    Tier {
        since: 0,
        memory_bytes: 0,
        but: &[],
        batch: BatchDefaults { max_num_seqs: 256, max_num_batched_tokens: 2048 },
    },
];

/// On a CPU, of each rank.
const CPU: BatchDefaults = BatchDefaults { max_num_seqs: 128, max_num_batched_tokens: 2048 };

impl BatchDefaults {
    /// What a server of `version` takes on `device`.
    pub fn of(version: EngineVersion, device: BatchDevice<'_>) -> Self {
        let (memory, name) = match device {
            BatchDevice::Cpu { world_size } => {
                return Self {
                    max_num_seqs: CPU.max_num_seqs.saturating_mul(world_size),
                    max_num_batched_tokens: CPU.max_num_batched_tokens.saturating_mul(world_size),
                };
            }
            BatchDevice::Gpu { memory_bytes, name } => (memory_bytes, name.to_ascii_lowercase()),
        };
        TIERS
            .iter()
            .find(|tier| {
                let passed_over =
                    tier.but.iter().any(|(part, since)| version.minor() >= *since && name.contains(part));
                version.minor() >= tier.since && memory >= tier.memory_bytes && !passed_over
            })
            .map_or(CPU, |tier| tier.batch)
    }

    /// The same for requests of up to `max_model_len` tokens: no more tokens than that many requests have, and no
    /// more requests than a step has tokens.
    ///
    /// # Source
    /// `EngineArgs._set_default_max_num_seqs_and_batched_tokens_args`, vLLM 0.33.
    #[must_use]
    pub fn limited(self, max_num_seqs: Option<u64>, max_model_len: u64) -> Self {
        let seqs = max_num_seqs.unwrap_or(self.max_num_seqs);
        let tokens = self.max_num_batched_tokens.min(seqs.saturating_mul(max_model_len));
        Self { max_num_seqs: max_num_seqs.unwrap_or(seqs.min(tokens)), max_num_batched_tokens: tokens }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(minor: u16, gib: u64, name: &str) -> (u64, u64) {
        let version = EngineVersion::from_minor(minor).unwrap_or_default();
        let batch = BatchDefaults::of(version, BatchDevice::Gpu { memory_bytes: gib * GIB, name });
        (batch.max_num_seqs, batch.max_num_batched_tokens)
    }

    #[test]
    fn by_memory_name_and_version() {
        assert_eq!(of(33, 24, "NVIDIA L4"), (256, 2048));
        assert_eq!(of(33, 79, "NVIDIA H100"), (1024, 8192));
        assert_eq!(of(33, 80, "NVIDIA A100-SXM4-80GB"), (256, 2048));
        assert_eq!(of(33, 178, "NVIDIA B200"), (1024, 16_384));
        assert_eq!(of(27, 178, "NVIDIA B200"), (1024, 8192));
        assert_eq!(of(32, 119, "NVIDIA GB10"), (1024, 8192));
        assert_eq!(of(33, 119, "NVIDIA GB10"), (256, 2048));
        let cpu = BatchDefaults::of(EngineVersion::LATEST, BatchDevice::Cpu { world_size: 4 });
        assert_eq!((cpu.max_num_seqs, cpu.max_num_batched_tokens), (512, 8192));
    }

    #[test]
    fn short_requests_fill_less() {
        let batch = BatchDefaults { max_num_seqs: 1024, max_num_batched_tokens: 8192 };
        assert_eq!(batch.limited(Some(2), 448).max_num_batched_tokens, 896);
        assert_eq!(batch.limited(None, 1).max_num_seqs, 1024);
        assert_eq!(batch.limited(Some(64), 100_000), BatchDefaults { max_num_seqs: 64, ..batch });
    }
}
