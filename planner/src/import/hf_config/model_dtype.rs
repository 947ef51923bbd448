//! In which dtype does a model run?
//!
//! # Source
//! `PreTrainedConfig.__post_init__` in transformers' `configuration_utils.py`, 5.19, and `_get_and_verify_dtype` and
//! `_resolve_auto_dtype` in `vllm/config/model.py`, vLLM 0.32.

use serde_json::Value;

use super::architectures::pools;
use super::config::{Config, short, wrong};
use super::error::ImportError;
use crate::dtype::DType;

/// Dtypes that PyTorch has and no model runs in, less those that no file would name: vLLM falls back to its own.
const OTHERS: &[&str] = &[
    "bool",
    "complex128",
    "complex64",
    "double",
    "float4_e2m1fn_x2",
    "float64",
    "float8_e4m3fn",
    "float8_e4m3fnuz",
    "float8_e5m2",
    "float8_e5m2fnuz",
    "float8_e8m0fnu",
    "int",
    "int16",
    "int32",
    "int4",
    "int64",
    "int8",
    "long",
    "qint32",
    "qint8",
    "quint8",
    "short",
    "uint16",
    "uint32",
    "uint4",
    "uint64",
    "uint8",
];

/// Model types that vLLM does not run in float16.
///
/// # Source
/// `_FLOAT16_NOT_SUPPORTED_MODELS` in `vllm/config/model.py`, vLLM 0.32.
const WITHOUT_FLOAT16: &[&str] = &["gemma2", "gemma3", "gemma3_text", "glm4"];

fn by_name(name: &str) -> Option<DType> {
    match name {
        "half" | "float16" => Some(DType::Float16),
        "bfloat16" => Some(DType::BFloat16),
        "float" | "float32" => Some(DType::Float32),
        _ => None,
    }
}

/// Refuses a dtype of the file that PyTorch does not have, whatever the engine then runs in.
pub(super) fn check(field: &str, value: &Value) -> Result<(), ImportError> {
    match value {
        Value::String(name) if by_name(name).is_none() && !OTHERS.contains(&name.as_str()) => {
            Err(ImportError::UnknownDtype { field: field.to_owned(), value: short(name) })
        }
        Value::Array(_) => Err(wrong(field, "a text", value)),
        _ => Ok(()),
    }
}

/// The model's dtype: the flag, else the file's, taken down to what the engine prefers where it runs no such thing.
pub(super) fn resolve(
    flag: &str,
    config: &Config<'_>,
    notes: &mut Vec<String>,
) -> Result<DType, ImportError> {
    let root_type = config.root_type();
    let unstable = WITHOUT_FLOAT16.contains(&root_type);
    if !flag.eq_ignore_ascii_case("auto") {
        let name = flag.trim().to_ascii_lowercase();
        let dtype = by_name(&name)
            .ok_or_else(|| ImportError::UnknownValue { key: "--dtype".to_owned(), value: short(flag) })?;
        if unstable && dtype == DType::Float16 {
            return Err(ImportError::Refused(format!(
                "vLLM does not run a `{root_type}` in float16, which is numerically unstable there: use bfloat16 or \
                 float32"
            )));
        }
        return Ok(dtype);
    }
    let preferred = if pools(config.architecture()) && !unstable { DType::Float16 } else { DType::BFloat16 };
    let Some(stated) = config.stated_dtype() else {
        notes.push(format!("the config states no dtype: taken as {}", preferred.name()));
        return Ok(preferred);
    };
    check("dtype", stated)?;
    match stated.as_str().and_then(by_name) {
        Some(DType::Float16) if unstable => Ok(preferred),
        Some(dtype @ (DType::Float16 | DType::BFloat16)) => Ok(dtype),
        Some(_) => Ok(preferred),
        None => {
            notes.push(format!(
                "vLLM runs no model in the dtype `{}` of the config: taken as {}",
                short(&stated.to_string()).trim_matches('"'),
                preferred.name()
            ));
            Ok(preferred)
        }
    }
}
