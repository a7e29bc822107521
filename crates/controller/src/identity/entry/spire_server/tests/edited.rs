//! Entries that others change on a server, which a list in memory stands in for: what a real one does is the contract's.

use std::convert::Infallible;

use http::{Request as HttpRequest, Response as HttpResponse};
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::TokioExecutor;
use tempfile::TempDir;
use tokio::net::UnixListener;
use tonic::body::Body;
use tonic::{Response, Status as GrpcStatus};

use super::*;

/// The entries of a server.
#[derive(Clone, Default)]
struct Entries(Arc<Mutex<BTreeMap<String, Entry>>>);

impl Entries {
    /// Behind a socket in this folder.
    fn serve(&self, folder: &TempDir) -> Socket {
        let path = folder.path().join("api.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let entries = self.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let entries = entries.clone();
                let service = service_fn(move |call| answered(entries.clone(), call));
                let builder = http2::Builder::new(TokioExecutor::new());
                tokio::spawn(builder.serve_connection(TokioIo::new(stream), service));
            }
        });
        Socket(path)
    }

    fn change(&self, id: &str, change: impl FnOnce(&mut Entry)) {
        change(self.0.lock().unwrap().get_mut(id).unwrap());
    }

    fn create(&self, entry: Entry) -> EntryResult {
        let mut entries = self.0.lock().unwrap();
        let code = if entries.contains_key(&entry.id) { Code::AlreadyExists } else { Code::Ok };
        let there = entries.entry(entry.id.clone()).or_insert(entry).clone();
        EntryResult { status: Some(Status { code: code as i32, message: String::new() }), entry: Some(there) }
    }

    fn replace(&self, entry: Entry) -> EntryResult {
        self.change(&entry.id, |there| *there = entry.clone());
        EntryResult { status: Some(Status::default()), entry: Some(entry) }
    }

    /// Those that have all the selectors that were asked for.
    fn list(&self, request: ListRequest) -> ListResponse {
        let wanted = request.filter.and_then(|filter| filter.by_selectors).unwrap_or_default().selectors;
        let has = |entry: &&Entry| wanted.iter().all(|selector| entry.selectors.contains(selector));
        let entries = self.0.lock().unwrap().values().filter(has).cloned().collect();
        ListResponse { entries, next_page_token: String::new() }
    }

    fn get(&self, id: &str) -> Result<Entry, GrpcStatus> {
        self.0.lock().unwrap().get(id).cloned().ok_or_else(|| GrpcStatus::not_found(id))
    }
}

async fn answered(entries: Entries, call: HttpRequest<Incoming>) -> Result<HttpResponse<Body>, Infallible> {
    let path = call.uri().path().to_owned();
    Ok(match path.rsplit('/').next().unwrap() {
        "BatchCreateEntry" => unary(call, |asked| Ok(each(asked, |entry| entries.create(entry)))).await,
        "BatchUpdateEntry" => unary(call, |asked| Ok(each(asked, |entry| entries.replace(entry)))).await,
        "ListEntries" => unary(call, |asked| Ok(entries.list(asked))).await,
        "GetEntry" => unary(call, |asked: GetEntryRequest| entries.get(&asked.id)).await,
        _ => GrpcStatus::unimplemented(path).into_http(),
    })
}

fn each(asked: BatchEntries, write: impl Fn(Entry) -> EntryResult) -> BatchResults {
    BatchResults { results: asked.entries.into_iter().map(write).collect() }
}

async fn unary<Q, A>(call: HttpRequest<Incoming>, answer: impl Fn(Q) -> Result<A, GrpcStatus>) -> HttpResponse<Body>
where
    Q: prost::Message + Default + Send + Sync + 'static,
    A: prost::Message + Default + Send + Sync + 'static,
{
    let answer = |asked: Request<Q>| std::future::ready(answer(asked.into_inner()).map(Response::new));
    tonic::server::Grpc::new(ProstCodec::<A, Q>::default()).unary(tower::service_fn(answer), call).await
}

/// NEW-75, F72, T53: an entry that others changed is told, whatever they changed and however often one looks, and is whole again
/// when it is asked for once more; one that nobody touched is not told, nor are selectors in another order.
#[tokio::test]
async fn what_others_changed_is_told() {
    let (entries, folder) = (Entries::default(), tempfile::tempdir().unwrap());
    let issuer = entries.serve(&folder).of("one");
    let numbers = ["1", "2", "3", "4", "5"];
    for number in numbers {
        assert_eq!(issuer.bind(pod(number)).await, Ok(Standing::Bound));
    }
    let live = || numbers.map(|number| pod(number).key).to_vec();
    let whole = entries.0.lock().unwrap().clone();
    assert_eq!(issuer.sweep(live()).await.unwrap().amiss, []);
    let change = |number: &str, what: &dyn Fn(&mut Entry)| entries.change(&issuer.id(&pod(number).key.uid), what);
    change("1", &|entry| entry.x509_svid_ttl = 7);
    change("2", &|entry| entry.spiffe_id = Some(SpiffeId::of("spiffe://td.test/ci/acme/app/other")));
    // It is for another container now, and so in no list of ours.
    change("3", &|entry| entry.selectors.retain(|selector| !selector.value.starts_with("container-name:")));
    change("4", &|entry| entry.selectors.reverse());
    for _ in 0..2 {
        let told = issuer.sweep(live()).await.unwrap();
        assert_eq!(told, Swept { removed: 0, amiss: ["1", "2", "3"].map(|number| pod(number).key).to_vec() });
    }
    for number in ["1", "2", "3"] {
        assert_eq!(issuer.bind(pod(number)).await, Ok(Standing::Bound));
    }
    assert_eq!(issuer.sweep(live()).await.unwrap().amiss, []);
    change("4", &|entry| entry.selectors.reverse());
    assert_eq!(*entries.0.lock().unwrap(), whole);
}
