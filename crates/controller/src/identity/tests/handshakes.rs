//! Mutual TLS between the facade's acceptor and the executor's connector.

use super::refusals::{client_of, knock};
use super::*;

/// EXE-3, FAC-12: each side proves who it is, and the facade knows whom it speaks to and until when.
#[tokio::test]
async fn facade_and_executor_know_each_other() {
    let host = Host::new();
    let (facade_api, job_api) = (host.serve("facade").await, host.serve("ci/o/r/j".replace('/', "-").as_str()).await);
    let own = own_identity(&facade_api.endpoint(), &id("facade"), DEADLINE).await.unwrap();
    let mut facade = Facade::start(own.acceptor()).await;
    let job = identity(&job_api, &id("ci-o-r-j")).await;
    call(&job.connector(&id("facade")).unwrap(), &facade.url).await.unwrap();
    let peer = facade.caller().await.unwrap();
    assert_eq!(peer.id, id("ci-o-r-j"));
    let left = jiff::Timestamp::now().duration_until(peer.expires_at).as_secs();
    assert!((1780..=1800).contains(&left), "an SVID lives 30 minutes, this one {left} s");
    assert!(own.is_usable() && own.expires_at().is_some());
}

/// EXE-3: a server with a good certificate of our trust domain that is not exactly the facade is refused.
#[tokio::test]
async fn another_server_of_the_same_trust_domain_is_refused() {
    let host = Host::new();
    let (impostor_api, job_api) = (host.serve("impostor").await, host.serve("job").await);
    let impostor = own_identity(&impostor_api.endpoint(), &id("impostor"), DEADLINE).await.unwrap();
    let facade = Facade::start(impostor.acceptor()).await;
    let job = identity(&job_api, &id("job")).await;
    let error = call(&job.connector(&id("facade")).unwrap(), &facade.url).await.unwrap_err();
    assert!(executor::identity::is_refusal(error.as_ref()), "{error:?}");
    call(&job.connector(&id("impostor")).unwrap(), &facade.url).await.unwrap();
}

/// FAC-12: a peer of another trust domain, whose own issuer is in order and which takes any server, does not pass the
/// handshake.
#[tokio::test]
async fn a_peer_of_a_foreign_trust_domain_is_refused() {
    let (host, abroad) = (Host::new(), tempfile::tempdir().unwrap());
    let foreign = BuiltInIssuer::open(abroad.path(), &"foreign.test".parse().unwrap()).unwrap();
    let stranger = client_of(&foreign, &"spiffe://foreign.test/job".parse().unwrap(), |_| {});
    let facade_api = host.serve("facade").await;
    let own = own_identity(&facade_api.endpoint(), &id("facade"), DEADLINE).await.unwrap();
    let mut facade = Facade::start(own.acceptor()).await;
    assert!(knock(&mut facade, stranger).await.is_err());
}

/// The same name for a trust domain makes no trust: another authority for it is a stranger.
#[tokio::test]
async fn a_peer_of_another_authority_for_the_same_trust_domain_is_refused() {
    let (host, double) = (Host::new(), Host::new());
    let facade_api = host.serve("facade").await;
    let own = own_identity(&facade_api.endpoint(), &id("facade"), DEADLINE).await.unwrap();
    let mut facade = Facade::start(own.acceptor()).await;
    let job_api = double.serve("job").await;
    let job = identity(&job_api, &id("job")).await;
    assert!(call(&job.connector(&id("facade")).unwrap(), &facade.url).await.is_err());
    assert!(facade.caller().await.is_err());
}

/// The authority survives a restart: what was issued before it is good after it.
#[tokio::test]
async fn leaves_from_before_a_restart_stay_valid() {
    let host = Host::new();
    let job_api = host.serve("job").await;
    let job = identity(&job_api, &id("job")).await;
    let connector = job.connector(&id("facade")).unwrap();
    let restarted = BuiltInIssuer::open(&host.dir.path().join("keys"), &domain()).unwrap();
    let facade_api = restarted.serve(host.socket("facade"), id("facade")).await.unwrap();
    let own = own_identity(&facade_api.endpoint(), &id("facade"), DEADLINE).await.unwrap();
    let mut facade = Facade::start(own.acceptor()).await;
    call(&connector, &facade.url).await.unwrap();
    assert_eq!(facade.caller().await.unwrap().id, id("job"));
}

/// NEW-111, F64: another identity on the socket is not taken, and the error says what was there instead.
#[tokio::test]
async fn only_the_exact_id_is_taken() {
    let host = Host::new();
    let served = host.serve("other").await;
    let error =
        executor::identity::exact(&served.endpoint(), &id("job"), Duration::from_millis(300)).await.err().unwrap();
    assert_eq!(error.offered, [id("other").to_string()]);
    let error = own_identity(&served.endpoint(), &id("job"), Duration::from_millis(300)).await.err().unwrap();
    assert!(error.to_string().contains("offered instead: spiffe://td.test/other;"), "{error}");
}

/// NEW-111: an executor that starts before its identity waits for it.
#[tokio::test]
async fn an_identity_that_comes_late_is_waited_for() {
    let host = Host::new();
    let endpoint = format!("unix://{}", host.socket("job").display());
    let waiting = tokio::spawn(async move { executor::identity::exact(&endpoint, &id("job"), DEADLINE).await.is_ok() });
    sleep(Duration::from_millis(250)).await;
    let _served = host.serve("job").await;
    assert!(waiting.await.unwrap());
}

/// The text of a URL decides nothing: only https with a host is dialled.
#[tokio::test]
async fn only_https_is_dialled() {
    let host = Host::new();
    let served = host.serve("job").await;
    let connector = identity(&served, &id("job")).await.connector(&id("facade")).unwrap();
    for url in ["http://127.0.0.1:1", "/path"] {
        let error = connector.dial(&url.parse().unwrap()).await.err().unwrap();
        assert!(error.to_string().contains("no https URL"), "{error}");
    }
}
