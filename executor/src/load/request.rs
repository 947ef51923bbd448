//! What is asked of the server: the body of each request.

use serde_json::{Map, Value};

/// Which interface of the server is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Api {
    /// `/v1/completions`, vLLM's backend `openai`.
    Completions,
    /// `/v1/chat/completions`, vLLM's backend `openai-chat`.
    Chat,
}

impl Api {
    /// vLLM's name of the backend.
    pub fn backend(self) -> &'static str {
        match self {
            Self::Completions => "openai",
            Self::Chat => "openai-chat",
        }
    }

    /// The usual path.
    pub fn endpoint(self) -> &'static str {
        match self {
            Self::Completions => "/v1/completions",
            Self::Chat => "/v1/chat/completions",
        }
    }
}

/// What a request asks about.
#[derive(Debug, Clone, PartialEq)]
pub enum Prompt {
    /// Text, as one user message in a chat.
    Text(String),
    /// Token ids, which only completions take.
    Tokens(Vec<u32>),
    /// A chat's messages.
    Messages(Value),
}

/// One request of a load, before it is sent.
#[derive(Debug, Clone, PartialEq)]
pub struct PlannedRequest {
    /// What it asks about.
    pub prompt: Prompt,
    /// Tokens of the prompt, where known without the server.
    pub prompt_tokens: Option<u64>,
    /// Tokens to answer with at most.
    pub output_tokens: u32,
    /// When it comes, in seconds after the start, where the data set tells.
    pub arrival: Option<f64>,
}

/// How tokens are counted inside a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CountTokens {
    /// By what comes anyway: usage at the end, token ids or log probabilities where they stand in an event.
    Auto,
    /// By usage in every event (`continuous_usage_stats`, which vLLM and SGLang know).
    Usage,
    /// By token ids in every event (`return_token_ids`, which vLLM knows).
    Ids,
}

/// What is the same in the body of every request.
#[derive(Debug, Clone, PartialEq)]
pub struct BodyTemplate {
    api: Api,
    start: Vec<u8>,
    has_limit: bool,
}

impl BodyTemplate {
    /// The template for a model; `extra` is merged last and wins, as in vLLM.
    pub fn new(
        api: Api,
        model: &str,
        ignore_eos: bool,
        count: CountTokens,
        extra: &Map<String, Value>,
    ) -> Self {
        let mut fields = Map::new();
        fields.insert("model".to_owned(), model.into());
        fields.insert("stream".to_owned(), true.into());
        let mut options = Map::new();
        options.insert("include_usage".to_owned(), true.into());
        match count {
            CountTokens::Auto => {}
            CountTokens::Usage => {
                options.insert("continuous_usage_stats".to_owned(), true.into());
            }
            CountTokens::Ids => {
                fields.insert("return_token_ids".to_owned(), true.into());
            }
        }
        fields.insert("stream_options".to_owned(), options.into());
        if ignore_eos {
            fields.insert("ignore_eos".to_owned(), true.into());
        }
        for (name, value) in extra {
            fields.insert(name.clone(), value.clone());
        }
        let has_limit = extra.contains_key("max_tokens") || extra.contains_key("max_completion_tokens");
        let mut start = Value::Object(fields).to_string().into_bytes();
        start.pop();
        Self { api, start, has_limit }
    }

    /// The body of one request.
    pub fn body(&self, request: &PlannedRequest) -> Vec<u8> {
        let mut body = self.start.clone();
        match (self.api, &request.prompt) {
            (Api::Completions, Prompt::Tokens(tokens)) => {
                body.extend_from_slice(b",\"prompt\":[");
                for (index, token) in tokens.iter().enumerate() {
                    if index > 0 {
                        body.push(b',');
                    }
                    body.extend_from_slice(token.to_string().as_bytes());
                }
                body.push(b']');
            }
            (Api::Completions, Prompt::Text(text)) => append(&mut body, "prompt", &text.as_str().into()),
            (Api::Completions, Prompt::Messages(messages)) => append(&mut body, "prompt", &flatten(messages)),
            (Api::Chat, Prompt::Messages(messages)) => append(&mut body, "messages", messages),
            (Api::Chat, Prompt::Text(text)) => append(&mut body, "messages", &user_message(text)),
            (Api::Chat, Prompt::Tokens(tokens)) => {
                let words: Vec<String> = tokens.iter().map(u32::to_string).collect();
                append(&mut body, "messages", &user_message(&words.join(" ")));
            }
        }
        if !self.has_limit {
            let name = if self.api == Api::Chat { "max_completion_tokens" } else { "max_tokens" };
            append(&mut body, name, &request.output_tokens.into());
        }
        body.push(b'}');
        body
    }
}

fn append(body: &mut Vec<u8>, name: &str, value: &Value) {
    body.extend_from_slice(format!(",\"{name}\":{value}").as_bytes());
}

fn user_message(text: &str) -> Value {
    serde_json::json!([{"role": "user", "content": text}])
}

/// A chat's messages as one text.
fn flatten(messages: &Value) -> Value {
    let contents = messages.as_array().into_iter().flatten().filter_map(|one| one.get("content")?.as_str());
    contents.collect::<Vec<_>>().join("\n").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(api: Api, prompt: Prompt, extra: &Value) -> Value {
        let template = BodyTemplate::new(api, "m\"x", true, CountTokens::Auto, extra.as_object().unwrap());
        let request = PlannedRequest { prompt, prompt_tokens: None, output_tokens: 7, arrival: None };
        serde_json::from_slice(&template.body(&request)).unwrap()
    }

    #[test]
    fn completions_take_token_ids() {
        let extra = serde_json::json!({"temperature": 0.5});
        assert_eq!(
            body(Api::Completions, Prompt::Tokens(vec![5, 60, 7]), &extra),
            serde_json::json!({"model": "m\"x", "stream": true, "stream_options": {"include_usage": true},
                "ignore_eos": true, "temperature": 0.5, "prompt": [5, 60, 7], "max_tokens": 7})
        );
    }

    #[test]
    fn chats_take_messages_and_extra_fields_win() {
        let extra = serde_json::json!({"max_tokens": 9, "stream_options": {}});
        let sent = body(Api::Chat, Prompt::Text("a \"b\"".to_owned()), &extra);
        assert_eq!(sent["messages"][0]["content"], "a \"b\"");
        assert_eq!((&sent["max_tokens"], sent.get("max_completion_tokens")), (&9.into(), None));
        assert_eq!(sent["stream_options"], serde_json::json!({}));
    }
}
