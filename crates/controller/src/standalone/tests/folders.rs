//! State folders that are not ours alone, damaged, full of something else, or too deep.

use super::*;

/// NEW-147: an instance id that makes the sockets' paths too long is refused before Gitea hears of us.
#[tokio::test]
async fn a_long_instance_in_a_deep_folder_is_not_registered() {
    let (bench, gitea) = (Bench::new(), Gitea::start(Register::Good).await);
    let mut args = bench.args(&gitea.url);
    let fits = 107 - "/executors/gitea-task-9999999999-12345678-e99/api/id".len();
    let deep = "d".repeat(fits - bench.path("").as_os_str().len());
    args.state = Some(bench.path(&deep));
    assert!(check(&args, &bench.here()).await.is_ok());
    args.settings.set = vec![("INSTANCE_ID".into(), "123456789".into())];
    let error = bench.start(&args, &bench.here()).await.err().unwrap();
    assert!(error.to_string().contains("1 bytes too long for the sockets below it"), "{error}");
    assert_eq!(gitea.rows.load(Ordering::SeqCst), 0);
}

/// A state folder belongs to one Gitea and one trust domain; a damaged registration is not made anew.
#[tokio::test]
async fn another_world() {
    let (bench, gitea) = (Bench::new(), Gitea::start(Register::Good).await);
    let mut args = bench.args(&gitea.url);
    args.trust_domain = Some("ci.example.org".into());
    let first = bench.start(&args, &bench.here()).await.unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(first.config.identity.trust_domain().to_string(), "ci.example.org");
    let before = bench.state();

    args.gitea = Some("http://127.0.0.1:1/other".into());
    let failed = bench.start(&args, &bench.here()).await;
    let expect = "\
state folder DIR/state is registered with URL, not with http://127.0.0.1:1/other
use --gitea URL, or give the other Gitea a folder of its own with --state DIR
exit 2";
    bench.judge(failed, before.as_ref(), &gitea.url, expect);

    args = bench.args(&gitea.url);
    args.trust_domain = Some("other.example.org".into());
    let failed = bench.start(&args, &bench.here()).await;
    let expect = "\
state folder DIR/state was made for trust domain ci.example.org, not for other.example.org
use --trust-domain ci.example.org (or leave it out), or begin anew in another folder with --state DIR
exit 2";
    bench.judge(failed, before.as_ref(), &gitea.url, expect);

    args = bench.args(&gitea.url);
    args.settings.set = vec![("INSTANCE_ID".into(), "other".into())];
    let failed = bench.start(&args, &bench.here()).await;
    let made = first.config.instance.to_string();
    let expect = format!(
        "state folder DIR/state was made for instance {made}, not for other\n\
         leave INSTANCE_ID out or set it to {made}, or begin anew in another folder with --state DIR\n\
         exit 2"
    );
    bench.judge(failed, before.as_ref(), &gitea.url, &expect);

    std::fs::write(bench.path("state/registration.json"), "{\"uuid\": 1").unwrap();
    let before = bench.state();
    let failed = bench.start(&bench.args(&gitea.url), &bench.here()).await;
    let expect = "\
the registration DIR/state/registration.json cannot be read: no registration at line 1, column 10
put it back from a backup, or delete it and start with a new --registration-token-file; tasks of the old registration \
end by Gitea's own time-outs
exit 1";
    bench.judge(failed, before.as_ref(), &gitea.url, expect);
    assert_eq!(gitea.rows.load(Ordering::SeqCst), 1);
}

/// NEW-59: a second process on the same state folder, before and after the registration.
#[tokio::test]
async fn a_second_process() {
    let (bench, gitea) = (Bench::new(), Gitea::start(Register::Good).await);
    let args = bench.args(&gitea.url);
    let expect = |since: &str| {
        format!(
            "state folder DIR/state is in use by process {}, started {since}; two controllers must not share one registration\n\
             stop that one first, or name another folder with --state DIR; what it does: gitea-dynamic-runner status --state \
             DIR/state\n\
             exit 1",
            std::process::id()
        )
    };
    let since = || {
        let lock = std::fs::read_to_string(bench.path("state/lock")).unwrap();
        serde_json::from_str::<serde_json::Value>(&lock).unwrap()["since"].as_str().unwrap().to_owned()
    };
    let early = lead(&bench.path("state")).await.unwrap_or_else(|e| panic!("{e}"));
    let failed = bench.start(&args, &bench.here()).await;
    bench.judge(failed, None, &gitea.url, &expect(&since()));
    assert_eq!(gitea.rows.load(Ordering::SeqCst), 0);
    drop(early);

    let (_first, _lead) = start(&args, &bench.here()).await.unwrap_or_else(|e| panic!("{e}"));
    let before = bench.state();
    let failed = bench.start(&args, &bench.here()).await;
    bench.judge(failed, before.as_ref(), &gitea.url, &expect(&since()));
}

