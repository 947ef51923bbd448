//! What every device must do: one macro runs the whole suite for one.

use executor::device::{Device, DeviceError, Launch};
use executor::kernel::blocks::{Slots, Tables, Writes, append, gather, slot_mapping};
use executor::kernel::builder::{self, Requests, Rule, States};
use executor::kernel::cache::{self, Batch, Cache};
use executor::kernel::probe;
use executor::kernel::state::{self, StateBatch, StateCache};
use executor::launch_limits::read_shape;
use kernels::reference;
use kernels::reference::block_table::{Layout, Write};
use kernels::reference::kv_cache_write::{CacheLayout, Store};
use kernels::reference::metadata::SplitRule;
use kernels::reference::numbers::{from_bf16, from_e4m3, to_e4m3};
use kernels::reference::slot_mapping::{ContextParallel, Groups};
use kernels::reference::state_update::{StateLayout, state_update};

use super::random_plan::{Plan, Random, down, up};

/// The suite: `cases` random plans a kernel; `None` is a device that is not there.
macro_rules! conformance {
    ($name:ident, $cases:expr, $device:expr) => {
        mod $name {
            use super::conformance as suite;
            use proptest::prelude::*;
            #[allow(unused_imports, reason = "what the device's expression names")]
            use super::*;

            #[test]
            fn memory_order_and_graphs() {
                if let Some(device) = $device {
                    suite::memory_order_and_graphs(&*device);
                }
            }

            #[test]
            fn kernels_equal_their_references() {
                let Some(device) = $device else { return };
                let device: Box<dyn executor::device::Device> = device;
                let small = device.info().target == "emulated-gpu";
                let config = ProptestConfig { cases: $cases, ..ProptestConfig::default() };
                proptest!(config, |(seed: u64)| {
                    suite::one_plan(&*device, seed, small);
                });
            }
        }
    };
}

pub(crate) fn memory_order_and_graphs(device: &dyn Device) {
    let memory = device.allocate(1000).unwrap();
    assert_eq!(down::<u8>(device, &memory), vec![0; 1000], "memory starts as zeros");
    device.upload(&memory, 10, &[1, 2, 3]).unwrap();
    let mut back = [9; 5];
    device.download(&memory, 9, &mut back).unwrap();
    assert_eq!(back, [0, 1, 2, 3, 0]);
    let beyond = DeviceError::Range { offset: 999, bytes: 2, size: 1000 };
    assert_eq!(device.upload(&memory, 999, &[1, 2]), Err(beyond));

    let mut pinned = device.pin(8).unwrap();
    pinned.write(&[7; 8]).unwrap();
    device.upload_pinned(&memory, &pinned, 8).unwrap();
    device.synchronize().unwrap();
    assert_eq!(down::<u8>(device, &memory)[..9], [7, 7, 7, 7, 7, 7, 7, 7, 0]);

    let before = device.record().unwrap();
    let noop = probe::noop().unwrap();
    device.launch(&noop).unwrap();
    let after = device.record().unwrap();
    assert!(device.elapsed_ns(&before, &after).unwrap() >= 0.0);

    // A graph does what its launches do, each time, and keeps their memory.
    let words: Vec<u32> = (0..64).collect();
    let sums = device.allocate(4).unwrap();
    let graph = {
        let from = up(device, &words);
        let read = probe::stream_read(&from, 256, &sums, 1).unwrap();
        device.capture(&[noop, limited(device, read)]).unwrap()
    };
    for _ in 0..3 {
        device.upload(&sums, 0, &[0; 4]).unwrap();
        device.replay(&graph).unwrap();
        let expected = if device.info().computes { 2016 } else { 0 };
        assert_eq!(down::<u32>(device, &sums), [expected]);
    }

    let many = executor::device::CpuDevice::new(Some(1));
    let foreign = many.allocate(64).unwrap();
    let launch = probe::stream_read(&foreign, 64, &foreign, 1).unwrap();
    assert_eq!(device.launch(&launch), Err(DeviceError::Foreign { what: "memory" }));
}

/// A block of the emulated GPU has few threads, so that a case takes milliseconds.
fn limited(device: &dyn Device, launch: Launch) -> Launch {
    if device.info().target == "emulated-gpu" { launch.with_threads(7) } else { launch }
}

