//! What does the host do a step for a plan's groups?

use planner::{Grouping, KvCacheSpec};
use simulator::cost::{Dispatch, Hardware};
use simulator::metadata::{self, Builder};

/// The calls and launches of one decode step, or of one that verifies drafts.
///
/// A group calls its builder's `build`, or `update_block_table` where an earlier group of an equal spec has built
/// what it can take over (`simulator/data/builders.json`). On a CPU nothing is launched.
pub(crate) fn dispatch(grouping: &Grouping, hardware: &Hardware, drafts: bool) -> Dispatch {
    let mut out = Dispatch::default();
    let mut built: Vec<(&KvCacheSpec, &str)> = Vec::new();
    for group in &grouping.groups {
        out.builds += 1.0;
        let spec = grouping.specs.spec(group.first_spec());
        let Some(builder) = builder(spec, hardware) else { continue };
        let name = builder.name.as_str();
        let known = built.iter().any(|(other, own)| *own == name && *other == spec);
        let reused = builder.reuse.as_ref().filter(|_| known).and_then(|reuse| reuse.counts(true, drafts));
        let count = match reused {
            Some([_, verify, ..]) if drafts => verify,
            Some([decode, ..]) => decode,
            None if drafts => builder.verify,
            None => builder.decode,
        };
        out.launches += count.operations();
        built.push((spec, name));
    }
    out
}

/// What a group's layers are, as far as builders differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Family {
    Kda,
    Gdn,
    Mamba1,
    Mamba2,
    ShortConv,
    MlaFp8,
    Mla,
    Attention,
}

impl Family {
    /// The family of a spec.
    pub(crate) fn of(spec: &KvCacheSpec) -> Self {
        match spec {
            KvCacheSpec::Mamba(state) => match state.mamba_type.as_deref() {
                Some(name) if name.to_ascii_lowercase().contains("gdn") => Self::Gdn,
                Some("MAMBA1") => Self::Mamba1,
                Some("SHORT_CONV") => Self::ShortConv,
                // KDA keeps a convolution each of queries, keys and values; Mamba 2 has one.
                _ if state.state.shapes.len() > 2 => Self::Kda,
                _ => Self::Mamba2,
            },
            KvCacheSpec::Attention(attention) if attention.kind.kind().is_mla_family() => {
                if attention.dtype.size_bytes() == 1 { Self::MlaFp8 } else { Self::Mla }
            }
            KvCacheSpec::Attention(_) => Self::Attention,
        }
    }

    /// The metadata builder of vLLM's default backend on NVIDIA or ROCm devices.
    pub(crate) fn builder(self, rocm: bool) -> &'static str {
        match (self, rocm) {
            (Self::Kda, false) => "kda-cuda",
            (Self::Kda, true) => "kda-rocm",
            (Self::Gdn, false) => "gdn-cuda",
            (Self::Gdn, true) => "gdn-rocm",
            (Self::Mamba1, _) => "mamba1",
            (Self::Mamba2, _) => "mamba2",
            (Self::ShortConv, _) => "short-conv",
            (Self::MlaFp8 | Self::Mla, false) => "fa3-mla",
            (Self::MlaFp8, true) => "aiter-mla-fp8",
            (Self::Mla, true) => "aiter-mla-bf16",
            (Self::Attention, false) => "flash-attn",
            (Self::Attention, true) => "triton-attn",
        }
    }
}

/// The builder of a spec on a platform; none on a CPU.
fn builder(spec: &KvCacheSpec, hardware: &Hardware) -> Option<&'static Builder> {
    let rocm = match hardware.platform.as_str() {
        "rocm" => true,
        "cuda" => false,
        _ => return None,
    };
    metadata::builders().find(Family::of(spec).builder(rocm)).ok()
}
