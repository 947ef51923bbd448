//! Is a file text, and in which encoding: UTF-8, or the UTF-16 that PowerShell's `>` writes?

use std::io::{self, BufRead, BufReader, Read};

/// Why bytes are no text.
#[derive(Debug, thiserror::Error)]
pub enum NotText {
    /// A GGUF file, which holds weights.
    #[error("it is a GGUF file: weights, and no config.json")]
    Gguf,
    /// Anything else.
    #[error(transparent)]
    Utf8(#[from] std::string::FromUtf8Error),
}

/// Whether a file that begins with `bytes` is a GGUF file.
pub fn is_gguf(bytes: &[u8]) -> bool {
    bytes.starts_with(b"GGUF")
}

/// The text of a whole file: UTF-8, or UTF-16 with its mark.
///
/// # Errors
/// If it is neither.
pub fn text(bytes: Vec<u8>) -> Result<String, NotText> {
    if is_gguf(&bytes) {
        return Err(NotText::Gguf);
    }
    let unit: fn([u8; 2]) -> u16 = match bytes.get(..2) {
        Some([0xff, 0xfe]) => u16::from_le_bytes,
        Some([0xfe, 0xff]) => u16::from_be_bytes,
        _ => return Ok(String::from_utf8(bytes)?),
    };
    let units = bytes[2..].chunks_exact(2).map(|pair| unit([pair[0], pair[1]]));
    Ok(char::decode_utf16(units).map(|unit| unit.unwrap_or(char::REPLACEMENT_CHARACTER)).collect())
}

/// The same piece by piece: UTF-16 with its mark as UTF-8, anything else as it is.
///
/// # Errors
/// If reading fails.
pub fn reader<'a>(mut from: impl BufRead + 'a) -> io::Result<Box<dyn BufRead + 'a>> {
    let unit: fn([u8; 2]) -> u16 = match from.fill_buf()? {
        [0xff, 0xfe, ..] => u16::from_le_bytes,
        [0xfe, 0xff, ..] => u16::from_be_bytes,
        _ => return Ok(Box::new(from)),
    };
    from.consume(2);
    Ok(Box::new(BufReader::new(Utf16 { from, unit, high: None, ready: Vec::new(), given: 0 })))
}

/// UTF-16 that is read as UTF-8.
struct Utf16<R> {
    from: R,
    unit: fn([u8; 2]) -> u16,
    /// The first half of a pair.
    high: Option<u16>,
    ready: Vec<u8>,
    given: usize,
}

impl<R: Read> Utf16<R> {
    /// Decodes another piece; `false` at the end.
    fn fill(&mut self) -> io::Result<bool> {
        let mut bytes = Vec::with_capacity(8192);
        self.from.by_ref().take(8192).read_to_end(&mut bytes)?;
        self.ready.clear();
        self.given = 0;
        let ended = bytes.is_empty();
        let mut units: Vec<u16> = self.high.take().into_iter().collect();
        units.extend(bytes.chunks_exact(2).map(|pair| (self.unit)([pair[0], pair[1]])));
        if !ended && units.last().is_some_and(|unit| (0xd800..0xdc00).contains(unit)) {
            self.high = units.pop();
        }
        let text: String =
            char::decode_utf16(units).map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER)).collect();
        self.ready.extend_from_slice(text.as_bytes());
        Ok(!ended || !self.ready.is_empty())
    }
}

impl<R: Read> Read for Utf16<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        while self.given == self.ready.len() {
            if !self.fill()? {
                return Ok(0);
            }
        }
        let piece = &self.ready[self.given..];
        let length = piece.len().min(out.len());
        out[..length].copy_from_slice(&piece[..length]);
        self.given += length;
        Ok(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_orders_come_back() {
        let long = "a\u{1f600}\u{e9}\n".repeat(5000);
        for bytes in [u16::to_le_bytes, u16::to_be_bytes] {
            let mut file: Vec<u8> = bytes(0xfeff).to_vec();
            file.extend(long.encode_utf16().flat_map(bytes));
            let mut read = String::new();
            reader(file.as_slice()).unwrap().read_to_string(&mut read).unwrap();
            assert!(read == long);
            assert!(text(file).unwrap() == long);
        }
        assert_eq!(text(b"plain".to_vec()).unwrap(), "plain");
        assert!(text(b"\xff\xfe\x00\xd8".to_vec()).unwrap().contains('\u{fffd}'));
        assert!(matches!(text(b"GGUF\x03".to_vec()), Err(NotText::Gguf)));
        assert!(matches!(text(b"\xff".to_vec()), Err(NotText::Utf8(_))));
    }
}
