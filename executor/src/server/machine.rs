//! The machine that measured: what a later reader must know to compare two runs.

use std::fs;

use serde::Serialize;

/// Facts of this machine; `None` where the system does not tell.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Machine {
    /// Operating system and processor family, as the compiler names them.
    pub platform: String,
    /// The kernel's release.
    pub kernel: Option<String>,
    /// The processor's name.
    pub cpu: Option<String>,
    /// Processors that may be used.
    pub cpu_count: usize,
    /// Memory in bytes.
    pub memory_bytes: Option<u64>,
    /// Runnable tasks over the last minute, when the run began: others' work shows here.
    pub load_average: Option<f64>,
}

impl Machine {
    /// Looks at this machine.
    pub fn look() -> Self {
        let read = |path: &str| fs::read_to_string(path).ok();
        let field = |text: &str, name: &str| {
            let line = text.lines().find(|line| line.starts_with(name))?;
            Some(line.split_once(':')?.1.trim().to_owned())
        };
        let memory = read("/proc/meminfo").and_then(|text| field(&text, "MemTotal"));
        Self {
            platform: format!("{}-{}", std::env::consts::OS, std::env::consts::ARCH),
            kernel: read("/proc/sys/kernel/osrelease").map(|text| text.trim().to_owned()),
            cpu: read("/proc/cpuinfo").and_then(|text| field(&text, "model name")),
            cpu_count: std::thread::available_parallelism().map_or(1, usize::from),
            memory_bytes: memory
                .and_then(|text| text.split(' ').next()?.parse::<u64>().ok()?.checked_mul(1024)),
            load_average: read("/proc/loadavg").and_then(|text| text.split(' ').next()?.parse().ok()),
        }
    }
}
