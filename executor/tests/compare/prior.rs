//! The noise prior is what the public repeats say.

use std::collections::BTreeMap;

use executor::compare::metric::Metric;
use executor::compare::noise_floor::PRIOR_SD;
use executor::compare::read::read;
use executor::compare::run::Run;

pub(crate) fn table(name: &str) -> Vec<Run> {
    let path = format!("{}/tests/data/compare/{name}", env!("CARGO_MANIFEST_DIR"));
    read(name, &std::fs::read_to_string(path).unwrap()).unwrap()
}

/// Standard deviations of the logarithm, one for each point with three repeats.
fn spreads(runs: &[Run], metric: &str, labels: &[&str]) -> Vec<f64> {
    let metric = Metric::named(metric).unwrap();
    let mut points: BTreeMap<Vec<&str>, Vec<f64>> = BTreeMap::new();
    for run in runs {
        if let Some(figure) = run.figures.get(&metric) {
            let key = labels.iter().filter_map(|label| run.labels.get(*label)).map(String::as_str).collect();
            points.entry(key).or_default().push(figure.value.ln());
        }
    }
    let of = |values: &Vec<f64>| {
        let mean = values.iter().sum::<f64>() / 3.0;
        (values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / 2.0).sqrt()
    };
    points.values().filter(|values| values.len() == 3).map(of).collect()
}

#[test]
fn the_prior_is_the_upper_quartile_of_public_repeats() {
    let repeats = table("h100-serving-repeats.csv");
    let labels = ["model", "bucket", "concurrency"];
    let mut all = spreads(&repeats, "median_tpot_ms", &labels);
    all.extend(spreads(&repeats, "mean_tpot_ms", &labels));
    // Both arms of the speculation table share the runs without speculation: one of them.
    let without: Vec<Run> = table("mimo-spec_comparison.csv")
        .into_iter()
        .filter(|run| {
            let label = |name: &str| run.labels.get(name).map(String::as_str);
            label("side") == Some("ar") && label("arm") == Some("mtp-k3")
        })
        .collect();
    all.extend(spreads(&without, "median_tpot_ms", &["concurrency"]));
    all.sort_by(f64::total_cmp);
    let place = all.len() * 3 / 4;
    let quartile = f64::midpoint(all[place - 1], all[place]);
    assert!((quartile / PRIOR_SD - 1.0).abs() < 0.15, "{quartile} of {}", all.len());
}
