//! What `/proc` says of a process.

use std::ops::Sub;
use std::time::Duration;

use anyhow::Context as _;

/// Resident memory in KiB.
pub(super) struct Memory {
    pub(super) all: u64,
    /// Of it anonymous: what no file backs and nobody shares.
    pub(super) own: u64,
}

impl Memory {
    pub(super) fn of(pid: u32) -> anyhow::Result<Self> {
        let path = format!("/proc/{pid}/status");
        let status = std::fs::read_to_string(&path).with_context(|| format!("read {path}"))?;
        let field = |name: &str| {
            let line = status.lines().find(|line| line.starts_with(name));
            let kib = line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok());
            kib.with_context(|| format!("{path} has no {name}"))
        };
        Ok(Self { all: field("VmRSS:")?, own: field("RssAnon:")? })
    }
}

/// CPU time used so far.
#[derive(Clone, Copy, Default)]
pub(super) struct Cpu {
    /// By the process itself.
    pub(super) own: Duration,
    /// By its descendants that have ended and were waited for.
    pub(super) ended: Duration,
}

impl Cpu {
    /// Fields 14 to 17 of `/proc/PID/stat`, in ticks of 10 ms on every Linux that we run on.
    pub(super) fn of(pid: u32) -> anyhow::Result<Self> {
        const TICK: Duration = Duration::from_millis(10);
        let path = format!("/proc/{pid}/stat");
        let stat = std::fs::read_to_string(&path).with_context(|| format!("read {path}"))?;
        // The second field is a name in parentheses that may hold anything.
        let (_, fields) = stat.rsplit_once(')').with_context(|| format!("{path}: {stat:?}"))?;
        let ticks: Vec<u32> = fields.split_whitespace().skip(11).take(4).map(str::parse).collect::<Result<_, _>>()?;
        let [user, system, ended_user, ended_system] = ticks[..] else { anyhow::bail!("{path}: {stat:?}") };
        Ok(Self { own: TICK * (user + system), ended: TICK * (ended_user + ended_system) })
    }

    pub(super) fn whole(self) -> Duration {
        self.own + self.ended
    }
}

impl Sub for Cpu {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self { own: self.own.saturating_sub(before.own), ended: self.ended.saturating_sub(before.ended) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_memory_and_used_time() -> anyhow::Result<()> {
        let started = std::time::Instant::now();
        let before = Cpu::of(std::process::id())?;
        while (Cpu::of(std::process::id())? - before).whole().is_zero() {
            assert!(started.elapsed() < Duration::from_secs(60));
        }
        let Memory { all, own } = Memory::of(std::process::id())?;
        assert!(own > 0 && all >= own);
        Ok(())
    }
}
