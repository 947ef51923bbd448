//! How many, and how large: counts, lengths and memory with units.

use super::complaint::Complaint;
use super::tree::{Node, Value};
use crate::failure::Failure;

/// Powers of 2, and of 10, that a size can be written in.
const UNITS: &[(&str, u64)] = &[
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("kB", 1_000),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("B", 1),
    ("k", 1_000),
    ("m", 1_000_000),
    ("g", 1_000_000_000),
    ("t", 1_000_000_000_000),
    ("K", 1 << 10),
    ("M", 1 << 20),
    ("G", 1 << 30),
    ("T", 1 << 40),
];

/// Units of which vLLM takes whole numbers only: `1.5G` may be meant by tens.
const WHOLE: &str = "KMGT";

/// The largest memory that a device or a pool can have: 1 PiB.
const MEMORY_BYTES: u64 = 1 << 50;
/// The largest count or length.
const COUNT: u64 = 1 << 48;

/// A number of at least 1.
pub(super) fn count(name: &str, node: &Node) -> Result<u64, Complaint> {
    match natural(name, node)? {
        0 => Err(Complaint::at(&node.place, format!("`{name}` must be at least 1"))),
        value => Ok(value),
    }
}

/// A number of at least 0.
pub(super) fn natural(name: &str, node: &Node) -> Result<u64, Complaint> {
    let value = match &node.value {
        Value::Int(value) => *value,
        Value::Float(value) if value.is_finite() && value.fract() == 0.0 && exact(*value).is_none() => {
            return Err(too_large(name, node));
        }
        Value::Float(value) => exact(*value).ok_or_else(|| whole(name, node))?,
        _ => return Err(whole(name, node)),
    };
    match u64::try_from(value) {
        Ok(value) if value <= COUNT => Ok(value),
        Ok(_) => Err(Complaint::at(&node.place, format!("`{name}` is {value}, and can be at most {COUNT}"))),
        Err(_) if value < 0 => {
            Err(Complaint::at(&node.place, format!("`{name}` is {value}, and cannot be negative")))
        }
        Err(_) => Err(too_large(name, node)),
    }
}

/// A number of at least 1, also as vLLM's flags take it: `32k` is 32,000 and `32K` 32,768.
pub(super) fn tokens(name: &str, node: &Node) -> Result<u64, Complaint> {
    match &node.value {
        Value::Text(text) if text.starts_with(|c: char| c.is_ascii_digit()) => match parse_count(text) {
            Ok(value) => Ok(value),
            Err(reason) => Err(Complaint::at(&node.place, format!("`{name}`: {reason}"))),
        },
        _ => count(name, node),
    }
}

/// A count on the command line, at least 1, such as `32k`, `32K` or `32768`.
///
/// # Errors
/// What is wrong with it.
///
/// # Source
/// `human_readable_int` in `vllm/utils/argparse_utils.py`, vLLM 0.33.
pub(crate) fn parse_count(text: &str) -> Result<u64, String> {
    let wrong = || format!("`{text}` is no number; write one such as 32768, 32k (32,000) or 32K (32,768)");
    let plain = text.trim().replace('_', "");
    let short = |name: &str| name.len() == 1 && name != "B";
    let found = UNITS
        .iter()
        .filter(|(name, _)| short(name))
        .find_map(|(name, unit)| Some((plain.strip_suffix(name)?, *name, *unit)));
    let (number, name, unit) = found.unwrap_or((plain.as_str(), "", 1));
    if !number.starts_with(|c: char| c.is_ascii_digit()) || !number.ends_with(|c: char| c.is_ascii_digit()) {
        return Err(wrong());
    }
    let value = match number.parse::<u64>() {
        Ok(whole) => whole.checked_mul(unit),
        Err(_) if name.is_empty() || !number.contains('.') => return Err(wrong()),
        Err(_) if WHOLE.contains(name) => {
            return Err(format!(
                "`{text}` is a fraction of a power of 2, which vLLM refuses; `{number}{}` is one of 10",
                name.to_ascii_lowercase()
            ));
        }
        Err(_) => number.parse().ok().and_then(|number| bytes_of(number, unit)),
    };
    match value {
        Some(0) => Err("it must be at least 1".to_owned()),
        Some(value) if value <= COUNT => Ok(value),
        _ => Err(format!("`{text}` is too large; it can be at most {COUNT}")),
    }
}