/// The facade's port is taken: the text names the port and who holds it.
#[tokio::test]
async fn port_taken() {
    let (bench, gitea) = (Bench::new(), Gitea::start(Register::Good).await);
    let first = bench.start(&bench.args(&gitea.url), &bench.here()).await.unwrap_or_else(|e| panic!("{e}"));
    let listen = first.config.facade.listen;
    let _holder = std::net::TcpListener::bind(listen).unwrap();
    let before = bench.state();
    let failed = bench.start(&bench.args(&gitea.url), &bench.here()).await;
    let comm = std::fs::read_to_string("/proc/self/comm").unwrap();
    let expect = format!(
        "port {} of 127.0.0.1, where running jobs reach this controller, is in use by {} (process {})\n\
         end that process; or, when no job of this state folder is running, delete DIR/state/facade.port and start again\n\
         exit 1",
        listen.port(),
        comm.trim(),
        std::process::id()
    );
    bench.judge(failed, before.as_ref(), &gitea.url, &expect);
}

/// What stands in `facade.port` is no port: the text says where the right one stands.
#[tokio::test]
async fn a_damaged_port_file() {
    let (bench, gitea) = (Bench::new(), Gitea::start(Register::Good).await);
    bench.start(&bench.args(&gitea.url), &bench.here()).await.unwrap_or_else(|e| panic!("{e}"));
    for (content, cause) in [
        ("", "it is empty"),
        ("0\n", "it must hold one number from 1 to 65535"),
        ("port 1", "it must hold one number from 1 to 65535"),
        ("65536", "it must hold one number from 1 to 65535"),
    ] {
        std::fs::write(bench.path("state/facade.port"), content).unwrap();
        let before = bench.state();
        let failed = bench.start(&bench.args(&gitea.url), &bench.here()).await;
        let expect = format!(
            "DIR/state/facade.port holds no port: {cause}\n\
             running jobs know the port from CI_RUNNER_FACADE_URL: write that number into the file; or, when no job of this \
             state folder is running, delete the file and start again\n\
             exit 1"
        );
        bench.judge(failed, before.as_ref(), &gitea.url, &expect);
    }
}

/// The address of `--ops-listen` is taken: known before Gitea makes a runner of us.
#[tokio::test]
async fn ops_address_taken() {
    let (bench, gitea) = (Bench::new(), Gitea::start(Register::Good).await);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let mut args = bench.args(&gitea.url);
    args.ops_listen = Some(address.clone());
    let failed = bench.start(&args, &bench.here()).await;
    let comm = std::fs::read_to_string("/proc/self/comm").unwrap();
    let expect = format!(
        "--ops-listen {address} cannot be listened on: it is in use by {} (process {})\n\
         name another address, or port 0 to let the kernel choose\n\
         exit 1",
        comm.trim(),
        std::process::id()
    );
    bench.judge(failed, None, &gitea.url, &expect);
    assert_eq!(gitea.rows.load(Ordering::SeqCst), 0);
}

/// `--state` names a file, or the folder of another user: nothing is asked, made or changed.
#[tokio::test]
async fn a_state_folder_that_is_not_ours() {
    let bench = Bench::new();
    let mut args = bench.args(NO_URL);
    args.state = Some(bench.path("token"));
    let failed = bench.start(&args, &bench.here()).await;
    let expect = "\
the state folder DIR/token cannot be used: it is a file, not a folder
name a folder on a local disk that this user can write to with --state DIR, and see that the disk has space
exit 1";
    bench.judge(failed, None, NO_URL, expect);

    // Root gives a folder away; everybody else meets one that is root's.
    let us = rustix::process::geteuid();
    let (folder, owner) = if us.is_root() {
        std::fs::create_dir(bench.path("theirs")).unwrap();
        std::os::unix::fs::chown(bench.path("theirs"), Some(65_534), None).unwrap();
        (bench.path("theirs"), 65_534)
    } else {
        (PathBuf::from("/"), 0)
    };
    args.state = Some(folder.clone());
    let failed = bench.start(&args, &bench.here()).await;
    let error = failed.err().unwrap();
    let expect = format!(
        "the state folder {} belongs to user id {owner}, and this program runs as user id {}\n\
         start it as user id {owner}, whose jobs and keys these are, or name another folder with --state DIR\n\
         exit 1",
        folder.display(),
        us.as_raw()
    );
    assert_eq!(format!("{error}\n{}\nexit {}", error.remedy(), error.exit_code()), expect);
    assert!(lead(&folder).await.is_err_and(|error| matches!(error, StartError::OtherUser { .. })));
    assert!(!folder.join("lock").exists() && !bench.path("state").exists());
}

/// A state folder that cannot be written: Gitea is not asked to register, so no row is wasted.
#[tokio::test]
async fn a_state_folder_that_cannot_be_written() {
    let (bench, gitea) = (Bench::new(), Gitea::start(Register::Good).await);
    std::fs::create_dir(bench.path("state")).unwrap();
    std::fs::create_dir(bench.path("state/registration.json.tmp")).unwrap();
    let failed = bench.start(&bench.args(&gitea.url), &bench.here()).await;
    let error = failed.err().unwrap();
    assert!(matches!(&error, StartError::State { cause, .. } if cause == "is a directory"), "{error}");
    assert_eq!(gitea.rows.load(Ordering::SeqCst), 0);
}
