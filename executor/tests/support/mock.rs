//! A server that answers as it is told: by the model's name it streams as fast as it is read, at exact times, or
//! breaks in one of the ways that servers break.

use std::collections::BinaryHeap;
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};

/// To the first token, and from token to token, of the model `timed`.
pub(crate) const FIRST: Duration = Duration::from_millis(50);
pub(crate) const NEXT: Duration = Duration::from_millis(10);

/// What the server has seen.
#[derive(Default)]
pub(crate) struct Seen {
    /// Head of each request.
    pub(crate) heads: Mutex<Vec<String>>,
    /// Answers that were written to their end.
    pub(crate) finished: Mutex<usize>,
    /// How late each timed token was written.
    pub(crate) lateness: Mutex<Vec<Duration>>,
}

/// A running server; it lives as long as the program.
pub(crate) struct Mock {
    pub(crate) address: SocketAddr,
    pub(crate) seen: Arc<Seen>,
}

impl Mock {
    pub(crate) fn start(port: u16) -> Self {
        Self::start_with(port, false, 16_384)
    }

    /// With a certificate that nobody has signed.
    pub(crate) fn start_tls() -> Self {
        Self::start_with(0, true, 16_384)
    }

    /// With a listen queue of `backlog` connections, which the system may shorten.
    pub(crate) fn start_with(port: u16, tls: bool, backlog: u32) -> Self {
        let (told, address) = channel();
        let seen = Arc::new(Seen::default());
        let shared = Arc::clone(&seen);
        std::thread::spawn(move || {
            let (timer, tasks) = channel();
            let for_timer = Arc::clone(&shared);
            std::thread::spawn(move || keep_time(&tasks, &for_timer));
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async move {
                let socket = tokio::net::TcpSocket::new_v4().unwrap();
                socket.set_reuseaddr(true).unwrap();
                socket.bind(SocketAddr::from(([127, 0, 0, 1], port))).unwrap();
                let listener = socket.listen(backlog).unwrap();
                told.send(listener.local_addr().unwrap()).unwrap();
                accept(listener, tls, shared, timer).await;
            });
        });
        Self { address: address.recv().unwrap(), seen }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

async fn accept(listener: TcpListener, tls: bool, seen: Arc<Seen>, timer: Sender<Timed>) {
    let acceptor = tls.then(acceptor);
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            // Without a free descriptor the connection waits in the queue: a listener that ends would refuse it.
            Err(error) => {
                let _ = writeln!(io::stderr(), "mock server: {error}");
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        stream.set_nodelay(true).unwrap();
        nix::sys::socket::setsockopt(&stream, nix::sys::socket::sockopt::ReceiveTimestampns, &true).unwrap();
        let (seen, timer, acceptor) = (Arc::clone(&seen), timer.clone(), acceptor.clone());
        tokio::spawn(async move {
            // A client that goes away is what some tests are about.
            let _ = match acceptor {
                Some(acceptor) => acceptor.accept(stream).await.map(drop),
                None => serve(&Arc::new(stream), &seen, &timer).await,
            };
        });
    }
}

fn acceptor() -> tokio_rustls::TlsAcceptor {
    let certificate = CertificateDer::from(include_bytes!("../data/self_signed.der").as_slice());
    let key = PrivatePkcs8KeyDer::from(include_bytes!("../data/self_signed_key.der").as_slice());
    let config = rustls::ServerConfig::builder_with_provider(rustls::crypto::ring::default_provider().into())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key.into())
        .unwrap();
    Arc::new(config).into()
}

