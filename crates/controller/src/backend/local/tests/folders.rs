//! What is in the folders, and what is made of folders that are not as they should be.

use std::os::unix::fs::PermissionsExt as _;

use domain::metadata::Claim;

use super::*;

/// NEW-53, WRK-9: marks are added to what is there, whatever else is there, and are found by the next controller.
#[tokio::test]
async fn marks_are_added_and_kept() {
    let host = Host::new();
    let backend = host.controller("exec sleep 1000");
    backend.ensure(launch(1)).await.unwrap();
    let folder = host.folder(&name(1));
    let mut meta = folder.read_meta().unwrap();
    meta.labels.insert("of-a-later-version".to_owned(), "kept".to_owned());
    folder.write_meta(&meta, Durability::Synced).unwrap();
    let claim = Claim { at: "2026-01-02T03:05:00Z".parse().unwrap(), log_shift: 0 };
    let marks = [Mark::Claimed(claim.clone()), Mark::Steps("1s".to_owned()), Mark::Terminal, Mark::Terminal];
    let written = join_all(marks.map(|mark| backend.mark("gitea-task-1-here-e1", mark))).await;
    assert!(written.iter().all(|marked| *marked == Ok(Marked::Written)), "{written:?}");
    drop(backend);
    let found = host.controller("").list().await.unwrap()[0].record.clone().unwrap().as_ref().clone();
    let expected = ExecutorRecord { claim: Some(claim), steps: Some("1s".to_owned()), terminal: true, ..record(1) };
    assert_eq!(found, expected);
    assert_eq!(folder.read_meta().unwrap().labels.get("of-a-later-version").map(String::as_str), Some("kept"));
}

/// POD-8: marking what is gone says so.
#[tokio::test]
async fn a_mark_on_nothing_is_gone() {
    let host = Host::new();
    let backend = host.controller("exec sleep 1000");
    assert_eq!(backend.mark(&name(1), Mark::Terminal).await, Ok(Marked::Gone));
    backend.ensure(launch(1)).await.unwrap();
    backend.delete(&name(1)).await.unwrap();
    assert_eq!(backend.mark(&name(1), Mark::Terminal).await, Ok(Marked::Gone));
    assert!(!host.folder(&name(1)).exists());
}

/// NEW-56, POD-13: an unreadable one is set apart with its true state, and the others are not affected.
#[tokio::test]
async fn an_unreadable_folder_is_quarantined() {
    let host = Host::new();
    let backend = host.controller("exec sleep 1000");
    for n in 1..=4 {
        backend.ensure(launch(n)).await.unwrap();
    }
    std::fs::write(host.folder(&name(1)).path().join("meta.json"), "{").unwrap();
    std::fs::remove_file(host.folder(&name(2)).path().join("meta.json")).unwrap();
    std::fs::copy(host.folder(&name(4)).path().join("meta.json"), host.folder(&name(3)).path().join("meta.json"))
        .unwrap();
    std::fs::create_dir(host.folder("empty").path()).unwrap();
    drop(backend);
    let backend = host.controller("");
    let listed = backend.list().await.unwrap();
    let readable: Vec<_> = listed.iter().map(|o| (o.name.as_str(), o.record.is_ok(), o.state.clone())).collect();
    let running = ExecutorState::Running;
    let [one, two, three, four] = [1, 2, 3, 4].map(name);
    let expected = [
        ("empty", false, ExecutorState::Pending),
        (one.as_str(), false, running.clone()),
        (two.as_str(), false, running.clone()),
        (three.as_str(), false, running.clone()),
        (four.as_str(), true, running),
    ];
    assert_eq!(readable, expected);
    assert!(backend.mark(&one, Mark::Terminal).await.is_err());
    for name in ["empty", &one, &two, &three, &four] {
        backend.delete(name).await.unwrap();
    }
    assert!(backend.list().await.unwrap().is_empty());
}

/// NEW-2, ENV-8: what an earlier registration left is listed as what it is; it gets no identity and is not started.
#[tokio::test]
async fn a_folder_of_another_instance_is_left_alone() {
    let host = Host::new();
    let former = host.controller("exec sleep 1000");
    former.ensure(launch(1)).await.unwrap();
    drop(former);
    let pending = host.folder(&name(2));
    let file = starting::launch_file(&host.config("exit"), &pending, &launch(2));
    let meta = meta_of(&record(2));
    pending.create(&folder::Contents { meta: &meta, launch: &file, capability: "c" }).unwrap();
    let config = LocalConfig { instance: "there".parse().unwrap(), ..host.config("") };
    let backend = host.controller_with(config);
    let listed = backend.list().await.unwrap();
    let seen: Vec<_> = listed.iter().map(|o| (o.record.as_ref().unwrap().instance.as_str(), o.state.clone())).collect();
    assert_eq!(seen, [("here", ExecutorState::Running), ("here", ExecutorState::Pending)]);
    assert!(!host.is_served(&name(1)) && !host.is_served(&name(2)));
    assert_eq!(state(&backend, &name(2)).await, Some(ExecutorState::Pending));
    for n in [1, 2] {
        backend.delete(&name(n)).await.unwrap();
    }
    assert!(backend.list().await.unwrap().is_empty());
}

