//! A plan's step on the dummy: which launches does it make, and how does it lay out the pool?

use executor::device::{CpuDevice, Device, DummyDevice};
use executor::measure::Repeats;
use executor::replay::calibrate::calibrate;
use executor::replay::plan::{Kept, ReplayGroup, ReplayPlan};
use executor::replay::run::run;
use executor::replay::step::step;
use executor::replay::{Batch, ReplayError, Request};
use kernels::Kernel;

/// KDA groups and MLA groups as Kimi-K3 has, with small blocks.
fn plan(states: usize, mla: usize, layers: usize) -> ReplayPlan {
    let state = Kept::State { num_speculative_blocks: 7, aligned: false };
    let group = |kept| ReplayGroup { kept, layers, block_size: 64, page_bytes: 64 * 576 };
    let groups = std::iter::repeat_n(group(state), states)
        .chain(std::iter::repeat_n(group(Kept::Mla { head_size: 576, fp8: true }), mla));
    ReplayPlan { name: "k3".to_owned(), groups: groups.collect(), num_blocks: Some(5000) }
}

fn count(kernels: &[Kernel], kernel: Kernel) -> usize {
    kernels.iter().filter(|k| **k == kernel).count()
}

#[test]
fn metadata_is_by_group_and_reads_are_by_layer() {
    for (states, mla, layers) in [(3, 1, 30), (14, 6, 5)] {
        let device = DummyDevice::new(1 << 30);
        let made = step(&device, &plan(states, mla, layers), &Batch::decodes(8, 300, 7), 1 << 28).unwrap();
        for launch in &made.launches {
            device.launch(launch).unwrap();
        }
        let launched = device.launched();
        for once in [Kernel::BlockTableAppend, Kernel::BlockTableGather, Kernel::SlotMapping] {
            assert_eq!(count(&launched, once), 1, "{once:?}");
        }
        assert_eq!(count(&launched, Kernel::DecodePrefillSplit), states + mla);
        assert_eq!(count(&launched, Kernel::KdaStateIndices), states);
        assert_eq!(count(&launched, Kernel::MlaReadFp8), mla * layers);
        assert_eq!(count(&launched, Kernel::ChunkIndices), 0, "decodes have no chunks");
        // 8 requests of 8 states, or of 5 blocks of 64 for 308 tokens, and the null block.
        assert_eq!(made.num_blocks, 8 * (8 * states + 5 * mla) + 1);
        assert!(!made.aliased);
        assert_eq!(made.not_replayed, ["reads and writes of recurrent states"]);
    }
}

#[test]
fn a_pool_that_is_too_small_is_shared_or_refused() {
    let device = DummyDevice::new(1 << 30);
    let batch = Batch::decodes(8, 300, 7);
    let made = step(&device, &plan(3, 1, 30), &batch, 30 * 36_864 * 20).unwrap();
    assert_eq!((made.num_blocks, made.aliased), (20, true));
    let error = step(&device, &plan(3, 1, 30), &batch, 30 * 36_864).err().unwrap();
    assert_eq!(error, ReplayError::Budget { tensors: 30, page_bytes: 36_864, budget_bytes: 30 * 36_864 });
    drop(made);
    assert_eq!(device.bytes_used(), 0, "nothing leaks");
}

#[test]
fn a_prefill_has_chunks() {
    let device = DummyDevice::new(1 << 30);
    let requests =
        vec![Request { num_computed: 99, query_len: 1 }, Request { num_computed: 0, query_len: 500 }];
    let batch = Batch { requests, num_speculative_tokens: 0 };
    let made = step(&device, &plan(3, 1, 2), &batch, 1 << 28).unwrap();
    assert_eq!(made.launches.iter().filter(|l| l.kernel() == Kernel::ChunkIndices).count(), 3);
}

#[test]
fn the_cpu_is_measured_per_kernel_and_per_step() {
    let device = CpuDevice::new(Some(1));
    let repeats = Repeats { warm_up: 1, runs: 3 };
    let calibration = calibrate(&device, 1 << 22, repeats).unwrap();
    assert!(calibration.stream_bytes_per_second > 0.0 && calibration.launch_ns > 0.0);
    let result =
        run(&device, &plan(3, 1, 2), &Batch::decodes(4, 200, 7), 1 << 26, &calibration, repeats).unwrap();
    assert_eq!(result.groups, 4);
    let sum: f64 = result.kernels.iter().map(|k| k.predicted_ns).sum();
    assert!((result.predicted_ns - sum).abs() < 1e-6 * sum);
    let read = result.kernels.iter().find(|k| k.kernel == Kernel::MlaReadFp8).unwrap();
    // 4 requests of 208 tokens in 2 layers.
    assert_eq!(read.bytes, 4 * 208 * 576 * 2);
    assert!(result.eager.device.median_ns > 0.0 && result.graph.host.median_ns > 0.0);
}
