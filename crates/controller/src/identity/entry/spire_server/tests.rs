//! Entries on a real SPIRE server. Needs `cargo xtask provision spire`.

#![expect(clippy::unwrap_used, reason = "tests")]

mod edited;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use testkit::real::spire::{SpireServer as SpireServerOnHost, SpireSettings};

use super::super::content::AgentId;
use super::super::contract::{self, Site};
use super::super::tests::{alias, pod, rules};
use super::*;

/// The server, or what stands in for it behind a socket.
struct Socket(PathBuf);

impl Socket {
    fn of(&self, instance: &str) -> SpireServer {
        SpireServer::new(&self.0, &instance.parse().unwrap(), rules(), alias())
    }

    async fn all(&self) -> Vec<Entry> {
        let request = ListRequest { filter: None, page_size: 0, page_token: String::new() };
        let answer: ListResponse = self.of("x").call("ListEntries", request).await.unwrap();
        assert_eq!(answer.next_page_token, "");
        answer.entries
    }
}

impl Site for Socket {
    fn issuer(&self, instance: &str) -> Arc<dyn IdentityIssuer> {
        Arc::new(self.of(instance))
    }

    fn entries(&self) -> BoxFuture<'_, BTreeMap<String, String>> {
        let said = |entry: Entry| {
            let [id, parent] = [entry.spiffe_id, entry.parent_id].map(Option::unwrap);
            let [id, parent] = [id, parent].map(|id| format!("spiffe://{}{}", id.trust_domain, id.path));
            let mut selectors: Vec<_> = entry.selectors.iter().map(|s| format!("{}:{}", s.r#type, s.value)).collect();
            selectors.sort();
            let uid = selectors.iter().find_map(|text| text.strip_prefix("k8s:pod-uid:")).unwrap().to_owned();
            (uid, format!("{id} {parent} {} {}", selectors.join(" "), entry.x509_svid_ttl))
        };
        async move { self.all().await.into_iter().map(said).collect() }.boxed()
    }

    fn edit(&self, pod: PodKey) -> BoxFuture<'_, ()> {
        async move {
            let issuer = self.of("one");
            let mut entry = issuer.find(&issuer.id(&pod.uid)).await.unwrap().unwrap();
            entry.spiffe_id = Some(SpiffeId::of("spiffe://td.test/ci/acme/app/other"));
            (entry.x509_svid_ttl, entry.admin, entry.hint) = (7, true, "other".to_owned());
            let edited = issuer.write("BatchUpdateEntry", &entry).await.unwrap();
            assert_eq!(edited.entry, Some(entry));
        }
        .boxed()
    }

    fn lose(&self, pod: PodKey) -> BoxFuture<'_, ()> {
        async move {
            let issuer = self.of("one");
            assert!(issuer.delete(vec![issuer.id(&pod.uid)]).await.unwrap().is_empty());
        }
        .boxed()
    }

    #[expect(clippy::async_yields_async, reason = "what clears the way is called later")]
    fn obstruct(&self, pod: BoundPod) -> BoxFuture<'_, BoxFuture<'_, ()>> {
        async move {
            let entry = wanted("by-hand".to_owned(), &rules().content(&pod, parent()));
            let made = self.of("x").write("BatchCreateEntry", &entry).await.unwrap();
            assert_eq!(made.entry, Some(entry));
            async move {
                assert!(self.of("x").delete(vec!["by-hand".to_owned()]).await.unwrap().is_empty());
            }
            .boxed()
        }
        .boxed()
    }
}

/// The parent that [`alias`] gives.
fn parent() -> AgentId {
    match alias() {
        Parents::Fixed(agent) => agent,
        Parents::OfNode(_) => panic!("an alias is fixed"),
    }
}

/// What the server says of an entry that it does not take.
async fn a_refusal_is_a_rejection(socket: &Socket) {
    let mut rules = rules();
    rules.identity.trust_domain = "other.test".parse().unwrap();
    let issuer = SpireServer::new(&socket.0, &"one".parse().unwrap(), rules, alias());
    let foreign = BoundPod { spiffe_id: "spiffe://other.test/ci/a/b/c".parse().unwrap(), ..pod("1") };
    let standing = issuer.bind(foreign).await.unwrap();
    assert!(matches!(&standing, Standing::Rejected { cause } if cause.contains("other.test")), "{standing:?}");
    assert!(socket.all().await.is_empty());
}

