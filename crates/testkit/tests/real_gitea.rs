//! The client against the real server: what the other tests rely on. Needs `cargo xtask provision gitea`.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::time::Duration;

use testkit::real::{Client, Error, GiteaServer, Status};

const SOON: Duration = Duration::from_secs(20);
const WORKFLOW: &str =
    "on: [push, workflow_dispatch]\njobs:\n  JOB:\n    runs-on: nobody\n    steps:\n      - run: echo\n";

/// One server for the whole walk: starting another costs seconds.
#[tokio::test]
async fn what_a_test_can_do_with_a_real_server() {
    let dir = tempfile::tempdir().unwrap();
    let mut server = GiteaServer::start(dir.path(), &[("actions.ABANDONED_JOB_TIMEOUT", "1h")]).await.unwrap();
    let client = server.client();
    client.create_repository("acme/one").await.unwrap();
    client.create_repository("acme/two").await.unwrap();
    let taken = client.create_repository("acme/one").await.unwrap_err();
    assert_eq!(taken.status(), Some(409));
    assert!(taken.to_string().contains("repository with the same name already exists"), "{taken}");

    one_push_starts_every_workflow(&client).await;
    a_run_is_dispatched_and_cancelled(&client).await;
    settings_and_runners(&client).await;
    the_server_comes_back_on_its_port(&mut server, &client).await;
}

async fn one_push_starts_every_workflow(client: &Client) {
    let (one, two) = (WORKFLOW.replace("JOB", "one"), WORKFLOW.replace("JOB", "two"));
    let files = [(".gitea/workflows/one.yml", one.as_str()), (".gitea/workflows/two.yml", two.as_str())];
    let commit = client.push_files("acme/one", &files).await.unwrap();
    let runs = client.runs_of_commit("acme/one", &commit, 2, SOON).await.unwrap();
    assert_eq!(runs.iter().map(|run| run.file()).collect::<Vec<_>>(), ["one.yml", "two.yml"]);
    let commit = client.put_file("acme/one", files[0].0, &format!("{one}# changed\n")).await.unwrap();
    assert_eq!(client.runs_of_commit("acme/one", &commit, 2, SOON).await.unwrap().len(), 2);
}

async fn a_run_is_dispatched_and_cancelled(client: &Client) {
    let run = client.dispatch("acme/one", "one.yml", &[]).await.unwrap();
    let jobs = client.jobs("acme/one", run).await.unwrap();
    assert_eq!((jobs[0].key.as_str(), jobs[0].status, jobs[0].task_id), ("one", Status::Waiting, 0));
    assert_eq!(jobs[0].labels, ["nobody"]);
    assert!(client.log("acme/one", jobs[0].id).await.unwrap().is_none());
    assert_eq!(client.job_page("acme/one", run, jobs[0].id).await.unwrap().run, "waiting");

    let late = client.wait_run("acme/one", run, Duration::from_millis(300), |_| {}).await.unwrap_err();
    assert!(matches!(&late, Error::Deadline { last, .. } if last.contains("one Waiting")), "{late}");
    client.cancel("acme/one", run).await.unwrap();
    let mut looks = 0;
    let ended = client.wait_run("acme/one", run, SOON, |_| looks += 1).await.unwrap();
    assert_eq!(ended.conclusion.as_deref(), Some("cancelled"));
    assert!(looks > 0);
    client.rerun("acme/one", run).await.unwrap();
    assert!(client.task(1).unwrap_err().to_string().contains("no row with id 1"));
}

async fn settings_and_runners(client: &Client) {
    client.set_secret("acme/one", "PASSWORD", "hidden").await.unwrap();
    client.create_variable("acme/one", "COLOUR", "green").await.unwrap();
    assert!(!client.registration_token().await.unwrap().is_empty());
    assert!(client.runners().await.unwrap().is_empty());
    assert_eq!(client.delete_runner(77).await.unwrap_err().status(), Some(404));
    let listing = std::process::Command::new("git").args(["ls-remote", &client.git_url("acme/one")]).output().unwrap();
    assert!(String::from_utf8_lossy(&listing.stdout).contains("refs/heads/main"), "{listing:?}");
}

async fn the_server_comes_back_on_its_port(server: &mut GiteaServer, client: &Client) {
    let url = server.url().to_owned();
    server.stop().await.unwrap();
    assert!(matches!(client.runners().await, Err(Error::NoAnswer { .. })));
    server.start_again().await.unwrap();
    assert_eq!(server.url(), url);
    assert_eq!(client.runs("acme/one").await.unwrap().len(), 5);
}
