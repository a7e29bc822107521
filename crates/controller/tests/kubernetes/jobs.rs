//! What a workflow's author sees of jobs in Pods.

use crate::phases::Phases;
use crate::site::{NAMESPACE, Site, said};
use crate::waiting::waiting;

/// What an operator runs after an installation, as it is.
pub(crate) const SMOKE: &str = include_str!("../../../../examples/smoke/.gitea/workflows/smoke.yml");

const FAILS_IN_MEMORY: &str = "
on: push
jobs:
  greedy:
    runs-on: pod
    steps:
      - run: node -e 'const a = []; for (;;) a.push(Buffer.alloc(16 << 20, 1))'
";

/// WFL-1, POD-2, POD-4, EXE-7, IMG-1, NEW-68, NEW-69, NEW-72, NEW-78, F68: with the rights of the shipped manifests a job runs in a real
/// Pod as user 2000 with the SVID of its repository and job from a real SPIRE, a killed controller costs another one
/// nothing, a Pod that somebody deletes is told on the job's page, a step that uses up its Pod's memory is killed
/// and fails, and nothing is left.
#[tokio::test]
#[ignore = "needs a real Kubernetes: cargo xtask test --only kubernetes"]
async fn jobs_in_real_pods() {
    let mut site = Site::start(&[]).await;
    let phases = Phases::watch(&site);
    let run = site.push(SMOKE).await;
    let page = site.ends(&run, "success").await;
    assert!(page.contains("issued: spiffe://td.test/ci/acme/app/smoke"), "{page}");
    phases.print(&site, &run).await;
    site.nothing_left().await;

    let phases = Phases::watch(&site);
    let job = waiting(&site).await;
    site.kill9().await;
    site.restart();
    job.gate.open();
    let page = site.ends(&job.run, "success").await;
    phases.print(&site, &job.run).await;
    assert!(said(&page, "before") == 1 && said(&page, "after") == 1, "{page}");
    site.nothing_left().await;

    let job = waiting(&site).await;
    let path = format!("/api/v1/namespaces/{NAMESPACE}/pods/{}", job.pod);
    site.cluster.admin().delete(&path, &serde_json::json!({"gracePeriodSeconds": 0})).await.unwrap();
    let page = site.ends(&job.run, "failure").await;
    assert!(page.contains("executor_deleted") || page.contains("interrupted"), "{page}");
    site.nothing_left().await;

    // The executor lives on and reports it.
    let run = site.push(FAILS_IN_MEMORY).await;
    let page = site.ends(&run, "failure").await;
    assert!(page.contains("137"), "{page}");
    site.nothing_left().await;
}
