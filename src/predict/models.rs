//! A model's config by the name that people know it by, or from a file.

use std::path::Path;
use std::sync::{Arc, LazyLock};

use serde::Deserialize;
use serde_json::Value;
use simulator::cost::Shape;

use crate::failure::Failure;
use crate::model_file::read_config;

/// A model that is ready to be asked.
#[derive(Debug, Clone)]
pub(crate) struct NamedModel {
    /// As it was asked for.
    pub(crate) name: String,
    /// Its config.json.
    pub(crate) config: Arc<Value>,
    /// What it computes.
    pub(crate) shape: Arc<Shape>,
}

#[derive(Deserialize)]
struct Shipped {
    name: String,
    config: Value,
}

/// The keys of public configs that planning and counting read, a model a line.
static SHIPPED: LazyLock<Vec<Shipped>> = LazyLock::new(|| {
    include_str!("../../scenarios/configs.jsonl")
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect()
});

/// The model of a config.json, of a folder that holds one, or of a shipped config's name.
///
/// # Errors
/// If it is neither, or what it computes cannot be counted.
pub(crate) fn find(text: &str) -> Result<NamedModel, Failure> {
    let path = Path::new(text);
    if path.exists() {
        return of(text, read_config(path)?);
    }
    let wanted = plain(text);
    let exact = SHIPPED.iter().find(|model| model.name.eq_ignore_ascii_case(text));
    let shipped = exact.or_else(|| SHIPPED.iter().find(|model| plain(&model.name) == wanted));
    match shipped {
        Some(model) => of(text, model.config.clone()),
        None => {
            let failure = Failure::new(format!("no model is called `{text}`"))
                .hint("give its config.json, or the folder that holds it");
            Err(match near(&wanted) {
                Some(name) => failure.hint(format!("the nearest shipped name is `{name}`")),
                None => failure,
            })
        }
    }
}

/// The model of a config at hand.
///
/// # Errors
/// If what it computes cannot be counted.
pub(crate) fn of(name: &str, config: Value) -> Result<NamedModel, Failure> {
    let shape = Shape::read(&config).map_err(|error| {
        Failure::new(format!("failed to count what `{name}` computes"))
            .caused_by(error)
            .hint("a step's time is counted from the sizes in config.json; add the key with its value")
    })?;
    Ok(NamedModel { name: name.to_owned(), config: Arc::new(config), shape: Arc::new(shape) })
}

/// The shipped model whose name a scenario's begins with.
pub(crate) fn guess(scenario: &str) -> Option<NamedModel> {
    let scenario = scenario.to_ascii_lowercase().replace('_', "-");
    let longest = SHIPPED
        .iter()
        .filter(|model| scenario.starts_with(&plain(&model.name)))
        .max_by_key(|model| plain(&model.name).len())?;
    of(&longest.name, longest.config.clone()).ok()
}

/// A name without what does not change the model's sizes.
fn plain(name: &str) -> String {
    let name = name.rsplit('/').next().unwrap_or(name).to_ascii_lowercase().replace('_', "-");
    let name = name.strip_prefix("meta-").unwrap_or(&name).replace("quantized.", "quantized-");
    let drop = [
        "instruct",
        "fp8",
        "nvfp4",
        "fp4",
        "mxfp4",
        "bf16",
        "base",
        "int4",
        "kv",
        "static",
        "pertensor",
        "0528",
        "it",
        "hf",
        "0324",
        "0905",
        "2507",
        "thinking",
        "exp",
        "terminus",
        "dynamic",
        "block",
        "quantized",
        "awq",
        "gptq",
        "w4a16",
        "w8a8",
    ];
    let mut parts: Vec<&str> = Vec::new();
    let mut before = "";
    for part in name.split('-') {
        // A quantisation's own version: NVFP4-v2.
        let version = part == "v2" && before.contains("fp");
        if !drop.contains(&part) && !version {
            parts.push(part);
        }
        before = part;
    }
    // Llama 3.3 was trained further from 3.1, at 3.1's sizes.
    parts.join("-").replace("llama-3.3-", "llama-3.1-")
}

fn near(wanted: &str) -> Option<&'static str> {
    SHIPPED
        .iter()
        .map(|model| (strsim::jaro_winkler(wanted, &plain(&model.name)), model.name.as_str()))
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .filter(|(likeness, _)| *likeness > 0.7)
        .map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_change_sizes_does_not_change_a_name() {
        for (asked, meant) in [
            ("nvidia/DeepSeek-R1-0528-NVFP4-v2", "deepseek-ai/DeepSeek-R1"),
            ("nvidia/Llama-3.3-70B-Instruct-FP8", "meta-llama/Meta-Llama-3.1-70B"),
            ("RedHatAI/Meta-Llama-3.1-8B-Instruct-quantized.w4a16", "meta-llama/Meta-Llama-3.1-8B"),
            ("Qwen/Qwen3-235B-A22B-Instruct-2507", "Qwen/Qwen3-235B-A22B"),
            ("deepseek-ai/DeepSeek-V3-0324", "deepseek-ai/DeepSeek-V3"),
        ] {
            assert_eq!(
                find(asked).map(|model| model.shape).ok(),
                find(meant).map(|model| model.shape).ok(),
                "{asked}"
            );
            assert!(find(meant).is_ok(), "{meant}");
        }
        assert!(find("deepseek-ai/DeepSeek-V2").is_err());
    }

    #[test]
    fn every_shipped_config_has_a_shape() {
        let lines = include_str!("../../scenarios/configs.jsonl").lines().count();
        assert_eq!(SHIPPED.len(), lines, "a line is no JSON");
        for model in SHIPPED.iter() {
            assert!(Shape::read(&model.config).is_ok(), "{}: {:?}", model.name, Shape::read(&model.config));
        }
    }
}
