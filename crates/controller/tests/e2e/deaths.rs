//! Jobs that die, and the executors of jobs: out of memory, on a full disk, frozen. Each time the result is right, the
//! page says why, every step is closed, the slot serves the next job, and nothing is left.

use std::path::{Path, PathBuf};
use std::time::Duration;

use domain::reason::Reason;
use testkit::real::{Gate, JobPage, Run, Seen, Settings, Signal, Status, eventually};

use crate::world::{JOB, SOON, World, assert_steps_closed, settings};

/// The job failed and says so itself: nothing of ours is on its page.
async fn fails_by_itself(world: &World, run: &Run, name: &str, text: &str) {
    world.ends(run, JOB, "failure").await;
    let page = page(world, run, name).await;
    assert!(page.text().contains(text), "no {text:?} in {page:?}");
    let ours = Reason::ALL.iter().find(|reason| page.text().contains(&format!("##[error]{reason}:")));
    assert_eq!(ours, None, "{page:?}");
    let states: Vec<Status> = world.task(&world.job(run, name).await).steps.iter().map(|step| step.status).collect();
    assert_eq!(states, [Status::Failure, Status::Skipped]);
}

/// We failed the job: why, and what to do about it, are on its page.
async fn fails_with(world: &World, run: &Run, name: &str, reason: Reason, cause: &str) {
    world.ends(run, JOB, "failure").await;
    shows(&page(world, run, name).await, reason, cause);
    assert_steps_closed(&world.log_is_closed(&world.job(run, name).await, SOON).await);
}

#[track_caller]
pub(crate) fn shows(page: &JobPage, reason: Reason, cause: &str) {
    let rows: Vec<&String> = page.parts.iter().flat_map(|part| &part.rows).collect();
    let error = format!("##[error]{reason}: ");
    let at = rows.iter().position(|row| row.starts_with(&error)).unwrap_or_else(|| panic!("no {error:?}: {page:?}"));
    assert!(rows[at].contains(cause), "no {cause:?} in {:?}", rows[at]);
    assert_eq!(rows.get(at + 1).map(|row| row.as_str()), Some(reason.remedy()), "{page:?}");
}

async fn page(world: &World, run: &Run, name: &str) -> JobPage {
    world.page(run, &world.job(run, name).await).await
}

/// The slot is free, and nothing runs any more.
async fn nothing_is_left(world: &World) {
    world.serves_another_job().await;
    nothing_runs(world, SOON).await;
}

async fn nothing_runs(world: &World, limit: Duration) {
    let gone = eventually("nothing of a job runs", limit, async || {
        let left: Vec<_> =
            world.controller.processes().into_iter().map(|process| process.arguments.join(" ")).collect();
        Ok(if left.is_empty() { Seen::Done(()) } else { Seen::NotYet(left.join("\n")) })
    });
    gone.await.unwrap();
}

/// A job whose step sees to it that a process of its own executor gets no more memory, and then says a lot.
const TALKS: &str = "
on: push
jobs:
  talks:
    runs-on: LABEL
    steps:
      - run: |
          echo \"before\"
          prlimit --pid WHOSE --as=1:1
          row=$(head -c 4000 /dev/zero | tr '\\0' y)
          for i in $(seq 3000); do echo \"$i $row\"; done
          exec sleep 600
      - run: echo not reached
";

async fn job_at(gate: &Gate, world: &World, workflow: &str) -> Run {
    let run = world.push(&[("deaths.yml", &workflow.replace("GATE", &gate.wait_here()))]).await.remove(0);
    gate.arrived(1, JOB).await.unwrap();
    run
}

/// NEW-26, T7: a step that gets no memory, and one that the kernel kills for it, are the job's own failures.
#[tokio::test]
async fn a_step_without_memory_fails_by_itself() {
    const WORKFLOW: &str = "
on: push
jobs:
  hungry:
    runs-on: LABEL
    steps:
      - run: |
          ulimit -v 500000
          exec /usr/bin/python3 -c 'bytearray(1 << 30)'
      - run: echo not reached
  killed:
    needs: []
    runs-on: LABEL
    steps:
      - run: |
          echo 'until the kernel ends it'
          kill -KILL $$
      - run: echo not reached
";
    let world = World::new(1).await;
    let run = world.push_one(WORKFLOW).await;
    world.job_ends(&run, "hungry", JOB, Status::Failure).await;
    world.job_ends(&run, "killed", JOB, Status::Failure).await;
    fails_by_itself(&world, &run, "hungry", "MemoryError").await;
    fails_by_itself(&world, &run, "killed", "until the kernel ends it").await;
    nothing_is_left(&world).await;
}

/// NEW-26, F62, T7: the runner gets no more memory in the middle of its job.
#[tokio::test]
async fn a_runner_without_memory_fails_its_job_with_a_reason() {
    let world = World::new(1).await;
    let run = world.push_one(&TALKS.replace("WHOSE", "$PPID")).await;
    fails_with(&world, &run, "talks", Reason::ExecutorExited, "the runner ended with exit code 2").await;
    nothing_is_left(&world).await;
}

