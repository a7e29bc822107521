//! RunnerService as the runner sees it: Declare is repeated until it means something (NEW-164), final calls go through
//! the spool (NEW-112), everything else is passed on with our credentials and our deadlines (NEW-165).

mod last;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::Bytes;
use domain::executor_api::{ASSIGNMENT_HEADER, CAPABILITY_HEADER};
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;

use super::paths::Procedure;
use super::reply::{Body, connect_error, message, passed, unavailable};
use super::{Notice, Shared};
use crate::answer::Outcome;
use crate::backoff::backoff;
use crate::facade::Answer;
use crate::spool::{Handling, Reply};
use last::Last;

/// Bodies of UpdateLog and UpdateTask; the facade has the same limit.
const UPDATE_LIMIT: usize = 16 << 20;

/// Bodies of the other calls.
const SMALL_LIMIT: usize = 64 << 10;

/// One try of a Declare: the facade answers it out of its memory.
const DECLARE_TRY: Duration = Duration::from_secs(10);

/// The runner gives up after 5 s and asks again; the facade answers in 3 s.
const FETCH: Duration = Duration::from_secs(10);

/// The facade gives Gitea 30 s for UpdateTask and 60 s for UpdateLog.
const UPDATE: Duration = Duration::from_secs(75);

/// A final call: the spool comes back to it, and the runner must hear something within its 2 min.
const FINAL: Duration = Duration::from_secs(30);

/// Answers one call of the runner, or of whoever read its registration.
pub(super) async fn answer(shared: Arc<Shared>, procedure: Procedure, request: Request<Incoming>) -> Response<Body> {
    if !authorised(&shared, request.headers()) {
        return connect_error(StatusCode::UNAUTHORIZED, "unauthenticated", "not the runner of this executor");
    }
    let body = match body_of(procedure, request).await {
        Ok(body) => body,
        Err(refusal) => return *refusal,
    };
    match procedure {
        Procedure::Register => {
            connect_error(StatusCode::FORBIDDEN, "permission_denied", "an executor's runner is never registered")
        }
        Procedure::Declare => declare(&shared, body).await,
        Procedure::FetchTask => fetch(&shared, body).await,
        Procedure::UpdateTask | Procedure::UpdateLog => {
            shared.notice_once(&shared.job_seen, Notice::JobSeen);
            // A begun call is finished though the runner gives up: the facade must not see it twice at a time.
            let call = update(Arc::clone(&shared), procedure, body);
            shared.finish(call).await.unwrap_or_else(|| unavailable("the executor is ending"))
        }
    }
}

fn authorised(shared: &Shared, headers: &HeaderMap) -> bool {
    let only = |name| {
        let mut values = headers.get_all(name).into_iter();
        values.next().filter(|_| values.next().is_none())
    };
    only(ASSIGNMENT_HEADER).is_some_and(|uuid| uuid.as_bytes() == shared.assignment.as_bytes())
        && only(CAPABILITY_HEADER).is_some_and(|token| shared.token.is(token.as_bytes()))
}

/// The message. Only what the official runner sends is understood: protobuf, not compressed; a final call in a form
/// that is not read here would pass by the spool.
async fn body_of(procedure: Procedure, request: Request<Incoming>) -> Result<Bytes, Box<Response<Body>>> {
    let header = |name| request.headers().get(name).and_then(|value| value.to_str().ok());
    if header(CONTENT_TYPE) != Some("application/proto") {
        let refusal = connect_error(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "invalid_argument",
            "the executor's proxy understands application/proto only",
        );
        return Err(Box::new(refusal));
    }
    if !matches!(header(CONTENT_ENCODING), None | Some("identity")) {
        let text = "the executor's proxy understands no compressed requests";
        return Err(Box::new(connect_error(StatusCode::NOT_IMPLEMENTED, "unimplemented", text)));
    }
    let limit = match procedure {
        Procedure::UpdateTask | Procedure::UpdateLog => UPDATE_LIMIT,
        Procedure::Register | Procedure::Declare | Procedure::FetchTask => SMALL_LIMIT,
    };
    match Limited::new(request.into_body(), limit).collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(_) => {
            let text = format!("the message was cut off or is larger than {limit} bytes");
            Err(Box::new(connect_error(StatusCode::TOO_MANY_REQUESTS, "resource_exhausted", &text)))
        }
    }
}

