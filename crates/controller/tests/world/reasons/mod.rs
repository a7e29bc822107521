//! What the author of a workflow reads when a task ends with a reason (NEW-26, NEW-29): every reason of the closed list
//! is provoked, and its whole job page is held against a golden text in `golden/`.
//!
//! A reason that has neither a golden text nor a row in [`elsewhere`] fails. After a change of a text on purpose:
//! `INSTA_UPDATE=always cargo test -p controller --test world -- reasons`.

mod ends;
mod refusals;
mod starts;

use std::path::{Path, PathBuf};
use std::time::Duration;

use domain::lifecycle::{Ending, Life, certificate};
use domain::reason::Reason;
use jiff::Timestamp;
use testkit::gitea::{JobId, JobState, Status};
use testkit::world::World;

/// Longer than the shortest limit of a run.
const LONG: Duration = Duration::from_secs(100);

/// Waits until a job has failed, and holds its page against the golden text of the reason.
async fn shows(world: &World, job: JobId, reason: Reason) {
    shows_as(world, job, reason, Status::Failure).await;
}

/// Waits until a job has ended so, and holds its page against the golden text of the reason.
async fn shows_as(world: &World, job: JobId, reason: Reason, end: Status) {
    let state = world.ends_as(job, end, LONG).await;
    world.gitea_shows("its log is closed", |gitea| gitea.state(job).archived).await;
    let state = JobState { log: world.gitea.state(job).log, ..state };
    // Nobody knows the steps of what cannot be read.
    let readable = reason != Reason::InvalidWorkflow;
    assert!(!readable || state.steps.iter().all(|step| step.status.is_end()), "{:?}", state.steps);
    insta::with_settings!({
        snapshot_path => "golden", prepend_module_to_snapshot => false, omit_expression => true,
        description => "The job page as a person sees it; what differs from run to run is replaced.",
    }, {
        insta::assert_snapshot!(reason.as_str(), steady(&page(&state), world));
    });
}

/// All rows, each where the page shows it, with the ends of the steps.
fn page(state: &JobState) -> String {
    let page = state.page();
    let mut text = format!("job: {:?}\n", state.status);
    let mut part = |title: String, rows: &[String]| {
        text += &title;
        text += "\n";
        text.extend(rows.iter().map(|row| format!("    {row}\n")));
    };
    part("Set up job".to_owned(), &page.set_up);
    for (at, (step, rows)) in state.steps.iter().zip(&page.steps).enumerate() {
        part(format!("step {}: {:?}", at + 1, step.status), rows);
    }
    part("Complete job".to_owned(), &page.complete);
    text
}

/// Without names and measures that differ from run to run.
fn steady(page: &str, world: &World) -> String {
    let registration = std::fs::read_to_string(world.state().join("registration.json")).unwrap();
    let registration: serde_json::Value = serde_json::from_str(&registration).unwrap();
    let instance = registration["instance"].as_str().unwrap();
    let trust_domain = registration["trust_domain"].as_str().unwrap();
    let page = page.replace(trust_domain, "TRUST-DOMAIN").replace(instance, "INSTANCE");
    // On a slow machine a start is told while it lasts.
    let told_while =
        |row: &&str| row.contains(" after the fetch of this task: it has a slot, and its executor is being made");
    page.lines().filter(|row| !told_while(row)).map(|row| without_measures(row) + "\n").collect()
}

/// `3.4 s` and `900 bytes` become `N s` and `N bytes`.
fn without_measures(row: &str) -> String {
    let words: Vec<&str> = row.split(' ').collect();
    let unit = |at: usize| words.get(at + 1).map(|unit| unit.trim_end_matches([',', ';', ')']));
    let steady = words.iter().enumerate().map(|(at, word)| {
        let number = word.trim_start_matches('(');
        let measured = number.parse::<f64>().is_ok() && unit(at).is_some_and(|unit| ["s", "bytes"].contains(&unit));
        if measured { word.replace(number, "N") } else { (*word).to_owned() }
    });
    steady.collect::<Vec<_>>().join(" ")
}

