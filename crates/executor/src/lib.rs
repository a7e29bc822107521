//! Placeholder.

pub mod identity;
