//! A double of a SPIRE agent: the Workload API on a socket, for everybody who can open it. Who asks is known by its
//! process, as with a real agent; what it gets is what the cluster's entries say about its Pod at that moment.
//!
//! Simpler than a real one: whoever is in no Pod is the controller, an entry counts as soon as its status says that the
//! server took it, and nothing is renewed.

use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use bytes::Bytes;
use futures::{Stream, stream};
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tonic::body::Body;
use tonic::server::Grpc;
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;

use super::authority::{Authority, Svid};
use crate::kubernetes::Kubernetes;

/// The running agent; its socket closes with this.
pub(super) struct Agent {
    away: watch::Sender<bool>,
    doorkeeper: JoinHandle<()>,
}

/// What decides about identities.
pub(super) struct Rules {
    /// It ends with its own holder, whoever is still connected here.
    pub(super) kubernetes: Weak<Kubernetes>,
    /// Where the folders of Pods are, each named by its uid.
    pub(super) pods: PathBuf,
    pub(super) domain: &'static str,
    /// What a process in no Pod gets.
    pub(super) controller: &'static str,
}

impl Rules {
    fn kubernetes(&self) -> Result<Arc<Kubernetes>, Status> {
        self.kubernetes.upgrade().ok_or_else(|| Status::unavailable("the cluster has ended"))
    }
}

struct Shared {
    rules: Rules,
    authority: Authority,
    /// What was issued, by Pod, so that its keys stay the same while its entry does.
    issued: Mutex<BTreeMap<String, Svid>>,
}

impl Agent {
    pub(super) fn start(socket: &Path, rules: Rules) -> io::Result<Self> {
        let authority = Authority::of(rules.domain).map_err(io::Error::other)?;
        let shared = Arc::new(Shared { rules, authority, issued: Mutex::default() });
        let listener = UnixListener::bind(socket)?;
        let away = watch::Sender::new(false);
        let doorkeeper = tokio::spawn(accept(listener, shared, away.clone()));
        Ok(Self { away, doorkeeper })
    }

    /// Whether it is away: connections break, and new ones too.
    pub(super) fn set_away(&self, away: bool) {
        self.away.send_replace(away);
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.doorkeeper.abort();
        self.away.send_replace(true);
    }
}

async fn accept(listener: UnixListener, shared: Arc<Shared>, away: watch::Sender<bool>) {
    while let Ok((stream, _)) = listener.accept().await {
        if !*away.borrow() {
            tokio::spawn(converse(stream, Arc::clone(&shared), away.subscribe()));
        }
    }
}

async fn converse(stream: UnixStream, shared: Arc<Shared>, mut away: watch::Receiver<bool>) {
    let pid = stream.peer_cred().ok().and_then(|peer| peer.pid());
    let pod = pid.and_then(|pid| pod_of(pid, &shared.rules.pods));
    let service = service_fn(move |call| answer(Caller { shared: Arc::clone(&shared), pod: pod.clone() }, call));
    let served = http2::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service);
    tokio::select! {
        _left = served => {}
        _gone = away.wait_for(|away| *away) => {}
    }
}

/// The uid of the Pod that a process runs in: it stands in its environment, in the path of its folder.
fn pod_of(pid: i32, pods: &Path) -> Option<String> {
    let environment = std::fs::read(format!("/proc/{pid}/environ")).ok()?;
    let environment = String::from_utf8_lossy(&environment).into_owned();
    let (_, rest) = environment.split_once(&format!("{}/", pods.display()))?;
    Some(rest.split(['/', '\0']).next().unwrap_or_default().to_owned())
}

/// Who asks.
#[derive(Clone)]
struct Caller {
    shared: Arc<Shared>,
    pod: Option<String>,
}

impl Caller {
    /// What it is given now.
    fn svids(&self) -> Result<Vec<Svid>, Status> {
        let ids = match &self.pod {
            None => vec![self.shared.rules.controller.to_owned()],
            Some(uid) => self.shared.rules.kubernetes()?.identities_of(uid),
        };
        if ids.is_empty() {
            return Err(Status::permission_denied("no identity issued"));
        }
        ids.iter().map(|id| self.issued(id).map_err(|error| Status::internal(error.to_string()))).collect()
    }

