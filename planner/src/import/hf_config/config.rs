//! What is a key's value: what the file says, what its class renames, what its class fills in?
//!
//! An explicit `null` is Python's `None` and hides the class's default. `text` is the nested config of the
//! language model where there is one, else the config itself. What the engine sets after the class has read the file
//! ([`Later`]) hides both, but not what the class made of them.

mod later;

use std::sync::LazyLock;

use serde_json::{Map, Value};

use super::MAX_LAYERS;
use super::architectures;
use super::defaults::{CLASSES, Class, Preset};
use super::error::ImportError;
use super::fields::{self, Part};
use later::Later;

/// Keys that a language model's config is nested under.
///
/// # Source
/// `get_hf_text_config` in `vllm/transformers_utils/config.py` and transformers' `get_text_config`.
pub(super) const NESTED: &[&str] =
    &["text_config", "llm_config", "language_config", "language_model", "thinker_config", "text_model"];

/// A text config that is left out.
static EMPTY: LazyLock<Map<String, Value>> = LazyLock::new(Map::new);

/// What an outer class gives its text config before the text's own class does.
struct Given {
    outer: &'static str,
    /// The text's class by vLLM, where it is not the one that the file names.
    class: Option<&'static str>,
    keys: &'static [(&'static str, Preset)],
}

/// # Source
/// `_default_text_config_kwargs` in transformers' `models/{glmasr,voxtral}/configuration_*.py`, 5.x;
/// `Qwen3ASRTextConfig` and `DeepseekV41Config` in `vllm/transformers_utils/configs/{qwen3_asr,deepseek_v41}.py`,
/// vLLM 0.32; the latter puts its text's keys beside the outer type.
const GIVEN: &[Given] = &[
    Given { outer: "deepseek_v41", class: Some("deepseek_v41"), keys: &[] },
    Given {
        outer: "glmasr",
        class: None,
        keys: &[
            ("hidden_size", Preset::Whole(2048)),
            ("num_hidden_layers", Preset::Whole(28)),
            ("num_attention_heads", Preset::Whole(16)),
            ("num_key_value_heads", Preset::Whole(4)),
            ("max_position_embeddings", Preset::Whole(8192)),
        ],
    },
    Given {
        outer: "qwen3_asr",
        class: Some("qwen3_asr_text"),
        keys: &[
            ("hidden_size", Preset::Whole(4096)),
            ("num_hidden_layers", Preset::Whole(32)),
            ("num_attention_heads", Preset::Whole(32)),
            ("num_key_value_heads", Preset::Whole(32)),
            ("head_dim", Preset::Whole(128)),
            ("max_position_embeddings", Preset::Whole(128_000)),
        ],
    },
    Given {
        outer: "voxtral",
        class: None,
        keys: &[
            ("hidden_size", Preset::Whole(3072)),
            ("num_hidden_layers", Preset::Whole(30)),
            ("num_key_value_heads", Preset::Whole(8)),
            ("head_dim", Preset::Whole(128)),
            ("max_position_embeddings", Preset::Whole(131_072)),
        ],
    },
];

/// A config as its class would hold it.
#[derive(Debug, Clone)]
pub(super) struct Config<'a> {
    root: &'a Map<String, Value>,
    text: &'a Map<String, Value>,
    class: Option<&'static Class>,
    /// Defaults that come before the class's.
    given: &'static [(&'static str, Preset)],
    architecture: String,
    /// Whether the file names no architecture.
    is_by_model_type: bool,
    text_type: String,
    /// The keys that lead from the root to the text.
    path: Vec<&'static str>,
    /// What the engine sets after the class has read the file.
    later: Later<'a>,
    /// The window that the cache has from another model, where it has.
    window_in_force: Option<Option<u64>>,
}

/// A value, from the file or the class.
#[derive(Debug, Clone, Copy)]
pub(super) enum Found<'a> {
    File(&'a Value),
    Class(Preset),
}