fn run(device: &dyn Device, launch: Launch) {
    device.launch(&limited(device, launch)).unwrap();
}

pub(crate) fn one_plan(device: &dyn Device, seed: u64, small: bool) {
    let mut random = Random::new(seed);
    let plan = Plan::new(&mut random, small);
    block_tables(device, &mut random, &plan);
    metadata(device, &mut random, &plan);
    cache_and_reads(device, &mut random, small);
    states(device, &mut random, small);
    stream(device, &mut random);
    device.synchronize().unwrap();
}

fn same<T: PartialEq + std::fmt::Debug>(device: &dyn Device, got: &[T], expected: &[T], what: &str) {
    if device.info().computes {
        assert_eq!(got.len(), expected.len(), "{what}");
        let differs = got.iter().zip(expected).position(|(got, expected)| got != expected);
        assert_eq!(differs.map(|i| (i, &got[i], &expected[i])), None, "{what}: place, got, expected");
    }
}

fn block_tables(device: &dyn Device, random: &mut Random, plan: &Plan) {
    let groups = plan.strides.len();
    let layout = Layout {
        table_offsets: &plan.table_offsets,
        strides: &plan.strides,
        max_num_reqs: plan.max_num_reqs,
    };
    let mut tables: Vec<i32> = (0..plan.tables_len).map(|_| random.int(0, 1 << 20)).collect();
    let mut num_blocks = vec![0; groups * plan.max_num_reqs];
    let on_device = Tables {
        tables: up(device, &tables),
        table_offsets: up(device, &plan.table_offsets),
        strides: up(device, &plan.strides),
        tables_len: plan.tables_len,
        num_groups: groups,
        max_num_reqs: plan.max_num_reqs,
    };
    let blocks = up(device, &num_blocks);

    // Each row of each group at most once, and some writes that do not fit.
    let mut writes = Vec::new();
    for group in 0..groups {
        for row in 0..plan.max_num_reqs {
            if random.chance(2) {
                let stride = i32::try_from(plan.strides[group]).unwrap();
                let start = random.int(0, stride);
                let count = random.range(0, usize::try_from(stride - start).unwrap());
                let mut write = Write {
                    group: i32::try_from(group).unwrap(),
                    row: i32::try_from(row).unwrap(),
                    start,
                    ids: (0..count).map(|_| random.int(0, i32::MAX)).collect(),
                };
                match random.range(0, 30) {
                    0 => write.group = i32::try_from(groups).unwrap(),
                    1 => write.row = -1,
                    2 => write.start = stride + 1,
                    _ => {}
                }
                writes.push(write);
            }
        }
    }
    if !writes.is_empty() {
        let ids: Vec<i32> = writes.iter().flat_map(|w| w.ids.clone()).collect();
        let mut cu_lens = vec![0];
        for write in &writes {
            cu_lens.push(cu_lens.last().unwrap() + i32::try_from(write.ids.len()).unwrap());
        }
        let each = |f: fn(&Write) -> i32| up(device, &writes.iter().map(f).collect::<Vec<i32>>());
        let on = Writes {
            groups: each(|w| w.group),
            rows: each(|w| w.row),
            starts: each(|w| w.start),
            cu_lens: up(device, &cu_lens),
            ids: up(device, &ids),
            writes: writes.len(),
            ids_len: ids.len(),
        };
        run(device, append(&on, &on_device, &blocks).unwrap());
        reference::block_table::append(&writes, layout, &mut tables, &mut num_blocks);
        same(device, &down(device, &on_device.tables), &tables, "append: tables");
        same(device, &down(device, &blocks), &num_blocks, "append: num_blocks");
    }

    let num_reqs = plan.num_computed.len();
    let rows = i32::try_from(plan.max_num_reqs).unwrap();
    let idx: Vec<i32> = (0..num_reqs).map(|_| random.int(-1, rows - 1)).collect();
    let idx_mapping = up(device, &idx);
    let mut input: Vec<i32> = (0..plan.tables_len).map(|_| random.int(0, 99)).collect();
    let input_tables = up(device, &input);
    let launch = gather(&idx_mapping, num_reqs, plan.padded, &on_device, &blocks, &input_tables, 0).unwrap();
    run(device, launch);
    reference::block_table::gather(&idx, plan.padded, layout, &tables, &num_blocks, &mut input);
    same(device, &down(device, &input_tables), &input, "gather");

    let (starts, _) = reference::metadata::sequence_starts(&plan.num_computed, &plan.query_lens, num_reqs);
    let mut positions = reference::metadata::positions(&plan.num_computed, &plan.query_lens);
    let max_num_tokens = positions.len() + random.range(0, 70);
    positions.resize(max_num_tokens, 0);
    // Mostly requests' positions count up; sometimes some do not, or are none.
    if random.chance(3) {
        for _ in 0..positions.len() / 4 {
            let place = random.range(0, positions.len() - 1);
            positions[place] = i64::from(random.int(-2, 5000));
        }
    }
    let parallel = match random.range(0, 2) {
        0 => ContextParallel {
            size: 4,
            rank: i64::from(random.int(0, 3)),
            interleave: random.one_of(&[1, 8, 16]),
        },
        _ => ContextParallel { size: 1, rank: 0, interleave: 1 },
    };
    // Under context parallelism a block holds whole turns.
    let sizes: Vec<i32> = match parallel.size {
        1 => plan.block_sizes.clone(),
        _ => plan.block_sizes.iter().map(|size| (size / 16).max(1) * 16).collect(),
    };
    let size = |n: i64| usize::try_from(n).unwrap();
    let slots = Slots {
        idx_mapping,
        query_start_loc: up(device, &starts),
        positions: up(device, &positions),
        block_sizes: up(device, &sizes),
        enabled: up(device, &plan.enabled),
        dcp_sharded: up(device, &plan.dcp_sharded),
        slots: up(device, &vec![7_i64; groups * max_num_tokens]),
        num_reqs,
        max_num_tokens,
        context_parallel: [size(parallel.size), size(parallel.rank), size(parallel.interleave)],
    };
    run(device, slot_mapping(&slots, &on_device).unwrap());
    let kinds = Groups { block_sizes: &sizes, enabled: &plan.enabled, dcp_sharded: &plan.dcp_sharded };
    let expected = reference::slot_mapping::slot_mapping(
        &idx,
        &starts,
        &positions,
        layout,
        &tables,
        kinds,
        parallel,
        max_num_tokens,
    );
    same(device, &down(device, &slots.slots), &expected, "slot_mapping");
}

