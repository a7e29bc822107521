//! Where the time of a job in a Pod goes, from the moment at which Gitea has it to the first row of its first step. For
//! people (`--nocapture`): no test depends on it. All moments are of one clock, this machine's, which its Pods share.

use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;
use testkit::real::{Client, Run};

use crate::site::{NAMESPACE, Site};

/// Between two looks at what does not tell its own times.
const LOOK: Duration = Duration::from_millis(5);

/// Watches the next job from its beginning.
pub(crate) struct Phases(JoinHandle<Watched>);

/// What was looked at rather than told.
#[derive(Default)]
struct Watched {
    task: i64,
    there: Option<Timestamp>,
    handed_out: Option<Timestamp>,
    container: Option<Timestamp>,
    /// What the executor wrote, as the node has it.
    executor: String,
}

impl Phases {
    pub(crate) fn watch(site: &Site) -> Self {
        let (gitea, logs) = (site.server.client(), site.cluster.folder().join("log/pods"));
        let before = gitea.jobs_after(0).unwrap().last().map_or(0, |job| job.id);
        Self(std::thread::spawn(move || {
            let mut watched = Watched::default();
            while watched.look(&gitea, before, &logs) {
                std::thread::sleep(LOOK);
            }
            watched
        }))
    }

    /// Prints the moments of this run's only job, which has ended.
    pub(crate) async fn print(self, site: &Site, run: &Run) {
        let watched = self.0.join().unwrap();
        let page: String = site.pages(run).await.into_values().collect();
        let moments = watched.moments(site, &page);
        say(watched.task, moments);
    }
}

impl Watched {
    /// Whether there is more to come.
    fn look(&mut self, gitea: &Client, before: i64, logs: &Path) -> bool {
        let now = Timestamp::now();
        let Ok(jobs) = gitea.jobs_after(before) else { return false };
        let Some(job) = jobs.first() else { return true };
        self.there.get_or_insert(now);
        if job.task_id == 0 {
            return !job.status.is_final();
        }
        self.task = job.task_id;
        self.handed_out.get_or_insert(now);
        if let Ok(text) = std::fs::read_to_string(self.file(logs)) {
            self.container.get_or_insert(now);
            self.executor = text;
        }
        !job.status.is_final()
    }

    /// Begun by the node when it starts the container, and removed with the Pod.
    fn file(&self, logs: &Path) -> PathBuf {
        let begin = format!("{NAMESPACE}_gitea-task-{}-", self.task);
        let pods = std::fs::read_dir(logs).into_iter().flatten().flatten();
        let of_task = |pod: &std::fs::DirEntry| pod.file_name().to_string_lossy().starts_with(&begin);
        pods.filter(of_task).map(|pod| pod.path().join("executor/0.log")).next().unwrap_or_default()
    }

    fn moments(&self, site: &Site, page: &str) -> [(&'static str, Option<Timestamp>); 10] {
        let log = site.log();
        let svid = self.executor.lines().find(|line| line.contains("the exact SVID is there"));
        let name = format!("gitea-task-{}-", self.task);
        let created = site.calls("create", "pods").into_iter().find_map(|call| {
            let call: Value = serde_json::from_str(&call).ok()?;
            let ours = call["objectRef"]["name"].as_str()?.starts_with(&name);
            ours.then(|| call["stageTimestamp"].as_str()?.parse().ok()).flatten()
        });
        let first = site.gitea.task(self.task).ok().and_then(|task| task.steps.first().map(|step| step.log_index));
        let row = first.and_then(|index| page.lines().nth(usize::try_from(index).ok()?));
        [
            ("the job is in Gitea", self.there),
            ("Gitea has handed it out", self.handed_out),
            ("the controller has it", self.told(&log, "fetched")),
            ("it is durable in NATS", self.told(&log, "dispatched")),
            ("its Pod is created", created),
            ("its container starts", self.container),
            ("its executor has its SVID", svid.and_then(time)),
            ("the controller knows that it runs", self.told(&log, "backend_ready")),
            ("it is claimed", self.told(&log, "runner_claimed")),
            ("the first row of its first step", row.and_then(time)),
        ]
    }

    /// When the controller's log first told of this event.
    fn told(&self, log: &str, event: &str) -> Option<Timestamp> {
        let mut lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let line = lines.find(|line| line["event"] == event && line["task_id"] == self.task)?;
        line["timestamp"].as_str()?.parse().ok()
    }
}

/// With which a row of a node's log or of a job's page begins.
fn time(row: &str) -> Option<Timestamp> {
    row.split(' ').next()?.parse().ok()
}

#[expect(clippy::print_stderr, reason = "figures that a person may ask for with --nocapture")]
fn say(task: i64, moments: [(&str, Option<Timestamp>); 10]) {
    let mut known: Vec<_> = moments.iter().filter_map(|(what, at)| Some(((*at)?, *what))).collect();
    known.sort();
    let Some(&(begin, _)) = known.first() else { return eprintln!("phases of task {task}: none is known") };
    eprintln!("phases of task {task}: seconds since the first, seconds since the one before");
    let mut before = begin;
    for (at, what) in known {
        let [all, own] = [begin, before].map(|from| at.duration_since(from).as_secs_f64());
        eprintln!("{all:8.3} {own:8.3}  {what}");
        before = at;
    }
    for (what, _) in moments.iter().filter(|(_, at)| at.is_none()) {
        eprintln!("       –        –  {what}");
    }
}
