//! Jobs of one host and what they can do to each other and to the host: by a hostile step that looks for markers, and
//! by jobs that leave everything behind that a job can leave behind. As root and as an ordinary user.

use std::path::PathBuf;
use std::time::Duration;

use jiff::Timestamp;
use testkit::real::{Gate, Process, Run, Seen, Settings, Signal, Standalone, eventually, insert, workplace};

use crate::world::{JOB, SOON, World, server, settings};

/// An account that has no entry anywhere.
const SOMEBODY: u32 = 12_345;
/// For the whole of a file system on a busy machine.
const LONG: Duration = Duration::from_secs(400);
/// What may be left of a job is gone by then.
const GONE: Duration = Duration::from_secs(5);

const VICTIM: &str = "
on: push
jobs:
  victim:
    runs-on: LABEL
    steps:
      - run: |
          first=vic; second=tim-NUMBER
          export MARKER=\"$first$second-environment\"
          for place in \"$HOME\" /tmp /var/tmp /dev/shm; do echo \"$first$second-file\" > \"$place/marker-NUMBER\"; done
          /usr/bin/python3 -c 'import time; time.sleep(600)' \"$first$second-argument\" &
          GATE
          kill $!
";

const HOSTILE: &str = "
on: push
jobs:
  hostile:
    runs-on: LABEL
    steps:
      - run: |
          cat > hostile.py <<'SCRIPT_ENDS'
          @SCRIPT@
          SCRIPT_ENDS
          /usr/bin/python3 hostile.py ARGUMENTS
";

