//! The ops server over the wire.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt as _, Empty};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use jiff::Timestamp;
use tokio_util::sync::CancellationToken;

use super::liveness::Liveness;
use super::metrics::Metrics;
use super::readiness::{Leader, Readiness, Svid};
use super::status::StatusSnapshot;
use super::{Ops, address, client, serve};
use crate::clock::Clock;

fn ops() -> Ops {
    Ops {
        readiness: Readiness::default(),
        metrics: Metrics::new(&"f66f031b".parse().unwrap()),
        liveness: Liveness::default(),
        clock: Clock::start(),
        snapshot: Arc::new(|now| StatusSnapshot::empty("f66f031b", vec!["scheduler".into()], now)),
    }
}

async fn get(url: String) -> (u16, String) {
    let client: Client<_, Empty<bytes::Bytes>> = Client::builder(TokioExecutor::new()).build_http();
    let response = client.get(url.parse().unwrap()).await.unwrap();
    let status = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

/// NEW-131, NEW-134, F115: readiness with reasons, metrics, status by the address file, and an end that waits for
/// nobody.
#[tokio::test]
async fn the_ways_to_ask() {
    let dir = tempfile::tempdir().unwrap();
    let settings =
        crate::config::Ops { listen: crate::args::STANDALONE_OPS, address_file: dir.path().join("ops.addr") };
    assert!(client::of_state(dir.path()).is_err());
    let listener = address::bind(&settings).await.unwrap();
    address::write_down(&settings, &listener).unwrap();
    let (ops, shutdown) = (ops(), CancellationToken::new());
    let served = tokio::spawn(serve(listener, ops.clone(), shutdown.clone()));
    let at = client::of_state(dir.path()).unwrap();

    let (code, body) = get(format!("{at}/readyz")).await;
    assert_eq!(code, 503);
    assert!(body.contains("\"reason\":\"standby\"") && body.contains("\"ready\":false"), "{body}");
    assert_eq!(get(format!("{at}/livez")).await, (200, "{\"alive\":true,\"stuck\":[]}".to_owned()));
    assert_eq!(get(format!("{at}/healthz")).await.0, 200);

    let now = Timestamp::now();
    ops.readiness.fetch_good(now);
    ops.readiness.set(|c| {
        c.leader = Leader::Leading;
        c.facade_listening = true;
        c.svid = Svid::Present { expires_at: now + Duration::from_secs(600), lifetime: Duration::from_secs(600) };
    });
    let ready = "{\"ready\":true,\"reasons\":[]}".to_owned();
    assert_eq!(get(format!("{at}/readyz")).await, (200, ready));
    assert!(get(format!("{at}/metrics")).await.1.ends_with("# EOF\n"));

    let (_, status) = client::ask(&at).await.unwrap();
    assert!(status.ready && status.leader == Leader::Leading);

    ops.liveness.watch("reap", Duration::ZERO);
    while ops.liveness.stuck().is_empty() {
        tokio::task::yield_now().await;
    }
    assert_eq!(get(format!("{at}/livez")).await.0, 500);

    shutdown.cancel();
    tokio::time::timeout(Duration::from_secs(5), served).await.unwrap().unwrap();
    assert!(client::ask(&at).await.unwrap_err().to_string().contains("is it running?"));
}

/// NEW-151: the clock was set forward while we run: what was good a moment ago by our own clock is good, and `/status`
/// says the time by it.
#[tokio::test]
async fn a_clock_that_was_set_changes_no_answer() {
    let dir = tempfile::tempdir().unwrap();
    let settings =
        crate::config::Ops { listen: crate::args::STANDALONE_OPS, address_file: dir.path().join("ops.addr") };
    let listener = address::bind(&settings).await.unwrap();
    address::write_down(&settings, &listener).unwrap();
    let began = Timestamp::now() - Duration::from_secs(3600);
    let ops = Ops { clock: Clock::saying(began), ..ops() };
    let served = tokio::spawn(serve(listener, ops.clone(), CancellationToken::new()));
    ops.readiness.fetch_good(ops.clock.now());
    ops.readiness.set(|c| {
        c.leader = Leader::Leading;
        c.facade_listening = true;
        c.svid = Svid::Present { expires_at: began + Duration::from_secs(600), lifetime: Duration::from_secs(600) };
    });
    let at = client::of_state(dir.path()).unwrap();
    let (code, body) = get(format!("{at}/readyz")).await;
    assert_eq!(code, 200, "{body}");
    let (_, status) = client::ask(&at).await.unwrap();
    assert!(status.ready && status.not_ready.is_empty());
    served.abort();
}

/// Something else behind the address is not taken for a controller.
#[tokio::test]
async fn a_foreign_server() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = format!("http://{}", listener.local_addr().unwrap());
    let page = axum::Router::new().route("/status", axum::routing::get(|| async { "<html>hello</html>" }));
    let served = tokio::spawn(async move { axum::serve(listener, page).await });
    let error = client::ask(&at).await.unwrap_err().to_string();
    assert!(error.contains("is not a controller's ops server"), "{error}");
    served.abort();
}

/// NEW-134: a file that cannot be written costs `status --state`, not the start.
#[tokio::test]
async fn the_address_file_is_a_convenience() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("ops.addr.tmp")).unwrap();
    let ops = crate::config::Ops { listen: ([127, 0, 0, 1], 0).into(), address_file: dir.path().join("ops.addr") };
    let listener = address::bind(&ops).await.unwrap();
    address::write_down(&ops, &listener).unwrap();
    assert_ne!(listener.local_addr().unwrap().port(), 0);
    assert_eq!(address::read(dir.path()), None);
    std::fs::remove_dir(dir.path().join("ops.addr.tmp")).unwrap();
    address::write_down(&ops, &listener).unwrap();
    assert_eq!(address::read(dir.path()), listener.local_addr().ok());
}
