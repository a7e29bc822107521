//! How an executor begins, lives on, and is found again.

use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use super::*;

/// WRK-1, WRK-2, WRK-9, NEW-3, NEW-53, NEW-54, NEW-55, NEW-63: what every backend does.
#[tokio::test]
async fn the_contract_of_a_backend() {
    let host = Host::new();
    contract::all(contract::Stage {
        kind: BackendKind::Local,
        controller: || host.controller(r#"while [ ! -e "$HOME/end" ]; do sleep 0.02; done"#),
        end: async |name: &str| std::fs::write(host.folder(name).work().join("end"), "").unwrap(),
    })
    .await;
}

/// BST-1, WRK-5, EXE-8: metadata as on a Pod, exactly the environment of the launch, the capability in a private file.
#[tokio::test]
async fn an_executor_gets_its_environment_and_nothing_else() {
    let host = Host::new();
    let program = Some(Program { path: "/usr/bin/env".into(), args: Vec::new() });
    let backend = host.controller_with(LocalConfig { program, ..host.config("") });
    assert_eq!(backend.ensure(launch(1)).await, Ok(Ensured::Ready));
    let folder = host.folder(&name(1));
    let secret = std::fs::metadata(folder.capability()).unwrap();
    assert_eq!(secret.permissions().mode() & 0o777, 0o400);
    assert_eq!(std::fs::read_to_string(folder.capability()).unwrap(), launch(1).capability.expose());
    assert_eq!(folder.read_meta().unwrap(), meta_of(&record(1)));
    assert_eq!(exit_after_nudge(&backend, &name(1)).await.code, Some(0));
    let got: BTreeSet<String> = std::fs::read_to_string(folder.log()).unwrap().lines().map(str::to_owned).collect();
    let given = starting::launch_file(&backend.config, &folder, &launch(1)).env;
    let given: BTreeSet<String> = given.into_iter().map(|(key, value)| format!("{key}={value}")).collect();
    assert_eq!(got, given);
    for expected in starting::marks(&folder) {
        assert!(given.contains(&expected), "{expected}");
    }
    for dir in ["", "own", "work", "work/tmp", "api"] {
        let mode = std::fs::metadata(folder.path().join(dir)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700, "{dir}");
    }
}

/// WRK-2, WRK-9, NEW-63, REG-1: ensured once or often, alive or ended, it is started once.
#[tokio::test]
async fn an_executor_is_started_once() {
    let host = Host::new();
    let backend = host.controller("echo started >> starts; while [ ! -e end ]; do sleep 0.02; done");
    for _ in 0..3 {
        assert_eq!(backend.ensure(launch(1)).await, Ok(Ensured::Ready));
    }
    let work = host.folder(&name(1)).work();
    std::fs::write(work.join("end"), "").unwrap();
    assert_eq!(exit_after_nudge(&backend, &name(1)).await.code, Some(0));
    assert_eq!(backend.ensure(launch(1)).await, Ok(Ensured::Ready));
    let second = Command::new("/proc/self/exe")
        .args(&backend.config.supervise)
        .arg(host.folder(&name(1)).path())
        .output()
        .unwrap();
    assert!(String::from_utf8_lossy(&second.stderr).contains("started before"), "{second:?}");
    assert_eq!(std::fs::read_to_string(work.join("starts")).unwrap(), "started\n");
}

/// NEW-3, REG-1: another life of the same id is not adopted, and not harmed.
#[tokio::test]
async fn another_life_under_the_name_is_a_conflict() {
    let host = Host::new();
    let backend = host.controller("exec sleep 1000");
    backend.ensure(launch(1)).await.unwrap();
    let other = ExecutorRecord { digest: PayloadDigest::of(b"other"), ..record(1) };
    let refused = backend.ensure(launch_of(other)).await;
    assert!(matches!(refused, Err(BackendError::Conflict { ref found, .. }) if *found == record(1).digest.to_string()));
    assert_eq!(state(&backend, &name(1)).await, Some(ExecutorState::Running));
}

/// NEW-54, POD-13: a new controller finds the executor running, follows it, and serves its identity again.
#[tokio::test]
async fn an_executor_outlives_its_controller() {
    let host = Host::new();
    let first = host.controller("echo $$ > pid; while [ ! -e end ]; do sleep 0.02; done; exit 7");
    first.ensure(launch(1)).await.unwrap();
    let pid = host.number(&name(1), "pid").await;
    drop(first);
    assert!(!host.is_served(&name(1)), "the socket went with the controller");
    let second = host.controller("exit 99");
    assert_eq!(state(&second, &name(1)).await, Some(ExecutorState::Running));
    assert!(host.is_served(&name(1)));
    assert_eq!(second.list().await.unwrap()[0].record.as_deref(), Ok(&record(1)));
    assert_eq!(second.ensure(launch(1)).await, Ok(Ensured::Ready));
    assert!(runs(pid));
    std::fs::write(host.folder(&name(1)).work().join("end"), "").unwrap();
    let exit = exit_after_nudge(&second, &name(1)).await;
    assert_eq!((exit.code, exit.signal), (Some(7), None));
    assert!(!host.is_served(&name(1)), "who has ended has no identity");
}

/// A controller that made a folder and died before it started anything.
async fn an_intent_without_a_start(host: &Host) {
    let broken = host.controller_with(LocalConfig { supervise: vec!["--help".to_owned()], ..host.config("exit 1") });
    assert!(matches!(broken.ensure(launch(1)).await, Err(BackendError::Transient { .. })));
}

/// The next ensure starts it with newer data.
#[tokio::test]
async fn an_intent_without_a_start_is_taken_up() {
    let host = Host::new();
    an_intent_without_a_start(&host).await;
    let backend = host.controller("exit 3");
    assert_eq!(backend.ensure(launch(1)).await, Ok(Ensured::Ready));
    assert_eq!(exit_after_nudge(&backend, &name(1)).await.code, Some(3));
}

/// NEW-53, T6: a task adopted with its folder is not launched again, so the list starts what lies there, once.
#[tokio::test]
async fn an_intent_that_nobody_ensures_again_is_taken_up_too() {
    let host = Host::new();
    an_intent_without_a_start(&host).await;
    let backend = host.controller("exit 3");
    assert_eq!(state(&backend, &name(1)).await, Some(ExecutorState::Pending));
    assert!(host.is_served(&name(1)), "it has its identity");
    assert_eq!(exit_after_nudge(&backend, &name(1)).await.code, Some(1), "what was written is what is started");
    assert_eq!(backend.ensure(launch(1)).await, Ok(Ensured::Ready), "and never again");
    assert_eq!(exit_after_nudge(&backend, &name(1)).await.code, Some(1));
}

/// A program that cannot be started is an executor that ended, with the cause in its log.
#[tokio::test]
async fn a_program_that_cannot_start_has_ended() {
    let host = Host::new();
    let program = Some(Program { path: "/no/such/program".into(), args: Vec::new() });
    let backend = host.controller_with(LocalConfig { program, ..host.config("") });
    assert_eq!(backend.ensure(launch(1)).await, Ok(Ensured::Ready));
    assert_eq!(exit_after_nudge(&backend, &name(1)).await.code, Some(126));
    let log = std::fs::read_to_string(host.folder(&name(1)).log()).unwrap();
    assert!(log.contains("/no/such/program: No such file"), "{log}");
}

/// NEW-55: many at once, each counted from its folder.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_executors_at_once() {
    let host = Host::new();
    let backend = host.controller("while [ ! -e end ]; do sleep 0.05; done");
    let started = join_all((1..=20).map(|n| backend.ensure(launch(n)))).await;
    assert!(started.iter().all(|ensured| *ensured == Ok(Ensured::Ready)), "{started:?}");
    let listed = backend.list().await.unwrap();
    assert_eq!(listed.iter().filter(|observed| observed.state == ExecutorState::Running).count(), 20);
    for n in 1..=10 {
        std::fs::write(host.folder(&name(n)).work().join("end"), "").unwrap();
    }
    for n in 1..=10 {
        assert_eq!(exit_after_nudge(&backend, &name(n)).await.code, Some(0));
    }
    let deleted =
        join_all((1..=20).map(|n| async move { name(n) }.then(async |name| backend.delete(&name).await))).await;
    assert!(deleted.iter().all(Result::is_ok), "{deleted:?}");
    assert_eq!(backend.list().await.unwrap().len(), 0);
}

