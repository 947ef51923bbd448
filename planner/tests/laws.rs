//! Laws that every plan keeps, on random models.

#![expect(clippy::unwrap_used, reason = "a test")]

use planner::engine::EngineVersion;
use planner::explain::{Numbers, apply, explain};
use planner::{
    Decision, EngineSettings, Field, GroupSizeRule, GroupSpec, KvCacheSpec, Layout, MambaCacheMode, Model,
    RawSpec, SpecId, SpecKind, group, merge,
};
use proptest::prelude::*;

fn attention(kind: SpecKind) -> impl Strategy<Value = RawSpec> {
    (
        prop::sample::select(vec![16_u64, 32, 64]),
        prop::sample::select(vec![1_u64, 2, 8]),
        prop::sample::select(vec![64_u64, 128, 576]),
        prop::option::weighted(0.2, prop::sample::select(vec![1_u64, 2])),
        prop::sample::select(vec![128_u64, 1024]),
        prop::bool::weighted(0.2),
    )
        .prop_map(move |(block, heads, head, shards, window, flag)| {
            let mut raw = RawSpec::empty(kind);
            raw.block_size = Some(block);
            raw.num_kv_heads = Some(heads);
            raw.head_size = Some(head);
            raw.dtype = Some(planner::dtype::DType::BFloat16);
            raw.max_tp_shards = shards;
            match kind {
                SpecKind::Sliding => raw.sliding_window = Some(window),
                SpecKind::Chunked => raw.attention_chunk_size = Some(window * 2),
                SpecKind::Full => {
                    raw.non_causal = flag.then_some(true);
                }
                _ => {}
            }
            raw
        })
}

fn state() -> impl Strategy<Value = RawSpec> {
    (1_u64..4, prop::option::weighted(0.5, Just(1_u64 << 20)), 0_u64..2).prop_map(|(n, padded, blocks)| {
        let mut raw = RawSpec::empty(SpecKind::Mamba);
        raw.block_size = Some(512);
        raw.shapes = Some(vec![vec![n * 64, 128], vec![3, 256]]);
        raw.dtypes = Some(vec![planner::dtype::DType::Float32, planner::dtype::DType::BFloat16]);
        raw.page_size_padded = padded;
        raw.num_speculative_blocks = Some(blocks);
        raw
    })
}

fn spec() -> impl Strategy<Value = KvCacheSpec> {
    prop_oneof![
        attention(SpecKind::Full),
        attention(SpecKind::Sliding),
        attention(SpecKind::Chunked),
        attention(SpecKind::Mla),
        attention(SpecKind::Sink),
        state(),
    ]
    .prop_filter_map("a valid spec", |raw| KvCacheSpec::try_from(raw).ok())
}

fn model() -> impl Strategy<Value = Model> {
    prop::collection::vec(spec(), 1..5)
        .prop_flat_map(|specs| {
            let count = u32::try_from(specs.len()).unwrap();
            (Just(specs), prop::collection::vec(0..count, 1..40))
        })
        .prop_map(|(specs, layers)| Model {
            specs,
            layers: layers.into_iter().map(SpecId).collect(),
            ..Model::default()
        })
}

fn settings() -> impl Strategy<Value = EngineSettings> {
    (
        prop::sample::select(vec![1_u64, 2, 8]),
        prop::sample::select(vec![Layout::Lbnhc, Layout::Lbnhc, Layout::Blhnc]),
        prop::sample::select(vec![MambaCacheMode::None, MambaCacheMode::Align, MambaCacheMode::All]),
        1_u64 << 28..1_u64 << 36,
        prop::bool::weighted(0.1),
    )
        .prop_map(|(tp, layout, mode, memory, off)| EngineSettings {
            tensor_parallel_size: tp,
            kv_cache_layout: layout,
            mamba_cache_mode: mode,
            max_model_len: 8192,
            disable_hybrid_kv_cache_manager: off,
            available_memory_bytes: vec![memory],
            ..EngineSettings::default()
        })
}

