//! Does the simulator do, step by step, what a recording of vLLM's own scheduler did?
//!
//! A recording is one JSON line: the engine's limits, the groups' specs, the requests, and under
//! `expect` what the real scheduler did in every step.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value};
use thiserror::Error;

use crate::blocks::tokens::Segment;
use crate::engine::{Engine, Policy, SetupError, Speculative};
use crate::group::{Group, Manager, StateMode};
use crate::request::NewRequest;
use crate::scheduler::Scheduler;
use crate::step::Step;

/// One recorded run.
#[derive(Debug, Clone, Deserialize)]
pub struct Recording {
    /// Who answered, such as `vllm 0.32.0`.
    #[serde(default)]
    pub oracle: String,
    /// Its name.
    pub id: String,
    engine: RecordedEngine,
    groups: Vec<Map<String, Value>>,
    requests: Vec<RecordedRequest>,
    #[serde(default)]
    accept: Vec<u32>,
    #[serde(default = "thousand")]
    max_steps: u64,
    expect: Expect,
}

fn thousand() -> u64 {
    1000
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct RecordedEngine {
    max_num_seqs: u32,
    max_num_batched_tokens: u32,
    max_model_len: u32,
    num_blocks: u32,
    #[serde(default)]
    num_speculative_tokens: u32,
    #[serde(default)]
    enable_prefix_caching: bool,
    #[serde(default)]
    async_scheduling: bool,
    policy: Option<String>,
    dcp: Option<u32>,
    watermark: Option<f64>,
    reserve_full_prompt: Option<bool>,
    #[serde(default)]
    long_prefill_token_threshold: u32,
    prefix_cache_retention_interval: Option<u32>,
    prefix_match_unit: Option<u32>,
    block_size: Option<u32>,
    /// The groups' own modes count.
    #[serde(rename = "mamba_cache_mode")]
    _mamba_cache_mode: Option<String>,
    lookahead_tokens: Option<u32>,
    prefill_lookahead_tokens: Option<u32>,
    #[serde(default)]
    eagle_block_drop: bool,
    #[serde(default)]
    drafting_slots: u32,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct RecordedRequest {
    id: String,
    arrival_step: u64,
    prompt_tokens: u32,
    max_tokens: u32,
    #[serde(default)]
    priority: i64,
    prefix: Option<(String, u32)>,
    abort_step: Option<u64>,
    #[serde(default)]
    encoder_tokens: u32,
}

#[derive(Debug, Clone, Deserialize)]
struct Expect {
    #[serde(default)]
    steps: Vec<RecordedStep>,
    #[serde(default)]
    unfinished: Vec<String>,
    error: Option<String>,
}

/// What the real scheduler did in a step.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
struct RecordedStep {
    step: u64,
    scheduled: BTreeMap<String, u32>,
    new: Vec<String>,
    cached_tokens: BTreeMap<String, u32>,
    resumed: Vec<String>,
    preempted: Vec<String>,
    new_blocks: BTreeMap<String, Vec<u32>>,
    free_blocks: u64,
    running: u32,
    waiting: u32,
    #[serde(default)]
    drafts: BTreeMap<String, u32>,
    finished: Vec<String>,
}

/// Why a recording cannot be replayed.
#[derive(Debug, Error)]
pub enum RecordingError {
    /// The line is no recording.
    #[error("not a schedule recording: {0}")]
    Syntax(#[from] serde_json::Error),
    /// A spec's kind, or a mode, is not known.
    #[error("`{id}`: {field} `{value}` is not known")]
    Unknown {
        /// The recording.
        id: String,
        /// Which field.
        field: &'static str,
        /// Its value.
        value: String,
    },
    /// A spec lacks a field.
    #[error("`{id}`: KV cache group {group} has no whole number `{field}`")]
    Missing {
        /// The recording.
        id: String,
        /// 0-based index of the group.
        group: usize,
        /// The field.
        field: &'static str,
    },
    /// A request refers to one that does not come before it.
    #[error(
        "`{id}`: request `{request}` shares a prefix with `{source_request}`, which does not come before it"
    )]
    Prefix {
        /// The recording.
        id: String,
        /// The request.
        request: String,
        /// The one it names.
        source_request: String,
    },
    /// Two requests have one name.
    #[error("`{id}`: request `{request}` comes twice")]
    Duplicate {
        /// The recording.
        id: String,
        /// The name.
        request: String,
    },
    /// The settings do not go together.
    #[error("`{id}`: {source}")]
    Setup {
        /// The recording.
        id: String,
        /// What is wrong.
        source: SetupError,
    },
    /// The real scheduler failed on this case.
    #[error("`{id}`: the recording holds an error of the real scheduler, `{error}`, and no steps")]
    Failed {
        /// The recording.
        id: String,
        /// The error's name.
        error: String,
    },
}

/// The first place where simulation and recording part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// The step.
    pub step: u64,
    /// Which field.
    pub field: &'static str,
    /// What vLLM did.
    pub recorded: String,
    /// What the simulator did.
    pub simulated: String,
}

