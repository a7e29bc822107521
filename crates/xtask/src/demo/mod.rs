//! `cargo xtask demo`: the whole system in one command, judged by what a real Gitea stored in the end.

mod judge;
mod workflows;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use testkit::real::{Client, GiteaServer, Job, Run, Seen, Settings, Standalone, Word, eventually, workplace};

use crate::provision::{self, Part};
use crate::rows::{Tally, conclude, table};
use crate::say::{self, Step};
use judge::{Evidence, Row, absent, judge};
use workflows::{RUNS, WANTED, files};

const REPOSITORY: &str = "acme/demo";
const CAPACITY: u32 = 2;
const ONLINE_LIMIT: Duration = Duration::from_secs(60);
const JOBS_LIMIT: Duration = Duration::from_secs(5 * 60);
const END_LIMIT: Duration = Duration::from_secs(30);
/// Each look asks Gitea for every run, and Gitea has other things to do.
const LOOK_PAUSE: Duration = Duration::from_millis(400);

/// Show the whole system at work.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Leave everything running, and say where.
    #[arg(long)]
    keep: bool,
    /// Write the table into this file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Judge this program instead of building one.
    #[arg(long, value_name = "PROGRAM")]
    binary: Option<PathBuf>,
}

/// The command. Ctrl-C ends everything that was started.
pub(crate) async fn main(root: &Path, arguments: Arguments) -> anyhow::Result<ExitCode> {
    tokio::select! {
        result = show(root, arguments) => result,
        _ = tokio::signal::ctrl_c() => anyhow::bail!("interrupted; everything was ended"),
    }
}

async fn show(root: &Path, arguments: Arguments) -> anyhow::Result<ExitCode> {
    provision::ensure(&[Part::Gitea, Part::Runner]).await?;
    let program = match arguments.binary {
        Some(program) => program,
        None => crate::build::controller(root).await?,
    };
    let dir = workplace(&std::env::temp_dir())?;

    let step = Step::begin("start Gitea");
    let gitea = GiteaServer::start(&dir.path().join("gitea"), &[]).await?;
    let client = gitea.client();
    client.create_repository(REPOSITORY).await?;
    step.end(gitea.url());

    let step = Step::begin("start gitea-dynamic-runner standalone");
    let (labels, further, environment) = (Vec::new(), Vec::new(), BTreeMap::new());
    let settings = Settings {
        word: Word::Standalone,
        program,
        capacity: CAPACITY,
        labels,
        arguments: further,
        environment,
        user: None,
    };
    let mut standalone = Standalone::start(settings, &client, &dir.path().join("runner")).await?;
    let runner = standalone.online(&client, "local", ONLINE_LIMIT).await?;
    step.end(&format!("online as {:?} with labels {}", runner.name, runner.labels().collect::<Vec<_>>().join(", ")));

    let jobs = push_and_wait(&client, standalone.program()).await;
    let rows = rows(&client, &jobs?).await?;
    print(&rows, &standalone.log());
    if arguments.keep {
        keep(dir.keep(), gitea, standalone);
    } else {
        standalone.sigterm(END_LIMIT).await.context("end gitea-dynamic-runner")?;
        drop(standalone);
        drop(gitea);
    }
    let tally = rows.iter().map(|row| Tally::one(row.passed)).sum();
    conclude(&rows, tally, arguments.json.as_deref())
}

/// The jobs of every run that one push started, once all have ended or the time is up.
async fn push_and_wait(client: &Client, program: &Path) -> anyhow::Result<Vec<(Run, Vec<Job>)>> {
    let files = files(program);
    let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    let commit = client.push_files(REPOSITORY, &files).await?;
    let runs = client.runs_of_commit(REPOSITORY, &commit, RUNS, ONLINE_LIMIT).await?;
    let mut step = Step::begin(format!("{} jobs of one push", WANTED.len()));
    let mut latest = Vec::new();
    let waited = eventually("every job has ended", JOBS_LIMIT, async || {
        tokio::time::sleep(LOOK_PAUSE).await;
        latest.clear();
        for run in &runs {
            latest.push((run.clone(), client.jobs(REPOSITORY, run.id).await?));
        }
        let jobs: Vec<&Job> = latest.iter().flat_map(|(_, jobs)| jobs).collect();
        let open: Vec<&str> = jobs.iter().filter(|job| !job.status.is_final()).map(|job| job.name.as_str()).collect();
        let text = format!("{} of {} ended; open: {}", jobs.len() - open.len(), jobs.len(), open.join(", "));
        step.tick(&text);
        Ok(if open.is_empty() { Seen::Done(()) } else { Seen::NotYet(text) })
    });
    let waited = waited.await;
    match waited {
        Ok(()) => step.end("all ended"),
        // The table tells which; what hangs is judged as it stands.
        Err(error) => step.end(&error.to_string()),
    };
    Ok(latest)
}

async fn rows(client: &Client, runs: &[(Run, Vec<Job>)]) -> anyhow::Result<Vec<Row>> {
    let mut rows = Vec::new();
    for wanted in &WANTED {
        let found = runs.iter().filter(|(run, _)| run.file() == wanted.file);
        let found = found.flat_map(|(_, jobs)| jobs.iter().map(move |job| (jobs, job)));
        match found.into_iter().find(|(_, job)| job.name == wanted.job) {
            Some((run, job)) => {
                let log = client.log(REPOSITORY, job.id).await?.unwrap_or_default();
                rows.push(judge(wanted, &Evidence { repository: REPOSITORY, run, job, log: &log }));
            }
            None => rows.push(absent(wanted)),
        }
    }
    Ok(rows)
}

fn print(rows: &[Row], log: &str) {
    let text = |cell: &Option<String>| cell.clone().unwrap_or_else(|| "-".to_owned());
    let seconds = |cell: Option<i64>| cell.map_or_else(|| "-".to_owned(), |seconds| seconds.to_string());
    let cells: Vec<Vec<String>> = rows
        .iter()
        .map(|row| {
            let ids = [row.job.to_owned(), text(&row.backend), text(&row.spiffe_id)];
            let numbers = [seconds(row.queue_seconds), seconds(row.run_seconds)];
            let verdict = if row.passed { "ok" } else { "WRONG" };
            let ends = [row.result.clone(), row.expected.clone(), verdict.to_owned()];
            ids.into_iter().chain(numbers).chain(ends).collect()
        })
        .collect();
    let head = ["job", "backend", "SPIFFE ID the job saw", "queue s", "run s", "result", "expected", ""];
    say::result(&table(&head, &cells));
    let wrong: Vec<&Row> = rows.iter().filter(|row| !row.passed).collect();
    for row in &wrong {
        say::result(&format!("{} ({}): {}", row.job, row.workflow, text(&row.complaint)));
    }
    if !wrong.is_empty() {
        let lines: Vec<&str> = log.lines().collect();
        say::line(&format!("the end of our own log:\n{}", lines[lines.len().saturating_sub(40)..].join("\n")));
    }
}

fn keep(dir: PathBuf, gitea: GiteaServer, standalone: Standalone) {
    let access = gitea.access().clone();
    let state = standalone.state();
    let pids = [standalone.keep(), gitea.keep()].into_iter().flatten().map(|pid| pid.to_string());
    let pids = pids.collect::<Vec<_>>().join(" ");
    say::result(&format!("left running: {}/{REPOSITORY}/actions", access.url));
    say::result(&format!("  login {} with password {}", access.admin, access.password));
    say::result(&format!("  state in {}", state.display()));
    say::result(&format!("  end it with: kill {pids}; rm -rf {}", dir.display()));
}
