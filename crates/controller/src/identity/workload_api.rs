//! The SPIFFE Workload API as it is on the wire (SPIFFE Workload API standard, section 5), for one served ID.
//!
//! Every message is the complete state. JWT methods are answered Unimplemented: nothing here signs JWTs.

use std::{collections::HashMap, convert::Infallible, time::Duration};

use bytes::Bytes;
use futures::{Stream, stream};
use hyper::body::Incoming;
use jiff::Timestamp;
use std::sync::Arc;
use tonic::{Request, Response, Status, body::Body, server::Grpc};
use tonic_prost::ProstCodec;
use zeroize::Zeroize as _;

use super::{authority::Leaf, issuer::Authorities, serve::Served};

/// Metadata that every call must carry, so that a forged request from a browser or a proxy cannot pass.
const SECURITY_HEADER: &str = "workload.spiffe.io";
/// Longest and shortest sleep between two looks at the clock: timers stand still while a host is suspended,
/// certificates do not.
const LONGEST_NAP: Duration = Duration::from_secs(30);
const SHORTEST_NAP: Duration = Duration::from_millis(50);

/// What a workload without an identity is told, in the words of SPIRE, which clients know.
pub(super) fn no_identity() -> Status {
    Status::permission_denied("no identity issued")
}

/// Answers one call.
pub(super) async fn answer(
    served: Arc<Served>,
    call: http::Request<Incoming>,
) -> Result<http::Response<Body>, Infallible> {
    if call.headers().get(SECURITY_HEADER).is_none_or(|value| value != "true") {
        return Ok(Status::invalid_argument("the metadata workload.spiffe.io: true is missing").into_http());
    }
    let response = match call.uri().path() {
        "/SpiffeWorkloadAPI/FetchX509SVID" => {
            let fetch = tower::service_fn(move |_: Request<Nothing>| open(served.clone(), svid_response));
            Grpc::new(ProstCodec::default()).server_streaming(fetch, call).await
        }
        "/SpiffeWorkloadAPI/FetchX509Bundles" => {
            let fetch = tower::service_fn(move |_: Request<Nothing>| open(served.clone(), bundles_response));
            Grpc::new(ProstCodec::default()).server_streaming(fetch, call).await
        }
        path => Status::unimplemented(format!("the built-in issuer has no {path}")).into_http(),
    };
    Ok(response)
}

type Compose<M> = fn(&Served, &Material) -> M;

/// What a message is made of.
pub(super) struct Material {
    pub(super) leaf: Arc<Leaf>,
    pub(super) authorities: Authorities,
    /// When to look again, if nothing is heard before.
    pub(super) look_again: Timestamp,
}

/// Opens a stream that sends the state at once and again after every change, until the identity is withdrawn.
async fn open<M>(
    served: Arc<Served>,
    compose: Compose<M>,
) -> Result<Response<impl Stream<Item = Result<M, Status>>>, Status>
where
    M: Send + 'static,
{
    if served.withdrawal().is_cancelled() {
        return Err(no_identity());
    }
    let updates = Updates { served, sent: None, ended: false };
    let messages = stream::unfold(updates, move |mut updates| async move {
        let material = updates.next().await?;
        let message = material.map(|material| compose(&updates.served, &material));
        Some((message, updates))
    });
    Ok(Response::new(messages))
}

/// One stream's view: what it has sent, and thus what is new to it.
struct Updates {
    served: Arc<Served>,
    sent: Option<(Arc<Leaf>, Authorities)>,
    ended: bool,
}

impl Updates {
    async fn next(&mut self) -> Option<Result<Material, Status>> {
        if self.ended {
            return None;
        }
        let next = self.wait().await;
        self.ended = next.is_err();
        Some(next)
    }

    async fn wait(&mut self) -> Result<Material, Status> {
        let mut authorities = self.served.issuer().authorities();
        loop {
            authorities.mark_unchanged();
            if self.served.withdrawal().is_cancelled() {
                return Err(no_identity());
            }
            let material = self.served.material(Timestamp::now()).await?;
            let state = (material.leaf.clone(), material.authorities.clone());
            if !self.sent.as_ref().is_some_and(|sent| Arc::ptr_eq(&sent.0, &state.0) && Arc::ptr_eq(&sent.1, &state.1))
            {
                self.sent = Some(state);
                return Ok(material);
            }
            tokio::select! {
                _ = authorities.changed() => {}
                () = self.served.withdrawal().cancelled() => {}
                () = tokio::time::sleep(nap(material.look_again)) => {}
            }
        }
    }
}

fn nap(until: Timestamp) -> Duration {
    let left = Duration::try_from(Timestamp::now().duration_until(until)).unwrap_or_default();
    left.clamp(SHORTEST_NAP, LONGEST_NAP)
}

fn svid_response(served: &Served, material: &Material) -> X509SvidResponse {
    X509SvidResponse {
        svids: vec![X509Svid {
            spiffe_id: served.id().to_string(),
            x509_svid: Bytes::copy_from_slice(&material.leaf.certificate),
            x509_svid_key: material.leaf.key.to_vec(),
            bundle: bundle(&material.authorities),
        }],
    }
}

fn bundles_response(served: &Served, material: &Material) -> X509BundlesResponse {
    let domain = format!("spiffe://{}", served.issuer().domain());
    X509BundlesResponse { bundles: HashMap::from([(domain, bundle(&material.authorities))]) }
}

fn bundle(authorities: &Authorities) -> Bytes {
    authorities.iter().flat_map(|authority| authority.certificate.iter().copied()).collect()
}

/// `X509SVIDRequest` and `X509BundlesRequest`: neither has a field.
#[derive(Clone, PartialEq, prost::Message)]
struct Nothing {}

#[derive(prost::Message)]
#[prost(skip_debug)]
struct X509SvidResponse {
    #[prost(message, repeated, tag = "1")]
    svids: Vec<X509Svid>,
}

#[derive(prost::Message)]
#[prost(skip_debug)]
struct X509Svid {
    #[prost(string, tag = "1")]
    spiffe_id: String,
    /// DER, leaf first.
    #[prost(bytes = "bytes", tag = "2")]
    x509_svid: Bytes,
    /// PKCS#8, DER.
    #[prost(bytes = "vec", tag = "3")]
    x509_svid_key: Vec<u8>,
    /// DER, concatenated.
    #[prost(bytes = "bytes", tag = "4")]
    bundle: Bytes,
}

impl Drop for X509Svid {
    fn drop(&mut self) {
        self.x509_svid_key.zeroize();
    }
}

#[derive(prost::Message)]
struct X509BundlesResponse {
    /// By the trust domain's ID, with its scheme.
    #[prost(map = "string, bytes", tag = "2")]
    bundles: HashMap<String, Bytes>,
}
