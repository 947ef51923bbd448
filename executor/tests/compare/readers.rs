//! Every tool.
