//! Executors that are frozen while the world goes on without them, and thaw (NEW-4, NEW-58, NEW-61, NEW-63, NEW-159).

use std::path::{Path, PathBuf};
use std::time::Duration;

use connectrpc::ErrorCode;
use testkit::gitea::{FaultSpec, Gitea, Method, Status};
use testkit::real::{Process, Signal};
use testkit::world::{Note, SOON, World, job};

use crate::world;

/// A runner that polls on has 5 s until SIGTERM and 5 s more until SIGKILL; its next keep-alive would come later than this.
const GONE: Duration = Duration::from_secs(15);

/// All processes of the only executor, stopped, and its folder out of the controller's sight: it is gone as far as anybody
/// can tell.
struct Frozen {
    processes: Vec<Process>,
    aside: PathBuf,
}

impl Frozen {
    fn of(world: &World) -> Self {
        let processes = world.processes();
        processes.iter().for_each(|process| process.signal(Signal::Stop));
        let aside = world.state().join("aside");
        std::fs::rename(folder(world), &aside).unwrap();
        Self { processes, aside }
    }

    /// Lets it go on, and waits until nothing of it runs.
    async fn thaws_and_ends(self, world: &World) {
        self.processes.iter().for_each(|process| process.signal(Signal::Continue));
        let ours = |process: &Process| self.processes.iter().any(|old| old.pid == process.pid);
        let left = |world: &World| match world.processes().iter().filter(|process| ours(process)).count() {
            0 => Ok(()),
            left => Err(format!("{left} processes")),
        };
        world.eventually("nothing of it runs", GONE, left).await;
        std::fs::remove_dir_all(self.aside).unwrap();
    }
}

fn folder(world: &World) -> PathBuf {
    world.state().join("executors").join(&world.executors()[0])
}

/// The runner has read its registration: it polls.
fn polls(world: &World) -> Result<(), String> {
    let tmp = world.executors().first().map(|name| world.state().join("executors").join(name).join("work/tmp"));
    // Of a checkout below /tmp or /var/tmp the job sees the programs of these tests there as well.
    let is_own = |entry: &std::fs::DirEntry| entry.file_name().to_string_lossy().starts_with("gitea-task-runner-");
    let own = tmp.and_then(|tmp| std::fs::read_dir(tmp).ok()?.flatten().find(is_own));
    let own = own.ok_or("its runner has no folder")?.path();
    let has = |name: &str| Path::new(&own).join(name).exists();
    if has("config.yaml") && !has(".runner") { Ok(()) } else { Err("it has not polled".to_owned()) }
}

/// NEW-4, NEW-58, NEW-61, NEW-102, NEW-160: an executor that froze before it had its task is replaced. When it thaws its
/// runner is told that there is nothing to do, polls on for ever, and is ended by its executor; the task runs once.
#[tokio::test]
async fn one_that_polls_on_is_ended_by_its_executor() {
    let world = world(1).await;
    let job = world.push_one(job("once", &["gate here\nsay here"]));
    world.eventually("its executor exists", SOON, |world| some(world.executors().len())).await;
    // The claim asks Gitea first.
    let away = FaultSpec::gitea(ErrorCode::Unavailable, "database is locked").times(u32::MAX);
    world.gitea.fail_next(Method::UpdateTask, away);
    world.eventually("its runner polls", SOON * 3, polls).await;
    let frozen = Frozen::of(&world);
    world.eventually("it is missed", SOON, |world| says(world, "disappeared from the backend")).await;
    world.gitea.clear_faults();
    world.desk.arrived("here", 1, SOON).await;
    frozen.thaws_and_ends(&world).await;
    assert!(world.log().contains(r#""epoch":2"#), "{}", world.log());
    world.desk.open_gate("here");
    let state = world.ends_as(job, Status::Success, SOON).await;
    assert_eq!(state.page().steps, [["here"]]);
    assert_eq!(world.desk.executions().into_values().collect::<Vec<_>>(), [1]);
    world.finish().await;
}

/// NEW-4, NEW-26, NEW-63, NEW-159, T7, T80: an executor that froze in the middle of its job is lost, its slot serves the
/// next one, and nobody begins the job anew. When it thaws its runner hears CANCELLED, and Gitea nothing of what it says.
#[tokio::test]
async fn one_in_the_middle_of_its_job_is_told_cancelled() {
    let world = world(1).await;
    let lost = world.push_one(job("lost", &["say before\ngate middle\nsay after\nhang", "say never"]));
    let stored = |gitea: &Gitea| gitea.state(lost).rows().contains(&"before");
    world.gitea_shows("its row is stored", stored).await;
    let frozen = Frozen::of(&world);
    let state = world.ends_as(lost, Status::Failure, SOON).await;
    assert!(state.rows().iter().any(|row| row.starts_with("##[error]executor_deleted:")), "{:?}", state.rows());
    assert!(state.steps.iter().all(|step| step.status.is_end()), "{:?}", state.steps);
    let next = world.push_one(job("next", &["say here"]));
    world.ends_as(next, Status::Success, SOON).await;
    let before = world.gitea.state(lost);
    world.desk.open_gate("middle");
    frozen.thaws_and_ends(&world).await;
    let task = world.task_of(lost);
    let cancelled = |note: &Note| (note.task, &*note.verb, &*note.rest) == (task, "told", "CANCELLED");
    world.desk.until("its runner is told CANCELLED", SOON, |notes| notes.iter().any(cancelled)).await;
    assert_eq!(world.gitea.state(lost), before, "Gitea heard of it");
    assert_eq!(world.desk.executions()[&task], 1);
    world.finish().await;
}

fn says(world: &World, word: &str) -> Result<(), String> {
    if world.log().contains(word) { Ok(()) } else { Err(format!("no {word:?} in the log")) }
}

fn some(count: usize) -> Result<(), String> {
    if count > 0 { Ok(()) } else { Err("none".to_owned()) }
}
