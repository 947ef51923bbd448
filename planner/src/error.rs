//! Why vLLM would refuse to plan: at which stage, with which of Python's exceptions, and the numbers.

use crate::size::SizeError;
use crate::spec::PageError;

/// The Python exception that vLLM raises.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are Python's own")]
pub enum PythonClass {
    AssertionError,
    ValueError,
    NotImplementedError,
    ZeroDivisionError,
    OverflowError,
    KeyError,
    AttributeError,
    TypeError,
    StopIteration,
}

impl PythonClass {
    /// The class name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::AssertionError => "AssertionError",
            Self::ValueError => "ValueError",
            Self::NotImplementedError => "NotImplementedError",
            Self::ZeroDivisionError => "ZeroDivisionError",
            Self::OverflowError => "OverflowError",
            Self::KeyError => "KeyError",
            Self::AttributeError => "AttributeError",
            Self::TypeError => "TypeError",
            Self::StopIteration => "StopIteration",
        }
    }
}

/// Why layers cannot be grouped.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GroupingError {
    /// The arithmetic left 64 bits.
    #[error(transparent)]
    Size(#[from] SizeError),
    /// A kind that this version does not have.
    #[error("layer {layer}: this version has no `{}` layers", kind.name())]
    KindUnknown {
        /// Index of the first such layer.
        layer: usize,
        /// The kind.
        kind: crate::spec::SpecKind,
    },
    /// A quantisation that this version does not have.
    #[error("layer {layer}: this version does not know `kv_quant_mode` {mode}")]
    QuantModeUnknown {
        /// Index of the first such layer.
        layer: usize,
        /// The mode.
        mode: &'static str,
    },
    /// A promoted layer has a field that its new class does not know.
    #[error(
        "layer {layer}: a sliding-window MLA layer cannot be promoted, its `bounded_replay` has no place in full MLA"
    )]
    PromotionLosesField {
        /// Index of the first such layer.
        layer: usize,
    },
    /// More groups than a bucket has whole repeats.
    #[error("a packed group would have no layer")]
    PackedGroupEmpty,
    /// Layers that the groups for states in MLA slots were not made for.
    #[error("states, MLA layers and their indexer do not fit one layout")]
    StateSlotsUneven,
    /// A state that is larger than the MLA page whose slot it takes.
    #[error("a state of {state_bytes} bytes does not fit the MLA page of {page_size_bytes} bytes")]
    StateExceedsPage {
        /// The state, bytes.
        state_bytes: u64,
        /// The MLA page, bytes.
        page_size_bytes: u64,
    },
    /// A pipeline stage with states and no MLA layer to share slots with.
    #[error("a pipeline stage has state layers but no MLA layer to share slots with")]
    StageWithoutSlots,
    /// A layer's padding is below its page.
    #[error("layer {layer}: {source}")]
    Page {
        /// Index of the layer.
        layer: usize,
        /// What is wrong with its page.
        source: PageError,
    },
    /// A page that does not divide the largest one and that may not be padded.
    #[error(
        "layer {layer}: its page of {page_size_bytes} bytes does not divide the largest, {max_page_size_bytes} bytes, and it cannot be padded"
    )]
    PageNotUnifiable {
        /// Index of the first such layer.
        layer: usize,
        /// Its page, bytes.
        page_size_bytes: u64,
        /// The largest page, bytes.
        max_page_size_bytes: u64,
    },
    /// A larger block does not bring a layer's page to the largest one, because its page does not grow.
    #[error("layer {layer}: a larger block does not bring its page to {max_page_size_bytes} bytes")]
    PageDoesNotScale {
        /// Index of the first such layer.
        layer: usize,
        /// The largest page, bytes.
        max_page_size_bytes: u64,
    },
    /// Full-attention layers that declare different windows, or different chunks.
    #[error("full-attention layers declare different windows or chunks")]
    WindowsDiffer,
    /// A kind that vLLM has no group for beside others.
    #[error("layer {layer}: an encoder-only layer cannot be grouped with others")]
    Unregistered {
        /// Index of the layer.
        layer: usize,
    },
    /// With the hybrid manager off, the layers do not become one type.
    #[error("the hybrid KV cache manager is off, and the layers cannot be promoted to one type")]
    PromotionFailed,
    /// Sliding-window MLA layers without full attention to promote them to, or without MLA to pair with.
    #[error("sliding-window MLA layers need MLA layers beside them")]
    TuplesIncomplete,
    /// MLA layers with the same window that do not fit one tuple group.
    #[error("sliding-window MLA layers do not split into tuples")]
    TuplesUneven,
    /// The layers of one group do not merge.
    #[error("the layers of a group do not merge")]
    GroupDoesNotMerge,
}

