//! One Gitea registration; every task in its own executor with its own identity.

pub mod args;
pub mod config;
pub mod telemetry;
