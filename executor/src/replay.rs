//! Replays a step.
