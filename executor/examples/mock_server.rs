//! The tests' mock server by itself, for measuring clients: `mock_server [PORT [tls|BACKLOG]]`.
//!
//! Models: `fast` streams as fast as it is read, `timed` answers after 50 ms and then every 10 ms,
//! `stamped` likewise with the time of sending as each token's text, others break.
//! With `tls` it has a certificate that nobody signed; BACKLOG is the length of its listen queue. A line on standard input is answered with the
//! lateness of the timed tokens so far.

#![expect(clippy::unwrap_used, reason = "the tests' own server")]

#[path = "../tests/support/mock.rs"]
mod mock;

use std::io::{BufRead as _, Write as _};

fn main() -> std::io::Result<()> {
    let port = std::env::args().nth(1).and_then(|port| port.parse().ok()).unwrap_or(0);
    let mock = match std::env::args().nth(2) {
        Some(word) if word == "tls" => mock::Mock::start_tls(),
        Some(word) if word.parse::<u32>().is_ok() => {
            mock::Mock::start_with(port, false, word.parse().unwrap())
        }
        _ => mock::Mock::start(port),
    };
    let mut out = std::io::stdout();
    writeln!(out, "{}", mock.url())?;
    out.flush()?;
    for line in std::io::stdin().lock().lines() {
        line?;
        let mut lateness = std::mem::take(
            &mut *mock.seen.lateness.lock().unwrap_or_else(std::sync::PoisonError::into_inner),
        );
        lateness.sort_unstable();
        let at = |share: usize| lateness.get(lateness.len() * share / 100).copied().unwrap_or_default();
        writeln!(out, "{} tokens, late by {:?} (P50), {:?} (P99)", lateness.len(), at(50), at(99))?;
        out.flush()?;
    }
    std::thread::park();
    Ok(())
}
