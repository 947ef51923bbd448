//! JUnit XML: one suite, a case a thing that was checked.

use std::fmt::Write as _;

/// How a case ended.
pub(crate) enum Outcome {
    /// It holds.
    Passed,
    /// It holds, and this is worth saying.
    Noted(String),
    /// It does not: a line, and the details.
    Failed(String, String),
    /// It could not be checked: a line, and the details.
    Errored(String, String),
    /// It was left out, and why.
    Skipped(String),
}

/// One case.
pub(crate) struct Case {
    /// What kind of thing it is.
    pub(crate) class: String,
    /// What was checked.
    pub(crate) name: String,
    /// How it ended.
    pub(crate) outcome: Outcome,
}

/// The report of a suite.
pub(crate) fn suite(name: &str, cases: &[Case]) -> String {
    let failures = cases.iter().filter(|case| matches!(case.outcome, Outcome::Failed(..))).count();
    let skipped = cases.iter().filter(|case| matches!(case.outcome, Outcome::Skipped(_))).count();
    let errors = cases.iter().filter(|case| matches!(case.outcome, Outcome::Errored(..))).count();
    let mut out = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n  <testsuite name=\"{}\" tests=\"{}\" \
         failures=\"{failures}\" skipped=\"{skipped}\" errors=\"{errors}\">\n",
        escaped(name),
        cases.len()
    );
    for Case { class, name, outcome } in cases {
        let head = format!("    <testcase classname=\"{}\" name=\"{}\"", escaped(class), escaped(name));
        // Writing to a string cannot fail.
        let _ = match outcome {
            Outcome::Passed => writeln!(out, "{head}/>"),
            Outcome::Noted(note) => {
                writeln!(out, "{head}>\n      <system-out>{}</system-out>\n    </testcase>", escaped(note))
            }
            Outcome::Failed(message, details) => writeln!(
                out,
                "{head}>\n      <failure message=\"{}\">{}</failure>\n    </testcase>",
                escaped(message),
                escaped(details)
            ),
            Outcome::Errored(message, details) => writeln!(
                out,
                "{head}>\n      <error message=\"{}\">{}</error>\n    </testcase>",
                escaped(message),
                escaped(details)
            ),
            Outcome::Skipped(why) => {
                writeln!(out, "{head}>\n      <skipped message=\"{}\"/>\n    </testcase>", escaped(why))
            }
        };
    }
    out.push_str("  </testsuite>\n</testsuites>\n");
    out
}

/// Text as XML takes it: markup escaped, characters that XML 1.0 forbids left out.
pub(crate) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\n' => out.push_str("&#10;"),
            '\t' | '\r' => out.push(' '),
            c if c < ' ' || c == '\u{fffe}' || c == '\u{ffff}' => {}
            c => out.push(c),
        }
    }
    out
}
