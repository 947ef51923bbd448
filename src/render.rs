//! How results look: tables for people, JSON for machines.

pub(crate) mod json;
pub(crate) mod number;
pub(crate) mod plan_text;
pub(crate) mod table;
