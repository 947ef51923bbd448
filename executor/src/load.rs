//! The load generator: what is sent when, how answers are read, what each request's record holds.
//!
//! In reading order: where to ([`target`]), with which key ([`secret`]), over which connection, what came back.

mod completion;
mod connection;
pub mod histogram;
pub mod http;
pub mod random;
pub mod secret;
mod socket;
pub mod sse;
pub mod target;
pub mod tls;
