//! What does a line say once everything around the message is gone: colours, control characters, the
//! JSON of a container runtime?

use std::borrow::Cow;

/// The text of a line: ANSI sequences and control characters removed, bytes that are no UTF-8 replaced.
///
/// Several lines where a JSON record holds a message of several.
pub(super) fn text(bytes: &[u8]) -> Cow<'_, str> {
    let text = String::from_utf8_lossy(bytes);
    let text = match unwrapped(&text) {
        Some(message) => Cow::Owned(process(&text).unwrap_or_default() + &message),
        None => text,
    };
    if text.bytes().any(|byte| byte < b' ' && byte != b'\n') { Cow::Owned(plain(&text)) } else { text }
}

/// Without ANSI sequences and control characters other than the line feed; a tab becomes a space.
fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\x1b' => match chars.peek() {
                // A control sequence ends with a byte from `@` to `~`.
                Some('[') => {
                    chars.next();
                    while chars.peek().is_some_and(|c| matches!(c, ' '..='?')) {
                        chars.next();
                    }
                    chars.next_if(|c| matches!(c, '@'..='~'));
                }
                // An operating system command ends with a bell or another escape.
                Some(']') => {
                    while chars.next_if(|c| !matches!(c, '\x07' | '\x1b' | '\n')).is_some() {}
                    chars.next_if(|c| *c == '\x07');
                }
                _ => {
                    chars.next_if(char::is_ascii_graphic);
                }
            },
            '\t' => out.push(' '),
            '\n' => out.push('\n'),
            c if c.is_control() => {}
            c => out.push(c),
        }
    }
    out
}

/// The process of a JSON record, as vLLM's other formats put it before a message.
///
/// # Source
/// `JSON_FORMAT` in `logging_utils/formatter.py`, vLLM 0.32.
fn process(text: &str) -> Option<String> {
    let value = |key: &str| Some(text[text.find(key)? + key.len()..].trim_start());
    let name = value("\"processName\":")?.strip_prefix('"')?;
    let name = &name[..name.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))?];
    let pid = value("\"process\":")?;
    let pid = &pid[..pid.find(|c: char| !c.is_ascii_digit())?];
    Some(format!("({name} pid={pid}) "))
}

/// The message of a JSON record: Docker's `log`, or `message` of vLLM's and others' JSON formatters.
fn unwrapped(text: &str) -> Option<String> {
    let text = text.trim_start();
    if !text.starts_with('{') {
        return None;
    }
    let at = ["\"log\":", "\"message\":", "\"msg\":"]
        .iter()
        .find_map(|key| text.find(key).map(|at| at + key.len()))?;
    let mut chars = text[at..].trim_start().strip_prefix('"')?.chars();
    let mut message = String::new();
    while let Some(c) = chars.next() {
        match c {
            '"' => return Some(message),
            '\\' => match chars.next()? {
                'n' | 'r' => message.push('\n'),
                't' => message.push(' '),
                'b' | 'f' => {}
                'u' => {
                    let mut code = 0;
                    for _ in 0..4 {
                        code = code * 16 + chars.next()?.to_digit(16)?;
                    }
                    // Half a surrogate pair is no character of its own.
                    message.push(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER));
                }
                other => message.push(other),
            },
            c => message.push(c),
        }
    }
    // A record that was cut.
    Some(message)
}

/// Whether a line begins a message of its own, rather than going on with the one before.
pub(super) fn begins_message(text: &str) -> bool {
    let head = text.get(..text.floor_char_boundary(120)).unwrap_or(text);
    text.trim().is_empty()
        || ["INFO", "WARNING", "ERROR", "DEBUG", "CRITICAL", " pid="].iter().any(|word| head.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_and_controls_go() {
        let line = b"\x1b[0;36m(EngineCore pid=1)\x1b[0;0m \x1b[32mINFO\x1b[0m a\tb\x1b]0;title\x07c\r";
        assert_eq!(text(line), "(EngineCore pid=1) INFO a bc");
        assert_eq!(text(b"\xff ok"), "\u{fffd} ok");
        assert_eq!(text(b"cut \x1b["), "cut ");
    }

    #[test]
    fn records_of_container_runtimes() {
        let docker = br#"{"log":"\u001b[32mINFO\u001b[0m say \"hi\"\n","stream":"stderr","time":"t"}"#;
        assert_eq!(text(docker), "INFO say \"hi\"\n");
        assert_eq!(text(br#"{"levelname": "INFO", "message": "a"}"#), "a");
        let vllm = br#"{"processName": "EngineCore_DP1", "process": 21, "message": "a"}"#;
        assert_eq!(text(vllm), "(EngineCore_DP1 pid=21) a");
        assert_eq!(text(br#"{"log":"cut \u00"#), r#"{"log":"cut \u00"#);
    }
}
