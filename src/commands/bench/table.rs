//! A run as a person reads it: the live lines on a terminal, the figures at the end.

use std::io::{self, Write};

use executor::load::run::Progress;

pub(super) use super::shown::{Row, Shown};
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

/// What the latencies are, for who reads a table without the manual.
pub(super) const MEANING: &str = "\
TTFT: from sending a request to its first token. TPOT: of one request, the time after its first token over the tokens \
after it. ITL: between one event with tokens and the next. E2EL: from sending a request to its last token.";

/// Writes the figures of a run.
pub(super) fn write(terminal: &mut Terminal<'_>, shown: &Shown) -> io::Result<()> {
    let head = terminal.paint(Style::Bold, "Requests");
    let Shown { planned, completed, failed, .. } = shown;
    let ended = completed + failed;
    writeln!(
        terminal.out,
        "{head}  {completed} of {planned} completed, {failed} failed, {} not sent",
        planned.saturating_sub(ended)
    )?;
    if shown.interrupted {
        let word = terminal.paint(Style::Warn, "interrupted:");
        writeln!(terminal.out, "{word} the run ended after {ended} of {planned} requests")?;
    }
    for (kind, count, detail) in &shown.failures {
        let kind = terminal.paint(Style::Bad, kind);
        let first_line = detail.lines().next().unwrap_or("");
        writeln!(terminal.out, "  {count} {kind}: {first_line}")?;
    }
    writeln!(terminal.out, "Tokens    {} in, {} out in {:.2} s", shown.input, shown.output, shown.duration)?;
    let goodput = shown.goodput.map_or_else(String::new, |good| format!(", {good:.3} good requests/s"));
    let [requests, output, total] = shown.rates;
    writeln!(
        terminal.out,
        "Rate      {requests:.3} requests/s{goodput}, {output:.1} output tokens/s, {total:.1} tokens/s",
    )?;
    let shares: String = shown.percentiles.iter().map(|p| format!("{:>10}", format!("P{p}"))).collect();
    writeln!(terminal.out, "\n{:<10}{:>10}{:>10}{:>10}{shares}", "ms", "median", "mean", "std")?;
    for Row { name, figures } in &shown.rows {
        // No event takes no time: a mean of zero says that there was none to measure.
        let measured = figures.get(1).is_some_and(|mean| *mean > 0.0);
        let cell = |ms: &f64| {
            if measured && ms.is_finite() { format!("{ms:>10.3}") } else { format!("{:>10}", "-") }
        };
        let cells: String = figures.iter().map(cell).collect();
        writeln!(terminal.out, "{name:<10}{cells}")?;
    }
    if let Some(client) = &shown.client {
        writeln!(terminal.out, "\nClient    {client}")?;
    }
    for warning in &shown.warnings {
        let word = terminal.paint(Style::Warn, "warning:");
        writeln!(terminal.out, "{word} {warning}")?;
    }
    for note in &shown.notes {
        writeln!(terminal.out, "note: {note}")?;
    }
    writeln!(terminal.out, "\n{MEANING}")
}
