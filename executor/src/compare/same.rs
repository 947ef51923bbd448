//! Which of an arm's runs are one and the same, read twice?
//!
//! A run that counts twice makes an arm look steadier than it is, so each counts once: a file that is named twice, a
//! copy of it, a result and its journal.

use std::collections::BTreeMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash as _, Hasher as _};
use std::path::{Path, PathBuf};

use super::run::{Run, Tool};

/// A run and where it was found.
#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    /// The run.
    pub run: Run,
    /// Its file, by the path that is the same however the file is named.
    pub file: PathBuf,
    /// The file's content, by [`content`].
    pub content: u64,
    /// Its place among the runs of the file, from 0.
    pub place: usize,
}

/// A number that tells contents apart.
pub fn content(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    hasher.finish()
}

/// A number that tells lists of times apart, bit by bit.
pub(super) fn times(values: impl Iterator<Item = f64>) -> Option<u64> {
    let mut hasher = DefaultHasher::new();
    let mut any = false;
    for value in values {
        value.to_bits().hash(&mut hasher);
        any = true;
    }
    any.then(|| hasher.finish())
}

/// Why two runs are one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Why {
    File,
    Content,
    Requests,
    Run,
}

impl Why {
    fn words(self) -> &'static str {
        match self {
            Self::File => "named before",
            Self::Content => "with the content of another",
            Self::Requests => "journals or requests of results that are there",
            Self::Run => "runs that are there already",
        }
    }
}

/// The runs of an arm, each once, and what was left out.
pub fn drop_repeats(arm: &str, found: Vec<Found>) -> (Vec<Found>, Vec<String>) {
    let mut kept: Vec<Found> = Vec::with_capacity(found.len());
    let mut left_out: BTreeMap<Why, Vec<String>> = BTreeMap::new();
    for mut next in found {
        let twin = kept.iter_mut().find_map(|before| same(before, &next).map(|why| (before, why)));
        let Some((before, why)) = twin else {
            kept.push(next);
            continue;
        };
        // A result tells more than its journal, whichever was named first.
        if is_second_hand(before) && !is_second_hand(&next) {
            std::mem::swap(before, &mut next);
        }
        let (gone, stays) = (&next.run.source, &before.run.source);
        let words = if gone == stays { format!("`{gone}`") } else { format!("`{gone}` (as `{stays}`)") };
        let list = left_out.entry(why).or_default();
        if !list.contains(&words) {
            list.push(words);
        }
    }
    let note = |(why, list): (Why, Vec<String>)| {
        format!("left out of arm {arm}, {}: {}", why.words(), list.join(", "))
    };
    (kept, left_out.into_iter().map(note).collect())
}

/// Which runs are in both arms under different names.
pub fn in_both(a: &[Found], b: &[Found]) -> Vec<String> {
    let mut notes = Vec::new();
    for first in a {
        let twins = b.iter().filter(|second| first.run.source != second.run.source);
        for second in twins.filter(|second| same(first, second).is_some()) {
            let (in_a, in_b) = (&first.run.source, &second.run.source);
            notes.push(format!("`{in_a}` of arm A and `{in_b}` of arm B are one run"));
        }
    }
    notes
}

fn same(a: &Found, b: &Found) -> Option<Why> {
    if a.place == b.place && a.content == b.content {
        return Some(if a.file == b.file { Why::File } else { Why::Content });
    }
    // Rows of a table are told apart by their place alone.
    if a.run.tool == Tool::Table || a.run.tool != b.run.tool {
        return None;
    }
    let beside = belongs_to(&a.file, &b.file) || belongs_to(&b.file, &a.file);
    if beside || same_requests(&a.run, &b.run) {
        return Some(Why::Requests);
    }
    same_run(&a.run, &b.run).then_some(Why::Run)
}

/// Whether the first file is what a tool leaves beside the second: a journal, or aiperf's list of requests.
fn belongs_to(file: &Path, result: &Path) -> bool {
    let name = |path: &Path| path.file_name().and_then(|name| name.to_str()).unwrap_or("").to_owned();
    let (name, of) = (name(file), name(result));
    file.parent() == result.parent()
        && (name.strip_suffix(".journal").is_some_and(|stem| stem == of)
            || (name == "profile_export.jsonl" && of == "profile_export_aiperf.json"))
}