fn metadata(device: &dyn Device, random: &mut Random, plan: &Plan) {
    let num_reqs = plan.num_computed.len();
    let requests = Requests {
        num_computed: up(device, &plan.num_computed),
        query_lens: up(device, &plan.query_lens),
        query_start_loc: up(device, &vec![-5_i32; plan.padded + 1]),
        seq_lens: up(device, &vec![-5_i32; plan.padded]),
        num_reqs,
        num_reqs_padded: plan.padded,
    };
    run(device, builder::sequence_starts(&requests).unwrap());
    let (starts, lens) =
        reference::metadata::sequence_starts(&plan.num_computed, &plan.query_lens, plan.padded);
    same(device, &down(device, &requests.query_start_loc), &starts, "query_start_loc");
    same(device, &down(device, &requests.seq_lens), &lens, "seq_lens");

    // The rest reads what the first kernel wrote, which a dummy did not.
    if !device.info().computes || num_reqs == 0 {
        return;
    }
    let expected = reference::metadata::positions(&plan.num_computed, &plan.query_lens);
    let got = device.allocate(8 * expected.len()).unwrap();
    run(device, builder::positions(&requests, &got, expected.len()).unwrap());
    same(device, &down(device, &got), &expected, "positions");

    for (require_uniform, short_extends_are_decodes) in
        [(false, true), (true, true), (false, false), (true, false)]
    {
        let threshold = random.one_of(&[1, 4, 8]);
        let mut ordered = plan.query_lens.clone();
        if random.chance(2) {
            ordered.sort_unstable();
        }
        let is_prefilling: Vec<i32> = ordered.iter().map(|_| i32::from(random.chance(5))).collect();
        let (starts, _) = reference::metadata::sequence_starts(&plan.num_computed, &ordered, num_reqs);
        let counts = device.allocate(16).unwrap();
        let rule = Rule { decode_threshold: threshold, require_uniform, short_extends_are_decodes };
        let (starts, prefilling) = (up(device, &starts), up(device, &is_prefilling));
        run(device, builder::decode_prefill_split(&starts, &prefilling, num_reqs, rule, &counts).unwrap());
        let rule = SplitRule {
            decode_threshold: i32::try_from(threshold).unwrap(),
            require_uniform,
            short_extends_are_decodes,
        };
        let expected = reference::metadata::decode_prefill_split(&ordered, &is_prefilling, rule);
        same(device, &down(device, &counts), &expected, "decode_prefill_split");
    }

    let chunk = random.one_of(&[1, 16, 64]);
    let (indices, offsets) =
        reference::metadata::chunk_indices(&plan.query_lens, i32::try_from(chunk).unwrap());
    let room = indices.len() + random.range(0, 3);
    let got = (device.allocate(8 * room).unwrap(), device.allocate(8 * (num_reqs + 1)).unwrap());
    let launch = builder::chunk_indices(&requests.query_start_loc, num_reqs, chunk, &got.0, room, &got.1);
    run(device, launch.unwrap());
    let mut flat: Vec<i32> = indices.into_iter().flatten().collect();
    flat.resize(2 * room, 0);
    same(device, &down(device, &got.0), &flat, "chunk_indices");
    same(device, &down(device, &got.1), &offsets, "chunk_offsets");

    let (stride, start) = (random.range(1, 30), random.range(0, 5));
    let table: Vec<i32> = (0..start + num_reqs * stride).map(|_| random.int(0, 1 << 20)).collect();
    let num_spec = random.range(0, 7);
    let block_size = random.one_of(&[None, Some(64_usize), Some(1536)]);
    let got = up(device, &vec![-3_i32; plan.padded * (num_spec + 1)]);
    let states = States { stride, num_spec, block_size };
    let launch = builder::kda_state_indices(&up(device, &table), start, &requests, states, &got);
    run(device, launch.unwrap());
    let block_size = block_size.map(|size| i32::try_from(size).unwrap());
    let lens = &lens[..num_reqs];
    let expected = reference::metadata::kda_state_indices(
        &table[start..],
        stride,
        lens,
        plan.padded,
        num_spec,
        block_size,
    );
    same(device, &down(device, &got), &expected, "kda_state_indices");
}