/// Reads what is there and tells when it arrived, so that a server with much to do is not a slow one.
async fn read_stamped(stream: &TcpStream, input: &mut Vec<u8>) -> io::Result<(usize, Instant)> {
    use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg};
    use std::os::fd::AsRawFd as _;
    let mut buffer = [0; 16 * 1024];
    let mut control = nix::cmsg_space!(nix::sys::time::TimeSpec);
    loop {
        stream.readable().await?;
        let read = stream.try_io(tokio::io::Interest::READABLE, || {
            let mut pieces = [io::IoSliceMut::new(&mut buffer)];
            let message =
                recvmsg::<()>(stream.as_raw_fd(), &mut pieces, Some(&mut control), MsgFlags::empty())?;
            let stamp = message.cmsgs()?.find_map(|one| match one {
                ControlMessageOwned::ScmTimestampns(stamp) => Some(Duration::from(stamp)),
                _ => None,
            });
            Ok((message.bytes, stamp))
        });
        match read {
            Ok((count, stamp)) => {
                let wall = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
                let lag = stamp.and_then(|stamp| wall.checked_sub(stamp)).unwrap_or_default();
                input.extend_from_slice(&buffer[..count]);
                return Ok((count, Instant::now() - lag));
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
}

/// A head and a body, and when they were there; `None` when the client has closed.
async fn read_request(
    stream: &TcpStream,
    input: &mut Vec<u8>,
) -> io::Result<Option<(String, Vec<u8>, Instant)>> {
    let mut arrived = Instant::now();
    loop {
        if let Some(end) = input.windows(4).position(|window| window == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&input[..end]).into_owned();
            let length = head.lines().find_map(|line| {
                let (name, value) = line.split_once(':')?;
                name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().unwrap())
            });
            let length: usize = length.unwrap_or(0);
            while input.len() < end + 4 + length {
                let (count, at) = read_stamped(stream, input).await?;
                arrived = at;
                if count == 0 {
                    return Ok(None);
                }
            }
            let body = input[end + 4..end + 4 + length].to_vec();
            input.drain(..end + 4 + length);
            return Ok(Some((head, body, arrived)));
        }
        let (count, at) = read_stamped(stream, input).await?;
        arrived = at;
        if count == 0 {
            return Ok(None);
        }
    }
}

async fn serve(stream: &Arc<TcpStream>, seen: &Arc<Seen>, timer: &Sender<Timed>) -> io::Result<()> {
    let mut input = Vec::new();
    while let Some((head, body, arrived)) = read_request(stream, &mut input).await? {
        seen.heads.lock().unwrap().push(head.clone());
        if head.starts_with("GET ") {
            let answer = match head.split(' ').nth(1) {
                Some("/v1/models") => {
                    json!({"data": [{"id": "fast", "root": "fast", "max_model_len": 4096}]}).to_string()
                }
                Some("/version") => json!({"version": "mock"}).to_string(),
                Some("/metrics") => "vllm:num_requests_running{engine=\"0\"} 2.0\n".to_owned(),
                _ => String::new(),
            };
            write_all(stream, plain(200, &answer).as_bytes()).await?;
            continue;
        }
        let Ok(body) = serde_json::from_slice::<Value>(&body) else {
            write_all(stream, plain(400, "no JSON").as_bytes()).await?;
            continue;
        };
        let model = body["model"].as_str().unwrap_or("").to_owned();
        let limit = body.get("max_tokens").or(body.get("max_completion_tokens"));
        let tokens = limit.and_then(Value::as_u64).unwrap_or(16);
        let prompt = body["prompt"].as_array().map_or(1, Vec::len) as u64;
        let chat = head.starts_with("POST /v1/chat");
        if !answer(stream, &model, chat, prompt, tokens, &head, arrived, timer).await? {
            return Ok(());
        }
        *seen.finished.lock().unwrap() += 1;
    }
    Ok(())
}

const STREAM_HEAD: &str =
    "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n";