/// A world whose controller runs as this user, or as the caller.
async fn as_user(user: Option<u32>, capacity: u32, arguments: &[&str]) -> World {
    let arguments = arguments.iter().map(|&argument| argument.to_owned()).collect();
    World::of(Settings { user, arguments, ..settings(capacity) }).await
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// What nobody but its owner may find, by name.
fn markers(world: &World, number: u64) -> Vec<(&'static str, Vec<u8>)> {
    let state = world.controller.state();
    let file = |path: &str| std::fs::read(state.join(path)).unwrap().trim_ascii().to_vec();
    let registration: serde_json::Value = serde_json::from_slice(&file("registration.json")).unwrap();
    let authority = file("keys/ca.json");
    let middle = authority.len() / 2;
    vec![
        ("token", registration["token"].as_str().unwrap().as_bytes().to_vec()),
        ("registration-token", file("../registration-token")),
        ("authority", authority[middle - 20..middle + 20].to_vec()),
        ("envelope-key", file("keys/envelope.key")),
        ("capability-key", file("keys/capability.key")),
        ("file", format!("victim-{number}-file").into_bytes()),
        ("environment", format!("victim-{number}-environment").into_bytes()),
        ("argument", format!("victim-{number}-argument").into_bytes()),
    ]
}

/// Runs a hostile job beside its victim; returns what it found and its log.
async fn attack(world: &World, roots: &str) -> (Vec<String>, String) {
    let since = Timestamp::now().as_second() - 60;
    let number = u64::from(world.controller.pid().unwrap());
    let gate = Gate::new().await.unwrap();
    let victim = VICTIM.replace("NUMBER", &number.to_string()).replace("GATE", &gate.wait_here());
    let victim = world.push(&[("victim.yml", &victim)]).await.remove(0);
    gate.arrived(1, JOB).await.unwrap();
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let (program, state) = (world.controller.program().display(), world.controller.state());
    let mut arguments = format!("{since} {roots} {program} victim {}", state.display());
    for (name, marker) in markers(world, number) {
        arguments += &format!(" {name}={}", hex(&marker));
    }
    let hostile = insert(HOSTILE, "@SCRIPT@", include_str!("hostile.py")).replace("ARGUMENTS", &arguments);
    let hostile = world.push(&[("hostile.yml", &hostile)]).await.remove(0);
    world.gitea.wait_run(&world.repository, hostile.id, LONG, |_| {}).await.unwrap();
    let log = world.log(&world.job(&hostile, "hostile").await).await;
    gate.open();
    world.ends(&victim, JOB, "success").await;
    let hits = said(&log).filter_map(|text| text.strip_prefix("HIT ")).map(str::to_owned).collect();
    (hits, log)
}

/// The lines of a log without their times.
fn said(log: &str) -> impl Iterator<Item = &str> {
    log.lines().filter_map(|line| Some(line.split_once(' ')?.1))
}

async fn assert_nothing_is_found(user: Option<u32>) {
    let world = as_user(user, 2, &[]).await;
    let (hits, log) = attack(&world, "/").await;
    assert_eq!(hits, Vec::<String>::new(), "{log}");
    let looked = said(&log).find(|text| text.starts_with("looked at ")).unwrap_or_else(|| panic!("{log}"));
    // Programs like ssh want an account.
    assert!(looked.contains(if user.is_some() || is_root() { "named job" } else { "named" }), "{looked}");
    assert!(!looked.contains("'files': 0") && !looked.contains("'sockets': 0"), "{looked}");
    let looked_as = |uid| looked.contains(&format!("as {uid} "));
    match user {
        Some(user) => assert!(looked_as(user), "{looked}"),
        None if is_root() => assert!(world.users.clone().any(looked_as), "{looked}"),
        None => {}
    }
}

/// T52, NEW-170, NEW-171, NEW-173, EXE-8: a hostile step finds nothing of the controller and of the job beside it, in
/// all of the file system, every process and every socket.
#[tokio::test]
async fn a_hostile_step_finds_nothing() {
    assert_nothing_is_found(None).await;
}

/// The same where the controller is started by an ordinary user.
#[tokio::test]
async fn a_hostile_step_of_an_ordinary_user_finds_nothing() {
    if is_root() {
        assert_nothing_is_found(Some(SOMEBODY)).await;
    }
}

/// The proof that the two tests above can fail: the same step finds everything where jobs are not isolated, and that is
/// said loudly (NEW-172).
#[tokio::test]
async fn without_isolation_a_hostile_step_finds_everything() {
    let world = as_user(is_root().then_some(SOMEBODY), 2, &["--isolation", "none"]).await;
    let place = world.controller.state().parent().unwrap().display().to_string();
    let (hits, log) = attack(&world, &format!("{place},/tmp,/dev/shm")).await;
    let mut names: Vec<&str> = hits.iter().filter_map(|hit| hit.split(':').next()).collect();
    names.dedup();
    let all = [
        "argument",
        "authority",
        "capability-key",
        "envelope-key",
        "environment",
        "file",
        "kernel-key",
        "registration-token",
        "svid",
    ];
    assert!(all.iter().all(|name| names.contains(name)) && names.contains(&"token"), "{names:?}\n{log}");
    assert!(world.controller.log().contains("LOCAL_ISOLATION is none"), "{}", world.controller.log());
    for file in ["/tmp/marker-", "/var/tmp/marker-", "/dev/shm/marker-"] {
        let _ = std::fs::remove_file(format!("{file}{}", world.controller.pid().unwrap()));
    }
}

const LEAVES: &str = "
on: push
jobs:
  leaves:
    runs-on: LABEL
    steps:
      - run: |
          cat > left_behind.py <<'SCRIPT_ENDS'
          @SCRIPT@
          SCRIPT_ENDS
          mkdir -p closed/in && touch closed/in/file && chmod 0 closed/in closed
          /usr/bin/python3 left_behind.py MARK
          GATE
";

/// What `left_behind.py` left, wherever it went: its arguments bear a mark that no other test has, on whatever machine
/// they run beside each other.
struct Leavings {
    mark: String,
}

impl Leavings {
    /// Of this world; the first controller's process id is nobody else's for as long as it lives.
    fn of(world: &World) -> Self {
        Self { mark: format!("leaves-{}-{}", world.controller.pid().unwrap(), world.label) }
    }

    fn seen(&self) -> Vec<String> {
        let entries = std::fs::read_dir("/proc").unwrap().flatten();
        let words = entries.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
        let words = words.map(|words| String::from_utf8_lossy(&words).replace('\0', " "));
        words.filter(|words| words.contains("left_behind.py") && words.trim_end().ends_with(&self.mark)).collect()
    }

    async fn are_gone(&self, what: &str) {
        eventually(what, GONE, async || {
            let left = self.seen();
            Ok(if left.is_empty() { Seen::Done(()) } else { Seen::NotYet(format!("{} processes", left.len())) })
        })
        .await
        .unwrap();
    }
}

/// A job in its middle, with everything left behind that can be.
async fn left_behind(world: &World, leavings: &Leavings) -> (Run, Gate) {
    let gate = Gate::new().await.unwrap();
    let workflow = insert(LEAVES, "@SCRIPT@", include_str!("left_behind.py")).replace("GATE", &gate.wait_here());
    let workflow = workflow.replace("MARK", &leavings.mark);
    let run = world.push_one(&workflow).await;
    gate.arrived(1, JOB).await.unwrap();
    (run, gate)
}

/// Nothing of the host's tables names the state folder, and no folder of an executor is there.
async fn assert_no_trace(world: &World) {
    let state = world.controller.state();
    let executors: PathBuf = state.join("executors");
    eventually("the folder of the executor is gone", SOON, async || {
        let left: Vec<_> = std::fs::read_dir(&executors).unwrap().flatten().map(|entry| entry.file_name()).collect();
        Ok(if left.is_empty() { Seen::Done(()) } else { Seen::NotYet(format!("{left:?}")) })
    })
    .await
    .unwrap();
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!mounts.contains(&state.display().to_string()), "{mounts}");
    let own = world.controller.pid();
    let left: Vec<_> = world.controller.processes().into_iter().filter(|process| Some(process.pid) != own).collect();
    assert!(left.is_empty(), "{left:?}");
}

