//! The load generator against servers that are right, slow and broken, all on the loopback.

#![expect(clippy::unwrap_used, reason = "tests")]

#[path = "support/mock.rs"]
mod mock;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use executor::load::arrival::Arrivals;
use executor::load::journal::{Journal, Kept};
use executor::load::record::{FailureKind, TokenCount};
use executor::load::request::{Api, BodyTemplate, CountTokens, PlannedRequest, Prompt};
use executor::load::run::{self, Limits, Load, Outcome};
use executor::load::secret::Secret;
use executor::load::summary::{Goodput, Summary};
use executor::load::target::Target;
use executor::load::tls::Trust;
use mock::Mock;
use serde_json::{Value, json};

fn load(url: &str, model: &str, requests: usize, output_tokens: u32) -> Load {
    let request = PlannedRequest {
        prompt: Prompt::Tokens(vec![5, 6, 7]),
        prompt_tokens: Some(3),
        output_tokens,
        arrival: None,
    };
    Load {
        target: Target::parse(url).unwrap(),
        endpoint: Api::Completions.endpoint().to_owned(),
        template: BodyTemplate::new(
            Api::Completions,
            model,
            true,
            CountTokens::Auto,
            &serde_json::Map::new(),
        ),
        headers: Vec::new(),
        secret: None,
        trust: Trust::System,
        requests: vec![request; requests],
        todo: (0..requests).collect(),
        warmups: Vec::new(),
        due: Vec::new(),
        max_concurrency: None,
        ramp_up_seconds: 0.0,
        limits: Limits {
            connect: Duration::from_secs(20),
            request: Duration::from_secs(60),
            stall: Duration::from_secs(30),
            run: None,
        },
        threads: 1,
        keep_text: false,
        metrics_interval: None,
    }
}

fn run(load: Load, journal: Option<Journal>) -> Outcome {
    let (_keep, cancel) = tokio::sync::watch::channel(false);
    run::run(load, journal, &cancel, &mut |_| {}).unwrap()
}

fn kinds(outcome: &Outcome) -> BTreeMap<Option<FailureKind>, usize> {
    let mut kinds = BTreeMap::new();
    for record in &outcome.records {
        *kinds.entry(record.failure.as_ref().map(|failure| failure.kind)).or_default() += 1;
    }
    kinds
}

#[test]
fn a_fast_stream_is_counted_to_the_last_token() {
    let mock = Mock::start(0);
    for threads in [1, 3] {
        let mut load = load(&mock.url(), "fast", 20, 1000);
        load.max_concurrency = Some(4);
        load.threads = threads;
        load.warmups = load.requests[..3].to_vec();
        load.metrics_interval = Some(Duration::from_millis(500));
        let outcome = run(load, None);
        assert_eq!(kinds(&outcome), [(None, 20)].into());
        for (index, record) in outcome.records.iter().enumerate() {
            assert_eq!((record.index, record.output_tokens, record.itl.len()), (index, 1000, 999));
            assert_eq!((record.prompt_tokens, record.counted_by), (3, TokenCount::Usage));
        }
        assert_eq!((outcome.warmups.sent, outcome.warmups.failed), (3, 0));
        assert_eq!(outcome.samples.last().unwrap().requests_running, Some(2.0));
        let summary = Summary::of(&outcome.records, outcome.duration, &[99.0], &Goodput::default());
        assert_eq!((summary.completed, summary.total_output_tokens), (20, 20_000));
    }
}

#[test]
fn chats_are_counted_as_completions_are() {
    let mock = Mock::start(0);
    let mut load = load(&mock.url(), "fast", 3, 70);
    load.endpoint = Api::Chat.endpoint().to_owned();
    load.template = BodyTemplate::new(Api::Chat, "fast", true, CountTokens::Auto, &serde_json::Map::new());
    load.keep_text = true;
    let outcome = run(load, None);
    assert_eq!(kinds(&outcome), [(None, 3)].into());
    assert_eq!(outcome.records[0].itl.len(), 69);
    assert_eq!(outcome.records[0].text.as_ref().unwrap().len(), 70 * " w343".len());
}

/// Servers keep a queue of 128 to 4,096 connections that they have not accepted yet.
#[test]
fn a_short_listen_queue_takes_all_connections() {
    let mock = Mock::start_with(0, false, 128);
    let mut load = load(&mock.url(), "fast", 600, 3);
    load.max_concurrency = Some(600);
    let outcome = run(load, None);
    assert_eq!(kinds(&outcome), [(None, 600)].into());
    assert!(outcome.records.iter().all(|record| record.connect.is_none()), "opened ahead of the run");
}

