//! Entries through the admin API of a SPIRE server, for sites without the SPIRE controller manager: gRPC on the Unix
//! socket that `spire-server entry` uses too.
//!
//! An entry of ours has the id `gitea-dynamic-runner.<instance>.<Pod UID>`, which we choose; no other is changed or
//! deleted (NEW-2). The server keeps no labels, and a hint would reach the workload. It has no compare-and-set either: what
//! two of one instance write at once is what the later one writes, and only its leader writes.
//!
//! | what happens | what follows |
//! |---|---|
//! | a call is not answered | it may have been carried out: the next one finds the entry and compares it |
//! | an entry of our id is there | compared: the same is success, other content is replaced as a whole |
//! | somebody else's has the same SPIFFE ID, parent and selectors | refused: that one gives our Pod's identity |
//! | the server refuses the entry | rejected, in its words |
//! | a list fails | nothing is deleted, and nothing is counted |
//! | somebody deletes or changes an entry of a Pod that runs | the next sweep tells, and whoever asks for it again has it put right |
//!
//! A SPIRE controller manager on the same server deletes these entries unless it has an `entryIDPrefix` of its own; where
//! there is one, use POD_IDENTITY=entries.

#[cfg(test)]
mod tests;
mod wire;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use domain::id::InstanceId;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::uri::PathAndQuery;
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tonic::client::Grpc;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request};
use tonic_prost::ProstCodec;

use super::content::{Content, EntryRules, Selector};
use super::known::{self, Known};
use super::orphans::Orphans;
use super::parent::Parents;
use super::{BoundPod, IdentityIssuer, IssueError, PodKey, Standing, Swept};
use wire::{
    BatchDeleteRequest, BatchDeleteResponse, BatchEntries, BatchResults, Entry, EntryResult, Filter, GetEntryRequest,
    ListRequest, ListResponse, SelectorMatch, SpiffeId, Status,
};

/// The longest that one call may take.
const CALL: Duration = Duration::from_secs(10);
/// Entries in one page of a list.
const PAGE: usize = 200;
/// Ids in one deletion: the server carries them out one after the other, and all of them within [`CALL`].
const BATCH: usize = 50;

/// Writes entries.
pub(super) struct SpireServer {
    channel: Channel,
    socket: String,
    /// What the ids of our entries begin with.
    prefix: String,
    rules: EntryRules,
    parents: Parents,
    known: Mutex<Known<()>>,
    orphans: Mutex<Orphans>,
}

impl SpireServer {
    /// Nothing is called yet.
    pub(super) fn new(socket: &Path, instance: &InstanceId, rules: EntryRules, parents: Parents) -> Self {
        let path = socket.to_owned();
        let connect = tower::service_fn(move |_| {
            let path = path.clone();
            async move { UnixStream::connect(path).await.map(TokioIo::new) }
        });
        // The address is said to the server and names nothing.
        let channel = Endpoint::from_static("http://spire-server").connect_with_connector_lazy(connect);
        Self {
            channel,
            socket: socket.display().to_string(),
            prefix: format!("gitea-dynamic-runner.{instance}."),
            rules,
            parents,
            known: Mutex::default(),
            orphans: Mutex::default(),
        }
    }

    fn id(&self, uid: &str) -> String {
        format!("{}{uid}", self.prefix)
    }

    async fn bind_pod(&self, pod: BoundPod) -> Result<Standing, IssueError> {
        self.rules.permit(&pod)?;
        let content = self.rules.content(&pod, self.parents.of(&pod.node).await?);
        let wanted = wanted(self.id(&pod.key.uid), &content);
        let standing = self.ensure(&wanted).await?;
        if standing == Standing::Bound {
            self.known().note(&wanted.id, (), short(&wanted));
        }
        Ok(standing)
    }

    async fn ensure(&self, wanted: &Entry) -> Result<Standing, IssueError> {
        let created = self.write("BatchCreateEntry", wanted).await?;
        let status = match judge(created, wanted) {
            Made::Standing(standing) => return Ok(standing),
            Made::Foreign(id) => return Err(foreign(wanted, &id)),
            Made::Look(status) => status,
        };
        let Some(there) = self.find(&wanted.id).await? else {
            return Err(IssueError::Later { cause: format!("SPIRE entry {} was not made ({status})", wanted.id) });
        };
        if same(&there, wanted) {
            return Ok(Standing::Bound);
        }
        let updated = self.write("BatchUpdateEntry", wanted).await?;
        match judge(updated, wanted) {
            Made::Standing(standing) => {
                tracing::info!(
                    component = "identity",
                    entry = wanted.id,
                    "a SPIRE entry with other content was replaced"
                );
                Ok(standing)
            }
            Made::Foreign(id) => Err(foreign(wanted, &id)),
            Made::Look(status) => {
                Err(IssueError::Later { cause: format!("SPIRE entry {} was not replaced ({status})", wanted.id) })
            }
        }
    }

