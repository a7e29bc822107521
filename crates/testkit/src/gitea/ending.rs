//! Ends that no runner reports: cancel, the sweeps, and what a job's end does to its run (§6, §8).

use std::time::Duration;

use jiff::Timestamp;

use super::clock::{between, whole_seconds};
use super::server::{Server, Status};
use super::update::close_steps;
use super::webhook::Action;

/// The cancel handshake wants a report as young as this (§8).
const REPORTED_LATELY: Duration = Duration::from_secs(60);

/// Which timeouts are looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sweep {
    /// Silent tasks.
    Zombie,
    /// Tasks that run too long.
    Endless,
    /// Jobs that nobody fetched.
    Abandoned,
}

impl Server {
    /// A user cancels a run's job.
    pub(crate) fn cancel(&mut self, job: i64, now: Timestamp) {
        let Some(row) = self.jobs.get(&job) else { return };
        let task = row.attempts.last().copied().filter(|_| !row.status.is_end() && row.status != Status::Waiting);
        match (row.status, task) {
            (status, _) if status.is_end() => {}
            (Status::Waiting | Status::Blocked, _) | (_, None) => {
                self.job_ended(job, Status::Cancelled, whole_seconds(now), now);
                if self.rules.cancel_bumps {
                    self.bump_for(job);
                }
            }
            (_, Some(task)) if self.hands_shake(task, now) => {
                self.with_task(task, |task| task.status = Status::Cancelling);
                if let Some(row) = self.jobs.get_mut(&job) {
                    row.status = Status::Cancelling;
                }
                self.announce(job, now, Action::InProgress);
            }
            (_, Some(task)) => self.stop(task, Status::Cancelled, self.rules.cancel_closes_steps, now),
        }
    }

    /// Whether the cancel is put to the runner instead of being done at once.
    fn hands_shake(&self, task: i64, now: Timestamp) -> bool {
        let Some(task) = self.tasks.get(&task) else { return false };
        let runner = self.runners.get(&task.runner);
        let declared = runner.is_some_and(|row| row.capabilities.iter().any(|each| each == "cancelling"));
        self.rules.cancelling && declared && between(task.updated, now) <= REPORTED_LATELY
    }

    /// Ends a task over the runner's head.
    fn stop(&mut self, task: i64, status: Status, closes_steps: bool, now: Timestamp) {
        let mut job = None;
        self.with_task(task, |task| {
            task.status = status;
            task.stopped = Some(whole_seconds(now));
            if closes_steps {
                close_steps(task, status, now);
            }
            job = Some(task.job);
        });
        if let Some(job) = job {
            self.job_ended(job, status, whole_seconds(now), now);
        }
    }

    fn with_task(&mut self, task: i64, change: impl FnOnce(&mut super::server::TaskRow)) {
        if let Some(task) = self.tasks.get_mut(&task) {
            change(task);
        }
    }

    /// Runs one sweep (§6).
    pub(crate) fn sweep(&mut self, sweep: Sweep, now: Timestamp) {
        match sweep {
            Sweep::Zombie => self.sweep_zombies(now),
            Sweep::Endless => self.sweep_endless(now),
            Sweep::Abandoned => self.sweep_abandoned(now),
        }
    }

    fn sweep_zombies(&mut self, now: Timestamp) {
        let limit = self.settings.zombie_timeout;
        let open = self.tasks.values().filter(|task| !task.status.is_end());
        let silent: Vec<_> = open
            .filter(|task| between(task.updated, now) > limit && self.rules.zombie_ends_silent)
            .map(|task| (task.id, task.status))
            .collect();
        for (task, status) in silent {
            let end = if status == Status::Cancelling { Status::Cancelled } else { Status::Failure };
            self.stop_by_sweep(task, end, now);
        }
    }

    fn sweep_endless(&mut self, now: Timestamp) {
        let limit = self.settings.endless_timeout;
        let from_fetch = self.rules.endless_counts_from_fetch;
        let running = self.tasks.values().filter(|task| task.status == Status::Running);
        let endless: Vec<_> = running
            .filter(|task| {
                let since = if from_fetch { Some(task.started) } else { task.first_update };
                since.is_some_and(|since| between(since, now) > limit)
            })
            .map(|task| task.id)
            .collect();
        for task in endless {
            self.stop_by_sweep(task, Status::Failure, now);
        }
    }

    fn sweep_abandoned(&mut self, now: Timestamp) {
        let limit = self.settings.abandoned_timeout;
        let open = self.jobs.values().filter(|job| matches!(job.status, Status::Waiting | Status::Blocked));
        let abandoned: Vec<_> = open.filter(|job| between(job.updated, now) > limit).map(|job| job.id).collect();
        for job in abandoned {
            self.job_ended(job, Status::Cancelled, whole_seconds(now), now);
        }
    }

    fn stop_by_sweep(&mut self, task: i64, end: Status, now: Timestamp) {
        self.stop(task, end, self.rules.zombie_closes_steps, now);
        let (rows, empty) = (self.rules.zombie_archives_rows, !self.rules.zombie_leaves_empty_log_open);
        self.with_task(task, |task| task.archived |= if task.log.is_empty() { empty } else { rows });
    }

    /// A job has ended: its webhooks go out and the jobs that need it move on.
    pub(crate) fn job_ended(&mut self, job: i64, status: Status, stopped: Timestamp, now: Timestamp) {
        let Some(row) = self.jobs.get_mut(&job) else { return };
        row.status = status;
        row.stopped = Some(stopped);
        row.updated = now;
        let run = row.run;
        self.announce(job, now, Action::Completed);
        // Jobs that this end releases come later and raise the version by themselves.
        let waiting = self.jobs.values().any(|other| other.status == Status::Waiting);
        self.release_dependents(run, now);
        self.announce_run_end(job, now);
        if self.rules.finish_bumps && waiting {
            self.bump_for(job);
        }
    }

    /// Blocked jobs whose needs have all ended become waiting or are skipped. Gitea takes about two seconds for it.
    fn release_dependents(&mut self, run: i64, now: Timestamp) {
        loop {
            let status_of = |key: &String| {
                let of_run = self.jobs.values().filter(|job| job.run == run);
                of_run.filter(|job| job.spec.key == *key).map(|job| job.status).next_back()
            };
            let ready = self.jobs.values().find_map(|job| {
                let blocked = job.run == run && job.status == Status::Blocked;
                let needs: Vec<_> = job.spec.needs.iter().filter_map(status_of).collect();
                (blocked && needs.iter().all(|status| status.is_end()))
                    .then(|| (job.id, needs.iter().all(|status| *status == Status::Success)))
            });
            let Some((id, good)) = ready else { return };
            let Some(row) = self.jobs.get_mut(&id) else { return };
            row.updated = now;
            row.status = if good { Status::Waiting } else { Status::Skipped };
            if good {
                self.bump_for(id);
            }
            self.announce(id, now, if good { Action::Queued } else { Action::Completed });
        }
    }

    /// A user runs an ended job again (§4.2).
    pub(crate) fn rerun(&mut self, job: i64, now: Timestamp) {
        let Some(row) = self.jobs.get_mut(&job).filter(|row| row.status.is_end()) else { return };
        row.status = Status::Waiting;
        row.updated = now;
        row.started = None;
        row.stopped = None;
        self.bump_for(job);
        self.announce(job, now, Action::Queued);
    }
}
