//! One push after another, each watched until all its jobs have ended.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use testkit::real::{Client, Daemon, GiteaServer, JobTimes, Standalone, Status};

use super::turn::{Moments, Turn};
use super::{REPOSITORY, Side};
use crate::bench::process::Cpu;
use crate::bench::subject::{now, since_epoch};

/// How often the database is looked at.
const LOOK: Duration = Duration::from_millis(5);
/// By then both sides' pauses between two questions have grown to their longest.
const IDLE: Duration = Duration::from_secs(12);
/// Those longest pauses.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
const TURN_LIMIT: Duration = Duration::from_secs(300);

/// Both sides beside one Gitea.
pub(super) struct Course<'a> {
    client: Client,
    gitea: &'a GiteaServer,
    ours: &'a Standalone,
    runner: &'a Daemon,
    /// When each side had its last job.
    last: BTreeMap<Side, Instant>,
    pushes: u32,
}

impl<'a> Course<'a> {
    pub(super) fn new(client: Client, gitea: &'a GiteaServer, ours: &'a Standalone, runner: &'a Daemon) -> Self {
        Self { client, gitea, ours, runner, last: BTreeMap::new(), pushes: 0 }
    }

    /// Pushes so many trivial jobs for one side, and returns when they and all they left have gone.
    pub(super) async fn turn(&mut self, side: Side, jobs: usize) -> anyhow::Result<Turn> {
        self.until_idle(side).await;
        self.pushes += 1;
        let (cpu, gitea_cpu) = (self.cpu(side)?, self.gitea_cpu()?);
        let before = self.client.jobs_after(0)?.last().map_or(0, |job| job.id);
        let workflow = workflow(side.label(), jobs, self.pushes);
        let files = [(".gitea/workflows/bench.yml", workflow.as_str())];
        let pushed = self.client.push_files(REPOSITORY, &files);
        let (_, seen) = tokio::try_join!(async { Ok(pushed.await?) }, self.watch(before, jobs))?;
        self.until_nothing_is_left().await?;
        self.last.insert(side, Instant::now());
        let (cpu, gitea_cpu) = (self.cpu(side)? - cpu, self.gitea_cpu()? - gitea_cpu);
        let mut told = Vec::new();
        for moments in seen {
            told.push(self.with_log(moments).await?);
        }
        Ok(Turn { jobs: told, cpu: cpu.whole(), gitea_cpu: gitea_cpu.whole() })
    }

    /// A side is asked when it is idle for long, at any moment of its pause: each push comes a good third of a pause later
    /// in it than the one before, whatever the pause began with.
    async fn until_idle(&self, side: Side) {
        const GOLDEN: f64 = 0.618;
        let later = LONGEST_PAUSE.mul_f64((f64::from(self.pushes) * GOLDEN).fract());
        let since = self.last.get(&side).map_or(Duration::ZERO, Instant::elapsed);
        tokio::time::sleep((IDLE + later).saturating_sub(since)).await;
    }

    async fn watch(&self, before: i64, jobs: usize) -> anyhow::Result<Vec<Moments>> {
        let mut seen = BTreeMap::new();
        let until = Instant::now() + TURN_LIMIT;
        loop {
            let rows = self.client.jobs_after(before)?;
            note(&mut seen, &rows, now());
            let failed = rows.iter().find(|job| job.status.is_final() && job.status != Status::Success);
            ensure!(failed.is_none(), "a job failed: {failed:?}");
            if seen.len() == jobs && seen.values().all(|moments| !moments.ended.is_zero()) {
                return Ok(seen.into_values().collect());
            }
            ensure!(Instant::now() < until, "after {TURN_LIMIT:?}: {seen:?}");
            tokio::time::sleep(LOOK).await;
        }
    }

    async fn until_nothing_is_left(&self) -> anyhow::Result<()> {
        let folder = self.ours.state().join("executors");
        let until = Instant::now() + TURN_LIMIT;
        while std::fs::read_dir(&folder).is_ok_and(|mut entries| entries.next().is_some()) {
            ensure!(Instant::now() < until, "executors are left:\n{}", self.ours.log());
            tokio::time::sleep(LOOK).await;
        }
        Ok(())
    }

    async fn with_log(&self, moments: Moments) -> anyhow::Result<Moments> {
        let log = self.client.log(REPOSITORY, moments.job).await?.context("a job without a log")?;
        let received = log.lines().find(|line| line.contains(") received task ")).context("nobody received the job")?;
        let last = log.lines().last().unwrap_or_default();
        Ok(Moments { received: time_of(received)?, last_row: time_of(last)?, ..moments })
    }

    fn cpu(&self, side: Side) -> anyhow::Result<Cpu> {
        match side {
            Side::Ours => Cpu::of(self.ours.pid().context("ours has ended")?),
            Side::Runner => Cpu::of(self.runner.pid()),
        }
    }

    fn gitea_cpu(&self) -> anyhow::Result<Cpu> {
        Cpu::of(self.gitea.pid().context("Gitea has ended")?)
    }
}

/// What a look shows that no look before it did.
fn note(seen: &mut BTreeMap<i64, Moments>, rows: &[JobTimes], at: Duration) {
    for row in rows {
        let moments = seen.entry(row.id).or_insert(Moments { job: row.id, there: at, ..Moments::default() });
        if row.task_id != 0 && moments.task == 0 {
            (moments.task, moments.handed_out) = (row.task_id, at);
        }
        if row.status.is_final() && moments.ended.is_zero() {
            moments.ended = at;
        }
    }
}

/// Of a row as Gitea gives it to people: the time, a blank, the text, which may be empty.
fn time_of(row: &str) -> anyhow::Result<Duration> {
    let time = row.split(' ').next().unwrap_or_default();
    since_epoch(time.parse().with_context(|| format!("the time of {row:?}"))?)
}

/// A push that changes nothing is refused: the number makes each one new.
fn workflow(label: &str, jobs: usize, push: u32) -> String {
    let job = |number| format!("  job-{number}:\n    runs-on: {label}\n    steps:\n      - run: echo done\n");
    format!("# {push}\non: push\njobs:\n{}", (1..=jobs).map(job).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(task_id: i64, status: Status) -> JobTimes {
        JobTimes { id: 7, key: "job-1".to_owned(), task_id, status, created: 0, started: 0, stopped: 0 }
    }

    /// Each moment is that of the first look that shows it; one look may show several.
    #[test]
    fn the_first_look_counts() {
        let at = Duration::from_secs;
        let (mut steps, mut at_once) = (BTreeMap::new(), BTreeMap::new());
        let looks = [(0, Status::Waiting), (0, Status::Waiting), (9, Status::Running), (9, Status::Running)];
        let looks = looks.into_iter().chain([(9, Status::Success), (9, Status::Success)]);
        for (second, (task, status)) in (1..).zip(looks) {
            note(&mut steps, &[row(task, status)], at(second));
        }
        let expected = Moments { job: 7, task: 9, there: at(1), handed_out: at(3), ended: at(5), ..Moments::default() };
        assert_eq!(steps[&7], expected);
        note(&mut at_once, &[row(9, Status::Success)], at(4));
        assert_eq!((at_once[&7].there, at_once[&7].handed_out, at_once[&7].ended), (at(4), at(4), at(4)));
    }

    #[test]
    fn a_row_has_a_time() {
        assert_eq!(time_of("1970-01-01T00:00:01.5000000Z text").ok(), Some(Duration::from_millis(1500)));
        assert!(time_of("text").is_err() && time_of("no time").is_err());
    }
}
