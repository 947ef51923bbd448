//! Running the command.

use std::path::{Path, PathBuf};
use std::process::Command;

/// What a run left.
pub(crate) struct Run {
    /// The exit code.
    pub(crate) code: Option<i32>,
    /// Standard output.
    pub(crate) stdout: String,
    /// Standard error.
    pub(crate) stderr: String,
}

impl Run {
    /// Code and both streams, as a snapshot holds them.
    pub(crate) fn whole(&self) -> String {
        format!(
            "exit code {}\n----- stdout\n{}----- stderr\n{}",
            self.code.unwrap(),
            self.stdout,
            self.stderr
        )
    }
}

/// Runs the command in `folder`.
pub(crate) fn k3plan_in(folder: &Path, arguments: &[&str]) -> Run {
    let output = Command::new(env!("CARGO_BIN_EXE_k3plan"))
        .args(arguments)
        .current_dir(folder)
        .env_remove("NO_COLOR")
        .output()
        .unwrap();
    Run {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// Runs the command in the project's folder.
pub(crate) fn k3plan(arguments: &[&str]) -> Run {
    k3plan_in(Path::new(env!("CARGO_MANIFEST_DIR")), arguments)
}

/// An empty folder of its own, removed at the end.
pub(crate) struct Folder(PathBuf);

impl Folder {
    /// A new one; `name` tells it from others.
    pub(crate) fn new(name: &str) -> Self {
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// Its path.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Writes a file in it.
    pub(crate) fn write(&self, name: &str, text: &str) {
        std::fs::write(self.0.join(name), text).unwrap();
    }

    /// Reads a file in it.
    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.0.join(name)).unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The lines of a recorded file.
pub(crate) fn golden_lines(name: &str) -> Vec<String> {
    use std::io::Read;
    let path = format!("{}/tests/golden/{name}.jsonl.gz", env!("CARGO_MANIFEST_DIR"));
    let mut text = String::new();
    flate2::read::MultiGzDecoder::new(std::fs::File::open(path).unwrap()).read_to_string(&mut text).unwrap();
    text.lines().map(str::to_owned).collect()
}

/// A text with its numbers as `#` and its columns one space apart: wording that a better calibration leaves alone.
pub(crate) fn masked(text: &str) -> String {
    let mut out = String::new();
    let mut last = ' ';
    for c in text.chars() {
        let number = c.is_ascii_digit() || (matches!(c, '.' | ',') && last == '#');
        let shown = if number { '#' } else { c };
        if !(number && last == '#' || c == ' ' && last == ' ') {
            out.push(shown);
        }
        last = shown;
    }
    out
}

/// Runs the command in the project's folder, which has to answer, and parses what it prints as JSON.
pub(crate) fn json(arguments: &[&str]) -> serde_json::Value {
    let run = k3plan(arguments);
    assert!(matches!(run.code, Some(0 | 1)), "{arguments:?}: {}", run.whole());
    serde_json::from_str(&run.stdout).unwrap()
}

/// Whether a value is what a JSON Schema says, with nothing that the schema does not name: the first place that is
/// not, if any.
pub(crate) fn conforms(value: &serde_json::Value, schema: &serde_json::Value) -> Result<(), String> {
    conforms_at("", value, schema, schema)
}

fn conforms_at(
    place: &str,
    value: &serde_json::Value,
    schema: &serde_json::Value,
    root: &serde_json::Value,
) -> Result<(), String> {
    if let Some(reference) = schema["$ref"].as_str() {
        let target =
            root.pointer(reference.trim_start_matches('#')).ok_or_else(|| format!("no {reference}"))?;
        return conforms_at(place, value, target, root);
    }
    if let Some(any) = schema["anyOf"].as_array() {
        let tried: Vec<_> = any.iter().map(|schema| conforms_at(place, value, schema, root)).collect();
        return if tried.iter().any(Result::is_ok) { Ok(()) } else { tried.into_iter().next().unwrap() };
    }
    let kind = match value {
        serde_json::Value::Null => "null",
        serde_json::Value::Bool(_) => "boolean",
        serde_json::Value::Number(number) if number.is_u64() || number.is_i64() => "integer",
        serde_json::Value::Number(_) => "number",
        serde_json::Value::String(_) => "string",
        serde_json::Value::Array(_) => "array",
        serde_json::Value::Object(_) => "object",
    };
    let types: Vec<&str> = match &schema["type"] {
        serde_json::Value::Array(types) => types.iter().filter_map(serde_json::Value::as_str).collect(),
        one => one.as_str().into_iter().collect(),
    };
    let whole = kind == "integer" && types.contains(&"number");
    if !types.is_empty() && !types.contains(&kind) && !whole {
        return Err(format!("{place} is {kind}, not {types:?}"));
    }
    if let Some(items) = value.as_array() {
        for (index, item) in items.iter().enumerate() {
            conforms_at(&format!("{place}/{index}"), item, &schema["items"], root)?;
        }
    }
    // An object whose keys a schema leaves open, such as a spec's declared fields, may hold any.
    if let Some(fields) = value.as_object().filter(|_| schema.get("properties").is_some()) {
        for name in schema["required"].as_array().into_iter().flatten().filter_map(serde_json::Value::as_str)
        {
            if !fields.contains_key(name) {
                return Err(format!("{place} lacks {name}"));
            }
        }
        for (name, field) in fields {
            match schema["properties"].get(name) {
                Some(schema) => conforms_at(&format!("{place}/{name}"), field, schema, root)?,
                None => return Err(format!("{place}/{name} is not in the schema")),
            }
        }
    }
    Ok(())
}
