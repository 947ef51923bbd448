//! Mock
