//! `k3plan bench` against a small server on the loopback.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use serde_json::Value;

/// A server with a thread a connection: it serves the model `tiny` with as many tokens as asked, never answers
/// requests after the first `good` ones, and tells of each answer that it has written.
fn server(good: usize) -> (SocketAddr, Receiver<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (told, answers) = channel();
    let left = Arc::new(std::sync::atomic::AtomicUsize::new(good));
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (told, left) = (told.clone(), Arc::clone(&left));
            std::thread::spawn(move || {
                let _ = answer_all(stream.unwrap(), &left, &|| {}, &|| {
                    let _ = told.send(());
                });
            });
        }
    });
    (address, answers)
}

fn answer_all(
    mut stream: TcpStream,
    left: &std::sync::atomic::AtomicUsize,
    before: &dyn Fn(),
    after: &dyn Fn(),
) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    loop {
        let (mut first, mut length) = (String::new(), 0);
        if reader.read_line(&mut first)? == 0 {
            return Ok(());
        }
        loop {
            let mut line = String::new();
            reader.read_line(&mut line)?;
            if let Some(value) = line.strip_prefix("Content-Length: ") {
                length = value.trim().parse().unwrap();
            }
            if line.trim().is_empty() {
                break;
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body)?;
        // Below `/lumped` all tokens come in one event.
        let path = first.split(' ').nth(1).unwrap_or("");
        let lumped = path.starts_with("/lumped/");
        let json = match path.trim_start_matches("/lumped") {
            "/v1/models" => Some("{\"data\":[{\"id\":\"tiny\",\"root\":\"tiny\"}]}"),
            "/v1/completions" => None,
            _ => Some("{}"),
        };
        if let Some(json) = json {
            write!(stream, "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{json}", json.len())?;
            continue;
        }
        use std::sync::atomic::Ordering::SeqCst;
        if left.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)).is_err() {
            continue;
        }
        before();
        let body: Value = serde_json::from_slice(&body)?;
        let (prompt, count) =
            (body["prompt"].as_array().unwrap().len(), body["max_tokens"].as_u64().unwrap());
        let events = if lumped { 1 } else { usize::try_from(count).unwrap() };
        let mut text = "data: {\"choices\":[{\"text\":\"x\"}]}\n\n".repeat(events);
        text += &format!(
            "data: {{\"choices\":[],\"usage\":{{\"prompt_tokens\":{prompt},\"completion_tokens\":{count}}}}}\n\ndata: [DONE]\n\n"
        );
        write!(stream, "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{text}", text.len())?;
        after();
    }
}

