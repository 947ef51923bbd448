//! An experiment file: its arms, its load, its order, as written.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args as _, FromArgMatches as _};
use serde::Deserialize;
use serde_json::Value;

use crate::commands::bench::hidden::{is_secret, without_keys};
use crate::commands::bench::load_args::LoadArgs;
use crate::commands::bench::serve::parse_target;
use crate::failure::Failure;

/// The whole file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Experiment {
    pub(super) title: String,
    /// Where the experiment comes from.
    pub(super) source: Option<String>,
    pub(super) date: Option<String>,
    /// Name of the model in requests; the server's first when not given.
    pub(super) model: Option<String>,
    /// Flags of `bench serve`, with underscores.
    load: BTreeMap<String, Value>,
    pub(super) seeds: Vec<u64>,
    #[serde(default = "one")]
    pub(super) repeats: usize,
    #[serde(default)]
    pub(super) order: Order,
    /// How often every server is started anew. Each start is measured with every seed and repeat; `compare` pools
    /// these rounds, since what differs from start to start is noise that more rounds of one start do not show.
    pub(super) starts: Option<usize>,
    /// Whether all servers run at the same time, from the first step to the last.
    #[serde(default)]
    pub(super) keep_running: bool,
    #[serde(default)]
    pub(super) health: Health,
    pub(super) arms: Vec<Arm>,
}

fn one() -> usize {
    1
}

/// In which order arms and seeds take turns.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Order {
    /// All of the first arm, then all of the second.
    BackToBack,
    /// Every arm with a seed, then every arm with the next.
    Interleaved,
    /// As interleaved, every second round backwards: a drift meets all arms alike.
    #[default]
    Abba,
}

/// When a server counts as up.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Health {
    /// Answers 200 when the server is up.
    pub(super) path: String,
    /// Seconds to wait for that.
    pub(super) timeout_seconds: f64,
    /// Seconds to wait for a server to end before it is killed.
    pub(super) stop_seconds: f64,
}

impl Default for Health {
    fn default() -> Self {
        Self { path: "/health".to_owned(), timeout_seconds: 1800.0, stop_seconds: 60.0 }
    }
}

impl Health {
    /// How long to wait for a server.
    pub(super) fn timeout(&self) -> Duration {
        Duration::try_from_secs_f64(self.timeout_seconds).unwrap_or(Duration::MAX)
    }

    /// How long to wait for a server to end.
    pub(super) fn patience(&self) -> Duration {
        Duration::try_from_secs_f64(self.stop_seconds).unwrap_or(Duration::MAX)
    }

    fn check(&self) -> Result<(), String> {
        if !self.path.starts_with('/') {
            return Err(format!("`health.path` is `{}` and must begin with `/`", self.path));
        }
        if !self.path.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err("`health.path` holds what no path can".to_owned());
        }
        for (name, value) in [("timeout_seconds", self.timeout_seconds), ("stop_seconds", self.stop_seconds)]
        {
            if !(value >= 0.0 && value.is_finite()) {
                return Err(format!("`health.{name}` is {value} and must be a time in seconds"));
            }
        }
        Ok(())
    }
}

/// One way to serve the model.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Arm {
    pub(super) name: String,
    /// Program and arguments that start the server; `{port}` is replaced, `${NAME}` is taken from the
    /// environment.
    pub(super) command: Option<Vec<String>>,
    pub(super) port: Option<u16>,
    /// The server's address, when it is not on the port of this machine.
    pub(super) url: Option<String>,
    #[serde(default)]
    pub(super) env: BTreeMap<String, String>,
    pub(super) folder: Option<PathBuf>,
    /// How many KV cache groups the plan says.
    pub(super) expected_groups: Option<usize>,
    /// Words of `k3plan plan` that plan this arm's model: its groups are held to the plan.
    pub(super) plan: Option<Vec<String>>,
    /// Log of a server that is not started here.
    pub(super) log: Option<PathBuf>,
    /// What differs from the other arms.
    pub(super) note: Option<String>,
}

/// One measurement of an experiment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) arm: usize,
    pub(super) seed: u64,
    pub(super) repeat: usize,
    /// Which start of the server, from 0; `None` where the experiment does not count them.
    pub(super) start: Option<usize>,
}