impl<'a> Config<'a> {
    pub(super) fn new(value: &'a Value) -> Result<Self, ImportError> {
        let root = value.as_object().ok_or(ImportError::NotAnObject)?;
        let named = root.get("architectures").map_or(Ok(None), architectures::named)?;
        let (architecture, is_by_model_type) = match named {
            Some(name) => (name, false),
            None => (fields::model_of(&string(root, "model_type")).unwrap_or_default().to_owned(), true),
        };
        let mut text = root;
        let mut path = Vec::new();
        let mut text_type = string(root, "model_type");
        if let Some(own) = fields::by_architecture(&architecture).filter(|_| !root.contains_key("model_type"))
        {
            own.clone_into(&mut text_type);
        }
        // At most three levels: a thinker's text config is the deepest known.
        for _ in 0..3 {
            let outer = class(&text_type);
            let nested = NESTED.iter().find_map(|key| Some((*key, text.get(*key)?.as_object()?)));
            // A class makes the default of a text config that is left out, unless its keys stand beside.
            let flat = ["num_hidden_layers", "hidden_size"].iter().any(|key| text.contains_key(*key));
            let left_out = outer.is_some_and(|outer| outer.text.is_some()) && !flat;
            let Some((key, nested)) = nested.or_else(|| left_out.then_some(("text_config", &*EMPTY))) else {
                break;
            };
            path.push(key);
            text = nested;
            let own = string(nested, "model_type");
            text_type =
                if own.is_empty() { outer.and_then(|c| c.text).unwrap_or_default().to_owned() } else { own };
        }
        let outer = string(root, "model_type");
        let given = GIVEN.iter().find(|given| given.outer == outer && !std::ptr::eq(root, text));
        if let Some(own) = given.and_then(|given| given.class) {
            own.clone_into(&mut text_type);
        }
        let (class, given) = (class(&text_type), given.map_or(&[][..], |given| given.keys));
        Ok(Self {
            root,
            text,
            class,
            given,
            architecture,
            is_by_model_type,
            text_type,
            path,
            later: Later::default(),
            window_in_force: None,
        })
    }

    /// The same with what `--hf-overrides` sets once the file is read, and without the window of
    /// `--disable-sliding-window`.
    ///
    /// # Source
    /// `ModelConfig.__post_init__`, `_apply_dict_overrides` and `_update_nested` in `vllm/config/model.py`, `get_config`
    /// in `vllm/transformers_utils/config.py`, vLLM 0.32.
    pub(super) fn overridden(
        mut self,
        overrides: &'a Map<String, Value>,
        disable_sliding_window: bool,
    ) -> Result<Self, ImportError> {
        self.later = Later::of(overrides, &self.path, disable_sliding_window);
        if let Some(list) = self.later.root("architectures") {
            self.architecture = architectures::named(list)?.unwrap_or_default();
            self.is_by_model_type = false;
        }
        if let Some(kind) = self.later.text("model_type").and_then(Value::as_str) {
            kind.clone_into(&mut self.text_type);
        }
        Ok(self)
    }

