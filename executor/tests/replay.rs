//! A plan's steps: which launches do they make, how is the pool laid out, and what comes of measuring them?

use executor::device::{CpuDevice, Device, DummyDevice};
use executor::measure::Repeats;
use executor::replay::calibrate::calibrate;
use executor::replay::plan::{Arrangement, Kept, ReplayGroup, ReplayLayer, ReplayPlan};
use executor::replay::pool::{Pool, Sharing};
use executor::replay::run::run;
use executor::replay::sample::Sampled;
use executor::replay::step::{Step, step};
use executor::replay::{Batch, ReplayError, Request};
use kernels::Kernel;

const PAGE: usize = 64 * 576;

/// KDA groups and MLA groups as Kimi-K3 has, with small blocks.
fn plan(states: usize, mla: usize, layers: usize) -> ReplayPlan {
    let state =
        Kept::State { conv_bytes: 1024, state_bytes: 8192, num_speculative_blocks: 7, aligned: false };
    let group =
        |kept| ReplayGroup { block_size: 64, layers: vec![ReplayLayer { kept, page_bytes: PAGE }; layers] };
    let mla_kept = Kept::Mla { head_size: 576, fp8: true, window: None };
    let groups = std::iter::repeat_n(group(state), states).chain(std::iter::repeat_n(group(mla_kept), mla));
    ReplayPlan {
        name: "k3".to_owned(),
        groups: groups.collect(),
        arrangement: Arrangement::TensorALayer,
        num_blocks: Some(5000),
    }
}

fn laid_out(
    device: &dyn Device,
    plan: &ReplayPlan,
    batch: &Batch,
    budget: usize,
) -> Result<(Pool, Step), ReplayError> {
    let pool = Pool::new(device, plan, std::slice::from_ref(batch), budget)?;
    let made = step(device, plan, batch, &pool)?;
    Ok((pool, made))
}

fn count(kernels: &[Kernel], kernel: Kernel) -> usize {
    kernels.iter().filter(|k| **k == kernel).count()
}

#[test]
fn metadata_is_by_group_and_reads_are_by_layer() {
    for (states, mla, layers) in [(3, 1, 30), (14, 6, 5)] {
        let device = DummyDevice::new(1 << 30);
        let (pool, made) =
            laid_out(&device, &plan(states, mla, layers), &Batch::decodes(8, 300, 7), 1 << 29).unwrap();
        let before = device.launched().len();
        for launch in &made.launches {
            device.launch(launch).unwrap();
        }
        let launched = device.launched().split_off(before);
        for once in [Kernel::BlockTableAppend, Kernel::BlockTableGather, Kernel::SlotMapping] {
            assert_eq!(count(&launched, once), 1, "{once:?}");
        }
        assert_eq!(count(&launched, Kernel::DecodePrefillSplit), states + mla);
        assert_eq!(count(&launched, Kernel::KdaStateIndices), states);
        assert_eq!(count(&launched, Kernel::StateUpdate), states * layers);
        assert_eq!(count(&launched, Kernel::MlaReadFp8), mla * layers);
        assert_eq!(count(&launched, Kernel::ChunkIndices), 0, "decodes have no chunks");
        // 8 requests of 8 states, or of 5 blocks of 64 for 308 tokens, and the null block.
        assert_eq!(pool.num_blocks, 8 * (8 * states + 5 * mla) + 1);
        assert_eq!((pool.sharing, pool.tensors.len()), (Sharing::Nothing, layers));
        assert!(made.not_replayed.is_empty());
        // Each of 8 requests reads one state and writes 8.
        let update = made.launches.iter().find(|l| l.kernel() == Kernel::StateUpdate).unwrap().moved();
        assert_eq!((update.read, update.written), (8 * (1024 + 8192), 8 * (1024 + 8 * 8192)));
    }
}

#[test]
fn what_does_not_fit_is_shared_by_groups_then_layers_then_requests() {
    let device = DummyDevice::new(1 << 30);
    let batch = Batch::decodes(8, 300, 7);
    let all = |blocks: usize, tensors: usize| blocks * tensors * PAGE;
    let of = |budget: usize| {
        let (pool, made) = laid_out(&device, &plan(3, 1, 30), &batch, budget).unwrap();
        (pool.num_blocks, pool.tensors.len(), pool.sharing, made.not_replayed)
    };
    // A group's states take 64 blocks, all groups together 232.
    assert_eq!(of(all(233, 30)), (233, 30, Sharing::Nothing, vec![]));
    assert_eq!(of(all(100, 30)), (100, 30, Sharing::Groups, vec![]));
    assert_eq!(of(all(65, 30)), (65, 30, Sharing::Groups, vec![]));
    assert_eq!(of(all(64, 30)), (65 + 1, 29, Sharing::Groups, vec![]));
    assert_eq!(of(all(65, 1)), (65, 1, Sharing::Groups, vec![]));
    let states = "states, whose pages do not fit the memory all at once";
    assert_eq!(of(all(20, 1)), (20, 1, Sharing::Requests, vec![states]));
    let error = laid_out(&device, &plan(3, 1, 30), &batch, PAGE).err().unwrap();
    assert_eq!(error, ReplayError::Budget { block_bytes: PAGE, budget_bytes: PAGE });
    assert_eq!(device.bytes_used(), 0, "nothing leaks");
}

