//! What do a Python dictionary, or arguments of a call, in a log line hold?

/// A value as Python prints it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// `None`.
    None,
    /// `True` or `False`.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// A string.
    Text(String),
    /// A list or a tuple.
    List(Vec<Self>),
    /// A dictionary, or the arguments of an object such as `SpeculativeConfig(method='mtp')`.
    Map(Vec<(String, Self)>),
    /// Anything else, as printed: `0.9`, `torch.bfloat16`, `<Enum.A: 1>`.
    Other(String),
}

impl Value {
    /// The same in JSON; `None` where a part of it is neither in JSON.
    pub fn to_json(&self) -> Option<serde_json::Value> {
        Some(match self {
            Self::None => serde_json::Value::Null,
            Self::Bool(flag) => (*flag).into(),
            Self::Int(number) => (*number).into(),
            Self::Text(text) => text.as_str().into(),
            Self::List(list) => list.iter().map(Self::to_json).collect::<Option<Vec<_>>>()?.into(),
            Self::Map(entries) => serde_json::Value::Object(
                entries
                    .iter()
                    .map(|(key, value)| Some((key.clone(), value.to_json()?)))
                    .collect::<Option<_>>()?,
            ),
            Self::Other(text) => serde_json::Number::from_f64(text.parse().ok()?)?.into(),
        })
    }

    /// The entry `name` of a map.
    pub fn get(&self, name: &str) -> Option<&Self> {
        let Self::Map(entries) = self else { return None };
        entries.iter().find(|(key, _)| key == name).map(|(_, value)| value)
    }

    /// The number, if this is a whole one of at least 0.
    pub fn count(&self) -> Option<u64> {
        match self {
            Self::Int(value) => u64::try_from(*value).ok(),
            _ => None,
        }
    }

    /// The words, if this is a string or a name.
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) | Self::Other(text) => Some(text),
            _ => None,
        }
    }
}

/// Deeper values are kept as printed.
const DEPTH: usize = 24;

/// Entries, and whether the text went on to their end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entries {
    pub(super) entries: Vec<(String, Value)>,
    pub(super) whole: bool,
}

/// A dictionary that begins with `{`; what was read before the text ends.
pub(super) fn dictionary(text: &str) -> Option<Entries> {
    let mut parser = Parser { rest: text.strip_prefix('{')? };
    Some(parser.entries(Some('}'), Separator::Colon, 0))
}

/// Arguments such as `a=1, b='x'`, up to a `)` of no opening or the end of the text.
pub(super) fn arguments(text: &str) -> Entries {
    let mut parser = Parser { rest: text };
    let mut entries = parser.entries(Some(')'), Separator::Equals, 0);
    // A list of arguments without parentheses ends with the text.
    entries.whole = true;
    entries
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Separator {
    Colon,
    Equals,
}

struct Parser<'a> {
    rest: &'a str,
}

impl<'a> Parser<'a> {
    fn blank(&mut self) {
        self.rest = self.rest.trim_start();
    }

