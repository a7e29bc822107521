//! Tells what happens to lives: the one place where a step becomes events (requirements §3) and metrics (NEW-130). What is
//! no step of a life (a fetch, a refusal, an executor adopted, set apart or left over) is told by the room that does it.

use std::time::Duration;

use domain::id::{InstanceId, executor_name};
use domain::lifecycle::{Happening, Life, Outcome, Phase, Whose};
use domain::reason::Reason;
use jiff::SignedDuration;

use crate::ops::metrics::{Cause, Metrics};
use crate::telemetry::events::{
    AssignmentEvent as A, Detail, ExecutorEvent as E, Phase as Stage, Subject, assignment_processing_error,
    assignment_transition, executor_transition,
};
use crate::wire::word;

/// Writes events and counts.
pub struct Chronicle {
    metrics: Metrics,
    instance: InstanceId,
}

impl Chronicle {
    /// For the executors of this instance.
    #[must_use]
    pub fn new(metrics: Metrics, instance: InstanceId) -> Self {
        Self { metrics, instance }
    }

    /// Tells one thing that happened to `life`, which has taken the step already.
    pub fn tell(&self, of: &Subject, life: &Life, happening: &Happening) {
        self.count(happening);
        let plain = Detail::default();
        let assignment = |event| assignment_transition(event, of, plain);
        let name = executor_name(of.assignment, &self.instance, life.epoch());
        let executor = |event, stage, detail| executor_transition(event, of, &name, stage, detail);
        match happening {
            Happening::Persisted(_) => assignment(A::Dispatched),
            Happening::WaitsForSlot => {
                assignment_transition(A::CapacityWait, of, Detail { cause: Some(life.waiting_for()), ..plain });
            }
            Happening::LaunchBegun(_) => {
                assignment(A::Received);
                assignment(A::CapacityAcquired);
                executor(E::Absent, None, plain);
            }
            Happening::Relaunched(reason) => executor(E::Relaunched, None, Detail { reason: *reason, ..plain }),
            Happening::LaunchFailed(pause, cause) => {
                assignment_transition(A::BackendRetry, of, Detail::retry(unsigned(*pause), cause));
            }
            Happening::Pending => {
                executor(E::Created, Some(Stage::Pending), plain);
                assignment(A::BackendPending);
            }
            Happening::HeldUp(why) => {
                assignment_transition(A::BackendPending, of, Detail { cause: Some(why), ..plain });
            }
            Happening::Offered { .. } => {
                executor(E::Created, Some(Stage::Running), plain);
                executor(E::IdentityBound, Some(Stage::Running), plain);
                assignment(A::BackendReady);
                assignment(A::Offered);
            }
            Happening::Identified(_) => {}
            Happening::Claimed(_) => assignment(A::RunnerClaimed),
            Happening::Confirmed(_) => assignment(A::Confirmed),
            Happening::GaveUp(ending) => {
                assignment_transition(A::GaveUp, of, Detail::because(ending.reason, &ending.cause));
            }
            Happening::Unreported(ending) => assignment_processing_error(
                of,
                &format!(
                    "report: Gitea took no end of this task for longer than it lets any task run, and is no longer asked; \
                     {}: {}; its job ends by Gitea's own sweep",
                    ending.reason, ending.cause
                ),
            ),
            Happening::Ended(outcome, whose) => tell_end(of, *outcome, whose),
            Happening::ExecutorLost(reason, how) => {
                executor(E::Lost, Some(Stage::Failed), Detail::because(*reason, how));
                if *reason == Reason::ClaimTimeout {
                    assignment(A::ClaimTimeout);
                }
            }
            Happening::ExecutorFinished(phase) => executor(E::Finished, Some(stage(phase)), plain),
            Happening::ExecutorFound => executor(E::Found, None, plain),
            Happening::ExecutorGone(why, _) => {
                executor(E::IdentityReleased, None, plain);
                executor(E::Deleted, None, Detail { cause: Some(why), ..plain });
            }
            Happening::Marked => assignment(A::TerminalMarked),
            Happening::Acknowledged => assignment(A::Acked),
        }
    }

    fn count(&self, happening: &Happening) {
        let phase = |name, took: &SignedDuration| self.metrics.start_phase(name, unsigned(*took));
        match happening {
            Happening::Persisted(took) => phase("publish", took),
            Happening::LaunchBegun(took) => phase("queue", took),
            Happening::Relaunched(Some(reason)) => self.metrics.relaunched(*reason),
            Happening::Offered { took, waited } => {
                phase("create", took);
                self.metrics.waited(unsigned(*waited));
            }
            Happening::Identified(took) => {
                phase("identity", took);
                self.metrics.identity_issued(unsigned(*took));
            }
            Happening::Claimed(took) => phase("claim", took),
            Happening::Confirmed(took) => phase("first_update", took),
            Happening::Ended(outcome, whose) => self.metrics.task_ended(word(*outcome), cause(whose)),
            Happening::ExecutorLost(reason, _) => self.metrics.executor_failed(*reason),
            Happening::ExecutorGone(why, cancelled) => {
                self.metrics.reaped(why);
                if let Some(latency) = cancelled {
                    self.metrics.cancelled_after(unsigned(*latency));
                }
            }
            _ => {}
        }
    }
}

fn tell_end(of: &Subject, outcome: Outcome, whose: &Whose) {
    let detail = Detail { cause: Some(word(outcome)), ..Detail::default() };
    match whose {
        Whose::Ours(ending) => {
            assignment_transition(A::Reported, of, Detail::because(ending.reason, &ending.cause));
        }
        Whose::Gitea if outcome == Outcome::Cancelled => assignment_transition(A::Cancelled, of, Detail::default()),
        Whose::Gitea | Whose::Runner => {}
    }
    assignment_transition(A::TerminalAccepted, of, detail);
}

fn cause(whose: &Whose) -> Cause {
    match whose {
        Whose::Runner => Cause::Job,
        Whose::Ours(ending) => Cause::Ours(ending.reason),
        Whose::Gitea => Cause::Gitea,
    }
}

/// Its end was expected when its task had ended.
fn stage(phase: &Phase) -> Stage {
    match phase {
        Phase::Final(_) | Phase::Draining(_) | Phase::Gone => Stage::Succeeded,
        _ => Stage::Failed,
    }
}

fn unsigned(span: SignedDuration) -> Duration {
    span.try_into().unwrap_or_default()
}