/// A crash while a folder was made or removed leaves nothing that counts, and the next start takes it away.
#[tokio::test]
async fn half_made_and_half_removed_folders_are_swept() {
    let host = Host::new();
    let backend = host.controller("exec sleep 1000");
    for half in [".new-gitea-task-1-here-e1", ".gone-gitea-task-2-here-e1"] {
        std::fs::create_dir_all(host.folder(half).path().join("work/deep")).unwrap();
    }
    assert!(backend.list().await.unwrap().is_empty());
    assert_eq!(backend.ensure(launch(1)).await, Ok(Ensured::Ready));
    drop(backend);
    let backend = host.controller("");
    let left = std::fs::read_dir(host.state.path().join("executors")).unwrap().count();
    assert_eq!((left, backend.list().await.unwrap().len()), (1, 1));
}

/// Files and folders that a job made read-only go with the rest; what its links point to stays.
#[tokio::test]
async fn a_job_cannot_keep_its_folder() {
    let host = Host::new();
    let outside = tempfile::tempdir().unwrap();
    std::fs::write(outside.path().join("kept"), "").unwrap();
    let script = format!(
        "mkdir -p a/b/c; echo x > a/b/c/file; ln -s {0} link; ln -s {0} a/b/link; ln -s /nowhere a/dangling
         chmod 400 a/b/c/file; chmod 500 a/b/c; chmod 0 a/b; chmod 500 a; chmod 500 .; echo $$ > /dev/null",
        outside.path().display()
    );
    let backend = host.controller(&script);
    backend.ensure(launch(1)).await.unwrap();
    assert_eq!(exit_after_nudge(&backend, &name(1)).await.code, Some(0));
    let work = std::fs::metadata(host.folder(&name(1)).work()).unwrap();
    assert_eq!(work.permissions().mode() & 0o777, 0o500);
    backend.delete(&name(1)).await.unwrap();
    assert!(!host.folder(&name(1)).exists());
    assert!(outside.path().join("kept").exists());
}

/// A name from elsewhere cannot point out of the folder of the executors.
#[tokio::test]
async fn a_name_is_not_a_path() {
    let host = Host::new();
    let backend = host.controller("");
    for bad in ["", ".", "..", "../executors", "a/b", "a/", "/", "/tmp", ".new-x"] {
        assert!(backend.delete(bad).await.is_err(), "{bad:?}");
        assert!(backend.mark(bad, Mark::Terminal).await.is_err(), "{bad:?}");
    }
    assert!(host.state.path().join("executors").exists());
}

/// A state folder so deep that the identity socket has no address is refused at the start, with the number to go by.
#[tokio::test]
async fn a_state_folder_that_is_too_deep_is_refused() {
    let host = Host::new();
    let bind: Bind = Arc::new(|_, _| futures::future::pending().boxed());
    let construct = |state: PathBuf| LocalBackend::new(LocalConfig { state, ..host.config("") }, Arc::clone(&bind));
    let longest = format!("/executors/gitea-task-9999999999-{}-e99/api/id", "here");
    let fits = host.state.path().join("d".repeat(107 - longest.len() - host.state.path().as_os_str().len() - 1));
    std::fs::create_dir(&fits).unwrap();
    assert!(construct(fits.clone()).is_ok());
    let refusal = construct(fits.with_extension("dd")).err().unwrap().to_string();
    assert!(refusal.contains("at most 107 bytes; ours would have 110"), "{refusal}");
    assert!(refusal.contains("at least 3 bytes shorter"), "{refusal}");
    assert!(construct("relative".into()).is_err());
}

/// NEW-112, NEW-173: a job can write where its executor leaves the last report; what is no file there is none.
#[test]
fn a_last_report_is_a_file_or_none() {
    let dir = tempfile::tempdir().unwrap();
    let folder = Folder::new(dir.path().to_owned());
    std::fs::create_dir(folder.own()).unwrap();
    let path = folder.own().join(domain::last_report::FILE);
    assert_eq!(folder.last_report().unwrap(), None);
    std::fs::write(dir.path().join("secret"), "another's").unwrap();
    std::os::unix::fs::symlink(dir.path().join("secret"), &path).unwrap();
    assert_eq!(folder.last_report().unwrap(), None);
    std::fs::remove_file(&path).unwrap();
    // Nobody ever writes into it: to open it in the usual way would take for ever.
    rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0).unwrap();
    assert_eq!(folder.last_report().unwrap(), None);
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, "sealed").unwrap();
    assert_eq!(folder.last_report().unwrap(), Some(b"sealed".to_vec()));
}
