//! A TCP connection that tells when its bytes arrived: the kernel's receive time, not the moment we got to read.
//!
//! On Linux the time comes with the bytes (`SO_TIMESTAMPNS`), so that a busy client does not make a server look
//! slow, and the difference to now is what the client itself added. Elsewhere it is the moment of the read.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;

/// When bytes came.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Arrival {
    /// When the last of them reached this machine.
    pub(crate) at: Instant,
    /// How much later they were read; `None` where the kernel does not tell.
    pub(crate) lag: Option<Duration>,
}

/// A connected socket and the arrival of its last read.
#[derive(Debug)]
pub(crate) struct StampedSocket {
    stream: TcpStream,
    stamps: Stamps,
    arrival: Option<Arrival>,
}

impl StampedSocket {
    pub(crate) async fn connect(addresses: &[SocketAddr]) -> io::Result<Self> {
        let mut failure = io::Error::from(io::ErrorKind::NotFound);
        for address in addresses {
            match TcpStream::connect(address).await {
                Ok(stream) => {
                    stream.set_nodelay(true)?;
                    let stamps = Stamps::ask(&stream);
                    return Ok(Self { stream, stamps, arrival: None });
                }
                Err(error) => failure = error,
            }
        }
        Err(failure)
    }

    /// When the bytes of the last read came; now, if there was none.
    pub(crate) fn arrival(&self) -> Arrival {
        self.arrival.unwrap_or_else(|| Arrival { at: Instant::now(), lag: None })
    }

    pub(crate) fn poll_read_into(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let Self { stream, stamps, arrival } = self;
        loop {
            ready!(stream.poll_read_ready(cx))?;
            let mut short = None;
            let whole = stream.try_io(Interest::READABLE, || {
                let (count, stamp) = stamps.read(stream, buffer)?;
                *arrival = Some(stamp);
                if count == 0 || count == buffer.len() {
                    return Ok(count);
                }
                // A short read has emptied the socket: say so, for asking the kernel again costs a call.
                short = Some(count);
                Err(io::ErrorKind::WouldBlock.into())
            });
            match (short, whole) {
                (Some(count), _) | (None, Ok(count)) => return Poll::Ready(Ok(count)),
                (None, Err(error)) => match error.kind() {
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => {}
                    _ => return Poll::Ready(Err(error)),
                },
            }
        }
    }
}

impl AsyncRead for StampedSocket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let count = ready!(self.poll_read_into(cx, buffer.initialize_unfilled()))?;
        buffer.advance(count);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for StampedSocket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// How arrivals are told.
#[derive(Debug)]
enum Stamps {
    #[cfg(target_os = "linux")]
    Kernel {
        /// Space for the one control message.
        control: Vec<u8>,
    },
    AtRead,
}

impl Stamps {
    #[cfg(target_os = "linux")]
    fn ask(stream: &TcpStream) -> Self {
        use nix::sys::socket::{setsockopt, sockopt};
        if setsockopt(stream, sockopt::ReceiveTimestampns, &true).is_ok() {
            Self::Kernel { control: nix::cmsg_space!(nix::sys::time::TimeSpec) }
        } else {
            Self::AtRead
        }
    }

    #[cfg(not(target_os = "linux"))]
    fn ask(_stream: &TcpStream) -> Self {
        Self::AtRead
    }

    fn read(&mut self, stream: &TcpStream, buffer: &mut [u8]) -> io::Result<(usize, Arrival)> {
        match self {
            #[cfg(target_os = "linux")]
            Self::Kernel { control } => read_with_stamp(stream, buffer, control),
            Self::AtRead => {
                let count = stream.try_read(buffer)?;
                Ok((count, Arrival { at: Instant::now(), lag: None }))
            }
        }
    }
}

#[cfg(target_os = "linux")]
fn read_with_stamp(
    stream: &TcpStream,
    buffer: &mut [u8],
    control: &mut [u8],
) -> io::Result<(usize, Arrival)> {
    use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg};
    use std::os::fd::AsRawFd as _;
    use std::time::{SystemTime, UNIX_EPOCH};

    /// A stamp further back than this is a clock that was set, not a late read.
    const OLDEST: Duration = Duration::from_secs(60);

    let mut pieces = [io::IoSliceMut::new(buffer)];
    let message = recvmsg::<()>(stream.as_raw_fd(), &mut pieces, Some(control), MsgFlags::empty())
        .map_err(io::Error::from)?;
    let (wall, now) = (SystemTime::now(), Instant::now());
    let stamp = message.cmsgs().ok().and_then(|mut messages| {
        messages.find_map(|one| match one {
            ControlMessageOwned::ScmTimestampns(stamp) => Some(Duration::from(stamp)),
            _ => None,
        })
    });
    let lag = stamp
        .and_then(|stamp| wall.duration_since(UNIX_EPOCH).ok()?.checked_sub(stamp))
        .filter(|lag| *lag < OLDEST);
    let at = lag.and_then(|lag| now.checked_sub(lag)).unwrap_or(now);
    Ok((message.bytes, Arrival { at, lag }))
}
