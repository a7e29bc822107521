//! Ends that no runner reports: cancel, the sweeps, and what a job's end does to its run (§6, §8).

use std::time::Duration;

use jiff::Timestamp;

use super::clock::{between, whole_seconds};
use super::server::{JobRow, RunnerRow, Server, Status};
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
    /// A user cancels the run of a job. Those of its jobs that wait for others go first, so that none is skipped.
    pub(crate) fn cancel_run(&mut self, job: i64, now: Timestamp) {
        let Some(run) = self.jobs.get(&job).map(|job| job.run) else { return };
        let mut mates: Vec<_> = self.jobs.values().filter(|job| job.run == run).collect();
        mates.sort_by_key(|job| job.status != Status::Blocked);
        let mates: Vec<_> = mates.into_iter().map(|job| job.id).collect();
        for job in mates {
            self.cancel(job, now);
        }
    }

    /// One job is cancelled.
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
        let lately = between(task.updated, now) <= REPORTED_LATELY || !self.rules.cancelling_wants_a_report;
        self.rules.cancelling && declared && lately
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
            let asked = status == Status::Cancelling && self.rules.silent_cancelling_is_cancelled;
            let end = if asked { Status::Cancelled } else { Status::Failure };
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
        if !self.rules.abandoned_is_cancelled {
            return;
        }
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
        self.announce(job, now, Action::Completed);
        // Jobs that this end releases come later and raise the version by themselves.
        let waiting = self.jobs.values().any(|other| other.status == Status::Waiting);
        self.release(now);
        self.announce_run_end(job, now);
        if self.rules.finish_bumps && waiting {
            self.bump_for(job);
        }
    }

    /// Blocked jobs become waiting, or are skipped, once their needs have ended and their group is free. Gitea takes
    /// about two seconds for it.
    fn release(&mut self, now: Timestamp) {
        loop {
            let blocked = self.jobs.values().filter(|job| job.status == Status::Blocked);
            let mut ready = blocked.filter_map(|job| self.is_good(job).map(|good| (job.id, good)));
            let Some((id, good)) = ready.next() else { return };
            drop(ready);
            let Some(row) = self.jobs.get_mut(&id) else { return };
            row.updated = now;
            row.status = if good { Status::Waiting } else { Status::Skipped };
            if good {
                self.bump_for(id);
            }
            self.announce(id, now, if good { Action::Queued } else { Action::Completed });
        }
    }

    /// Whether a blocked job is to run; `None` while that is open.
    fn is_good(&self, job: &JobRow) -> Option<bool> {
        let of_run = self.jobs.values().filter(|other| other.run == job.run);
        let needs: Vec<_> = of_run.filter(|other| job.spec.needs.contains(&other.spec.key)).collect();
        let open = needs.iter().any(|need| !need.status.is_end() || !self.rules.needs_release);
        if open || self.group_is_busy(job.run, &job.spec) {
            return None;
        }
        Some(!self.rules.failed_need_skips || needs.iter().all(|need| need.status == Status::Success))
    }

    /// Deletes a runner (§3.2).
    pub(crate) fn delete_runner(&mut self, uuid: &str, now: Timestamp) {
        let gone = |row: &&RunnerRow| row.uuid == uuid;
        let Some(runner) = self.runners.values().find(gone).map(|row| row.id) else { return };
        self.runners.remove(&runner);
        if !self.rules.deleted_runner_leaves_tasks {
            let held = self.tasks.values().filter(|task| task.runner == runner && !task.status.is_end());
            let held: Vec<_> = held.map(|task| task.id).collect();
            for task in held {
                self.stop(task, Status::Failure, true, now);
            }
        }
    }
}