fn bench(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_k3plan"));
    command
        .arg("bench")
        .args(arguments)
        .current_dir(folder)
        .env_remove("OPENAI_API_KEY")
        .stdin(Stdio::null());
    command.output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn read(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

const LOAD: [&str; 8] =
    ["--num-prompts", "6", "--random-input-len", "9", "--random-output-len", "4", "--max-concurrency", "2"];

#[test]
fn a_result_has_vllms_keys_and_ours() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("http://{}", server(usize::MAX).0);
    let output =
        bench(folder.path(), &[&["serve", "--url", &url, "--output", "r.json"], LOAD.as_slice()].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let result = read(&folder.path().join("r.json"));
    assert_eq!((&result["completed"], &result["failed"]), (&6.into(), &0.into()));
    assert_eq!((&result["total_input_tokens"], &result["total_output_tokens"]), (&54.into(), &24.into()));
    assert_eq!((&result["model_id"], &result["request_rate"]), (&"tiny".into(), &"inf".into()));
    for list in ["input_lens", "output_lens", "ttfts", "itls", "start_times", "errors", "generated_texts"] {
        assert_eq!(result[list].as_array().map(Vec::len), Some(6), "{list}");
    }
    for key in
        ["median_ttft_ms", "p99_itl_ms", "mean_tpot_ms", "std_e2el_ms", "output_throughput", "duration"]
    {
        assert!(result[key].is_number(), "{key}");
    }
    assert_eq!(result["k3plan"]["schema"], "k3plan.bench/1");
    assert_eq!(result["k3plan"]["client"]["threads"], 1);
}

#[test]
fn a_key_leaves_no_trace() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("http://{}", server(usize::MAX).0);
    std::fs::write(folder.path().join("key"), "sk-hidden\n").unwrap();
    let arguments = ["serve", "--url", &url, "--output", "r.json", "--api-key-file", "key"];
    let output = bench(folder.path(), &[arguments.as_slice(), LOAD.as_slice()].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    for file in ["r.json", "r.json.journal"] {
        assert!(!std::fs::read_to_string(folder.path().join(file)).unwrap().contains("sk-hidden"), "{file}");
    }
    let output = bench(folder.path(), &["serve", "--url", &url, "--header", "Authorization=Bearer x"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("hint: put the key into an environment variable"));
    let output = bench(folder.path(), &["serve", "--url", "http://me:sk-hidden@127.0.0.1:1"]);
    assert!(output.status.code() == Some(2) && !text(&output.stderr).contains("sk-hidden"));
}

#[test]
fn a_server_that_is_not_there_is_counted() {
    let folder = tempfile::tempdir().unwrap();
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let url = format!("http://{gone}");
    let arguments = ["serve", "--url", &url, "--model", "tiny", "--output", "r.json"];
    let output = bench(folder.path(), &[arguments.as_slice(), LOAD.as_slice()].concat());
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stdout).contains("6 refused"), "{}", text(&output.stdout));
    let failures = &read(&folder.path().join("r.json"))["k3plan"]["failures"];
    assert_eq!((&failures[0]["kind"], &failures[0]["count"]), (&"refused".into(), &6.into()));
}

#[test]
fn a_killed_run_keeps_every_finished_request() {
    let folder = tempfile::tempdir().unwrap();
    let (address, answers) = server(3);
    let url = format!("http://{address}");
    let arguments = [&["bench", "serve", "--url", &url, "--journal", "j"], LOAD.as_slice()].concat();
    let mut child = Command::new(env!("CARGO_BIN_EXE_k3plan"))
        .args(arguments)
        .current_dir(folder.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    for _ in 0..3 {
        answers.recv().unwrap();
    }
    // The client has the answers once their lines are there; nothing else ends this wait.
    let journal = folder.path().join("j");
    let lines =
        || std::fs::read_to_string(&journal).map_or(0, |text| text.matches("\"line\":\"request\"").count());
    while lines() < 3 {
        std::thread::yield_now();
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let output = bench(folder.path(), &["report", "j", "--output", "r.json"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let result = read(&folder.path().join("r.json"));
    assert_eq!((&result["completed"], &result["k3plan"]["interrupted"]), (&3.into(), &true.into()));
    assert_eq!(result["k3plan"]["requests_not_sent"], 3);
}

/// A server that tells when it has read a completion's request, and answers none before the second channel closes.
fn holding_server() -> (SocketAddr, Receiver<()>, Sender<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (told, held) = channel();
    let (release, released) = channel::<()>();
    let released = Arc::new(Mutex::new(released));
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (told, released) = (told.clone(), Arc::clone(&released));
            std::thread::spawn(move || {
                let left = std::sync::atomic::AtomicUsize::new(usize::MAX);
                let hold = || {
                    let _ = told.send(());
                    // An error says that the other end is gone, for this thread and all that wait behind it.
                    let _ = released.lock().unwrap().recv();
                };
                let _ = answer_all(stream.unwrap(), &left, &hold, &|| {});
            });
        }
    });
    (address, held, release)
}

/// Memory that a process has in use, in KiB.
fn resident(id: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
#[cfg(target_os = "linux")]
fn a_stream_costs_a_hundred_kibibytes_at_most() {
    const FEW: usize = 10;
    const MANY: usize = 400;
    let folder = tempfile::tempdir().unwrap();
    let in_use = [FEW, MANY].map(|streams| {
        let (address, held, release) = holding_server();
        let count = streams.to_string();
        let mut child = Command::new(env!("CARGO_BIN_EXE_k3plan"))
            .args(["bench", "serve", "--url", &format!("http://{address}"), "--model", "tiny"])
            .args(["--num-prompts", &count, "--max-concurrency", &count, "--metrics-interval", "0"])
            .args(["--output", &format!("{streams}.json")])
            .current_dir(folder.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        for _ in 0..streams {
            held.recv().unwrap();
        }
        let in_use = resident(child.id());
        drop(release);
        assert!(child.wait().unwrap().success());
        assert_eq!(read(&folder.path().join(format!("{streams}.json")))["completed"], streams);
        in_use
    });
    // As 10,000 streams in 1 GB: prompts of 1,024 tokens, planned and sent, are in it.
    let each = in_use[1].saturating_sub(in_use[0]) / (MANY - FEW) as u64;
    assert!(each < 100, "{each} KiB a stream");
}

fn experiment(folder: &Path, arms: &str) -> Output {
    let file = format!(
        "title: t\nsource: s\ndate: 2026-01-01\nseeds: [1, 2]\norder: abba\n\
         load: {{num_prompts: 4, random_input_len: 8, random_output_len: 3, max_concurrency: 2}}\n\
         health: {{path: /health, timeout_seconds: 5, stop_seconds: 1}}\narms:\n{arms}"
    );
    std::fs::write(folder.join("e.yaml"), file).unwrap();
    bench(folder, &["run", "e.yaml", "--output", "out"])
}

#[test]
fn an_experiment_measures_each_arm_with_each_seed() {
    let folder = tempfile::tempdir().unwrap();
    let (a, b) = (server(usize::MAX).0, server(usize::MAX).0);
    std::fs::write(folder.path().join("a.log"), "INFO kv cache group sizes (16, 16, 16)\n").unwrap();
    let arms = format!(
        "  - {{name: a, url: 'http://{a}', log: a.log, expected_groups: 3}}\n  - {{name: b, url: 'http://{b}'}}\n"
    );
    let output = experiment(folder.path(), &arms);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    for name in ["a-seed1", "a-seed2", "b-seed1", "b-seed2"] {
        let result = read(&folder.path().join(format!("out/{name}-repeat0.json")));
        assert_eq!((&result["completed"], &result["arm"]), (&4.into(), &name[..1].into()));
    }
    assert!(
        text(&output.stdout).contains("k3plan compare out/a-seed1-repeat0.json out/a-seed2-repeat0.json -- ")
    );
    let again = bench(folder.path(), &["run", "e.yaml", "--output", "out"]);
    assert_eq!(again.status.code(), Some(2));
    let resumed = bench(folder.path(), &["run", "e.yaml", "--output", "out", "--resume"]);
    assert_eq!(resumed.status.code(), Some(0), "{}", text(&resumed.stderr));
}

#[test]
fn an_arm_that_is_not_right_stops_the_experiment() {
    let folder = tempfile::tempdir().unwrap();
    let address = server(usize::MAX).0;
    std::fs::write(folder.path().join("a.log"), "INFO kv cache group sizes (16, 16, 16)\n").unwrap();
    let arms = format!("  - {{name: a, url: 'http://{address}', log: a.log, expected_groups: 4}}\n");
    let output = experiment(folder.path(), &arms);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("has 3 KV cache groups"), "{}", text(&output.stderr));
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let command = "[sh, -c, 'echo no such model; exit 3']";
    let output = experiment(folder.path(), &format!("  - {{name: bad, port: {gone}, command: {command}}}\n"));
    let told = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2));
    assert!(told.contains("the arm `bad` did not come up") && told.contains("exit status: 3"), "{told}");
    assert!(told.contains("no such model"), "{told}");
}

#[test]
fn an_arm_is_held_to_the_plan_of_its_model() {
    let folder = tempfile::tempdir().unwrap();
    let address = server(usize::MAX).0;
    let config = r#"{"architectures": ["Gemma3ForCausalLM"], "model_type": "gemma3_text", "hidden_size": 64,
        "num_hidden_layers": 6, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32,
        "sliding_window": 512, "vocab_size": 2048, "max_position_embeddings": 32768, "torch_dtype": "bfloat16",
        "layer_types": ["sliding_attention", "sliding_attention", "full_attention", "sliding_attention",
            "sliding_attention", "full_attention"]}"#;
    std::fs::write(folder.path().join("config.json"), config).unwrap();
    let log = |sizes: &str| {
        let text = format!(
            "INFO 12-02 [core.py:133] Initializing a V1 LLM engine (v0.32.0) with config: model='m', max_seq_len=4096\n\
             INFO 12-02 [kv_cache_utils.py:853] kv cache group sizes {sizes}\n"
        );
        std::fs::write(folder.path().join("a.log"), text).unwrap();
    };
    let plan = "[--model, config.json, --platform, cpu]";
    let arms = format!("  - {{name: a, url: 'http://{address}', log: a.log, plan: {plan}}}\n");
    log("(128, 128, 128)");
    let output = experiment(folder.path(), &arms);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    std::fs::remove_dir_all(folder.path().join("out")).unwrap();
    log("(128, 128)");
    let output = experiment(folder.path(), &arms);
    let told = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2));
    assert!(told.contains("has 2 KV cache groups") && told.contains("where 3 are planned"), "{told}");
    log("(16, 16, 16)");
    let output = experiment(folder.path(), &arms);
    let told = text(&output.stderr);
    assert!(told.contains("logs group block sizes 16, 16, 16 where 128, 128, 128 are planned"), "{told}");
    let output = experiment(folder.path(), &arms.replace("--platform", "--nonsense"));
    assert!(text(&output.stderr).contains("--nonsense"), "{}", text(&output.stderr));
}

