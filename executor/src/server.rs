//! Servers under test: start, health, metrics, end.
