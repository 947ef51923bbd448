//! Which scenarios does a name on the command line stand for: a file, a shipped one, an arm, a case.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::complaint::{Complaint, nearest};
use super::overrides::Override;
use super::tree::{self, BYTES, Node, Place, Source, Value};
use super::written::Written;
use super::{Scenario, engine, recorded, written, zoo};
use crate::failure::Failure;
use crate::input_file;
use crate::record::{LineKind, read};

/// How many files may extend one another.
const DEPTH: usize = 8;

/// The scenarios that `name` stands for, with the overrides laid over each.
///
/// # Errors
/// If there is no such file or shipped scenario, or what it says is wrong.
pub(super) fn load(name: &str, overrides: &[Override]) -> Result<Vec<Scenario>, Failure> {
    Ok(load_placed(name, overrides)?.into_iter().map(|placed| placed.scenario).collect())
}

/// A scenario, and where it stands.
pub(crate) struct Placed {
    /// The scenario.
    pub(crate) scenario: Scenario,
    /// What takes it by `FILE#PART`: its arm, or its case's id.
    pub(crate) part: Option<String>,
    /// Whether it is a shipped one, in no file.
    pub(crate) shipped: bool,
}

/// The same, each with its place.
pub(super) fn load_placed(name: &str, overrides: &[Override]) -> Result<Vec<Placed>, Failure> {
    let found = find(name)?;
    let mut all = Vec::new();
    match found {
        Found::Tree(base) => {
            let shipped = base.folder.is_none();
            for (arm_name, tree) in arms(&base)? {
                let ranks = engine::stated_ranks(&tree);
                let part = arm_name.strip_prefix(&base.name).and_then(|rest| rest.strip_prefix('-'));
                let part = part.map(str::to_owned);
                let tree = overrides.iter().try_fold(tree, |tree, over| over.onto_tree(tree))?;
                let mut written = written::read(arm_name, tree)?;
                for over in overrides {
                    over.onto_written(&mut written, false)?;
                }
                all.push(Placed { scenario: resolved(written, ranks, overrides)?, part, shipped });
            }
        }
        Found::Recorded(cases) => {
            for mut written in cases {
                let ranks = Some(written.engine.settings.tensor_parallel_size);
                for over in overrides {
                    over.onto_written(&mut written, true)?;
                }
                let part = Some(written.name.clone());
                all.push(Placed { scenario: resolved(written, ranks, overrides)?, part, shipped: false });
            }
        }
    }
    Ok(all)
}

/// The scenario of a file whose specs are of `ranks` ranks.
fn resolved(written: Written, ranks: Option<u64>, overrides: &[Override]) -> Result<Scenario, Complaint> {
    let mut notes = Vec::new();
    for over in overrides {
        notes.extend(over.fits_ranks(ranks, &written)?);
    }
    Ok(Scenario { notes, ..written.resolve()? })
}

/// The scenarios of a text, as of a file in no folder that does not end in `.jsonl`.
#[cfg(test)]
pub(super) fn of_text(name: &str, text: String) -> Result<Vec<Scenario>, Failure> {
    if let Some(cases) = json_cases(&text) {
        let read = |case: &String| Ok(recorded::line(Path::new(name), 1, case)?.resolve()?);
        return cases.iter().map(read).collect();
    }
    let source = Rc::new(Source { name: name.to_owned(), text });
    let Found::Tree(base) = base(name, &source, None, None)? else { return Ok(Vec::new()) };
    arms(&base)?.into_iter().map(|(arm, tree)| Ok(written::read(arm, tree)?.resolve()?)).collect()
}

enum Found {
    Tree(Base),
    Recorded(Vec<Written>),
}

/// A file's tree, and which of its arms is meant.
struct Base {
    name: String,
    tree: Node,
    folder: Option<PathBuf>,
    arm: Option<String>,
}

