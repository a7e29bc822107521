//! Messages that are read whole, before anybody looks at them: one size limit per procedure, one deadline, and the
//! job's part of the memory (SRV-1, NEW-98; limits of requirements §1.4).

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{Extension, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;
use connectrpc::ErrorCode;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};

use super::auth::Caller;
use super::shares::{Memory, Shares};
use super::{LARGE_BODY, SMALL_BODY, answer};

/// From the head of a request to the end of its message: 16 MiB at 300 KB/s, and shorter than an executor waits.
const READ: Duration = Duration::from_secs(60);

/// The memory of a request's message, for whoever works on after the request has gone.
pub(super) type Held = Arc<Memory>;

/// What the layer needs.
pub(super) struct Intake {
    shares: Arc<Shares>,
    read: Duration,
}

impl Intake {
    pub(super) fn new(shares: Arc<Shares>) -> Self {
        Self { shares, read: READ }
    }
}

/// The layer: behind it a body is in memory, complete and accounted for.
pub(super) async fn take_in(
    State(intake): State<Arc<Intake>>,
    Extension(caller): Extension<Caller>,
    request: Request,
    next: Next,
) -> Response {
    let (mut head, body) = request.into_parts();
    if head.headers.get(header::CONTENT_ENCODING).is_some_and(|encoding| encoding != "identity") {
        // What a few bytes become when they are inflated is in nobody's account.
        return answer::error(ErrorCode::Unimplemented, "compressed messages are not taken");
    }
    let limit = limit_of(head.uri.path());
    let taken = async {
        let length = announced(&head.headers, limit)?;
        let memory = intake.shares.memory(caller.id(), length).await.ok_or(Refused::TooLarge)?;
        Ok((Arc::new(memory), read(body, limit).await?))
    };
    match tokio::time::timeout(intake.read, taken).await.unwrap_or(Err(Refused::TooSlow)) {
        Ok((held, bytes)) => {
            head.extensions.insert::<Held>(held);
            next.run(Request::from_parts(head, Body::from(bytes))).await
        }
        Err(refused) => refused.answer(limit),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Refused {
    TooLarge,
    TooSlow,
    CutOff,
}

impl Refused {
    fn answer(self, limit: usize) -> Response {
        let (status, text) = match self {
            Self::TooLarge => {
                (StatusCode::TOO_MANY_REQUESTS, format!("a message of this kind has at most {limit} bytes"))
            }
            Self::TooSlow => {
                (StatusCode::REQUEST_TIMEOUT, format!("the message did not arrive in {} s", READ.as_secs()))
            }
            Self::CutOff => (StatusCode::BAD_REQUEST, "the message was cut off".to_owned()),
        };
        let code = if self == Self::CutOff { ErrorCode::InvalidArgument } else { ErrorCode::ResourceExhausted };
        let mut response = answer::error(code, &text);
        *response.status_mut() = status;
        response
    }
}

fn limit_of(path: &str) -> usize {
    match path.rsplit('/').next() {
        Some("UpdateTask" | "UpdateLog") => LARGE_BODY,
        _ => SMALL_BODY,
    }
}

/// How much to reserve: what the sender says, or the most that it may send.
fn announced(headers: &HeaderMap, limit: usize) -> Result<usize, Refused> {
    let Some(length) = headers.get(header::CONTENT_LENGTH) else { return Ok(limit) };
    let length = length.to_str().ok().and_then(|text| text.parse::<usize>().ok());
    length.filter(|length| *length <= limit).ok_or(Refused::TooLarge)
}

async fn read(body: Body, limit: usize) -> Result<Bytes, Refused> {
    match Limited::new(body, limit).collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(Refused::TooLarge),
        Err(_) => Err(Refused::CutOff),
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use axum::Router;
    use axum::middleware::from_fn_with_state;
    use axum::routing::post;
    use futures::{StreamExt as _, stream};
    use tower::ServiceExt as _;

    use super::*;

    const LOG: &str = "/runner.v1.RunnerService/UpdateLog";

    struct Desk(Arc<Intake>);

    impl Desk {
        fn new(read: Duration) -> Self {
            Self(Arc::new(Intake { shares: Arc::new(Shares::new(1024)), read }))
        }

        /// What a message is answered; a good one with its length.
        async fn answer(&self, path: &str, headers: &[(&str, &str)], body: Body) -> (u16, Bytes) {
            let echo = |_held: Extension<Held>, body: Body| async {
                body.collect().await.unwrap().to_bytes().len().to_string()
            };
            let layer = from_fn_with_state(Arc::clone(&self.0), take_in);
            let router = Router::new().fallback(post(echo)).layer(layer);
            let mut request = Request::post(path).extension(Caller::of_test("gitea-task-1".parse().unwrap()));
            for (name, value) in headers {
                request = request.header(*name, *value);
            }
            let response = router.oneshot(request.body(body).unwrap()).await.unwrap();
            (response.status().as_u16(), response.into_body().collect().await.unwrap().to_bytes())
        }
    }

    fn parts(count: usize) -> Body {
        let part = Ok::<_, std::convert::Infallible>(Bytes::from(vec![0; 1 << 20]));
        Body::from_stream(stream::repeat(part).take(count))
    }

    /// SRV-1, T27: limits of requirements §1.4, told or found while reading; compressed messages are not read.
    #[tokio::test]
    async fn sizes() {
        let desk = Desk::new(READ);
        assert_eq!(desk.answer(LOG, &[], parts(16)).await, (200, LARGE_BODY.to_string().into()));
        assert_eq!(desk.answer(LOG, &[], parts(17)).await.0, 429);
        assert_eq!(desk.answer(LOG, &[("content-length", "16777217")], parts(1)).await.0, 429);
        assert_eq!(desk.answer("/executor/v1/report", &[], parts(1)).await.0, 429);
        assert_eq!(desk.answer(LOG, &[("content-encoding", "gzip")], parts(1)).await.0, 501);
        assert_eq!(desk.answer(LOG, &[("content-encoding", "identity")], parts(1)).await.0, 200);
    }

    /// SRV-1, T27, F104: a message that trickles has an end, and what it took of the memory comes back.
    #[tokio::test]
    async fn a_slow_message() {
        let desk = Desk::new(Duration::from_millis(100));
        let trickle = || {
            let drops = stream::unfold((), |()| async {
                tokio::time::sleep(Duration::from_millis(5)).await;
                Some((Ok::<_, std::convert::Infallible>(Bytes::from_static(b"x")), ()))
            });
            Body::from_stream(drops)
        };
        for _ in 0..4 {
            assert_eq!(desk.answer(LOG, &[], trickle()).await.0, 408);
        }
        assert_eq!(desk.answer(LOG, &[], parts(1)).await.0, 200);
    }
}
