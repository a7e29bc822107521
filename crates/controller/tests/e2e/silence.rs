//! Executors that nobody hears of for longer than an executor may be silent, which no setting changes: this takes more
//! than five minutes.

use std::path::Path;
use std::time::Duration;

use domain::reason::Reason;
use testkit::real::{Client, Gate, Job, Process, Run, Seen, Signal, eventually, workplace};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::controller::{Controller, free_port};
use crate::deaths::shows;
use crate::world::{JOB, SOON, assert_steps_closed, server};

/// The longest silence, and what a busy machine needs beside it.
const SILENCE: Duration = Duration::from_secs(5 * 60 + 60);
/// Shorter than `TERMINAL_GRACE`, after which they would be killed.
const STOPPED: Duration = Duration::from_secs(40);

/// The only way to a port, which can be cut.
struct Relay {
    port: u16,
    open: watch::Sender<bool>,
    keeper: JoinHandle<()>,
}

impl Relay {
    async fn to(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let own = listener.local_addr().unwrap().port();
        let (open, opened) = watch::channel(true);
        let keeper = tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                tokio::spawn(pass(near, port, opened.clone()));
            }
        });
        Self { port: own, open, keeper }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.keeper.abort();
    }
}

/// Both ways until one side ends or the relay is cut.
async fn pass(mut near: TcpStream, port: u16, mut open: watch::Receiver<bool>) {
    let through = async {
        let Ok(mut far) = TcpStream::connect(("127.0.0.1", port)).await else { return };
        let _ended = copy_bidirectional(&mut near, &mut far).await;
    };
    tokio::select! {
        biased;
        _ = open.wait_for(|open| !open) => {}
        () = through => {}
    }
}

const REPOSITORY: &str = "silence/app";

fn workflow(name: &str, gate: &Gate) -> (String, String) {
    let text = format!(
        "
on:
  push:
    paths: ['.gitea/workflows/{name}.yml']
jobs:
  {name}:
    runs-on: silence
    steps:
      - run: |
          echo \"before\"
          {}
          echo \"after $((1 + 1))\"
          test {name} = next || exec sleep 900
      - run: echo \"at the end\"
",
        gate.wait_here()
    );
    (format!(".gitea/workflows/{name}.yml"), text)
}

async fn push(gitea: &Client, workflows: &[(String, String)]) -> Vec<Run> {
    let files: Vec<(&str, &str)> = workflows.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    let commit = gitea.push_files(REPOSITORY, &files).await.unwrap();
    let runs = gitea.runs_of_commit(REPOSITORY, &commit, files.len(), SOON).await.unwrap();
    files.iter().map(|(path, _)| runs.iter().find(|run| path.ends_with(run.file())).unwrap().clone()).collect()
}

async fn only_job(gitea: &Client, run: &Run) -> Job {
    gitea.jobs(REPOSITORY, run.id).await.unwrap().remove(0)
}

/// What Gitea has of a job, in words.
async fn known(gitea: &Client, run: &Run) -> String {
    let job = only_job(gitea, run).await;
    let log = gitea.log(REPOSITORY, job.id).await.unwrap().unwrap_or_default();
    format!("{:?}\n{log}", gitea.task(job.task_id).unwrap())
}

/// NEW-4, NEW-26, NEW-62, NEW-63, NEW-159, F62, F90, T7, T80: one executor is cut off from the facade, another frozen with
/// all that it started. Both are lost, with the seconds of their silence. When they are back, their runners hear CANCELLED
/// and stop long before they would be killed; Gitea hears nothing of them, no job is begun again, and both slots are free.
#[tokio::test]
async fn silent_executors_are_lost_and_stopped_when_they_are_back() {
    let gitea = server().await.client();
    gitea.create_repository(REPOSITORY).await.unwrap();
    let dir = workplace(Path::new(env!("CARGO_TARGET_TMPDIR"))).unwrap();
    let port = free_port();
    let relay = Relay::to(port).await;
    let settings =
        [("RUNNER_FACADE_URL", format!("https://127.0.0.1:{}", relay.port)), ("LOCAL_CAPACITY", "2".to_owned())];
    let controller = Controller::start(dir.path(), "silence", port, &settings).await;
    let gate = Gate::new().await.unwrap();
    let runs = push(&gitea, &["cut", "frozen"].map(|name| workflow(name, &gate))).await;
    gate.arrived(2, JOB).await.unwrap();

    let of_the_second = only_job(&gitea, &runs[1]).await.task_id;
    let frozen: Vec<Process> =
        controller.processes().into_iter().filter(|process| process.task() == Some(of_the_second)).collect();
    frozen.iter().for_each(|process| process.signal(Signal::Stop));
    relay.open.send_replace(false);
    for run in &runs {
        let ended = gitea.wait_run(REPOSITORY, run.id, SILENCE, |_| {}).await.unwrap();
        assert_eq!(ended.conclusion.as_deref(), Some("failure"), "{}", controller.log());
        let job = only_job(&gitea, run).await;
        let page = gitea.job_page(REPOSITORY, run.id, job.id).await.unwrap();
        shows(&page, Reason::ExecutorLost, "its executor was silent for 3");
        assert_steps_closed(&gitea.task(job.task_id).unwrap());
    }

    let before = [known(&gitea, &runs[0]).await, known(&gitea, &runs[1]).await];
    gate.open();
    frozen.iter().for_each(|process| process.signal(Signal::Continue));
    relay.open.send_replace(true);
    let gone = eventually("nothing of them runs", STOPPED, async || {
        let left: Vec<String> = controller.processes().iter().map(|process| process.arguments.join(" ")).collect();
        Ok(if left.is_empty() { Seen::Done(()) } else { Seen::NotYet(left.join("\n")) })
    });
    gone.await.unwrap();
    let next = push(&gitea, &[workflow("next", &gate)]).await.remove(0);
    let ended = gitea.wait_run(REPOSITORY, next.id, JOB, |_| {}).await.unwrap();
    assert_eq!(ended.conclusion.as_deref(), Some("success"), "{}", controller.log());
    assert_eq!([known(&gitea, &runs[0]).await, known(&gitea, &runs[1]).await], before, "Gitea heard of them");
    gate.arrived(4, Duration::ZERO).await.unwrap_err();
}
