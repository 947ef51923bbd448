//! `k3plan calibrate --aiconfigurator`: made-up tables of a device that reaches known shares of its peaks.

use std::sync::Arc;

use parquet::basic::{Compression, ZstdLevel};
use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;

use crate::support::{Folder, k3plan_in};

/// An H200's peaks.
const BANDWIDTH: f64 = 4.8e12;
const BF16: f64 = 989.4e12;
const FP8: f64 = 1978.9e12;
const LINK: f64 = 450e9;

fn put(folder: &Folder, name: &str, text: &str) {
    let path = folder.path().join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

/// Matrices that reach `read` of the bandwidth and `computed` of the rates, a slower kernel beside each.
fn gemm(read: f64, computed: f64, fp8: f64) -> String {
    let mut out = "framework,version,kernel_source,gemm_dtype,m,n,k,latency\n".to_owned();
    let mut row = |dtype: &str, m: f64, n: f64, k: f64, seconds: f64| {
        for (kernel, times) in [("fast", 1.0), ("slow", 3.0)] {
            out.push_str(&format!("VLLM,1,{kernel},{dtype},{m},{n},{k},{}\n", seconds * times * 1e3));
        }
    };
    for n in [8192.0, 16_384.0, 65_536.0] {
        row("bfloat16", 8.0, n, 8192.0, n * 8192.0 * 2.0 / (read * BANDWIDTH));
        row("bfloat16", 8192.0, n, 8192.0, 2.0 * 8192.0 * n * 8192.0 / (computed * BF16));
        row("fp8_block", 8192.0, n, 8192.0, 2.0 * 8192.0 * n * 8192.0 / (computed * fp8 * FP8));
    }
    // Small matrices come from caches, and say nothing.
    row("bfloat16", 8.0, 128.0, 128.0, 1e-9);
    out
}

fn attention(share: f64) -> String {
    let mut out = "kernel_source,batch_size,isl,num_heads,num_key_value_heads,head_dim,kv_cache_dtype,step,\
                   window_size,latency\n"
        .to_owned();
    for step in [4095.0, 8191.0, 16_383.0] {
        let bytes = 64.0 * step * 8.0 * 128.0 * 4.0;
        let ms = bytes / (share * BANDWIDTH) * 1e3;
        out.push_str(&format!("fa3,64,1,32,8,128,bfloat16,{step},0,{ms}\n"));
        // Windows read less.
        out.push_str(&format!("fa3,64,1,32,8,128,bfloat16,{step},128,{}\n", ms / 50.0));
    }
    out
}

/// All-reduces in Parquet, compressed as the package's are.
fn links(share: f64) -> Vec<u8> {
    let schema = "message nccl { REQUIRED BYTE_ARRAY op_name (UTF8); REQUIRED INT64 num_gpus; \
                  REQUIRED INT64 message_size; REQUIRED DOUBLE latency; }";
    let properties =
        WriterProperties::builder().set_compression(Compression::ZSTD(ZstdLevel::default())).build();
    let sizes = [33_554_432_i32, 67_108_864, 134_217_728, 134_217_728];
    let latencies: Vec<f64> =
        sizes.iter().map(|bytes| 1.5 * f64::from(*bytes) / (share * LINK) * 1e3).collect();
    let mut bytes = Vec::new();
    let mut file = SerializedFileWriter::new(
        &mut bytes,
        Arc::new(parse_message_type(schema).unwrap()),
        Arc::new(properties),
    )
    .unwrap();
    let mut rows = file.next_row_group().unwrap();
    let names: Vec<ByteArray> =
        ["all_reduce", "all_reduce", "all_reduce", "all_gather"].into_iter().map(ByteArray::from).collect();
    let mut column = rows.next_column().unwrap().unwrap();
    column.typed::<ByteArrayType>().write_batch(&names, None, None).unwrap();
    column.close().unwrap();
    for numbers in [[4_i64; 4], sizes.map(i64::from)] {
        let mut column = rows.next_column().unwrap().unwrap();
        column.typed::<Int64Type>().write_batch(&numbers, None, None).unwrap();
        column.close().unwrap();
    }
    let mut column = rows.next_column().unwrap().unwrap();
    column.typed::<DoubleType>().write_batch(&latencies, None, None).unwrap();
    column.close().unwrap();
    rows.close().unwrap();
    file.close().unwrap();
    bytes
}

fn tables(folder: &Folder) {
    let data = "aiconfigurator_core/systems/data/h200_sxm";
    put(folder, &format!("{data}/gemm/vllm/0.24.0/gemm_perf.txt"), &gemm(0.75, 0.7, 0.8));
    // Older, and of another engine: not read.
    put(folder, &format!("{data}/gemm/vllm/0.9.1/gemm_perf.txt"), &gemm(0.1, 0.1, 0.1));
    put(folder, &format!("{data}/gemm/sglang/0.99.0/gemm_perf.txt"), &gemm(0.1, 0.1, 0.1));
    put(folder, &format!("{data}/attention/vllm/0.24.0/generation_attention_perf.csv"), &attention(0.8));
    let mut reduce = "kernel_source,num_gpus,message_size,latency\n".to_owned();
    for bytes in [4096, 8192, 16_384, 1 << 27] {
        let large = if bytes > 65_536 { 100.0 } else { 1.0 };
        for (ranks, ms) in [(2, 0.005), (4, 0.006), (8, 0.007)] {
            reduce.push_str(&format!("vLLM_custom_graph,{ranks},{bytes},{}\n", ms * large));
            reduce.push_str(&format!("vLLM_custom_eager,{ranks},{bytes},{}\n", ms * 9.0));
        }
    }
    put(folder, &format!("{data}/comm/vllm/0.24.0/custom_allreduce_perf.csv"), &reduce);
    let path = folder.path().join(data).join("comm/nccl/2.29.2");
    std::fs::create_dir_all(&path).unwrap();
    std::fs::write(path.join("nccl_perf.parquet"), links(0.6)).unwrap();
}

#[test]
fn shares_are_found_again() {
    let folder = Folder::new("aiconfigurator");
    tables(&folder);
    let run = k3plan_in(
        folder.path(),
        &["calibrate", "--aiconfigurator", ".", "--hardware", "h200", "-o", "h200.yaml"],
    );
    insta::assert_snapshot!(run.whole());
    let file = folder.read("h200.yaml");
    assert!(file.contains("aiconfigurator h200_sxm/gemm/vllm/0.24.0/gemm_perf.txt"), "{file}");
    // The file is a calibration: without an interval, which is said.
    let run = k3plan_in(
        folder.path(),
        &[
            "optimize",
            "--model",
            "Qwen/Qwen3-8B",
            "--hardware",
            "h200",
            "--concurrency",
            "256",
            "--today-max-num-seqs",
            "16",
            "--calibration",
            "h200.yaml",
        ],
    );
    assert_eq!(run.code, Some(0), "{}", run.whole());
    assert!(run.stdout.contains("the calibration has no interval"), "{}", run.stdout);
}

#[test]
fn what_cannot_be_read() {
    let folder = Folder::new("aiconfigurator-wrong");
    put(&folder, "systems/data/h100_sxm/gemm/vllm/0.24.0/gemm_perf.txt", "m,n,k,latency\n1,2,3,0.1\n");
    put(&folder, "systems/data/b200_sxm/gemm/vllm/0.24.0/gemm_perf.parquet", "version https://git-lfs");
    let mut all = String::new();
    for hardware in ["h200", "h100", "b200", "cpu", "tpu"] {
        let run = k3plan_in(folder.path(), &["calibrate", "--aiconfigurator", ".", "--hardware", hardware]);
        assert_eq!(run.code, Some(2), "{}", run.whole());
        all.push_str(&format!("{hardware}\n{}\n", run.stderr));
    }
    insta::assert_snapshot!(all);
    assert_eq!(k3plan_in(folder.path(), &["calibrate", "--aiconfigurator", "."]).code, Some(2));
}
