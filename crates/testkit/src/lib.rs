//! Placeholder.
pub mod real;