#[test]
fn layers_of_a_block_stand_side_by_side_where_blocks_are_outermost() {
    let device = DummyDevice::new(1 << 30);
    let mut plan = plan(0, 2, 3);
    // Pages of several sizes: a window of small heads among the latents.
    let window = Kept::Attention { kv_heads: 1, head_size: 64, fp8: true, window: Some(100) };
    plan.groups[1].layers = vec![ReplayLayer { kept: window, page_bytes: 2 * 64 * 64 }; 4];
    assert_eq!(plan.tensors(), [PAGE, PAGE, PAGE, 2 * 64 * 64], "a tensor a layer");
    plan.arrangement = Arrangement::BlockOutermost { block_bytes: 3 * PAGE };
    assert_eq!(plan.tensors(), [3 * PAGE]);
    assert_eq!(plan.place(&plan.groups[1], 3), (0, 3 * 2 * 64 * 64));
    let (pool, made) = laid_out(&device, &plan, &Batch::decodes(2, 300, 0), 1 << 28).unwrap();
    assert_eq!((pool.tensors.len(), pool.bytes()), (1, pool.num_blocks * 3 * PAGE));
    let read = |kernel| made.launches.iter().find(|l| l.kernel() == kernel).unwrap().moved().read;
    assert_eq!(read(Kernel::MlaReadFp8), 2 * 301 * 576);
    assert_eq!(read(Kernel::GqaReadFp8), 2 * 100 * 2 * 64, "a window reads its last tokens");
}

#[test]
fn a_prefill_has_chunks_and_one_state() {
    let device = DummyDevice::new(1 << 30);
    let requests =
        vec![Request { num_computed: 0, query_len: 500 }, Request { num_computed: 99, query_len: 1 }];
    let batch = Batch::new(requests, 0);
    assert_eq!((batch.requests[0].query_len, batch.prefills()), (1, 1), "decodes come first");
    let (_pool, made) = laid_out(&device, &plan(3, 1, 2), &batch, 1 << 28).unwrap();
    assert_eq!(made.launches.iter().filter(|l| l.kernel() == Kernel::ChunkIndices).count(), 3);
    let update = made.launches.iter().find(|l| l.kernel() == Kernel::StateUpdate).unwrap().moved();
    assert_eq!(update.written, 2 * (1024 + 8192));
}

#[test]
fn the_cpu_is_measured_per_kernel_and_per_step() {
    let device = CpuDevice::new(Some(1));
    let repeats = Repeats { warm_up: 1, runs: 3 };
    let calibration = calibrate(&device, 1 << 22, repeats).unwrap();
    assert!(calibration.stream_bytes_per_second > 0.0 && calibration.write_bytes_per_second > 0.0);
    assert!(calibration.launch_ns > 0.0);
    let sampled = |index, batch| Sampled { index, stands_for: 1.0, batch };
    let steps = [sampled(3, Batch::decodes(4, 200, 7)), sampled(9, Batch::decodes(2, 100, 7))];
    let result = run(&device, &plan(3, 1, 2), &steps, 1 << 26, &calibration, repeats).unwrap();
    assert_eq!((result.groups, result.tensors, result.sharing), (4, 2, Sharing::Nothing));
    assert_eq!(result.steps.iter().map(|s| s.step.index).collect::<Vec<_>>(), [3, 9]);
    let first = &result.steps[0];
    let sum: f64 = first.kernels.iter().map(|k| k.predicted_ns).sum();
    assert!((first.predicted_ns - sum).abs() < 1e-6 * sum);
    let read = first.kernels.iter().find(|k| k.kernel == Kernel::MlaReadFp8).unwrap();
    // 4 requests of 208 tokens in 2 layers.
    assert_eq!((read.moved.read, read.moved.written), (4 * 208 * 576 * 2, 0));
    assert!(first.eager.device.median_ns > 0.0 && first.graph.host.median_ns > 0.0);
    assert_eq!(run(&device, &plan(1, 1, 1), &[], 1 << 26, &calibration, repeats), Err(ReplayError::NoSteps));
}
