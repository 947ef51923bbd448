//! The ways to serve, cheapest first: a table, or JSON.

use std::io;

use serde_json::{Value, json};

use super::{Answer, Known};
use crate::predict::layouts::Nothing;
use crate::predict::running::NoRoom;
use crate::render::number::thousands;
use crate::render::table::{Side, Table};
use crate::render::words::wrap;
use crate::terminal::{Style, Terminal};

/// What was asked.
pub(super) struct Question<'a> {
    pub(super) model: &'a str,
    pub(super) slo: &'a str,
    pub(super) rate: f64,
    pub(super) input: u32,
    pub(super) output: u32,
    pub(super) known: &'a [Known],
}

/// How one replica is spread.
fn layout(answer: &Answer<'_>) -> String {
    let experts = if answer.way.expert_parallel { " ep" } else { "" };
    format!("tp{}{experts}", answer.way.tensor_parallel)
}

/// Why a way carries nothing.
fn reason(nothing: &Nothing) -> String {
    match nothing {
        Nothing::Room(reason) => format!("memory: {reason}"),
        Nothing::Slo(bound, over) => {
            format!("{}: {over:.1} times the bound with one request alone", bound.name())
        }
        Nothing::Devices { needed, most } => {
            format!("devices: it takes {}, more than {}", thousands(*needed), thousands(*most))
        }
    }
}

/// Writes the answer for people.
pub(super) fn text(
    question: &Question<'_>,
    answers: &[Answer<'_>],
    terminal: &mut Terminal<'_>,
) -> io::Result<()> {
    let Question { model, slo, rate, input, output, known } = question;
    let head = terminal.paint(Style::Bold, model);
    writeln!(
        terminal.out,
        "{head}: {rate} requests/s of {} + {} tokens, {slo}",
        thousands(u64::from(*input)),
        thousands(u64::from(*output))
    )?;
    let table = table(answers);
    if table.is_empty() {
        writeln!(terminal.out, "{}", terminal.paint(Style::Bad, "nothing carries it"))?;
    } else {
        table.write(0, terminal)?;
        let what = if answers.iter().any(|answer| answer.price.is_some()) { "price" } else { "devices" };
        writeln!(terminal.out, "* no other way is better in {what}, TPOT, TTFT and rate together")?;
        writeln!(
            terminal.out,
            "devices = replicas x ranks (tp); replicas are data parallel: each serves its share of the requests by itself"
        )?;
        if answers.iter().any(|answer| answer.way.expert_parallel) {
            writeln!(terminal.out, "ep: each rank keeps whole experts (--enable-expert-parallel)")?;
        }
    }
    nothing(answers, terminal)?;
    for Known { platform, file, .. } in *known {
        if let (Some(tpot), Some(ttft)) = (file.errors.tpot, file.errors.ttft) {
            let on = if known.len() > 1 { format!("{platform}: ") } else { String::new() };
            writeln!(
                terminal.out,
                "{on}nine predictions in ten are within {:.0}% (TPOT) and {:.0}% (TTFT) of the measured time",
                (tpot.p90.exp() - 1.0) * 100.0,
                (ttft.p90.exp() - 1.0) * 100.0
            )?;
        }
    }
    Ok(())
}

fn table(answers: &[Answer<'_>]) -> Table {
    let priced = answers.iter().any(|answer| answer.price.is_some());
    let chunks = answers.iter().any(|answer| {
        answers.first().is_some_and(|first| first.way.chunk.total_cmp(&answer.way.chunk).is_ne())
    });
    let mut heads = vec![
        ("", Side::Left),
        ("devices", Side::Right),
        ("hardware", Side::Left),
        ("replicas", Side::Right),
        ("each", Side::Left),
    ];
    if chunks {
        heads.push(("batched tokens", Side::Right));
    }
    heads.extend([
        ("requests each", Side::Right),
        ("TPOT ms", Side::Right),
        ("TTFT ms", Side::Right),
        ("tokens/s/device", Side::Right),
        ("limited by", Side::Left),
    ]);
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
            thousands(answer.replicas),
            layout(answer),
        ];
        if chunks {
            row.push(format!("{}", answer.way.chunk));
        }
        row.extend([
            format!("{}", carried.concurrency),
            format!("{:.2}", estimate.tpot * 1e3),
            format!("{:.0}", estimate.ttft * 1e3),
            format!("{:.0}", estimate.output_rate / f64::from(answer.way.tensor_parallel)),
            carried.limit.name().to_owned(),
        ]);
        if priced {
            row.push(answer.price.map_or_else(|| "-".to_owned(), |_| format!("{:.2}", answer.cost())));
        }
        table.row(row);
    }
    table
}

/// Writes what carries nothing, a line a device: `h100 carries nothing with tp1, tp2: memory: ...`.
fn nothing(answers: &[Answer<'_>], terminal: &mut Terminal<'_>) -> io::Result<()> {
    // The reason of the largest layout, which comes nearest, stands for those that fail for the same kind of reason.
    let mut lines: Vec<(&str, &'static str, String, Vec<String>)> = Vec::new();
    for answer in answers {
        let Err(nothing) = &answer.carried else { continue };
        let (hardware, kind, own) = (answer.way.hardware.name.as_str(), kind(nothing), layout(answer));
        match lines.iter_mut().find(|(name, other, ..)| *name == hardware && *other == kind) {
            Some((_, _, said, layouts)) if !layouts.contains(&own) => {
                *said = reason(nothing);
                layouts.push(own);
            }
            Some(_) => {}
            None => lines.push((hardware, kind, reason(nothing), vec![own])),
        }
    }
    for (hardware, _, reason, layouts) in lines {
        let last = match layouts.as_slice() {
            [_, .., last] => format!(" ({last})"),
            _ => String::new(),
        };
        let text = format!("{hardware} carries nothing with {}: {reason}{last}", layouts.join(", "));
        writeln!(terminal.out, "{}", wrap(&text, 2))?;
    }
    Ok(())
}

fn kind(nothing: &Nothing) -> &'static str {
    match nothing {
        Nothing::Room(NoRoom::Weights { .. }) => "weights",
        Nothing::Room(NoRoom::Request { .. }) => "request",
        Nothing::Slo(bound, _) => bound.name(),
        Nothing::Devices { .. } => "devices",
    }
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
    let intervals: Vec<Value> = question
        .known
        .iter()
        .map(|Known { platform, file, .. }| {
            json!({
                "platform": platform,
                "tpot_times": file.errors.tpot.map(|off| off.p90.exp()),
                "ttft_times": file.errors.ttft.map(|off| off.p90.exp()),
            })
        })
        .collect();
    let report = json!({
        "schema": "k3plan.capacity/1",
        "model": question.model,
        "slo": question.slo,
        "rate_per_s": question.rate,
        "input_tokens": question.input,
        "output_tokens": question.output,
        "intervals": intervals,
        "ways": ways,
    });
    serde_json::to_writer_pretty(&mut *terminal.out, &report).map_err(io::Error::from)?;
    writeln!(terminal.out)
}
