//! The Lease on the double of the Kubernetes API, and on a real API server.

#![expect(clippy::unwrap_used, reason = "tests")]

mod faults;
mod order;
mod real;

use std::time::Instant;

use serde_json::{Value, json};
use testkit::kubernetes::{Fault, Kubernetes, On, Resource, Verb};
use tokio::time::timeout;

use super::super::testing::{LONG, SHORT, SOON, leads, lost, still_leads, times, until};
use super::super::{Act, Fenced, Lost};
use super::*;
use crate::kubernetes::testing::connect;

const NAMESPACE: &str = "gitea-actions";
const NAME: &str = "dynamic-runner-scheduler-one";

/// A replica with a connection of its own.
fn replica(double: &Kubernetes, holder: &str, times: Times) -> KubernetesLease {
    KubernetesLease::new(connect(double, NAMESPACE), &"one".parse().unwrap(), holder).with_times(times)
}

/// Waits for this.
async fn comes_true(condition: impl Fn() -> bool) {
    let wait = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(SOON, wait).await.unwrap();
}

/// Waits until it decides nothing any more, although nobody else leads.
async fn rests(held: &Held) {
    until(held, Act::Decide, Err(Fenced::InDoubt)).await;
}

/// Waits for so many more calls of this kind.
async fn calls(double: &Kubernetes, verb: Verb, more: usize) {
    let wanted = double.count(verb, Resource::Leases) + more;
    let enough = |double: &Kubernetes| double.count(verb, Resource::Leases) >= wanted;
    double.wait_for("there are more calls", enough, SOON).await.unwrap();
}

/// Waits until it was renewed so many times more.
async fn renewals(double: &Kubernetes, more: usize) {
    let mut before = version(double);
    for _ in 0..more {
        double.wait_for("it is renewed", |double| version(double) != before, SOON).await.unwrap();
        before = version(double);
    }
}

fn version(double: &Kubernetes) -> Value {
    double.object(Resource::Leases, NAME).unwrap_or_default()["metadata"]["resourceVersion"].clone()
}

/// What the object says.
fn spec(double: &Kubernetes) -> Value {
    double.object(Resource::Leases, NAME).unwrap()["spec"].clone()
}

/// Somebody else writes himself in, past all rules.
fn steal(double: &Kubernetes, holder: &str) {
    double.edit(Resource::Leases, NAME, |lease| lease["spec"]["holderIdentity"] = json!(holder));
}