fn cache_and_reads(device: &dyn Device, random: &mut Random, small: bool) {
    let values = random.chance(2);
    let fp8 = random.chance(2);
    let element = if fp8 { 1 } else { 2 };
    let (kv_heads, head_size) = if values {
        (random.range(1, 8), random.one_of(&[64, 80, 128, 256]))
    } else {
        (1, random.one_of(&[576, 512 + 64, 96]))
    };
    let head = head_size * element;
    let block_size = random.one_of(&[1, 3, 16, 64, 70]);
    // Heads inside tokens or tokens inside heads, with gaps.
    let gap = 16 * random.range(0, 2);
    let (token_stride, head_stride) =
        if random.chance(2) { (kv_heads * head + gap, head) } else { (head, block_size * head + gap) };
    let half = block_size * kv_heads * (head + gap);
    let value_offset = values.then_some(half);
    let block_stride = half * 2 + 16 * random.range(0, 2);
    let offset = 16 * random.range(0, 2);
    let num_blocks = random.range(1, 12);
    let scale = random.one_of(&[1.0_f32, 0.5, 0.037]);
    let cache = Cache {
        memory: device.allocate(offset + num_blocks * block_stride).unwrap(),
        offset,
        num_blocks,
        block_size,
        block_stride,
        value_offset,
        token_stride,
        head_stride,
        kv_heads,
        head_size,
        fp8,
        scale,
    };
    let layout = CacheLayout {
        block_size,
        num_blocks,
        block_stride,
        value_offset: value_offset.unwrap_or(0),
        token_stride,
        head_stride,
    };
    let store = if fp8 { Store::Fp8 { inverse_scale: 1.0 / scale } } else { Store::Bf16 };

    let tokens = random.range(1, if small { 6 } else { 60 });
    // Any code for what is written; numbers of moderate size for what is read.
    let row: Vec<u16> =
        (0..tokens * kv_heads * head_size).map(|_| u16::try_from(random.next() & 0xffff).unwrap()).collect();
    let mut all: Vec<usize> = (0..num_blocks * block_size).collect();
    let slots: Vec<i64> = (0..tokens)
        .map(|_| match random.range(0, 9) {
            0 => -1,
            1 => i64::try_from(num_blocks * block_size).unwrap(),
            // A slot is written once.
            _ if all.is_empty() => -1,
            _ => i64::try_from(all.swap_remove(random.range(0, all.len() - 1))).unwrap(),
        })
        .collect();
    let mut expected = vec![0; num_blocks * block_stride];
    let on_slots = up(device, &[&[-1, -1][..], &slots].concat());
    if values {
        let value: Vec<u16> = row.iter().rev().copied().collect();
        let launch =
            cache::kv_cache_write(&cache, &up(device, &row), &up(device, &value), &on_slots, 2, tokens);
        run(device, launch.unwrap());
        reference::kv_cache_write::kv_cache_write(
            &row,
            &value,
            &slots,
            kv_heads,
            head_size,
            layout,
            store,
            &mut expected,
        );
    } else {
        let rope_size = head_size / 9;
        let latent: Vec<u16> =
            row.chunks(head_size).flat_map(|r| r[..head_size - rope_size].to_vec()).collect();
        let rope: Vec<u16> =
            row.chunks(head_size).flat_map(|r| r[head_size - rope_size..].to_vec()).collect();
        let (on_latent, on_rope) = (up(device, &latent), up(device, &rope));
        let launch = cache::mla_cache_write(&cache, &on_latent, &on_rope, rope_size, &on_slots, 2, tokens);
        run(device, launch.unwrap());
        reference::kv_cache_write::mla_cache_write(&latent, &rope, &slots, layout, store, &mut expected);
    }
    same(device, &down(device, &cache.memory)[offset..], &expected, "cache write");

    // Reads: numbers whose sums do not overflow, of all exponents that fp8 has, subnormals too.
    let filled: Vec<u8> = (0..num_blocks * block_stride)
        .map(|i| {
            let byte = u8::try_from(random.next() & 0xff).unwrap();
            // The upper byte of a bf16 code: exponents from 2^-16 to 2^15.
            if !fp8 && i % 2 == 1 { byte & 0x87 | 0x38 } else { byte }
        })
        .collect();
    device.upload(&cache.memory, offset, &filled).unwrap();
    let num_reqs = random.range(1, 4);
    let longest = if small { 40 } else { 700 };
    let seq_lens: Vec<i32> = (0..num_reqs).map(|_| random.int(0, longest)).collect();
    let (stride, start) = (random.range(1, 1 + 700 / block_size), random.range(0, 3));
    let window = random.chance(3).then(|| random.range(1, 300));
    let blocks = i32::try_from(num_blocks).unwrap();
    let table: Vec<i32> = (0..start + num_reqs * stride).map(|_| random.int(-1, blocks)).collect();
    let batch = Batch {
        tables: up(device, &table),
        table_start: start,
        stride,
        seq_lens: up(device, &seq_lens),
        num_reqs,
        window,
        // So many that the CPU takes all its threads.
        num_tokens: 1 << 20,
    };
    let pieces = u32::try_from(kv_heads * head / 16).unwrap();
    let threads = match device.info().limits.threads {
        1 => 1,
        _ if small => 12,
        _ => 256,
    };
    let mut shape = read_shape(device.info().units, 1, 700, pieces, threads);
    shape.splits = u32::try_from(random.range(1, 3)).unwrap();
    let parts = usize::try_from(shape.splits * shape.workers).unwrap();
    let row_size = if values { 2 } else { 1 } * kv_heads * head_size;
    let sums = device.allocate(4 * num_reqs * parts * row_size).unwrap();
    let out = device.allocate(4 * num_reqs * row_size).unwrap();
    device.launch(&cache::read(&cache, &batch, shape, &sums).unwrap()).unwrap();
    run(device, cache::combine(&sums, num_reqs, parts, row_size, &out).unwrap());
    if device.info().computes {
        let store = if fp8 { Store::Fp8 { inverse_scale: 1.0 } } else { Store::Bf16 };
        let expected = reference::paged_read::paged_read(
            &filled,
            &table[start..],
            stride,
            &seq_lens,
            window,
            kv_heads,
            head_size,
            values,
            layout,
            store,
            if fp8 { f64::from(scale) } else { 1.0 },
        );
        for (i, (got, expected)) in down::<f32>(device, &out).iter().zip(&expected).enumerate() {
            assert!(expected.accepts(*got), "read: element {i} is {got}, expected {expected:?}");
        }
    }
}