/// Repeats until success or `unauthenticated`: anything else would end the runner at once (NEW-164).
async fn declare(shared: &Shared, body: Bytes) -> Response<Body> {
    let end = Instant::now() + shared.limits.declare;
    let mut pauses = backoff(Duration::from_millis(250), Duration::from_secs(2));
    loop {
        let answer = shared.facade.rpc(Procedure::Declare, body.clone(), DECLARE_TRY).await;
        match answer.outcome() {
            Outcome::Accepted => return passed(answer),
            Outcome::Unauthenticated => {
                shared.notice(Notice::SentHome);
                return passed(answer);
            }
            Outcome::Unavailable | Outcome::Away | Outcome::Refused => {}
        }
        let pause = pauses.pause();
        if Instant::now() + pause >= end {
            tracing::error!(problem = %answer.problem(), "Declare was not accepted in time");
            shared.declare_failed.store(true, Ordering::Relaxed);
            return passed(answer);
        }
        tokio::time::sleep(pause).await;
    }
}

async fn fetch(shared: &Shared, body: Bytes) -> Response<Body> {
    shared.notice_once(&shared.polled, Notice::Polling);
    let answer = shared.facade.rpc(Procedure::FetchTask, body, FETCH).await;
    match answer.outcome() {
        Outcome::Accepted => shared.notice(Notice::Welcome),
        Outcome::Unauthenticated => shared.notice(Notice::SentHome),
        Outcome::Unavailable | Outcome::Away | Outcome::Refused => {}
    }
    passed(answer)
}

async fn update(shared: Arc<Shared>, procedure: Procedure, body: Bytes) -> Response<Body> {
    match Last::of(procedure, &body) {
        Some(last) => last_update(&shared, procedure, body, &last).await,
        None => running_update(&shared, procedure, body).await,
    }
}

/// A call in mid-job: repeated for a short while. A failure after that is the runner's: it keeps its rows and its
/// state and sends them again with the next call.
async fn running_update(shared: &Shared, procedure: Procedure, body: Bytes) -> Response<Body> {
    let end = Instant::now() + shared.limits.hold;
    let mut pauses = backoff(Duration::from_millis(200), Duration::from_secs(2));
    loop {
        let answer = in_lane(shared, procedure, body.clone(), UPDATE).await;
        let worth_another = matches!(answer.outcome(), Outcome::Unavailable | Outcome::Away);
        let pause = pauses.pause();
        if !worth_another || Instant::now() + pause >= end {
            return passed(answer);
        }
        tokio::time::sleep(pause).await;
    }
}

async fn in_lane(shared: &Shared, procedure: Procedure, body: Bytes, limit: Duration) -> Answer {
    let _lane = shared.outbox.lane.lock().await;
    shared.facade.rpc(procedure, body, limit).await
}

/// The end of the log or of the task: the runner hears success, and the spool owes what did not get through.
async fn last_update(shared: &Shared, procedure: Procedure, body: Bytes, last: &Last) -> Response<Body> {
    let offer = || shared.outbox.with(|spool| spool.offer(last.item(), body.clone()));
    if offer() == Handling::Keep {
        return kept(shared, last);
    }
    let _lane = shared.outbox.lane.lock().await;
    // An interruption may have come while the lane was taken.
    if offer() == Handling::Keep {
        return kept(shared, last);
    }
    let answer = shared.facade.rpc(procedure, body.clone(), FINAL).await;
    let outcome = answer.outcome();
    match shared.outbox.with(|spool| spool.forwarded(last.item(), outcome, Instant::now())) {
        Reply::Theirs => passed(answer),
        Reply::Ours => {
            tracing::warn!(item = ?last.item(), problem = %answer.problem(), "final report is kept");
            kept(shared, last)
        }
    }
}

/// The acknowledgement is a promise, so it comes after the file.
fn kept(shared: &Shared, last: &Last) -> Response<Body> {
    shared.outbox.store();
    message(last.acknowledgement())
}
