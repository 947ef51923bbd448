//! The load generator: schedules, clients, streams, records.
