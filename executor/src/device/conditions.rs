//! Under which conditions was something measured: clocks, temperature, other users of the device?
//!
//! Read from what the system shows without rights: `/proc` and `/sys` for the CPU, `nvidia-smi` or the AMD
//! driver's files for a GPU. What cannot be read is `None`, never a guess.

use std::fs;
use std::process::Command;

use super::{Backend, DeviceInfo};

/// The conditions at one moment.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Conditions {
    /// Clock of the device's cores in MHz.
    pub clock_mhz: Option<f64>,
    /// Temperature in degrees Celsius.
    pub temperature_c: Option<f64>,
    /// What others do with the device: tasks that are running on the CPU beside this one (load of the last
    /// minute), percent of the time a GPU was busy.
    pub other_use: Option<f64>,
    /// Other processes on the GPU.
    pub other_processes: Option<u32>,
}

/// Reads the conditions of a device.
pub fn read(info: &DeviceInfo) -> Conditions {
    match info.backend {
        Backend::Cuda => nvidia(),
        Backend::Hip => amd(),
        Backend::Cpu | Backend::Dummy => Conditions {
            clock_mhz: mean(&field("/proc/cpuinfo", "cpu MHz")),
            temperature_c: number("/sys/class/thermal/thermal_zone0/temp").map(|t| t / 1000.0),
            other_use: fs::read_to_string("/proc/loadavg")
                .ok()
                .and_then(|l| l.split(' ').next()?.parse().ok()),
            other_processes: None,
        },
    }
}

fn nvidia() -> Conditions {
    let ask = |query: &str| {
        let output =
            Command::new("nvidia-smi").args([query, "--format=csv,noheader,nounits"]).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let line = ask("--query-gpu=clocks.sm,temperature.gpu,utilization.gpu").unwrap_or_default();
    let mut numbers = line.lines().next().unwrap_or("").split(',').map(|n| n.trim().parse::<f64>().ok());
    let mut next = || numbers.next().flatten();
    Conditions {
        clock_mhz: next(),
        temperature_c: next(),
        other_use: next(),
        other_processes: ask("--query-compute-apps=pid").and_then(|pids| {
            let own = std::process::id().to_string();
            u32::try_from(pids.lines().filter(|pid| !pid.trim().is_empty() && pid.trim() != own).count()).ok()
        }),
    }
}

fn amd() -> Conditions {
    let card = "/sys/class/drm/card0/device";
    let sensor =
        fs::read_dir(format!("{card}/hwmon")).ok().and_then(|mut d| d.next()?.ok()).map(|d| d.path());
    let sensed = |file: &str| number(sensor.as_ref()?.join(file).to_str()?);
    Conditions {
        clock_mhz: sensed("freq1_input").map(|hz| hz / 1e6),
        temperature_c: sensed("temp1_input").map(|t| t / 1000.0),
        other_use: number(&format!("{card}/gpu_busy_percent")),
        other_processes: None,
    }
}

fn number(path: &str) -> Option<f64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

fn field(path: &str, name: &str) -> Vec<String> {
    let text = fs::read_to_string(path).unwrap_or_default();
    let values = text.lines().filter_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim().to_owned())
    });
    values.collect()
}

fn mean(values: &[String]) -> Option<f64> {
    let numbers: Vec<f64> = values.iter().filter_map(|v| v.parse().ok()).collect();
    #[expect(clippy::cast_precision_loss, reason = "a count of cores")]
    (!numbers.is_empty()).then(|| numbers.iter().sum::<f64>() / numbers.len() as f64)
}

/// The processor's name for itself.
pub(super) fn processor_name() -> String {
    field("/proc/cpuinfo", "model name")
        .into_iter()
        .next()
        .unwrap_or_else(|| std::env::consts::ARCH.to_owned())
}

/// Bytes of memory.
pub(super) fn memory_bytes() -> Option<u64> {
    let total = field("/proc/meminfo", "MemTotal").into_iter().next()?;
    total.split(' ').next()?.parse::<u64>().ok()?.checked_mul(1024)
}

/// Bytes of the last cache.
pub(super) fn cache_bytes() -> Option<u64> {
    let size = fs::read_to_string("/sys/devices/system/cpu/cpu0/cache/index3/size").ok()?;
    size.trim().strip_suffix('K')?.parse::<u64>().ok()?.checked_mul(1024)
}