    fn skip(&mut self, c: char) -> bool {
        self.blank();
        match self.rest.strip_prefix(c) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn entries(&mut self, close: Option<char>, separator: Separator, depth: usize) -> Entries {
        let mut entries = Vec::new();
        loop {
            self.blank();
            if let Some(close) = close
                && self.skip(close)
            {
                return Entries { entries, whole: true };
            }
            if self.rest.is_empty() {
                return Entries { entries, whole: false };
            }
            let before = self.rest.len();
            let Some(entry) = self.entry(separator, depth) else { return Entries { entries, whole: false } };
            entries.extend(entry);
            self.skip(',');
            if self.rest.len() == before {
                return Entries { entries, whole: false };
            }
        }
    }

    /// One entry; an inner `None` is an argument without a name.
    fn entry(&mut self, separator: Separator, depth: usize) -> Option<Option<(String, Value)>> {
        let key = match separator {
            Separator::Colon => match self.value(depth)? {
                Value::Text(key) | Value::Other(key) => key,
                Value::Int(key) => key.to_string(),
                _ => return None,
            },
            Separator::Equals => {
                let end = self.rest.find(|c: char| !(c.is_alphanumeric() || matches!(c, '_' | '-' | '.')))?;
                let (key, rest) = self.rest.split_at(end);
                if key.is_empty() || !rest.starts_with('=') {
                    return self.value(depth).map(|_unnamed| None);
                }
                self.rest = rest;
                key.to_owned()
            }
        };
        let sign = if separator == Separator::Colon { ':' } else { '=' };
        if !self.skip(sign) {
            return None;
        }
        self.blank();
        // A value that the text ends before is missing, not empty.
        if self.rest.is_empty() {
            return None;
        }
        Some(Some((key, self.value(depth)?)))
    }

    fn value(&mut self, depth: usize) -> Option<Value> {
        self.blank();
        let first = self.rest.chars().next()?;
        if depth >= DEPTH {
            return self.raw().map(Value::Other);
        }
        match first {
            '\'' | '"' => self.string(first).map(Value::Text),
            '[' => self.list(']', depth),
            '(' => self.list(')', depth),
            '{' => {
                self.rest = &self.rest[1..];
                let found = self.entries(Some('}'), Separator::Colon, depth + 1);
                found.whole.then_some(Value::Map(found.entries))
            }
            _ => self.word(depth),
        }
    }

    fn list(&mut self, close: char, depth: usize) -> Option<Value> {
        self.rest = &self.rest[1..];
        let mut items = Vec::new();
        loop {
            if self.skip(close) {
                return Some(Value::List(items));
            }
            let before = self.rest.len();
            items.push(self.value(depth + 1)?);
            self.skip(',');
            if self.rest.len() == before {
                return None;
            }
        }
    }

    fn string(&mut self, quote: char) -> Option<String> {
        let mut out = String::new();
        let mut chars = self.rest[1..].char_indices();
        while let Some((at, c)) = chars.next() {
            match c {
                '\\' => match chars.next()?.1 {
                    'n' => out.push('\n'),
                    't' => out.push('\t'),
                    other => out.push(other),
                },
                c if c == quote => {
                    self.rest = &self.rest[1 + at + c.len_utf8()..];
                    return Some(out);
                }
                c => out.push(c),
            }
        }
        None
    }

    /// A name, a number, an object's call or anything else up to the next comma.
    fn word(&mut self, depth: usize) -> Option<Value> {
        let name_end = self
            .rest
            .find(|c: char| !(c.is_alphanumeric() || matches!(c, '_' | '.')))
            .unwrap_or(self.rest.len());
        if name_end > 0 && self.rest[name_end..].starts_with('(') {
            self.rest = &self.rest[name_end + 1..];
            let found = self.entries(Some(')'), Separator::Equals, depth + 1);
            return found.whole.then_some(Value::Map(found.entries));
        }
        let raw = self.raw()?;
        Some(match raw.as_str() {
            "None" => Value::None,
            "True" => Value::Bool(true),
            "False" => Value::Bool(false),
            _ => raw.parse().map_or(Value::Other(raw), Value::Int),
        })
    }

    /// The text up to a comma, colon or bracket that closes what is around it; `None` if the text ends inside.
    fn raw(&mut self) -> Option<String> {
        let mut open = 0_usize;
        let angle = self.rest.starts_with('<');
        let mut quote: Option<char> = None;
        for (at, c) in self.rest.char_indices() {
            if let Some(inside) = quote {
                if c == inside {
                    quote = None;
                }
                continue;
            }
            match c {
                // An apostrophe inside a word opens nothing.
                '\'' | '"' if open > 0 || angle => quote = Some(c),
                '(' | '[' | '{' => open += 1,
                '<' if angle => open += 1,
                '>' if angle => open = open.saturating_sub(1),
                ')' | ']' | '}' if open > 0 => open -= 1,
                ',' | ')' | ']' | '}' | ':' if open == 0 => {
                    let (raw, rest) = self.rest.split_at(at);
                    self.rest = rest;
                    return Some(raw.trim().to_owned());
                }
                _ => {}
            }
        }
        if open > 0 || quote.is_some() {
            return None;
        }
        let raw = std::mem::take(&mut self.rest);
        Some(raw.trim().to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(text: &str) -> Vec<(String, Value)> {
        let found = dictionary(text).unwrap();
        assert!(found.whole, "{text}");
        found.entries
    }

    #[test]
    fn a_dictionary() {
        let entries =
            map("{'model': 'a/b', 'n': 3, 'x': 0.9, 'on': True, 'off': None, 'list': ['a', (1, 2)], \
             'spec': {'method': 'mtp', 'k': 3}, 'e': <Mode.FULL: (2, 1)>, \"q\": 'it\\'s'}");
        let get = |name: &str| entries.iter().find(|(key, _)| key == name).map(|(_, value)| value).unwrap();
        assert_eq!(get("model"), &Value::Text("a/b".into()));
        assert_eq!(get("n"), &Value::Int(3));
        assert_eq!(get("x"), &Value::Other("0.9".into()));
        assert_eq!(get("on"), &Value::Bool(true));
        assert_eq!(get("off"), &Value::None);
        assert_eq!(get("spec").get("k"), Some(&Value::Int(3)));
        assert_eq!(get("e"), &Value::Other("<Mode.FULL: (2, 1)>".into()));
        assert_eq!(get("q"), &Value::Text("it's".into()));
        assert_eq!(
            get("list"),
            &Value::List(vec![Value::Text("a".into()), Value::List(vec![Value::Int(1), Value::Int(2)])])
        );
    }

    #[test]
    fn arguments_of_a_call() {
        let found = arguments(
            "model='m', speculative_config=SpeculativeConfig(method='mtp', num_spec_tokens=3), \
             dtype=torch.bfloat16, max_seq_len=4096, quantization=None",
        );
        let get = |name: &str| found.entries.iter().find(|(key, _)| key == name).map(|(_, value)| value);
        assert_eq!(get("max_seq_len").unwrap().count(), Some(4096));
        assert_eq!(get("dtype").unwrap().text(), Some("torch.bfloat16"));
        assert_eq!(get("speculative_config").unwrap().get("num_spec_tokens").unwrap().count(), Some(3));
        assert_eq!(get("quantization"), Some(&Value::None));
    }

    #[test]
    fn a_cut_dictionary_keeps_what_is_whole() {
        let found = dictionary("{'a': 1, 'b': 'tex").unwrap();
        assert!(!found.whole);
        assert_eq!(found.entries, [("a".to_owned(), Value::Int(1))]);
        assert!(dictionary("{'a': ").unwrap().entries.is_empty());
    }

    #[test]
    fn depth_has_an_end() {
        let deep = format!("{{'a': {}{}}}", "[".repeat(100_000), "]".repeat(100_000));
        let found = dictionary(&deep).unwrap();
        assert!(found.whole);
        assert!(dictionary(&format!("{{'a': {}", "{'b': ".repeat(50_000))).is_some());
    }
}
