//! What does `--set KEY=VALUE` change: an engine setting, a spec, the draft, or some layers.

use std::rc::Rc;

use planner::{EngineVersion, Field};

use super::complaint::Complaint;
use super::engine;
use super::fields;
use super::layers::Reader;
use super::quantity;
use super::tree::{self, Key, Node, Place, Source, Value};
use super::written::Written;
use crate::failure::Failure;
use crate::model_file::MaxModelLen;

/// One override.
#[derive(Debug, Clone)]
pub(super) struct Override {
    target: Target,
    value: Node,
    /// The key as it was written.
    key: Place,
}

#[derive(Debug, Clone, PartialEq)]
enum Target {
    /// A path of keys in the file.
    Path(Vec<String>),
    /// A field of some layers, both ends included.
    Layers { from: usize, to: usize, field: String },
}

/// A setting that importing a config reads, so that the layers change with it.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Routed {
    /// Which engine imports.
    Version(EngineVersion),
    /// Ranks.
    TensorParallel(u64),
    /// The longest request.
    MaxModelLen(MaxModelLen),
    /// Draft tokens a step, at least 1.
    SpeculativeTokens(u64),
    /// How states are cached.
    MambaCacheMode(String),
}

impl Override {
    /// Parses `KEY=VALUE`.
    ///
    /// # Errors
    /// If there is no value, or the key names nothing.
    pub(super) fn parse(text: &str) -> Result<Self, Failure> {
        let source = Rc::new(Source { name: "--set".to_owned(), text: text.to_owned() });
        let key = Place { source, line: 1, column: 1 };
        let Some((path, value)) = text.split_once('=') else {
            return Err(Complaint::at(&key, "there is no `=`")
                .hint("write `--set KEY=VALUE`, such as `--set max-num-seqs=16`")
                .into());
        };
        let target = target(path.trim(), &key)?;
        let value = Rc::new(Source { name: format!("--set {}", path.trim()), text: value.to_owned() });
        Ok(Self { target, value: tree::parse(&value)?, key })
    }

    /// A flag of vLLM's as `--set NAME=VALUE`.
    ///
    /// # Errors
    /// If the value is no YAML.
    pub(super) fn flag(flag: &str, name: &str, value: &str) -> Result<Self, Failure> {
        let source = Rc::new(Source { name: flag.to_owned(), text: value.to_owned() });
        let key = Place { source: Rc::clone(&source), line: 1, column: 1 };
        let target = Target::Path(vec!["engine".to_owned(), name.to_owned()]);
        Ok(Self { target, value: tree::parse(&source)?, key })
    }

    /// The full name of the engine setting that this changes.
    fn setting(&self) -> Option<String> {
        match &self.target {
            Target::Path(path) => match path.as_slice() {
                [engine, name] if engine == "engine" => Some(engine::full_name(name)),
                _ => None,
            },
            Target::Layers { .. } => None,
        }
    }

    /// As it was written.
    pub(super) fn words(&self) -> String {
        let Source { name, text } = &*self.key.source;
        format!("{name} {text}")
    }

    /// The setting that importing a config reads, if this is one.
    ///
    /// # Errors
    /// If its value is none that the setting can have.
    pub(super) fn routed(&self) -> Result<Option<Routed>, Complaint> {
        let node = &self.value;
        Ok(match self.setting().as_deref() {
            Some("version") => Some(Routed::Version(engine::version(node)?)),
            Some(name @ "tensor-parallel-size") => Some(Routed::TensorParallel(quantity::count(name, node)?)),
            Some("max-model-len") if is_fitted(node) => Some(Routed::MaxModelLen(MaxModelLen::Fitted)),
            Some(name @ "max-model-len") => {
                Some(Routed::MaxModelLen(MaxModelLen::Tokens(quantity::tokens(name, node)?)))
            }
            Some(name @ "num-speculative-tokens") => match quantity::natural(name, node)? {
                0 => None,
                tokens => Some(Routed::SpeculativeTokens(tokens)),
            },
            Some("mamba-cache-mode") => Some(Routed::MambaCacheMode(fields::written(node))),
            _ => None,
        })
    }

