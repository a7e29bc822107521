//! The executor with the real official runner in front of a facade double.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod callers;
mod double;
mod ends;
mod interruption;
mod jobs;
mod nothing_to_do;
mod process;
mod streams;
mod world;