/// Sends a signal as a person does.
fn signal(child: &Child, name: &str) {
    let id = child.id().to_string();
    assert!(Command::new("kill").args([name, &id]).status().unwrap().success());
}

/// Waits for a file to hold a text so often; nothing but the program under test ends the wait.
fn wait_for(path: &Path, text: &str, count: usize) {
    while std::fs::read_to_string(path).map_or(0, |found| found.matches(text).count()) < count {
        std::thread::yield_now();
    }
}

fn start(folder: &Path, arguments: &[&str]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_k3plan"));
    command.arg("bench").args(arguments).current_dir(folder).env_remove("OPENAI_API_KEY");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

#[test]
fn an_interrupted_run_says_so_everywhere() {
    for name in ["-INT", "-TERM"] {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("http://{}", server(3).0);
        let child = start(
            folder.path(),
            &[&["serve", "--url", &url, "--output", "r.json"], LOAD.as_slice()].concat(),
        );
        wait_for(&folder.path().join("r.json.journal"), "\"line\":\"request\"", 3);
        signal(&child, name);
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        let told = text(&output.stderr);
        assert!(told.contains("interrupted: a signal ended the run after 3 of 6 requests"), "{told}");
        assert!(text(&output.stdout).contains("the run ended after 3 of 6 requests"));
        let result = read(&folder.path().join("r.json"));
        assert_eq!((&result["completed"], &result["k3plan"]["interrupted"]), (&3.into(), &true.into()));
    }
}

#[test]
fn a_server_that_cannot_be_reached_is_not_blamed_for_its_model() {
    let folder = tempfile::tempdir().unwrap();
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let output = bench(folder.path(), &["serve", "--url", &format!("http://{gone}")]);
    let told = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2));
    assert!(told.contains("failed to reach the server") && told.contains("refused"), "{told}");
}

