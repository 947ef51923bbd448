//! A run as a person reads it: the live lines on a terminal, the figures at the end.

use std::io::{self, Write};

use executor::load::run::Progress;
use executor::load::summary::Spread;

use super::result::{Measured, failures};
use crate::terminal::{Style, Terminal};

/// Lines that are drawn over while a run goes on.
#[derive(Default)]
pub(super) struct Live {
    drawn: bool,
    before: Progress,
}

const LIVE_LINES: usize = 3;

impl Live {
    /// Draws the state of the run over the last one; a terminal that cannot be written to is no error.
    pub(super) fn draw(&mut self, err: &mut dyn Write, now: &Progress) {
        let seconds = (now.elapsed.saturating_sub(self.before.elapsed)).as_secs_f64().max(1e-3);
        let rate = now.output_tokens.saturating_sub(self.before.output_tokens) as f64 / seconds;
        let ended = now.completed + now.failed;
        let ttft = if now.completed > 0 { 1e3 * now.ttft_sum / now.completed as f64 } else { 0.0 };
        let server = now.sample.map_or_else(String::new, |sample| {
            let count = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.0}"));
            let usage =
                sample.kv_cache_usage.map_or("-".to_owned(), |share| format!("{:.1}%", 100.0 * share));
            let (running, waiting) = (count(sample.requests_running), count(sample.requests_waiting));
            format!(
                "KV cache {usage}, running {running}, waiting {waiting}, preemptions {}",
                count(sample.preemptions)
            )
        });
        let back = if self.drawn { format!("\x1b[{LIVE_LINES}F") } else { String::new() };
        let elapsed = now.elapsed.as_secs_f64();
        let flying = now.started.saturating_sub(ended);
        let _ = write!(
            err,
            "{back}\x1b[2K{elapsed:7.1} s  {ended}/{} requests, {flying} under way, {} failed\n\
             \x1b[2K          {rate:.0} tokens/s of ended requests, mean TTFT {ttft:.1} ms\n\
             \x1b[2K          {server}\n",
            now.total, now.failed
        );
        let _ = err.flush();
        self.drawn = true;
        if seconds > 1.0 {
            self.before = *now;
        }
    }
}

/// Writes the figures of a run.
pub(super) fn write(terminal: &mut Terminal<'_>, measured: &Measured) -> io::Result<()> {
    let summary = &measured.summary;
    let head = terminal.paint(Style::Bold, "Requests");
    let sent = measured.records.len();
    writeln!(
        terminal.out,
        "{head}  {} of {} completed, {} failed, {} not sent",
        summary.completed,
        measured.requests_planned,
        summary.failed,
        measured.requests_planned.saturating_sub(sent)
    )?;
    for (kind, (count, detail)) in failures(&measured.records) {
        let kind = terminal.paint(Style::Bad, &kind.to_string());
        let first_line = detail.lines().next().unwrap_or("");
        writeln!(terminal.out, "  {count} {kind}: {first_line}")?;
    }
    let tokens = (summary.total_input_tokens, summary.total_output_tokens);
    writeln!(terminal.out, "Tokens    {} in, {} out in {:.2} s", tokens.0, tokens.1, summary.duration)?;
    let goodput =
        summary.request_goodput.map_or_else(String::new, |good| format!(", {good:.3} good requests/s"));
    writeln!(
        terminal.out,
        "Rate      {:.3} requests/s{goodput}, {:.1} output tokens/s, {:.1} tokens/s",
        summary.request_throughput, summary.output_throughput, summary.total_token_throughput
    )?;
    let shares: String =
        summary.ttft.percentiles.iter().map(|(p, _)| format!("{:>10}", format!("P{p}"))).collect();
    writeln!(terminal.out, "\n{:<10}{:>10}{:>10}{:>10}{shares}", "ms", "median", "mean", "std")?;
    let mut row = |name: &str, spread: &Spread| {
        if spread.count == 0 {
            let columns = 3 + spread.percentiles.len();
            return writeln!(terminal.out, "{name:<10}{}", format!("{:>10}", "-").repeat(columns));
        }
        let shares: String = spread.percentiles.iter().map(|(_, ms)| format!("{ms:>10.3}")).collect();
        let Spread { median, mean, deviation, .. } = spread;
        writeln!(terminal.out, "{name:<10}{median:>10.3}{mean:>10.3}{deviation:>10.3}{shares}")
    };
    row("TTFT", &summary.ttft)?;
    row("TPOT", &summary.tpot)?;
    row("ITL", &summary.itl)?;
    if let Some(token_itl) = summary.token_itl.as_ref().filter(|token| token.count != summary.itl.count) {
        row("ITL/token", token_itl)?;
    }
    row("E2EL", &summary.e2el)?;
    if let Some((cost, delivered, bottlenecks)) = &measured.client {
        writeln!(
            terminal.out,
            "\nClient    {:.1}% of a core, read {:.3} ms late at P99, sent {:.3} ms late at most P99, {:.1} under way",
            100.0 * cost.cpu_share_max,
            cost.read_lag.quantile(0.99).as_secs_f64() * 1e3,
            summary.send_lag.percentiles.last().map_or(0.0, |(_, ms)| *ms),
            delivered.concurrency_mean
        )?;
        for bottleneck in bottlenecks {
            let word = terminal.paint(Style::Warn, "warning:");
            writeln!(terminal.out, "{word} {bottleneck}")?;
        }
    }
    for note in &measured.notes {
        writeln!(terminal.out, "note: {note}")?;
    }
    Ok(())
}