/// NEW-26, F62, T7: so does the executor, which dies of it; the first process of a job takes all others with it.
#[tokio::test]
async fn an_executor_without_memory_fails_its_job_with_a_reason() {
    let world = World::new(1).await;
    let run = world.push_one(&TALKS.replace("WHOSE", "1")).await;
    fails_with(&world, &run, "talks", Reason::ExecutorExited, "the executor was ended by signal").await;
    nothing_is_left(&world).await;
}

/// Our program with its state on a disk of this size, which only it and what it starts can see.
fn on_a_small_disk(dir: &Path) -> PathBuf {
    use std::os::unix::fs::PermissionsExt as _;
    let ours = if rustix::process::geteuid().is_root() { "" } else { "--user --map-current-user --keep-caps" };
    let script = format!(
        "#!/bin/bash\n\
         state=$(sed 's/.* --state \\([^ ]*\\) .*/\\1/' <<<\"$* \")\n\
         mkdir -p \"$state\"\n\
         exec unshare {ours} --mount --propagation private bash -c \
         'mount -t tmpfs -o size=64m,mode=0700 none \"$0\" && exec \"$@\"' \"$state\" '{}' \"$@\"\n",
        env!("CARGO_BIN_EXE_gitea-dynamic-runner")
    );
    let file = dir.join("on-a-small-disk");
    std::fs::write(&file, script).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
    file
}

/// NEW-26, T7, F25: a job fills the disk that our state is on too. It fails by itself, with what its step said; the one
/// that is pushed meanwhile waits for room and runs, and afterwards everything is as before.
#[tokio::test]
async fn a_job_that_fills_the_disk_fails_by_itself_and_hurts_nobody() {
    const WORKFLOW: &str = "
on: push
jobs:
  fills:
    runs-on: LABEL
    steps:
      - run: |
          dd if=/dev/zero of=\"$HOME/fill\" bs=4k || echo 'so it is full'
          setsid --fork bash -c 'while :; do cat /dev/zero >>\"$HOME/more\"; sleep 0.02; done' >/dev/null 2>&1 <&1
          GATE
          exit 3
      - run: echo not reached
";
    let dir = tempfile::tempdir().unwrap();
    let world = World::of(Settings { program: on_a_small_disk(dir.path()), ..settings(2) }).await;
    let gate = Gate::new().await.unwrap();
    let run = job_at(&gate, &world, WORKFLOW).await;
    let other = world.push(&[("other.yml", OTHER)]).await.remove(0);
    let unwritten = eventually("the other cannot be kept", SOON, async || {
        let log = world.controller.log();
        Ok(if log.contains("disk is full") || log.contains("No space left") {
            Seen::Done(())
        } else {
            Seen::NotYet(log)
        })
    });
    unwritten.await.unwrap();
    gate.open();
    fails_by_itself(&world, &run, "fills", "No space left on device").await;
    world.ends(&other, JOB, "success").await;
    nothing_is_left(&world).await;
}

const OTHER: &str = "
on: push
jobs:
  other:
    runs-on: LABEL
    steps:
      - run: echo other
";

/// A runner reports every 5 s. Its executor's keep-alive, which would hear the same, comes every 30 s.
const STOPPED: Duration = Duration::from_secs(10);

/// A job that goes on for long after its gate.
const GOES_ON: &str = "
on: push
jobs:
  long:
    runs-on: LABEL
    steps:
      - run: |
          echo \"before\"
          GATE
          echo \"after $((1 + 1))\"
          exec sleep 600
      - run: echo not reached
";

/// NEW-4, NEW-26, NEW-63, NEW-159, T7, T80: an executor freezes with all that it started, and its folder is gone. The job is
/// lost, with a reason, and its slot serves another. Thawed, its runner hears CANCELLED, ends the job, and Gitea nothing
/// of what it says.
#[tokio::test]
async fn a_frozen_executor_that_thaws_is_stopped() {
    let world = World::new(1).await;
    let gate = Gate::new().await.unwrap();
    let run = job_at(&gate, &world, GOES_ON).await;
    let job = world.job(&run, "long").await;
    let frozen = world.controller.processes();
    frozen.iter().for_each(|process| process.signal(Signal::Stop));
    let executors = world.controller.state().join("executors");
    let folder = std::fs::read_dir(&executors).unwrap().next().unwrap().unwrap().path();
    let aside = executors.with_file_name("aside");
    std::fs::rename(folder, &aside).unwrap();
    fails_with(&world, &run, "long", Reason::ExecutorDeleted, "disappeared").await;
    world.serves_another_job().await;
    let before = (world.log(&job).await, format!("{:?}", world.task(&job)));
    gate.open();
    frozen.iter().for_each(|process| process.signal(Signal::Continue));
    nothing_runs(&world, STOPPED).await;
    let after = (world.log(&job).await, format!("{:?}", world.task(&job)));
    assert_eq!(after, before, "Gitea heard of it");
    std::fs::remove_dir_all(aside).unwrap();
}