impl GroupingError {
    /// The exception that vLLM raises.
    pub const fn class(&self) -> PythonClass {
        match self {
            Self::Size(_) => PythonClass::OverflowError,
            Self::PageNotUnifiable { .. } => PythonClass::NotImplementedError,
            Self::WindowsDiffer
            | Self::PromotionFailed
            | Self::StateExceedsPage { .. }
            | Self::StageWithoutSlots => PythonClass::ValueError,
            Self::KindUnknown { .. } => PythonClass::AttributeError,
            Self::QuantModeUnknown { .. } => PythonClass::KeyError,
            Self::PromotionLosesField { .. } => PythonClass::TypeError,
            Self::PackedGroupEmpty => PythonClass::StopIteration,
            Self::Page { source: PageError::Size(_), .. } => PythonClass::OverflowError,
            Self::Page { .. }
            | Self::PageDoesNotScale { .. }
            | Self::Unregistered { .. }
            | Self::TuplesIncomplete
            | Self::StateSlotsUneven
            | Self::TuplesUneven
            | Self::GroupDoesNotMerge => PythonClass::AssertionError,
        }
    }

    /// The layer that the error names.
    pub const fn layer(&self) -> Option<usize> {
        match self {
            Self::PageNotUnifiable { layer, .. }
            | Self::PageDoesNotScale { layer, .. }
            | Self::Page { layer, .. }
            | Self::KindUnknown { layer, .. }
            | Self::QuantModeUnknown { layer, .. }
            | Self::PromotionLosesField { layer }
            | Self::Unregistered { layer } => Some(*layer),
            _ => None,
        }
    }
}

/// Why groups do not fit the memory.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CapacityError {
    /// The arithmetic left 64 bits.
    #[error(transparent)]
    Size(SizeError),
    /// A kind that vLLM's registry does not have.
    #[error("layer {layer}: vLLM has no cache manager for encoder-only layers")]
    Unregistered {
        /// Index of the first such layer.
        layer: usize,
    },
    /// Nothing is left for blocks.
    #[error("no memory is available for cache blocks")]
    NoMemory,
    /// One request of the longest length does not fit.
    #[error(
        "a request of {max_model_len} tokens needs {needed_bytes} bytes of KV cache, more than the {available_bytes} bytes that are available"
    )]
    NotEnough {
        /// Needed, bytes.
        needed_bytes: u64,
        /// Available for blocks, without the null block where the engine holds it back, bytes.
        available_bytes: u64,
        /// The length that was asked for, tokens.
        max_model_len: u64,
        /// The longest length that fits, tokens; 0 is none.
        estimated_max_model_len: u64,
    },
    /// Not even one token fits.
    #[error("not even one token fits the available memory")]
    NothingFits,
    /// The layout cannot hold pages of different sizes.
    #[error("layout {layout} cannot hold pages of different sizes")]
    LayoutCannotMixPages {
        /// The layout.
        layout: &'static str,
    },
    /// The layout cannot hold padded pages.
    #[error("layout {layout} cannot hold padded pages")]
    LayoutCannotPad {
        /// The layout.
        layout: &'static str,
    },
    /// A sliding window whose positions decode context parallelism would shard.
    #[error("decode context parallelism does not support sliding windows")]
    SlidingWindowUnderDcp,
    /// Layers that fell out of the groups.
    #[error("some layers are in no group")]
    LayersUnassigned,
    /// A worker without any layer.
    #[error("a pipeline stage has no layer with a KV cache")]
    EmptyStage,
    /// The engine groups again for capacity, and that grouping fails.
    #[error(transparent)]
    Grouping(GroupingError),
}

impl CapacityError {
    /// The exception that vLLM raises.
    pub const fn class(&self) -> PythonClass {
        match self {
            Self::Size(_) => PythonClass::OverflowError,
            Self::Unregistered { .. }
            | Self::NoMemory
            | Self::NotEnough { .. }
            | Self::NothingFits
            | Self::LayoutCannotMixPages { .. } => PythonClass::ValueError,
            Self::LayoutCannotPad { .. } | Self::SlidingWindowUnderDcp | Self::LayersUnassigned => {
                PythonClass::AssertionError
            }
            Self::EmptyStage => PythonClass::ZeroDivisionError,
            Self::Grouping(error) => error.class(),
        }
    }
}

/// GiB as vLLM prints them: rounded to two places, without trailing zeros, with at least one place.
///
/// # Source
/// `format_gib` in `vllm/utils/mem_utils.py`.
#[expect(clippy::cast_precision_loss, reason = "the engine divides in floating point too")]
pub fn format_gib(bytes: u64) -> String {
    let mut text = format!("{:.2}", bytes as f64 / f64::from(1 << 30));
    if text.ends_with('0') {
        text.pop();
    }
    text
}
