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
        let count = match &builder.reuse {
            Some(reuse) if known && drafts => reuse.verify,
            Some(reuse) if known => reuse.decode,
            _ if drafts => builder.verify,
            _ => builder.decode,
        };
        #[expect(clippy::cast_precision_loss, reason = "a handful of launches")]
        let launches = (count.launches + count.h2d + count.d2h) as f64;
        out.launches += launches;
        built.push((spec, name));
    }
    out
}

/// The builder of vLLM's default backend for a spec on a platform; none on a CPU.
fn builder(spec: &KvCacheSpec, hardware: &Hardware) -> Option<&'static Builder> {
    let rocm = match hardware.platform.as_str() {
        "rocm" => true,
        "cuda" => false,
        _ => return None,
    };
    let name = match spec {
        KvCacheSpec::Mamba(state) => {
            let gdn = state.mamba_type.as_deref().is_some_and(|name| name.to_ascii_lowercase().contains("gdn"));
            match (gdn, rocm) {
                (true, true) => "gdn-rocm",
                (true, false) => "gdn-cuda",
                (false, true) => "kda-rocm",
                (false, false) => "kda-cuda",
            }
        }
        KvCacheSpec::Attention(attention) if attention.kind.kind().is_mla_family() => {
            match (rocm, attention.dtype.size_bytes()) {
                (false, _) => "fa3-mla",
                (true, 1) => "aiter-mla-fp8",
                (true, _) => "aiter-mla-bf16",
            }
        }
        KvCacheSpec::Attention(_) if rocm => "triton-attn",
        KvCacheSpec::Attention(_) => "flash-attn",
    };
    metadata::builders().find(name).ok()
}