#[test]
fn measured_times_are_no_shorter_than_the_true_ones() {
    let mock = Mock::start(0);
    let outcome = run(load(&mock.url(), "timed", 8, 10), None);
    assert_eq!(kinds(&outcome), [(None, 8)].into());
    for record in &outcome.records {
        let first = mock::FIRST.as_secs_f64();
        let all = (mock::FIRST + 9 * mock::NEXT).as_secs_f64();
        assert!(record.ttft.unwrap() >= first - 1e-4, "{record:?}");
        assert!(record.latency >= all - 1e-4, "{record:?}");
        let sum: f64 = record.itl.iter().map(|gap| f64::from(*gap)).sum();
        assert!((record.ttft.unwrap() + sum - record.latency).abs() < 1e-5, "{record:?}");
    }
}

#[test]
fn each_fault_has_its_kind() {
    let mock = Mock::start(0);
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let faults = [
        ("half_utf8", FailureKind::InvalidUtf8),
        ("broken_json", FailureKind::BrokenJson),
        ("server_error", FailureKind::ServerError),
        ("http_429", FailureKind::Http(429)),
        ("http_500", FailureKind::Http(500)),
        ("no-such-model", FailureKind::Http(404)),
        ("reset", FailureKind::Reset),
        ("closed_early", FailureKind::ClosedEarly),
        ("not_http", FailureKind::NotHttp),
        ("endless", FailureKind::Endless),
        ("empty", FailureKind::Empty),
        ("error_200", FailureKind::ServerError),
        ("not_streamed", FailureKind::Empty),
        ("compressed", FailureKind::NotHttp),
        ("large_error", FailureKind::ServerError),
    ];
    for (model, kind) in faults {
        let outcome = run(load(&mock.url(), model, 3, 4), None);
        assert_eq!(kinds(&outcome), [(Some(kind), 3)].into(), "{model}: {:?}", outcome.records[0].failure);
    }
    let outcome = run(load(&format!("http://{closed}"), "fast", 3, 4), None);
    assert_eq!(kinds(&outcome), [(Some(FailureKind::Refused), 3)].into());
    for (model, told) in [
        ("no-such-model", "The model `no-such-model` does not exist."),
        ("server_error", "engine died"),
        ("error_200", "no such LoRA"),
        ("compressed", "the response's body is encoded (gzip), which was not asked for"),
        ("empty", "the answer holds no token"),
        (
            "redirect http://me:word@other.example/v1?key=1",
            "it points to http://other.example/v1, which is not followed.",
        ),
    ] {
        let outcome = run(load(&mock.url(), model, 1, 4), None);
        assert_eq!(outcome.records[0].failure.as_ref().unwrap().detail, told);
    }
    let detail = |model| run(load(&mock.url(), model, 1, 4), None).records[0].failure.clone().unwrap().detail;
    assert!(detail("not_streamed").starts_with("the answer holds no event, but: {\"choices\""));
    assert!(detail("large_error").len() <= 2000);
}

#[test]
fn nothing_hangs_beyond_its_limit() {
    let mock = Mock::start(0);
    let begun = Instant::now();
    for model in ["stall", "silent"] {
        let mut stalled = load(&mock.url(), model, 2, 4);
        stalled.limits.stall = Duration::from_millis(60);
        assert_eq!(kinds(&run(stalled, None)), [(Some(FailureKind::Stalled), 2)].into());
        let mut slow = load(&mock.url(), model, 2, 4);
        slow.limits.request = Duration::from_millis(60);
        assert_eq!(kinds(&run(slow, None)), [(Some(FailureKind::RequestTimeout), 2)].into());
    }
    for model in ["stall", "endless"] {
        let mut long = load(&mock.url(), model, 4, u32::MAX);
        long.max_concurrency = Some(2);
        long.limits.run = Some(Duration::from_millis(80));
        let outcome = run(long, None);
        // What was not begun has no record.
        assert_eq!(kinds(&outcome), [(Some(FailureKind::TimeLimit), 2)].into(), "{model}");
    }
    assert!(begun.elapsed() < Duration::from_secs(20));
}

#[test]
fn a_certificate_that_nobody_signed_is_refused() {
    let mock = Mock::start_tls();
    let url = format!("https://localhost:{}", mock.address.port());
    let outcome = run(load(&url, "fast", 2, 4), None);
    assert_eq!(kinds(&outcome), [(Some(FailureKind::Tls), 2)].into(), "{:?}", outcome.records[0].failure);
}

