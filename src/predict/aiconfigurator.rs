//! What do aiconfigurator's measured tables of operators say of a device's factors?
//!
//! The folder is an installed aiconfigurator (`site-packages`), its `systems` folder, or one system's. Of each table
//! the newest of vLLM's versions is read; samples of whole servers, which the package also has, are not.

mod table;

use std::path::{Path, PathBuf};

use simulator::cost::calibrate::Calibration;
use simulator::cost::{Factor, Hardware};

use crate::failure::Failure;
use table::Table;

/// What the tables give.
#[derive(Debug, Clone)]
pub(crate) struct Silicon {
    /// Factors that the tables tell; the others are the defaults.
    pub(crate) calibration: Calibration,
    /// A line a factor.
    pub(crate) derived: Vec<Derived>,
    /// The tables.
    pub(crate) sources: Vec<String>,
}

/// A factor and where it comes from.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Derived {
    pub(crate) factor: Factor,
    /// In the factor's own unit.
    pub(crate) value: f64,
    /// Measurements behind it.
    pub(crate) points: usize,
}

/// The least measurements that a factor is taken from.
const LEAST: usize = 3;

/// A factor is never surer than this, as a standard deviation of its logarithm: operators alone are not a server.
const SUREST: f64 = 0.03;

/// Larger reads come from memory, not from a cache, bytes.
const BEYOND_CACHES: f64 = 64.0 * 1024.0 * 1024.0;

/// Reads the tables of `hardware`.
///
/// # Errors
/// If the folder has none of them, one cannot be read, or the device lacks a peak.
pub(crate) fn read(folder: &Path, hardware: &Hardware) -> Result<Silicon, Failure> {
    let system = system(folder, hardware)?;
    let mut files = Vec::new();
    walk(&system, 0, &mut files);
    let need = |figure, value| {
        hardware.need(figure, value, "reading aiconfigurator's tables").map_err(|error| {
            Failure::new(format!("failed to read aiconfigurator's tables of {}", hardware.name))
                .caused_by(error)
        })
    };
    let peaks = Peaks {
        bandwidth: need("bandwidth", hardware.bandwidth)?,
        bf16: need("bf16", hardware.bf16)?,
        fp8: hardware.fp8,
        link: hardware.link_bandwidth,
    };
    let mut silicon =
        Silicon { calibration: Calibration::default(), derived: Vec::new(), sources: Vec::new() };
    let mut shares = Shares::default();
    type Reader = fn(&Table, &Peaks, &mut Shares);
    let readers: [(&str, bool, Reader); 5] = [
        ("gemm_perf", true, gemm),
        ("generation_attention_perf", true, generation),
        ("context_attention_perf", true, context),
        ("custom_allreduce_perf", true, all_reduce),
        ("nccl_perf", false, links),
    ];
    for (stem, of_vllm, reader) in readers {
        let Some(path) = newest(&files, stem, of_vllm) else { continue };
        reader(&Table::read(path)?, &peaks, &mut shares);
        let name = path.strip_prefix(&system).unwrap_or(path).display();
        let system = system.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        silicon.sources.push(format!("aiconfigurator {system}/{name}"));
    }
    let base = hardware.factors().map_err(|error| {
        Failure::new(format!("failed to read the factors of {}", hardware.name)).caused_by(error)
    })?;
    for (factor, mut values) in shares.0 {
        values.retain(|value| *value > 0.0 && value.is_finite());
        let Some((middle, spread)) = middle(&mut values) else { continue };
        if let Some(slot) = silicon.calibration.offsets.get_mut(factor as usize) {
            *slot = (middle / base.get(factor)).ln();
        }
        if let Some(slot) = silicon.calibration.deviations.get_mut(factor as usize) {
            *slot = spread.max(SUREST).min(factor.spread());
        }
        silicon.derived.push(Derived { factor, value: middle, points: values.len() });
    }
    if silicon.derived.is_empty() {
        return Err(Failure::new(format!("failed to find vLLM's tables in `{}`", system.display()))
            .caused_by("no gemm_perf, attention or all-reduce table has enough rows")
            .hint(
                "give the folder of an installed aiconfigurator: `pip show -f aiconfigurator-core` names it",
            ));
    }
    Ok(silicon)
}

