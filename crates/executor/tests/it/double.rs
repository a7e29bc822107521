//! A facade on plain loopback HTTP that keeps the contract and remembers everything it heard.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use buffa::{Message as _, MessageField};
use bytes::Bytes;
use domain::executor_api::{ASSIGNMENT_HEADER, CAPABILITY_HEADER, READY_PATH, REPORT_PATH, Reply, Report};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{HeaderMap, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use runner_proto::runner::v1::{
    DeclareRequest, DeclareResponse, FetchTaskResponse, Runner, Task, TaskState, UpdateLogRequest, UpdateLogResponse,
    UpdateTaskRequest, UpdateTaskResponse,
};
use tokio::net::TcpListener;
use tokio::sync::{Notify, watch};

pub(crate) const ASSIGNMENT: &str = "gitea-task-108";
pub(crate) const CAPABILITY: &str = "c2.00000000.1.1900000000.capability";
const RPC: &str = "/api/actions/runner.v1.RunnerService/";

/// One call, in the order of arrival.
#[derive(Debug, Clone)]
pub(crate) enum Seen {
    Ready,
    Report(Report),
    Declare(DeclareRequest),
    Fetch,
    Log(UpdateLogRequest),
    State(UpdateTaskRequest),
    Stream { path: String, headers: HeaderMap },
}

impl Seen {
    pub(crate) fn is_last_log(&self) -> bool {
        matches!(self, Self::Log(log) if log.no_more)
    }

    pub(crate) fn is_last_state(&self) -> bool {
        matches!(self, Self::State(update) if update.state.result.to_i32() != 0)
    }

    pub(crate) fn is_announcement(&self) -> bool {
        matches!(self, Self::Report(Report::Interrupted { .. }))
    }

    pub(crate) fn is_goodbye(&self) -> bool {
        matches!(self, Self::Report(Report::Goodbye { .. }))
    }
}

/// What the facade does with a call.
pub(crate) enum Act {
    Serve,
    Refuse(StatusCode, &'static str),
    /// Closes the connection without a word.
    Drop,
    /// Serves once the permit is there.
    Wait(Arc<Notify>),
    /// Answers a report with `go_on` false.
    GoHome,
}

pub(crate) const UNAVAILABLE: Act = Act::Refuse(StatusCode::SERVICE_UNAVAILABLE, "unavailable");
pub(crate) const UNAUTHENTICATED: Act = Act::Refuse(StatusCode::UNAUTHORIZED, "unauthenticated");

/// Decides over a call, knowing all calls so far with this one as the last.
type Judge = dyn Fn(&[Seen]) -> Act + Send + Sync;

/// Answers what is streamed, by its path.
type Streams = dyn Fn(&str) -> Response<Full<Bytes>> + Send + Sync;

pub(crate) struct Facade {
    pub(crate) address: std::net::SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    seen: Mutex<Vec<Seen>>,
    rows: Mutex<Vec<String>>,
    changed: watch::Sender<()>,
    task: Task,
    judge: Box<Judge>,
    streams: Box<Streams>,
}

impl Facade {
    pub(crate) async fn start(task: Task, judge: impl Fn(&[Seen]) -> Act + Send + Sync + 'static) -> Self {
        Self::with_streams(task, judge, |_| Response::new(Full::default())).await
    }

    pub(crate) async fn with_streams(
        task: Task,
        judge: impl Fn(&[Seen]) -> Act + Send + Sync + 'static,
        streams: impl Fn(&str) -> Response<Full<Bytes>> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            seen: Mutex::default(),
            rows: Mutex::default(),
            changed: watch::Sender::new(()),
            task,
            judge: Box::new(judge),
            streams: Box::new(streams),
        });
        tokio::spawn(serve(listener, Arc::clone(&shared)));
        Self { address, shared }
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.shared.seen.lock().unwrap().clone()
    }

    /// Waits until some call is like this.
    pub(crate) async fn until(&self, like: impl Fn(&Seen) -> bool) {
        let mut changed = self.shared.changed.subscribe();
        let wait = async {
            while !self.seen().iter().any(&like) {
                changed.changed().await.unwrap();
            }
        };
        if tokio::time::timeout(Duration::from_secs(60), wait).await.is_err() {
            panic!("the awaited call did not come: {:#?}", self.seen());
        }
    }

    /// The log as the facade stored it: rows in order, each once. What it refused or dropped is not in it.
    pub(crate) fn log(&self) -> Vec<String> {
        self.shared.rows.lock().unwrap().clone()
    }

    pub(crate) fn reports(&self) -> Vec<Report> {
        let report = |seen| if let Seen::Report(report) = seen { Some(report) } else { None };
        self.seen().into_iter().filter_map(report).collect()
    }

    pub(crate) fn goodbye(&self) -> Report {
        self.reports().pop().unwrap()
    }
}

