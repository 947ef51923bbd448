//! Compares imported configs with a real vLLM's recorded answers, refusals included: `check_models FILE.jsonl...`.

#[path = "../tests/support/models.rs"]
mod models;

use std::io::Write as _;

fn main() -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    let (mut cases, mut differ, mut refused, mut lenient) = (0, 0, 0, 0);
    for file in std::env::args().skip(1) {
        for line in std::fs::read_to_string(file)?.lines() {
            let case: serde_json::Value =
                planner::import::json::parse(line).map_err(std::io::Error::other)?;
            cases += 1;
            let id = case.get("id").and_then(serde_json::Value::as_str).unwrap_or_default();
            if case.pointer("/expect/error").is_some() {
                refused += 1;
                if models::imported(&case).is_ok() {
                    lenient += 1;
                    let says = case.pointer("/expect/detail").and_then(serde_json::Value::as_str);
                    let says: String = says.unwrap_or_default().chars().take(160).collect();
                    writeln!(out, "{id}: imported, where vLLM says {says:?}")?;
                }
                continue;
            }
            let found = models::differences(&case);
            if !found.is_empty() {
                differ += 1;
                writeln!(out, "{id}")?;
                for difference in found {
                    writeln!(out, "    {difference}")?;
                }
            }
        }
    }
    writeln!(out, "{cases} cases, {differ} differ; {refused} refused by vLLM, {lenient} of them imported")
}
