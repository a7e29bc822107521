//! SVIDs and authorities change while connections live.

use super::*;

/// FAC-13: rotation of both sides' SVIDs needs no restart; new handshakes never fail, an old connection lives on.
#[tokio::test]
async fn svids_rotate_while_a_connection_lives() {
    let host = Host::with(BRISK);
    let (facade_api, job_api) = (host.serve("facade").await, host.serve("job").await);
    let own = own_identity(&facade_api.endpoint(), &id("facade"), DEADLINE).await.unwrap();
    let mut facade = Facade::start(own.acceptor()).await;
    let connector = identity(&job_api, &id("job")).await.connector(&id("facade")).unwrap();
    let mut old = connector.dial(&facade.url).await.unwrap();
    ping(&mut old).await.unwrap();
    let (first_job, first_own) = (facade.caller().await.unwrap().expires_at, own.expires_at().unwrap());
    let mut latest_job = first_job;
    let rotated = async {
        while latest_job <= first_job || own.expires_at().is_none_or(|end| end <= first_own) {
            call(&connector, &facade.url).await.unwrap();
            latest_job = facade.caller().await.unwrap().expires_at;
            sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(DEADLINE, rotated).await.unwrap();
    ping(&mut old).await.unwrap();
}

/// FAC-13: a successor of the authority is announced, then signs; handshakes succeed all the time and the old
/// authority's leaves stay good.
#[tokio::test]
async fn authorities_rotate_under_load() {
    let host = Host::with(BRISK);
    let (facade_api, job_api) = (host.serve("facade").await, host.serve("job").await);
    let own = own_identity(&facade_api.endpoint(), &id("facade"), DEADLINE).await.unwrap();
    let mut facade = Facade::start(own.acceptor()).await;
    let connector = identity(&job_api, &id("job")).await.connector(&id("facade")).unwrap();
    let mut old = connector.dial(&facade.url).await.unwrap();
    host.issuer.advance(jiff::Timestamp::now() + BRISK.authority / 2).await;
    let first = host.issuer.authorities().borrow()[0].certificate.clone();
    assert_eq!(host.issuer.authorities().borrow().len(), 2, "announced beside the old one");
    let mut handshakes = 0;
    let gone = async {
        // Until the first authority has ended and has left the bundle; further ones have come meanwhile.
        while host.issuer.authorities().borrow().iter().any(|authority| authority.certificate == first) {
            call(&connector, &facade.url).await.unwrap();
            handshakes += 1;
            facade.caller().await.unwrap();
        }
    };
    timeout(DEADLINE, gone).await.unwrap();
    assert!(handshakes > 100, "{handshakes} handshakes");
    ping(&mut old).await.unwrap();
}

/// A new authority signs only after its announcement, and the old key is forgotten, in memory and on disk.
#[tokio::test]
async fn the_key_of_a_superseded_authority_is_forgotten() {
    let host = Host::with(BRISK);
    let half_life = jiff::Timestamp::now() + BRISK.authority / 2;
    host.issuer.advance(half_life).await;
    assert_eq!(host.issuer.authorities().borrow().len(), 2, "announced beside the old one");
    host.issuer.advance(half_life + BRISK.announcement).await;
    let keys = |issuer: &BuiltInIssuer| -> Vec<_> {
        issuer.authorities().borrow().iter().map(|authority| authority.key.is_some()).collect()
    };
    assert_eq!(keys(&host.issuer), [false, true]);
    let reopened = BuiltInIssuer::open_with(&host.dir.path().join("keys"), &domain(), BRISK).unwrap();
    assert_eq!(keys(&reopened), [false, true]);
}

/// A disk that refuses the successor costs nothing now: the old authority goes on, and the pause is kept.
#[tokio::test]
async fn an_authority_that_cannot_be_stored_does_not_count() {
    let host = Host::with(BRISK);
    let half_life = jiff::Timestamp::now() + BRISK.authority / 2;
    std::fs::remove_dir_all(host.dir.path().join("keys")).unwrap();
    let again = host.issuer.advance(half_life).await;
    assert_eq!(host.issuer.authorities().borrow().len(), 1);
    assert!(again > half_life);
    assert!(host.issuer.issue(&id("job"), half_life).is_ok());
}

/// NEW-111: a withdrawal blocks new handshakes, ends nothing that runs, and the identity's return heals it.
#[tokio::test]
async fn withdrawal_blocks_and_return_heals() {
    let host = Host::new();
    let (facade_api, job_api) = (host.serve("facade").await, host.serve("job").await);
    let own = own_identity(&facade_api.endpoint(), &id("facade"), DEADLINE).await.unwrap();
    let facade = Facade::start(own.acceptor()).await;
    let job = identity(&job_api, &id("job")).await;
    let connector = job.connector(&id("facade")).unwrap();
    let mut running = connector.dial(&facade.url).await.unwrap();
    job_api.stop().await;
    assert!(!host.socket("job").exists());
    until("the SVID is withdrawn", async || !job.is_usable()).await;
    ping(&mut running).await.unwrap();
    let waiting = tokio::spawn({
        let (connector, url) = (connector.clone(), facade.url.clone());
        async move { call(&connector, &url).await.is_ok() }
    });
    sleep(Duration::from_millis(200)).await;
    assert!(!waiting.is_finished(), "a handshake without an SVID");
    let _job_api = host.serve("job").await;
    assert!(timeout(DEADLINE, waiting).await.unwrap().unwrap());
    assert!(job.is_usable());
}

/// A facade whose own identity is withdrawn accepts nobody, and says so.
#[tokio::test]
async fn a_facade_without_identity_accepts_nobody() {
    let host = Host::new();
    let (facade_api, job_api) = (host.serve("facade").await, host.serve("job").await);
    let own = own_identity(&facade_api.endpoint(), &id("facade"), DEADLINE).await.unwrap();
    let facade = Facade::start(own.acceptor()).await;
    let connector = identity(&job_api, &id("job")).await.connector(&id("facade")).unwrap();
    facade_api.stop().await;
    until("our SVID is withdrawn", async || !own.is_usable()).await;
    assert!(call(&connector, &facade.url).await.is_err());
    assert_eq!(own.expires_at(), None);
    let _facade_api = host.serve("facade").await;
    until("our SVID is back", async || own.is_usable()).await;
    call(&connector, &facade.url).await.unwrap();
}

/// A restarted controller (sockets closed, not withdrawn) leaves the executors their SVID.
#[tokio::test]
async fn a_restart_of_the_issuer_withdraws_nothing() {
    let host = Host::new();
    let (facade_api, job_api) = (host.serve("facade").await, host.serve("job").await);
    let own = own_identity(&facade_api.endpoint(), &id("facade"), DEADLINE).await.unwrap();
    let facade = Facade::start(own.acceptor()).await;
    let job = identity(&job_api, &id("job")).await;
    let connector = job.connector(&id("facade")).unwrap();
    drop(job_api);
    assert!(!host.socket("job").exists());
    for _ in 0..20 {
        call(&connector, &facade.url).await.unwrap();
        sleep(Duration::from_millis(10)).await;
    }
    assert!(job.is_usable());
}
