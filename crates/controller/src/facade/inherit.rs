//! The last report of an executor that has gone: it is taken as if the runner said it once more, so that everything that
//! holds for a runner's end holds for this one (NEW-112, NEW-158).

use buffa::Message as _;
use connectrpc::ConnectError;
use domain::last_report::LastReport;
use domain::lifecycle::{Event, Phase};
use domain::metadata::ExecutorRecord;
use runner_proto::runner::v1 as proto;

use super::Facade;
use super::auth::Caller;
use super::service::own_task;
use crate::telemetry::events::assignment_processing_error;

/// Whether there is more to come of an executor that has gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Inherited {
    /// No: it left nothing, or it was said, or it is of no use.
    Settled,
    /// It could not be said yet.
    NotYet,
}

impl Facade {
    /// Whether what this executor left could still count: before the claim there is nothing to report, after an end
    /// nothing more to say.
    #[must_use]
    pub fn may_inherit(&self, record: &ExecutorRecord) -> bool {
        let view = self.board.view(record.id).filter(|view| view.life.epoch() == record.epoch);
        view.is_some_and(|view| matches!(view.life.phase(), Phase::Claimed | Phase::Running))
    }

    /// Says what this executor left. Idempotent, as a repetition by the runner is.
    pub async fn inherit(&self, record: &ExecutorRecord) -> Inherited {
        let name = domain::id::executor_name(record.id, &self.instance, record.epoch);
        let file = match self.backend.last_report(&name).await {
            Ok(Some(file)) => file,
            Ok(None) => return Inherited::Settled,
            Err(error) => {
                tracing::warn!(executor = %name, %error, "the next pass tries again");
                return Inherited::NotYet;
            }
        };
        let (caller, report) = match Caller::of_last_report(&self.ring.now(), record, &file) {
            Ok(opened) => opened,
            Err(error) => {
                tracing::warn!(executor = %name, %error, "passed over");
                return Inherited::Settled;
            }
        };
        match self.say_again(caller, report).await {
            Ok(()) => Inherited::Settled,
            Err(error) => {
                assignment_processing_error(&self.subject(caller), &format!("its last report waits: {error}"));
                Inherited::NotYet
            }
        }
    }

    async fn say_again(&self, caller: Caller, report: LastReport) -> Result<(), ConnectError> {
        if report.interrupted.is_some() {
            let actions = self.board.apply(caller.id(), Event::Interrupted { epoch: caller.epoch() });
            let written = self.write_interrupted(caller, &actions.unwrap_or_default()).await;
            written.map_err(|error| ConnectError::unavailable(error.to_string()))?;
        }
        if let Some(log) = report.log.and_then(|log| proto::UpdateLogRequest::decode_from_slice(&log).ok())
            && let Ok(index) = u64::try_from(log.index)
        {
            own_task(caller, log.task_id)?;
            self.take_rows(caller, index, log).await?;
        }
        if let Some(state) = report.state.and_then(|state| proto::UpdateTaskRequest::decode_from_slice(&state).ok()) {
            own_task(caller, state.state.id)?;
            self.take_state(caller, state).await?;
        }
        Ok(())
    }
}
