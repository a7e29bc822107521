//! One Gitea registration; every task in its own executor with its own identity.

pub mod app;
pub mod args;
pub mod backend;
pub mod board;
pub mod chronicle;
pub mod clock;
pub mod command;
pub mod config;
pub mod correspondence;
pub mod facade;
pub mod fetch;
pub mod files;
pub mod gitea;
pub mod holder;
pub mod identity;
pub mod launch;
pub mod lease;
pub mod ops;
pub mod pulse;
pub mod queue;
pub mod reap;
pub mod report;
pub mod sealing;
pub mod standalone;
pub mod telemetry;
pub mod wire;
