//! Where the traffic goes: the one server that was named, and nowhere else.
//!
//! Knows no proxy, no redirect and no user name in a URL.

use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};

/// Whether the connection is encrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheme {
    /// Plain HTTP/1.1 over TCP.
    Http,
    /// HTTP/1.1 over TLS.
    Https,
}

/// A server: scheme, host, port and the path that stands before every endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Plain or encrypted.
    pub scheme: Scheme,
    /// Host name or address, without brackets.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// Path before every endpoint, without a slash at its end: empty for most servers.
    pub base_path: String,
}

/// Why a URL is not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    /// Neither `http://` nor `https://`.
    #[error("`{url}` does not begin with `http://` or `https://`")]
    Scheme {
        /// The text given.
        url: String,
    },
    /// A user name or password in the URL; its text is not repeated.
    #[error("the URL holds a user name or password")]
    Credentials,
    /// A query or a fragment.
    #[error("`{url}` is followed by a query or a fragment, which a server's address has not")]
    Query {
        /// The text given.
        url: String,
    },
    /// No host, or one with characters that no host has.
    #[error("`{url}` names no host")]
    Host {
        /// The text given.
        url: String,
    },
    /// A port that is no number from 1 to 65535.
    #[error("`{port}` is not a port")]
    Port {
        /// The text given.
        port: String,
    },
}

impl Target {
    /// Reads a server's address, as in `http://127.0.0.1:8000` or `https://host/prefix`; `/v1` at its end is
    /// taken off, since every endpoint has it.
    ///
    /// # Errors
    /// When the text is no such address.
    pub fn parse(url: &str) -> Result<Self, TargetError> {
        // A query may hold a key, and is not repeated.
        let shown = url.split(['?', '#']).next().unwrap_or("");
        let (scheme, rest) = if let Some(rest) = url.strip_prefix("http://") {
            (Scheme::Http, rest)
        } else if let Some(rest) = url.strip_prefix("https://") {
            (Scheme::Https, rest)
        } else if url.contains('@') {
            return Err(TargetError::Credentials);
        } else {
            return Err(TargetError::Scheme { url: shown.to_owned() });
        };
        let (authority, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
        if authority.contains('@') {
            return Err(TargetError::Credentials);
        }
        if rest.contains(['?', '#']) {
            return Err(TargetError::Query { url: shown.to_owned() });
        }
        let host_error = || TargetError::Host { url: shown.to_owned() };
        let (host, port) = if let Some(after) = authority.strip_prefix('[') {
            let (host, after) = after.split_once(']').ok_or_else(host_error)?;
            (host, after.strip_prefix(':'))
        } else {
            authority.rsplit_once(':').map_or((authority, None), |(host, port)| (host, Some(port)))
        };
        if host.is_empty() || !rest.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(host_error());
        }
        let port = match port {
            None if scheme == Scheme::Http => 80,
            None => 443,
            Some(text) => text
                .parse()
                .ok()
                .filter(|port| *port != 0)
                .ok_or_else(|| TargetError::Port { port: text.to_owned() })?,
        };
        let base = path.trim_end_matches('/');
        let base = base.strip_suffix("/v1").unwrap_or(base).trim_end_matches('/');
        Ok(Self { scheme, host: host.to_owned(), port, base_path: base.to_owned() })
    }

    /// The path of an endpoint (`/v1/completions`) on this server.
    pub fn path(&self, endpoint: &str) -> String {
        format!("{}{endpoint}", self.base_path)
    }

    /// What stands in the `Host` header.
    pub fn authority(&self) -> String {
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        match (self.scheme, self.port) {
            (Scheme::Http, 80) | (Scheme::Https, 443) => host,
            (_, port) => format!("{host}:{port}"),
        }
    }

    /// The addresses of the host, in the resolver's order.
    ///
    /// # Errors
    /// When the resolver finds none.
    pub fn resolve(&self) -> io::Result<Vec<SocketAddr>> {
        let addresses: Vec<_> = (self.host.as_str(), self.port).to_socket_addrs()?.collect();
        if addresses.is_empty() {
            return Err(io::Error::new(io::ErrorKind::NotFound, format!("`{}` has no address", self.host)));
        }
        Ok(addresses)
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.scheme == Scheme::Http { "http" } else { "https" };
        write!(f, "{scheme}://{}{}", self.authority(), self.base_path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_with_everything_and_with_nothing() {
        let target = Target::parse("https://gpu.example:8443/team/v1/").unwrap();
        assert_eq!((target.host.as_str(), target.port), ("gpu.example", 8443));
        assert_eq!(target.path("/v1/models"), "/team/v1/models");
        let target = Target::parse("http://[::1]").unwrap();
        assert_eq!((target.authority().as_str(), target.port), ("[::1]", 80));
        assert_eq!(target.to_string(), "http://[::1]");
    }

    #[test]
    fn what_is_no_address() {
        assert_eq!(Target::parse("http://me:secret@host"), Err(TargetError::Credentials));
        assert_eq!(Target::parse("me:secret@host"), Err(TargetError::Credentials));
        assert!(matches!(Target::parse("ftp://host"), Err(TargetError::Scheme { .. })));
        assert!(matches!(Target::parse("http://:80"), Err(TargetError::Host { .. })));
        assert!(matches!(Target::parse("http://ho st"), Err(TargetError::Host { .. })));
        assert!(matches!(Target::parse("http://host:0"), Err(TargetError::Port { .. })));
        assert!(matches!(Target::parse("http://host/?a=b"), Err(TargetError::Query { .. })));
    }
}