    /// What the classes of the root and of the text config read, with what is set on them later.
    pub(super) fn parts(&self) -> Vec<Part<'a>> {
        fn pairs(map: &Map<String, Value>) -> impl Iterator<Item = (&str, &Value)> {
            map.iter().map(|(key, value)| (key.as_str(), value))
        }
        let model_type = self.root_type().to_owned();
        if !self.is_nested() {
            let keys = pairs(self.root).chain(self.later.of_text()).collect();
            return vec![Part { path: String::new(), model_type, keys }];
        }
        let of_root = self.later.of_root().filter(|(_, value)| !value.is_object());
        let text = Part {
            path: format!("{}.", self.path.join(".")),
            model_type: self.text_type.clone(),
            keys: pairs(self.text).chain(self.later.of_text()).collect(),
        };
        vec![Part { path: String::new(), model_type, keys: pairs(self.root).chain(of_root).collect() }, text]
    }

    /// The architecture, where the file names none and the model type stands for it.
    pub(super) fn architecture_by_model_type(&self) -> Option<&str> {
        Some(self.architecture.as_str()).filter(|name| self.is_by_model_type && !name.is_empty())
    }

    /// The same model in an engine whose cache has the window of another.
    pub(super) const fn under_window(mut self, window: Option<u64>) -> Self {
        self.window_in_force = Some(window);
        self
    }

    /// The window that the cache has from another model; `None` where it has the model's own.
    pub(super) const fn window_in_force(&self) -> Option<Option<u64>> {
        self.window_in_force
    }

    /// The model type beside the text config.
    pub(super) fn root_type(&self) -> &'a str {
        self.at_root("model_type").and_then(Value::as_str).unwrap_or_default()
    }

    /// The config as its class reads the file.
    pub(super) fn as_read(&self) -> Self {
        let mut config = self.clone();
        config.later = Later::default();
        config
    }

    /// A value of the root, or of what is set there later.
    pub(super) fn at_root(&self, key: &str) -> Option<&'a Value> {
        self.later.root(key).or_else(|| self.root.get(key))
    }

    /// A value of the text config's file, or of what is set there later.
    fn at_text(&self, key: &str) -> Option<&'a Value> {
        self.later.text(key).or_else(|| self.text.get(key))
    }

    /// What is set later under any of the names of `key`.
    fn set_later(&self, key: &str) -> Option<&'a Value> {
        if self.later.is_empty() {
            return None;
        }
        self.later.text(key).or_else(|| {
            let renamed = self.class?.rename.iter();
            renamed
                .filter_map(|(old, new)| match key {
                    _ if *old == key => Some(*new),
                    _ if *new == key => Some(*old),
                    _ => None,
                })
                .find_map(|name| self.later.text(name))
        })
    }

    /// A draft model's config: also EAGLE's wrapper, and the form of the library Speculators.
    ///
    /// # Source
    /// `vllm/transformers_utils/configs/{eagle.py,speculators}`.
    pub(super) fn new_draft(value: &'a Value) -> Result<Self, ImportError> {
        let mut config = Self::new(value)?;
        let inner = config
            .root
            .get("transformer_layer_config")
            .or_else(|| config.root.get("model").filter(|_| config.text_type == "eagle"))
            .and_then(Value::as_object);
        if let Some(inner) = inner {
            config.text = inner;
            config.text_type = string(inner, "model_type");
            config.class = class(&config.text_type);
        }
        if config.architecture.is_empty() {
            config.architecture = string(config.root, "speculators_model_type");
        }
        Ok(config)
    }

    /// The first architecture.
    pub(super) fn architecture(&self) -> &str {
        &self.architecture
    }

    /// The text config's `model_type`.
    pub(super) fn text_type(&self) -> &str {
        &self.text_type
    }

    /// Whether a draft's config is in the form of EAGLE's wrapper or of the library Speculators.
    pub(super) fn is_wrapped(&self) -> bool {
        string(self.root, "model_type") == "eagle" || self.root.contains_key("speculators_model_type")
    }

    /// Whether the text config is nested.
    pub(super) fn is_nested(&self) -> bool {
        !std::ptr::eq(self.root, self.text)
    }

    /// The quantisation of the checkpoint.
    pub(super) fn quantization(&self) -> Option<&'a Value> {
        const KEYS: [&str; 2] = ["quantization_config", "compression_config"];
        let of = |value: Option<&'a Value>| value.filter(|v| v.is_object());
        KEYS.iter()
            .find_map(|key| of(self.at_root(key)))
            .or_else(|| KEYS.iter().find_map(|key| of(self.at_text(key))))
    }

    /// The value of `key`; `None` where the attribute does not exist.
    pub(super) fn find(&self, key: &str) -> Option<Found<'a>> {
        if let Some(value) = self.set_later(key) {
            return Some(Found::File(value));
        }
        if let Some(value) = self.text.get(key) {
            return Some(Found::File(value));
        }
        if let Some((_, value)) = self.given.iter().find(|(name, _)| *name == key) {
            return Some(Found::Class(*value));
        }
        let class = self.class?;
        if let Some((_, other)) = class.rename.iter().find(|(name, _)| *name == key) {
            if let Some(value) = self.text.get(*other) {
                return Some(Found::File(value));
            }
            return default(class, other).map(Found::Class);
        }
        if let Some((old, _)) = class.rename.iter().find(|(_, name)| *name == key)
            && let Some(value) = self.text.get(*old)
        {
            return Some(Found::File(value));
        }
        default(class, key).map(Found::Class)
    }

    /// The whole number that the file itself states, or what is set later; `None` where it is missing or null.
    pub(super) fn stated(&self, key: &str) -> Result<Option<u64>, ImportError> {
        self.at_text(key).map_or(Ok(None), |value| whole_value(key, value))
    }

    /// Whether the file itself has the key, and more than null.
    pub(super) fn is_stated(&self, key: &str) -> bool {
        self.at_text(key).is_some_and(|value| !value.is_null())
    }

    /// Whether the file says null, or 0, which the engine makes one of.
    pub(super) fn is_null(&self, key: &str) -> bool {
        self.at_text(key).is_some_and(|value| value.is_null() || value.as_u64() == Some(0))
    }

    /// The rotary parameters of the text config, a set for all layers or one a type of layer.
    pub(super) fn rope_parameters(&self) -> Option<&'a Map<String, Value>> {
        ["rope_parameters", "rope_scaling"]
            .iter()
            .find_map(|key| self.at_text(key).and_then(Value::as_object))
    }

    /// The rotary parameters, where positions are of three axes (M-RoPE), which a language model alone does not
    /// have.
    pub(super) fn sections(&self) -> Option<&'a Map<String, Value>> {
        if self.architecture.ends_with("ForCausalLM") {
            return None;
        }
        ["rope_parameters", "rope_scaling"]
            .iter()
            .filter_map(|key| self.at_text(key).and_then(Value::as_object))
            .find(|map| map.get("mrope_section").is_some_and(|value| !value.is_null()))
    }

    /// A whole number beside the text config.
    pub(super) fn outer(&self, key: &str) -> Result<Option<u64>, ImportError> {
        self.at_root(key).map_or(Ok(None), |value| whole_value(key, value))
    }

    /// An object beside the text config, such as the audio tower's.
    pub(super) fn tower(&self, key: &str) -> Option<&'a Map<String, Value>> {
        self.root.get(key).and_then(Value::as_object)
    }

    /// A whole number of such an object, or of its own class where it leaves it out; `None` without the object.
    pub(super) fn tower_whole(&self, key: &str, attribute: &str) -> Result<Option<u64>, ImportError> {
        let outer = self.root.get("thinker_config").and_then(Value::as_object);
        let Some(map) = self.tower(key).or_else(|| outer?.get(key)?.as_object()) else { return Ok(None) };
        if let Some(value) = map.get(attribute) {
            return whole_value(&format!("{key}.{attribute}"), value);
        }
        let class = class(&string(map, "model_type"));
        Ok(match class.and_then(|class| default(class, attribute)) {
            Some(Preset::Whole(n)) => u64::try_from(n).ok(),
            _ => None,
        })
    }

    /// Whether the attribute exists, even as `None`.
    pub(super) fn has(&self, key: &str) -> bool {
        self.find(key).is_some()
    }

    /// A whole number; `None` where missing or null.
    pub(super) fn whole(&self, key: &str) -> Result<Option<u64>, ImportError> {
        if key == "sliding_window" {
            return self.sliding_window();
        }
        self.whole_as_it_is(key, whole_value)
    }

    fn whole_as_it_is(
        &self,
        key: &str,
        read: impl Fn(&str, &Value) -> Result<Option<u64>, ImportError>,
    ) -> Result<Option<u64>, ImportError> {
        match self.find(key) {
            None | Some(Found::Class(Preset::Null)) => Ok(None),
            Some(Found::Class(Preset::Whole(n))) => Ok(u64::try_from(n).ok()),
            Some(Found::Class(Preset::Real(x))) => Ok(whole_of(x)),
            Some(Found::Class(_)) => Ok(None),
            Some(Found::File(value)) => read(key, value),
        }
    }

    /// The window, which a class halves where tokens see each other in both directions.
    ///
    /// # Source
    /// `__post_init__` in transformers' `configuration_{gemma3,gemma4,gemma4_unified,diffusion_gemma}.py`, 5.19.
    fn sliding_window(&self) -> Result<Option<u64>, ImportError> {
        let key = "sliding_window";
        let window = self.whole_as_it_is(key, |_, value| window_value(value))?;
        if self.set_later(key).is_some() {
            return Ok(window);
        }
        let read = self.as_read();
        let both_ways = "use_bidirectional_attention";
        let halves = match self.text_type.as_str() {
            "gemma3_text" => read.flag(both_ways)?,
            "diffusion_gemma_text" | "gemma4_text" | "gemma4_unified_text" => {
                read.text(both_ways)?.as_deref() == Some("all")
            }
            _ => return Ok(window),
        };
        match window {
            Some(window) if halves => Ok(Some(window / 2 + 1)),
            None if halves => Err(ImportError::Missing { key: key.to_owned() }),
            window => Ok(window),
        }
    }

    /// A whole number that must be there.
    pub(super) fn need(&self, key: &str) -> Result<u64, ImportError> {
        self.whole(key)?.ok_or_else(|| ImportError::Missing { key: key.to_owned() })
    }

    /// A number; `None` where missing or null.
    pub(super) fn real(&self, key: &str) -> Result<Option<f64>, ImportError> {
        match self.find(key) {
            #[expect(clippy::cast_precision_loss, reason = "a factor of a few units")]
            Some(Found::Class(Preset::Whole(n))) => Ok(Some(n as f64)),
            Some(Found::Class(Preset::Real(x))) => Ok(Some(x)),
            Some(Found::Class(_)) | None | Some(Found::File(Value::Null)) => Ok(None),
            Some(Found::File(value)) => value.as_f64().map(Some).ok_or_else(|| wrong(key, "a number", value)),
        }
    }

    /// A truth value; false where missing or null.
    pub(super) fn flag(&self, key: &str) -> Result<bool, ImportError> {
        match self.find(key) {
            Some(Found::Class(Preset::Flag(flag))) => Ok(flag),
            Some(Found::Class(_)) | None | Some(Found::File(Value::Null)) => Ok(false),
            Some(Found::File(Value::Bool(flag))) => Ok(*flag),
            Some(Found::File(value)) => match value.as_u64() {
                Some(n) => Ok(n != 0),
                None => Err(wrong(key, "true or false", value)),
            },
        }
    }

    /// A text; `None` where missing or null.
    pub(super) fn text(&self, key: &str) -> Result<Option<String>, ImportError> {
        match self.find(key) {
            Some(Found::Class(Preset::Text(text))) => Ok(Some(text.to_owned())),
            Some(Found::Class(_)) | None | Some(Found::File(Value::Null)) => Ok(None),
            Some(Found::File(Value::String(text))) => Ok(Some(text.clone())),
            Some(Found::File(value)) => Err(wrong(key, "a text", value)),
        }
    }

    /// A list; `None` where missing or null.
    pub(super) fn list(&self, key: &str) -> Result<Option<&'a [Value]>, ImportError> {
        match self.find(key) {
            Some(Found::File(Value::Array(list))) => Ok(Some(list)),
            Some(Found::Class(_)) | None | Some(Found::File(Value::Null)) => Ok(None),
            Some(Found::File(value)) => Err(wrong(key, "a list", value)),
        }
    }

    /// A list of whole numbers; `None` where missing or null.
    pub(super) fn wholes(&self, key: &str) -> Result<Option<Vec<u64>>, ImportError> {
        let Some(list) = self.list(key)? else { return Ok(None) };
        list.iter()
            .map(|v| whole_value(key, v)?.ok_or_else(|| wrong(key, "whole numbers", v)))
            .collect::<Result<_, _>>()
            .map(Some)
    }

    /// A list of texts; `None` where missing or null.
    pub(super) fn texts(&self, key: &str) -> Result<Option<Vec<&'a str>>, ImportError> {
        let Some(list) = self.list(key)? else { return Ok(None) };
        list.iter()
            .map(|v| v.as_str().ok_or_else(|| wrong(key, "texts", v)))
            .collect::<Result<_, _>>()
            .map(Some)
    }

    /// A nested object of the text config.
    pub(super) fn object(&self, key: &str) -> Option<&'a Map<String, Value>> {
        match self.find(key) {
            Some(Found::File(value)) => value.as_object(),
            _ => None,
        }
    }

    /// A whole number below a nested object, from the file or the class.
    pub(super) fn nested(&self, key: &str, inner: &str) -> Result<Option<u64>, ImportError> {
        match self.find(key) {
            Some(Found::File(value)) => match value.get(inner) {
                Some(value) => whole_value(&format!("{key}.{inner}"), value),
                None => Ok(None),
            },
            Some(Found::Class(Preset::Nested(keys))) => {
                Ok(keys.iter().find(|(name, _)| *name == inner).and_then(|(_, value)| match value {
                    Preset::Whole(n) => u64::try_from(*n).ok(),
                    _ => None,
                }))
            }
            _ => Ok(None),
        }
    }

    /// Number of layers.
    pub(super) fn num_layers(&self) -> Result<u64, ImportError> {
        layers_below_limit(self.need("num_hidden_layers")?)
    }

    /// The dtype that the file states: the root's, else the text config's, else an encoder's.
    ///
    /// # Source
    /// `get_torch_dtype` in `vllm/transformers_utils/model_arch_config_convertor.py`, vLLM 0.32.
    pub(super) fn stated_dtype(&self) -> Option<&'a Value> {
        const KEYS: [&str; 2] = ["dtype", "torch_dtype"];
        let stated = |value: Option<&'a Value>| value.filter(|value| !value.is_null());
        let of_encoder = |encoder: &str| {
            let map = self.tower(encoder)?;
            KEYS.iter().find_map(|key| stated(map.get(*key)))
        };
        KEYS.iter()
            .find_map(|key| stated(self.at_root(key)))
            .or_else(|| KEYS.iter().find_map(|key| stated(self.at_text(key))))
            .or_else(|| ["vision_config", "encoder_config"].into_iter().find_map(of_encoder))
    }
}