fn is_second_hand(found: &Found) -> bool {
    found.run.journal || found.file.file_name().is_some_and(|name| name == "profile_export.jsonl")
}

/// Whether both tell of the same requests: a journal has no name that it must have.
fn same_requests(a: &Run, b: &Run) -> bool {
    const ROUNDED: f64 = 1e-6;
    let both = a.requests.is_some() && a.requests == b.requests && a.seed == b.seed;
    // Made-up times may be equal where the figures are not.
    both && (a.journal || b.journal)
        && a.figures.iter().filter(|(metric, _)| metric.name.starts_with("median_")).all(|(metric, ours)| {
            let theirs = b.figures.get(metric);
            theirs.is_none_or(|theirs| (ours.value - theirs.value).abs() <= ROUNDED * ours.value.abs())
        })
}

/// Whether everything that was measured is equal, the time of measuring too.
fn same_run(a: &Run, b: &Run) -> bool {
    a.time.is_some()
        && a.time == b.time
        && (a.seed, a.start, a.failed) == (b.seed, b.start, b.failed)
        && a.labels == b.labels
        && a.figures == b.figures
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::metric::Metric;

    fn found(file: &str, text: &str, value: f64) -> Found {
        let run = Run::new(file, Tool::K3plan).with(Metric::named("median_tpot_ms").unwrap(), value);
        Found { run, file: PathBuf::from(format!("/r/{file}")), content: content(text.as_bytes()), place: 0 }
    }

    fn kept(found: Vec<Found>) -> (Vec<String>, Vec<String>) {
        let (kept, notes) = drop_repeats("A", found);
        (kept.into_iter().map(|found| found.run.source).collect(), notes)
    }

    #[test]
    fn a_file_and_its_copies_count_once() {
        let (sources, notes) = kept(vec![
            found("a", "1", 1.0),
            found("a", "1", 1.0),
            found("b", "1", 1.0),
            found("c", "2", 2.0),
        ]);
        assert_eq!(sources, ["a", "c"]);
        assert_eq!(
            notes,
            [
                "left out of arm A, named before: `a`",
                "left out of arm A, with the content of another: `b` (as `a`)"
            ]
        );
    }

    #[test]
    fn a_result_stays_and_its_journal_goes() {
        let mut journal = found("x.json.journal", "j", 1.0);
        journal.run.journal = true;
        for order in [[0, 1], [1, 0]] {
            let both = [journal.clone(), found("x.json", "r", 1.0)];
            let (sources, notes) = kept(order.map(|place| both[place].clone()).to_vec());
            assert_eq!(sources, ["x.json"]);
            assert!(notes[0].ends_with("`x.json.journal` (as `x.json`)"), "{notes:?}");
        }
        // Under another name it is known by its requests.
        let mut result = found("other.json", "r", 1.0);
        journal.file = PathBuf::from("/elsewhere/j");
        (journal.run.requests, result.run.requests) = (Some(7), Some(7));
        assert_eq!(kept(vec![journal.clone(), result.clone()]).0, ["other.json"]);
        result.run.requests = Some(8);
        assert_eq!(kept(vec![journal, result]).0.len(), 2);
    }

    #[test]
    fn equal_figures_alone_are_no_repeat() {
        let (a, b) = (found("a", "1", 1.0), found("b", "2", 1.0));
        assert_eq!(kept(vec![a.clone(), b.clone()]).0.len(), 2);
        let timed = |mut found: Found| {
            found.run.time = Some("20260101-000000".to_owned());
            found
        };
        assert_eq!(kept(vec![timed(a), timed(b)]).0, ["a"]);
    }

    #[test]
    fn one_run_in_both_arms_is_told() {
        let (a, b) = ([found("a", "1", 1.0)], [found("b", "1", 1.0), found("c", "2", 2.0)]);
        assert_eq!(in_both(&a, &b), ["`a` of arm A and `b` of arm B are one run"]);
    }
}
