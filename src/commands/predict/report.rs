//! Predicted beside measured: a line a model and system, a line a point where asked, JSON.

use std::collections::BTreeMap;
use std::io;

use serde_json::{Value, json};

use super::Predicted;
use crate::render::table::{Side, Table};
use crate::terminal::Terminal;

/// How far a group of points is off.
struct Summary {
    points: usize,
    tpot: Shares,
    ttft: Shares,
    /// Points with an interval, and those of them that lie within it.
    inside: (usize, usize),
}

#[derive(Default)]
struct Shares {
    median: Option<f64>,
    mean: Option<f64>,
}

fn shares(errors: &[f64]) -> Shares {
    let mut sorted = errors.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    let median = match (sorted.get(middle.wrapping_sub(1)), sorted.get(middle)) {
        (Some(below), Some(at)) if sorted.len().is_multiple_of(2) => Some(f64::midpoint(*below, *at)),
        (_, at) => at.copied(),
    };
    #[expect(clippy::cast_precision_loss, reason = "a number of points")]
    let mean = (!errors.is_empty()).then(|| errors.iter().sum::<f64>() / errors.len() as f64);
    Shares { median, mean }
}

/// |predicted - measured| / measured, from the logarithm of their ratio.
fn relative(miss: f64) -> f64 {
    (miss.exp() - 1.0).abs()
}

fn summary<'a>(points: impl Iterator<Item = &'a Predicted>) -> Summary {
    let (mut tpot, mut ttft, mut count, mut inside) = (Vec::new(), Vec::new(), 0, (0, 0));
    for point in points {
        count += 1;
        tpot.extend(point.miss.tpot.map(relative));
        ttft.extend(point.miss.ttft.map(relative));
        if let (Some(miss), Some(times)) = (point.miss.tpot, point.tpot_times) {
            inside.0 += 1;
            inside.1 += usize::from(miss.abs() <= times.ln());
        }
    }
    Summary { points: count, tpot: shares(&tpot), ttft: shares(&ttft), inside }
}

fn percent(share: Option<f64>) -> String {
    share.map_or_else(|| "-".to_owned(), |share| format!("{:.1}%", share * 100.0))
}

fn coverage((of, inside): (usize, usize)) -> String {
    if of == 0 {
        return "-".to_owned();
    }
    #[expect(clippy::cast_precision_loss, reason = "a number of points")]
    percent(Some(inside as f64 / of as f64))
}

fn line(table: &mut Table, name: &str, summary: &Summary) {
    table.row(vec![
        name.to_owned(),
        summary.points.to_string(),
        percent(summary.tpot.median),
        percent(summary.tpot.mean),
        percent(summary.ttft.median),
        percent(summary.ttft.mean),
        coverage(summary.inside),
    ]);
}

fn pairs(all: &[Predicted]) -> BTreeMap<&str, Vec<&Predicted>> {
    let mut pairs: BTreeMap<&str, Vec<&Predicted>> = BTreeMap::new();
    for point in all {
        pairs.entry(&point.measured.pair).or_default().push(point);
    }
    pairs
}

/// Writes the errors for people.
pub(super) fn text(all: &[Predicted], rows: bool, terminal: &mut Terminal<'_>) -> io::Result<()> {
    if rows {
        points(all, terminal)?;
        writeln!(terminal.out)?;
    }
    let mut table = Table::new(vec![
        ("error of", Side::Left),
        ("points", Side::Right),
        ("TPOT median", Side::Right),
        ("mean", Side::Right),
        ("TTFT median", Side::Right),
        ("mean", Side::Right),
        ("TPOT in 90% interval", Side::Right),
    ]);
    for (pair, points) in pairs(all) {
        line(&mut table, pair, &summary(points.into_iter()));
    }
    line(&mut table, "all", &summary(all.iter()));
    table.write(0, terminal)
}

fn ms(seconds: Option<f64>) -> String {
    seconds.map_or_else(|| "-".to_owned(), |seconds| format!("{:.2}", seconds * 1e3))
}

fn between(point: &Predicted) -> (Option<f64>, f64) {
    let measured = &point.measured.point;
    match measured.tpot {
        Some(tpot) => (Some(tpot), point.estimate.tpot),
        None => (measured.itl, point.estimate.itl),
    }
}

fn points(all: &[Predicted], terminal: &mut Terminal<'_>) -> io::Result<()> {
    let mut table = Table::new(vec![
        ("point", Side::Left),
        ("TPOT ms", Side::Right),
        ("predicted", Side::Right),
        ("90% interval", Side::Right),
        ("off", Side::Right),
        ("TTFT ms", Side::Right),
        ("predicted", Side::Right),
        ("off", Side::Right),
        ("most of a step", Side::Left),
    ]);
    let off = |miss: Option<f64>| {
        miss.map_or_else(|| "-".to_owned(), |miss| format!("{:+.1}%", (miss.exp() - 1.0) * 100.0))
    };
    for point in all {
        let (measured, predicted) = between(point);
        let interval = point.tpot_times.map_or_else(
            || "-".to_owned(),
            |times| format!("{:.2} to {:.2}", predicted / times * 1e3, predicted * times * 1e3),
        );
        table.row(vec![
            point.measured.point.id.clone(),
            ms(measured),
            ms(Some(predicted)),
            interval,
            off(point.miss.tpot),
            ms(point.measured.point.ttft),
            ms(Some(point.estimate.ttft)),
            off(point.miss.ttft),
            point.estimate.step.dominant().name().to_owned(),
        ]);
    }
    table.write(0, terminal)
}

fn summary_json(summary: &Summary) -> Value {
    let share = |(of, inside): (usize, usize)| {
        #[expect(clippy::cast_precision_loss, reason = "a number of points")]
        (of > 0).then(|| inside as f64 / of as f64)
    };
    json!({
        "points": summary.points,
        "tpot_median": summary.tpot.median,
        "tpot_mean": summary.tpot.mean,
        "ttft_median": summary.ttft.median,
        "ttft_mean": summary.ttft.mean,
        "tpot_in_90_percent_interval": share(summary.inside),
    })
}

/// Writes everything for machines.
pub(super) fn json(all: &[Predicted], terminal: &mut Terminal<'_>) -> io::Result<()> {
    let points: Vec<Value> = all
        .iter()
        .map(|point| {
            let (measured, predicted) = between(point);
            let parts: serde_json::Map<String, Value> = simulator::cost::Component::ALL
                .iter()
                .map(|part| (part.name().to_owned(), json!(point.estimate.step.part(*part) * 1e3)))
                .collect();
            json!({
                "id": point.measured.point.id,
                "pair": point.measured.pair,
                "tpot_ms": measured.map(|s| s * 1e3),
                "predicted_tpot_ms": predicted * 1e3,
                "tpot_interval_times": point.tpot_times,
                "ttft_ms": point.measured.point.ttft.map(|s| s * 1e3),
                "predicted_ttft_ms": point.estimate.ttft * 1e3,
                "ttft_interval_times": point.ttft_times,
                "running": point.estimate.running,
                "step_ms": parts,
                "note": point.measured.note,
            })
        })
        .collect();
    let pairs: serde_json::Map<String, Value> = pairs(all)
        .into_iter()
        .map(|(pair, points)| (pair.to_owned(), summary_json(&summary(points.into_iter()))))
        .collect();
    let report = json!({
        "schema": "k3plan.predict/1",
        "all": summary_json(&summary(all.iter())),
        "pairs": pairs,
        "points": points,
    });
    serde_json::to_writer_pretty(&mut *terminal.out, &report).map_err(io::Error::from)?;
    writeln!(terminal.out)
}
