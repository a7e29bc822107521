//! What users do with runs and repositories: push, run again, rename, delete (§3.2, §4.2, §4.5).

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use super::job::{Concurrency, JobSpec, Others};
use super::server::{JobRow, Scope, Server, Status};
use super::webhook::Action;

impl Server {
    /// New runs with these jobs, one per repository. One bump for all (§4.2).
    pub(crate) fn push(&mut self, specs: Vec<JobSpec>, now: Timestamp) -> Vec<i64> {
        let mut runs = BTreeMap::new();
        let mut ids = Vec::new();
        let split = self.rules.matrix_is_split;
        let specs = specs.into_iter().flat_map(|spec| if split { spec.split() } else { vec![spec] });
        for spec in specs.collect::<Vec<_>>() {
            let run = match runs.get(&spec.repository) {
                Some(run) => *run,
                None => self.open_run(&spec, &mut runs, now),
            };
            ids.push(self.add_job(spec, run, now));
        }
        let waiting = |id: &&i64| self.jobs.get(id).is_some_and(|job| job.status == Status::Waiting);
        let waiting: Vec<_> = ids.iter().filter(waiting).filter_map(|id| self.jobs.get(id)).collect();
        let scopes: BTreeSet<_> = waiting.iter().flat_map(|job| Scope::of(&job.spec)).collect();
        for _ in 0..if self.rules.run_bumps_once { 1 } else { waiting.len() } {
            self.bump(scopes.iter().cloned());
        }
        ids
    }

    fn open_run(&mut self, spec: &JobSpec, runs: &mut BTreeMap<String, i64>, now: Timestamp) -> i64 {
        let run = self.next_run;
        self.next_run += 1;
        runs.insert(spec.repository.clone(), run);
        *self.run_numbers.entry(spec.repository.clone()).or_insert(0) += 1;
        let Some(Concurrency { others, .. }) = &spec.concurrency else { return run };
        // Runs that only wait give way in any case; only those at work are spared.
        let spared = *others == Others::GoOn || !self.rules.concurrency_cancels;
        let only_running = self.rules.concurrency_spares_running_only;
        let at_work = |status: Status| matches!(status, Status::Running | Status::Cancelling) || !only_running;
        let rivals = self.rivals(run, spec).filter(|job| !(spared && at_work(job.status)));
        let cancelled: Vec<_> = rivals.map(|job| job.id).collect();
        for job in cancelled {
            self.cancel_run(job, now);
        }
        run
    }

    /// The unfinished jobs of other runs in the concurrency group of this one.
    fn rivals<'a>(&'a self, run: i64, spec: &'a JobSpec) -> impl Iterator<Item = &'a JobRow> {
        let group = |spec: &JobSpec| spec.concurrency.as_ref().map(|concurrency| concurrency.group.clone());
        let own = group(spec);
        self.jobs.values().filter(move |job| {
            let same = own.is_some() && group(&job.spec) == own && job.spec.repository == spec.repository;
            same && job.run != run && !job.status.is_end()
        })
    }

    /// Whether another run of its concurrency group goes first.
    pub(crate) fn group_is_busy(&self, run: i64, spec: &JobSpec) -> bool {
        self.rules.concurrency_waits && self.rivals(run, spec).any(|job| job.run < run)
    }

    fn add_job(&mut self, spec: JobSpec, run: i64, now: Timestamp) -> i64 {
        let id = self.next_job;
        self.next_job += 1;
        let free = spec.needs.is_empty() && !self.group_is_busy(run, &spec);
        let status = if free { Status::Waiting } else { Status::Blocked };
        let run_number = self.run_numbers.get(&spec.repository).copied().unwrap_or(1);
        let row = JobRow {
            id,
            run,
            run_number,
            spec,
            status,
            attempts: Vec::new(),
            updated: now,
            started: None,
            stopped: None,
        };
        self.jobs.insert(id, row);
        if self.rules.start_is_announced {
            self.announce(id, now, if status == Status::Waiting { Action::Queued } else { Action::Waiting });
        }
        id
    }

    /// A user runs an ended job again (§4.2).
    pub(crate) fn rerun(&mut self, job: i64, now: Timestamp) {
        let Some(row) = self.jobs.get(&job).filter(|row| row.status.is_end()) else { return };
        let open = |other: &&JobRow| row.spec.needs.contains(&other.spec.key) && !other.status.is_end();
        let blocked = self.jobs.values().filter(|other| other.run == row.run).any(|other| open(&other));
        let Some(row) = self.jobs.get_mut(&job) else { return };
        let waits = !blocked || !self.rules.rerun_blocks_dependents;
        row.status = if waits { Status::Waiting } else { Status::Blocked };
        row.updated = now;
        row.started = None;
        row.stopped = None;
        if waits && self.rules.rerun_bumps {
            self.bump_for(job);
        }
        self.announce(job, now, if waits { Action::Queued } else { Action::Waiting });
    }

    /// Deletes a whole run; its tasks are gone (§3.2).
    pub(crate) fn delete_run(&mut self, run: i64) {
        self.delete_jobs(|job| job.run == run);
    }

    /// Deletes a repository and the runners that belong to it (§3.2).
    pub(crate) fn delete_repository(&mut self, repository: &str) {
        self.delete_jobs(|job| job.spec.repository == repository);
        let scope = Scope::Repository(repository.to_owned());
        self.runners.retain(|_, runner| runner.scope != scope);
    }

    /// An older backup takes the place of everything (F24).
    pub(crate) fn restore_before(&mut self, task: i64) {
        let gone: BTreeSet<i64> = self.tasks.range(task..).map(|(_, task)| task.job).collect();
        self.jobs.retain(|id, _| !gone.contains(id));
        self.tasks.retain(|id, _| *id < task);
        self.next_task = task;
    }

    fn delete_jobs(&mut self, doomed: impl Fn(&JobRow) -> bool) {
        let gone: BTreeSet<i64> = self.jobs.values().filter(|job| doomed(job)).map(|job| job.id).collect();
        self.jobs.retain(|id, _| !gone.contains(id));
        if self.rules.deletion_forgets_tasks {
            self.tasks.retain(|_, task| !gone.contains(&task.job));
        }
    }

    /// Gives a repository another name; its jobs and runners stay with it (§11.2).
    pub(crate) fn rename_repository(&mut self, repository: &str, name: &str) {
        if !self.rules.renamed_at_fetch {
            return;
        }
        let owner = repository.split('/').next().unwrap_or_default();
        let (old, renamed) = (Scope::Repository(repository.to_owned()), format!("{owner}/{name}"));
        let new = Scope::Repository(renamed.clone());
        for job in self.jobs.values_mut().filter(|job| job.spec.repository == repository) {
            job.spec.repository.clone_from(&renamed);
        }
        for runner in self.runners.values_mut().filter(|runner| runner.scope == old) {
            runner.scope = new.clone();
        }
        for (_, scope, _) in self.registration_tokens.iter_mut().filter(|(_, scope, _)| *scope == old) {
            *scope = new.clone();
        }
        if let Some(version) = self.versions.remove(&old) {
            self.versions.insert(new, version);
        }
        if let Some(number) = self.run_numbers.remove(repository) {
            self.run_numbers.insert(renamed, number);
        }
    }
}
