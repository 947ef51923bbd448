//! Public A/B cases: what their authors said, what we say, and why not the same.
//!
//! docs/compare-cases.md is this test's answer; run it with `K3PLAN_BLESS=1` to write the file anew.

use std::fmt::Write as _;

use executor::compare::difference::{Observation, PairingChoice};
use executor::compare::metric::Metric;
use executor::compare::run::{Run, Tool};
use executor::compare::verdict::{MetricComparison, Rules, Verdict, judge};
use executor::compare::{Options, compare};

use super::prior::table;

/// For a case whose authors gave no verdict; it is judged, and not counted.
const NOT_STATED: &str = "not stated";

struct Row {
    case: String,
    authors: String,
    result: Option<MetricComparison>,
    remark: String,
}

#[test]
fn the_table_of_cases_is_current() {
    let mut rows = vec![pr_59733()];
    rows.extend(speculation());
    rows.extend(typed_cases());
    rows.extend(without_repeats());
    let text = document(&rows);
    let path = format!("{}/../docs/compare-cases.md", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("K3PLAN_BLESS").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    assert_eq!(std::fs::read_to_string(&path).unwrap(), text, "write it with K3PLAN_BLESS=1");
    for row in &rows {
        let Some(result) = row.result.as_ref().filter(|_| row.authors != NOT_STATED) else { continue };
        let same = agrees(&row.authors, result.verdict);
        assert_eq!(same, row.remark.is_empty(), "{}: {:?} needs a remark or not", row.case, result.verdict);
    }
}

/// Whether a verdict is what the authors said; `inconclusive` and `noise` are the absence of a claim.
fn agrees(authors: &str, verdict: Verdict) -> bool {
    match authors {
        "better" => verdict == Verdict::Better,
        "worse" => verdict == Verdict::Worse,
        _ => matches!(verdict, Verdict::NoDifference | Verdict::NotEnoughData),
    }
}

fn values(metric: &str, a: &[f64], b: &[f64]) -> MetricComparison {
    let arm = |values: &[f64]| {
        // Published repeats come without their order.
        values
            .iter()
            .map(|value| Observation { in_order: false, ..Observation::bare(value.ln()) })
            .collect::<Vec<_>>()
    };
    judge(&Metric::named(metric).unwrap(), &arm(a), &arm(b), &Rules::STANDARD)
}

fn row(case: &str, authors: &str, result: MetricComparison, remark: &str) -> Row {
    Row {
        case: case.to_owned(),
        authors: authors.to_owned(),
        result: Some(result),
        remark: remark.to_owned(),
    }
}

fn pr_59733() -> Row {
    let a = [11.10, 10.99, 11.18];
    let b = [11.43, 11.44, 11.54];
    let runs = |values: &[f64]| -> Vec<Run> {
        let metric = Metric::named("median_tpot_ms").unwrap();
        values
            .iter()
            .map(|value| Run::new(value.to_string(), Tool::Vllm).with(metric.clone(), *value))
            .collect()
    };
    let options =
        Options { metrics: Vec::new(), rules: Rules { pairing: PairingChoice::Auto, ..Rules::STANDARD } };
    let comparison = compare(&runs(&a), &runs(&b), &options).unwrap();
    let result = comparison.points[0].primary[0].clone();
    assert_eq!(comparison.verdict, Verdict::Worse);
    assert!((result.effect - 0.0344).abs() < 0.001, "{}", result.effect);
    let interval = result.interval.unwrap();
    assert!(interval.low > 0.01 && interval.high < 0.06);
    row("vLLM PR 59733, 20 groups against 4", "worse", result, "")
}

/// 32 rows of a table of means and standard deviations with the authors' verdicts.
fn speculation() -> Vec<Row> {
    let runs = table("mimo-spec_comparison.csv");
    let mut rows: Vec<Row> = Vec::new();
    let of = |run: &Run, name: &str| run.labels.get(name).cloned().unwrap_or_default();
    for run in runs.iter().filter(|run| of(run, "side") == "ar" && run.source.ends_with(":1")) {
        let line = run.source.trim_end_matches(":ar:1");
        let side = |side: &str| -> Vec<f64> {
            let prefix = format!("{line}:{side}:");
            runs.iter()
                .filter(|run| run.source.starts_with(&prefix))
                .flat_map(|run| run.figures.values())
                .map(|figure| figure.value)
                .collect()
        };
        let metric = run.figures.keys().next().unwrap().name.clone();
        let result = values(&metric, &side("ar"), &side("arm"));
        let authors = of(run, "verdict");
        let remark = if agrees(&authors, result.verdict) {
            String::new()
        } else if result.effect > 1.0 {
            "every run of B is at least six times every run of A; on the authors' plain scale one slow run of B \
             hides that, on a logarithmic one it does not"
                .to_owned()
        } else {
            format!(
                "p = {:.3}, just under the level; all runs of B are above all of A",
                result.difference.unwrap().p_value
            )
        };
        let case = format!(
            "MiMo-V2.6, {} against none, concurrency {}, {metric}",
            of(run, "arm"),
            of(run, "concurrency")
        );
        rows.push(row(&case, &authors, result, &remark));
    }
    rows
}

fn typed_cases() -> Vec<Row> {
    let six = [35.3, 35.7, 34.7, 35.2, 36.1, 37.1];
    let mut rows = vec![row(
        "Qwen3.8-Flash-Next on GB10, six identical runs, the first three against the last",
        "noise",
        values("output_throughput", &six[..3], &six[3..]),
        "",
    )];
    let points: [(&str, [f64; 3], [f64; 3]); 6] = [
        ("1k c1", [6.31, 6.31, 6.31], [5.85, 5.85, 5.85]),
        ("1k c8", [7.61, 7.61, 7.61], [8.56, 8.56, 8.56]),
        ("16k c1", [6.37, 6.36, 6.37], [5.84, 5.86, 5.86]),
        ("16k c8", [12.73, 12.59, 12.7], [13.1, 12.73, 13.42]),
        ("64k c1", [6.37, 6.36, 6.36], [5.77, 5.77, 5.77]),
        ("64k c8", [34.71, 34.68, 34.57], [30.46, 29.36, 31.09]),
    ];
    for (point, fp8, bf16) in points {
        let result = values("median_tpot_ms", &fp8, &bf16);
        let case = format!("Qwen3.8-Flash-Next, BF16 against FP8, {point}, median TPOT");
        rows.push(row(&case, NOT_STATED, result, "the authors give the runs and no verdict"));
    }
    rows
}

/// Cases that were published as one figure an arm, or none.
fn without_repeats() -> Vec<Row> {
    let one = |case: &str, authors: &str, metric: &str, a: f64, b: f64| {
        row(
            case,
            authors,
            values(metric, &[a], &[b]),
            "one run an arm was published, which cannot tell noise from effect",
        )
    };
    let none = |case: &str, authors: &str, remark: &str| Row {
        case: case.to_owned(),
        authors: authors.to_owned(),
        result: None,
        remark: remark.to_owned(),
    };
    let mut rows = vec![
        one("ROCm/ATOM 970, 10000/1000, concurrency 4, TPOT", "better", "mean_tpot_ms", 16.18, 15.4),
        one("tpu-inference 2627, batched RPA", "better", "output_throughput", 4800.0, 5170.62),
        one("1Cat-vLLM 491, C4x64K", "better", "output_throughput", 110.132, 119.431),
    ];
    let metric = "output_throughput";
    rows.push(row(
        "1Cat-vLLM 361, one control against three repeats",
        "better",
        values(metric, &[77.370_242], &[82.252_144, 82.275_049, 82.295_61]),
        "the control was run once",
    ));
    let mut node =
        one("MiMo-V2.6, same build on another node, 16k c8, TPOT", "noise", "median_tpot_ms", 20.16, 17.71);
    node.remark = String::new();
    rows.push(node);
    let mut pool =
        one("DeepSeek-V4.1, KV pool of 8 GiB against 4, generation at 16k", "noise", metric, 24.0, 28.0);
    pool.remark = String::new();
    rows.push(pool);
    for (case, authors, remark) in [
        ("InferenceX, Rust frontend", "no TPOT change", "ratios only (within 0.5%), no runs"),
        ("InferenceX, run-to-run noise", "noise", "a range only (1 to 5%), no runs"),
        ("InferenceX, Kimi-K3 with DSpark level 7", "worse", "a range only (-20 to -63%), no runs"),
        ("vLLM 17866, fast decode path", "better", "one arm and a rough ratio (-10%), no second arm"),
        ("H100 repeats of three models", NOT_STATED, "repeats of single arms: they give the noise prior"),
        ("vLLM 57756", NOT_STATED, "the method only, no table"),
        ("vLLM 35520", NOT_STATED, "one arm"),
        ("vllm-ascend 14454", NOT_STATED, "one arm"),
        (
            "vLLM 43308, club3090 1170, MiMo-V2.6 launch to launch",
            NOT_STATED,
            "sizes of the KV cache, no speed",
        ),
        (
            "perf-eval 59, llm-d-benchmark 701, the H100 bench.json",
            NOT_STATED,
            "a layout of files, which is read",
        ),
    ] {
        rows.push(none(case, authors, remark));
    }
    rows
}

fn document(rows: &[Row]) -> String {
    let mut text = String::from(
        "# Public A/B cases\n\n\
         Written by `executor/tests/compare/cases.rs`. Effect, interval and p at the level of docs/compare.md.\n\
         *same* says whether our verdict is the authors'; *inconclusive* and *noise* are the absence of a claim.\n\n\
         | case | authors | ours | effect | 96% interval | p | same | why not |\n\
         |---|---|---|---:|---:|---:|---|---|\n",
    );
    for row in rows {
        let (mut ours, mut effect, mut interval, mut p_value, mut same) =
            ("-", String::new(), String::new(), String::new(), "-");
        if let Some(result) = &row.result {
            ours = result.verdict.words();
            let stated = row.authors != NOT_STATED;
            same = if !stated {
                "-"
            } else if agrees(&row.authors, result.verdict) {
                "yes"
            } else {
                "no"
            };
            effect = format!("{:+.1}%", result.effect * 100.0);
            if let (Some(found), Some(test)) = (result.interval, result.difference) {
                interval = format!("{:+.1} to {:+.1}", found.low * 100.0, found.high * 100.0);
                p_value = format!("{:.4}", test.p_value);
            }
        }
        writeln!(
            text,
            "| {} | {} | {ours} | {effect} | {interval} | {p_value} | {same} | {} |",
            row.case, row.authors, row.remark
        )
        .unwrap();
    }
    let judged = rows.iter().filter(|row| row.result.is_some() && row.authors != NOT_STATED).count();
    let same = rows
        .iter()
        .filter(|row| {
            row.authors != NOT_STATED
                && row.result.as_ref().is_some_and(|result| agrees(&row.authors, result.verdict))
        })
        .count();
    writeln!(
        text,
        "\n{same} of {judged} cases with runs and a verdict of the authors have theirs; {} have no runs or no verdict.",
        rows.len() - judged
    )
    .unwrap();
    text
}
