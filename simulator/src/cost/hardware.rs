//! What a device can do at its peak.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::factors::{FactorError, Factors};

/// A device's peaks; a figure that nobody knows is absent, and what needs it says so.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hardware {
    /// Its name on the command line.
    pub name: String,
    /// Its name for people.
    #[serde(default)]
    pub title: String,
    /// Other names.
    #[serde(default)]
    pub aliases: Vec<String>,
    /// `cuda`, `rocm` or `cpu`.
    pub platform: String,
    /// Memory of one device, bytes.
    pub memory_bytes: Option<u64>,
    /// Memory bandwidth, bytes/s.
    pub bandwidth: Option<f64>,
    /// Dense bf16 rate, FLOP/s.
    pub bf16: Option<f64>,
    /// Dense fp8 rate, FLOP/s.
    #[serde(default)]
    pub fp8: Option<f64>,
    /// Dense fp4 rate, FLOP/s.
    #[serde(default)]
    pub fp4: Option<f64>,
    /// Bandwidth to the peers, one direction, bytes/s.
    pub link_bandwidth: Option<f64>,
    /// A small kernel inside a graph, microseconds.
    pub kernel_us: f64,
    /// Where the figures come from.
    pub source: String,
    /// Factors that are known to be other than the defaults.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub factors: BTreeMap<String, f64>,
}

/// Why a device cannot be used.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum HardwareError {
    /// Nothing is called so.
    #[error("no hardware is called `{name}`; known are {known}")]
    Unknown {
        /// What was asked for.
        name: String,
        /// All names.
        known: String,
    },
    /// A figure is missing.
    #[error("hardware `{hardware}` has no figure for `{figure}`, which {why} needs")]
    Missing {
        /// The device.
        hardware: String,
        /// The figure's key.
        figure: &'static str,
        /// What needs it.
        why: &'static str,
    },
    /// A figure is no size or rate.
    #[error("hardware `{hardware}`: `{figure}` is {value}; it must be above 0")]
    Figure {
        /// The device.
        hardware: String,
        /// The figure's key.
        figure: &'static str,
        /// What was given.
        value: f64,
    },
    /// One of its factors is wrong.
    #[error("hardware `{hardware}`: {source}")]
    Factor {
        /// The device.
        hardware: String,
        /// What is wrong.
        source: FactorError,
    },
}

#[derive(Deserialize)]
struct File {
    hardware: Vec<Hardware>,
}

static KNOWN: LazyLock<Vec<Hardware>> = LazyLock::new(|| {
    let file: File = serde_json::from_str(include_str!("../../data/hardware.json"))
        .unwrap_or(File { hardware: Vec::new() });
    file.hardware
});

/// All shipped devices.
pub fn known_hardware() -> &'static [Hardware] {
    &KNOWN
}

impl Hardware {
    /// The shipped device of a name or alias: upper or lower case, with or without its maker and its form (`-SXM`).
    ///
    /// # Errors
    /// If none is called so.
    pub fn find(name: &str) -> Result<&'static Self, HardwareError> {
        let lower = name.trim().to_ascii_lowercase().replace(['-', ' '], "_");
        let mut plain = lower.as_str();
        for maker in ["nvidia_", "amd_", "instinct_"] {
            plain = plain.strip_prefix(maker).unwrap_or(plain);
        }
        for form in ["_sxm", "_sxm5", "_oam"] {
            plain = plain.strip_suffix(form).unwrap_or(plain);
        }
        let called = |hardware: &&Self| {
            [lower.as_str(), plain]
                .into_iter()
                .any(|own| hardware.name == own || hardware.aliases.iter().any(|alias| alias == own))
        };
        KNOWN.iter().find(called).ok_or_else(|| {
            let known: Vec<&str> = KNOWN.iter().map(|hardware| hardware.name.as_str()).collect();
            HardwareError::Unknown { name: name.to_owned(), known: known.join(", ") }
        })
    }

    /// The default factors with this device's own.
    ///
    /// # Errors
    /// If one of its own is unknown or not above 0.
    pub fn factors(&self) -> Result<Factors, HardwareError> {
        let mut factors = Factors::default();
        for (name, &value) in &self.factors {
            factors
                .set(name, value)
                .map_err(|source| HardwareError::Factor { hardware: self.name.clone(), source })?;
        }
        Ok(factors)
    }

    /// A figure that is needed.
    ///
    /// # Errors
    /// If it is absent, or not above 0.
    pub fn need(
        &self,
        figure: &'static str,
        value: Option<f64>,
        why: &'static str,
    ) -> Result<f64, HardwareError> {
        let value =
            value.ok_or_else(|| HardwareError::Missing { hardware: self.name.clone(), figure, why })?;
        if value > 0.0 && value.is_finite() {
            return Ok(value);
        }
        Err(HardwareError::Figure { hardware: self.name.clone(), figure, value })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_as_tables_write_them() {
        for (asked, meant) in [
            ("h200_sxm", "h200"),
            ("NVIDIA H100 SXM", "h100"),
            ("b200-sxm", "b200"),
            ("AMD Instinct MI300X", "mi300x"),
            ("MI355X_OAM", "mi355x"),
            ("gb200", "gb200"),
            ("gb300_nvl72", "gb300"),
            ("a100_sxm", "a100"),
        ] {
            assert_eq!(Hardware::find(asked).map(|hardware| hardware.name.as_str()), Ok(meant));
        }
        // Another card, not another form of the same.
        for other in ["h100_pcie", "l40s", "rtx_pro_6000_server", "mi300", ""] {
            assert!(Hardware::find(other).is_err(), "{other}");
        }
    }

    #[test]
    fn every_shipped_device_has_its_figures_or_says_that_it_has_none() {
        assert!(KNOWN.len() >= 8);
        for hardware in known_hardware() {
            assert!(hardware.factors().is_ok() && !hardware.source.is_empty(), "{}", hardware.name);
            assert_eq!(hardware.name == "cpu", hardware.bandwidth.is_none());
        }
    }
}
