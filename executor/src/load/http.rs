//! HTTP/1.1 as a load generator needs it: a request as bytes, a response decoded where it was read.
//!
//! The head is parsed by `httparse`; the body is handed on in slices of the read buffer, without a copy, a
//! channel or a wake-up in between. Follows no redirect, undoes no compression, knows no socket.

use std::fmt::Write as _;

/// The largest head and the largest line of a chunked body that is read.
const HEAD_LIMIT: usize = 64 * 1024;
const LINE_LIMIT: usize = 4096;

/// Why bytes are no HTTP response.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HttpError {
    /// The head cannot be parsed.
    #[error("the response's head is not HTTP/1: {0}")]
    Head(String),
    /// The head is too long.
    #[error("the response's head is longer than {HEAD_LIMIT} bytes")]
    HeadTooLong,
    /// The chunked framing is broken.
    #[error("the response's chunked body is broken: {0}")]
    Chunk(&'static str),
    /// The body is compressed, which was not asked for.
    #[error("the response's body is encoded ({0}), which was not asked for")]
    Encoded(String),
    /// The connection was closed before the response was whole.
    #[error("the connection was closed before the response was whole")]
    ClosedEarly,
}

/// A request, ready to be written.
pub(crate) fn request(
    method: &str,
    path: &str,
    authority: &str,
    headers: &[(String, String)],
    body: &[u8],
) -> Vec<u8> {
    let mut head = format!(
        "{method} {path} HTTP/1.1\r\nHost: {authority}\r\nUser-Agent: k3plan\r\nAccept: */*\r\n\
         Accept-Encoding: identity\r\n"
    );
    for (name, value) in headers {
        let _ = write!(head, "{name}: {value}\r\n");
    }
    if method != "GET" {
        let _ = write!(head, "Content-Type: application/json\r\nContent-Length: {}\r\n", body.len());
    }
    head.push_str("\r\n");
    let mut bytes = head.into_bytes();
    bytes.extend_from_slice(body);
    bytes
}

/// What the head of a response says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) status: u16,
    keep_alive: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Head,
    Length(u64),
    UntilClose,
    ChunkSize,
    ChunkData(u64),
    ChunkEnd,
    Trailer,
    Done,
}

/// One response, decoded as its bytes come.
#[derive(Debug)]
pub(crate) struct ResponseDecoder {
    state: State,
    head: Option<Head>,
    partial: Vec<u8>,
    /// Where a redirect points.
    location: Option<String>,
    /// How the body is encoded, when it is.
    encoding: Option<String>,
}

impl ResponseDecoder {
    pub(crate) fn new() -> Self {
        Self { state: State::Head, head: None, partial: Vec::new(), location: None, encoding: None }
    }

    /// Where a redirect points, up to its query.
    pub(crate) fn location(&self) -> Option<&str> {
        self.location.as_deref()
    }

    /// That the body is compressed, when it is.
    pub(crate) fn encoded(&self) -> Option<HttpError> {
        self.encoding.clone().map(HttpError::Encoded)
    }

    /// The head, once it was read.
    pub(crate) fn head(&self) -> Option<Head> {
        self.head
    }

    /// Whether the response is whole.
    pub(crate) fn done(&self) -> bool {
        self.state == State::Done
    }

    /// Whether the connection can carry another request.
    pub(crate) fn reusable(&self) -> bool {
        self.done() && self.head.is_some_and(|head| head.keep_alive)
    }