fn version() -> impl Strategy<Value = EngineVersion> {
    prop::sample::select(EngineVersion::all().collect::<Vec<_>>())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// Every layer is in exactly one group, unless vLLM itself loses layers and refuses to start.
    #[test]
    fn layers_are_partitioned(model in model(), settings in settings(), version in version()) {
        let Ok(plan) = planner::plan(&model, &settings, &version.rules()) else { return Ok(()) };
        let mut seen = vec![0; model.len()];
        for layer in plan.grouping.groups.iter().flat_map(|group| &group.layers) {
            seen[*layer as usize] += 1;
        }
        prop_assert!(seen.iter().all(|n| *n <= 1));
        if seen.contains(&0) {
            prop_assert_eq!(plan.grouping.decision, Decision::Packed);
            prop_assert!(plan.fitting_pool().is_none());
        }
    }

    /// No group of one spec mixes specs that do not merge.
    #[test]
    fn groups_merge(model in model(), settings in settings(), version in version()) {
        let rules = version.rules();
        let Ok(plan) = planner::plan(&model, &settings, &rules) else { return Ok(()) };
        let grouping = &plan.grouping;
        for group in &grouping.groups {
            if let GroupSpec::One(id) = &group.spec {
                let specs: Vec<&KvCacheSpec> =
                    group.layers.iter().map(|l| grouping.specs.spec(grouping.layers[*l as usize])).collect();
                let mut merged = merge::merge_alone(&rules, specs[0]).unwrap();
                for spec in &specs[1..] {
                    prop_assert!(merge::merge_into(&rules, &mut merged, spec).is_ok());
                }
                prop_assert_eq!(&merged, grouping.specs.spec(*id));
            }
        }
    }

    /// Groups of one size have one page size, padding fills the groups up, and bytes follow from both.
    #[test]
    fn bytes_and_padding_agree(model in model(), settings in settings(), version in version()) {
        let Ok(plan) = planner::plan(&model, &settings, &version.rules()) else { return Ok(()) };
        let grouping = &plan.grouping;
        if grouping.decision == Decision::UniformPageSize {
            let page = grouping.page_size_bytes(&grouping.groups[0]).unwrap();
            for group in &grouping.groups {
                prop_assert_eq!(grouping.page_size_bytes(group).unwrap(), page);
            }
            let slots = grouping.group_size() * grouping.groups.len() as u64;
            prop_assert_eq!(grouping.padding_layers(), Some(slots - model.len() as u64));
            prop_assert_eq!(plan.bytes_per_block, Some(page * grouping.group_size()));
        }
        if let Some(pool) = plan.fitting_pool() {
            let bytes = plan.bytes_per_block.unwrap();
            prop_assert!(pool.num_blocks.checked_mul(bytes).unwrap() <= settings.available_memory_bytes[0]);
            prop_assert!(pool.num_blocks >= pool.blocks_per_max_len_request);
        }
    }

    /// Names play no part.
    #[test]
    fn names_do_not_matter(model in model(), settings in settings(), version in version()) {
        let mut named = model.clone();
        named.names = (0..model.len()).rev().map(|i| format!("x.{i}")).collect();
        let rules = version.rules();
        prop_assert_eq!(planner::plan(&model, &settings, &rules), planner::plan(&named, &settings, &rules));
    }

    /// Layers of equal specs share a bucket, however often the spec is listed.
    #[test]
    fn equal_specs_share(model in model(), settings in settings(), version in version()) {
        let mut twice = model.clone();
        let count = u32::try_from(model.specs.len()).unwrap();
        twice.specs.extend(model.specs.clone());
        for (i, id) in twice.layers.iter_mut().enumerate() {
            if i % 2 == 1 {
                id.0 += count;
            }
        }
        let rules = version.rules();
        prop_assert_eq!(planner::plan(&model, &settings, &rules), planner::plan(&twice, &settings, &rules));
    }

    /// A change that `explain` proposes gives the numbers that it promises.
    #[test]
    fn proposed_changes_give_what_they_promise(
        model in model(), settings in settings(), version in version()
    ) {
        let rules = version.rules();
        for change in explain(&model, &settings, &rules).changes {
            let changed = apply(&model, &change.edits).unwrap();
            let plan = planner::plan(&changed, &settings, &rules).unwrap();
            prop_assert_eq!(Numbers::of(&plan), change.after);
        }
    }

    /// A spec survives being written and read.
    #[test]
    fn specs_round_trip(spec in spec()) {
        let raw = RawSpec::from(&spec);
        let text = serde_json::to_string(&raw).unwrap();
        let back: RawSpec = serde_json::from_str(&text).unwrap();
        prop_assert_eq!(KvCacheSpec::try_from(back).unwrap(), spec);
    }

    /// Reading a field and setting it again changes nothing.
    #[test]
    fn fields_round_trip(spec in spec()) {
        let raw = RawSpec::from(&spec);
        let mut copy = RawSpec::empty(raw.kind);
        for field in Field::ALL {
            prop_assert!(copy.set(*field, raw.get(*field)));
        }
        prop_assert_eq!(copy, raw);
    }

    /// Whatever the sizes, arithmetic that leaves 64 bits is an error and not a wrap or a panic.
    #[test]
    fn huge_sizes_are_errors(
        block in prop::sample::select(vec![1_u64, 1 << 20, 1 << 40, u64::MAX]),
        heads in prop::sample::select(vec![1_u64, 1 << 31, u64::MAX]),
        head in prop::sample::select(vec![1_u64, 1 << 33, u64::MAX]),
        length in prop::sample::select(vec![1_u64, 1 << 40, u64::MAX]),
        tp in prop::sample::select(vec![1_u64, u64::MAX]),
        memory in prop::sample::select(vec![0_u64, 1, u64::MAX]),
        version in version(),
    ) {
        let mut raw = RawSpec::empty(SpecKind::Sliding);
        raw.block_size = Some(block);
        raw.num_kv_heads = Some(heads);
        raw.head_size = Some(head);
        raw.sliding_window = Some(head);
        raw.dtype = Some(planner::dtype::DType::Float32);
        let mut model = Model::default();
        model.push(KvCacheSpec::try_from(raw.clone()).unwrap());
        raw.kind = SpecKind::Full;
        raw.sliding_window = None;
        model.push(KvCacheSpec::try_from(raw).unwrap());
        let settings = EngineSettings {
            tensor_parallel_size: tp,
            max_model_len: length,
            max_num_batched_tokens: length,
            available_memory_bytes: vec![memory],
            ..EngineSettings::default()
        };
        let _ = planner::plan(&model, &settings, &version.rules());
    }

    /// Group sizes: every rule gives at least 1 and at most the largest bucket, but for a set size.
    #[test]
    fn group_size_is_in_range(counts in prop::collection::vec(1_u64..100, 1..6)) {
        let largest = counts.iter().copied().max().unwrap();
        for rule in [
            GroupSizeRule::MinOrMax { numerator: 3, denominator: 2 },
            GroupSizeRule::MinOrMax { numerator: 5, denominator: 4 },
            GroupSizeRule::PaddingPlusGroups { padding_per_group_milli: 1000 },
            GroupSizeRule::SkipSingleLayers,
            GroupSizeRule::LeastPadding,
            GroupSizeRule::DivideFullAttention,
        ] {
            let size = group::group_size::size_for(rule, &counts, &counts[..1]);
            prop_assert!((1..=largest).contains(&size), "{rule:?} gives {size} for {counts:?}");
        }
    }
}
