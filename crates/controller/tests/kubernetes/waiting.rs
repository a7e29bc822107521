//! A job that is under way while something happens to it.

use testkit::real::{Gate, Run};

use crate::site::{JOB, Site};

/// Words as they are said are not found in the script, which is shown as well.
const WORKFLOW: &str = "
on: push
jobs:
  long:
    runs-on: pod
    steps:
      - run: |
          echo be''fore
          GATE
          echo af''ter
";

/// A job that waits in its step.
pub(crate) struct Waiting {
    pub(crate) run: Run,
    pub(crate) gate: Gate,
    pub(crate) pod: String,
}

/// Begins one, and returns when it waits.
pub(crate) async fn waiting(site: &Site) -> Waiting {
    let gate = Gate::at(site.cluster.host_address()).await.unwrap();
    let run = site.push(&WORKFLOW.replace("GATE", &gate.wait_here())).await;
    gate.arrived(1, JOB).await.unwrap_or_else(|error| panic!("{error}\n{}", site.log_end()));
    Waiting { run, gate, pod: site.claimed_pod().await }
}
