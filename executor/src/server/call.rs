//! One small question to the server under test: its health, version, models, metrics.

use std::future::poll_fn;
use std::io;
use std::time::Duration;

use crate::load::connection::Dialer;
use crate::load::http::{self, HttpError, ResponseDecoder};

/// The largest answer that is read.
const BODY_LIMIT: usize = 4 * 1024 * 1024;

/// What the server said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: Vec<u8>,
}

pub(crate) async fn get(
    dialer: &Dialer,
    path: &str,
    authority: &str,
    headers: &[(String, String)],
    patience: Duration,
) -> io::Result<Answer> {
    ask(dialer, &http::request("GET", path, authority, headers, b""), patience).await
}

/// Sends a request that is ready to be written and reads the whole answer.
pub(crate) async fn ask(dialer: &Dialer, request: &[u8], patience: Duration) -> io::Result<Answer> {
    let answer = async {
        let mut connection = dialer.connect().await?;
        connection.write_all(request).await?;
        let mut decoder = ResponseDecoder::new();
        let (mut buffer, mut body) = (vec![0; 16 * 1024], Vec::new());
        while !decoder.done() {
            let count = poll_fn(|cx| connection.poll_read(cx, &mut buffer)).await?;
            if count == 0 {
                decoder.closed().map_err(io::Error::other)?;
                break;
            }
            let read = buffer.get(..count).unwrap_or(&[]);
            decoder
                .feed(read, &mut |_head, piece: &[u8]| {
                    body.extend_from_slice(piece);
                    Ok::<(), HttpError>(())
                })
                .map_err(io::Error::other)?;
            if body.len() > BODY_LIMIT {
                return Err(io::Error::other("the answer is too long"));
            }
        }
        let status = decoder.head().map_or(0, |head| head.status);
        Ok(Answer { status, body })
    };
    tokio::time::timeout(patience, answer).await.map_err(|_late| io::Error::from(io::ErrorKind::TimedOut))?
}
