//! What does an lm-eval result say?
//!
//! Shape: `lm_eval/evaluator_utils.py` and `lm_eval/loggers/evaluation_tracker.py`, 0.4.13:
//! `results.TASK["METRIC,FILTER"]` with `METRIC_stderr,FILTER` beside it (a number or `N/A`), and
//! `n-samples.TASK.effective`. Only figures from 0 to 1 that `higher_is_better` does not deny are read.

use serde_json::Value;

use super::ReadError;
use super::fields::{label, seed, share, time};
use crate::compare::metric::Metric;
use crate::compare::run::{Measured, Run, Tool};

/// Metrics that are shares of right answers.
const SHARES: [&str; 6] = ["exact_match", "acc", "acc_norm", "em", "pass@1", "pass_at_1"];

pub(super) fn is_results(document: &Value) -> bool {
    let tasks = document.get("results").and_then(Value::as_object);
    tasks.is_some_and(|tasks| {
        tasks.values().filter_map(Value::as_object).any(|task| task.keys().any(|key| key.contains(',')))
    })
}

pub(super) fn read(file: &str, document: &Value) -> Result<Run, ReadError> {
    let mut run = Run::new(file, Tool::LmEval);
    let path = |path: &[&str]| path.iter().try_fold(document, |value, key| value.get(key));
    run.seed = seed(path(&["config", "random_seed"]));
    run.time = time(path(&["date"]).and_then(Value::as_f64));
    label(&mut run, "model", path(&["model_name"]));
    for (task, figures) in path(&["results"]).and_then(Value::as_object).into_iter().flatten() {
        let questions = path(&["n-samples", task, "effective"]).and_then(Value::as_f64);
        for (key, value) in figures.as_object().into_iter().flatten() {
            let Some((metric, filter)) = key.split_once(',') else { continue };
            if !SHARES.contains(&metric) {
                continue;
            }
            let key = format!("results.{task}.{key}");
            let Some(value) = share(file, &key, value)? else { continue };
            let error_key = format!("{metric}_stderr,{filter}");
            let error = match figures.get(&error_key) {
                Some(error) => share(file, &format!("results.{task}.{error_key}"), error)?,
                None => None,
            };
            let figure = Measured { value, standard_error: standard_error(value, error, questions) };
            run.figures.insert(Metric::accuracy(format!("{task}/{metric},{filter}")), figure);
        }
    }
    Ok(run)
}

/// The standard error that the file states, else the binomial one.
///
/// All right or all wrong has a stated error of 0, which no further run would confirm: one answer more on the
/// other side is assumed then.
fn standard_error(value: f64, stated: Option<f64>, questions: Option<f64>) -> Option<f64> {
    if let Some(error) = stated.filter(|error| *error > 0.0) {
        return Some(error);
    }
    let questions = questions.filter(|questions| *questions > 1.0)?;
    let share = value.clamp(1.0 / (questions + 1.0), questions / (questions + 1.0));
    Some((share * (1.0 - share) / (questions - 1.0)).sqrt())
}
