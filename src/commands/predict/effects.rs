//! Changes of groups and builders: what each did, predicted beside measured.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::cli::Ended;
use crate::exit::Exit;
use crate::predict::effects::{self, Effect};
use crate::render::table::{Side, Table};
use crate::render::words::wrap;
use crate::terminal::Terminal;

/// An effect within this share of the measured one is a hit.
const HIT: f64 = 0.3;

/// Reads, predicts and prints the cases.
pub(super) fn run(
    paths: &[PathBuf],
    calibration: &str,
    as_json: bool,
    terminal: &mut Terminal<'_>,
) -> Result<Exit, Ended> {
    let mut all = Vec::new();
    for path in paths {
        all.extend(effects::read(path, calibration)?);
    }
    if as_json {
        let report = json!({
            "schema": "k3plan.predict-effects/1",
            "cases": all.iter().map(case).collect::<Vec<Value>>(),
        });
        serde_json::to_writer_pretty(&mut *terminal.out, &report).map_err(std::io::Error::from)?;
        writeln!(terminal.out)?;
    } else {
        text(&all, terminal)?;
    }
    Ok(Exit::Fine)
}

fn case(effect: &Effect) -> Value {
    json!({
        "id": effect.id,
        "what": effect.what,
        "source": effect.source,
        "unit": effect.unit,
        "measured": effect.measured,
        "predicted": effect.predicted,
        "interval": effect.interval.map(|(low, high)| [low, high]),
        "off": effect.off(),
        "verdict": verdict(effect),
        "host": effect.host.as_ref().map(|host| json!({ "times": host.times, "from": host.from })),
        "missing": effect.missing,
        "assumed": effect.assumed,
    })
}

fn verdict(effect: &Effect) -> &'static str {
    match (effect.complete(), effect.same_direction(), effect.off()) {
        (_, Some(false), _) => "wrong direction",
        (true, Some(true), Some(off)) if off.abs() <= HIT => "hit",
        (true, Some(true), Some(_)) => "miss, right direction",
        (false, Some(true), _) => "right direction",
        _ => "-",
    }
}

fn text(all: &[Effect], terminal: &mut Terminal<'_>) -> std::io::Result<()> {
    let mut table = Table::new(vec![
        ("case", Side::Left),
        ("measured", Side::Right),
        ("predicted", Side::Right),
        ("90% interval", Side::Right),
        ("off", Side::Right),
        ("", Side::Left),
        ("inputs", Side::Left),
        ("verdict", Side::Left),
    ]);
    let number = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| format!("{value:+.2}"));
    for effect in all {
        table.row(vec![
            effect.id.clone(),
            number(effect.measured),
            number(effect.predicted),
            effect.interval.map_or_else(|| "-".to_owned(), |(low, high)| format!("{low:+.2} to {high:+.2}")),
            effect.off().map_or_else(|| "-".to_owned(), |off| format!("{:+.0}%", off * 100.0)),
            effect.unit.to_owned(),
            if effect.complete() { "complete" } else { "incomplete" }.to_owned(),
            verdict(effect).to_owned(),
        ]);
    }
    table.write(0, terminal)?;
    let complete: Vec<&Effect> = all.iter().filter(|effect| effect.complete()).collect();
    let hits = complete.iter().filter(|effect| verdict(effect) == "hit").count();
    writeln!(
        terminal.out,
        "{hits} of {} cases with complete inputs are within {:.0}%",
        complete.len(),
        HIT * 100.0
    )?;
    for effect in all {
        writeln!(terminal.out)?;
        writeln!(
            terminal.out,
            "{}",
            wrap(&format!("{}: {} ({})", effect.id, effect.what, effect.source), 2)
        )?;
        if let Some(host) = effect.host.as_ref().filter(|host| !host.from.is_empty()) {
            let text = format!(
                "an operation takes {:.1} times the default on this host: median of {}",
                host.times,
                host.from.join(", ")
            );
            writeln!(terminal.out, "  {}", wrap(&text, 4))?;
        }
        if let Some(missing) = &effect.missing {
            writeln!(terminal.out, "  {}", wrap(&format!("missing: {missing}"), 4))?;
        }
        if let Some(assumed) = &effect.assumed {
            writeln!(terminal.out, "  {}", wrap(&format!("assumed: {assumed}"), 4))?;
        }
    }
    Ok(())
}
