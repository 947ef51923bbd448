//! `k3plan diff`: what moved between two plans, or over engine versions.

use std::collections::BTreeMap;

use planner::explain::{Numbers, Responsible, Step, responsible, steps};
use planner::{EngineVersion, GroupingError, Plan};
use schemars::JsonSchema;
use serde::Serialize;

use crate::cli::Ended;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::lock::{Entry, Metric, Moved};
use crate::render::plan_text::{count, kind_words};
use crate::render::table::{Side, Table};
use crate::render::words::{arrow, arrow_concurrency, wrap};
use crate::scenario::{Changes, Scenario};
use crate::terminal::{Style, Terminal};

/// Show what moved between two plans, or over engine versions
///
/// Two files, arms or recorded cases; or one with `--engines 0.24..0.33`, which names the version in which
/// its plan changed. Exit code 1 if anything differs.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The first scenario; with `--engines` the only one.
    #[arg(value_name = "A")]
    a: String,

    /// The second scenario.
    #[arg(value_name = "B", required_unless_present = "engines", conflicts_with = "engines")]
    b: Option<String>,

    /// Walk these versions and name the one where the plan changed, such as `0.24..0.33`.
    #[arg(long, value_name = "FROM..TO")]
    engines: Option<String>,

    #[command(flatten)]
    changes: Changes,

    /// Print the difference as JSON.
    #[arg(long)]
    json: bool,
}

/// Runs the subcommand.
pub(crate) fn run(args: &Args, terminal: &mut Terminal<'_>) -> Result<Exit, Ended> {
    match (&args.engines, &args.b) {
        (Some(range), _) => over_versions(args, range, terminal),
        (None, Some(b)) => two(args, b, terminal),
        (None, None) => Err(Failure::new("failed to compare one scenario with nothing")
            .hint("name a second one, or `--engines 0.24..0.33`")
            .into()),
    }
}

fn one(changes: &Changes, name: &str) -> Result<Scenario, Failure> {
    let mut all = changes.load(name)?;
    if all.len() > 1 {
        let names: Vec<String> = all.iter().take(5).map(|scenario| format!("`{}`", scenario.name)).collect();
        return Err(Failure::new(format!("failed to compare `{name}`"))
            .caused_by(format!("it holds {} scenarios: {}", all.len(), names.join(", ")))
            .hint("name one of them, or `FILE#NAME`"));
    }
    all.pop().ok_or_else(|| Failure::new(format!("failed to compare `{name}`: it holds no scenario")))
}

/// One side of a comparison.
struct Planned {
    scenario: Scenario,
    plan: Result<Plan, GroupingError>,
}

impl Planned {
    fn of(scenario: Scenario) -> Self {
        let plan = planner::plan(&scenario.model, &scenario.settings, &scenario.engine().rules());
        Self { scenario, plan }
    }

    fn entry(&self) -> Entry {
        Entry::of(self.plan.as_ref())
    }

    fn label(&self) -> String {
        format!("{} (vLLM {})", self.scenario.name, self.scenario.engine())
    }

    /// What each group is, and how many are alike.
    fn groups(&self) -> BTreeMap<(String, u64, u64), u64> {
        let mut kinds = BTreeMap::new();
        if let Ok(plan) = &self.plan {
            for group in &plan.grouping.groups {
                let key = (
                    kind_words(&plan.grouping, &group.spec),
                    group.layers.len() as u64,
                    plan.grouping.block_size(group),
                );
                *kinds.entry(key).or_insert(0) += 1;
            }
        }
        kinds
    }
}

/// A JSON report of two plans.
#[derive(Serialize, JsonSchema)]
pub(crate) struct DiffReport {
    schema: &'static str,
    a: String,
    b: String,
    equal: bool,
    moved: Vec<MovedJson>,
    groups: Vec<GroupsJson>,
    /// Layers that are together with other layers than before.
    layers_moved: Vec<u32>,
}