/// What the parser says, with the place in the file.
fn unreadable(failure: Failure, path: &Path, error: &serde_saphyr::Error) -> Failure {
    let text = error.to_string();
    let said = text.lines().next().unwrap_or("");
    let said = said.strip_prefix("error: ").unwrap_or(said);
    let said = said.split_once(" at line ").map_or(said, |(said, _)| said);
    let cause = match error {
        serde_saphyr::Error::DuplicateMappingKey { key: Some(key), .. } => format!("`{key}` is given twice"),
        // The place follows in the excerpt.
        _ if said.starts_with("line ") => said.split_once(": ").map_or(said, |(_, cause)| cause).to_owned(),
        _ => said.to_owned(),
    };
    // A value that has the wrong type may be a key.
    let cause = match (cause.find("string \""), cause.rfind('"')) {
        (Some(begin), Some(end)) => {
            format!("{}string{}", cause.get(..begin).unwrap_or(""), cause.get(end + 1..).unwrap_or(""))
        }
        _ => cause,
    };
    let failure = failure.caused_by(cause);
    match error.location() {
        Some(place) => failure.at(format!("--> {}:{}:{}", path.display(), place.line(), place.column())),
        None => failure,
    }
}

impl Experiment {
    /// Reads a file's text; `path` is for what errors say.
    pub(super) fn read(path: &Path, text: &str) -> Result<Self, Failure> {
        let failed = || Failure::new(format!("failed to read the experiment `{}`", path.display()));
        // The lines around a mistake may hold keys, and are not shown.
        let options = serde_saphyr::options! { with_snippet: false };
        let experiment: Self = serde_saphyr::from_str_with_options(text, options)
            .map_err(|error| unreadable(failed(), path, &error))?;
        experiment.health.check().map_err(|what| failed().caused_by(what))?;
        let wrong = |what: String| Err(failed().caused_by(what));
        if experiment.arms.is_empty() || experiment.seeds.is_empty() || experiment.repeats == 0 {
            return wrong("it has no arms, no seeds or no repeats".to_owned());
        }
        if let Some(starts) = experiment.starts {
            if starts == 0 {
                return wrong("`starts` is 0".to_owned());
            }
            if let Some(arm) = experiment.arms.iter().find(|arm| arm.command.is_none()) {
                return wrong(format!(
                    "`starts` needs a `command` of every arm, and `{}` has none",
                    arm.name
                ));
            }
        }
        let mut names = std::collections::BTreeSet::new();
        for arm in &experiment.arms {
            let fits = |name: &str| {
                !name.is_empty()
                    && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
            };
            if !fits(&arm.name) || !names.insert(&arm.name) {
                return wrong(format!(
                    "the arm name `{}` is taken twice or cannot be a file's name",
                    arm.name
                ));
            }
            if arm.port.is_none() && arm.url.is_none() {
                return wrong(format!("the arm `{}` has neither `port` nor `url`", arm.name));
            }
            parse_target(&arm.address())?;
            let expects = arm.expected_groups.is_some() || arm.plan.is_some();
            if expects && arm.command.is_none() && arm.log.is_none() {
                return wrong(format!(
                    "the arm `{}` expects groups but has no `log` to read them from",
                    arm.name
                ));
            }
        }
        experiment.load_args()?.check_bounds()?;
        experiment.check_steps().map_err(|what| failed().caused_by(what))?;
        Ok(experiment)
    }

    /// The load, read by the same parser as the flags.
    pub(super) fn load_args(&self) -> Result<LoadArgs, Failure> {
        let words = std::iter::once("load".to_owned()).chain(self.load_words());
        let command = LoadArgs::augment_args(clap::Command::new("load").no_binary_name(false));
        let failed = |error: &clap::Error| {
            let text = error.to_string();
            let first = text.lines().next().unwrap_or("").trim_start_matches("error: ").to_owned();
            Failure::new("failed to read the experiment's `load`")
                .caused_by(first)
                .hint("its names are the flags of `k3plan bench serve`, with underscores")
        };
        let matches = command.try_get_matches_from(words).map_err(|error| failed(&error))?;
        LoadArgs::from_arg_matches(&matches).map_err(|error| failed(&error))
    }

    /// The load as flags of `k3plan bench serve`.
    pub(super) fn load_words(&self) -> Vec<String> {
        let mut words = Vec::new();
        for (name, value) in &self.load {
            let flag = format!("--{}", name.replace('_', "-"));
            match value {
                Value::Bool(true) => words.push(flag),
                Value::Bool(false) | Value::Null => {}
                Value::String(text) => words.push(format!("{flag}={text}")),
                Value::Array(items) => {
                    for item in items {
                        let text = item.as_str().map_or_else(|| item.to_string(), str::to_owned);
                        words.push(format!("{flag}={text}"));
                    }
                }
                other => words.push(format!("{flag}={other}")),
            }
        }
        words
    }