fn find(name: &str) -> Result<Found, Failure> {
    let (plain, arm) = match name.rsplit_once('#') {
        Some((plain, arm)) if !Path::new(name).exists() => (plain, Some(arm)),
        _ => (name, None),
    };
    if let Some(source) = zoo::source(plain) {
        return base(plain, &source, None, arm);
    }
    if arm.is_none() && !Path::new(plain).exists() {
        for (file, arm) in zoo::with_arm(plain) {
            if let Some(source) = zoo::source(file) {
                let tree = tree::parse(&source)?;
                if arm_names(&tree).any(|known| known == arm) {
                    let (name, arm) = (file.to_owned(), Some(arm.to_owned()));
                    return Ok(Found::Tree(Base { name, tree, folder: None, arm }));
                }
            }
        }
    }
    let path = Path::new(plain);
    match text(path)? {
        Text::Recorded => recorded_cases(path, arm).map(Found::Recorded),
        Text::Json(cases) => {
            let mut all = Vec::new();
            for (number, case) in (1..).zip(&cases) {
                if arm.is_none() || recorded::id(case).as_deref() == arm {
                    all.push(recorded::line(path, number, case)?);
                }
            }
            some(path, arm, all, &cases.iter().filter_map(|case| recorded::id(case)).collect::<Vec<_>>())
                .map(Found::Recorded)
        }
        Text::Yaml(text) => {
            let stem = path.file_stem().map_or(plain.into(), |stem| stem.to_string_lossy());
            let source = Rc::new(Source { name: plain.to_owned(), text });
            base(&stem, &source, path.parent().map(Path::to_owned), arm)
        }
    }
}

fn base(
    name: &str,
    source: &Rc<Source>,
    folder: Option<PathBuf>,
    arm: Option<&str>,
) -> Result<Found, Failure> {
    let tree = tree::parse(source)?;
    if tree.value == Value::Null {
        return Err(Complaint::at(&Place { line: 0, ..tree.place }, "it is empty")
            .hint("start from a shipped scenario; `docs/scenario-format.md` describes the format")
            .into());
    }
    if let Some(place) = place_in_a_config(&tree) {
        let file = &source.name;
        return Err(Complaint::at(place, "it is a model's config.json, not a scenario")
            .hint(format!("name it by `--model {file}`, with `--tp` and vLLM's other flags"))
            .hint(format!("or make a scenario of it: `k3plan import hf {file} -o scenario.yaml`"))
            .into());
    }
    Ok(Found::Tree(Base { name: name.to_owned(), tree, folder, arm: arm.map(str::to_owned) }))
}

/// Where a file shows that it is a model's `config.json`: by keys that no scenario has.
fn place_in_a_config(tree: &Node) -> Option<&Place> {
    let Value::Map(entries) = &tree.value else { return None };
    entries
        .iter()
        .map(|(key, _)| key)
        .find(|key| ["architectures", "model_type", "text_config"].contains(&key.name.as_str()))
        .map(|key| &key.place)
}

fn recorded_cases(path: &Path, id: Option<&str>) -> Result<Vec<Written>, Failure> {
    let mut cases = Vec::new();
    let mut ids = Vec::new();
    read::lines(path, |number, line| {
        if let Some(wanted) = id {
            let found = recorded::id(line);
            if found.as_deref() != Some(wanted) {
                ids.extend(found);
                return Ok(());
            }
        }
        cases.push(recorded::line(path, number, line)?);
        Ok(())
    })?;
    some(path, id, cases, &ids)
}

/// The first names, and how many more there are.
fn shown(names: &[&str]) -> String {
    let first: Vec<String> = names.iter().take(5).map(|name| format!("`{name}`")).collect();
    match names.len().saturating_sub(first.len()) {
        0 => first.join(", "),
        more => format!("{} and {more} more", first.join(", ")),
    }
}

/// The cases, if there are any.
fn some(path: &Path, id: Option<&str>, cases: Vec<Written>, ids: &[String]) -> Result<Vec<Written>, Failure> {
    if !cases.is_empty() {
        return Ok(cases);
    }
    let failure = Failure::new(format!("failed to read `{}`", path.display()));
    Err(match id {
        None => failure.caused_by("it holds no case"),
        Some(id) => {
            let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
            let failure = failure.caused_by(format!("there is no case `{id}`"));
            match nearest(id, &ids) {
                Some(near) => failure.hint(format!("did you mean `{}#{near}`?", path.display())),
                None => failure.hint(format!("it holds: {}", shown(&ids))),
            }
        }
    })
}

/// What a file holds.
enum Text {
    /// A recorded case a line.
    Recorded,
    /// Recorded cases over several lines.
    Json(Vec<String>),
    /// Anything else is read as YAML.
    Yaml(String),
}