async fn assert_everything_goes(user: Option<u32>) {
    let mut world = as_user(user, 1, &["--set", "LOCAL_PROCESSES=100"]).await;
    let leavings = Leavings::of(&world);
    let (run, gate) = left_behind(&world, &leavings).await;
    assert!(leavings.seen().len() > 20, "{:?}", leavings.seen());
    gate.open();
    world.ends(&run, JOB, "success").await;
    leavings.are_gone("everything has gone with the job").await;
    assert_no_trace(&world).await;
    let log = world.log(&world.job(&run, "leaves").await).await;
    let started = said(&log).find_map(|text| text.strip_prefix("could start ")).unwrap_or_else(|| panic!("{log}"));
    assert!((20..100).contains(&started.trim().parse::<u32>().unwrap()), "{log}");

    // The job ends while no controller is there: nothing waits for one.
    let (run, gate) = left_behind(&world, &leavings).await;
    world.controller.kill9();
    gate.open();
    eventually("the job has ended", SOON, async || {
        let left = world.controller.processes();
        let runs = left.iter().any(|process| process.program() == "gitea-runner" && process.has_word("daemon"));
        Ok(if runs { Seen::NotYet("its runner lives".to_owned()) } else { Seen::Done(()) })
    })
    .await
    .unwrap();
    leavings.are_gone("everything has gone without a controller").await;
    world.controller.restart().unwrap();
    world.ends(&run, JOB, "success").await;
    assert_no_trace(&world).await;

    // Nor for a supervisor.
    let (run, _gate) = left_behind(&world, &leavings).await;
    world.controller.kill9();
    world.supervisor().signal(Signal::Kill);
    leavings.are_gone("everything has gone with the supervisor").await;
    world.controller.restart().unwrap();
    world.ends(&run, JOB, "failure").await;
    assert_no_trace(&world).await;
}

/// NEW-173, NEW-174: daemons, deaf processes, terminals and a bounded fork bomb are gone 5 s after the job, also when
/// the controller was down at that moment, and with the supervisor if that one is killed. No mount is left, and the
/// folder with another user's closed folders in it is removed.
#[tokio::test]
async fn nothing_of_a_job_is_left() {
    assert_everything_goes(None).await;
}

/// The same where the controller is started by an ordinary user.
#[tokio::test]
async fn nothing_of_an_ordinary_users_job_is_left() {
    if is_root() {
        assert_everything_goes(Some(SOMEBODY)).await;
    }
}