/// The cells of a row of the table.
fn row(output: &Output, name: &str) -> Vec<String> {
    let table = text(&output.stdout);
    let line = table.lines().find(|line| line.split_whitespace().next() == Some(name));
    line.unwrap_or("").split_whitespace().skip(1).map(str::to_owned).collect()
}

#[test]
fn what_was_not_measured_is_a_dash() {
    let folder = tempfile::tempdir().unwrap();
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let url = format!("http://{gone}");
    let output = bench(folder.path(), &[&["serve", "--url", &url, "--model", "m"], LOAD.as_slice()].concat());
    for name in ["TTFT", "TPOT", "ITL", "E2EL"] {
        assert_eq!(row(&output, name), ["-"; 4], "{}", text(&output.stdout));
    }
    let url = format!("http://{}/lumped", server(usize::MAX).0);
    let arguments = [&["serve", "--url", &url, "--output", "r.json"], LOAD.as_slice()].concat();
    let output = bench(folder.path(), &arguments);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(
        (row(&output, "TPOT"), row(&output, "ITL")),
        (vec!["-".to_owned(); 4], vec!["-".to_owned(); 4])
    );
    assert!(row(&output, "TTFT").iter().all(|cell| cell != "-"));
    assert!(
        text(&output.stdout).contains("every answer came in one chunk of 4 tokens"),
        "{}",
        text(&output.stdout)
    );
    let file = std::fs::read_to_string(folder.path().join("r.json")).unwrap();
    assert!(!file.contains("-0.0"), "vLLM writes 0.0");
    // The result can still be compared, by what was measured.
    let compared = Command::new(env!("CARGO_BIN_EXE_k3plan"))
        .args(["compare", "r.json", "--", "r.json"])
        .current_dir(folder.path())
        .output()
        .unwrap();
    assert_eq!(compared.status.code(), Some(0), "{}", text(&compared.stderr));
}

