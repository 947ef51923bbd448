//! How results look: tables for people, JSON for machines.

pub(crate) mod explain_text;
pub(crate) mod json;
pub(crate) mod junit;
pub(crate) mod number;
pub(crate) mod plan_text;
pub(crate) mod table;
pub(crate) mod words;
