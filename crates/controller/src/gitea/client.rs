//! The Connect client towards Gitea. Every call has a deadline of ours, and Gitea is told a slightly shorter one so that
//! it gives up first (NEW-11, NEW-165). Nothing here retries: the loops that call do (invariant 8).
//!
//! A call can fail, hang until its deadline, or be carried out without an answer. FetchTask of the last kind has handed
//! out a task we never see; Gitea has no redelivery (SCH-15), so the call is never cut short by us. The others are
//! repeated by their callers: both are idempotent (Gitea contract §7, §9).

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{PoisonError, RwLock};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use connectrpc::client::{CallOptions, ClientBody, ClientConfig, ServiceTransport, UnaryResponse};
use connectrpc::{ConnectError, ErrorCode};
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use jiff::{SignedDuration, Timestamp};
use runner_proto::runner::v1 as proto;
use zeroize::{Zeroize as _, Zeroizing};

use super::{Connector, GiteaError};
use crate::clock;
use crate::lease::{Act, Tenure};

type Rpc = proto::RunnerServiceClient<ServiceTransport<HttpClient<Connector, ClientBody>>>;

/// `User-Agent` towards Gitea and the version we declare (requirements §1.1).
pub const AGENT: &str = concat!("gitea-dynamic-runner/", env!("CARGO_PKG_VERSION"));

/// The capability of a runner that says itself how a cancelled job ended (Gitea contract §8).
const CANCELLING: &str = "cancelling";

/// An answer larger than this is refused: needs may carry 1 MiB outputs each (Gitea contract §11.1).
const LARGEST_ANSWER: usize = 64 << 20;

/// UUID and token of the one registration.
pub struct Credential {
    /// Public name of the registration.
    pub uuid: String,
    /// The secret half.
    pub token: Zeroizing<String>,
}

/// What FetchTask brought.
pub struct Fetched {
    /// The task's very bytes (ENV-5), if there was one.
    pub task: Option<Zeroizing<Vec<u8>>>,
    /// The version to send after an empty answer.
    pub tasks_version: i64,
}

/// What Gitea answered to Declare.
pub struct Declared {
    /// What it says it can do.
    pub capabilities: Option<String>,
    /// How far its clock is ahead of ours; none without a date in the answer.
    pub skew: Option<SignedDuration>,
}

/// The client of the one registration.
pub struct Gitea {
    rpc: Rpc,
    credential: RwLock<Credential>,
    on_cancel: OnCancel,
    waits_for_cancelled: AtomicBool,
    tenure: Option<Tenure>,
}

/// What every executor's runner does with a job that a user cancels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnCancel {
    /// It stops: Gitea has ended the task already.
    Stops,
    /// It runs what runs after a cancel and reports the end, for which Gitea may wait (runners from 2.0.0 on).
    Reports,
}

impl OnCancel {
    /// Of the official runner with this major version (Gitea contract §8).
    #[must_use]
    pub fn of_major(version: u64) -> Self {
        if version >= 2 { Self::Reports } else { Self::Stops }
    }
}

impl Gitea {
    /// A client for the Gitea at `base` (without trailing `/`), for runners that do this when their job is cancelled.
    ///
    /// # Errors
    ///
    /// When `base` is no absolute URL.
    pub fn new(base: &str, credential: Credential, on_cancel: OnCancel) -> Result<Self, http::uri::InvalidUri> {
        // Gitea may know it from a former process: until it answers, an end too many is better than none.
        let waits_for_cancelled = AtomicBool::new(on_cancel == OnCancel::Reports);
        let credential = RwLock::new(credential);
        Ok(Self { rpc: rpc(base)?, credential, on_cancel, waits_for_cancelled, tenure: None })
    }

    /// The same, as far as this leadership permits: nothing is asked for while it is in doubt, and afterwards no call is begun.
    /// A process that was frozen says nothing in the name of a registration that another one leads by now, whatever of it
    /// wakes first (SCH-11, NEW-60).
    #[must_use]
    pub fn led_by(self, tenure: Tenure) -> Self {
        Self { tenure: Some(tenure), ..self }
    }

    /// Declares labels and version; returns what Gitea says it can do (`X-Gitea-Actions-Capabilities`, NEW-25), and how
    /// far its clock is ahead of ours, as far as its `Date` tells (NEW-151).
    ///
    /// # Errors
    ///
    /// See [`GiteaError`].
    pub async fn declare(&self, labels: Vec<String>) -> Result<Declared, GiteaError> {
        let asked = Timestamp::now();
        let ours = if self.on_cancel == OnCancel::Reports { vec![CANCELLING.to_owned()] } else { vec![] };
        let request =
            proto::DeclareRequest { version: AGENT.to_owned(), labels, capabilities: ours, ..Default::default() };
        let answer = self.call("Declare", 30, |options| self.rpc.declare_with_options(request, options)).await?;
        let header = |name| answer.headers().get(name).and_then(|value| value.to_str().ok());
        let skew = header("date").and_then(|date| clock::skew(date, asked, Timestamp::now()));
        let capabilities = header("x-gitea-actions-capabilities").map(str::to_owned);
        // Whoever says what it can do is new enough to wait for the end of a cancelled job (Gitea 1.27).
        let waits = self.on_cancel == OnCancel::Reports && capabilities.is_some();
        self.waits_for_cancelled.store(waits, Ordering::Relaxed);
        Ok(Declared { capabilities, skew })
    }