    /// Whether the steps are as many as an experiment can have.
    fn check_steps(&self) -> Result<(), String> {
        const MOST: usize = 100_000;
        let counts = [self.repeats, self.seeds.len(), self.arms.len(), self.starts.unwrap_or(1)];
        let steps = counts.into_iter().try_fold(1_usize, usize::checked_mul).filter(|steps| *steps <= MOST);
        steps.map(drop).ok_or_else(|| format!("it has more than {MOST} measurements"))
    }

    /// All measurements, in order.
    pub(super) fn steps(&self) -> Vec<Step> {
        let Some(starts) = self.starts else { return self.turns(self.order, None, false) };
        // One server at a time: all rounds of a start come in a row, and the arms take turns start by start.
        let within = if self.keep_running { self.order } else { Order::BackToBack };
        let one = |start: usize| self.turns(within, Some(start), self.order == Order::Abba && start % 2 == 1);
        if self.order == Order::BackToBack {
            let arms = 0..self.arms.len();
            let of_arm = |arm| (0..starts).flat_map(one).filter(move |step| step.arm == arm);
            return arms.flat_map(of_arm).collect();
        }
        (0..starts).flat_map(one).collect()
    }

    /// The measurements of one start, from the first arm on or `backwards` from the last.
    fn turns(&self, order: Order, start: Option<usize>, backwards: bool) -> Vec<Step> {
        let rounds: Vec<(usize, u64)> =
            (0..self.repeats).flat_map(|repeat| self.seeds.iter().map(move |seed| (repeat, *seed))).collect();
        let step = |arm: usize, (repeat, seed): (usize, u64)| Step { arm, seed, repeat, start };
        let mut arms: Vec<usize> = (0..self.arms.len()).collect();
        if backwards {
            arms.reverse();
        }
        let all = |round: (usize, u64)| arms.iter().map(|arm| step(*arm, round)).collect::<Vec<_>>();
        match order {
            Order::BackToBack => {
                arms.iter().flat_map(|arm| rounds.iter().map(|round| step(*arm, *round))).collect()
            }
            Order::Interleaved => rounds.iter().flat_map(|round| all(*round)).collect(),
            Order::Abba => {
                let turn = |(place, round): (usize, &(usize, u64))| {
                    let forward = all(*round);
                    if place % 2 == 0 { forward } else { forward.into_iter().rev().collect() }
                };
                rounds.iter().enumerate().flat_map(turn).collect()
            }
        }
    }
}

impl Arm {
    /// The address of its server.
    pub(super) fn address(&self) -> String {
        self.url.clone().unwrap_or_else(|| format!("http://127.0.0.1:{}", self.port.unwrap_or(8000)))
    }

    /// The command with everything filled in.
    pub(super) fn filled_command(&self) -> Result<Option<Vec<String>>, Failure> {
        let Some(command) = &self.command else { return Ok(None) };
        let port = self.port.map_or(String::new(), |port| port.to_string());
        let words = command.iter().map(|word| word.replace("{port}", &port));
        self.filled(words).map(Some)
    }

    /// The environment with everything filled in.
    pub(super) fn filled_environment(&self) -> Result<Vec<(String, String)>, Failure> {
        let pairs = self.env.iter();
        pairs
            .map(|(name, value)| Ok((name.clone(), self.fill(value, &|name| std::env::var(name).ok())?)))
            .collect()
    }

    /// The words of its plan with everything filled in.
    pub(super) fn filled_plan(&self) -> Result<Option<Vec<String>>, Failure> {
        let Some(plan) = &self.plan else { return Ok(None) };
        self.filled(plan.iter().cloned()).map(Some)
    }

    /// Words with names filled in from the arm's environment, else from ours.
    fn filled(&self, words: impl Iterator<Item = String>) -> Result<Vec<String>, Failure> {
        let own = self.filled_environment()?;
        let look_up = |name: &str| {
            let found = own.iter().find(|(own, _)| own == name);
            found.map(|(_, value)| value.clone()).or_else(|| std::env::var(name).ok())
        };
        words.map(|word| self.fill(&word, &look_up)).collect()
    }

