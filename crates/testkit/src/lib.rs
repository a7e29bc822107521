//! Test harness: the far sides of the system, as doubles on the wire or as real programs. Development only.
//!
//! A double keeps the far side's rules and remembers what it was told, so a test asserts on outcomes and not on calls.

pub mod backend;
pub mod cluster;
pub mod conformance;
pub mod crash;
pub mod gitea;
pub mod kubernetes;
pub mod outcome;
pub mod queue;
pub mod real;
pub mod runner_client;
pub mod stand_in;
pub mod traces;
mod waiting;
pub mod wires;
pub mod world;
