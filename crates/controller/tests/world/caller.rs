//! A client that has everything a job's executor has: raw bytes over the real mutual TLS to the real facade.

use std::time::Duration;

use buffa::Message;
use domain::capability::{Key, KeyRing};
use domain::id::{AssignmentId, Epoch, InstanceId};
use executor::identity::Identity;
use jiff::Timestamp;
use runner_proto::runner::v1::FetchTaskRequest;
use testkit::gitea::Method;
use testkit::world::{SOON, World};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

pub(crate) type Tls = tokio_rustls::client::TlsStream<TcpStream>;

/// What it takes to speak for an executor.
pub(crate) struct Caller {
    identity: Identity,
    facade: http::Uri,
    facade_id: String,
    ring: KeyRing,
    instance: InstanceId,
    pub(crate) deadline: Timestamp,
    pub(crate) credentials: String,
}

impl Caller {
    /// Speaks for the only executor of this task.
    pub(crate) async fn of(world: &World, task: i64) -> Self {
        let name = world.executors().into_iter().find(|name| name.starts_with(&format!("gitea-task-{task}-"))).unwrap();
        let launch = std::fs::read(world.state().join("executors").join(&name).join("launch.json")).unwrap();
        let launch: serde_json::Value = serde_json::from_slice(&launch).unwrap();
        let told = |variable: &str| launch["env"][variable].as_str().unwrap().to_owned();
        let (id, epoch) = (told("CI_ASSIGNMENT_ID"), name.rsplit_once("-e").unwrap().1);
        let instance = name.strip_prefix(&format!("{id}-")).unwrap().rsplit_once("-e").unwrap().0;
        let key = std::fs::read(world.state().join("keys/capability.key")).unwrap();
        let own = told("CI_SPIFFE_ID").parse().unwrap();
        let mut caller = Self {
            identity: executor::identity::exact(&told("SPIFFE_ENDPOINT_SOCKET"), &own, SOON).await.unwrap(),
            facade: told("CI_RUNNER_FACADE_URL").parse().unwrap(),
            facade_id: told("CI_RUNNER_FACADE_SPIFFE_ID"),
            ring: KeyRing::new(Key::new(key.trim_ascii()).unwrap(), None),
            instance: instance.parse().unwrap(),
            deadline: told("CI_RUNNER_DEADLINE").parse().unwrap(),
            credentials: String::new(),
        };
        caller.credentials = caller.credentials_of(task, epoch.parse().unwrap(), caller.deadline);
        caller
    }

    /// Genuine credentials of any executor, whoever may use them.
    pub(crate) fn credentials_of(&self, task: i64, epoch: Epoch, expires: Timestamp) -> String {
        let id: AssignmentId = format!("gitea-task-{task}").parse().unwrap();
        let capability = self.ring.issue(&self.instance, id, epoch, expires);
        format!("x-runner-uuid: {id}\r\nx-runner-token: {}\r\n", capability.expose())
    }

    pub(crate) async fn connect(&self) -> Tls {
        let connector = self.identity.connector(&self.facade_id.parse().unwrap()).unwrap();
        connector.dial(&self.facade).await.unwrap()
    }

    /// Says `line`, our credentials, `headers` and `body`, and returns everything that comes until the end of the
    /// connection.
    pub(crate) async fn exchange(&self, line: &str, headers: &str, body: &str) -> String {
        self.say(&format!("{line}\r\n{}{headers}\r\n{body}", self.credentials)).await
    }

    pub(crate) async fn say(&self, bytes: &str) -> String {
        String::from_utf8_lossy(&self.send(bytes.as_bytes()).await).into_owned()
    }

    /// Calls a procedure of RunnerService with our credentials.
    pub(crate) async fn call(&self, method: Method, request: &impl Message) -> Answer {
        self.call_with(&self.credentials, method, request).await
    }

    /// Calls a procedure of RunnerService with these headers, credentials among them.
    /// Asks for the task as a runner does: again as long as the claim is being written.
    pub(crate) async fn fetch(&self) -> Answer {
        let end = tokio::time::Instant::now() + SOON;
        loop {
            let answer = self.call(Method::FetchTask, &FetchTaskRequest::default()).await;
            if answer.status != 503 || tokio::time::Instant::now() > end {
                return answer;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    pub(crate) async fn call_with(&self, headers: &str, method: Method, request: &impl Message) -> Answer {
        Answer::of(&self.send(&rpc(headers, method, request)).await)
    }

    async fn send(&self, bytes: &[u8]) -> Vec<u8> {
        let mut stream = self.connect().await;
        // A server that has seen enough may close before the end.
        let _broken = stream.write_all(bytes).await;
        let mut seen = Vec::new();
        let read = async {
            let mut part = [0; 4096];
            while let Ok(length @ 1..) = stream.read(&mut part).await {
                seen.extend_from_slice(&part[..length]);
            }
        };
        let ended = timeout(SOON, read).await.is_ok();
        assert!(ended, "no end after {:?}", String::from_utf8_lossy(bytes));
        seen
    }
}

/// The bytes of a call of RunnerService.
pub(crate) fn rpc(headers: &str, method: Method, request: &impl Message) -> Vec<u8> {
    let body = request.encode_to_vec();
    let (path, length) = (method.path(), body.len());
    let head = format!(
        "POST /api/actions/{path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n{headers}Content-Type: application/proto\r\n\
         Content-Length: {length}\r\n\r\n"
    );
    [head.into_bytes(), body].concat()
}

/// The answer to a call of RunnerService.
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// Status line and headers, in lower case.
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    fn of(bytes: &[u8]) -> Self {
        let end = bytes.windows(4).position(|part| part == b"\r\n\r\n").map_or(bytes.len(), |at| at + 4);
        let (head, body) = bytes.split_at(end);
        let head = String::from_utf8_lossy(head).to_lowercase();
        let body = if head.contains("\r\ntransfer-encoding: chunked\r\n") { unchunked(body) } else { body.to_vec() };
        Self { status: status(&head), head, body }
    }

    /// The message of a call that was answered with one.
    #[track_caller]
    pub(crate) fn message<M: Message + Default>(&self) -> M {
        assert_eq!(self.status, 200, "{} {}", self.head, String::from_utf8_lossy(&self.body));
        M::decode_from_slice(&self.body).unwrap()
    }
}

fn unchunked(mut body: &[u8]) -> Vec<u8> {
    let mut whole = Vec::new();
    while let Some(end) = body.windows(2).position(|part| part == b"\r\n") {
        let size = usize::from_str_radix(std::str::from_utf8(&body[..end]).unwrap(), 16).unwrap();
        whole.extend_from_slice(&body[end + 2..end + 2 + size]);
        body = &body[end + 2 + size + 2..];
    }
    whole
}

/// The status of the first answer; 0 when the connection was closed without one.
pub(crate) fn status(answer: &str) -> u16 {
    answer.split(' ').nth(1).map_or(0, |status| status.parse().unwrap())
}
