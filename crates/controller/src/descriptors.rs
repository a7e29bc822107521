//! How many files this process may open, and what of that is for the connections of jobs: a flood of them must leave
//! enough for the queue, for new executors and for whoever asks how we are (NEW-98).

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The queue, listeners, keys, our own calls to Gitea.
const OURS: u64 = 64;
/// Of each executor on this host: the socket of its identity with a stream, its supervisor and what that says. A Pod costs
/// none.
const OF_AN_EXECUTOR: u64 = 4;
/// A connection of a job, and the one to Gitea that carries on what comes through it.
const OF_A_CONNECTION: u64 = 2;
/// More than these, or than two for each slot, are not served at a time, whatever the limit.
const MOST_CONNECTIONS: u64 = 4096;
/// Fewer than these are too few to serve anybody.
const LEAST_CONNECTIONS: u64 = 16;
/// What each slot should have: the parallel downloads of a package manager.
const ENOUGH_FOR_A_SLOT: u64 = 32;

/// The slots, and where their executors are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Slots {
    /// Each executor is a process of this host.
    OnThisHost(u32),
    /// Each is somewhere else.
    Elsewhere(u32),
}

impl Slots {
    fn count(self) -> u64 {
        let (Self::OnThisHost(count) | Self::Elsewhere(count)) = self;
        count.into()
    }

    fn descriptors(self) -> u64 {
        match self {
            Self::OnThisHost(count) => OF_AN_EXECUTOR * u64::from(count),
            Self::Elsewhere(_) => 0,
        }
    }

    /// An executor keeps a connection, and has another one now and then.
    fn most_connections(self) -> u64 {
        MOST_CONNECTIONS.max(2 * self.count())
    }
}

/// The limit of open files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Descriptors {
    /// What the process was started with, and what jobs get: programs that use `select` break above 1024. None: no limit.
    pub inherited: Option<u64>,
    /// What it may open now.
    pub limit: u64,
}

impl Descriptors {
    /// Raises the soft limit of this process to the hard one. Where the kernel refuses, it stays as it was.
    #[must_use]
    pub fn raise() -> Self {
        let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
        let raised = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).is_ok();
        let limit = if raised { maximum } else { current };
        Self { inherited: current, limit: limit.unwrap_or(u64::MAX) }
    }

    /// Gives this process, and what it starts, the soft limit again that its starter was started with.
    pub fn restore(inherited: Option<u64>) {
        let Some(inherited) = inherited else { return };
        let maximum = getrlimit(Resource::Nofile).maximum;
        let current = Some(maximum.map_or(inherited, |maximum| maximum.min(inherited)));
        // The higher limit stays: nothing that must not start with it.
        let _ = setrlimit(Resource::Nofile, Rlimit { current, maximum });
    }

    /// How many connections of jobs are served at a time with so many slots.
    #[must_use]
    pub fn connections(&self, slots: Slots) -> u64 {
        let left = self.limit.saturating_sub(OURS + slots.descriptors());
        (left / OF_A_CONNECTION).clamp(LEAST_CONNECTIONS, slots.most_connections())
    }

    /// What to say when that is little.
    #[must_use]
    pub fn shortage(&self, slots: Slots) -> Option<String> {
        let connections = self.connections(slots);
        let enough = slots.most_connections().min(ENOUGH_FOR_A_SLOT * slots.count());
        (connections < enough || self.limit < OURS * 4).then(|| {
            format!(
                "this process may open {} files, so that {connections} connections of jobs are served at a time; raise the hard \
                 limit (LimitNOFILE= of systemd, ulimit -Hn)",
                self.limit
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Slots::{Elsewhere, OnThisHost};
    use super::*;

    fn of(limit: u64) -> Descriptors {
        Descriptors { inherited: Some(1024), limit }
    }

    /// NEW-98: what everything else needs is never given to connections; a limit under which jobs are short of them is told.
    #[test]
    fn connections_leave_room_for_the_rest() {
        assert_eq!(of(1024).connections(OnThisHost(1)), 478);
        assert_eq!(of(1024).connections(OnThisHost(200)), LEAST_CONNECTIONS + 64);
        assert_eq!(of(1 << 20).connections(OnThisHost(1024)), MOST_CONNECTIONS);
        assert_eq!(of(u64::MAX).connections(OnThisHost(1)), MOST_CONNECTIONS);
        assert_eq!(of(20).connections(OnThisHost(1)), LEAST_CONNECTIONS);
        for (limit, slots, told) in
            [(1024, 1, false), (1024, 14, false), (1024, 16, true), (255, 1, true), (1 << 20, 1024, false)]
        {
            assert_eq!(of(limit).shortage(OnThisHost(slots)).is_some(), told, "{limit} {slots}");
        }
        assert!(
            of(1024)
                .shortage(OnThisHost(16))
                .is_some_and(|text| text.starts_with("this process may open 1024 files, so that 448 "))
        );
    }

    /// NEW-98, NEW-152: thousands of Pods, which have no file here, leave a connection for each of them.
    #[test]
    fn pods_are_served_by_thousands() {
        assert_eq!(of(20_000).connections(Elsewhere(5000)), 9968);
        assert_eq!(of(1 << 20).connections(Elsewhere(10_000)), 20_000);
        assert_eq!(of(1 << 20).connections(Elsewhere(4)), MOST_CONNECTIONS);
        assert_eq!(of(1 << 20).shortage(Elsewhere(5000)), None);
        assert!(of(1024).shortage(Elsewhere(5000)).is_some());
    }
}