/// The answer of a replay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replay {
    /// Steps that were simulated.
    pub steps: u64,
    /// Where they differ, if they do.
    pub difference: Option<Difference>,
}

/// The stream that stands for every output token of a recording: they are all the same token.
const OUTPUT: u64 = u64::MAX;
/// Prompt tokens run through this many values, in steps of 13 from a start of each request.
const VOCABULARY: u64 = 31_990;

impl Recording {
    /// Reads a line.
    ///
    /// # Errors
    /// [`RecordingError::Syntax`] if it is no recording.
    pub fn parse(line: &str) -> Result<Self, RecordingError> {
        Ok(serde_json::from_str(line)?)
    }

    /// Whether a line looks like one of these: it has requests.
    pub fn is_one(value: &Value) -> bool {
        value.get("requests").is_some() && value.get("engine").is_some()
    }

    fn unknown(&self, field: &'static str, value: &str) -> RecordingError {
        RecordingError::Unknown { id: self.id.clone(), field, value: value.to_owned() }
    }

    /// The settings it ran under.
    ///
    /// # Errors
    /// [`RecordingError::Unknown`] for a policy that vLLM does not have.
    pub fn engine(&self) -> Result<Engine, RecordingError> {
        let e = &self.engine;
        let policy = match e.policy.as_deref() {
            None | Some("fcfs") => Policy::Fcfs,
            Some("priority") => Policy::Priority,
            Some(other) => return Err(self.unknown("the policy", other)),
        };
        let speculative = (e.num_speculative_tokens > 0).then(|| Speculative {
            tokens: e.num_speculative_tokens,
            lookahead_tokens: e.lookahead_tokens.unwrap_or(0),
            prefill_lookahead_tokens: e.prefill_lookahead_tokens.unwrap_or(0),
            drops_block: e.eagle_block_drop,
            drafting_slots: e.drafting_slots,
        });
        Ok(Engine {
            max_num_seqs: e.max_num_seqs,
            max_num_batched_tokens: e.max_num_batched_tokens,
            max_model_len: e.max_model_len,
            num_blocks: e.num_blocks,
            policy,
            async_scheduling: e.async_scheduling,
            enable_prefix_caching: e.enable_prefix_caching,
            speculative,
            dcp: e.dcp.unwrap_or(1),
            watermark: e.watermark.unwrap_or(0.0),
            reserve_full_prompt: e.reserve_full_prompt.unwrap_or(true),
            long_prefill_token_threshold: e.long_prefill_token_threshold,
            prefix_cache_retention_interval: e.prefix_cache_retention_interval,
            prefix_match_unit: e.prefix_match_unit,
            block_size: e.block_size,
        })
    }

