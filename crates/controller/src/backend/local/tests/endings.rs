//! How an executor ends, and that nothing of it is left.

use rustix::process::Signal;

use super::*;

/// A job that hides: a background process, one in a session of its own, and one that forked twice and lost its parents.
const SCATTERED: &str = "
    sleep 1000 & echo $! > background
    setsid sh -c 'echo $$ > session; exec sleep 1000' &
    (setsid sh -c 'sh -c \"echo \\$\\$ > orphan; exec sleep 1000\" & exit' &)
    (trap '' TERM HUP INT; env -i /bin/sh -c 'trap \"\" TERM; echo $$ > stubborn; while :; do sleep 1; done' &)
    until [ -s background ] && [ -s session ] && [ -s orphan ] && [ -s stubborn ]; do sleep 0.01; done
    echo $$ > pid";

const SCATTERED_FILES: [&str; 4] = ["background", "session", "orphan", "stubborn"];

async fn scattered(host: &Host) -> Vec<i32> {
    host.number(&name(1), "pid").await;
    let pids: Vec<i32> = join_all(SCATTERED_FILES.map(async |file| host.number(&name(1), file).await)).await;
    assert!(pids.iter().all(|&pid| runs(pid)), "{pids:?}");
    pids
}

/// F80, NEW-114: an executor that is killed is reported as such, after everything it left was killed.
#[tokio::test]
async fn a_killed_executor_takes_its_descendants_along() {
    let host = Host::new();
    let backend = host.controller(&format!("{SCATTERED}; while :; do sleep 1; done"));
    backend.ensure(launch(1)).await.unwrap();
    let scattered = scattered(&host).await;
    kill(host.number(&name(1), "pid").await);
    let exit = exit_after_nudge(&backend, &name(1)).await;
    assert_eq!((exit.code, exit.signal), (None, Some(9)));
    assert!(!scattered.iter().any(|&pid| runs(pid)), "{scattered:?}");
}

/// NEW-114: what a job leaves running when it ends in order is ended as well, and is no obstacle to the end.
#[tokio::test]
async fn an_executor_that_ends_in_order_leaves_nothing_either() {
    let host = Host::new();
    let backend = host.controller(&format!("{SCATTERED}; exit 5"));
    backend.ensure(launch(1)).await.unwrap();
    assert_eq!(exit_after_nudge(&backend, &name(1)).await.code, Some(5));
    for file in SCATTERED_FILES {
        assert!(!runs(host.number(&name(1), file).await), "{file}");
    }
}

/// The supervisor killed: nobody could write a last word; what it left is ended before the folder goes.
#[tokio::test]
async fn a_vanished_executor_is_cleared_away() {
    let host = Host::new();
    // Two that lost their parents: one in a session of its own, one that forgot its environment.
    let backend = host.controller(
        "(setsid sh -c 'echo $$ > session; exec sleep 1000' &)
         (env -i sh -c 'echo $$ > bare; exec sleep 1000' &)
         echo $$ > pid; exec sleep 1000",
    );
    backend.ensure(launch(1)).await.unwrap();
    let left = join_all(["pid", "session", "bare"].map(async |file| host.number(&name(1), file).await)).await;
    kill(host.supervisor(&name(1)).pid);
    state_after_nudge(&backend, &name(1), |state| *state == ExecutorState::Vanished).await;
    assert!(left.iter().all(|&pid| runs(pid)), "still a slot in use");
    backend.delete(&name(1)).await.unwrap();
    assert!(!left.iter().any(|&pid| runs(pid)), "{left:?}");
    assert!(backend.list().await.unwrap().is_empty());
}

/// A host that was rebooted: the numbers mean other processes now, and none of them is touched.
#[tokio::test]
async fn after_a_reboot_an_executor_has_vanished() {
    let host = Host::new();
    let backend = host.controller("echo $$ > pid; exec sleep 1000");
    backend.ensure(launch(1)).await.unwrap();
    let (executor, supervisor) = (host.number(&name(1), "pid").await, host.supervisor(&name(1)));
    let earlier = Process { boot: "an earlier one".to_owned(), ..supervisor.clone() };
    std::fs::write(host.folder(&name(1)).path().join("supervisor.json"), serde_json::to_vec(&earlier).unwrap())
        .unwrap();
    assert_eq!(state(&backend, &name(1)).await, Some(ExecutorState::Vanished));
    assert!(process::leftovers(Some(&earlier), &[]).is_empty());
    kill(supervisor.pid);
    kill(executor);
}

