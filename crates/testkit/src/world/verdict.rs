//! The end of a world: what may be broken, what is left, and whether every rule held.

use std::time::Duration;

use super::jobs::call_in_words;
use super::{SOON, World};
use crate::gitea::JobId;
use crate::outcome;

/// What a test breaks on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Allowance {
    /// This job's task may stay without an end, or have one that nobody gives a reason for.
    Unended(JobId),
    /// This rule need not hold.
    Breaks(outcome::Rule),
}

/// What is broken of a task that stays without an end of ours.
const UNENDED: [outcome::Rule; 4] =
    [outcome::Rule::NoEnd, outcome::Rule::LogOpen, outcome::Rule::NoReason, outcome::Rule::LostWithoutKill];

/// For what the runners said before they ended.
const WORDS: Duration = SOON;

impl World {
    /// Something that a failure must show, for example the seed of what follows.
    pub fn remember(&mut self, text: impl Into<String>) {
        self.remembered.push(text.into());
    }

    /// This test breaks something on purpose.
    pub fn allow(&mut self, allowance: Allowance) {
        self.allowances.push(allowance);
    }

    /// I4: waits until no executor, no process and no message is left.
    ///
    /// # Panics
    /// Something is left.
    pub async fn nothing_left(&self) {
        self.nothing_left_within(SOON).await;
    }

    /// As [`World::nothing_left`] with a limit.
    ///
    /// # Panics
    /// Something is left.
    pub async fn nothing_left_within(&self, limit: Duration) {
        self.eventually("nothing is left (I4)", limit, |world| {
            let left = world.left();
            if left.is_empty() { Ok(()) } else { Err(format!("{left:#?}")) }
        })
        .await;
    }

    /// The end of a test: nothing is left, and every rule of [`outcome`] held.
    ///
    /// # Panics
    /// Otherwise.
    pub async fn finish(mut self) {
        self.nothing_left().await;
        self.finished = true;
        // A runner's last word may still be on its way to the desk.
        self.eventually("the rules hold", WORDS, |world| {
            let mut broken = world.broken();
            broken.extend(world.exposed(&world.secrets()));
            broken.extend(world.exposed.iter().cloned());
            if broken.is_empty() { Ok(()) } else { Err(format!("{broken:#?}")) }
        })
        .await;
    }

    /// What is broken and was not allowed.
    fn broken(&self) -> Vec<String> {
        let allowed = |broken: &outcome::Violation| {
            self.allowances.iter().any(|allowance| match allowance {
                Allowance::Breaks(rule) => *rule == broken.rule,
                Allowance::Unended(job) => {
                    UNENDED.contains(&broken.rule) && broken.task.and_then(|task| self.gitea.job_of(task)) == Some(*job)
                }
            })
        };
        let judgement = outcome::judge(&self.judged(Vec::new()));
        judgement.violations.iter().filter(|broken| !allowed(broken)).map(ToString::to_string).collect()
    }

    fn judged(&self, left: Vec<String>) -> outcome::Record {
        let (controllers, seen) = (self.controllers.clone(), self.watch.complaints());
        outcome::Record { controllers, left, seen, ..outcome::Record::of(&self.gitea, &self.desk) }
    }

    /// Everything that can be judged now; after that the world may end without [`World::finish`].
    pub fn record(&mut self) -> outcome::Record {
        self.finished = true;
        self.judged(self.left())
    }

    /// I4: what is there beside the controller, each in words: executors' folders, or their objects in a cluster, processes,
    /// mounts, and messages in the queue. The program makes no cgroups.
    #[must_use]
    pub fn left(&self) -> Vec<String> {
        let executors = self.executors.left().into_iter();
        let processes = self.processes().into_iter();
        let processes = processes.map(|process| format!("process {} {}", process.pid, process.arguments.join(" ")));
        let messages = self.queue.left(|task| format!("the message of task {task}"));
        let state = self.state().display().to_string();
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let mounts = mounts.lines().filter(|line| line.contains(&state)).map(|line| format!("mount {line}"));
        executors.chain(processes).chain(messages).chain(mounts).collect()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() {
            show(&self.remembered.join("\n"));
            let calls = self.gitea.calls();
            let calls: Vec<_> = calls.iter().filter(|call| call.task.is_some()).map(call_in_words).collect();
            show(&format!("the calls about tasks: {calls:#?}"));
            show(&format!("what the runners told: {:#?}", self.desk.notes()));
            self.executors.logs().iter().for_each(|log| show(tail(log, 3000)));
            show(&format!("the controller's log:\n{}", tail(&self.log(), 12_000)));
        } else {
            assert!(self.finished, "a test did not finish its world");
        }
    }
}

fn tail(text: &str, bytes: usize) -> &str {
    let from = text.len().saturating_sub(bytes);
    let from = (from..=text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or_default();
    &text[from..]
}

#[expect(clippy::print_stderr, reason = "only a failed test shows it")]
fn show(text: &str) {
    eprintln!("{text}");
}
