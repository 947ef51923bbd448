//! What does a layer declare: the fields of a KV cache spec by vLLM's names.

use planner::dtype::DType;
use planner::spec::{FieldValue, KvQuantMode, SparseCacheRole, SpecError, StrideAlignment, TokensPerState};
use planner::{Field, KvCacheSpec, RawSpec, SpecKind};

use super::complaint::{Complaint, list_of};
use super::fields::{self, Fields};
use super::quantity;
use super::tree::{Key, Node, Place, Value};

/// A spec as written, before the planner has looked at it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct WrittenSpec {
    /// What the file calls it.
    pub(super) name: String,
    pub(super) raw: RawSpec,
    pub(super) place: Place,
    /// Where each field is declared, for those that a file writes out.
    pub(super) field_places: Vec<(Field, Place)>,
}

impl WrittenSpec {
    /// Declares one field, or takes it back with a null.
    pub(super) fn set(&mut self, key: &Key, node: &Node) -> Result<(), Complaint> {
        if key.name == "kind" {
            self.raw.kind = kind(node)?;
            return Ok(());
        }
        let field = Field::from_name(&key.name.replace('-', "_")).ok_or_else(|| {
            let names = Field::ALL.iter().map(|field| field.name()).chain(["kind"]);
            Complaint::unknown(&key.place, "spec field", &key.name, names)
        })?;
        self.field_places.push((field, key.place.clone()));
        let declared = match node.value {
            Value::Null => None,
            _ => Some(value(field, node)?),
        };
        if self.raw.set(field, declared) { Ok(()) } else { Err(wrong_value(field, node)) }
    }

    /// The spec that the planner reads.
    pub(super) fn resolve(&self) -> Result<KvCacheSpec, Complaint> {
        KvCacheSpec::try_from(self.raw.clone()).map_err(|error| {
            let at = |field: &Field| {
                let known = self.field_places.iter().rev().find(|(known, _)| known == field);
                known.map_or(&self.place, |(_, place)| place)
            };
            let place = match &error {
                SpecError::NotOfKind { field, .. } | SpecError::Zero { field } => at(field),
                SpecError::Missing { .. } | SpecError::StateLengths { .. } | SpecError::ModelVersion(_) => {
                    &self.place
                }
            };
            let complaint = Complaint::at(place, format!("spec `{}`: {error}", self.name));
            match &error {
                SpecError::Missing { field, .. } => complaint.hint(format!("write `{field}: ...` in it")),
                SpecError::NotOfKind { kind, .. } => {
                    let known = planner::spec::known_fields(*kind, planner::EngineVersion::LATEST);
                    let names: Vec<&str> = Field::ALL
                        .iter()
                        .filter(|field| known.contains(**field))
                        .map(|field| field.name())
                        .collect();
                    complaint.hint(list_of("field", &names))
                }
                SpecError::Zero { .. } | SpecError::StateLengths { .. } | SpecError::ModelVersion(_) => {
                    complaint
                }
            }
        })
    }
}

/// Reads `name: {kind: ..., ...}`.
pub(super) fn read(name: &Key, node: Node) -> Result<WrittenSpec, Complaint> {
    let mut entries = Fields::of(&name.name, "spec field", node)?;
    let place = name.place.clone();
    let kind = match entries.take("kind") {
        None => {
            return Err(Complaint::at(&place, format!("spec `{}` has no `kind`", name.name))
                .hint(list_of("kind", &kind_names())));
        }
        Some(node) => kind(&node)?,
    };
    let raw = RawSpec::empty(kind);
    let mut spec = WrittenSpec { name: name.name.clone(), raw, place, field_places: Vec::new() };
    for (key, node) in entries.rest() {
        spec.set(&key, &node)?;
    }
    Ok(spec)
}

fn kind_names() -> Vec<&'static str> {
    SpecKind::ALL.iter().map(|kind| kind.name()).collect()
}

fn kind(node: &Node) -> Result<SpecKind, Complaint> {
    let name = fields::text("kind", node)?;
    SpecKind::ALL
        .iter()
        .copied()
        .find(|kind| kind.name() == name || kind.class_name() == name)
        .ok_or_else(|| Complaint::unknown(&node.place, "kind", &name, kind_names()))
}