    /// The groups it ran over.
    ///
    /// # Errors
    /// [`RecordingError`] names the field that is missing or not known.
    pub fn groups(&self) -> Result<Vec<Group>, RecordingError> {
        let mut specs: Vec<Map<String, Value>> = Vec::new();
        let mut groups = Vec::with_capacity(self.groups.len());
        for (index, raw) in self.groups.iter().enumerate() {
            let mut fields = raw.clone();
            let layers = fields.remove("layers");
            let is_eagle = fields.remove("is_eagle_group").is_some_and(|flag| flag == Value::Bool(true));
            let spec = specs.iter().position(|other| *other == fields).unwrap_or_else(|| {
                specs.push(fields);
                specs.len() - 1
            });
            let number = |field: &'static str| {
                raw.get(field)
                    .and_then(Value::as_u64)
                    .and_then(|v| u32::try_from(v).ok())
                    .ok_or_else(|| RecordingError::Missing { id: self.id.clone(), group: index, field })
            };
            let optional = |field: &'static str| match raw.get(field) {
                None | Some(Value::Null) => Ok(None),
                Some(_) => number(field).map(Some),
            };
            let kind = raw.get("kind").and_then(Value::as_str).unwrap_or("");
            let manager = match kind {
                "full" | "mla" | "sink" => Manager::Full,
                "sliding" | "sliding_mla" => Manager::SlidingWindow {
                    window: number("sliding_window")?,
                    extra_retained_tokens: optional("extra_retained_tokens")?.unwrap_or(0),
                },
                "chunked" => Manager::ChunkedLocal { chunk: number("attention_chunk_size")? },
                "mamba" => Manager::State {
                    mode: match raw.get("mamba_cache_mode").and_then(Value::as_str).unwrap_or("none") {
                        "none" => StateMode::None,
                        "align" => StateMode::Align,
                        "all" => StateMode::All,
                        other => return Err(self.unknown("the state cache mode", other)),
                    },
                    speculative_blocks: optional("num_speculative_blocks")?.unwrap_or(0),
                    checkpoint_blocks: optional("num_prefill_checkpoint_blocks")?.unwrap_or(0),
                    checkpoint_alignment: optional("prefill_checkpoint_alignment")?,
                },
                "cross" => Manager::Cross,
                "ring" => Manager::Ring,
                other => return Err(self.unknown("the kind", other)),
            };
            let sharded = raw.get("dcp_sharded").and_then(Value::as_bool);
            groups.push(Group {
                manager,
                block_size: number("block_size")?,
                layers: layers
                    .as_ref()
                    .and_then(Value::as_u64)
                    .and_then(|v| u32::try_from(v).ok())
                    .unwrap_or(1),
                page_size_bytes: 0,
                spec: u32::try_from(spec).unwrap_or(u32::MAX),
                eagle: is_eagle,
                dcp_sharded: sharded.unwrap_or(kind != "mamba"),
            });
        }
        Ok(groups)
    }

    /// What each request's prompt is made of.
    fn prompts(&self) -> Result<Vec<Vec<Segment>>, RecordingError> {
        let mut by_name: BTreeMap<&str, usize> = BTreeMap::new();
        let mut prompts: Vec<Vec<Segment>> = Vec::with_capacity(self.requests.len());
        for (index, request) in self.requests.iter().enumerate() {
            let mut prompt = Vec::new();
            let mut shared = 0;
            if let Some((source, tokens)) = &request.prefix {
                let Some(&place) = by_name.get(source.as_str()) else {
                    return Err(RecordingError::Prefix {
                        id: self.id.clone(),
                        request: request.id.clone(),
                        source_request: source.clone(),
                    });
                };
                shared = (*tokens).min(request.prompt_tokens).min(self.requests[place].prompt_tokens);
                for segment in &prompts[place] {
                    let end = segment.end.min(shared);
                    prompt.push(Segment { end, stream: segment.stream });
                    if end == shared {
                        break;
                    }
                }
            }
            // One value in the vocabulary is the token that outputs are made of.
            let stream = index as u64;
            let same = same_as_output(stream);
            if (shared..request.prompt_tokens).contains(&same) {
                prompt.push(Segment { end: same, stream });
                prompt.push(Segment { end: same + 1, stream: OUTPUT });
            }
            prompt.push(Segment { end: request.prompt_tokens, stream });
            prompts.push(prompt);
            if by_name.insert(&request.id, index).is_some() {
                return Err(RecordingError::Duplicate { id: self.id.clone(), request: request.id.clone() });
            }
        }
        Ok(prompts)
    }

    /// Simulates the case and compares every step.
    ///
    /// # Errors
    /// [`RecordingError`] if it cannot be set up.
    pub fn replay(&self) -> Result<Replay, RecordingError> {
        if let Some(error) = &self.expect.error {
            return Err(RecordingError::Failed { id: self.id.clone(), error: error.clone() });
        }
        let groups = self.groups()?;
        let mut run = Run::new(self, &groups)?;
        let mut steps = 0;
        let mut expected = self.expect.steps.iter();
        while run.next() {
            steps += 1;
            let Some(recorded) = expected.next() else {
                let difference = Difference {
                    step: run.step.index,
                    field: "steps",
                    recorded: self.expect.steps.len().to_string(),
                    simulated: format!("more than {}", self.expect.steps.len()),
                };
                return Ok(Replay { steps, difference: Some(difference) });
            };
            let simulated = self.row(&run.step);
            if simulated != *recorded {
                return Ok(Replay { steps, difference: Some(differ(recorded, &simulated)) });
            }
            if run.over {
                break;
            }
        }
        if steps != self.expect.steps.len() as u64 {
            let difference = Difference {
                step: steps,
                field: "steps",
                recorded: self.expect.steps.len().to_string(),
                simulated: steps.to_string(),
            };
            return Ok(Replay { steps, difference: Some(difference) });
        }
        let unfinished = self.names(&run.scheduler.unfinished());
        if unfinished != self.expect.unfinished {
            let difference = Difference {
                step: steps,
                field: "unfinished",
                recorded: self.expect.unfinished.join(" "),
                simulated: unfinished.join(" "),
            };
            return Ok(Replay { steps, difference: Some(difference) });
        }
        Ok(Replay { steps, difference: None })
    }

    /// Simulates the case without comparing, and gives the number of steps: what a benchmark times.
    ///
    /// # Errors
    /// [`RecordingError`] if it cannot be set up.
    pub fn simulate(&self, groups: &[Group]) -> Result<u64, RecordingError> {
        let mut run = Run::new(self, groups)?;
        let mut steps = 0;
        while run.next() {
            steps += 1;
            if run.over {
                break;
            }
        }
        Ok(steps)
    }

    fn name(&self, id: u32) -> String {
        self.requests.get(id as usize).map_or_else(String::new, |request| request.id.clone())
    }

    fn names(&self, ids: &[u32]) -> Vec<String> {
        let mut names: Vec<String> = ids.iter().map(|&id| self.name(id)).collect();
        names.sort();
        names
    }

    fn row(&self, step: &Step) -> RecordedStep {
        let hits = step.new.iter().filter(|(_, tokens)| *tokens > 0);
        let mut new_blocks = BTreeMap::new();
        for part in &step.scheduled {
            let counts = step.new_blocks(part);
            if counts.iter().any(|&(_, count)| count > 0) {
                let each =
                    counts.iter().flat_map(|&(groups, count)| (0..groups).map(move |_| count)).collect();
                new_blocks.insert(self.name(part.id), each);
            }
        }
        let drafts = step.scheduled.iter().filter(|part| part.drafts > 0);
        RecordedStep {
            step: step.index,
            scheduled: step.scheduled.iter().map(|part| (self.name(part.id), part.tokens)).collect(),
            new: step.new.iter().map(|&(id, _)| self.name(id)).collect(),
            cached_tokens: hits.map(|&(id, tokens)| (self.name(id), tokens)).collect(),
            resumed: self.names(&step.resumed.iter().map(|&(id, _)| id).collect::<Vec<_>>()),
            preempted: self.names(&step.preempted),
            new_blocks,
            free_blocks: step.free_blocks,
            running: step.running,
            waiting: step.waiting,
            drafts: drafts.map(|part| (self.name(part.id), part.drafts)).collect(),
            finished: self.names(&step.finished),
        }
    }
}

