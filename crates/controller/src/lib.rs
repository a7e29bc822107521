//! One Gitea registration; every task in its own executor with its own identity.

pub mod app;
pub mod args;
pub mod command;
pub mod config;
pub mod files;
pub mod holder;
pub mod identity;
pub mod lease;
pub mod ops;
pub mod queue;
pub mod standalone;
pub mod telemetry;