/// The value that the field takes if it is of the right type.
fn value(field: Field, node: &Node) -> Result<FieldValue, Complaint> {
    Ok(match &node.value {
        Value::Flag(value) => FieldValue::Flag(*value),
        Value::Int(_) | Value::Float(_) => FieldValue::Int(quantity::natural(field.name(), node)?),
        Value::Text(text) if field == Field::TokensPerStateField => {
            let parts = text
                .split_once('/')
                .and_then(|(n, d)| Some([n.trim().parse().ok()?, d.trim().parse().ok()?]));
            FieldValue::Tokens(TokensPerState::Fraction(parts.ok_or_else(|| wrong_value(field, node))?))
        }
        Value::Text(_) if field == Field::PageSizePadded => {
            FieldValue::Int(quantity::memory(field.name(), node)?)
        }
        Value::Text(text) => FieldValue::Text(text.clone()),
        Value::List(items) if field == Field::Shapes => FieldValue::Shapes(shapes(items)?),
        Value::List(items) if field == Field::DTypes => FieldValue::DTypes(
            items
                .iter()
                .map(|item| dtype(item).ok_or_else(|| wrong_value(field, item)))
                .collect::<Result<_, _>>()?,
        ),
        Value::Map(_) if field == Field::BlockStrideAlignment => {
            let mut entries = Fields::of(field.name(), "entry", node.clone())?;
            let multiple_of = entries.count("multiple_of")?.ok_or_else(|| wrong_value(field, node))?;
            entries.end()?;
            FieldValue::Alignment(StrideAlignment::MultipleOf { multiple_of })
        }
        _ => return Err(wrong_value(field, node)),
    })
}

fn dtype(node: &Node) -> Option<DType> {
    match &node.value {
        Value::Text(name) => name.parse().ok(),
        _ => None,
    }
}

fn shapes(items: &[Node]) -> Result<Vec<Vec<u64>>, Complaint> {
    items
        .iter()
        .map(|shape| match &shape.value {
            Value::List(sizes) => sizes.iter().map(|size| quantity::count("shapes", size)).collect(),
            _ => Err(wrong_value(Field::Shapes, shape)),
        })
        .collect()
}

/// Says what the field takes, from what it holds.
fn wrong_value(field: Field, node: &Node) -> Complaint {
    let dtypes: Vec<&str> = DType::ALL.iter().map(|dtype| dtype.name()).collect();
    match field {
        Field::DTypeField | Field::DTypes => match &node.value {
            Value::Text(name) => Complaint::unknown(&node.place, "dtype", name, dtypes),
            _ if field == Field::DTypes => Complaint::wrong_type(field.name(), "a list of dtypes", node),
            _ => Complaint::wrong_type(field.name(), "a dtype, such as `bfloat16`", node),
        },
        Field::Shapes => Complaint::wrong_type("shapes", "a list of shapes", node)
            .hint("write one list a state, such as `[[3, 1536], [12, 128, 128]]`"),
        Field::KvQuantModeField | Field::CacheRole => {
            let all: Vec<&str> = if field == Field::CacheRole {
                SparseCacheRole::ALL.iter().map(|role| role.name()).collect()
            } else {
                KvQuantMode::ALL.iter().map(|mode| mode.name()).collect()
            };
            Complaint::unknown(&node.place, field.name(), &fields::written(node), all)
        }
        Field::BlockStrideAlignment => {
            Complaint::wrong_type(field.name(), "a number of bytes, or `{multiple_of: TOKENS}`", node)
        }
        Field::TokensPerStateField => {
            Complaint::wrong_type(field.name(), "a number of tokens, or a fraction such as `1/4`", node)
        }
        Field::CacheDtypeStr | Field::ModelVersion | Field::MambaType | Field::MambaCacheModeField => {
            Complaint::wrong_type(field.name(), "a name", node)
        }
        Field::DcpSharded
        | Field::IndexesKvByBlockStride
        | Field::NonCausal
        | Field::IsIndexGroupLeader
        | Field::NonCausalMultiTokenDecode
        | Field::BoundedReplay
        | Field::TpReplicated => Complaint::wrong_type(field.name(), "`true` or `false`", node),
        _ => Complaint::wrong_type(field.name(), "a whole number", node),
    }
}
