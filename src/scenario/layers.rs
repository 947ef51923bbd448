//! Which layers are there: run lengths, repeating patterns, the first and the last ones.

use super::complaint::Complaint;
use super::fields::{self, Fields};
use super::quantity;
use super::spec::WrittenSpec;
use super::tree::{Node, Place, Value};

/// Layers of a model at most, the draft's included.
pub(super) const LIMIT: u64 = 1_000_000;

/// The word for a layer that has no KV cache, such as an MLP or a layer that shares another's.
const NO_CACHE: &str = "none";

/// Consecutive layers of one spec.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Run {
    count: u64,
    /// Index of the spec; `None` has no cache.
    spec: Option<u32>,
}

/// Reads layers, adding the specs that they change.
pub(super) struct Reader<'a> {
    /// The specs, by index.
    pub(super) specs: &'a mut Vec<WrittenSpec>,
}

impl Reader<'_> {
    /// The spec of each layer of `model: ...` or `draft: ...`; `None` for a layer without a cache.
    ///
    /// # Errors
    /// If there are no layers, more than [`LIMIT`], or a spec that the file does not have.
    pub(super) fn read(&mut self, name: &'static str, node: Node) -> Result<Vec<Option<u32>>, Complaint> {
        if let Value::List(_) | Value::Text(_) = &node.value {
            let runs = self.runs(&node)?;
            return expand(&runs, &node.place);
        }
        let mut entries = Fields::of(name, "entry", node)?;
        let place = entries.place.clone();
        let count = entries.take("layers");
        let pattern = entries.take("pattern");
        let spec = entries.take("spec");
        let set = entries.take_set("set");
        let first = entries.take("first");
        let last = entries.take("last");
        let at = entries.take("at");
        let letters = entries.take("letters");
        let letter_specs = entries.take("letter-specs");
        entries.end()?;
        if let Some(letters) = letters {
            let others = [&count, &pattern, &spec, &first, &last, &at];
            if let Some(other) = others.into_iter().flatten().next() {
                return Err(Complaint::at(&other.place, "`letters` already says every layer"));
            }
            let mut layers = self.letters(&letters, letter_specs)?;
            if let Some(set) = set.filter(|set| set.value != Value::Null) {
                self.change(&mut layers, &set)?;
            }
            return Ok(layers);
        }
        let mut layers = match (count, pattern, spec) {
            (Some(list), None, None) if matches!(list.value, Value::List(_) | Value::Text(_)) => {
                let runs = self.runs(&list)?;
                expand(&runs, &list.place)?
            }
            (Some(count), pattern, spec) => {
                let number = layer_count(&count)?;
                let runs = match (pattern, spec) {
                    (Some(pattern), None) => self.runs(&pattern)?,
                    (None, Some(spec)) => vec![self.run(&spec)?],
                    (None, None) => {
                        return Err(Complaint::at(
                            &place,
                            format!("`{name}` says how many layers, and not which"),
                        )
                        .hint("write `spec: NAME`, or `pattern: [3 NAME, 1 OTHER]`"));
                    }
                    (Some(_), Some(spec)) => {
                        return Err(Complaint::at(&spec.place, "`pattern` and `spec` both say which layers"));
                    }
                };
                repeat(&runs, number, &place)?
            }
            (None, Some(pattern), None) => {
                let runs = self.runs(&pattern)?;
                expand(&runs, &pattern.place)?
            }
            (None, ..) => {
                return Err(Complaint::at(
                    &place,
                    format!("`{name}` does not say how many layers there are"),
                )
                .hint("write `layers: 93` beside a `pattern` or a `spec`"));
            }
        };
        if let Some(first) = first {
            let runs = self.runs(&first)?;
            let start = expand(&runs, &first.place)?;
            overwrite(&mut layers, 0, &start, &first.place)?;
        }
        if let Some(last) = last {
            let runs = self.runs(&last)?;
            let end = expand(&runs, &last.place)?;
            let from = layers.len().saturating_sub(end.len());
            overwrite(&mut layers, from, &end, &last.place)?;
        }
        if let Some(at) = at {
            for (key, node) in Fields::of("at", "layer", at)?.rest() {
                let index = key.name.parse::<usize>().ok().filter(|index| *index < layers.len());
                let index = index.ok_or_else(|| {
                    Complaint::at(&key.place, format!("there is no layer `{}`", key.name))
                        .hint(format!("layers count from 0 to {}", layers.len().saturating_sub(1)))
                })?;
                let runs = self.runs(&node)?;
                let piece = expand(&runs, &node.place)?;
                overwrite(&mut layers, index, &piece, &node.place)?;
            }
        }
        if let Some(set) = set
            && set.value != Value::Null
        {
            self.change(&mut layers, &set)?;
        }
        Ok(layers)
    }

    /// A letter a layer, as configs write `MEMEM*`, and what each letter means.
    fn letters(&self, letters: &Node, specs: Option<Node>) -> Result<Vec<Option<u32>>, Complaint> {
        let text = fields::text("letters", letters)?;
        let Some(specs) = specs else {
            return Err(Complaint::at(&letters.place, "`letters` needs `letter-specs`")
                .hint("write `letter-specs: {M: mamba, \"*\": full, E: none}`"));
        };
        let mut known = Vec::new();
        for (key, node) in Fields::of("letter-specs", "letter", specs)?.rest() {
            known.push((key.name, self.find(&fields::text("letter-specs", &node)?, &node.place)?));
        }
        text.chars()
            .map(|letter| {
                let found = known.iter().find(|(name, _)| name.chars().eq([letter]));
                found.map(|(_, spec)| *spec).ok_or_else(|| {
                    let names = known.iter().map(|(name, _)| name.as_str());
                    Complaint::unknown(&letters.place, "letter", &letter.to_string(), names)
                })
            })
            .collect()
    }

    /// Declares the fields of `set` in every one of `layers`.
    pub(super) fn change(&mut self, layers: &mut [Option<u32>], set: &Node) -> Result<(), Complaint> {
        let mut changed: Vec<(u32, u32)> = Vec::new();
        for layer in layers {
            let Some(id) = *layer else { continue };
            let new = match changed.iter().find(|(from, _)| *from == id) {
                Some((_, to)) => *to,
                None => {
                    let to = self.derive(id, set)?;
                    changed.push((id, to));
                    to
                }
            };
            *layer = Some(new);
        }
        Ok(())
    }

    /// A spec like `id` with the fields of `set`.
    fn derive(&mut self, id: u32, set: &Node) -> Result<u32, Complaint> {
        let entries = Fields::of("set", "spec field", set.clone())?;
        let Some(mut derived) = self.specs.get(id as usize).cloned() else { return Ok(id) };
        derived.place = set.place.clone();
        for (key, node) in entries.rest() {
            derived.set(&key, &node)?;
        }
        self.add(derived)
    }

    fn add(&mut self, derived: WrittenSpec) -> Result<u32, Complaint> {
        if let Some(known) = self.specs.iter().position(|spec| spec.raw == derived.raw) {
            return Ok(u32::try_from(known).unwrap_or(u32::MAX));
        }
        let id = u32::try_from(self.specs.len())
            .map_err(|_source| Complaint::at(&derived.place, "there are too many specs"))?;
        self.specs.push(derived);
        Ok(id)
    }

    fn runs(&mut self, node: &Node) -> Result<Vec<Run>, Complaint> {
        let runs = match &node.value {
            Value::List(items) => items.iter().map(|item| self.run(item)).collect::<Result<Vec<_>, _>>()?,
            _ => vec![self.run(node)?],
        };
        if runs.iter().all(|run| run.count == 0) {
            return Err(
                Complaint::at(&node.place, "the list names no layer").hint("write `[3 NAME, 1 OTHER]`")
            );
        }
        Ok(runs)
    }

    /// `kda`, `3 kda`, or `{spec: kda, count: 3, set: {...}}`.
    fn run(&mut self, node: &Node) -> Result<Run, Complaint> {
        match &node.value {
            Value::Text(text) => {
                let (count, name) = match text.trim().split_once(char::is_whitespace) {
                    Some((count, name)) if count.starts_with(|c: char| c.is_ascii_digit() || c == '-') => {
                        let value =
                            count.parse::<i128>().map(Value::Int).unwrap_or(Value::Text(count.to_owned()));
                        (layer_count(&Node { value, place: node.place.clone() })?, name.trim())
                    }
                    _ => (1, text.trim()),
                };
                Ok(Run { count, spec: self.find(name, &node.place)? })
            }
            Value::Map(_) => {
                let mut entries = Fields::of("layers", "entry", node.clone())?;
                let place = entries.place.clone();
                let count = entries.take("count").map_or(Ok(1), |count| layer_count(&count))?;
                let set = entries.take("set");
                let name = entries.take("spec");
                entries.end()?;
                let Some(name) = name else {
                    return Err(Complaint::at(&place, "the entry has no `spec`"));
                };
                let spec = self.find(&fields::text("spec", &name)?, &name.place)?;
                let mut one = [spec];
                if let Some(set) = set {
                    self.change(&mut one, &set)?;
                }
                Ok(Run { count, spec: one[0] })
            }
            _ => Err(Complaint::wrong_type("layers", "a spec's name, perhaps with a number before it", node)
                .hint("write `NAME`, `3 NAME`, or `{spec: NAME, count: 3, set: {max_tp_shards: 1}}`")),
        }
    }

    fn find(&self, name: &str, place: &Place) -> Result<Option<u32>, Complaint> {
        match self.specs.iter().position(|spec| spec.name == name) {
            Some(index) => Ok(Some(u32::try_from(index).unwrap_or(u32::MAX))),
            None if name == NO_CACHE => Ok(None),
            None => {
                let mut names: Vec<&str> = self.specs.iter().map(|spec| spec.name.as_str()).collect();
                names.dedup();
                names.push(NO_CACHE);
                Err(Complaint::unknown(place, "spec", name, names))
            }
        }
    }
}

