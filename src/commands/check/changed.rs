//! Which scenarios a change since a git revision can touch.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::load::Loaded;
use crate::failure::Failure;
use crate::input_file;

/// Takes out the scenarios that the change cannot touch, and gives their keys.
///
/// A scenario of a file is touched if its file changed, or one that this extends; a shipped one if its file under
/// `scenarios/models/` did. Where rules, readers or a lock changed, every scenario is touched.
///
/// # Errors
/// If git is not there, or does not know the revision.
pub(super) fn leave_out(revision: &str, scenarios: &mut Vec<Loaded>) -> Result<Vec<String>, Failure> {
    let (top, changed) = changed_files(revision)?;
    let rules = changed
        .iter()
        .any(|path| path.starts_with("planner/src/") || path.starts_with("src/") || path.ends_with(".lock"));
    let mut left_out = Vec::new();
    if rules {
        return Ok(left_out);
    }
    scenarios.retain(|loaded| {
        let touched = touched(loaded, &top, &changed);
        if !touched {
            left_out.push(loaded.key.clone());
        }
        touched
    });
    Ok(left_out)
}

fn touched(loaded: &Loaded, top: &Path, changed: &[String]) -> bool {
    let file = match loaded.file.rsplit_once('#') {
        Some((file, _)) if !Path::new(&loaded.file).exists() => file,
        _ => &loaded.file,
    };
    let mut next = vec![PathBuf::from(file)];
    let mut seen: Vec<PathBuf> = Vec::new();
    while let Some(path) = next.pop() {
        if seen.contains(&path) {
            continue;
        }
        if !path.exists() {
            // A shipped scenario, or one of its arms.
            let name = path.to_string_lossy().into_owned();
            let shipped = |changed: &String| {
                let stem = changed.rsplit('/').next().and_then(|file| file.rsplit_once('.'));
                stem.is_some_and(|(stem, ending)| {
                    matches!(ending, "yaml" | "yml")
                        && (name == stem || name.starts_with(&format!("{stem}-")))
                })
            };
            if changed.iter().any(shipped) {
                return true;
            }
        } else if is_changed(&path, top, changed) {
            return true;
        } else {
            next.extend(extended(&path));
        }
        seen.push(path);
    }
    false
}

/// Whether git says that the file changed.
fn is_changed(path: &Path, top: &Path, changed: &[String]) -> bool {
    let Ok(whole) = path.canonicalize() else { return true };
    let Ok(within) = whole.strip_prefix(top) else { return false };
    let within = within.to_string_lossy();
    changed.iter().any(|changed| *changed == within)
}

/// What a file extends: a file beside it, or a shipped name.
fn extended(path: &Path) -> Vec<PathBuf> {
    // Lines of recorded cases extend nothing, and can be many.
    let yaml = path.extension().is_some_and(|ending| ending == "yaml" || ending == "yml");
    let Some(text) = yaml.then(|| input_file::text(path, input_file::SETTINGS).ok()).flatten() else {
        return Vec::new();
    };
    let folder = path.parent().unwrap_or(Path::new(""));
    text.split("extends")
        .skip(1)
        .filter_map(|rest| {
            let name = rest.trim_start_matches(['"', '\'', ' ']).strip_prefix(':')?.trim_start();
            let name = name.trim_start_matches(['"', '\'']);
            let end = name.find(['"', '\'', ' ', ',', '}', '\n', '\r', '#']).unwrap_or(name.len());
            let beside = folder.join(&name[..end]);
            Some(if beside.exists() { beside } else { PathBuf::from(&name[..end]) })
        })
        .collect()
}

/// The top folder of the repository, and what changed in it, as paths from there.
fn changed_files(revision: &str) -> Result<(PathBuf, Vec<String>), Failure> {
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
    let top = PathBuf::from(git(&["rev-parse", "--show-toplevel"])?.trim_end());
    let top = top.canonicalize().map_err(|error| failed().caused_by(error))?;
    let whole = |path: &str| path.to_owned();
    let names = |text: &str| text.split('\0').filter(|name| !name.is_empty()).map(whole).collect::<Vec<_>>();
    let mut files = names(&git(&["diff", "--name-only", "--no-relative", "-z", revision, "--"])?);
    files.extend(names(&git(&["ls-files", "--others", "--exclude-standard", "--full-name", "-z", ":/"])?));
    Ok((top, files))
}