    /// Refuses other ranks for specs that are of `stated` ranks and do not change with them; says what changes.
    ///
    /// # Errors
    /// If nothing does.
    pub(super) fn fits_ranks(
        &self,
        stated: Option<u64>,
        written: &Written,
    ) -> Result<Option<String>, Complaint> {
        let ranks = written.engine.settings.tensor_parallel_size;
        let Some(stated) = stated.filter(|stated| *stated != ranks) else { return Ok(None) };
        if self.setting().as_deref() != Some("tensor-parallel-size") {
            return Ok(None);
        }
        if written.specs.iter().any(|spec| spec.raw.max_tp_shards.is_some()) {
            return Ok(Some(format!(
                "its specs stay those of {stated} ranks; of {ranks} ranks only `kv_tp_replicas`, by `max_tp_shards`, and \
                 predicted times are counted"
            )));
        }
        Err(Complaint::at(
            &self.key,
            format!("the scenario's specs are those of one of {stated} ranks, and planning reads no other number of ranks"),
        )
        .hint(format!("import the model for it: `k3plan import hf CONFIG --tp {ranks}`, or `--model CONFIG --tp {ranks}`"))
        .hint(format!("of a recorded server, record one that runs with `--tensor-parallel-size {ranks}`")))
    }

    /// `--grouping NAME` as an override.
    pub(super) fn engine(flag: &'static str, name: &'static str, value: &str) -> Self {
        let source = Rc::new(Source { name: flag.to_owned(), text: value.to_owned() });
        let key = Place { source, line: 1, column: 1 };
        let value = Node { value: Value::Text(value.to_owned()), place: key.clone() };
        Self { target: Target::Path(vec!["engine".to_owned(), name.to_owned()]), value, key }
    }

    /// Lays the override over the tree of a file; one of layers waits for [`Self::onto_written`].
    pub(super) fn onto_tree(&self, mut tree: Node) -> Result<Node, Complaint> {
        let Target::Path(path) = &self.target else { return Ok(tree) };
        if path.first().is_some_and(|first| first == "draft") {
            let Some((key, draft)) = tree.take("draft").filter(|(_, draft)| draft.value != Value::Null)
            else {
                return Err(Complaint::at(&self.key, "the scenario has no draft"));
            };
            // A list of layers takes a `set` only as a map.
            let draft = if let Value::Map(_) = draft.value {
                draft
            } else {
                let place = draft.place.clone();
                self.wrap("layers", draft, place)
            };
            if let Value::Map(entries) = &mut tree.value {
                entries.push((key, draft));
            }
        }
        if let [specs, name, ..] = path.as_slice()
            && specs == "specs"
        {
            let known = spec_names(&tree);
            if !known.iter().any(|known| known == name) {
                return Err(Complaint::unknown(&self.key, "spec", name, known.iter().map(String::as_str)));
            }
        }
        let over =
            path.iter().rev().fold(self.value.clone(), |node, key| self.wrap(key, node, self.key.clone()));
        Ok(tree.overlaid(over))
    }

    fn wrap(&self, key: &str, node: Node, place: Place) -> Node {
        let key = Key { name: key.to_owned(), place: self.key.clone() };
        Node { value: Value::Map(vec![(key, node)]), place }
    }

    /// Changes the layers of a scenario that is read; of a recorded one, everything.
    pub(super) fn onto_written(&self, written: &mut Written, recorded: bool) -> Result<(), Complaint> {
        match &self.target {
            Target::Layers { from, to, field } => {
                let count = written.layers.len();
                if *to >= count {
                    return Err(Complaint::at(&self.key, format!("there is no layer {to}"))
                        .hint(format!("layers count from 0 to {}", count.saturating_sub(1))));
                }
                self.change(written, *from..*to + 1, field)
            }
            Target::Path(_) if !recorded => Ok(()),
            Target::Path(path) => match path.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
                ["engine", ..] => {
                    let node = match path.get(1) {
                        Some(name) => self.wrap(name, self.value.clone(), self.key.clone()),
                        None => self.value.clone(),
                    };
                    written.engine = std::mem::take(&mut written.engine).overlaid(node)?;
                    Ok(())
                }
                ["draft"] if self.value.value == Value::Null => {
                    if let Some(from) = written.draft_from.take() {
                        written.layers.truncate(from);
                        written.names.truncate(from);
                    }
                    Ok(())
                }
                ["specs", name, field] => {
                    let names: Vec<String> = written.specs.iter().map(|spec| spec.name.clone()).collect();
                    let Some(spec) = written.specs.iter_mut().find(|spec| spec.name == *name) else {
                        let names = names.iter().map(String::as_str);
                        return Err(Complaint::unknown(&self.key, "spec", name, names));
                    };
                    spec.place = self.key.clone();
                    let key = Key { name: (*field).to_owned(), place: self.key.clone() };
                    spec.set(&key, &self.value)
                }
                ["draft", "set", field] => {
                    let Some(from) = written.draft_from.filter(|from| *from < written.layers.len()) else {
                        return Err(Complaint::at(&self.key, "the case has no draft"));
                    };
                    self.change(written, from..written.layers.len(), field)
                }
                _ => Err(Complaint::at(&self.key, "a recorded case has no such entry")
                    .hint("write an engine setting, `specs.0.FIELD`, `draft.FIELD` or `layers[0..9].FIELD`")),
            },
        }
    }

    fn change(
        &self,
        written: &mut Written,
        range: std::ops::Range<usize>,
        field: &str,
    ) -> Result<(), Complaint> {
        let set = self.wrap(field, self.value.clone(), self.key.clone());
        let Some(part) = written.layers.get(range.clone()) else { return Ok(()) };
        let mut layers: Vec<Option<u32>> = part.iter().copied().map(Some).collect();
        Reader { specs: &mut written.specs }.change(&mut layers, &set)?;
        for (slot, layer) in written.layers.iter_mut().skip(range.start).zip(layers.into_iter().flatten()) {
            *slot = layer;
        }
        Ok(())
    }
}