    async fn write(&self, method: &str, wanted: &Entry) -> Result<EntryResult, IssueError> {
        let answer: BatchResults = self.call(method, BatchEntries { entries: vec![wanted.clone()] }).await?;
        let result = answer.results.into_iter().next();
        result.ok_or_else(|| IssueError::Later { cause: format!("the SPIRE server answered {method} with nothing") })
    }

    async fn find(&self, id: &str) -> Result<Option<Entry>, IssueError> {
        match self.ask("GetEntry", GetEntryRequest { id: id.to_owned() }).await {
            Ok(entry) => Ok(Some(entry)),
            Err(status) if status.code() == Code::NotFound => Ok(None),
            Err(status) => Err(self.silent("GetEntry", &status)),
        }
    }

    /// Those of these that could not be deleted.
    async fn delete(&self, ids: Vec<String>) -> Result<Vec<(String, Status)>, IssueError> {
        let answer: BatchDeleteResponse = self.call("BatchDeleteEntry", BatchDeleteRequest { ids }).await?;
        let failed = answer.results.into_iter().map(|result| (result.id, result.status.unwrap_or_default()));
        Ok(failed.filter(|(_, status)| !matches!(code(status), Code::Ok | Code::NotFound)).collect())
    }

    async fn release_pod(&self, pod: PodKey) -> Result<(), IssueError> {
        let id = self.id(&pod.uid);
        self.known().forget(&id);
        match self.delete(vec![id]).await?.first() {
            None => Ok(()),
            Some((id, status)) => {
                Err(IssueError::Later { cause: format!("SPIRE entry {id} was not deleted: {status}") })
            }
        }
    }

    async fn sweep_entries(&self, live: Vec<PodKey>) -> Result<Swept, IssueError> {
        let moment = self.known().moment();
        let mut listed = self.list().await?;
        let mut amiss = Vec::new();
        for pod in live {
            let id = self.id(&pod.uid);
            if self.known().is_amiss(&id, moment, listed.remove(&id)) {
                amiss.push(pod);
            }
        }
        let without_pod = listed.into_keys().collect();
        let twice = self.orphans.lock().unwrap_or_else(PoisonError::into_inner).again(without_pod);
        Ok(Swept { removed: self.delete_all(&twice).await?, amiss })
    }

    async fn delete_all(&self, orphans: &[String]) -> Result<usize, IssueError> {
        let mut gone = 0;
        for ids in orphans.chunks(BATCH) {
            let failed = self.delete(ids.to_vec()).await?;
            for id in ids {
                self.known().forget(id);
            }
            gone += ids.len() - failed.len().min(ids.len());
            for (id, status) in failed {
                tracing::warn!(component = "identity", entry = id, "a stale SPIRE entry stays: {status}");
            }
        }
        if gone > 0 {
            tracing::info!(component = "identity", entries = gone, "removed stale SPIRE entries");
        }
        Ok(gone)
    }

