//! `k3plan devices`: which devices are there, why is one not usable, what does each backend need?

use executor::device::{DeviceInfo, Found, State, discover};
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

#[derive(Serialize)]
struct Report {
    schema: &'static str,
    backends: Vec<BackendJson>,
}

#[derive(Serialize)]
struct BackendJson {
    backend: &'static str,
    usable: bool,
    why_not: Option<String>,
    needs: &'static str,
    devices: Vec<DeviceJson>,
}

/// A device in JSON.
#[derive(Serialize)]
pub(crate) struct DeviceJson {
    backend: &'static str,
    name: String,
    target: String,
    units: u32,
    memory_bytes: Option<u64>,
    cache_bytes: Option<u64>,
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
