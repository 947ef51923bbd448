//! How many, and how large: counts, lengths and memory with units.

use super::complaint::Complaint;
use super::tree::{Node, Value};

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
];

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
        Value::Float(value) => exact(*value).ok_or_else(|| whole(name, node))?,
        _ => return Err(whole(name, node)),
    };
    match u64::try_from(value) {
        Ok(value) if value <= COUNT => Ok(value),
        Ok(_) => Err(Complaint::at(&node.place, format!("`{name}` is {value}, and can be at most {COUNT}"))),
        Err(_) if value < 0 => {
            Err(Complaint::at(&node.place, format!("`{name}` is {value}, and cannot be negative")))
        }
        Err(_) => Err(Complaint::at(&node.place, format!("`{name}` is {value}, and can be at most {COUNT}"))),
    }
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
        Value::Text(text) => parse_memory(text),
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
pub(crate) fn parse_memory(text: &str) -> Option<u64> {
    let text = text.trim();
    let (number, unit) =
        UNITS.iter().find_map(|(name, unit)| Some((text.strip_suffix(name)?, *unit))).unwrap_or((text, 1));
    let number = number.trim().replace('_', "");
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(unit);
    }
    if number.starts_with(|c: char| c.is_ascii_digit()) { bytes_of(number.parse().ok()?, unit) } else { None }
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