/// NEW-126: identity: taken away ahead of the end it is not served again; deleting takes it away too.
#[tokio::test]
async fn a_withdrawn_identity_stays_withdrawn() {
    let host = Host::new();
    let backend = host.controller("exec sleep 1000");
    backend.ensure(launch(1)).await.unwrap();
    backend.ensure(launch(2)).await.unwrap();
    assert!(host.is_served(&name(1)) && host.is_served(&name(2)));
    backend.withdraw_identity(&name(1));
    backend.list().await.unwrap();
    backend.ensure(launch(1)).await.unwrap();
    assert!(!host.is_served(&name(1)) && host.is_served(&name(2)));
    assert_eq!((host.binds.load(Ordering::SeqCst), host.taken_alive.load(Ordering::SeqCst)), (2, 1));
    backend.delete(&name(2)).await.unwrap();
    assert!(!host.is_served(&name(2)));
    assert_eq!(host.taken_alive.load(Ordering::SeqCst), 2, "POD-7: the identity goes before the executor");
}

/// NEW-150: an identity whose service ended by itself is served again by the next list, and by no list after that.
#[tokio::test]
async fn an_identity_that_ended_by_itself_is_served_again() {
    let host = Host::new();
    let backend = host.controller("exec sleep 1000");
    backend.ensure(launch(1)).await.unwrap();
    host.broken.store(1, Ordering::SeqCst);
    for _ in 0..2 {
        backend.list().await.unwrap();
        assert!(host.is_served(&name(1)));
        assert_eq!(host.binds.load(Ordering::SeqCst), 2);
    }
    backend.delete(&name(1)).await.unwrap();
}

/// WRK-3, F42: without its identity nothing is started and nothing is ready; one that comes later is enough.
#[tokio::test]
async fn nothing_starts_without_its_identity() {
    let host = Host::new();
    let refuse: Bind = Arc::new(|_, _| futures::future::ready(Err("no key".to_owned())).boxed());
    let backend = LocalBackend::new(host.config("exec sleep 1000"), refuse).unwrap();
    let refused = backend.ensure(launch(1)).await.unwrap_err();
    assert!(refused.to_string().contains("no key"), "{refused}");
    assert_eq!(state(&backend, &name(1)).await, Some(ExecutorState::Pending));
    assert_eq!(host.controller("exec sleep 1000").ensure(launch(1)).await, Ok(Ensured::Ready));
}
