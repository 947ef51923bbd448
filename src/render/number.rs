//! Numbers as people and as vLLM write them.

/// With commas between thousands: `205,696`.
pub(crate) fn thousands(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Bytes with a unit and at most two decimals: `1.27 MiB`.
#[expect(clippy::cast_precision_loss, reason = "two decimals are shown")]
pub(crate) fn bytes(n: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if n < 1024 {
        return format!("{n} B");
    }
    let mut value = n as f64;
    let mut unit = "";
    for name in UNITS {
        if value < 1024.0 {
            break;
        }
        value /= 1024.0;
        unit = name;
    }
    let text = format!("{value:.2}");
    format!("{} {unit}", text.trim_end_matches('0').trim_end_matches('.'))
}

/// A share of a whole in percent, two decimals.
#[expect(clippy::cast_precision_loss, reason = "two decimals are shown")]
pub(crate) fn percent(part: u64, whole: u64) -> String {
    format!("{:.2}%", part as f64 / whole.max(1) as f64 * 100.0)
}

/// Indices as runs: `0-3, 7`.
pub(crate) fn runs(indices: &[u32]) -> String {
    let mut out = String::new();
    let mut rest = indices;
    while let [first, ..] = rest {
        let mut length = 1;
        while rest.get(length).is_some_and(|n| u64::from(*n) == u64::from(*first) + length as u64) {
            length += 1;
        }
        if !out.is_empty() {
            out.push_str(", ");
        }
        out.push_str(&first.to_string());
        if length > 1 {
            out.push_str(&format!("-{}", u64::from(*first) + length as u64 - 1));
        }
        rest = &rest[length..];
    }
    out
}
