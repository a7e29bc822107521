//! The double as a side that can be asked.

use std::time::Duration;

use anyhow::Context as _;

use super::side::{Answer, Delivery, Observed, Service, Side};
use crate::gitea::{Gitea, JobId, JobSpec, Scope, Settings, Webhook};

/// An answer that is there already.
fn now<'a, T: 'a>(value: T) -> Answer<'a, T> {
    Box::pin(std::future::ready(Ok(value)))
}

impl Gitea {
    /// The webhooks about a job or its run.
    fn deliveries(&self, job: JobId) -> Vec<Delivery> {
        let run = |job: JobId| self.find(job).map(|state| state.run);
        let own = run(job);
        let about = |hook: &Webhook| match hook.event {
            crate::gitea::Event::WorkflowJob => hook.job == job,
            crate::gitea::Event::WorkflowRun => run(hook.job) == own,
        };
        let hooks = self.webhooks().into_iter().filter(about);
        hooks.map(|hook| Delivery { event: hook.event, action: hook.action }).collect()
    }

    fn of_settings(&self, choose: impl FnOnce(&Settings) -> Duration) -> Duration {
        let mut chosen = Duration::ZERO;
        self.configure(|settings| chosen = choose(settings));
        chosen
    }

    /// The jobs of a job's run.
    fn run_mates(&self, job: JobId) -> Vec<JobId> {
        let Some(run) = self.find(job).map(|state| state.run) else { return Vec::new() };
        self.jobs().into_iter().filter(|other| self.find(*other).is_some_and(|state| state.run == run)).collect()
    }
}

impl Side for Gitea {
    fn url(&self) -> String {
        self.url()
    }

    fn create_repository<'a>(&'a self, _: &'a str) -> Answer<'a, ()> {
        now(())
    }

    fn rename_repository<'a>(&'a self, repository: &'a str, name: &'a str) -> Answer<'a, ()> {
        self.rename_repository(repository, name);
        now(())
    }

    fn delete_repository<'a>(&'a self, repository: &'a str) -> Answer<'a, ()> {
        self.delete_repository(repository);
        now(())
    }

    fn registration_token<'a>(&'a self, scope: &'a Scope) -> Answer<'a, String> {
        now(self.registration_token_for(scope))
    }

    fn push(&self, jobs: Vec<JobSpec>) -> Answer<'_, Vec<JobId>> {
        now(self.push(jobs))
    }

    fn cancel(&self, job: JobId) -> Answer<'_, ()> {
        self.cancel(job);
        now(())
    }

    fn rerun(&self, job: JobId) -> Answer<'_, ()> {
        for each in self.run_mates(job) {
            self.rerun(each);
        }
        now(())
    }

    fn delete_run(&self, job: JobId) -> Answer<'_, ()> {
        self.delete_run(job);
        now(())
    }

    fn set_service<'a>(&'a self, uuid: &'a str, service: Service) -> Answer<'a, ()> {
        match service {
            Service::On => self.enable_runner(uuid),
            Service::Off => self.disable_runner(uuid),
        }
        now(())
    }

    fn delete_runner<'a>(&'a self, uuid: &'a str) -> Answer<'a, ()> {
        self.delete_runner(uuid);
        now(())
    }

    fn look(&self, job: JobId) -> Answer<'_, Observed> {
        Box::pin(async move {
            let state = self.find(job).context("the job is there")?;
            let rows = state.rows().into_iter().map(str::to_owned).collect();
            let deliveries = self.deliveries(job);
            Ok(Observed { status: state.status, steps: state.steps, rows, stopped: state.stopped, deliveries })
        })
    }

    fn background(&self) -> Duration {
        Duration::ZERO
    }

    fn let_pass(&self, time: Duration) -> Answer<'_, ()> {
        self.advance(time);
        now(())
    }

    fn zombie_after(&self) -> Duration {
        self.of_settings(|settings| settings.zombie_timeout + settings.zombie_sweep)
    }

    fn endless_after(&self) -> Duration {
        self.of_settings(|settings| settings.endless_timeout + settings.endless_sweep)
    }

    fn abandoned_after(&self) -> Duration {
        self.of_settings(|settings| settings.abandoned_timeout + settings.abandoned_sweep)
    }
}