fn text(path: &Path) -> Result<Text, Failure> {
    let name = path.to_string_lossy();
    if name.ends_with(".jsonl") || name.ends_with(".gz") {
        return Ok(Text::Recorded);
    }
    let failed = || Failure::new(format!("failed to read `{}`", path.display()));
    let mut bytes = Vec::new();
    if name == "-" {
        std::io::stdin()
            .lock()
            .take(BYTES + 1)
            .read_to_end(&mut bytes)
            .map_err(|error| failed().caused_by(error))?;
    } else {
        let file = input_file::open(path).map_err(|error| missing(path, &error))?;
        let metadata = file.metadata().map_err(|error| failed().caused_by(error))?;
        if metadata.is_dir() {
            return Err(failed()
                .caused_by("it is a directory")
                .hint("name the files in it, such as `FOLDER/*.yaml`"));
        }
        file.take(BYTES + 1).read_to_end(&mut bytes).map_err(|error| failed().caused_by(error))?;
    }
    // A long `.json` may still be one of many lines.
    if name.ends_with(".json") && first_line_is_recorded(&bytes) {
        return Ok(Text::Recorded);
    }
    if bytes.len() as u64 > BYTES {
        return Err(failed()
            .caused_by(format!("it is larger than {} MiB, the most that a scenario can be", BYTES >> 20))
            .hint("recorded cases are read from files that end in `.jsonl`, of any size"));
    }
    let text = String::from_utf8(bytes).map_err(|error| not_utf8(&name, &error))?;
    Ok(json_cases(&text).map_or(Text::Yaml(text), Text::Json))
}

fn not_utf8(name: &str, error: &std::string::FromUtf8Error) -> Failure {
    let valid = error.utf8_error().valid_up_to();
    let text = String::from_utf8_lossy(error.as_bytes()).into_owned();
    let before = text.get(..valid).unwrap_or_default();
    let line = 1 + before.matches('\n').count();
    let column = 1 + before.rsplit('\n').next().map_or(0, |start| start.chars().count());
    let source = Rc::new(Source { name: name.to_owned(), text });
    Complaint::at(&Place { source, line, column }, format!("byte {} is not valid UTF-8", valid + 1)).into()
}

fn first_line_is_recorded(bytes: &[u8]) -> bool {
    let line = bytes.split(|byte| *byte == b'\n').find(|line| !line.trim_ascii().is_empty());
    line.and_then(|line| std::str::from_utf8(line).ok())
        .is_some_and(|line| matches!(LineKind::of(line.trim()), Ok(Some(_))))
}

/// The recorded cases of a JSON text: one object, a list of them, or several after each other.
fn json_cases(text: &str) -> Option<Vec<String>> {
    if !text.trim_start().starts_with(['{', '[']) {
        return None;
    }
    let plain = read::python_json(text);
    let mut cases = Vec::new();
    for value in serde_json::Deserializer::from_str(&plain).into_iter::<planner::import::json::Bounded>() {
        match value.ok()?.0 {
            serde_json::Value::Array(values) => cases.extend(values.iter().map(ToString::to_string)),
            value => cases.push(value.to_string()),
        }
    }
    let recorded = |case: &String| matches!(LineKind::of(case), Ok(Some(_)));
    (!cases.is_empty() && cases.iter().all(recorded)).then_some(cases)
}

/// The failure for a file that cannot be opened; a misspelt name gets the nearest shipped one.
fn missing(path: &Path, error: &std::io::Error) -> Failure {
    let name = path.to_string_lossy();
    if error.kind() != std::io::ErrorKind::NotFound {
        return Failure::new(format!("failed to read `{name}`")).caused_by(error);
    }
    let failure = Failure::new(format!("failed to read `{name}`"))
        .caused_by("there is no such file, and no shipped scenario of that name");
    let all = shipped_names();
    let names: Vec<&str> = all.iter().map(String::as_str).collect();
    match nearest(&name, &names) {
        Some(near) => failure.hint(format!("did you mean `{near}`?")),
        None => failure.hint("`k3plan zoo` lists the shipped scenarios"),
    }
}