    /// CANCELLED in the answer to a state that was no end may mean that Gitea waits for the end (NEW-163).
    #[must_use]
    pub fn waits_for_cancelled(&self) -> bool {
        self.waits_for_cancelled.load(Ordering::Relaxed)
    }

    /// Asks for work. Never drop the returned future before it is done: on Gitea 1.26 that loses a job (NEW-10).
    ///
    /// # Errors
    ///
    /// See [`GiteaError`]; after [`super::Trouble::Away`] a task may have been handed out all the same.
    pub async fn fetch_task(&self, tasks_version: i64) -> Result<Fetched, GiteaError> {
        let request = proto::FetchTaskRequest { tasks_version, ..Default::default() };
        let answer = self.call("FetchTask", 65, |options| self.rpc.fetch_task_with_options(request, options)).await?;
        let tasks_version = answer.view().tasks_version;
        let body = answer.into_view();
        let task = domain::wire::task_bytes(body.bytes()).map(|task| task.map(|bytes| Zeroizing::new(bytes.to_vec())));
        let overwritten = overwrite(body.into_bytes());
        debug_assert!(overwritten.is_some(), "somebody else holds the answer with the secrets");
        let task = task.map_err(|_| GiteaError::malformed("FetchTask", "no message"))?;
        Ok(Fetched { task, tasks_version })
    }

    pub(super) async fn update_task(
        &self,
        request: proto::UpdateTaskRequest,
    ) -> Result<proto::UpdateTaskResponse, GiteaError> {
        let answer = self.call("UpdateTask", 30, |options| self.rpc.update_task_with_options(request, options)).await?;
        Ok(answer.into_owned())
    }

    pub(super) async fn update_log(&self, request: proto::UpdateLogRequest) -> Result<u64, GiteaError> {
        let answer = self.call("UpdateLog", 60, |options| self.rpc.update_log_with_options(request, options)).await?;
        let ack = answer.view().ack_index;
        u64::try_from(ack).map_err(|_| GiteaError::malformed("UpdateLog", "a negative ack"))
    }

    /// Calls from now on carry this token (NEW-140).
    pub fn use_token(&self, token: &str) {
        self.credential.write().unwrap_or_else(PoisonError::into_inner).token = Zeroizing::new(token.to_owned());
    }

    async fn call<T, C>(
        &self,
        method: &'static str,
        seconds: u64,
        make: impl FnOnce(CallOptions) -> C,
    ) -> Result<UnaryResponse<T>, GiteaError>
    where
        C: Future<Output = Result<UnaryResponse<T>, ConnectError>>,
    {
        let act = if matches!(method, "UpdateTask" | "UpdateLog") { Act::Speak } else { Act::Decide };
        if let Some(Err(fenced)) = self.tenure.as_ref().map(|tenure| tenure.permits(act)) {
            return Err(GiteaError::fenced(method, &fenced));
        }
        let (options, token) = self.options(seconds);
        match tokio::time::timeout(Duration::from_secs(seconds), make(options)).await {
            Err(_) => Err(GiteaError::timeout(method, seconds)),
            Ok(Err(error)) if error.code == ErrorCode::DeadlineExceeded => Err(GiteaError::timeout(method, seconds)),
            Ok(answer) => answer.map_err(|error| GiteaError::of(method, &error, &token)),
        }
    }

    /// With the token they carry: the answer may quote it after another one is used.
    fn options(&self, ours: u64) -> (CallOptions, Zeroizing<String>) {
        let credential = self.credential.read().unwrap_or_else(PoisonError::into_inner);
        let options = deadline(ours)
            .with_header("x-runner-uuid", credential.uuid.as_str())
            .with_header("x-runner-token", credential.token.as_str());
        (options, credential.token.clone())
    }
}

/// What a moment in which thousands of executors report at once leaves open; each costs some 40 KiB.
const IDLE_CONNECTIONS: usize = 64;

fn rpc(base: &str) -> Result<Rpc, http::uri::InvalidUri> {
    let client = HttpClient::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(Duration::from_secs(20))
        .pool_max_idle_per_host(IDLE_CONNECTIONS)
        .build(Connector::new());
    let config = ClientConfig::new(format!("{base}/api/actions").parse()?)
        .with_default_max_message_size(LARGEST_ANSWER)
        .with_default_header("user-agent", AGENT);
    Ok(proto::RunnerServiceClient::new(ServiceTransport::new(client), config))
}

/// Overwrites an answer that held every secret of a job (NEW-57); none: it has another holder, who would read zeros. What
/// TLS and HTTP read it through, and the smaller buffers that it grew out of, belong to the libraries and are only freed.
fn overwrite(answer: Bytes) -> Option<BytesMut> {
    let mut answer = answer.try_into_mut().ok()?;
    answer.zeroize();
    Some(answer)
}

/// Gitea is told a deadline 5 s below ours, so that it gives up first.
fn deadline(ours: u64) -> CallOptions {
    CallOptions::default().with_header("connect-timeout-ms", ((ours - 5) * 1000).to_string())
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    /// NEW-57, T47: the very memory of an answer is overwritten, and nobody else's.
    #[test]
    fn an_answer_is_overwritten_where_it_lies() {
        let mut grown = BytesMut::new();
        grown.extend_from_slice(b"secret");
        let answer = grown.freeze();
        let place = answer.as_ptr();
        let overwritten = overwrite(answer).unwrap();
        assert_eq!((&overwritten[..], overwritten.as_ptr()), (&[0; 6][..], place));
        let shared = Bytes::from(b"secret".to_vec());
        assert!(overwrite(shared.clone()).is_none());
        assert_eq!(&shared[..], b"secret");
    }
}
