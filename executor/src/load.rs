//! The load generator: what is sent when, how answers are read, what each request's record holds.
//!
//! In reading order: where to ([`target`]) and with which key ([`secret`]); what is asked ([`request`]) and when
//! ([`arrival`]); over which connection (`socket`, `connection`, [`tls`]); how answers are read ([`http`],
//! [`sse`], `completion`, `exchange`); what is kept of each ([`record`], [`journal`]); the whole run ([`run`]) and its figures ([`summary`],
//! [`client_cost`]). Which requests there are is [`dataset`]'s business.

mod answer;
pub mod arrival;
pub mod client_cost;
mod completion;
pub(crate) mod connection;
pub mod dataset;
mod exchange;
pub mod histogram;
pub mod http;
pub mod journal;
pub mod random;
pub mod record;
pub mod request;
pub mod run;
pub mod search;
pub mod secret;
mod socket;
pub mod sse;
pub mod summary;
pub mod target;
pub mod tls;
mod turns;
mod worker;
