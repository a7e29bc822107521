//! The tests on a real one-node Kubernetes. Where the machine cannot run one, that is a row of its own and no success.

use std::path::Path;
use std::time::Instant;

use anyhow::Context as _;

use super::stage::{Outcome, Row, cargo_test_with};
use super::test_targets;
use crate::images;
use crate::provision::{self, Part};
use crate::say;

/// Test targets whose ignored tests need the cluster.
const TARGETS: &[&str] = &["conformance_kubernetes", "real_kubernetes", "kubernetes"];

/// Where the tests find the archive of the executors' image.
const IMAGE: &str = "GDR_EXECUTOR_IMAGE";

/// Two clusters at once would share two cores.
const THREADS: u32 = 1;

pub(super) async fn stage(root: &Path) -> Row {
    let name = "real Kubernetes";
    if let Some(reason) = testkit::real::kubernetes::machine() {
        say::line(&format!("{name}: absent, {reason}"));
        return Row::absent(name, &reason);
    }
    let started = Instant::now();
    let image = match prepared(root).await {
        Ok(image) => image,
        Err(error) => {
            let outcome = Outcome::Failed(format!("{error:#}"));
            return Row::judged(name, started.elapsed().as_secs_f64(), &outcome);
        }
    };
    let mut words = test_targets(TARGETS);
    words.extend(["--", "--ignored"].map(str::to_owned));
    cargo_test_with(name, root, words, THREADS, &[(IMAGE, &image)]).await
}

/// The programs of the cluster and of SPIRE, and the executors' image, whose archive it names.
async fn prepared(root: &Path) -> anyhow::Result<String> {
    provision::ensure(&[Part::Kubernetes, Part::Spire]).await?;
    let made = images::make(root, &images::Arguments::executor_for_tests(root)).await?;
    let executor = made.first().context("no image was made")?;
    Ok(executor.archive.display().to_string())
}
