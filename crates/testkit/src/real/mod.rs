//! Real far sides as child processes: a Gitea server of the release we support, the client that looks at it the way a
//! person or a test does, and beside it our own program, or the official runner alone; and NATS servers.
//!
//! Invariant: nothing started here outlives the process that started it, not even when that process is killed (see
//! [`leash`]), unless it is let go on purpose with `keep`. Every wait has a deadline and says what it last saw.

mod cache;
mod client;
mod daemon;
mod database;
mod error;
mod gate;
mod http;
mod ini;
pub mod kubernetes;
pub(crate) mod leash;
mod nats;
mod poll;
mod processes;
mod server;
pub mod spire;
mod standalone;
mod steps;
mod workplace;

pub use cache::{Cache, FOLDER_VARIABLE, Program};
pub use client::{Client, Job, JobPage, Part, Run, Runner};
pub use daemon::Daemon;
pub use database::{JobTimes, Status, StepRow, TaskRow};
pub use error::Error;
pub use gate::Gate;
pub use nats::{NatsCluster, NatsServer, NatsSettings, NatsTls, NatsUser, SERVER_VARIABLE as NATS_SERVER_VARIABLE};
pub use poll::{Seen, eventually};
pub use processes::{Process, Signal, of_folder, send as signal};
pub use server::{Access, GiteaServer};
pub use standalone::{Settings, Standalone, Word};
pub use steps::{ARTIFACT_ROUND_TRIP, ARTIFACT_V3_ROUND_TRIP, CLONE_OWN_REPOSITORY, insert};
pub use workplace::workplace;