    fn issued(&self, id: &str) -> Result<Svid, rcgen::Error> {
        let mut issued = self.shared.issued.lock().unwrap_or_else(PoisonError::into_inner);
        let of = format!("{} {id}", self.pod.as_deref().unwrap_or_default());
        if let Some(known) = issued.get(&of) {
            return Ok(known.clone());
        }
        let svid = self.shared.authority.issue(id)?;
        issued.insert(of, svid.clone());
        Ok(svid)
    }
}

async fn answer(caller: Caller, call: http::Request<Incoming>) -> Result<http::Response<Body>, Infallible> {
    Ok(match call.uri().path() {
        "/SpiffeWorkloadAPI/FetchX509SVID" => {
            let fetch = tower::service_fn(move |_: Request<Nothing>| open(caller.clone(), svids));
            Grpc::new(ProstCodec::default()).server_streaming(fetch, call).await
        }
        "/SpiffeWorkloadAPI/FetchX509Bundles" => {
            let fetch = tower::service_fn(move |_: Request<Nothing>| open(caller.clone(), bundles));
            Grpc::new(ProstCodec::default()).server_streaming(fetch, call).await
        }
        path => Status::unimplemented(format!("the double has no {path}")).into_http(),
    })
}

/// A stream that says what a caller has, again after every change, and ends when it has nothing any more.
async fn open<M: Send + 'static>(
    caller: Caller,
    compose: fn(&Shared, &[Svid]) -> M,
) -> Result<Response<impl Stream<Item = Result<M, Status>>>, Status> {
    let changes = caller.shared.rules.kubernetes()?.changes();
    caller.svids()?;
    let began = Some((caller, changes, Vec::new()));
    let messages = stream::unfold(began, move |state| async move {
        let (caller, mut changes, told) = state?;
        loop {
            changes.borrow_and_update();
            match caller.svids() {
                Err(status) => return Some((Err(status), None)),
                Ok(svids) => {
                    let ids: Vec<String> = svids.iter().map(|svid| svid.id.clone()).collect();
                    if ids != told {
                        let message = compose(&caller.shared, &svids);
                        return Some((Ok(message), Some((caller, changes, ids))));
                    }
                }
            }
            // The cluster has ended, and everything with it.
            changes.changed().await.ok()?;
        }
    });
    Ok(Response::new(messages))
}

fn svids(shared: &Shared, svids: &[Svid]) -> SvidsMessage {
    let of = |svid: &Svid| SvidMessage {
        spiffe_id: svid.id.clone(),
        x509_svid: svid.certificate.clone(),
        x509_svid_key: svid.key.clone(),
        bundle: shared.authority.certificate(),
    };
    SvidsMessage { svids: svids.iter().map(of).collect() }
}

fn bundles(shared: &Shared, _: &[Svid]) -> BundlesMessage {
    let domain = format!("spiffe://{}", shared.rules.domain);
    BundlesMessage { bundles: HashMap::from([(domain, shared.authority.certificate())]) }
}

/// `X509SVIDRequest`, `X509BundlesRequest`.
#[derive(Clone, PartialEq, prost::Message)]
struct Nothing {}

/// `X509SVIDResponse`.
#[derive(Clone, PartialEq, prost::Message)]
struct SvidsMessage {
    #[prost(message, repeated, tag = "1")]
    svids: Vec<SvidMessage>,
}

/// `X509SVID`.
#[derive(Clone, PartialEq, prost::Message)]
struct SvidMessage {
    #[prost(string, tag = "1")]
    spiffe_id: String,
    #[prost(bytes = "bytes", tag = "2")]
    x509_svid: Bytes,
    #[prost(bytes = "vec", tag = "3")]
    x509_svid_key: Vec<u8>,
    #[prost(bytes = "bytes", tag = "4")]
    bundle: Bytes,
}

/// `X509BundlesResponse`.
#[derive(Clone, PartialEq, prost::Message)]
struct BundlesMessage {
    #[prost(map = "string, bytes", tag = "2")]
    bundles: HashMap<String, Bytes>,
}
