//! What a server says of itself before it is measured: health, version, models, how it cuts text into tokens.

use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::task::Poll;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::sync::watch;

use super::call::{self, Answer};
use crate::load::connection::Dialer;
use crate::load::dataset::{CountTokens, GuessTokens};
use crate::load::http;
use crate::load::secret::Secret;
use crate::load::target::Target;
use crate::load::tls::Trust;

/// Asks one server small questions, one at a time.
#[derive(Debug)]
pub struct Probe {
    target: Target,
    dialer: Dialer,
    headers: Vec<(String, String)>,
    runtime: tokio::runtime::Runtime,
    patience: Duration,
    cancel: Option<watch::Receiver<bool>>,
    end: Option<Instant>,
}

/// What a server says of itself; `None` where it does not.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ServerFacts {
    /// The answer at `/version`.
    pub version: Option<String>,
    /// The status of the answer at `/v1/models`; `None` where it was not asked.
    pub models_status: Option<u16>,
    /// Names of the models it serves.
    pub models: Vec<String>,
    /// Where the first model's files lie, as the server names it.
    pub root: Option<String>,
    /// Longest context of the first model, in tokens.
    pub max_model_len: Option<u64>,
}

impl Probe {
    /// A probe that waits at most `patience` for each answer.
    ///
    /// # Errors
    /// When the host has no address or the certificates cannot be read.
    pub fn new(
        target: &Target,
        trust: &Trust,
        secret: Option<&Secret>,
        patience: Duration,
    ) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let headers =
            secret.map(|secret| ("Authorization".to_owned(), secret.bearer())).into_iter().collect();
        let dialer = Dialer::new(target, || trust.config())?;
        Ok(Self { target: target.clone(), dialer, headers, runtime, patience, cancel: None, end: None })
    }

    /// Gives no answer any more once `cancel` turns true or `end` is over.
    #[must_use]
    pub fn until(self, cancel: watch::Receiver<bool>, end: Option<Instant>) -> Self {
        Self { cancel: Some(cancel), end, ..self }
    }

    /// The status at a path.
    ///
    /// # Errors
    /// When no answer comes.
    pub fn status(&self, path: &str) -> io::Result<u16> {
        Ok(self.get(path)?.status)
    }

    /// Version and models.
    ///
    /// # Errors
    /// When the server cannot be reached at all; a server without these paths has empty facts.
    pub fn facts(&self) -> io::Result<ServerFacts> {
        let models = self.get("/v1/models")?;
        let version = self.get("/version").ok().and_then(|answer| parsed(&answer));
        let models_status = Some(models.status);
        let models = parsed(&models);
        let list = models.as_ref().and_then(|models| models.get("data")?.as_array());
        let first = list.and_then(|list| list.first());
        let text = |value: Option<&Value>| value.and_then(Value::as_str).map(str::to_owned);
        Ok(ServerFacts {
            models_status,
            version: text(version.as_ref().and_then(|version| version.get("version"))),
            models: list.into_iter().flatten().filter_map(|model| text(model.get("id"))).collect(),
            root: text(first.and_then(|model| model.get("root"))),
            max_model_len: first.and_then(|model| model.get("max_model_len")?.as_u64()),
        })
    }

    /// The text of token ids, from vLLM's `/detokenize`.
    pub fn detokenize(&self, model: &str, tokens: &[u32]) -> Option<String> {
        let answer = self.post("/detokenize", &json!({"model": model, "tokens": tokens}))?;
        Some(answer.get("prompt")?.as_str()?.to_owned())
    }

    /// The token ids of a text, with or without the special tokens around it, from vLLM's `/tokenize`.
    pub fn tokenize(&self, model: &str, text: &str, special: bool) -> Option<Vec<u32>> {
        let body = json!({"model": model, "prompt": text, "add_special_tokens": special});
        let answer = self.post("/tokenize", &body)?;
        let tokens = answer.get("tokens")?.as_array()?.iter();
        tokens.map(|token| u32::try_from(token.as_u64()?).ok()).collect()
    }

    fn wait(&self, answer: impl Future<Output = io::Result<Answer>>) -> io::Result<Answer> {
        let interrupted = || io::Error::from(io::ErrorKind::Interrupted);
        self.runtime.block_on(async {
            let mut cancel = self.cancel.clone();
            let asked_to_end = async {
                let asked = match &mut cancel {
                    Some(cancel) => cancel.wait_for(|cancel| *cancel).await.is_ok(),
                    None => false,
                };
                // Nobody is left to cancel when the sender has gone.
                if !asked {
                    std::future::pending::<()>().await;
                }
            };
            let over = async {
                match self.end {
                    Some(end) => tokio::time::sleep_until(end.into()).await,
                    None => std::future::pending().await,
                }
            };
            let (mut asked_to_end, mut over, mut answer) = (pin!(asked_to_end), pin!(over), pin!(answer));
            poll_fn(|cx| {
                if asked_to_end.as_mut().poll(cx).is_ready() || over.as_mut().poll(cx).is_ready() {
                    return Poll::Ready(Err(interrupted()));
                }
                answer.as_mut().poll(cx)
            })
            .await
        })
    }

    fn get(&self, path: &str) -> io::Result<Answer> {
        let (path, authority) = (self.target.path(path), self.target.authority());
        self.wait(call::get(&self.dialer, &path, &authority, &self.headers, self.patience))
    }

    fn post(&self, path: &str, body: &Value) -> Option<Value> {
        let (path, authority) = (self.target.path(path), self.target.authority());
        let request = http::request("POST", &path, &authority, &self.headers, body.to_string().as_bytes());
        let answer = self.wait(call::ask(&self.dialer, &request, self.patience)).ok()?;
        parsed(&answer)
    }
}

fn parsed(answer: &Answer) -> Option<Value> {
    if answer.status == 200 { serde_json::from_slice(&answer.body).ok() } else { None }
}

/// Counts tokens by asking the server, or by a guess from the first time it gives no answer.
#[derive(Debug)]
pub struct ServerTokens<'a> {
    /// Whom to ask.
    pub probe: &'a Probe,
    /// The model whose tokens count.
    pub model: &'a str,
    /// Whether a count was guessed.
    pub guessed: bool,
}

impl CountTokens for ServerTokens<'_> {
    fn count(&mut self, text: &str) -> u64 {
        let counted = if self.guessed { None } else { self.probe.tokenize(self.model, text, false) };
        counted.map_or_else(
            || {
                self.guessed = true;
                GuessTokens.count(text)
            },
            |tokens| tokens.len() as u64,
        )
    }
}