/// EXE-6, F156: SIGTERM reaches the executor, which ends in order; its children hear nothing.
#[tokio::test]
async fn sigterm_is_for_the_executor_only() {
    let host = Host::new();
    let backend = host.controller(
        "trap 'echo term >> heard; [ -e child-heard ] && exit 1; exit 0' TERM
         sh -c 'trap \"echo term > child-heard\" TERM; echo $$ > child; while :; do sleep 0.02; done' &
         until [ -s child ]; do sleep 0.01; done; echo $$ > pid
         while :; do sleep 0.02; done",
    );
    backend.ensure(launch(1)).await.unwrap();
    host.number(&name(1), "pid").await;
    signal(host.supervisor(&name(1)).pid, Signal::TERM);
    assert_eq!(exit_after_nudge(&backend, &name(1)).await.code, Some(0));
    let work = host.folder(&name(1)).work();
    assert_eq!(std::fs::read_to_string(work.join("heard")).unwrap(), "term\n");
    assert!(!work.join("child-heard").exists());
}

/// A terminal that hangs up, or an operator's Ctrl-C at the controller, is nothing to an executor.
#[tokio::test]
async fn hang_ups_are_ignored() {
    let host = Host::new();
    let backend = host.controller("echo $$ > pid; while [ ! -e end ]; do sleep 0.02; done");
    backend.ensure(launch(1)).await.unwrap();
    host.number(&name(1), "pid").await;
    let supervisor = host.supervisor(&name(1)).pid;
    assert_eq!(rustix::process::getsid(rustix::process::Pid::from_raw(supervisor)).unwrap().as_raw_pid(), supervisor);
    signal(supervisor, Signal::HUP);
    signal(supervisor, Signal::INT);
    std::fs::write(host.folder(&name(1)).work().join("end"), "").unwrap();
    assert_eq!(exit_after_nudge(&backend, &name(1)).await.code, Some(0));
}

/// WRK-9, ADM-2: deleting ends everything, however it clings to life, and returns when it is gone.
#[tokio::test]
async fn deleting_returns_when_nothing_is_left() {
    let host = Host::new();
    let backend = host.controller(&format!("trap '' TERM USR1 INT HUP; {SCATTERED}; while :; do sleep 1; done"));
    backend.ensure(launch(1)).await.unwrap();
    let mut all = scattered(&host).await;
    all.extend([host.number(&name(1), "pid").await, host.supervisor(&name(1)).pid]);
    let begun = Instant::now();
    backend.delete(&name(1)).await.unwrap();
    assert!(begun.elapsed() < Duration::from_secs(4), "the supervisor did it when it was told to");
    assert!(!all.iter().any(|&pid| runs(pid)), "{all:?}");
    assert!(!host.folder(&name(1)).exists());
    backend.delete(&name(1)).await.unwrap();
    backend.delete("gitea-task-999-here-e1").await.unwrap();
}

/// A supervisor that does not answer is ended in its own way, and its executor with it.
#[tokio::test]
async fn a_stopped_supervisor_is_ended_too() {
    let host = Host::new();
    let backend = host.controller("echo $$ > pid; exec sleep 1000");
    backend.ensure(launch(1)).await.unwrap();
    let executor = host.number(&name(1), "pid").await;
    let supervisor = host.supervisor(&name(1)).pid;
    signal(supervisor, Signal::STOP);
    backend.delete(&name(1)).await.unwrap();
    assert!(!runs(executor) && !runs(supervisor));
    assert!(!host.folder(&name(1)).exists());
}

/// A process that starts others faster than anybody can list them is caught all the same.
#[tokio::test]
async fn a_job_that_forks_without_end_is_ended() {
    let host = Host::new();
    let backend = host.controller(
        "echo $$ > pid
         spread() { while :; do (sleep 0.05; : ) & (exec setsid true) & wait; done; }
         spread & spread & spread & wait",
    );
    backend.ensure(launch(1)).await.unwrap();
    host.number(&name(1), "pid").await;
    let supervisor = host.supervisor(&name(1));
    backend.delete(&name(1)).await.unwrap();
    assert!(process::leftovers(Some(&supervisor), &starting::marks(&host.folder(&name(1)))).is_empty());
}

/// F43: the reaper hears of an end at once, of an executor it started and of one it found.
#[tokio::test]
async fn an_end_is_heard_of_promptly() {
    let host = Host::new();
    let mut longest = Duration::ZERO;
    for n in 1..=5 {
        let first = host.controller("echo $$ > pid; exec sleep 1000");
        first.ensure(launch(n)).await.unwrap();
        let pid = host.number(&name(n), "pid").await;
        let backend = if n % 2 == 0 {
            drop(first);
            host.controller("exit 99")
        } else {
            first
        };
        assert_eq!(state(&backend, &name(n)).await, Some(ExecutorState::Running));
        let killed = Instant::now();
        kill(pid);
        tokio::time::timeout(PATIENCE, backend.changed()).await.unwrap();
        assert!(matches!(state(&backend, &name(n)).await, Some(ExecutorState::Ended(_))));
        longest = longest.max(killed.elapsed());
        backend.delete(&name(n)).await.unwrap();
    }
    assert!(longest < Duration::from_secs(2), "{longest:?}");
    std::io::Write::write_fmt(&mut std::io::stdout(), format_args!("from kill to verdict, at most {longest:?}\n"))
        .unwrap();
}