/// `n`, if a model may have so many layers.
pub(super) const fn layers_below_limit(n: u64) -> Result<u64, ImportError> {
    if n > MAX_LAYERS { Err(ImportError::TooManyLayers { asked: n, limit: MAX_LAYERS }) } else { Ok(n) }
}

fn class(model_type: &str) -> Option<&'static Class> {
    CLASSES.binary_search_by_key(&model_type, |c| c.model_type).ok().and_then(|i| CLASSES.get(i))
}

/// The attribute that a class of `model_type` keeps `key` under.
pub(super) fn renamed<'a>(model_type: &str, key: &'a str) -> &'a str {
    let row = class(model_type).and_then(|class| class.rename.iter().find(|(name, _)| *name == key));
    row.map_or(key, |(_, other)| other)
}

fn default(class: &'static Class, key: &str) -> Option<Preset> {
    class.keys.iter().find(|(name, _)| *name == key).map(|(_, value)| *value)
}

fn string(map: &Map<String, Value>, key: &str) -> String {
    map.get(key).and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// A whole number of a file; `None` for null.
pub(super) fn whole_value(key: &str, value: &Value) -> Result<Option<u64>, ImportError> {
    match value {
        Value::Null => Ok(None),
        // 24.0 is none: Python counts with no such number.
        Value::Number(n) if n.is_u64() => Ok(n.as_u64()),
        _ => Err(wrong(key, "a whole number", value)),
    }
}

/// A window of a file: a class that does not check its fields leaves it to the engine, which takes false for none, and what
/// else reads as a whole number.
///
/// # Source
/// `CacheConfig.sliding_window` in `vllm/config/cache.py`, of pydantic's type `int`, vLLM 0.32.
fn window_value(value: &Value) -> Result<Option<u64>, ImportError> {
    let read = match value {
        Value::Bool(flag) => Some(u64::from(*flag)),
        Value::String(text) => text.trim().parse().ok(),
        Value::Number(n) if n.as_i64().is_some_and(i64::is_negative) => {
            return Err(ImportError::NegativeWindow { window: n.as_i64().unwrap_or_default() });
        }
        Value::Number(n) => n.as_u64().or_else(|| n.as_f64().and_then(whole_of)),
        _ => None,
    };
    read.map_or_else(|| whole_value("sliding_window", value), |window| Ok(Some(window)))
}

/// `x` where it is a whole number below 2^53.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "checked to be whole and in range"
)]
fn whole_of(x: f64) -> Option<u64> {
    (x >= 0.0 && x.fract() == 0.0 && x < 9_007_199_254_740_992.0).then_some(x as u64)
}

pub(super) fn wrong(key: &str, wanted: &'static str, value: &Value) -> ImportError {
    let found = match value {
        Value::Array(list) => format!("a list of {}", list.len()),
        Value::Object(map) => format!("an object of {} keys", map.len()),
        other => short(&other.to_string()),
    };
    ImportError::WrongType { key: key.to_owned(), wanted, found }
}

/// At most 60 characters of `text`.
pub(super) fn short(text: &str) -> String {
    if text.chars().count() <= 60 {
        text.to_owned()
    } else {
        text.chars().take(57).chain("...".chars()).collect()
    }
}
