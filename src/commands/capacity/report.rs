//! The ways to serve, cheapest first: a table, or JSON.

use std::io;

use serde_json::{Value, json};

use super::Answer;
use crate::predict::calibration::CalibrationFile;
use crate::predict::layouts::{Demand, Nothing};
use crate::render::number::thousands;
use crate::render::table::{Side, Table};
use crate::terminal::{Style, Terminal};

/// What was asked.
pub(super) struct Question<'a> {
    pub(super) model: &'a str,
    pub(super) slo: &'a str,
    pub(super) rate: f64,
    pub(super) file: &'a CalibrationFile,
    pub(super) demand: &'a Demand<'a>,
}

fn layout(answer: &Answer<'_>) -> String {
    let experts = if answer.way.expert_parallel { " ep" } else { "" };
    format!("tp{}{experts} x{}", answer.way.tensor_parallel, answer.replicas)
}

/// Why a way carries nothing.
fn reason(nothing: &Nothing) -> String {
    match nothing {
        Nothing::Room(reason) => format!("memory: {reason}"),
        Nothing::Slo(bound, over) => {
            format!("{}: {over:.1} times the bound with one request alone", bound.name())
        }
    }
}

/// Writes the answer for people.
pub(super) fn text(
    question: &Question<'_>,
    answers: &[Answer<'_>],
    terminal: &mut Terminal<'_>,
) -> io::Result<()> {
    let Question { model, slo, rate, file, demand } = question;
    let head = terminal.paint(Style::Bold, model);
    writeln!(
        terminal.out,
        "{head}: {rate} requests/s of {} + {} tokens, {slo}",
        thousands_of(demand.input),
        thousands_of(demand.output)
    )?;
    let priced = answers.iter().any(|answer| answer.price.is_some());
    let mut heads = vec![
        ("", Side::Left),
        ("devices", Side::Right),
        ("hardware", Side::Left),
        ("layout", Side::Left),
        ("batched tokens", Side::Right),
        ("at once", Side::Right),
        ("TPOT ms", Side::Right),
        ("TTFT ms", Side::Right),
        ("tokens/s/device", Side::Right),
        ("limited by", Side::Left),
    ];
    if priced {
        heads.push(("price/h", Side::Right));
    }
    let mut table = Table::new(heads);
    for answer in answers {
        let Ok(carried) = &answer.carried else { continue };
        let estimate = &carried.estimate;
        let mut row = vec![
            if answer.on_front { "*" } else { "" }.to_owned(),
            thousands(answer.devices()),
            answer.way.hardware.name.clone(),
            layout(answer),
            format!("{}", answer.way.chunk),
            format!("{}", carried.concurrency),
            format!("{:.2}", estimate.tpot * 1e3),
            format!("{:.0}", estimate.ttft * 1e3),
            format!("{:.0}", estimate.output_rate / f64::from(answer.way.tensor_parallel)),
            carried.limit.name().to_owned(),
        ];
        if priced {
            row.push(answer.price.map_or_else(|| "-".to_owned(), |_| format!("{:.2}", answer.cost())));
        }
        table.row(row);
    }
    if table.is_empty() {
        writeln!(terminal.out, "{}", terminal.paint(Style::Bad, "nothing carries it"))?;
    } else {
        table.write(0, terminal)?;
        writeln!(terminal.out, "* no other way is better in devices, TPOT, TTFT and rate together")?;
    }
    for answer in answers {
        if let Err(nothing) = &answer.carried {
            let experts = if answer.way.expert_parallel { " ep" } else { "" };
            writeln!(
                terminal.out,
                "{} tp{}{experts} carries nothing: {}",
                answer.way.hardware.name,
                answer.way.tensor_parallel,
                reason(nothing)
            )?;
        }
    }
    if let (Some(tpot), Some(ttft)) = (file.errors.tpot, file.errors.ttft) {
        writeln!(
            terminal.out,
            "nine predictions in ten are within {:.0}% (TPOT) and {:.0}% (TTFT) of the measured time",
            (tpot.p90.exp() - 1.0) * 100.0,
            (ttft.p90.exp() - 1.0) * 100.0
        )?;
    }
    Ok(())
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a number of tokens")]
fn thousands_of(tokens: f64) -> String {
    thousands(tokens as u64)
}

/// Writes the answer for machines.
pub(super) fn json(
    question: &Question<'_>,
    answers: &[Answer<'_>],
    terminal: &mut Terminal<'_>,
) -> io::Result<()> {
    let ways: Vec<Value> = answers
        .iter()
        .map(|answer| {
            let way = json!({
                "hardware": answer.way.hardware.name,
                "tensor_parallel": answer.way.tensor_parallel,
                "expert_parallel": answer.way.expert_parallel,
                "max_num_batched_tokens": answer.way.chunk,
            });
            match &answer.carried {
                Ok(carried) => json!({
                    "way": way,
                    "devices": answer.devices(),
                    "replicas": answer.replicas,
                    "concurrency": carried.concurrency,
                    "tpot_ms": carried.estimate.tpot * 1e3,
                    "ttft_ms": carried.estimate.ttft * 1e3,
                    "output_tokens_per_s": carried.estimate.output_rate,
                    "limited_by": carried.limit.name(),
                    "dominant": carried.estimate.step.dominant().name(),
                    "price_per_hour": answer.price.map(|_| answer.cost()),
                    "on_front": answer.on_front,
                }),
                Err(nothing) => json!({"way": way, "devices": null, "why": reason(nothing)}),
            }
        })
        .collect();
    let report = json!({
        "schema": "k3plan.capacity/1",
        "model": question.model,
        "slo": question.slo,
        "rate_per_s": question.rate,
        "input_tokens": question.demand.input,
        "output_tokens": question.demand.output,
        "tpot_interval_times": question.file.errors.tpot.map(|off| off.p90.exp()),
        "ttft_interval_times": question.file.errors.ttft.map(|off| off.p90.exp()),
        "ways": ways,
    });
    serde_json::to_writer_pretty(&mut *terminal.out, &report).map_err(io::Error::from)?;
    writeln!(terminal.out)
}