/// The position at which a request's own token is the one that outputs are made of.
fn same_as_output(request: u64) -> u32 {
    // Own token i is (7919 * request + 13 * i) mod VOCABULARY + 5; outputs are token 7.
    let base = request * 7919 % VOCABULARY;
    let distance = (VOCABULARY + 2 - base) % VOCABULARY;
    u32::try_from(distance * INVERSE % VOCABULARY).unwrap_or(u32::MAX)
}

/// What 13 is multiplied with to give 1.
const INVERSE: u64 = 22147;
const _: () = assert!(INVERSE * 13 % VOCABULARY == 1);

fn differ(recorded: &RecordedStep, simulated: &RecordedStep) -> Difference {
    macro_rules! first {
        ($($field:ident),*) => {
            $(if recorded.$field != simulated.$field {
                return Difference {
                    step: recorded.step,
                    field: stringify!($field),
                    recorded: format!("{:?}", recorded.$field),
                    simulated: format!("{:?}", simulated.$field),
                };
            })*
        };
    }
    let RecordedStep {
        step: _,
        scheduled: _,
        new: _,
        cached_tokens: _,
        resumed: _,
        preempted: _,
        new_blocks: _,
        free_blocks: _,
        running: _,
        waiting: _,
        drafts: _,
        finished: _,
    } = recorded;
    first!(
        preempted,
        scheduled,
        drafts,
        new,
        resumed,
        cached_tokens,
        new_blocks,
        free_blocks,
        running,
        waiting,
        finished,
        step
    );
    Difference { step: recorded.step, field: "step", recorded: String::new(), simulated: String::new() }
}

