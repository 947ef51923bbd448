//! How is one figure taken from a JSON value, with a clear error where it is no figure?

use serde_json::Value;

use super::ReadError;
use crate::compare::bootstrap::quantile;
use crate::compare::metric::Metric;
use crate::compare::run::{Measured, Run};

/// A number, also where a tool wrote it as text; `None` for null.
fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Number(number) => Some(number.as_f64().unwrap_or(f64::NAN)),
        Value::String(text) => Some(text.trim().parse().unwrap_or(f64::NAN)),
        Value::Null => None,
        _ => Some(f64::NAN),
    }
}

/// A figure above zero; `None` for null.
pub(super) fn positive(file: &str, key: &str, value: &Value) -> Result<Option<f64>, ReadError> {
    match number(value) {
        None => Ok(None),
        Some(number) if number.is_finite() && number > 0.0 => Ok(Some(number)),
        Some(_) => Err(not_positive(file, key, value)),
    }
}

pub(super) fn not_positive(file: &str, key: &str, value: &Value) -> ReadError {
    ReadError::NotPositive { file: file.to_owned(), key: key.to_owned(), value: shown(value) }
}

/// A value as it was written, or the start of it.
fn shown(value: &Value) -> String {
    const MOST: usize = 60;
    let whole = value.to_string();
    let whole = whole.trim_matches('"');
    let mut shown: String = whole.chars().take(MOST).collect();
    if shown.len() < whole.len() {
        shown.push_str("...");
    }
    shown
}

/// A share from 0 to 1; `None` for null and lm-eval's `N/A`.
pub(super) fn share(file: &str, key: &str, value: &Value) -> Result<Option<f64>, ReadError> {
    if value.as_str() == Some("N/A") {
        return Ok(None);
    }
    match number(value) {
        None => Ok(None),
        Some(number) if (0.0..=1.0).contains(&number) => Ok(Some(number)),
        Some(_) => {
            Err(ReadError::NotAShare { file: file.to_owned(), key: key.to_owned(), value: shown(value) })
        }
    }
}

/// Adds the figure `name`, whose value is `value` times `factor`, where the name is a comparable figure.
pub(super) fn add(run: &mut Run, key: &str, name: &str, value: &Value, factor: f64) -> Result<(), ReadError> {
    let Some(metric) = Metric::named(name) else { return Ok(()) };
    if let Some(value) = positive(&run.source, key, value)? {
        run.figures.insert(metric, Measured { value: value * factor, standard_error: None });
    }
    Ok(())
}

/// A label of the load, where the key holds a text, number or truth.
pub(super) fn label(run: &mut Run, label: &str, value: Option<&Value>) {
    let text = match value {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Number(number)) => {
            // 8 and 8.0 are one load.
            number.as_f64().map_or_else(|| number.to_string(), |number| number.to_string())
        }
        Some(Value::Bool(truth)) => truth.to_string(),
        _ => return,
    };
    run.labels.insert(label.to_owned(), text);
}

/// A seed, also where it was given as text.
pub(super) fn seed(value: Option<&Value>) -> Option<u64> {
    let value = value?;
    value.as_u64().or_else(|| value.as_str().and_then(|text| text.trim().parse().ok()))
}

/// Seconds since the epoch as text that sorts by time.
pub(super) fn time(seconds: Option<f64>) -> Option<String> {
    seconds.filter(|seconds| seconds.is_finite() && *seconds > 0.0).map(|seconds| format!("{seconds:020.6}"))
}

/// Adds the mean, median and upper percentiles of per-request values, each only where the file's own
/// summary lacks it, and the sampling error of the median.
///
/// `values` are in the metric's unit; `suffix` is `ttft_ms` and the like.
pub(super) fn add_requests(run: &mut Run, suffix: &str, mut values: Vec<f64>) {
    if values.is_empty() {
        return;
    }
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    values.sort_by(f64::total_cmp);
    let error = median_error(&values);
    let found = [
        ("mean", mean, None),
        ("median", quantile(&values, 0.5), error),
        ("p90", quantile(&values, 0.9), None),
        ("p99", quantile(&values, 0.99), None),
    ];
    for (statistic, value, standard_error) in found {
        let Some(metric) = Metric::named(&format!("{statistic}_{suffix}")) else { continue };
        if value > 0.0 {
            let figure = run.figures.entry(metric).or_insert(Measured { value, standard_error: None });
            figure.standard_error = standard_error;
        }
    }
}

/// The standard error of a median from order statistics: the half width of the 95% distribution-free interval
/// over its normal quantile (McKean and Schrader 1984). `None` below ten values.
fn median_error(sorted: &[f64]) -> Option<f64> {
    const NORMAL: f64 = 1.96;
    if sorted.len() < 10 {
        return None;
    }
    let half = NORMAL / 2.0 / (sorted.len() as f64).sqrt();
    Some((quantile(sorted, 0.5 + half) - quantile(sorted, 0.5 - half)) / (2.0 * NORMAL))
}
