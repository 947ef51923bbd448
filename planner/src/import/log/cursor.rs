//! Reads the words and numbers of one statement in order, and tells a text that ends too early from another one.

/// Why a statement could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Short {
    /// The text ends inside it; the next line may go on.
    Ended,
    /// It says something else.
    Other,
    /// It says a number that does not fit 64 bits.
    TooLarge,
}

/// A decimal number as printed, such as 46.80.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Hundredths(pub u64);

impl Hundredths {
    /// What `text` says, such as `2.3`, `46.80` or `1`; a third decimal is refused.
    pub fn parse(text: &str) -> Option<Self> {
        let (whole, decimals) = text.split_once('.').unwrap_or((text, ""));
        let hundredths = match decimals.len() {
            0 => 0,
            1 => decimals.parse::<u64>().ok()?.checked_mul(10)?,
            2 => decimals.parse().ok()?,
            _ => return None,
        };
        whole.parse::<u64>().ok()?.checked_mul(100)?.checked_add(hundredths).map(Self)
    }
}

impl std::fmt::Display for Hundredths {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{:02}", self.0 / 100, self.0 % 100)
    }
}

/// How far apart the pieces of one statement may stand, bytes.
const STATEMENT_BYTES: usize = 16 << 10;

/// The rest of a statement.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cursor<'a> {
    pub(super) rest: &'a str,
    /// Whether the text ends because the line does, rather than because the file does.
    pub(super) line_ends: bool,
}

/// The whole number that digits say.
pub(super) fn whole(digits: &str) -> Result<u64, Short> {
    digits.parse().map_err(|_elsewhere| {
        let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        if is_number { Short::TooLarge } else { Short::Other }
    })
}

impl<'a> Cursor<'a> {
    /// Passes over `words`.
    pub(super) fn skip(&mut self, words: &str) -> Result<(), Short> {
        match self.rest.strip_prefix(words) {
            Some(rest) => {
                self.rest = rest;
                Ok(())
            }
            None if words.starts_with(self.rest) => Err(Short::Ended),
            None => Err(Short::Other),
        }
    }

    /// Passes over `words` if they come next.
    pub(super) fn skip_if(&mut self, words: &str) -> bool {
        self.skip(words).is_ok()
    }

    /// Passes over everything up to `words`, and over them.
    pub(super) fn skip_to(&mut self, words: &str) -> Result<&'a str, Short> {
        let near = self.near();
        let at =
            near.find(words).ok_or(if near.len() < self.rest.len() { Short::Other } else { Short::Ended })?;
        let (before, rest) = self.rest.split_at(at);
        self.rest = &rest[words.len()..];
        Ok(before)
    }

    /// As much as one statement may have of what comes next.
    pub(super) fn near(&self) -> &'a str {
        &self.rest[..self.rest.floor_char_boundary(STATEMENT_BYTES)]
    }

    /// A whole number, with or without commas between thousands, that something follows.
    pub(super) fn number(&mut self) -> Result<u64, Short> {
        let end = self.rest.find(|c: char| !(c.is_ascii_digit() || c == ',')).ok_or(Short::Ended)?;
        self.digits(end)
    }

    /// A whole number that may be the last word.
    pub(super) fn last_number(&mut self) -> Result<u64, Short> {
        match self.rest.find(|c: char| !(c.is_ascii_digit() || c == ',')) {
            Some(end) => self.digits(end),
            None if self.line_ends => self.digits(self.rest.len()),
            None => Err(Short::Ended),
        }
    }

    fn digits(&mut self, end: usize) -> Result<u64, Short> {
        let (text, rest) = self.rest.split_at(end);
        // A comma at the end belongs to the sentence.
        let number = text.trim_end_matches(',');
        self.rest = if number.len() == text.len() { rest } else { &self.rest[number.len()..] };
        whole(&number.replace(',', ""))
    }

    /// A decimal number that something follows.
    pub(super) fn decimal(&mut self) -> Result<Hundredths, Short> {
        let end = self.rest.find(|c: char| !(c.is_ascii_digit() || c == '.')).ok_or(Short::Ended)?;
        let (text, rest) = self.rest.split_at(end);
        self.rest = rest;
        Hundredths::parse(text).ok_or_else(|| {
            let (whole, decimals) = text.split_once('.').unwrap_or((text, ""));
            let is_number =
                decimals.len() <= 2 && (whole.to_owned() + decimals).bytes().all(|b| b.is_ascii_digit());
            if is_number && whole.len() > 16 { Short::TooLarge } else { Short::Other }
        })
    }

    /// A word up to a blank, comma or closing bracket; the last one only if the line ends.
    pub(super) fn word(&mut self) -> Result<&'a str, Short> {
        let end =
            match self.rest.find(|c: char| c.is_whitespace() || matches!(c, ',' | ')' | ']' | '\'' | '"')) {
                Some(end) => end,
                None if self.line_ends => self.rest.len(),
                None => return Err(Short::Ended),
            };
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        if word.is_empty() { Err(Short::Other) } else { Ok(word) }
    }
}