struct Peaks {
    bandwidth: f64,
    bf16: f64,
    fp8: Option<f64>,
    link: Option<f64>,
}

/// What each row says of a factor.
#[derive(Debug, Default)]
struct Shares(Vec<(Factor, Vec<f64>)>);

impl Shares {
    fn put(&mut self, factor: Factor, value: f64) {
        match self.0.iter_mut().find(|(own, _)| *own == factor) {
            Some((_, values)) => values.push(value),
            None => self.0.push((factor, vec![value])),
        }
    }

    fn middle(&self, factor: Factor) -> Option<f64> {
        let (_, values) = self.0.iter().find(|(own, _)| *own == factor)?;
        middle(&mut values.clone()).map(|(middle, _)| middle)
    }
}

/// Median, and the standard deviation of the logarithm that the median deviation stands for.
fn middle(values: &mut [f64]) -> Option<(f64, f64)> {
    if values.len() < LEAST {
        return None;
    }
    values.sort_by(f64::total_cmp);
    let median = *values.get(values.len() / 2)?;
    let mut off: Vec<f64> = values.iter().map(|value| (value / median).ln().abs()).collect();
    off.sort_by(f64::total_cmp);
    Some((median, 1.4826 * off.get(off.len() / 2)?))
}

/// Matrices of few rows are as fast as their weights are read, of many as the matrix units are.
fn gemm(table: &Table, peaks: &Peaks, shares: &mut Shares) {
    for row in table.fastest("gemm_dtype", &["m", "n", "k"]) {
        let &[m, n, k] = row.numbers.as_slice() else { continue };
        let weights = n * k;
        if row.text == "bfloat16" && m <= 16.0 && weights * 2.0 >= BEYOND_CACHES {
            shares.put(Factor::DenseBandwidth, weights * 2.0 / row.seconds / peaks.bandwidth);
        }
        if row.text == "bfloat16" && m.min(n).min(k) >= 4096.0 {
            shares.put(Factor::DenseFlops, 2.0 * m * weights / row.seconds / peaks.bf16);
        }
    }
    let (Some(fp8), Some(dense)) = (peaks.fp8, shares.middle(Factor::DenseFlops)) else { return };
    for row in table.fastest("gemm_dtype", &["m", "n", "k"]) {
        let &[m, n, k] = row.numbers.as_slice() else { continue };
        if row.text.starts_with("fp8") && m.min(n).min(k) >= 4096.0 {
            shares.put(Factor::Fp8Flops, 2.0 * m * n * k / row.seconds / fp8 / dense);
        }
    }
}

/// Decode attention is as fast as pages are read.
fn generation(table: &Table, peaks: &Peaks, shares: &mut Shares) {
    let keys = ["batch_size", "step", "num_key_value_heads", "head_dim", "window_size", "num_heads"];
    for row in table.fastest("kv_cache_dtype", &keys) {
        let &[batch, step, kv_heads, dim, window, _] = row.numbers.as_slice() else { continue };
        let bytes = batch * step * kv_heads * dim * 2.0 * 2.0;
        if row.text == "bfloat16" && window <= 0.0 && bytes >= 4.0 * BEYOND_CACHES {
            shares.put(Factor::KvBandwidth, bytes / row.seconds / peaks.bandwidth);
        }
    }
}

/// Attention over prompts: a query sees half of the keys on average.
fn context(table: &Table, peaks: &Peaks, shares: &mut Shares) {
    let keys = ["batch_size", "isl", "num_heads", "head_dim", "window_size", "step", "num_key_value_heads"];
    for row in table.fastest("kv_cache_dtype", &keys) {
        let &[batch, tokens, heads, dim, window, step, _] = row.numbers.as_slice() else { continue };
        if row.text == "bfloat16" && window <= 0.0 && step <= 0.0 && tokens >= 4096.0 && heads >= 8.0 {
            let flops = 4.0 * batch * heads * dim * tokens * tokens / 2.0;
            shares.put(Factor::AttentionFlops, flops / row.seconds / peaks.bf16);
        }
    }
}

