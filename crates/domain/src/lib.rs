//! The rules of gitea-dynamic-runner, pure.
//!
//! Invariant 1: nothing here awaits, reads a clock, the environment or randomness, or iterates a `HashMap`. Whoever
//! calls passes the time and the random bytes in. Every rule names the requirement (`docs/spec/requirements.md`) it
//! comes from, and carries that requirement's test vectors.
//!
//! The order of the rooms is the order of a task's way: what Gitea handed out ([`workflow`]), whose it is
//! ([`identity`]), what we make of it ([`assignment`]), how it waits ([`envelope`]), what its executor is told
//! ([`launch_env`], [`capability`], [`executor_api`]), what is written on the executor ([`metadata`]), and what happens
//! to it until it is gone ([`lifecycle`]). How long whoever tries again waits, they all share ([`backoff`]).

pub mod assignment;
pub mod backoff;
pub mod capability;
pub mod envelope;
pub mod excerpt;
pub mod executor_api;
pub mod id;
pub mod identity;
pub mod last_report;
pub mod launch_env;
pub mod lifecycle;
pub mod metadata;
pub mod policy;
pub mod reason;
#[cfg(test)]
mod samples;
pub mod wire;
pub mod workflow;