    /// Replaces each `${NAME}`.
    fn fill(&self, word: &str, look_up: &dyn Fn(&str) -> Option<String>) -> Result<String, Failure> {
        let mut filled = String::new();
        let mut rest = word;
        while let Some((before, after)) = rest.split_once("${") {
            let Some((name, after)) = after.split_once('}') else { break };
            let value = look_up(name).ok_or_else(|| {
                Failure::new(format!("failed to start the arm `{}`", self.name))
                    .caused_by(format!("its command or environment names `${{{name}}}`, which is not set"))
                    .hint(format!("set the environment variable `{name}`"))
            })?;
            filled.push_str(before);
            filled.push_str(&value);
            rest = after;
        }
        filled.push_str(rest);
        Ok(filled)
    }

    /// The command as it may be shown: as written, so that what came from the environment stays there, and
    /// without keys.
    pub(super) fn shown_command(&self) -> Option<String> {
        let words: Vec<String> =
            self.command.as_ref()?.iter().map(|word| self.without_own_keys(word)).collect();
        Some(without_keys(words.iter().map(String::as_str)))
    }

    /// Environment and command as they will be run, without keys; names that are not set stay, and are listed.
    pub(super) fn previewed_command(
        &self,
        unset: &mut std::collections::BTreeSet<String>,
    ) -> Option<Vec<String>> {
        let seen = std::cell::RefCell::new(unset);
        let from_outside = |name: &str| {
            let value = if is_secret(name) { Some("[hidden]".to_owned()) } else { std::env::var(name).ok() };
            Some(value.unwrap_or_else(|| {
                seen.borrow_mut().insert(name.to_owned());
                format!("${{{name}}}")
            }))
        };
        let fill = |word: &str, look_up: &dyn Fn(&str) -> Option<String>| {
            self.fill(word, look_up).unwrap_or_else(|_always_known| word.to_owned())
        };
        let own: BTreeMap<&String, String> =
            self.env.iter().map(|(name, value)| (name, fill(value, &from_outside))).collect();
        let look_up = |name: &str| {
            let found = own.get(&name.to_owned()).cloned();
            found.filter(|_| !is_secret(name)).or_else(|| from_outside(name))
        };
        let port = self.port.map_or(String::new(), |port| port.to_string());
        let words = self.command.as_ref()?.iter().map(|word| fill(&word.replace("{port}", &port), &look_up));
        let environment = own.iter().map(|(name, value)| {
            let value = if is_secret(name) { "[hidden]" } else { value };
            format!("{name}={}", quoted(value))
        });
        let words: Vec<String> = words.map(|word| quoted(&self.without_own_keys(&word))).collect();
        let words = without_keys(words.iter().map(String::as_str));
        Some(environment.chain([words]).collect())
    }

    /// A text without the keys that the arm's environment holds.
    fn without_own_keys(&self, text: &str) -> String {
        let keys = self.env.iter().filter(|(name, value)| is_secret(name) && value.len() >= 4);
        keys.fold(text.to_owned(), |text, (_, key)| text.replace(key, "[hidden]"))
    }

    /// The environment as it may be shown.
    pub(super) fn shown_environment(&self) -> String {
        let pairs = self.env.iter().map(|(name, value)| {
            let pair = format!("{name}={}", self.without_own_keys(value));
            without_keys(std::iter::once(pair.as_str()))
        });
        pairs.collect::<Vec<_>>().join(" ")
    }
}

