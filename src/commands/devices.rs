//! `k3plan devices`: which devices are there, why is one not usable, what does each backend need?

use executor::device::{DeviceInfo, Found, State, discover};
use schemars::JsonSchema;
use serde::Serialize;

use crate::cli::Ended;
use crate::exit::Exit;
use crate::render::number::bytes;
use crate::terminal::{Style, Terminal};

/// Show the devices that plans can run on, and why others cannot be used
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Print the devices as JSON.
    #[arg(long)]
    json: bool,
}

/// What `k3plan devices --json` prints.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Report {
    /// `k3plan.devices/1`.
    schema: &'static str,
    /// All backends, usable or not.
    backends: Vec<BackendJson>,
}

/// A backend.
#[derive(Serialize, JsonSchema)]
struct BackendJson {
    /// Its name.
    backend: &'static str,
    /// Whether plans can run on it.
    usable: bool,
    /// Why not.
    why_not: Option<String>,
    /// What it needs to be usable.
    needs: &'static str,
    /// The devices that it finds.
    devices: Vec<DeviceJson>,
}

/// A device in JSON.
#[derive(Serialize, JsonSchema)]
pub(crate) struct DeviceJson {
    /// The backend it was found by.
    backend: &'static str,
    /// The maker's name for it.
    name: String,
    /// What its kernels were compiled for: `x86-64-v4`, `sm_90`, `gfx950`.
    target: String,
    /// Cores, or multiprocessors.
    units: u32,
    /// Bytes of memory.
    memory_bytes: Option<u64>,
    /// Bytes of the last cache before memory.
    cache_bytes: Option<u64>,
    /// Bytes a second of memory by the data that the driver gives.
    peak_bytes_per_second: Option<f64>,
}

impl DeviceJson {
    /// Converts.
    pub(crate) fn of(info: &DeviceInfo) -> Self {
        Self {
            backend: info.backend.name(),
            name: info.name.clone(),
            target: info.target.clone(),
            units: info.units,
            memory_bytes: info.memory_bytes,
            cache_bytes: info.cache_bytes,
            peak_bytes_per_second: info.peak_bytes_per_second,
        }
    }
}

/// Runs the subcommand.
pub(crate) fn run(args: &Args, terminal: &mut Terminal<'_>) -> Result<Exit, Ended> {
    let found = discover();
    if args.json {
        let backends = found.iter().map(json).collect();
        let report = Report { schema: "k3plan.devices/1", backends };
        serde_json::to_writer_pretty(&mut *terminal.out, &report).map_err(std::io::Error::from)?;
        writeln!(terminal.out)?;
        return Ok(Exit::Fine);
    }
    for Found { backend, state } in &found {
        let name = terminal.paint(Style::Bold, backend.name());
        let (devices, why) = match state {
            State::Usable(devices) => (devices, None),
            State::Unusable { devices, why } => (devices, Some(why)),
        };
        match why {
            None => writeln!(terminal.out, "{name}: usable")?,
            Some(why) => {
                let not = terminal.paint(Style::Bad, "not usable");
                writeln!(terminal.out, "{name}: {not}, failed to {why}")?;
            }
        }
        for info in devices {
            let memory = info.memory_bytes.map_or("unknown".to_owned(), bytes);
            let (name, target, units) = (&info.name, &info.target, info.units);
            writeln!(terminal.out, "  {name}: {target}, {units} units, memory {memory}")?;
        }
        writeln!(terminal.out, "  needs {}", backend.needs())?;
    }
    Ok(Exit::Fine)
}

fn json(found: &Found) -> BackendJson {
    let (usable, devices, why_not) = match &found.state {
        State::Usable(devices) => (true, devices, None),
        State::Unusable { devices, why } => (false, devices, Some(format!("failed to {why}"))),
    };
    BackendJson {
        backend: found.backend.name(),
        usable,
        why_not,
        needs: found.backend.needs(),
        devices: devices.iter().map(DeviceJson::of).collect(),
    }
}
