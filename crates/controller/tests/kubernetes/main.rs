//! Jobs in real Pods: a real API server, scheduler, controller manager, kubelet and containerd, SPIRE with its node agent,
//! Gitea with the official runner, NATS, the images of `cargo xtask images` and the rights of the shipped manifests.
//!
//! Needs root on Debian 12; run by `cargo xtask test --only kubernetes`, which provisions everything and names the
//! archives of the images in `GDR_CONTROLLER_IMAGE` and `GDR_EXECUTOR_IMAGE`.
#![expect(clippy::unwrap_used, reason = "tests")]

mod chart;
mod identity;
mod jobs;
mod manifests;
mod phases;
mod replicas;
mod rights;
mod seat;
mod site;
mod trouble;
mod upheaval;
mod waiting;
mod wires;