#[derive(Serialize, JsonSchema)]
struct MovedJson {
    key: &'static str,
    a: String,
    b: String,
    verdict: &'static str,
}

#[derive(Serialize, JsonSchema)]
struct GroupsJson {
    kind: String,
    layers: u64,
    block_size: u64,
    a: u64,
    b: u64,
}

fn two(args: &Args, b: &str, terminal: &mut Terminal<'_>) -> Result<Exit, Ended> {
    let a = Planned::of(one(&args.changes, &args.a)?);
    let b = Planned::of(one(&args.changes, b)?);
    let moved = a.entry().moved(&b.entry());
    let (a_groups, b_groups) = (a.groups(), b.groups());
    let kinds: std::collections::BTreeSet<_> = a_groups.keys().chain(b_groups.keys()).cloned().collect();
    let layers_moved = layers_moved(&a, &b);
    if args.json {
        let report = DiffReport {
            schema: "k3plan.diff/1",
            a: a.label(),
            b: b.label(),
            equal: moved.is_empty(),
            moved: moved.iter().map(moved_json).collect(),
            groups: kinds
                .iter()
                .map(|key| GroupsJson {
                    kind: key.0.clone(),
                    layers: key.1,
                    block_size: key.2,
                    a: a_groups.get(key).copied().unwrap_or(0),
                    b: b_groups.get(key).copied().unwrap_or(0),
                })
                .collect(),
            layers_moved,
        };
        serde_json::to_writer_pretty(&mut *terminal.out, &report).map_err(std::io::Error::from)?;
        writeln!(terminal.out)?;
    } else if moved.is_empty() {
        writeln!(terminal.out, "{} and {} have the same plan", a.label(), b.label())?;
    } else {
        writeln!(terminal.out, "a: {}", a.label())?;
        writeln!(terminal.out, "b: {}", b.label())?;
        writeln!(terminal.out)?;
        let mut table = Table::new(vec![
            ("groups of", Side::Left),
            ("layers", Side::Right),
            ("block size", Side::Right),
            ("a", Side::Right),
            ("b", Side::Right),
        ]);
        for key in &kinds {
            let (in_a, in_b) =
                (a_groups.get(key).copied().unwrap_or(0), b_groups.get(key).copied().unwrap_or(0));
            if in_a != in_b {
                table.row(vec![
                    key.0.clone(),
                    key.1.to_string(),
                    key.2.to_string(),
                    in_a.to_string(),
                    in_b.to_string(),
                ]);
            }
        }
        if !table.is_empty() {
            table.write(0, terminal)?;
            writeln!(terminal.out)?;
        }
        let mut table =
            Table::new(vec![("", Side::Left), ("a", Side::Right), ("b", Side::Right), ("b is", Side::Left)]);
        for moved in &moved {
            table.row(vec![
                moved.metric.name().to_owned(),
                cut(&moved.shown().0),
                cut(&moved.shown().1),
                moved.verdict.word().to_owned(),
            ]);
        }
        table.write(0, terminal)?;
        if !layers_moved.is_empty() {
            let text = format!(
                "{} keep other company: {}",
                count(layers_moved.len() as u64, "layer"),
                crate::render::number::runs(&layers_moved)
            );
            writeln!(terminal.out, "{}", wrap(&text, 2))?;
        }
    }
    Ok(if moved.is_empty() { Exit::Fine } else { Exit::CheckSaysNo })
}

/// At most 40 characters of a value.
fn cut(text: &str) -> String {
    match text.char_indices().nth(40) {
        Some((at, _)) => format!("{}...", &text[..at]),
        None => text.to_owned(),
    }
}

/// Layers whose group holds other layers in the other plan.
fn layers_moved(a: &Planned, b: &Planned) -> Vec<u32> {
    let (Ok(plan_a), Ok(plan_b)) = (&a.plan, &b.plan) else { return Vec::new() };
    let company = |plan: &Plan| {
        let mut of: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for group in &plan.grouping.groups {
            let mut layers = group.layers.clone();
            layers.sort_unstable();
            for layer in &group.layers {
                of.insert(*layer, layers.clone());
            }
        }
        of
    };
    let (a, b) = (company(plan_a), company(plan_b));
    a.iter()
        .filter(|(layer, with)| b.get(layer).is_some_and(|other| other != *with))
        .map(|(l, _)| *l)
        .collect()
}

