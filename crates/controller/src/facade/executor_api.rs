//! Hello, goodbye, keep-alive, interruption: what executors tell about themselves (NEW-105, NEW-107, NEW-158).

use std::sync::Arc;

use axum::extract::{Extension, State};
use axum::response::{IntoResponse as _, Response};
use axum::{Json, http::StatusCode};
use connectrpc::ErrorCode;
use domain::executor_api::{NeverStarted, Reply, Report};
use domain::lifecycle::{Action, Event, Parting};
use domain::metadata::Mark;
use domain::reason::Reason;

use super::auth::Caller;
use super::{Facade, answer};
use crate::backend::BackendError;
use crate::telemetry::events::{AssignmentEvent, Detail, assignment_processing_error, assignment_transition};

/// Longest word and longest sentence that are believed of an executor, in characters.
const REASON_LIMIT: usize = 40;
const DETAIL_LIMIT: usize = 500;

/// `GET` of the readiness route: assignment, capability and identity were checked by the layer; loads nothing else.
/// An incarnation that was followed by another one is none that may start.
pub(super) async fn ready(State(facade): State<Arc<Facade>>, Extension(caller): Extension<Caller>) -> Response {
    let current = facade.board.epoch(caller.id()) == Some(caller.epoch());
    if caller.is_live() && current { StatusCode::OK.into_response() } else { answer::unauthenticated("assignment") }
}

/// `POST` of a report.
pub(super) async fn report(
    State(facade): State<Arc<Facade>>,
    Extension(caller): Extension<Caller>,
    Json(report): Json<Report>,
) -> Response {
    if !caller.is_live() {
        return Json(Reply { go_on: false }).into_response();
    }
    let event = event_of(caller, &report);
    if let Report::Interrupted { cause } = &report {
        let detail = Detail::because(Reason::Interrupted, cause);
        assignment_transition(AssignmentEvent::Interrupted, &facade.subject(caller), detail);
    }
    let Some(actions) = facade.board.apply(caller.id(), event) else {
        return Json(Reply { go_on: false }).into_response();
    };
    if let Err(error) = facade.write_interrupted(caller, &actions).await {
        assignment_processing_error(&facade.subject(caller), &format!("interruption mark: {error}"));
        return answer::error(ErrorCode::Unavailable, "the interruption could not be written; say it again");
    }
    Json(Reply { go_on: !actions.contains(&Action::Stop) }).into_response()
}

impl Facade {
    /// Before an announcement is answered it must stand where the next process finds it.
    pub(super) async fn write_interrupted(&self, caller: Caller, actions: &[Action]) -> Result<(), BackendError> {
        if actions.contains(&Action::WriteInterrupted) {
            self.backend.mark(&self.name_of(caller), Mark::Interrupted(self.board.now())).await?;
        }
        Ok(())
    }
}

fn event_of(caller: Caller, report: &Report) -> Event {
    let epoch = caller.epoch();
    match report {
        Report::Hello => Event::Hello { epoch },
        Report::RunnerStarted | Report::KeepAlive => Event::KeepAlive { epoch },
        Report::Interrupted { .. } => Event::Interrupted { epoch },
        Report::Goodbye { runner_exit, interrupted, delivered, never_started } => {
            let how = match (never_started, runner_exit) {
                (Some(why), _) => never_started_words(why),
                (None, _) if !delivered => "its final report could not be delivered".to_owned(),
                (None, Some(code)) => format!("the runner ended with exit code {code} and without a final report"),
                (None, None) => "the runner was ended by a signal, without a final report".to_owned(),
            };
            let parting = match (interrupted, delivered) {
                (true, _) => Parting::CutOff,
                (false, false) => Parting::Undelivered,
                (false, true) => Parting::Clean,
            };
            Event::Goodbye { epoch, how, parting }
        }
    }
}

/// One line of bounded length: it stands on the job's page.
fn never_started_words(why: &NeverStarted) -> String {
    let line = |text: &str, most| text.chars().filter(|c| !c.is_control()).take(most).collect::<String>();
    let (reason, detail) = (line(&why.reason, REASON_LIMIT), line(&why.detail, DETAIL_LIMIT));
    let colon = if detail.is_empty() { "" } else { ": " };
    format!("the runner was never started ({reason}){colon}{detail}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// NEW-107: what an executor tells of a runner that never was is the cause, as one short line; no signal is made up.
    #[test]
    fn causes_of_a_runner_that_never_started() {
        let why = |reason: &str, detail: &str| NeverStarted { reason: reason.into(), detail: detail.into() };
        let told = never_started_words(&why("runner_not_started", "GITEA_RUNNER_CONFIG /c: it is no mapping"));
        assert_eq!(told, "the runner was never started (runner_not_started): GITEA_RUNNER_CONFIG /c: it is no mapping");
        assert_eq!(never_started_words(&why("no_facade", "")), "the runner was never started (no_facade)");
        let long = never_started_words(&why("x", &"\n::error::y".repeat(1000)));
        assert!(long.len() < 600 && !long.contains('\n'), "{long}");
    }
}