fn states(device: &dyn Device, random: &mut Random, small: bool) {
    let (num_reqs, width) = (random.range(1, 6), random.range(1, 9));
    let conv_bytes = 16 * random.range(0, if small { 4 } else { 40 });
    let state_bytes = 16 * random.range(0, if small { 8 } else { 2000 });
    let block_stride = conv_bytes + state_bytes + 16 * random.range(0, 2);
    let num_blocks = num_reqs * width + 2;
    let offset = 16 * random.range(0, 2);
    // Each page is one request's; some columns are padding or outside.
    let mut free: Vec<i32> = (1..i32::try_from(num_blocks).unwrap()).collect();
    let indices: Vec<i32> = (0..num_reqs * width)
        .map(|_| match random.range(0, 11) {
            0 => 0,
            1 => random.one_of(&[-1, i32::MAX]),
            _ => free.swap_remove(random.range(0, free.len() - 1)),
        })
        .collect();
    let widest = i32::try_from(width).unwrap();
    let query_lens: Vec<i32> = (0..num_reqs)
        .map(|_| match random.range(0, 4) {
            0 => 0,
            1 => random.int(widest + 1, 500),
            _ => random.int(1, widest),
        })
        .collect();
    let accepted: Vec<i32> = (0..num_reqs).map(|_| random.int(0, widest + 1)).collect();
    let mut pages: Vec<u8> =
        (0..num_blocks * block_stride).map(|_| u8::try_from(random.next() & 0xff).unwrap()).collect();
    let memory = device.allocate(offset + pages.len()).unwrap();
    device.upload(&memory, offset, &pages).unwrap();
    let cache = StateCache { memory, offset, num_blocks, block_stride, conv_bytes, state_bytes };
    let (starts, _) = reference::metadata::sequence_starts(&vec![0; num_reqs], &query_lens, num_reqs);
    let batch = StateBatch {
        indices: up(device, &indices),
        width,
        accepted: up(device, &accepted),
        query_start_loc: up(device, &starts),
        num_reqs,
        states_written: 1 << 20,
    };
    run(device, state::update(&cache, &batch).unwrap());
    let layout = StateLayout { num_blocks, block_stride, conv_bytes, state_bytes };
    state_update(&mut pages, layout, &indices, width, &accepted, &query_lens);
    same(device, &down(device, &cache.memory)[offset..], &pages, "state_update");
}