/// A number of layers.
fn layer_count(node: &Node) -> Result<u64, Complaint> {
    let too_many = |count: &dyn std::fmt::Display| {
        Complaint::at(&node.place, format!("there are {count} layers, and can be at most {LIMIT}"))
    };
    match node.value {
        Value::Int(count) if count > i128::from(LIMIT) => return Err(too_many(&count)),
        Value::Float(count) if count > LIMIT as f64 => return Err(too_many(&count)),
        _ => {}
    }
    quantity::count("layers", node)
}

fn checked_total(runs: &[Run], place: &Place) -> Result<u64, Complaint> {
    let total = runs.iter().try_fold(0_u64, |sum, run| sum.checked_add(run.count));
    total.filter(|total| *total <= LIMIT).ok_or_else(|| {
        Complaint::at(place, format!("there are more than {LIMIT} layers, which is the most there can be"))
    })
}

fn expand(runs: &[Run], place: &Place) -> Result<Vec<Option<u32>>, Complaint> {
    let total = checked_total(runs, place)?;
    repeat(runs, total, place)
}

/// The first `number` layers of the pattern, over and over.
fn repeat(runs: &[Run], number: u64, place: &Place) -> Result<Vec<Option<u32>>, Complaint> {
    checked_total(runs, place)?;
    let number = usize::try_from(number.min(LIMIT)).unwrap_or(0);
    let pattern = runs.iter().flat_map(|run| (0..run.count).map(|_| run.spec));
    let mut layers: Vec<Option<u32>> = pattern.take(number).collect();
    let period = layers.len().max(1);
    while layers.len() < number && !layers.is_empty() {
        let layer = layers[layers.len() - period];
        layers.push(layer);
    }
    Ok(layers)
}

fn overwrite(
    layers: &mut [Option<u32>],
    from: usize,
    piece: &[Option<u32>],
    place: &Place,
) -> Result<(), Complaint> {
    let count = layers.len();
    match layers.get_mut(from..from.saturating_add(piece.len())) {
        Some(target) => {
            target.copy_from_slice(piece);
            Ok(())
        }
        None => {
            Err(Complaint::at(place, format!("{} layers do not fit into {count} from {from}", piece.len())))
        }
    }
}
