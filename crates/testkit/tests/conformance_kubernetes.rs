//! The real API server and its double say the same. The real one needs `cargo xtask provision kubernetes`, root and
//! Debian 12; what it said is recorded, so that the double is held to it everywhere.

#![expect(clippy::unwrap_used, reason = "tests")]

use testkit::kubernetes::Kubernetes;
use testkit::kubernetes::conformance::{ask_all, differences, record, recorded};
use testkit::real::kubernetes::Cluster;

/// The double answers every question as the real server did.
#[tokio::test]
async fn the_double_answers_as_recorded() {
    let recorded = recorded().unwrap();
    for mut double in [Kubernetes::start().await, Kubernetes::start_with_tls().await] {
        let differences = differences(&recorded, &ask_all(&mut double).await.unwrap());
        assert!(differences.is_empty(), "recorded, and said:\n{}", differences.join("\n"));
    }
}

/// The real server answers as recorded. `RECORD=1` writes the record instead.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root on Debian 12 and `cargo xtask provision kubernetes`"]
async fn the_real_server_answers_as_recorded() {
    let mut cluster = Cluster::start_without_node().await.unwrap();
    cluster.install_entries().await.unwrap();
    let answers = ask_all(&mut cluster).await.unwrap();
    if std::env::var_os("RECORD").is_some() {
        let text = serde_json::to_string_pretty(&answers).unwrap();
        return std::fs::write(record(), format!("{text}\n")).unwrap();
    }
    let differences = differences(&recorded().unwrap(), &answers);
    assert!(differences.is_empty(), "recorded, and said:\n{}", differences.join("\n"));
}
