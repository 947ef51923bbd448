//! Which scenarios a change since a git revision can touch.

use std::process::Command;

use crate::failure::Failure;
use crate::scenario::Scenario;

/// Takes out the scenarios that the change cannot touch, and gives their names.
///
/// A scenario of a file is touched if its file changed; a shipped one if its file under
/// `scenarios/models/` did. Where rules or readers changed, every scenario is touched.
///
/// # Errors
/// If git is not there, or does not know the revision.
pub(super) fn leave_out(
    revision: &str,
    scenarios: &mut Vec<(String, Scenario)>,
) -> Result<Vec<String>, Failure> {
    let changed = changed_files(revision)?;
    let rules = changed.iter().any(|path| {
        path.starts_with("planner/src/")
            || path.starts_with("src/")
            || path == "Cargo.lock"
            || path.ends_with(".lock")
    });
    // A file may extend another, so that one changed scenario file can touch any that names it.
    let mut left_out = Vec::new();
    if rules {
        return Ok(left_out);
    }
    scenarios.retain(|(from, scenario)| {
        let file = from.split('#').next().unwrap_or(from);
        let touched = changed.iter().any(|path| touches(path, file, &scenario.name));
        if !touched {
            left_out.push(scenario.name.clone());
        }
        touched
    });
    Ok(left_out)
}

/// Whether a changed path is the scenario's own file, or one that it may extend.
fn touches(path: &str, file: &str, scenario: &str) -> bool {
    let named = file.trim_start_matches("./");
    if path == named || path.ends_with(&format!("/{named}")) || named.ends_with(&format!("/{path}")) {
        return true;
    }
    let Some(stem) = path.rsplit('/').next().and_then(|name| name.rsplit_once('.')).map(|(stem, _)| stem)
    else {
        return false;
    };
    let yaml = path.ends_with(".yaml") || path.ends_with(".yml");
    // A shipped scenario or one of its arms.
    if yaml && (scenario == stem || scenario.starts_with(&format!("{stem}-"))) {
        return true;
    }
    let extends = std::fs::read_to_string(named).is_ok_and(|text| {
        text.lines().any(|line| line.trim_start().starts_with("extends:") && line.contains(stem))
    });
    yaml && extends
}

fn changed_files(revision: &str) -> Result<Vec<String>, Failure> {
    let failed = || Failure::new(format!("failed to ask git what changed since `{revision}`"));
    if revision.starts_with('-') {
        return Err(failed().caused_by("a revision does not start with `-`"));
    }
    let git = |arguments: &[&str]| -> Result<String, Failure> {
        let output = Command::new("git")
            .args(arguments)
            .output()
            .map_err(|error| failed().caused_by(error).hint("`--since` needs git on the path"))?;
        if !output.status.success() {
            let text = String::from_utf8_lossy(&output.stderr);
            return Err(failed().caused_by(text.trim().lines().next().unwrap_or("git failed")));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let mut files: Vec<String> =
        git(&["diff", "--name-only", "--relative", revision, "--"])?.lines().map(str::to_owned).collect();
    files.extend(git(&["ls-files", "--others", "--exclude-standard"])?.lines().map(str::to_owned));
    Ok(files)
}
