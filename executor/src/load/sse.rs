//! Server-sent events out of a body's pieces: the data of each event, without a copy where it came in one piece.
//!
//! # Source
//! WHATWG HTML, "Server-sent events", the parts that OpenAI-compatible servers use: `data` and comments.

/// The largest event that is kept while its end is awaited.
const EVENT_LIMIT: usize = 16 * 1024 * 1024;

/// An event longer than any server sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an event is longer than {EVENT_LIMIT} bytes")]
pub struct EventTooLong;

/// Splits a stream into events.
#[derive(Debug, Default)]
pub(crate) struct EventSplitter {
    /// A line whose end has not come.
    line: Vec<u8>,
    /// The data lines of an event whose end has not come.
    data: Vec<u8>,
    has_data: bool,
    /// A piece ended in a carriage return: a line feed that follows belongs to it.
    returned: bool,
}

impl EventSplitter {
    /// Takes a piece of the body; `event` gets the data of each event that is whole.
    pub(crate) fn feed<E: From<EventTooLong>>(
        &mut self,
        mut input: &[u8],
        event: &mut impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        if !input.is_empty() && std::mem::take(&mut self.returned) {
            input = input.strip_prefix(b"\n").unwrap_or(input);
        }
        // A line ends in CR, LF or both.
        while let Some(end) = memchr::memchr2(b'\n', b'\r', input) {
            let (line, mut rest) = (&input[..end], &input[end + 1..]);
            if input[end] == b'\r' {
                self.returned = rest.is_empty();
                rest = rest.strip_prefix(b"\n").unwrap_or(rest);
            }
            input = rest;
            if !self.line.is_empty() {
                let mut whole = std::mem::take(&mut self.line);
                whole.extend_from_slice(line);
                self.take_line(&whole, event)?;
                whole.clear();
                self.line = whole;
            } else if let Some(data) = field(line)
                && !self.has_data
                && rest.first() == Some(&b'\n')
            {
                input = &rest[1..];
                event(data)?;
            } else {
                self.take_line(line, event)?;
            }
        }
        self.line.extend_from_slice(input);
        if self.line.len() + self.data.len() > EVENT_LIMIT { Err(EventTooLong.into()) } else { Ok(()) }
    }

    /// The body has ended: an event that lacks only its blank line counts.
    pub(crate) fn end<E: From<EventTooLong>>(
        &mut self,
        event: &mut impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let line = std::mem::take(&mut self.line);
        self.take_line(&line, event)?;
        self.take_line(b"", event)
    }

    fn take_line<E>(&mut self, line: &[u8], event: &mut impl FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
        if line.is_empty() {
            if self.has_data {
                self.has_data = false;
                let data = std::mem::take(&mut self.data);
                event(&data)?;
            }
        } else if let Some(data) = field(line) {
            if self.has_data {
                self.data.push(b'\n');
            }
            self.has_data = true;
            self.data.extend_from_slice(data);
        }
        Ok(())
    }
}

fn field(line: &[u8]) -> Option<&[u8]> {
    let data = line.strip_prefix(b"data:")?;
    Some(data.strip_prefix(b" ").unwrap_or(data))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The events of a stream that comes in pieces cut at such places.
    fn events_cut(stream: &[u8], mut cuts: Vec<usize>) -> Vec<String> {
        cuts.extend([0, stream.len()]);
        cuts.sort_unstable();
        events(&cuts.windows(2).map(|w| &stream[w[0]..w[1]]).collect::<Vec<_>>())
    }

    fn events(pieces: &[&[u8]]) -> Vec<String> {
        let mut found = Vec::new();
        let mut splitter = EventSplitter::default();
        let mut event = |data: &[u8]| {
            found.push(String::from_utf8_lossy(data).into_owned());
            Ok::<(), EventTooLong>(())
        };
        for piece in pieces {
            splitter.feed(piece, &mut event).unwrap();
        }
        splitter.end(&mut event).unwrap();
        found
    }

    const STREAM: &[u8] =
        b": ping\n\ndata: {\"a\":1}\n\nevent: x\ndata:two\r\ndata: lines\r\n\r\nid: 7\n\ndata: \xc3\xa9\n\ndata: [DONE]";
    const RETURNS: &[u8] =
        b": ping\r\rdata: 1\r\r\r\ndata: two\r\ndata:lines\r\n\r\ndata: 3\n\r\ndata: 4\r\n\r";

    proptest! {
        #[test]
        fn events_are_the_same_however_the_stream_is_cut(cuts in prop::collection::vec(0..STREAM.len(), 0..8)) {
            prop_assert_eq!(events_cut(STREAM, cuts), ["{\"a\":1}", "two\nlines", "é", "[DONE]"]);
        }

        #[test]
        fn a_carriage_return_ends_a_line_too(cuts in prop::collection::vec(0..RETURNS.len(), 0..8)) {
            prop_assert_eq!(events_cut(RETURNS, cuts), ["1", "two\nlines", "3", "4"]);
        }
    }

    #[test]
    fn an_event_is_told_when_its_blank_line_has_come() {
        for ending in ["\n", "\r\n", "\r"] {
            let mut found = Vec::new();
            let mut splitter = EventSplitter::default();
            let bytes = format!("data: 1{ending}{ending}");
            let mut event = |data: &[u8]| {
                found.push(data.to_owned());
                Ok::<(), EventTooLong>(())
            };
            splitter.feed(bytes.as_bytes(), &mut event).unwrap();
            assert_eq!(found, [b"1"], "{ending:?}");
        }
    }

    #[test]
    fn several_events_in_one_piece_are_several() {
        assert_eq!(events(&[b"data: 1\n\ndata: 2\n\ndata: 3\n\n"]), ["1", "2", "3"]);
        assert!(events(&[b"", b"\n\n\n"]).is_empty());
    }
}