fn stream(device: &dyn Device, random: &mut Random) {
    let words: Vec<u32> =
        (0..16 * random.range(1, 100)).map(|_| u32::try_from(random.next() >> 32).unwrap()).collect();
    let programs = random.range(1, 5);
    let sums = device.allocate(4 * programs).unwrap();
    run(device, probe::stream_read(&up(device, &words), 4 * words.len(), &sums, programs).unwrap());
    let total = |numbers: &[u32]| numbers.iter().fold(0_u32, |sum, n| sum.wrapping_add(*n));
    same(device, &[total(&down(device, &sums))], &[total(&words)], "stream_read");

    let memory = up(device, &words);
    let written = random.range(0, words.len() / 16) * 16;
    run(device, probe::stream_write(&memory, 4 * written, programs, 0x3f38_9abc).unwrap());
    let expected: Vec<u32> =
        (0..words.len()).map(|i| if i < written { 0x3f38_9abc } else { words[i] }).collect();
    same(device, &down(device, &memory), &expected, "stream_write");
}

#[test]
fn fp8_codes_round_trip() {
    for code in (0..=0x7e_u8).chain(0x80..=0xfe) {
        #[expect(clippy::cast_possible_truncation, reason = "every fp8 number is an f32 number")]
        let number = from_e4m3(code) as f32;
        assert_eq!(to_e4m3(number), code);
    }
    assert_eq!(to_e4m3(1000.0), 0x7e);
    assert_eq!(to_e4m3(f32::NEG_INFINITY), 0xfe);
    assert_eq!(from_bf16(0x3f80), 1.0);
}