/// A word as a shell takes it.
fn quoted(word: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_@%+=:,./-".contains(&byte);
    if !word.is_empty() && word.bytes().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Experiment, Failure> {
        Experiment::read(Path::new("e.yaml"), text)
    }

    fn experiment(order: &str, more: &str) -> Result<Experiment, Failure> {
        read(&format!(
            "title: t\nsource: s\ndate: 2026-01-01\nseeds: [1, 2]\norder: {order}\n\
             load: {{num_prompts: 4, ignore_eos: true, request_rate: inf, extra_body: '{{\"n\": 1}}'}}\n\
             arms:\n  - {{name: a, port: 1}}\n  - {{name: b, url: 'http://h:2'}}\n{more}"
        ))
    }

    #[test]
    fn orders() {
        let order = |name: &str| -> Vec<(usize, u64)> {
            experiment(name, "").unwrap().steps().iter().map(|step| (step.arm, step.seed)).collect()
        };
        assert_eq!(order("back_to_back"), [(0, 1), (0, 2), (1, 1), (1, 2)]);
        assert_eq!(order("interleaved"), [(0, 1), (1, 1), (0, 2), (1, 2)]);
        assert_eq!(order("abba"), [(0, 1), (1, 1), (1, 2), (0, 2)]);
    }

    #[test]
    fn orders_of_several_starts() {
        let order = |order: &str, more: &str| -> Vec<(usize, usize, u64)> {
            let text = format!(
                "title: t\nsource: s\ndate: d\nseeds: [1, 2]\nstarts: 2\norder: {order}\nload: {{}}\n{more}arms:\n  \
                 - {{name: a, port: 1, command: [x]}}\n  - {{name: b, port: 2, command: [x]}}\n"
            );
            let steps = read(&text).unwrap().steps();
            steps.iter().map(|step| (step.start.unwrap(), step.arm, step.seed)).collect()
        };
        let in_rows =
            [(0, 0, 1), (0, 0, 2), (0, 1, 1), (0, 1, 2), (1, 1, 1), (1, 1, 2), (1, 0, 1), (1, 0, 2)];
        assert_eq!(order("abba", ""), in_rows);
        let together =
            [(0, 0, 1), (0, 1, 1), (0, 1, 2), (0, 0, 2), (1, 1, 1), (1, 0, 1), (1, 0, 2), (1, 1, 2)];
        assert_eq!(order("abba", "keep_running: true\n"), together);
        let arms = order("back_to_back", "");
        assert!(arms.iter().map(|(_, arm, _)| arm).is_sorted());
        assert!(experiment("abba", "starts: 2\n").is_err(), "servers that are not started here");
    }

    #[test]
    fn the_load_is_read_as_flags_are() {
        let load = experiment("abba", "").unwrap().load_args().unwrap();
        assert_eq!((load.num_prompts, load.ignore_eos), (4, true));
        assert_eq!(load.extra()["n"], 1);
        let bad = "title: t\nsource: s\ndate: d\nseeds: [1]\norder: abba\nload: {nonsense: 4}\narms: [{name: a, port: 1}]";
        assert!(read(bad).unwrap_err().to_string().contains("--nonsense"));
    }

    #[test]
    fn what_is_refused() {
        for more in [
            "  - {name: a, port: 1}\n",
            "  - {name: c}\n",
            "  - {name: 'c/d', port: 1}\n",
            "  - {name: c, port: 1, expected_groups: 4}\n",
            "surprise: 1\n",
            "health: {path: health}\n",
            "health: {timeout_seconds: -3}\n",
            "health: {stop_seconds: .inf}\n",
        ] {
            assert!(experiment("abba", more).is_err(), "{more}");
        }
    }

    #[test]
    fn what_is_wrong_is_shown_in_the_file() {
        let wrong = |text: &str| read(text).unwrap_err().to_string();
        let error = wrong("title: t\nseeds: [1]\nsurprise: 1\narms: []\n");
        assert!(error.contains("failed to read the experiment `e.yaml`"), "{error}");
        assert!(error.contains("caused by: unknown field `surprise`"), "{error}");
        assert!(error.contains("--> e.yaml:3:1"), "{error}");
        let twice = wrong("title: t\ntitle: u\n");
        assert!(twice.contains("caused by: `title` is given twice") && !twice.contains("Policy"), "{twice}");
        assert_eq!(
            experiment("abba", "").unwrap().steps(),
            read("title: t\nseeds: [1, 2]\nload: {}\narms: [{name: a, port: 1}, {name: b, port: 2}]")
                .unwrap()
                .steps(),
            "source, date and order may be left out"
        );
    }

    #[test]
    fn keys_are_not_shown() {
        let arm = Arm {
            name: "a".to_owned(),
            command: Some(
                ["serve", "--api-key", "abc", "--hf-token=def", "--port", "{port}"]
                    .map(str::to_owned)
                    .to_vec(),
            ),
            port: Some(7),
            url: None,
            env: [("HF_TOKEN".to_owned(), "xyz".to_owned()), ("A".to_owned(), "b".to_owned())].into(),
            folder: None,
            expected_groups: None,
            plan: None,
            log: None,
            note: None,
        };
        assert_eq!(
            arm.shown_command().unwrap(),
            "serve --api-key [hidden] --hf-token=[hidden] --port {port}"
        );
        assert_eq!(arm.shown_environment(), "A=b HF_TOKEN=[hidden]");
        assert_eq!(arm.filled_command().unwrap().unwrap()[5], "7");
    }
}