async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let shared = Arc::clone(&shared);
        tokio::spawn(async move {
            let service = service_fn(move |request| answer(Arc::clone(&shared), request));
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

async fn answer(shared: Arc<Shared>, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, &'static str> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await.map_err(|_| "cut off")?.to_bytes();
    let has = |name: &str, value: &str| parts.headers.get_all(name).iter().eq([value]);
    if !has(ASSIGNMENT_HEADER, ASSIGNMENT) || !has(CAPABILITY_HEADER, CAPABILITY) {
        return Ok(error(StatusCode::UNAUTHORIZED, "unauthenticated"));
    }
    // NEW-165: the runner's deadline never comes through.
    assert!(!parts.headers.contains_key("connect-timeout-ms"));
    let path = parts.uri.path();
    let seen = match path {
        READY_PATH => Seen::Ready,
        REPORT_PATH => Seen::Report(serde_json::from_slice(&body).unwrap()),
        _ => match path.strip_prefix(RPC) {
            Some("Declare") => Seen::Declare(DeclareRequest::decode_from_slice(&body).unwrap()),
            Some("FetchTask") => Seen::Fetch,
            Some("UpdateLog") => Seen::Log(UpdateLogRequest::decode_from_slice(&body).unwrap()),
            Some("UpdateTask") => Seen::State(UpdateTaskRequest::decode_from_slice(&body).unwrap()),
            _ => Seen::Stream { path: path.to_owned(), headers: parts.headers.clone() },
        },
    };
    let act = {
        let mut all = shared.seen.lock().unwrap();
        all.push(seen.clone());
        (shared.judge)(&all)
    };
    shared.changed.send_replace(());
    match act {
        Act::Serve => Ok(served(&shared, seen)),
        Act::Refuse(status, code) => Ok(error(status, code)),
        Act::Drop => Err("dropped"),
        Act::GoHome => Ok(json(&Reply { go_on: false })),
        Act::Wait(permit) => {
            permit.notified().await;
            Ok(served(&shared, seen))
        }
    }
}

fn served(shared: &Shared, seen: Seen) -> Response<Full<Bytes>> {
    match seen {
        Seen::Ready => Response::new(Full::default()),
        Seen::Report(_) => json(&Reply { go_on: true }),
        Seen::Declare(request) => {
            let runner = Runner {
                id: 1,
                uuid: ASSIGNMENT.into(),
                name: ASSIGNMENT.into(),
                labels: request.labels,
                ..Default::default()
            };
            let mut response = message(&DeclareResponse { runner: MessageField::some(runner), ..Default::default() });
            response.headers_mut().insert("x-gitea-actions-capabilities", "cancelling".parse().unwrap());
            response
        }
        Seen::Fetch => message(&FetchTaskResponse {
            task: MessageField::some(shared.task.clone()),
            tasks_version: 1,
            ..Default::default()
        }),
        Seen::Log(log) => {
            let mut rows = shared.rows.lock().unwrap();
            let index = usize::try_from(log.index).unwrap();
            // As Gitea: behind a hole nothing is taken, and the answer says where the log ends.
            if let Some(known) = rows.len().checked_sub(index) {
                rows.extend(log.rows.into_iter().skip(known).map(|row| row.content));
            }
            let ack_index = i64::try_from(rows.len()).unwrap();
            message(&UpdateLogResponse { ack_index, ..Default::default() })
        }
        Seen::State(update) => {
            let state = TaskState { id: update.state.id, result: update.state.result, ..Default::default() };
            message(&UpdateTaskResponse { state: MessageField::some(state), ..Default::default() })
        }
        Seen::Stream { path, .. } => (shared.streams)(&path),
    }
}

fn message(message: &impl buffa::Message) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(message.encode_to_vec().into()));
    response.headers_mut().insert("content-type", "application/proto".parse().unwrap());
    response
}

fn json(reply: &Reply) -> Response<Full<Bytes>> {
    Response::new(Full::new(serde_json::to_vec(reply).unwrap().into()))
}

fn error(status: StatusCode, code: &str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(format!(r#"{{"code":"{code}","message":"as told"}}"#).into()));
    *response.status_mut() = status;
    response.headers_mut().insert("content-type", "application/json".parse().unwrap());
    response
}
