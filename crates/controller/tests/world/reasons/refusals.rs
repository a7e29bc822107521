//! Tasks that can never run (NEW-14, SCH-6): nothing is made for them.

use domain::reason::Reason;
use testkit::gitea::{JobSpec, Status};
use testkit::world::{Plan, SOON, World, job};

use super::shows;
use crate::{planned, world};

fn with_labels(labels: &str) -> JobSpec {
    let payload = format!("jobs:\n  odd:\n    runs-on: {labels}\n    steps: [{{run: say never}}]\n");
    job("odd", &["say never"]).payload(payload)
}

/// Pushes it and waits for its page; no runner ever saw it.
async fn refused(world: &World, refused: JobSpec, reason: Reason) {
    let refused = world.push_one(refused);
    shows(world, refused, reason).await;
    assert!(world.desk.told(world.task_of(refused), "task").is_empty(), "it ran");
}

/// NEW-29, F02, F03: what the workflow or the repository says.
#[tokio::test]
async fn of_what_is_written() {
    let world = world(1).await;
    refused(&world, with_labels("[self-hosted, pod, vm]"), Reason::AmbiguousBackend).await;
    refused(&world, with_labels("pod"), Reason::BackendDisabled).await;
    refused(&world, job("a.b", &["say never"]), Reason::InvalidJobKey).await;
    refused(&world, job("odd", &["say never"]).context("repository", "acme/a b"), Reason::InvalidRepository).await;
    refused(&world, job("odd", &["say never"]).payload("jobs: {a: [broken"), Reason::InvalidWorkflow).await;
    world.finish().await;
}

/// NEW-29, ENV-2: no label names a backend, and there is no default.
#[tokio::test]
async fn of_labels_that_name_nothing() {
    let world = planned(Plan::capacity(1).set("DEFAULT_BACKEND", "none")).await;
    refused(&world, job("bare", &["say never"]).runs_on([] as [&str; 0]), Reason::UnsupportedLabels).await;
    world.finish().await;
}

/// NEW-29, NEW-121: somebody else's pull request where untrusted jobs are refused.
#[tokio::test]
async fn of_the_untrusted() {
    let world = planned(Plan::capacity(1).set("UNTRUSTED_POLICY", "refuse")).await;
    refused(&world, job("build", &["say never"]).pull_request_from("eve/app"), Reason::PolicyRefused).await;
    world.finish().await;
}

/// NEW-29, NEW-122, F122: another repository under a name that has an identity.
#[tokio::test]
async fn of_a_name_that_changed_hands() {
    let world = world(1).await;
    let first = world.push_one(job("build", &["say here"]).ids(4, 2));
    world.ends_as(first, Status::Success, SOON).await;
    refused(&world, job("build", &["say never"]).ids(9, 2), Reason::IdentityPinChanged).await;
    world.finish().await;
}