fn versions(range: &str) -> Result<Vec<EngineVersion>, Failure> {
    let wrong = || {
        Failure::new(format!("failed to read `--engines {range}`")).hint(format!(
            "write a range such as `{}..{}`",
            EngineVersion::OLDEST,
            EngineVersion::LATEST
        ))
    };
    let (from, to) = range.split_once("..").ok_or_else(wrong)?;
    let to = to.strip_prefix('=').unwrap_or(to);
    let parse = |text: &str, default: EngineVersion| {
        if text.is_empty() {
            Ok(default)
        } else {
            text.parse().map_err(|error: planner::engine::UnknownVersion| wrong().caused_by(error))
        }
    };
    let (from, to) = (parse(from, EngineVersion::OLDEST)?, parse(to, EngineVersion::LATEST)?);
    if from >= to {
        return Err(wrong().caused_by("it holds less than two versions"));
    }
    Ok(EngineVersion::all().filter(|version| (from..=to).contains(version)).collect())
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct WalkReport {
    schema: &'static str,
    scenario: String,
    equal: bool,
    versions: Vec<WalkJson>,
}

#[derive(Serialize, JsonSchema)]
struct WalkJson {
    version: String,
    groups: Option<u64>,
    padding_layers: Option<u64>,
    num_blocks: Option<u64>,
    max_concurrency: Option<f64>,
    /// Whether anything that the plan says is not as in the version before.
    changed: bool,
    /// What, if so: `a` in the version before, `b` in this one.
    moved: Vec<MovedJson>,
    /// Declared fields that this version is the first to know.
    new_fields: Vec<&'static str>,
    /// The rules of this version without which nothing would have moved.
    rules: Vec<&'static str>,
}

/// What a version changed, and by which of its fields and rules.
struct Walked {
    step: Step,
    moved: Vec<Moved>,
    by: Responsible,
}

fn moved_json(moved: &Moved) -> MovedJson {
    MovedJson {
        key: moved.metric.name(),
        a: moved.locked.clone(),
        b: moved.now.clone(),
        verdict: moved.verdict.word(),
    }
}

fn over_versions(args: &Args, range: &str, terminal: &mut Terminal<'_>) -> Result<Exit, Ended> {
    let versions = versions(range)?;
    let scenario = one(&args.changes, &args.a)?;
    let Scenario { model, settings, .. } = &scenario;
    // The whole plan counts, not the groups alone.
    let mut walked: Vec<Walked> = Vec::new();
    let mut last: Option<Entry> = None;
    for mut step in steps(model, settings, versions.iter().copied()) {
        let entry = Entry::of(planner::plan(model, settings, &step.version.rules()).as_ref());
        let moved = last.as_ref().map(|last| last.moved(&entry)).unwrap_or_default();
        step.changed = !moved.is_empty();
        let by = if step.changed {
            responsible(model, settings, &step, |other| !entry.moved(&Entry::of(other)).is_empty())
        } else {
            Responsible::default()
        };
        walked.push(Walked { step, moved, by });
        last = Some(entry);
    }
    let equal = walked.iter().all(|walked| !walked.step.changed);
    if args.json {
        let report = WalkReport {
            schema: "k3plan.diff-engines/1",
            scenario: scenario.name.clone(),
            equal,
            versions: walked.iter().map(walk_json).collect(),
        };
        serde_json::to_writer_pretty(&mut *terminal.out, &report).map_err(std::io::Error::from)?;
        writeln!(terminal.out)?;
        return Ok(if equal { Exit::Fine } else { Exit::CheckSaysNo });
    }
    writeln!(terminal.out, "{}", terminal.paint(Style::Bold, &scenario.name))?;
    let mut table = Table::new(vec![
        ("vLLM", Side::Left),
        ("groups", Side::Left),
        ("padding", Side::Left),
        ("blocks", Side::Left),
        ("blocks/request", Side::Left),
        ("concurrency", Side::Left),
        ("", Side::Left),
    ]);
    for (i, Walked { step, .. }) in walked.iter().enumerate() {
        let before = i.checked_sub(1).and_then(|i| walked[i].step.numbers).or(step.numbers);
        let get = |pick: fn(&Numbers) -> Option<u64>| {
            arrow(before.as_ref().and_then(pick), step.numbers.as_ref().and_then(pick))
        };
        table.row(vec![
            step.version.to_string(),
            get(|numbers| Some(numbers.groups)),
            get(|numbers| numbers.padding_layers),
            get(|numbers| numbers.num_blocks),
            get(|numbers| numbers.blocks_per_request),
            arrow_concurrency(
                before.and_then(|numbers| numbers.max_concurrency),
                step.numbers.and_then(|numbers| numbers.max_concurrency),
            ),
            if step.changed { "changed".to_owned() } else { String::new() },
        ]);
    }
    table.write(2, terminal)?;
    for walked in walked.iter().filter(|walked| walked.step.changed) {
        writeln!(terminal.out)?;
        let text = format!("vLLM {}: {} {}", walked.step.version, what_moved(&walked.moved), because(walked));
        writeln!(terminal.out, "{}", wrap(text.trim_end(), 2))?;
    }
    if equal {
        writeln!(terminal.out, "the plan is the same in every version")?;
    }
    Ok(if equal { Exit::Fine } else { Exit::CheckSaysNo })
}

/// "the groups changed.", or which of the other numbers moved.
fn what_moved(moved: &[Moved]) -> String {
    if moved.iter().any(|moved| moved.metric == Metric::Groups) {
        return "the groups changed.".to_owned();
    }
    let texts: Vec<String> = moved
        .iter()
        .map(|moved| match moved.metric {
            Metric::Fingerprint => {
                "which layers share a group changed, or a group's class, block size, page or blocks a request"
                    .to_owned()
            }
            metric => {
                let (before, after) = moved.shown();
                format!("{} {before} -> {after}", metric.name())
            }
        })
        .collect();
    format!("{}.", texts.join(", "))
}

/// What this version brought that made the difference.
fn because(Walked { step, by, .. }: &Walked) -> String {
    let mut text = String::new();
    if !by.fields.is_empty() {
        let fields: Vec<String> = by.fields.iter().map(|field| format!("`{field}`")).collect();
        text.push_str(&format!("It is the first to know {}, which layers declare. ", fields.join(", ")));
    }
    let rules: Vec<&str> = by.rules.iter().map(|change| change.what).collect();
    if !rules.is_empty() {
        text.push_str(&format!(
            "By its {}: {}",
            if rules.len() == 1 { "rule" } else { "rules" },
            rules.join(" ")
        ));
    }
    if text.is_empty() {
        // Only together do they make the difference.
        let all: Vec<&str> = step.rule_changes().map(|change| change.what).collect();
        text = format!("By several of its rules together: {}", all.join(" "));
    }
    text
}

fn walk_json(Walked { step, moved, by }: &Walked) -> WalkJson {
    WalkJson {
        version: step.version.to_string(),
        groups: step.numbers.map(|numbers| numbers.groups),
        padding_layers: step.numbers.and_then(|numbers| numbers.padding_layers),
        num_blocks: step.numbers.and_then(|numbers| numbers.num_blocks),
        max_concurrency: step.numbers.and_then(|numbers| numbers.max_concurrency),
        changed: step.changed,
        moved: moved.iter().map(moved_json).collect(),
        new_fields: step.new_fields.iter().map(|field| field.name()).collect(),
        rules: by.rules.iter().map(|change| change.what).collect(),
    }
}
