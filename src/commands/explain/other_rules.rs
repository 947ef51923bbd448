//! Which rules of the group size would give fewer groups?

use planner::explain::{Explanation, Numbers, Outcome};
use planner::{Decision, EngineSettings, Rules};

use crate::scenario::Scenario;
use crate::scenario::grouping::{NAMES, parse};

/// The rules that give fewer groups than the chosen one, by name, the fewest groups first; of rules with the same numbers
/// the first.
pub(super) fn fewer_groups(
    scenario: &Scenario,
    rules: &Rules,
    explanation: &Explanation,
) -> Vec<(&'static str, Numbers)> {
    let mut found: Vec<(&'static str, Numbers)> = Vec::new();
    let Outcome::Planned(plan) = &explanation.outcome else { return found };
    if plan.grouping.decision != Decision::UniformPageSize {
        return found;
    }
    for (name, _) in NAMES {
        // A rule that takes a number is in the table of sizes.
        let Ok(rule) = parse(name) else { continue };
        let settings = EngineSettings { group_size_rule: rule, ..scenario.settings.clone() };
        let Ok(other) = planner::plan(&scenario.model, &settings, rules) else { continue };
        let numbers = Numbers::of(&other);
        let fewer = numbers.groups < plan.grouping.groups.len() as u64;
        if fewer && !found.iter().any(|(_, known)| *known == numbers) {
            found.push((name, numbers));
        }
    }
    found.sort_by_key(|(_, numbers)| numbers.groups);
    found
}