fn too_large(name: &str, node: &Node) -> Complaint {
    let written = super::complaint::cut(&super::fields::written(node), 30);
    Complaint::at(&node.place, format!("`{name}` is {written}, and can be at most {COUNT}"))
}

fn whole(name: &str, node: &Node) -> Complaint {
    Complaint::wrong_type(name, "a whole number", node)
}

/// The integer that a float such as 8e3 stands for.
fn exact(value: f64) -> Option<i128> {
    #[expect(clippy::cast_possible_truncation, reason = "bounded by the condition")]
    (value.fract() == 0.0 && value.abs() < 1e18).then_some(value as i128)
}

/// Memory in bytes: a number of bytes, or a number and a unit.
pub(super) fn memory(name: &str, node: &Node) -> Result<u64, Complaint> {
    let bytes = match &node.value {
        Value::Int(value) => u64::try_from(*value)
            .map_err(|_source| Complaint::at(&node.place, format!("`{name}` is {value} bytes")))
            .map(Some)?,
        Value::Float(value) => bytes_of(*value, 1),
        Value::Text(text) => memory_text(text),
        _ => None,
    };
    match bytes {
        Some(0) => Err(Complaint::at(&node.place, format!("`{name}` must be at least 1 byte"))),
        Some(bytes) if bytes <= MEMORY_BYTES => Ok(bytes),
        Some(bytes) => {
            Err(Complaint::at(&node.place, format!("`{name}` is {bytes} bytes, and can be at most 1 PiB")))
        }
        None => Err(Complaint::wrong_type(name, "a memory size", node)
            .hint("write bytes, or a number and a unit, such as `80 GiB`, `6.5e9` or `51.8GiB`")),
    }
}

/// `80 GiB`, `51.8GiB`, `6.5e9`; a fraction of a byte is cut.
fn memory_text(text: &str) -> Option<u64> {
    let text = text.trim();
    let (number, name, unit) = UNITS
        .iter()
        .find_map(|(name, unit)| Some((text.strip_suffix(name)?, *name, *unit)))
        .unwrap_or((text, "B", 1));
    let number = number.trim().replace('_', "");
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(unit);
    }
    if WHOLE.contains(name) {
        return None;
    }
    if number.starts_with(|c: char| c.is_ascii_digit()) { bytes_of(number.parse().ok()?, unit) } else { None }
}

/// Memory on the command line, bytes.
///
/// # Errors
/// If it is no size, or none that memory can have.
pub(crate) fn parse_memory(flag: &str, text: &str) -> Result<u64, Failure> {
    let failed = || Failure::new(format!("failed to read `{flag}`"));
    match memory_text(text) {
        Some(0) => Err(failed().caused_by("it must be at least 1 byte")),
        Some(bytes) if bytes <= MEMORY_BYTES => Ok(bytes),
        Some(bytes) => Err(failed().caused_by(format!("it is {bytes} bytes, and can be at most 1 PiB"))),
        None => {
            let unit =
                text.trim().trim_start_matches(|c: char| c.is_ascii_digit() || matches!(c, '.' | '_' | ' '));
            let known: Vec<&str> = UNITS.iter().map(|(name, _)| *name).collect();
            let failure = if !unit.is_empty() && WHOLE.contains(unit) {
                failed().caused_by(format!("`{text}` is a fraction of a power of 2, which vLLM refuses"))
            } else if unit.is_empty() || unit.len() == text.trim().len() {
                failed().caused_by(format!("`{text}` is not a memory size"))
            } else {
                failed().caused_by(format!("the unit `{unit}` of `{text}` is not known"))
            };
            Err(failure
                .hint("write bytes, or a number and a unit, such as `80 GiB`, `6.5e9` or `51.8GiB`")
                .hint(format!("units are {}", known.join(", "))))
        }
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "bounded by the condition; a unit is a power of 2 or 10 far below 2^53"
)]
fn bytes_of(number: f64, unit: u64) -> Option<u64> {
    let bytes = number * unit as f64;
    (bytes.is_finite() && (0.0..1e18).contains(&bytes)).then_some(bytes as u64)
}