/// A case as it is stepped through.
struct Run<'a> {
    recording: &'a Recording,
    scheduler: Scheduler,
    step: Step,
    prompts: Vec<Vec<Segment>>,
    ranks: Vec<u32>,
    /// Requests by arrival.
    due: std::iter::Peekable<std::vec::IntoIter<usize>>,
    /// Requests to end from outside, by step.
    aborts: std::iter::Peekable<std::vec::IntoIter<usize>>,
    draft_steps: Vec<usize>,
    number: u64,
    over: bool,
}

impl<'a> Run<'a> {
    fn new(recording: &'a Recording, groups: &[Group]) -> Result<Self, RecordingError> {
        let setup = |source| RecordingError::Setup { id: recording.id.clone(), source };
        let scheduler = Scheduler::new(&recording.engine()?, groups).map_err(setup)?;
        let requests = &recording.requests;
        let mut due: Vec<usize> = (0..requests.len()).collect();
        due.sort_by_key(|&index| requests[index].arrival_step);
        let mut aborts: Vec<usize> =
            (0..requests.len()).filter(|&i| requests[i].abort_step.is_some()).collect();
        aborts.sort_by_key(|&index| requests[index].abort_step);
        let mut by_name: Vec<usize> = (0..requests.len()).collect();
        by_name.sort_by_key(|&index| &requests[index].id);
        let mut ranks = vec![0; requests.len()];
        for (rank, &index) in (0..).zip(&by_name) {
            ranks[index] = rank;
        }
        Ok(Self {
            recording,
            scheduler,
            step: Step::default(),
            prompts: recording.prompts()?,
            ranks,
            due: due.into_iter().peekable(),
            aborts: aborts.into_iter().peekable(),
            draft_steps: vec![0; requests.len()],
            number: 0,
            over: false,
        })
    }

    /// One step; `false` if there is none.
    fn next(&mut self) -> bool {
        let requests = &self.recording.requests;
        if self.number >= self.recording.max_steps {
            return false;
        }
        while let Some(index) = self.due.next_if(|&index| requests[index].arrival_step <= self.number) {
            let request = &requests[index];
            self.scheduler.add(&NewRequest {
                id: u32::try_from(index).unwrap_or(u32::MAX),
                prompt_tokens: request.prompt_tokens,
                max_tokens: request.max_tokens,
                encoder_tokens: request.encoder_tokens,
                priority: request.priority,
                arrival: request.arrival_step,
                rank: self.ranks[index],
                prompt: &self.prompts[index],
                output: OUTPUT,
            });
        }
        while let Some(index) =
            self.aborts.next_if(|&index| requests[index].abort_step.is_some_and(|step| step <= self.number))
        {
            self.scheduler.abort(u32::try_from(index).unwrap_or(u32::MAX));
        }
        if self.scheduler.is_idle() && self.due.peek().is_none() {
            return false;
        }
        let accept = &self.recording.accept;
        let draft_steps = &mut self.draft_steps;
        self.scheduler.schedule(&mut self.step, &mut |id, _computed, _drafts| {
            let count = &mut draft_steps[id as usize];
            let accepted = accept.get(*count % accept.len().max(1)).copied().unwrap_or(0);
            *count += 1;
            accepted
        });
        let back = self.scheduler.complete(&mut self.step);
        self.number += 1;
        self.over = self.step.scheduled.is_empty() && !back && self.due.peek().is_none();
        true
    }
}