fn plain(status: u16, body: &str) -> String {
    format!(
        "HTTP/1.1 {status} Mock\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}

pub(crate) fn chunk(data: &[u8]) -> Vec<u8> {
    let mut bytes = format!("{:x}\r\n", data.len()).into_bytes();
    bytes.extend_from_slice(data);
    bytes.extend_from_slice(b"\r\n");
    bytes
}

/// One token's event, as long as vLLM's.
fn token_event(chat: bool, finish: Option<&str>) -> Vec<u8> {
    event_of(" w343", chat, finish)
}

fn event_of(text: &str, chat: bool, finish: Option<&str>) -> Vec<u8> {
    let choice = if chat {
        json!({"index": 0, "delta": {"content": text}, "logprobs": null, "finish_reason": finish, "token_ids": null})
    } else {
        json!({"index": 0, "text": text, "logprobs": null, "finish_reason": finish, "stop_reason": null,
            "prompt_token_ids": null, "token_ids": null})
    };
    let event = json!({"id": "cmpl-aab10aec5e28b022", "object": "text_completion", "created": 1_796_190_824,
        "model": "mock", "choices": [choice]});
    chunk(format!("data: {event}\n\n").as_bytes())
}

fn ending(prompt: u64, tokens: u64) -> Vec<u8> {
    let usage = json!({"id": "cmpl-aab10aec5e28b022", "choices": [], "usage": {"prompt_tokens": prompt,
        "total_tokens": prompt + tokens, "completion_tokens": tokens}});
    let mut bytes = chunk(format!("data: {usage}\n\n").as_bytes());
    bytes.extend(chunk(b"data: [DONE]\n\n"));
    bytes.extend_from_slice(b"0\r\n\r\n");
    bytes
}

/// Writes an answer; false when the connection is of no further use.
#[expect(clippy::too_many_arguments, reason = "all of a request and of the server")]
async fn answer(
    stream: &Arc<TcpStream>,
    model: &str,
    chat: bool,
    prompt: u64,
    tokens: u64,
    head: &str,
    arrived: Instant,
    timer: &Sender<Timed>,
) -> io::Result<bool> {
    if let Some(status) = model.strip_prefix("http_") {
        let key = head.lines().find_map(|line| line.strip_prefix("Authorization: Bearer ")).unwrap_or("");
        let body = json!({"error": {"message": format!("told so, {key}"), "code": status}}).to_string();
        write_all(stream, plain(status.parse().unwrap(), &body).as_bytes()).await?;
        return Ok(true);
    }
    if let Some(location) = model.strip_prefix("redirect ") {
        let head = format!("HTTP/1.1 307 Mock\r\nlocation: {location}\r\ncontent-length: 0\r\n\r\n");
        write_all(stream, head.as_bytes()).await?;
        return Ok(true);
    }
    let event = token_event(chat, None);
    let started = [STREAM_HEAD.as_bytes(), &event].concat();
    match model {
        "fast" => {
            let many = event.repeat(64);
            let mut left = tokens;
            write_all(stream, STREAM_HEAD.as_bytes()).await?;
            while left > 64 {
                write_all(stream, &many).await?;
                left -= 64;
            }
            let mut last = event.repeat(usize::try_from(left.saturating_sub(1)).unwrap());
            last.extend(token_event(chat, Some("length")));
            last.extend(ending(prompt, tokens));
            write_all(stream, &last).await?;
        }
        "timed" | "stamped" => {
            let (done, finished) = tokio::sync::oneshot::channel();
            // No second descriptor: 10,000 streams would need 20,000.
            let socket = Arc::clone(stream);
            let (due, stamped) = (arrived + FIRST, model == "stamped");
            let task = Timed { due, socket, left: tokens, prompt, tokens, chat, stamped, done };
            timer.send(task).unwrap();
            let _ = finished.await;
        }
        "half_then_rest" => {
            // A character cut in two over two writes is a whole one.
            let event = json!({"choices": [{"text": "\u{20ac}", "finish_reason": "stop"}]});
            let bytes = chunk(format!("data: {event}\n\n").as_bytes());
            let cut = bytes.iter().position(|byte| *byte == 0xe2).unwrap() + 1;
            write_all(stream, &[STREAM_HEAD.as_bytes(), &bytes[..cut]].concat()).await?;
            tokio::task::yield_now().await;
            write_all(stream, &[&bytes[cut..], &ending(prompt, 1)].concat()).await?;
        }
        "half_utf8" => {
            let bad = chunk(b"data: {\"choices\":[{\"text\":\"\xe2\x82\"}]}\n\n");
            write_all(stream, &[started, bad].concat()).await?;
        }
        "broken_json" => {
            let bad = chunk(b"data: {\"choices\":[{\"text\": oops\n\n");
            write_all(stream, &[started, bad].concat()).await?;
        }
        "server_error" => {
            let bad = chunk(b"data: {\"error\":{\"message\":\"engine died\"}}\n\n");
            write_all(stream, &[started, bad].concat()).await?;
        }
        "error_200" => {
            let body = json!({"object": "error", "message": "no such LoRA", "code": 404}).to_string();
            write_all(stream, plain(200, &body).as_bytes()).await?;
        }
        "not_streamed" => {
            let body = json!({"choices": [{"text": "all at once", "finish_reason": "stop"}]}).to_string();
            write_all(stream, plain(200, &body).as_bytes()).await?;
        }
        "compressed" => {
            let head = "HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 2\r\n\r\n";
            write_all(stream, &[head.as_bytes(), b"\x1f\x8b"].concat()).await?;
        }
        "large_error" => {
            let bad = format!("data: {{\"error\":{{\"list\":[{}0]}}}}\n\n", "0,".repeat(1 << 20));
            write_all(stream, &[started, chunk(bad.as_bytes())].concat()).await?;
        }
        "several" => {
            let event =
                json!({"choices": [{"text": "a b c", "token_ids": [1, 2, 3], "finish_reason": null}]});
            let event = chunk(format!("data: {event}\n\n").as_bytes());
            let mut bytes = [STREAM_HEAD.as_bytes(), &event, &event].concat();
            bytes.extend(ending(prompt, 6));
            write_all(stream, &bytes).await?;
        }
        "empty" => {
            write_all(stream, &[STREAM_HEAD.as_bytes(), &chunk(b"data: [DONE]\n\n"), b"0\r\n\r\n"].concat())
                .await?;
        }
        "stall" => {
            write_all(stream, &started).await?;
            std::future::pending::<()>().await;
        }
        "silent" => std::future::pending::<()>().await,
        "reset" => {
            write_all(stream, &started).await?;
            stream.set_zero_linger()?;
            return Ok(false);
        }
        "closed_early" => {
            write_all(stream, &started).await?;
            return Ok(false);
        }
        "not_http" => {
            write_all(stream, b"220 mail.example ESMTP\r\n").await?;
            return Ok(false);
        }
        "endless" => {
            write_all(stream, STREAM_HEAD.as_bytes()).await?;
            let many = event.repeat(64);
            loop {
                write_all(stream, &many).await?;
            }
        }
        _ => {
            let body =
                json!({"error": {"message": format!("The model `{model}` does not exist."), "code": 404}});
            write_all(stream, plain(404, &body.to_string()).as_bytes()).await?;
        }
    }
    Ok(true)
}

async fn write_all(stream: &TcpStream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        stream.writable().await?;
        match stream.try_write(bytes) {
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

struct Timed {
    due: Instant,
    socket: Arc<TcpStream>,
    left: u64,
    prompt: u64,
    tokens: u64,
    chat: bool,
    /// Whether each token's text is the time at which it was sent, in nanoseconds.
    stamped: bool,
    done: tokio::sync::oneshot::Sender<()>,
}

impl PartialEq for Timed {
    fn eq(&self, other: &Self) -> bool {
        self.due == other.due
    }
}
impl Eq for Timed {}
impl PartialOrd for Timed {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Timed {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        other.due.cmp(&self.due)
    }
}

/// A token's event whose text is a time in nanoseconds, made once: making one for each of 100,000 tokens a second
/// would make the server late.
struct StampedEvent {
    bytes: Vec<u8>,
    digits: std::ops::Range<usize>,
}

impl StampedEvent {
    fn new(chat: bool) -> Self {
        let text = " 00000000000000000000";
        let bytes = event_of(text, chat, None);
        let start = bytes.windows(text.len()).position(|window| window == text.as_bytes()).unwrap() + 1;
        Self { bytes, digits: start..start + text.len() - 1 }
    }

    fn at(&mut self, time: Duration) -> &[u8] {
        write!(&mut self.bytes[self.digits.clone()], "{:020}", time.as_nanos()).unwrap();
        &self.bytes
    }
}

/// Writes each token when it is due; what is late does not move what follows.
fn keep_time(tasks: &Receiver<Timed>, seen: &Seen) {
    let mut queue: BinaryHeap<Timed> = BinaryHeap::new();
    let mut lateness = Vec::new();
    let middle = [token_event(false, None), token_event(true, None)];
    let begin = Instant::now();
    let mut stamped = [StampedEvent::new(false), StampedEvent::new(true)];
    loop {
        let wait = queue
            .peek()
            .map_or(Duration::from_secs(3600), |next| next.due.saturating_duration_since(Instant::now()));
        if wait.is_zero() {
            if let Some(mut next) = queue.pop() {
                lateness.push(next.due.elapsed());
                let last = next.left <= 1;
                let first = if next.left == next.tokens { STREAM_HEAD.as_bytes() } else { b"" };
                let bytes = if next.stamped {
                    let event = stamped[usize::from(next.chat)].at(begin.elapsed());
                    if last {
                        &[first, event, &ending(next.prompt, next.tokens)].concat()
                    } else if first.is_empty() {
                        event
                    } else {
                        &[first, event].concat()
                    }
                } else if last {
                    let event = token_event(next.chat, Some("length"));
                    &[first, &event, &ending(next.prompt, next.tokens)].concat()
                } else if first.is_empty() {
                    &middle[usize::from(next.chat)]
                } else {
                    &[first, &middle[usize::from(next.chat)]].concat()
                };
                let written = next.socket.try_write(bytes).is_ok_and(|count| count == bytes.len());
                if last || !written {
                    seen.lateness.lock().unwrap().append(&mut lateness);
                    let _ = next.done.send(());
                } else {
                    next.left -= 1;
                    next.due += NEXT;
                    queue.push(next);
                }
            }
            continue;
        }
        match tasks.recv_timeout(wait) {
            Ok(task) => queue.push(task),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}
