//! What a workflow's author sees of jobs in Pods.

use testkit::real::{Seen, eventually};

use crate::site::{JOB, NAMESPACE, Site};

const SMOKE: &str = "
on: push
jobs:
  smoke:
    runs-on: pod
    steps:
      - run: |
          test \"$(id -u)\" = 2000
          gitea-dynamic-runner svid
      - run: node --version && git --version
";

const FAILS_IN_MEMORY: &str = "
on: push
jobs:
  greedy:
    runs-on: pod
    steps:
      - run: node -e 'const a = []; for (;;) a.push(Buffer.alloc(16 << 20, 1))'
";

const LONG: &str = "
on: push
jobs:
  long:
    runs-on: pod
    steps:
      - run: echo before; sleep 40; echo after
";

/// WFL-1, POD-2, POD-4, EXE-7, IMG-1, NEW-69, NEW-72, NEW-78: with the rights of the shipped manifests a job runs in a real
/// Pod as user 2000 with the SVID of its repository and job from a real SPIRE, a killed controller costs another one
/// nothing, a Pod that somebody deletes is told on the job's page, and nothing is left.
#[tokio::test]
#[ignore = "needs a real Kubernetes: cargo xtask test --only kubernetes"]
async fn jobs_in_real_pods() {
    let mut site = Site::start(&[]).await;
    let run = site.push(SMOKE).await;
    let page = site.ends(&run, "success").await;
    assert!(page.contains("spiffe://td.test/ci/acme/app/smoke"), "{page}");
    site.nothing_left().await;

    let run = site.push(LONG).await;
    running(&site).await;
    site.kill9().await;
    site.restart();
    let page = site.ends(&run, "success").await;
    assert!(page.contains("before") && page.contains("after"), "{page}");
    site.nothing_left().await;

    let run = site.push(LONG).await;
    let pod = running(&site).await;
    let path = format!("/api/v1/namespaces/{NAMESPACE}/pods/{pod}");
    site.cluster.admin().delete(&path, &serde_json::json!({"gracePeriodSeconds": 0})).await.unwrap();
    let page = site.ends(&run, "failure").await;
    assert!(page.contains("executor_deleted") || page.contains("interrupted"), "{page}");
    site.nothing_left().await;
}

/// NEW-68, F68: a step that uses up its Pod's memory is killed and fails; the executor lives on and reports it.
#[tokio::test]
#[ignore = "needs a real Kubernetes: cargo xtask test --only kubernetes"]
async fn out_of_memory_in_a_real_pod() {
    let site = Site::start(&[]).await;
    let run = site.push(FAILS_IN_MEMORY).await;
    let page = site.ends(&run, "failure").await;
    assert!(page.contains("137"), "{page}");
    site.nothing_left().await;
}

/// Waits until the only Pod's job has begun, and names the Pod.
async fn running(site: &Site) -> String {
    let path = format!("/api/v1/namespaces/{NAMESPACE}/pods");
    let claimed = eventually("a Pod is claimed", JOB, async || {
        let list = site.cluster.admin().get(&path).await.unwrap().object(&path).unwrap();
        let pods = list["items"].as_array().cloned().unwrap_or_default();
        let claimed = pods.iter().find(|pod| pod["metadata"]["labels"]["ci.ddupan.top/claimed"] == "true");
        Ok(match claimed.and_then(|pod| pod["metadata"]["name"].as_str()) {
            Some(name) => Seen::Done(name.to_owned()),
            None => Seen::NotYet(format!("{} Pods", pods.len())),
        })
    });
    claimed.await.unwrap()
}