#[test]
fn vllms_spellings_are_taken() {
    let folder = tempfile::tempdir().unwrap();
    let port = server(usize::MAX).0.port().to_string();
    let spelled = [
        "serve",
        "--host",
        "127.0.0.1",
        "--port",
        &port,
        "--backend",
        "vllm",
        "--endpoint",
        "/v1/completions",
        "--percentile-metrics",
        "ttft,itl",
        "--metric-percentiles",
        "50,90",
        "--save-result",
        "--save-detailed",
        "--result-dir",
        "out/deep",
        "--result-filename",
        "v.json",
    ];
    let output = bench(folder.path(), &[spelled.as_slice(), LOAD.as_slice()].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!((row(&output, "TTFT").len(), row(&output, "TPOT").len()), (5, 0));
    let result = read(&folder.path().join("out/deep/v.json"));
    assert!(result["p90_itl_ms"].is_number() && result["median_tpot_ms"].is_null());
    // Without a name it gets vLLM's.
    let spelled = ["serve", "--port", &port, "--model", "org/tiny", "--save-result", "--result-dir", "own"];
    let output = bench(folder.path(), &[spelled.as_slice(), LOAD.as_slice()].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let names: Vec<String> = std::fs::read_dir(folder.path().join("own"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert!(names.iter().any(|name| name.starts_with("openai-infqps-concurrency2-tiny-")), "{names:?}");
    let output = bench(folder.path(), &["serve", "--url", "http://h", "--port", &port]);
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn a_pipe_or_device_is_written_to_and_not_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let reader = {
        let pipe = pipe.clone();
        std::thread::spawn(move || std::fs::read(pipe).unwrap())
    };
    let url = format!("http://{}", server(usize::MAX).0);
    let arguments = [&["serve", "--url", &url, "--output", "pipe"], LOAD.as_slice()].concat();
    let output = bench(folder.path(), &arguments);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let result: Value = serde_json::from_slice(&reader.join().unwrap()).unwrap();
    assert_eq!(result["completed"], 6);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn a_result_is_reported_as_it_was_told() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("http://{}", server(usize::MAX).0);
    let arguments = [&["serve", "--url", &url, "--output", "r.json"], LOAD.as_slice()].concat();
    let before = bench(folder.path(), &arguments);
    let after = bench(folder.path(), &["report", "r.json"]);
    assert_eq!(after.status.code(), Some(0), "{}", text(&after.stderr));
    for name in ["TTFT", "TPOT", "E2EL", "Client", "Tokens", "Rate"] {
        assert_eq!(row(&before, name), row(&after, name), "{name}");
    }
    let json = bench(folder.path(), &["report", "r.json", "--json"]);
    let json: Value = serde_json::from_slice(&json.stdout).unwrap();
    assert!(json["completed"] == 6 && json["ttfts"].is_null());
    std::fs::write(folder.path().join("other.json"), "{\"a\": 1}").unwrap();
    let other = bench(folder.path(), &["report", "other.json"]);
    assert!(text(&other.stderr).contains("neither a journal nor a result"), "{}", text(&other.stderr));
}

/// An experiment whose one arm starts a server that never gets healthy.
fn sleeping_experiment(folder: &Path, seconds: f64) -> u16 {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let file = format!(
        "title: t\nsource: s\ndate: d\nseeds: [1, 2]\norder: abba\n\
         load: {{num_prompts: 4, random_output_len: 300, max_concurrency: 2}}\n\
         health: {{path: /health, timeout_seconds: {seconds}, stop_seconds: 1}}\narms:\n  \
         - {{name: a, port: {port}, command: [sh, -c, 'sleep 600; echo {{port}}'], \
         env: {{HF_TOKEN: hidden-word}}}}\n"
    );
    std::fs::write(folder.join("e.yaml"), file).unwrap();
    port
}

#[test]
#[cfg(target_os = "linux")]
fn servers_of_a_killed_experiment_are_ended_by_the_next() {
    let folder = tempfile::tempdir().unwrap();
    sleeping_experiment(folder.path(), 600.0);
    let list = folder.path().join("results/servers.json");
    let mut child = start(folder.path(), &["run", "e.yaml"]);
    wait_for(&list, "\"k3plan.servers/1\"", 1);
    let left = read(&list)["servers"][0]["leader"]["pid"].as_u64().unwrap();
    let status = || std::fs::read_to_string(format!("/proc/{left}/stat")).unwrap_or_default();
    // A second experiment leaves the first one's servers alone.
    let beside = bench(folder.path(), &["run", "e.yaml", "--resume"]);
    assert!(text(&beside.stderr).contains("another experiment works in"), "{}", text(&beside.stderr));
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(status().contains("(sh) S") || status().contains("(sh) R"), "{}", status());
    sleeping_experiment(folder.path(), 0.1);
    let output = bench(folder.path(), &["run", "e.yaml", "--resume"]);
    let told = text(&output.stderr);
    assert!(told.contains(&format!("ended the server of the arm `a` (process {left})")), "{told}");
    assert!(status().is_empty() || status().contains("(sh) Z"), "{}", status());
    assert!(!list.exists(), "nothing is left");
}

#[test]
fn a_signal_that_ends_an_experiment_is_no_fault_of_the_arm() {
    let folder = tempfile::tempdir().unwrap();
    sleeping_experiment(folder.path(), 600.0);
    let child = start(folder.path(), &["run", "e.yaml"]);
    wait_for(&folder.path().join("results/servers.json"), "\"k3plan.servers/1\"", 1);
    signal(&child, "-TERM");
    let output = child.wait_with_output().unwrap();
    let told = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(
        told.contains("interrupted: a signal ended the experiment with 0 of 2 measurements whole"),
        "{told}"
    );
    assert!(!told.contains("did not come up"), "{told}");
}

#[test]
#[cfg(target_os = "linux")]
fn a_second_signal_ends_everything_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    // A server that does not end when it is asked to.
    let file = format!(
        "title: t\nseeds: [1]\nload: {{num_prompts: 2}}\n\
         health: {{timeout_seconds: 600, stop_seconds: 600}}\narms:\n  \
         - {{name: a, port: {port}, command: [sh, -c, \"trap 'echo asked' INT; trap 'echo told' TERM; echo ready; \
         while :; do sleep 600 & wait; done\"]}}\n"
    );
    std::fs::write(folder.path().join("e.yaml"), file).unwrap();
    let child = start(folder.path(), &["run", "e.yaml"]);
    let list = folder.path().join("results/servers.json");
    wait_for(&list, "\"k3plan.servers/1\"", 1);
    let server = read(&list)["servers"][0]["leader"]["pid"].as_u64().unwrap();
    let log = folder.path().join("results/a.log");
    wait_for(&log, "ready", 1);
    signal(&child, "-TERM");
    wait_for(&log, "asked", 1);
    signal(&child, "-TERM");
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", text(&output.stderr));
    let runs = || {
        let status = std::fs::read_to_string(format!("/proc/{server}/stat")).unwrap_or_default();
        !status.is_empty() && !status.contains("(sh) Z")
    };
    while runs() {
        std::thread::yield_now();
    }
}

#[test]
fn a_rate_meets_an_objective_or_misses_it() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("http://{}", server(usize::MAX).0);
    let search = |more: &[&str]| {
        let shape = ["find-rate", "--url", &url, "--random-input-len", "9", "--random-output-len", "3"];
        let bounds = ["--from", "500", "--to", "500", "--seconds", "0.001"];
        bench(folder.path(), &[&shape[..], &bounds, more].concat())
    };
    let output = search(&["--goodput", "ttft:60000", "--output", "probes", "--json"]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let probe = &report["probes"][0];
    // The fewest requests that show nine of ten.
    assert_eq!((&probe["requests"], &probe["good"]), (&25.into(), &25.into()), "{report}");
    // A machine that is busy with other tests may not send them in time, which is no verdict on the server.
    if probe["verdict"] == "not sent" {
        assert!(
            report["meets"].is_null() && report["stopped"].as_str().unwrap().contains("requests/s were sent")
        );
        assert_eq!(output.status.code(), Some(1));
    } else {
        assert_eq!((&probe["verdict"], &report["meets"]), (&"meets".into(), &500.0.into()), "{report}");
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    }
    assert_eq!(read(&folder.path().join("probes/probe-000.json"))["completed"], 25);
    let output = search(&["--goodput", "ttft:0"]);
    let told = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(
        told.contains("0.0%") && (told.contains("try a lower `--from`") || told.contains("keep up")),
        "{told}"
    );
    for (flags, told) in [
        (&[][..], "no limit says what a good request is"),
        (&["--goodput", "ttft:1", "--request-rate", "3"], "sets the request rate itself"),
        (&["--goodput", "ttft:1", "--share", "1"], "no share above 0 and below 1"),
        (&["--goodput", "ttft:1", "--within", "0"], "`--within` and `--seconds` must be above 0"),
    ] {
        let output = search(flags);
        assert!(text(&output.stderr).contains(told), "{}", text(&output.stderr));
        assert_eq!(output.status.code(), Some(2));
    }
}

#[test]
fn a_dry_run_shows_what_will_be_run() {
    let folder = tempfile::tempdir().unwrap();
    let port = sleeping_experiment(folder.path(), 600.0);
    let output = bench(folder.path(), &["run", "e.yaml", "--dry-run"]);
    let told = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    for part in [
        format!("HF_TOKEN='[hidden]' sh -c 'sleep 600; echo {port}'"),
        "--num-prompts=4".to_owned(),
        "4 requests (0 before them to warm up), at most 2 at a time".to_owned(),
        // Two waves of 300 tokens, twice.
        "at least 12.0 s for 2 measurements where a token takes 10 ms".to_owned(),
        "beside starting a server 1 times".to_owned(),
        "seed 2".to_owned(),
    ] {
        assert!(told.contains(&part), "{part}: {told}");
    }
    assert!(!told.contains("hidden-word") && !folder.path().join("results").exists());
}

#[test]
fn a_key_in_an_experiment_or_a_flag_is_not_shown() {
    let folder = tempfile::tempdir().unwrap();
    let write = |arms: &str| {
        let head = "title: t\nseeds: [1]\nload: {num_prompts: 2, random_input_len: 8, random_output_len: 3}\narms:\n";
        std::fs::write(folder.path().join("e.yaml"), format!("{head}{arms}")).unwrap();
    };
    let shown = |arguments: &[&str], code: i32| {
        let output = bench(folder.path(), arguments);
        let told = text(&output.stdout) + &text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{told}");
        assert!(!told.contains("sk-hidden") && !told.is_empty(), "{told}");
    };
    std::fs::write(folder.path().join("key"), "sk-hidden-known").unwrap();
    let known = ["run", "e.yaml", "--dry-run", "--api-key-file", "key"];
    write("  - {name: a, port: 1, command: [sh, -c, 'A_TOKEN=sk-hidden x --api-key sk-hidden']}\n");
    shown(&known, 0);
    write("  - {name: a, port: 1, note: n, command: [x, sk-hidden-known]}\n");
    shown(&known, 0);
    write("  - {name: a, url: 'http://me:sk-hidden@127.0.0.1:1'}\n");
    shown(&known, 2);
    write("  - {name: a, port: 1, env: {X_KEY: sk-hidden}, surprise: 1}\n");
    shown(&known, 2);
    write("  - {name: a, port: 1, env: sk-hidden}\n");
    shown(&known, 2);
    let serve =
        |more: &[&str]| shown(&[["serve", "--url", "http://127.0.0.1:1"].as_slice(), more].concat(), 2);
    serve(&["--api-key-env", "sk-hidden"]);
    serve(&["--api-key-env", "K3PLAN_NOT_SET"]);
    serve(&["--header", "Authorization: Bearer sk-hidden"]);
    std::fs::write(folder.path().join("bytes"), b"sk-hidden\xff").unwrap();
    serve(&["--api-key-file", "bytes"]);
    std::fs::write(folder.path().join("words"), "sk-hidden no key").unwrap();
    serve(&["--api-key-file", "words"]);
    for header in [
        "Host=a",
        "content-length=1",
        "Transfer-Encoding=chunked",
        "Connection=close",
        "X=a\r\nY: b",
        "X\r\n=a",
    ] {
        serve(&["--header", header]);
    }
    serve(&["--endpoint", "/v1/completions HTTP/1.1\r\nX: y"]);
    shown(&["serve", "--url", "http://127.0.0.1:1/?api_key=sk-hidden"], 2);
}

#[test]
fn a_load_that_cannot_be_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    for flags in [
        ["--num-prompts", "18446744073709551615"],
        ["--num-prompts", "1000000000"],
        ["--num-warmups", "18446744073709551615"],
        ["--threads", "18446744073709551615"],
        ["--random-input-len", "4294967295"],
        ["--random-prefix-len", "4294967295"],
        ["--metric-percentiles", "nan"],
        ["--metric-percentiles", "1e400"],
        ["--ramp-up-seconds", "nan"],
        ["--ramp-up-seconds", "inf"],
    ] {
        let words = [["serve", "--url", "http://127.0.0.1:1", "--model", "m"].as_slice(), &flags].concat();
        let output = bench(folder.path(), &words);
        assert_eq!(output.status.code(), Some(2), "{flags:?}: {}", text(&output.stderr));
    }
    let arm = "arms: [{name: a, port: 1}]\n";
    std::fs::write(
        folder.path().join("e.yaml"),
        format!("title: t\nseeds: [1]\nrepeats: 1000000000\nload: {{}}\n{arm}"),
    )
    .unwrap();
    for file in ["e.yaml", "/dev/zero"] {
        assert_eq!(bench(folder.path(), &["run", file, "--dry-run"]).status.code(), Some(2), "{file}");
    }
}