    /// What our entries say in short, by id: all of them, or an error. One that somebody changed so that it selects another
    /// container is not among them, as if it were gone.
    async fn list(&self) -> Result<BTreeMap<String, u64>, IssueError> {
        let selectors = vec![on_wire(&Selector::of_container())];
        let by_selectors = Some(SelectorMatch { selectors, r#match: SelectorMatch::SUPERSET });
        let mut request = ListRequest {
            filter: Some(Filter { by_selectors }),
            page_size: i32::try_from(PAGE).unwrap_or(i32::MAX),
            page_token: String::new(),
        };
        let mut ours = BTreeMap::new();
        loop {
            let page: ListResponse = self.call("ListEntries", request.clone()).await?;
            let found = page.entries.into_iter().filter(|entry| entry.id.starts_with(&self.prefix));
            ours.extend(found.map(|entry| (entry.id.clone(), short(&entry))));
            if page.next_page_token.is_empty() {
                return Ok(ours);
            }
            request.page_token = page.next_page_token;
        }
    }

    fn known(&self) -> MutexGuard<'_, Known<()>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn call<Q, A>(&self, method: &str, request: Q) -> Result<A, IssueError>
    where
        Q: prost::Message + Send + Sync + 'static,
        A: prost::Message + Default + Send + Sync + 'static,
    {
        self.ask(method, request).await.map_err(|status| self.silent(method, &status))
    }

    async fn ask<Q, A>(&self, method: &str, request: Q) -> Result<A, tonic::Status>
    where
        Q: prost::Message + Send + Sync + 'static,
        A: prost::Message + Default + Send + Sync + 'static,
    {
        let path = format!("/spire.api.server.entry.v1.Entry/{method}");
        let path = PathAndQuery::from_maybe_shared(path).map_err(|error| tonic::Status::internal(error.to_string()))?;
        let mut client = Grpc::new(self.channel.clone());
        let call = async {
            client.ready().await.map_err(|error| tonic::Status::unavailable(error.to_string()))?;
            client.unary(Request::new(request), path, ProstCodec::<Q, A>::default()).await
        };
        match tokio::time::timeout(CALL, call).await {
            Ok(answer) => answer.map(tonic::Response::into_inner),
            Err(_) => Err(tonic::Status::deadline_exceeded(format!("no answer within {} s", CALL.as_secs()))),
        }
    }

    fn silent(&self, method: &str, status: &tonic::Status) -> IssueError {
        let (socket, code, message) = (&self.socket, status.code(), status.message());
        IssueError::Later {
            cause: format!("the SPIRE server behind {socket} answered {method} with {code:?}: {message}"),
        }
    }
}

impl IdentityIssuer for SpireServer {
    fn bind(&self, pod: BoundPod) -> BoxFuture<'_, Result<Standing, IssueError>> {
        self.bind_pod(pod).boxed()
    }

    fn release(&self, pod: PodKey) -> BoxFuture<'_, Result<(), IssueError>> {
        self.release_pod(pod).boxed()
    }

    fn sweep(&self, live: Vec<PodKey>) -> BoxFuture<'_, Result<Swept, IssueError>> {
        self.sweep_entries(live).boxed()
    }
}

/// The entry as it is to be.
fn wanted(id: String, content: &Content) -> Entry {
    Entry {
        id,
        spiffe_id: Some(SpiffeId::of(content.spiffe_id.as_str())),
        parent_id: Some(SpiffeId::of(content.parent.as_str())),
        selectors: content.selectors.iter().map(on_wire).collect(),
        x509_svid_ttl: i32::try_from(content.ttl.as_secs()).unwrap_or(i32::MAX),
        ..Entry::default()
    }
}

fn on_wire(selector: &Selector) -> wire::Selector {
    wire::Selector { r#type: selector.kind.to_owned(), value: selector.value.clone() }
}

fn same(there: &Entry, wanted: &Entry) -> bool {
    in_order(there) == in_order(wanted)
}

/// With the order of its selectors, which says nothing, always the same.
fn in_order(entry: &Entry) -> Entry {
    let mut entry = entry.clone();
    entry.selectors.sort();
    entry
}

fn short(entry: &Entry) -> u64 {
    known::short(&prost::Message::encode_to_vec(&in_order(entry)))
}

/// What a write brought.
#[derive(Debug, PartialEq, Eq)]
enum Made {
    /// It is there as it is to be, or never will be.
    Standing(Standing),
    /// Another entry gives the same ID to the same Pod.
    Foreign(String),
    /// What is there under our id must be looked at.
    Look(Status),
}

fn judge(result: EntryResult, wanted: &Entry) -> Made {
    let status = result.status.unwrap_or_default();
    match (code(&status), result.entry) {
        (Code::Ok, Some(there)) if same(&there, wanted) => Made::Standing(Standing::Bound),
        (Code::InvalidArgument, _) => Made::Standing(Standing::Rejected { cause: status.message }),
        (Code::AlreadyExists, Some(there)) if there.id != wanted.id => Made::Foreign(there.id),
        _ => Made::Look(status),
    }
}

fn code(status: &Status) -> Code {
    Code::from_i32(status.code)
}

fn foreign(wanted: &Entry, id: &str) -> IssueError {
    IssueError::Refused {
        cause: format!(
            "SPIRE entry {}: the entry {id}, which is not ours, has the same SPIFFE ID, parent and selectors",
            wanted.id
        ),
        remedy: "Find out who made that entry and delete it (spire-server entry delete), then run the job again."
            .to_owned(),
    }
}