    /// Takes what was read; `body` gets each piece of the body. Bytes after the response's end are dropped, and
    /// make the connection unfit for another request.
    pub(crate) fn feed<E: From<HttpError>>(
        &mut self,
        mut input: &[u8],
        body: &mut impl FnMut(Head, &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        while !input.is_empty() {
            match self.state {
                State::Head => input = self.feed_head(input)?,
                State::Done => {
                    if let Some(head) = &mut self.head {
                        head.keep_alive = false;
                    }
                    return Ok(());
                }
                State::ChunkSize => {
                    let (line, rest) = self.line(input)?;
                    input = rest;
                    if let Some(line) = line {
                        let size = chunk_size(&line)?;
                        self.state = if size == 0 { State::Trailer } else { State::ChunkData(size) };
                    }
                }
                State::ChunkEnd => {
                    let (line, rest) = self.line(input)?;
                    input = rest;
                    match line.as_deref() {
                        None => {}
                        Some(b"") => self.state = State::ChunkSize,
                        Some(_) => return Err(HttpError::Chunk("a chunk is longer than its size").into()),
                    }
                }
                State::Trailer => {
                    let (line, rest) = self.line(input)?;
                    input = rest;
                    if line.is_some_and(|line| line.is_empty()) {
                        self.state = State::Done;
                    }
                }
                State::Length(left) | State::ChunkData(left) => {
                    let take = usize::try_from(left).unwrap_or(usize::MAX).min(input.len());
                    let (piece, rest) = input.split_at(take);
                    input = rest;
                    let left = left - take as u64;
                    self.state = match self.state {
                        State::Length(_) if left == 0 => State::Done,
                        State::Length(_) => State::Length(left),
                        _ if left == 0 => State::ChunkEnd,
                        _ => State::ChunkData(left),
                    };
                    if let Some(head) = self.head {
                        body(head, piece)?;
                    }
                }
                State::UntilClose => {
                    if let Some(head) = self.head {
                        body(head, input)?;
                    }
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// The server closed the connection.
    pub(crate) fn closed(&mut self) -> Result<(), HttpError> {
        match self.state {
            State::Done => Ok(()),
            State::UntilClose => {
                self.state = State::Done;
                Ok(())
            }
            _ => Err(HttpError::ClosedEarly),
        }
    }

    fn feed_head<'i>(&mut self, input: &'i [u8]) -> Result<&'i [u8], HttpError> {
        let before = self.partial.len();
        self.partial.extend_from_slice(input);
        let mut headers = [httparse::EMPTY_HEADER; 512];
        let mut response = httparse::Response::new(&mut headers);
        let parsed = response.parse(&self.partial).map_err(|error| HttpError::Head(error.to_string()))?;
        let httparse::Status::Complete(length) = parsed else {
            return if self.partial.len() > HEAD_LIMIT { Err(HttpError::HeadTooLong) } else { Ok(&[]) };
        };
        let status = response.code.unwrap_or(0);
        let mut keep_alive = response.version == Some(1);
        let (mut chunked, mut content_length) = (false, None);
        for header in response.headers.iter() {
            let value = std::str::from_utf8(header.value).unwrap_or("").trim();
            if header.name.eq_ignore_ascii_case("connection") {
                keep_alive = !value.eq_ignore_ascii_case("close");
            } else if header.name.eq_ignore_ascii_case("transfer-encoding") {
                chunked = value.to_ascii_lowercase().ends_with("chunked");
            } else if header.name.eq_ignore_ascii_case("content-length") {
                let length = value.parse::<u64>();
                content_length =
                    Some(length.map_err(|_bad| HttpError::Head(format!("content-length {value}")))?);
            } else if header.name.eq_ignore_ascii_case("location") {
                self.location = Some(without_login(value));
            } else if header.name.eq_ignore_ascii_case("content-encoding") {
                self.encoding = (!matches!(value, "" | "identity")).then(|| value.to_owned());
            }
        }
        self.partial.clear();
        if !(100..200).contains(&status) {
            self.head = Some(Head { status, keep_alive });
            self.state = match content_length {
                _ if status == 204 || status == 304 => State::Done,
                _ if chunked => State::ChunkSize,
                Some(0) => State::Done,
                Some(length) => State::Length(length),
                None => State::UntilClose,
            };
        }
        Ok(input.get(length.saturating_sub(before)..).unwrap_or(&[]))
    }

    /// The next line without its end, when it is whole, and what follows it.
    fn line<'i>(&mut self, input: &'i [u8]) -> Result<(Option<Line<'i>>, &'i [u8]), HttpError> {
        let Some(end) = memchr::memchr(b'\n', input) else {
            self.partial.extend_from_slice(input);
            if self.partial.len() > LINE_LIMIT {
                return Err(HttpError::Chunk("a line without an end"));
            }
            return Ok((None, &[]));
        };
        let (line, rest) = (&input[..end], &input[end + 1..]);
        if self.partial.is_empty() {
            return Ok((Some(Line::Borrowed(without_return(line))), rest));
        }
        let mut whole = std::mem::take(&mut self.partial);
        whole.extend_from_slice(line);
        let length = without_return(&whole).len();
        whole.truncate(length);
        Ok((Some(Line::Owned(whole)), rest))
    }
}

/// A URL up to its query, without who logs in.
fn without_login(url: &str) -> String {
    let url = url.split(['?', '#']).next().unwrap_or("");
    let Some((scheme, rest)) = url.split_once("//") else { return url.to_owned() };
    let end = rest.find('/').unwrap_or(rest.len());
    let host = rest.get(..end).and_then(|authority| authority.rfind('@')).map_or(0, |at| at + 1);
    format!("{scheme}//{}", rest.get(host..).unwrap_or(""))
}

type Line<'i> = std::borrow::Cow<'i, [u8]>;

fn without_return(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\r").unwrap_or(line)
}

fn chunk_size(line: &[u8]) -> Result<u64, HttpError> {
    let digits = line.split(|byte| matches!(byte, b';' | b' ' | b'\t')).next().unwrap_or(line);
    if digits.is_empty() || digits.len() > 15 {
        return Err(HttpError::Chunk("a chunk without a size"));
    }
    let mut size = 0_u64;
    for digit in digits {
        let value = char::from(*digit).to_digit(16).ok_or(HttpError::Chunk("a size that is no number"))?;
        size = size * 16 + u64::from(value);
    }
    Ok(size)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn decode(pieces: &[&[u8]]) -> Result<(Vec<u8>, ResponseDecoder), HttpError> {
        let mut decoder = ResponseDecoder::new();
        let mut text = Vec::new();
        for piece in pieces {
            decoder.feed(piece, &mut |_, body: &[u8]| {
                text.extend_from_slice(body);
                Ok::<(), HttpError>(())
            })?;
        }
        Ok((text, decoder))
    }

    const CHUNKED: &[u8] = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n\
        5\r\nhello\r\n6;x=y\r\n world\r\n0\r\ntrailer: 1\r\n\r\n";

    proptest! {
        #[test]
        fn a_body_is_the_same_however_it_is_cut(cuts in prop::collection::vec(0..CHUNKED.len(), 0..8)) {
            let mut cuts = cuts;
            cuts.extend([0, CHUNKED.len()]);
            cuts.sort_unstable();
            let pieces: Vec<&[u8]> = cuts.windows(2).map(|w| &CHUNKED[w[0]..w[1]]).collect();
            let (text, decoder) = decode(&pieces).unwrap();
            prop_assert_eq!(text, b"hello world");
            prop_assert!(decoder.reusable());
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..300), head in any::<bool>()) {
            let mut input = Vec::new();
            if head {
                input.extend_from_slice(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n");
            }
            input.extend(bytes);
            let _ = decode(&[&input]);
        }
    }

    #[test]
    fn the_three_ways_to_end() {
        let (text, decoder) = decode(&[b"HTTP/1.1 404 Not Found\r\ncontent-length: 2\r\n\r\nno"]).unwrap();
        assert_eq!((text.as_slice(), decoder.head().unwrap().status), (b"no".as_slice(), 404));
        assert!(decoder.reusable());
        let (text, mut decoder) = decode(&[b"HTTP/1.0 200 OK\r\n\r\nsome", b" more"]).unwrap();
        assert_eq!(text, b"some more");
        assert!(!decoder.done());
        decoder.closed().unwrap();
        assert!(decoder.done() && !decoder.reusable());
        let (_, mut decoder) = decode(&[b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf"]).unwrap();
        assert_eq!(decoder.closed(), Err(HttpError::ClosedEarly));
    }

    #[test]
    fn broken_framing_is_told() {
        assert!(matches!(decode(&[b"SSH-2.0-OpenSSH\r\n"]), Err(HttpError::Head(_))));
        let head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
        assert!(matches!(decode(&[head, b"zz\r\n"]), Err(HttpError::Chunk(_))));
        assert!(matches!(decode(&[head, b"2\r\nabc\r\n"]), Err(HttpError::Chunk(_))));
        assert!(matches!(decode(&[head, b"ffffffffffffffffffff\r\n"]), Err(HttpError::Chunk(_))));
        let (_, decoder) = decode(&[head, b"0\r\n\r\nHTTP/1.1"]).unwrap();
        assert!(decoder.done() && !decoder.reusable());
    }

    #[test]
    fn where_a_redirect_points_and_how_a_body_is_encoded() {
        for (location, shown) in [
            ("http://me:word@host:1/v1/x?key=1", "http://host:1/v1/x"),
            ("//host", "//host"),
            ("/other#a", "/other"),
        ] {
            let head = format!("HTTP/1.1 307 x\r\nLocation: {location}\r\ncontent-length: 0\r\n\r\n");
            assert_eq!(decode(&[head.as_bytes()]).unwrap().1.location(), Some(shown));
        }
        let (_, decoder) = decode(&[b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\n\r\n\x1f\x8b"]).unwrap();
        assert_eq!(decoder.encoded(), Some(HttpError::Encoded("gzip".to_owned())));
        let (_, decoder) = decode(&[b"HTTP/1.1 200 OK\r\ncontent-encoding: identity\r\n\r\n"]).unwrap();
        assert_eq!(decoder.encoded(), None);
    }

    #[test]
    fn an_interim_response_is_passed_over() {
        let (text, _) =
            decode(&[b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"])
                .unwrap();
        assert_eq!(text, b"ok");
    }
}