/// All-reduces of what a decode step sends, inside a graph.
fn all_reduce(table: &Table, _peaks: &Peaks, shares: &mut Shares) {
    let graphs = table.rows("kernel_source", &["num_gpus", "message_size"]);
    let small: Vec<(f64, f64)> = graphs
        .filter(|row| row.text.contains("graph"))
        .filter_map(|row| match row.numbers.as_slice() {
            &[ranks, bytes] if (4096.0..=65_536.0).contains(&bytes) => Some((ranks, row.seconds * 1e6)),
            _ => None,
        })
        .collect();
    for (_, us) in small.iter().filter(|(ranks, _)| (*ranks - 2.0).abs() < 0.5) {
        shares.put(Factor::AllReduceUs, *us);
    }
    let Some(two) = shares.middle(Factor::AllReduceUs) else { return };
    for (ranks, us) in small.iter().filter(|(ranks, _)| *ranks > 2.5) {
        shares.put(Factor::AllReduceDoubling, (us / two - 1.0) / (ranks.log2() - 1.0));
    }
}

/// All-reduces of what prompts send.
fn links(table: &Table, peaks: &Peaks, shares: &mut Shares) {
    let Some(link) = peaks.link else { return };
    for row in table.rows("op_name", &["num_gpus", "message_size"]) {
        let &[ranks, bytes] = row.numbers.as_slice() else { continue };
        if row.text == "all_reduce" && ranks > 1.0 && (16e6..=256e6).contains(&bytes) {
            shares.put(Factor::LinkBandwidth, 2.0 * (ranks - 1.0) / ranks * bytes / row.seconds / link);
        }
    }
}

/// The folder of a system's tables.
fn system(folder: &Path, hardware: &Hardware) -> Result<PathBuf, Failure> {
    let names = || std::iter::once(&hardware.name).chain(&hardware.aliases);
    let own = folder.file_name().map(|name| name.to_string_lossy().into_owned());
    if own.is_some_and(|own| names().any(|name| *name == own)) && folder.is_dir() {
        return Ok(folder.to_owned());
    }
    for inside in
        ["aiconfigurator_core/systems/data", "aiconfigurator/systems/data", "systems/data", "data", ""]
    {
        for name in names() {
            let path = folder.join(inside).join(name);
            if path.is_dir() {
                return Ok(path);
            }
        }
    }
    let names: Vec<&str> = names().map(String::as_str).collect();
    Err(Failure::new(format!("failed to find tables of {} in `{}`", hardware.name, folder.display()))
        .caused_by(format!("neither it nor its `systems/data` has a folder called {}", names.join(" or ")))
        .hint("give the folder of an installed aiconfigurator: `pip show -f aiconfigurator-core` names it"))
}

fn walk(folder: &Path, depth: usize, files: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    let mut paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.sort();
    for path in paths {
        if path.is_dir() {
            if depth < 5 {
                walk(&path, depth + 1, files);
            }
        } else {
            files.push(path);
        }
    }
}

/// The table of the newest version, by its path: `gemm/vllm/0.24.0/gemm_perf.parquet`.
fn newest<'a>(files: &'a [PathBuf], stem: &str, of_vllm: bool) -> Option<&'a PathBuf> {
    let part = |path: &Path, name: &str| path.components().any(|part| part.as_os_str() == name);
    files
        .iter()
        .filter(|path| path.file_stem().is_some_and(|own| own == stem))
        .filter(|path| {
            path.extension().is_some_and(|kind| ["parquet", "txt", "csv"].iter().any(|k| kind == *k))
        })
        .filter(|path| !of_vllm || part(path, "vllm"))
        .max_by_key(|path| version(path))
}

fn version(path: &Path) -> Vec<u64> {
    let folder = path.parent().and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned());
    folder.unwrap_or_default().split('.').map(|part| part.parse().unwrap_or(0)).collect()
}