/// Every name of a shipped scenario: files, and files with an arm.
pub(crate) fn shipped_names() -> Vec<String> {
    let mut names = Vec::new();
    for file in zoo::names() {
        names.push(file.to_owned());
        if let Some(tree) = zoo::source(file).and_then(|source| tree::parse(&source).ok()) {
            names.extend(arm_names(&tree).map(|arm| format!("{file}-{arm}")));
        }
    }
    names
}

fn arm_names(tree: &Node) -> impl Iterator<Item = &str> {
    let entries = match &tree.value {
        Value::Map(entries) => entries.as_slice(),
        _ => &[],
    };
    let arms = entries.iter().find(|(key, _)| key.name == "arms").map(|(_, node)| &node.value);
    let arms = match arms {
        Some(Value::Map(arms)) => arms.as_slice(),
        _ => &[],
    };
    arms.iter().map(|(key, _)| key.name.as_str())
}

/// Each scenario of a file: its arms, or the file itself.
fn arms(base: &Base) -> Result<Vec<(String, Node)>, Failure> {
    let mut tree = extended(base.tree.clone(), base.folder.as_deref(), 0)?;
    let arms = tree.take("arms").filter(|(_, node)| node.value != Value::Null);
    let Some((key, arms)) = arms else {
        return match &base.arm {
            None => Ok(vec![(base.name.clone(), tree)]),
            Some(arm) => Err(Complaint::at(&tree.place, format!("there is no arm `{arm}`"))
                .hint("the scenario has no `arms`")
                .into()),
        };
    };
    let entries = match arms.value {
        Value::Map(entries) if !entries.is_empty() => entries,
        Value::Map(_) => return Err(Complaint::at(&arms.place, "`arms` names no arm").into()),
        _ => {
            return Err(Complaint::wrong_type("arms", "a map of what differs", &arms)
                .hint("write `arms: {fixed: {draft: {...}}}`")
                .into());
        }
    };
    if let Some(arm) = &base.arm
        && !entries.iter().any(|(known, _)| known.name == *arm)
    {
        let names = entries.iter().map(|(known, _)| known.name.as_str());
        return Err(Complaint::unknown(&key.place, "arm", arm, names).into());
    }
    let mut all = Vec::new();
    for (key, over) in entries {
        if base.arm.as_ref().is_some_and(|arm| *arm != key.name) {
            continue;
        }
        // An arm that changes nothing is the file as it is.
        let arm = if over.value == Value::Null { tree.clone() } else { tree.clone().overlaid(over) };
        all.push((format!("{}-{}", base.name, key.name), arm));
    }
    Ok(all)
}

/// Whether `name` stands for a shipped arm, and for no file of `folder`.
fn is_shipped_arm(name: &str, folder: &Path) -> bool {
    !folder.join(name).exists() && zoo::with_arm(name).next().is_some()
}

/// The tree laid over what it extends.
fn extended(mut tree: Node, folder: Option<&Path>, depth: usize) -> Result<Node, Failure> {
    let Some((_, parent)) = tree.take("extends") else { return Ok(tree) };
    let place: Place = parent.place.clone();
    let name = super::fields::text("extends", &parent)?;
    if depth >= DEPTH {
        return Err(Complaint::at(&place, format!("more than {DEPTH} scenarios extend one another"))
            .hint("look for two files that extend each other")
            .into());
    }
    let plain = name.split_once('#').map_or(name.as_str(), |(plain, _)| plain);
    let path = match folder {
        Some(folder) if zoo::source(plain).is_none() && !is_shipped_arm(plain, folder) => {
            folder.join(&name).to_string_lossy().into_owned()
        }
        _ => name,
    };
    let found = find(&path).map_err(|mut failure| {
        failure.excerpt = failure.excerpt.or_else(|| place.excerpt());
        failure
    })?;
    match found {
        Found::Recorded(_) => Err(Complaint::at(&place, "a recorded case cannot be extended").into()),
        Found::Tree(base) => {
            let mut below = extended(base.tree, base.folder.as_deref(), depth + 1)?;
            let arms = below.take("arms");
            if let Some(arm) = base.arm {
                let found = arms.and_then(|(_, mut arms)| arms.take(&arm));
                let Some((_, over)) = found else {
                    return Err(Complaint::at(&place, format!("there is no arm `{arm}` to extend")).into());
                };
                if over.value != Value::Null {
                    below = below.overlaid(over);
                }
            }
            Ok(below.overlaid(tree))
        }
    }
}