/// Lists are read to their end, and deletions come in batches.
async fn many_are_swept(socket: &Socket) {
    let issuer = socket.of("one");
    let numbers: Vec<usize> = (1..=2 * PAGE + 1).collect();
    for some in numbers.chunks(BATCH) {
        let entries = some.iter().map(|number| {
            let pod = pod(&number.to_string());
            wanted(issuer.id(&pod.key.uid), &rules().content(&pod, parent()))
        });
        let entries = BatchEntries { entries: entries.collect() };
        let made: BatchResults = issuer.call("BatchCreateEntry", entries).await.unwrap();
        assert!(made.results.iter().all(|made| made.status.as_ref().is_some_and(|status| code(status) == Code::Ok)));
    }
    assert_eq!(issuer.list().await.unwrap().len(), 2 * PAGE + 1);
    let live = vec![pod("3").key];
    assert_eq!(issuer.sweep(live.clone()).await.unwrap().removed, 0);
    assert_eq!(issuer.sweep(live).await.unwrap().removed, 2 * PAGE);
    issuer.release(pod("3").key).await.unwrap();
    assert!(socket.all().await.is_empty());
}

/// POD-4, POD-6, POD-7, NEW-2, NEW-75, NEW-76, NEW-128, NEW-129, F70, F71, F72, T15, T53: what every issuer keeps, on a real
/// SPIRE server.
#[tokio::test]
#[ignore = "needs `cargo xtask provision spire`"]
async fn keeps_the_contract_on_a_real_server() {
    let server = SpireServerOnHost::start(SpireSettings::default()).await.unwrap();
    let socket = Socket(server.socket());
    contract::all(&socket).await;
    a_refusal_is_a_rejection(&socket).await;
    many_are_swept(&socket).await;
}

/// NEW-74, NEW-75: a server that is away is waited for, and is evidence of nothing.
#[tokio::test]
async fn a_server_that_is_away_is_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let issuer = Socket(folder.path().join("none.sock")).of("one");
    let later = |cause: &str| cause.contains("none.sock");
    for _ in 0..2 {
        let bound = issuer.bind(pod("1")).await;
        assert!(matches!(&bound, Err(IssueError::Later { cause }) if later(cause)), "{bound:?}");
    }
    assert!(matches!(issuer.release(pod("1").key).await, Err(IssueError::Later { .. })));
    assert!(matches!(issuer.sweep(Vec::new()).await, Err(IssueError::Later { .. })));
}

/// POD-6, F72, NEW-129: what a write brought is judged by the entry that came back.
#[test]
fn a_result_is_judged() {
    let wanted = wanted("ours".to_owned(), &rules().content(&pod("1"), parent()));
    let result = |code: Code, entry: Option<Entry>| {
        let status = Some(Status { code: code as i32, message: "words".to_owned() });
        judge(EntryResult { status, entry }, &wanted)
    };
    let turned = Entry { selectors: wanted.selectors.iter().rev().cloned().collect(), ..wanted.clone() };
    assert_eq!(result(Code::Ok, Some(turned.clone())), Made::Standing(Standing::Bound));
    assert!(matches!(result(Code::AlreadyExists, Some(turned)), Made::Look(_)));
    let by_hand = Entry { id: "by-hand".to_owned(), ..wanted.clone() };
    assert_eq!(result(Code::AlreadyExists, Some(by_hand)), Made::Foreign("by-hand".to_owned()));
    let rejected = Standing::Rejected { cause: "words".to_owned() };
    assert_eq!(result(Code::InvalidArgument, None), Made::Standing(rejected));
    assert!(matches!(result(Code::Internal, None), Made::Look(_)));
    for other in [
        Entry { x509_svid_ttl: 7, ..wanted.clone() },
        Entry { admin: true, ..wanted.clone() },
        Entry { hint: "x".to_owned(), ..wanted.clone() },
        Entry { parent_id: None, ..wanted.clone() },
    ] {
        assert!(matches!(result(Code::Ok, Some(other)), Made::Look(_)));
    }
}
