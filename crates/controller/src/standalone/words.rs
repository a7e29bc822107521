//! What one-host mode says to a person on a terminal.

use std::fmt::Write as _;

use super::{Prepared, Surroundings};
use crate::config::IsolationKind;

/// What it does, what to write into a workflow, where things are, how to stop.
#[must_use]
pub fn greeting(prepared: &Prepared, here: &Surroundings) -> String {
    let config = &prepared.config;
    let (state, capacity) = (config.state_dir.display(), config.capacity.local);
    let jobs =
        if capacity.get() == 1 { "one job at a time".to_owned() } else { format!("up to {capacity} jobs at a time") };
    let registered = if prepared.registered_now { "registered now as" } else { "registered as" };
    let mut out = String::new();
    let _ = writeln!(out, "gitea-dynamic-runner {}\n", env!("CARGO_PKG_VERSION"));
    let _ = writeln!(out, "  Gitea      {}, {registered} {}", config.gitea.url, prepared.name);
    let _ = writeln!(out, "  Jobs       {jobs}, each in a process of its own that is thrown away at its end");
    let _ = writeln!(out, "  Isolation  {}", isolation(config.local.isolation));
    let _ = writeln!(out, "  Runner     {} (version {})", prepared.runner.path.display(), prepared.runner.version);
    let _ = writeln!(out, "  Identity   spiffe://{}/ci/<owner>/<repository>/<job>", config.identity.trust_domain());
    let _ = writeln!(out, "  State      {state}\n");
    if root_jobs(here, config.local.isolation) {
        let _ = writeln!(out, "  WARNING    {AS_ROOT}\n");
    }
    let _ = writeln!(out, "Write one of these into a workflow: {}\n", labels(prepared).join(", "));
    let _ = writeln!(out, "  jobs:\n    build:\n      runs-on: local\n");
    let _ = writeln!(out, "What it is doing:  gitea-dynamic-runner status --state {state}");
    let _ = writeln!(out, "To stop: Ctrl-C. Running jobs go on, and the next start takes them up again.");
    out
}

/// Whether jobs are root: isolated ones never are.
#[must_use]
pub fn root_jobs(here: &Surroundings, isolation: IsolationKind) -> bool {
    here.root && isolation == IsolationKind::None
}

/// What to think of when jobs are root.
pub const AS_ROOT: &str = "started as root, and so is every job: start it as a user that has nothing else to lose";

/// What `none` means, for banner and log.
pub const NOT_ISOLATED: &str = "jobs run as this user, see each other, and can read this program's secrets; use \
                                --isolation full";

fn isolation(kind: IsolationKind) -> String {
    match kind {
        IsolationKind::Full => "full: a job sees its own processes and files only, and the host's read-only".to_owned(),
        IsolationKind::None => format!("NONE: {NOT_ISOLATED}"),
    }
}

/// The last words of an orderly end.
pub const GOODBYE: &str = "Stopped. Jobs that were running go on, and the next start takes them up again.\n";

/// The labels that a job can name.
fn labels(prepared: &Prepared) -> Vec<&str> {
    let labels = &prepared.config.labels;
    let neutral = labels.declare_self_hosted.then_some("self-hosted");
    neutral.into_iter().chain(["local"]).chain(labels.extra.iter().map(|(label, _)| label.as_str())).collect()
}