const WAITS: &str = "
on: push
jobs:
  waits:
    runs-on: LABEL
    steps:
      - run: |
          GATE
";

/// The words behind a name in one of a process's files in `/proc`.
fn told(process: &Process, file: &str, name: &str) -> Vec<String> {
    let text = std::fs::read_to_string(format!("/proc/{}/{file}", process.pid)).unwrap();
    let words = text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_else(|| panic!("{name}: {text}"));
    words.split_whitespace().map(str::to_owned).collect()
}

/// NEW-174: the job may start what the setting says, its executor 32 more, so that a full job does not hold up its own
/// end. NEW-171: both are the same user of this world's range, for which the kernel counts them.
#[tokio::test]
async fn a_full_job_leaves_its_executor_room() {
    let world = as_user(None, 1, &["--set", "LOCAL_PROCESSES=100"]).await;
    let gate = Gate::new().await.unwrap();
    let run = world.push_one(&WAITS.replace("GATE", &gate.wait_here())).await;
    gate.arrived(1, JOB).await.unwrap();
    let (executor, runner) = (world.executor(), world.runner());
    assert_eq!(told(&runner, "limits", "Max processes"), ["100", "100", "processes"]);
    assert_eq!(told(&executor, "limits", "Max processes"), ["132", "132", "processes"]);
    let users = [executor, runner].map(|process| told(&process, "status", "Uid:").remove(0).parse::<u32>().unwrap());
    assert_eq!(users[0], users[1]);
    assert!(!is_root() || world.users.contains(&users[0]), "{users:?} {:?}", world.users);
    gate.open();
    world.ends(&run, JOB, "success").await;
}

/// NEW-172: where the host allows no namespaces nothing is started, and the reason and both remedies are said; without
/// isolation it starts.
#[tokio::test]
async fn a_host_without_namespaces_is_refused() {
    let wrapper = tempfile::NamedTempFile::new().unwrap().into_temp_path();
    let program = env!("CARGO_BIN_EXE_gitea-dynamic-runner");
    // In a user namespace, whose owner may forbid further ones.
    let forbid = "echo 0 >/proc/sys/user/max_user_namespaces && exec \"$0\" \"$@\"";
    let owner = format!("unshare -U --map-user={SOMEBODY} --map-group={SOMEBODY} --keep-caps");
    let script = format!("#!/bin/sh\nexec {owner} sh -c '{forbid}' '{program}' \"$@\"\n");
    std::fs::write(&wrapper, script).unwrap();
    let gitea = server().await.client();
    let dir = workplace(&std::env::temp_dir()).unwrap();
    let settings = Settings { program: wrapper.to_path_buf(), user: is_root().then_some(SOMEBODY), ..settings(1) };
    let mut controller = Standalone::start(settings, &gitea, dir.path()).await.unwrap();
    let status = controller.ended(SOON).await.unwrap();
    let log = controller.log();
    assert_eq!(status.code(), Some(1), "{log}");
    for said in [
        "jobs cannot be isolated on this host: isolation: new namespaces: No space left",
        "/proc/sys/user/max_user_namespaces is 0",
        "set user.max_user_namespaces",
        "--isolation none",
    ] {
        assert!(log.contains(said), "{log}");
    }
    // Refused before Gitea heard of it.
    let registration = controller.state().join("registration.json");
    assert!(!registration.exists());
    // A later start tries it as well, before it asks for a task.
    let known = serde_json::json!({
        "gitea": server().await.url().trim_end_matches('/'), "uuid": "u", "token": "t", "name": "n", "id": 1,
        "trust_domain": "td.test", "instance": "here",
    });
    std::fs::write(&registration, known.to_string()).unwrap();
    controller.restart().unwrap();
    assert_eq!(controller.ended(SOON).await.unwrap().code(), Some(1), "{}", controller.log());
    let later = controller.log()[log.len()..].to_owned();
    assert!(later.contains("jobs cannot be isolated on this host: isolation: new namespaces"), "{later}");
    assert!(!later.contains(r#""event":"starting""#), "{later}");
}
