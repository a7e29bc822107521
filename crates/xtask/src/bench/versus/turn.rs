//! What was seen of the jobs of one push.

use std::time::Duration;

/// One job. Times since the epoch, by this machine's clock.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Moments {
    /// Its id in Gitea.
    pub(super) job: i64,
    /// Its task's.
    pub(super) task: i64,
    /// It is in Gitea's database.
    pub(super) there: Duration,
    /// Gitea has given it to somebody.
    pub(super) handed_out: Duration,
    /// Its runner wrote the first row.
    pub(super) received: Duration,
    /// Its runner wrote the last row.
    pub(super) last_row: Duration,
    /// Gitea has its result.
    pub(super) ended: Duration,
}

/// One push.
pub(super) struct Turn {
    /// At least one.
    pub(super) jobs: Vec<Moments>,
    /// CPU time of the side, with all that it started.
    pub(super) cpu: Duration,
    /// CPU time of Gitea.
    pub(super) gitea_cpu: Duration,
}

impl Turn {
    pub(super) fn span(&self) -> Duration {
        self.last_end().saturating_sub(self.there())
    }

    pub(super) fn first_wait(&self) -> Duration {
        self.first_hand_out().saturating_sub(self.there())
    }

    /// How long a slot was empty between the end of a job in Gitea and the next hand-out, on average.
    pub(super) fn between(&self, capacity: u32) -> Duration {
        let busy: Duration = self.jobs.iter().map(|job| job.ended.saturating_sub(job.handed_out)).sum();
        let all = self.last_end().saturating_sub(self.first_hand_out()) * capacity;
        let jobs = u32::try_from(self.jobs.len()).unwrap_or(u32::MAX);
        all.saturating_sub(busy).checked_div(jobs.saturating_sub(capacity)).unwrap_or_default()
    }

    pub(super) fn cpu_per_job(&self) -> Duration {
        self.per_job(self.cpu)
    }

    pub(super) fn gitea_cpu_per_job(&self) -> Duration {
        self.per_job(self.gitea_cpu)
    }

    fn per_job(&self, time: Duration) -> Duration {
        time.checked_div(u32::try_from(self.jobs.len()).unwrap_or(u32::MAX)).unwrap_or_default()
    }

    fn there(&self) -> Duration {
        self.jobs.iter().map(|job| job.there).min().unwrap_or_default()
    }

    fn first_hand_out(&self) -> Duration {
        self.jobs.iter().map(|job| job.handed_out).min().unwrap_or_default()
    }

    fn last_end(&self) -> Duration {
        self.jobs.iter().map(|job| job.ended).max().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two slots, four jobs of 3 s; each slot is empty for 1 s between its two jobs.
    #[test]
    fn a_push_is_summed_up() {
        let job = |handed_out, ended| Moments {
            there: Duration::from_secs(10),
            handed_out: Duration::from_secs(handed_out),
            ended: Duration::from_secs(ended),
            ..Moments::default()
        };
        let jobs = vec![job(12, 15), job(12, 15), job(16, 19), job(16, 19)];
        let turn = Turn { jobs, cpu: Duration::from_secs(8), gitea_cpu: Duration::ZERO };
        let seconds = |time: Duration| time.as_secs();
        assert_eq!((seconds(turn.span()), seconds(turn.first_wait())), (9, 2));
        assert_eq!((seconds(turn.between(2)), seconds(turn.cpu_per_job())), (1, 2));
        let one = Turn { jobs: vec![job(12, 15)], cpu: Duration::ZERO, gitea_cpu: Duration::ZERO };
        assert!(one.between(2).is_zero());
    }
}
