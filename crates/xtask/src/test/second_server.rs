//! What is shown of the queue in NATS once more, on the nats-server that the system has, Debian's say. Where it has none, that is
//! a row of its own and no success. The lease there needs a newer one than Debian 12 has: the client library does not read what
//! 2.9.10 says of a bucket.

use std::path::Path;

use testkit::real::NATS_SERVER_VARIABLE;

use super::stage::{Row, cargo_test_with};
use crate::say;

/// Where Debian's package puts it.
const SERVER: &str = "/usr/sbin/nats-server";

/// The module whose tests are run.
const MODULE: &str = "queue::jetstream::";

/// What Debian 12's 2.9.10 cannot: the tests, and why.
const BEYOND_IT: &[(&str, &str)] = &[
    ("streams::a_stream_that_hides_or_risks_tasks_is_refused", "it knows no transform of subjects"),
    ("outages::a_cluster_loses_its_leader", "one that was killed never says again that it is ready"),
];

pub(super) async fn stage(root: &Path, threads: u32) -> Row {
    let name = "NATS server of the system";
    if !Path::new(SERVER).exists() {
        let reason = format!("there is no {SERVER}");
        say::line(&format!("{name}: absent, {reason}"));
        return Row::absent(name, &reason);
    }
    let skipped = BEYOND_IT.iter().flat_map(|(test, _)| ["--skip", test]);
    let words = ["--lib", "--", MODULE].into_iter().chain(skipped).map(str::to_owned).collect();
    cargo_test_with(name, root, words, threads, &[(NATS_SERVER_VARIABLE, SERVER)]).await
}
