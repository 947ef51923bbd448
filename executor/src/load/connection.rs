//! Connections to the target: opened, encrypted where asked, kept for the next request.

use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWriteExt as _, ReadBuf};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::socket::{Arrival, StampedSocket};
use super::target::{Scheme, Target};

/// A connection that carries one request at a time.
#[derive(Debug)]
pub(crate) enum Connection {
    Plain(StampedSocket),
    Tls(Box<TlsStream<StampedSocket>>),
}

impl Connection {
    /// Reads into the buffer; 0 when the server has closed the connection.
    pub(crate) fn poll_read(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        match self {
            Self::Plain(socket) => socket.poll_read_into(cx, buffer),
            Self::Tls(stream) => {
                let mut space = ReadBuf::new(buffer);
                match ready!(Pin::new(stream.as_mut()).poll_read(cx, &mut space)) {
                    // A server that ends without a TLS goodbye has closed all the same.
                    Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Poll::Ready(Ok(0)),
                    result => Poll::Ready(result.map(|()| space.filled().len())),
                }
            }
        }
    }

    /// When the bytes of the last read came.
    pub(crate) fn arrival(&self) -> Arrival {
        match self {
            Self::Plain(socket) => socket.arrival(),
            Self::Tls(stream) => stream.get_ref().0.arrival(),
        }
    }

    pub(crate) async fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Plain(socket) => socket.write_all(bytes).await,
            Self::Tls(stream) => {
                stream.write_all(bytes).await?;
                stream.flush().await
            }
        }
    }

    /// Whether an idle connection is still open and silent.
    fn is_idle(&mut self) -> bool {
        let mut buffer = [0; 1];
        let mut cx = Context::from_waker(std::task::Waker::noop());
        self.poll_read(&mut cx, &mut buffer).is_pending()
    }
}

/// How connections are opened, shared by all threads.
#[derive(Debug, Clone)]
pub(crate) struct Dialer {
    addresses: Arc<[SocketAddr]>,
    tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
}

impl Dialer {
    pub(crate) fn new(
        target: &Target,
        config: impl FnOnce() -> io::Result<Arc<ClientConfig>>,
    ) -> io::Result<Self> {
        let tls = match target.scheme {
            Scheme::Http => None,
            Scheme::Https => {
                let name = ServerName::try_from(target.host.clone())
                    .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
                Some((config()?, name))
            }
        };
        Ok(Self { addresses: target.resolve()?.into(), tls })
    }

    pub(crate) async fn connect(&self) -> io::Result<Connection> {
        let socket = StampedSocket::connect(&self.addresses).await?;
        match &self.tls {
            None => Ok(Connection::Plain(socket)),
            Some((config, name)) => {
                let stream = TlsConnector::from(Arc::clone(config)).connect(name.clone(), socket).await?;
                Ok(Connection::Tls(Box::new(stream)))
            }
        }
    }
}

/// Idle connections of one thread, the last used first.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    idle: RefCell<Vec<Connection>>,
}

impl Pool {
    /// An idle connection that the server has not closed.
    pub(crate) fn take(&self) -> Option<Connection> {
        loop {
            let mut connection = self.idle.borrow_mut().pop()?;
            if connection.is_idle() {
                return Some(connection);
            }
        }
    }

    pub(crate) fn give_back(&self, connection: Connection) {
        self.idle.borrow_mut().push(connection);
    }
}