/// Whether a length is to be fitted.
fn is_fitted(node: &Node) -> bool {
    matches!(&node.value, Value::Int(-1))
        || matches!(&node.value, Value::Text(text) if text.eq_ignore_ascii_case("auto"))
}

fn spec_names(tree: &Node) -> Vec<String> {
    let Value::Map(entries) = &tree.value else { return Vec::new() };
    let specs = entries.iter().find(|(key, _)| key.name == "specs");
    match specs.map(|(_, node)| &node.value) {
        Some(Value::Map(specs)) => specs.iter().map(|(key, _)| key.name.clone()).collect(),
        _ => Vec::new(),
    }
}

/// What a key names.
fn target(path: &str, key: &Place) -> Result<Target, Complaint> {
    if let Some(rest) = path.strip_prefix("layers[") {
        return layers(rest, key);
    }
    let mut parts: Vec<String> = path.split('.').map(str::to_owned).collect();
    let first = parts[0].clone();
    match (first.as_str(), parts.len()) {
        ("engine", 2) | ("specs", 3) | ("model", 2..) => {}
        ("draft", 2) => {
            // A field of every draft layer, unless it is an entry of the draft itself.
            let name = parts[1].replace('-', "_");
            if Field::from_name(&name).is_some() {
                parts.insert(1, "set".to_owned());
            } else if !["layers", "spec", "pattern", "first", "last"].contains(&parts[1].as_str()) {
                let names = Field::ALL.iter().map(|field| field.name()).chain(["layers", "spec"]);
                return Err(Complaint::unknown(key, "spec field", &parts[1], names));
            }
        }
        // Without a value, the scenario loses its draft.
        ("draft", 1) => {}
        (_, 1) => {
            let known = engine::NAMES.iter().chain(engine::SHORT_NAMES);
            if !known.clone().any(|name| tree::same_key(name, &first)) {
                let choices = known.copied().chain(["specs.NAME.FIELD", "draft.FIELD", "layers[A..B].FIELD"]);
                return Err(Complaint::unknown(key, "setting", &first, choices));
            }
            parts.insert(0, "engine".to_owned());
        }
        _ => {
            return Err(Complaint::at(key, format!("`{path}` names nothing that can be set")).hint(
                "write an engine setting such as `max-num-seqs`, `specs.NAME.FIELD`, `draft.FIELD` or \
                 `layers[A..B].FIELD`",
            ));
        }
    }
    Ok(Target::Path(parts))
}

/// `90..93].FIELD`, `90..=92].FIELD` or `90].FIELD`; the range is half-open, as in Python and Rust.
fn layers(rest: &str, key: &Place) -> Result<Target, Complaint> {
    let wrong = || {
        Complaint::at(key, "the layers are not well written")
            .hint("write `layers[90..93].FIELD` for layers 90, 91 and 92, or `layers[90].FIELD`")
    };
    let (range, field) = rest.split_once("].").ok_or_else(wrong)?;
    let number = |text: &str| text.trim().parse::<usize>().map_err(|_source| wrong());
    let (from, to) = match range.split_once("..") {
        None => (number(range)?, number(range)?),
        Some((from, to)) => match to.strip_prefix('=') {
            Some(to) => (number(from)?, number(to)?),
            None => (number(from)?, number(to)?.checked_sub(1).ok_or_else(wrong)?),
        },
    };
    if from > to || field.is_empty() {
        return Err(wrong());
    }
    Ok(Target::Layers { from, to, field: field.to_owned() })
}
