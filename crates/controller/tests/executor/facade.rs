//! A facade behind the real acceptor that hands out one task and says yes to everything.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use buffa::{Message as _, MessageField};
use bytes::Bytes;
use controller::identity::{OwnIdentity, ServedIdentity, own_identity, peer_id};
use domain::executor_api::{ASSIGNMENT_HEADER, CAPABILITY_HEADER, READY_PATH, REPORT_PATH, Reply, Report};
use domain::identity::SpiffeId;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use runner_proto::runner::v1::{
    DeclareResponse, FetchTaskResponse, Runner, Task, TaskState, UpdateLogRequest, UpdateLogResponse,
    UpdateTaskRequest, UpdateTaskResponse,
};
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};

pub(crate) const ASSIGNMENT: &str = "gitea-task-108";
pub(crate) const CAPABILITY: &str = "c2.00000000.1.1900000000.capability";
/// A secret of the task, which the job does not print.
pub(crate) const SECRET: &str = "correct-horse";

const PAYLOAD: &str = "
on: push
jobs:
  j:
    runs-on: local
    steps:
      - run: echo hello over TLS
";

/// What it heard.
#[derive(Debug, Clone, Default)]
pub(crate) struct Seen {
    /// Who made each call.
    pub(crate) peers: Vec<SpiffeId>,
    pub(crate) reports: Vec<Report>,
    /// The log.
    pub(crate) rows: Vec<String>,
    /// The task has a result.
    pub(crate) ended: bool,
}

pub(crate) struct Facade {
    address: SocketAddr,
    seen: Arc<Mutex<Seen>>,
}

impl Facade {
    /// Serves as `id`, whose socket lives as long.
    pub(crate) async fn start(socket: ServedIdentity, id: SpiffeId) -> Self {
        let own = own_identity(&socket.endpoint(), &id, Duration::from_secs(30)).await.unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::default();
        tokio::spawn(serve(listener, own, socket, Arc::clone(&seen)));
        Self { address, seen }
    }

    pub(crate) fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    pub(crate) fn seen(&self) -> Seen {
        self.seen.lock().unwrap().clone()
    }
}

async fn serve(listener: TcpListener, own: OwnIdentity, _socket: ServedIdentity, seen: Arc<Mutex<Seen>>) {
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        tokio::spawn(connection(stream, own.acceptor(), Arc::clone(&seen)));
    }
}

async fn connection(stream: TcpStream, acceptor: tokio_rustls::TlsAcceptor, seen: Arc<Mutex<Seen>>) {
    // Whoever is refused is no failure of the facade.
    let Ok(stream) = acceptor.accept(stream).await else { return };
    let peer = peer_id(&stream).unwrap();
    let service = service_fn(move |request| answer(peer.clone(), request, Arc::clone(&seen)));
    let _ended = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}

async fn answer(
    peer: SpiffeId,
    request: Request<Incoming>,
    seen: Arc<Mutex<Seen>>,
) -> Result<Response<Full<Bytes>>, hyper::Error> {
    let (head, body) = request.into_parts();
    let body = body.collect().await?.to_bytes();
    let mut seen = seen.lock().unwrap();
    seen.peers.push(peer);
    let has = |name: &str, value: &str| head.headers.get_all(name).iter().eq([value]);
    if !has(ASSIGNMENT_HEADER, ASSIGNMENT) || !has(CAPABILITY_HEADER, CAPABILITY) {
        return Ok(status(StatusCode::UNAUTHORIZED));
    }
    let path = head.uri.path();
    Ok(match path.strip_prefix("/api/actions/runner.v1.RunnerService/").unwrap_or(path) {
        READY_PATH => status(StatusCode::OK),
        REPORT_PATH => {
            seen.reports.push(serde_json::from_slice(&body).unwrap());
            Response::new(serde_json::to_vec(&Reply { go_on: true }).unwrap().into())
        }
        "Declare" => message(&DeclareResponse { runner: MessageField::some(Runner::default()), ..Default::default() }),
        "FetchTask" => message(&FetchTaskResponse { task: MessageField::some(task()), ..Default::default() }),
        "UpdateLog" => {
            let log = UpdateLogRequest::decode_from_slice(&body).unwrap();
            seen.rows.extend(log.rows.into_iter().map(|row| row.content));
            let ack_index = i64::try_from(seen.rows.len()).unwrap();
            message(&UpdateLogResponse { ack_index, ..Default::default() })
        }
        "UpdateTask" => {
            let TaskState { id, result, .. } =
                UpdateTaskRequest::decode_from_slice(&body).unwrap().state.take().unwrap();
            seen.ended |= result.to_i32() != 0;
            let state = TaskState { id, result, ..Default::default() };
            message(&UpdateTaskResponse { state: MessageField::some(state), ..Default::default() })
        }
        _ => status(StatusCode::NOT_FOUND),
    })
}

fn task() -> Task {
    let context = json!({
        "event": {},
        "event_name": "push",
        "gitea_runtime_token": SECRET,
        "job": "j",
        "repository": "lab/once",
        "run_id": "57",
        "server_url": "http://gitea.invalid:3000/",
        "token": SECRET,
    });
    let mut task = Task {
        id: 108,
        workflow_payload: Some(PAYLOAD.as_bytes().to_vec()),
        context: MessageField::some(serde_json::from_value(context).unwrap()),
        ..Default::default()
    };
    task.secrets.insert("PASSWORD".into(), SECRET.into());
    task
}

fn message(message: &impl buffa::Message) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(message.encode_to_vec().into()));
    response.headers_mut().insert("content-type", "application/proto".parse().unwrap());
    response
}

fn status(status: StatusCode) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::default());
    *response.status_mut() = status;
    response
}