/// Why a reason is not provoked here.
enum Elsewhere {
    /// Nothing in this version ends a task with it.
    NoTask(&'static str),
    /// What it takes cannot be had here; this test provokes it below.
    Shown { by: &'static str, since: &'static str },
}

const IN_PODS: &str = "it takes a Pod, and executors here are processes of this host";

fn elsewhere(reason: Reason) -> Option<Elsewhere> {
    use Elsewhere::{NoTask, Shown};
    Some(match reason {
        Reason::TooLarge => Shown {
            by: "a_task_that_is_too_large_is_refused_with_numbers",
            since: "the queue takes 64 MiB, compressed",
        },
        Reason::Superseded => Shown {
            by: "a_task_that_ended_here_is_not_taken_again",
            since: "Gitea must be restored from a backup and make the very same token again",
        },
        Reason::IdentityTimeout => {
            Shown { by: "every_state_has_a_deadline", since: "four executors wait for 5 min each" }
        }
        Reason::PrivilegedNotAllowed => Shown { by: "only_whom_the_policy_names", since: IN_PODS },
        Reason::ConfigError => Shown { by: "refusals_of_a_create", since: IN_PODS },
        Reason::ImageInvalid | Reason::ImagePull => Shown { by: "images_and_configurations", since: IN_PODS },
        Reason::Unschedulable => Shown { by: "nodes_are_waited_for", since: IN_PODS },
        Reason::ExecutorOom | Reason::ExecutorEvicted => Shown { by: "ends", since: IN_PODS },
        Reason::NodeLost => Shown { by: "nodes_get_lost", since: IN_PODS },
        Reason::IdentityRejected => Shown { by: "an_identity_that_is_refused", since: IN_PODS },
        Reason::BackendQuota => Shown { by: "a_used_up_quota_is_waited_for", since: IN_PODS },
        Reason::PoolExhausted | Reason::SandboxLost | Reason::SandboxExpired => NoTask("there are no sandboxes"),
        Reason::Operator => NoTask("no command of an operator ends a task"),
        _ => return None,
    })
}

/// NEW-26, NEW-29: the rows of the reasons that have no page here, as their certificates would have them.
#[test]
fn the_rows_of_the_other_reasons() {
    let now = Timestamp::UNIX_EPOCH;
    let life = Life::fetched(now, now, vec![]);
    let rows = |reason: &Reason| certificate(&life, &Ending::new(*reason, "CAUSE".to_owned()), now).rows;
    let others = Reason::ALL.iter().filter(|reason| elsewhere(**reason).is_some());
    let text: String = others.flat_map(rows).map(|row| row.content + "\n").collect();
    insta::with_settings!({
        snapshot_path => "golden", prepend_module_to_snapshot => false, omit_expression => true,
    }, {
        insta::assert_snapshot!("elsewhere", text);
    });
}

/// NEW-29: every reason of the closed list is provoked here and has a golden text, or a row says why not.
#[test]
fn every_reason_has_a_golden_text_or_a_row_that_says_why_not() {
    let sources = sources();
    for reason in Reason::ALL {
        let golden = own_folder().join(format!("golden/{reason}.snap")).exists();
        let variant = format!("Reason::{reason:?}");
        let shown = [include_str!("ends.rs"), include_str!("refusals.rs"), include_str!("starts.rs")]
            .iter()
            .any(|source| source.contains(&variant));
        match elsewhere(*reason) {
            None => assert!(golden && shown, "{reason}: golden text {golden}, provoked {shown}"),
            Some(why) => {
                assert!(!golden && !shown, "{reason} is provoked here: it needs no row");
                match why {
                    Elsewhere::NoTask(why) => {
                        // A test of the rules gives any reason.
                        let programs = sources.iter().filter(|(name, _)| !name.contains("/src/lifecycle/tests/"));
                        let used = programs.filter(|(_, text)| text.contains(&variant)).map(|(name, _)| name).next();
                        assert_eq!(used, None, "{reason} ({why})");
                    }
                    Elsewhere::Shown { by, since } => {
                        let found = sources.iter().any(|(_, text)| text.contains(&format!("fn {by}()")));
                        assert!(found, "{reason} ({since}): there is no test {by}");
                    }
                }
            }
        }
    }
}

fn own_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/world/reasons")
}

/// The sources of the programs, by name, their tests included; not the list itself.
fn sources() -> Vec<(String, String)> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let (mut folders, mut found) = (Vec::new(), Vec::new());
    folders.extend(["controller", "domain", "executor"].map(|name| crates.join(name).join("src")));
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if !path.ends_with("domain/src/reason.rs") {
                found.push((path.display().to_string(), std::fs::read_to_string(&path).unwrap()));
            }
        }
    }
    found
}
