//! Real workflows on a real Gitea with the official runner and our own program between them. Needs
//! `cargo xtask provision`; nothing here looks inside the program: only at Gitea, processes and exit codes.
//!
//! One server serves all tests of this binary. Every test has a repository, a registration and a label of its own, so
//! that no test takes another's jobs.
#![expect(clippy::unwrap_used, reason = "tests")]

mod bad_input;
mod bodies;
mod cancel;
mod controller;
mod deaths;
mod interruption;
mod isolation;
mod jobs;
mod repository;
mod restart;
mod silence;
mod trust;
mod upheaval;
mod workflow;
mod world;
