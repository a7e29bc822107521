//! The tests on a real one-node Kubernetes. Where the machine cannot run one, that is a row of its own and no success.

use std::path::Path;
use std::time::Instant;

use anyhow::Context as _;

use super::stage::{Outcome, Row, cargo_test_with};
use super::test_targets;
use crate::images::{self, Which};
use crate::provision::{self, Part};
use crate::say;

/// Test targets whose ignored tests need the cluster.
pub(crate) const TARGETS: &[&str] = &["conformance_kubernetes", "real_kubernetes", "kubernetes"];

/// Where the tests find the archives of our images.
const IMAGES: [(&str, Which); 2] =
    [("GDR_CONTROLLER_IMAGE", Which::Controller), ("GDR_EXECUTOR_IMAGE", Which::Executor)];

/// Two clusters at once would share two cores.
const THREADS: u32 = 1;

/// What of a library needs a real SPIRE server, and what needs a real API server.
const OF_LIBRARIES: [&str; 2] = ["keeps_the_contract_on_a_real_server", "keeps_the_contract_on_a_real_api_server"];

pub(super) async fn stage(root: &Path) -> Vec<Row> {
    let name = "real Kubernetes";
    if let Some(reason) = testkit::real::kubernetes::machine() {
        say::line(&format!("{name}: absent, {reason}"));
        return vec![Row::absent(name, &reason)];
    }
    let started = Instant::now();
    let archives = match prepared(root).await {
        Ok(archives) => archives,
        Err(error) => {
            let outcome = Outcome::Failed(format!("{error:#}"));
            return vec![Row::judged(name, started.elapsed().as_secs_f64(), &outcome)];
        }
    };
    let environment: Vec<_> = archives.iter().map(|(name, archive)| (*name, archive.as_str())).collect();
    let mut words = test_targets(TARGETS);
    words.extend(["--", "--ignored"].map(str::to_owned));
    let cluster = cargo_test_with(name, root, words, THREADS, &environment).await;
    let words = ["--lib", "--", "--ignored"].into_iter().chain(OF_LIBRARIES).map(str::to_owned).collect();
    vec![cluster, cargo_test_with("contracts on real servers", root, words, THREADS, &[]).await]
}

/// Everything that is real, and our images: the variable and the archive of each.
async fn prepared(root: &Path) -> anyhow::Result<Vec<(&'static str, String)>> {
    let parts = [Part::Gitea, Part::Runner, Part::Nats, Part::Kubernetes, Part::Spire, Part::Helm];
    provision::ensure(&parts).await?;
    let made = images::make(root, &images::Arguments::for_tests(root)).await?;
    let archive = |which: Which| -> anyhow::Result<String> {
        let image = made.iter().find(|made| made.image == which).context("an image was not made")?;
        Ok(image.archive.display().to_string())
    };
    IMAGES.into_iter().map(|(name, which)| Ok((name, archive(which)?))).collect()
}