#[test]
fn a_character_cut_between_two_reads_is_whole() {
    let mock = Mock::start(0);
    let mut load = load(&mock.url(), "half_then_rest", 2, 1);
    load.keep_text = true;
    let outcome = run(load, None);
    assert_eq!(kinds(&outcome), [(None, 2)].into());
    assert_eq!(outcome.records[0].text.as_deref(), Some("\u{20ac}"));
}

#[test]
fn several_tokens_in_an_event_are_several() {
    let mock = Mock::start(0);
    let outcome = run(load(&mock.url(), "several", 1, 6), None);
    let record = &outcome.records[0];
    assert_eq!((record.output_tokens, record.itl.len(), &record.event_tokens), (6, 1, &vec![3, 3]));
}

#[test]
fn traffic_goes_to_the_given_server_only() {
    let (mock, other) = (Mock::start(0), Mock::start(0));
    let outcome = run(load(&mock.url(), &format!("redirect {}", other.url()), 2, 4), None);
    assert_eq!(kinds(&outcome), [(Some(FailureKind::Http(307)), 2)].into());
    assert!(other.seen.heads.lock().unwrap().is_empty());
}

#[test]
fn a_key_is_sent_and_never_kept() {
    let mock = Mock::start(0);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("j");
    let mut load = load(&mock.url(), "http_401", 2, 4);
    load.secret = Some(Secret::new("sk-not-for-you", "test").unwrap());
    let shown = format!("{load:?}");
    let outcome = run(load, Some(Journal::create(&path, &Value::Null, 0.0).unwrap()));
    assert!(mock.seen.heads.lock().unwrap().iter().all(|head| head.contains("Bearer sk-not-for-you")));
    let journal = std::fs::read_to_string(&path).unwrap();
    assert_eq!(journal.matches("told so, [key]").count(), 2);
    assert!(![journal, shown, format!("{:?}", outcome.records)].iter().any(|text| text.contains("sk-not")));
}

#[test]
fn an_open_loop_keeps_its_times() {
    let mock = Mock::start(0);
    let mut load = load(&mock.url(), "fast", 40, 2);
    load.due = Arrivals::Rate { requests_per_second: 400.0, burstiness: 1.0 }.due(40, &[], 7);
    let due = load.due.clone();
    let outcome = run(load, None);
    assert_eq!(kinds(&outcome), [(None, 40)].into());
    for (record, due) in outcome.records.iter().zip(&due) {
        assert!(record.start >= *due, "{record:?} before {due}");
        assert!(
            (record.start - due - record.queue - record.lag - record.connect.unwrap_or(0.0)).abs() < 1e-3
        );
    }
}

fn settings(seed: u64) -> Value {
    json!({"seed": seed, "model": "fast"})
}

fn killed_journal(path: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(path).unwrap();
    text.lines().map(str::to_owned).collect()
}

#[test]
fn a_killed_run_goes_on_where_it_was() {
    let mock = Mock::start(0);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal");
    let whole =
        run(load(&mock.url(), "fast", 6, 8), Some(Journal::create(&path, &settings(1), 5.0).unwrap()));
    assert_eq!(Kept::read(&path).unwrap().records, whole.records);
    // Killed after four requests, in the middle of the fifth line.
    let lines = killed_journal(&path);
    let torn = format!("{}\n{}", lines[..6].join("\n"), &lines[6][..20]);
    std::fs::write(&path, torn).unwrap();
    let kept = Kept::read(&path).unwrap();
    assert_eq!(kept.records.len(), 4);
    let (journal, before) = Journal::resume(&path, &settings(1), 9.0).unwrap();
    let mut rest = load(&mock.url(), "fast", 6, 8);
    rest.todo.retain(|index| !before.records.iter().any(|record| record.index == *index));
    assert_eq!(rest.todo.len(), 2);
    run(rest, Some(journal));
    let kept = Kept::read(&path).unwrap();
    assert_eq!(kept.records.iter().map(|record| record.index).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5]);
    assert_eq!(kept.parts, [5.0, 9.0]);
    assert!(kept.duration > 0.0);
}

#[test]
fn a_journal_of_another_load_is_not_mixed_in() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal");
    Journal::create(&path, &settings(1), 0.0).unwrap();
    assert!(Journal::create(&path, &settings(1), 0.0).unwrap_err().to_string().contains("exists"));
    let error = Journal::resume(&path, &settings(2), 0.0).unwrap_err().to_string();
    assert!(error.ends_with("`seed` is 1 there and 2 here"), "{error}");
    std::fs::write(&path, "nonsense\n").unwrap();
    assert!(Kept::read(&path).unwrap_err().to_string().contains("line 1"));
}
