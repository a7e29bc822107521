//! The official runner: its files, its environment, its process.

pub(crate) mod environment;
pub(crate) mod files;
pub(crate) mod launch;
pub(crate) mod orphans;
pub(crate) mod process;
