//! The sockets: how they come and go, what they answer, what they cost.

use std::os::unix::{fs::PermissionsExt as _, net::UnixListener as StdListener};

use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::UnixStream;

use super::*;

/// One raw call: the gRPC status and its message.
async fn status(served: &ServedIdentity, method: &str, security_header: Option<&str>) -> (String, String) {
    let stream = UnixStream::connect(served.socket()).await.unwrap();
    let (mut client, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let mut request = http::Request::post(format!("http://local/SpiffeWorkloadAPI/{method}"));
    if let Some(value) = security_header {
        request = request.header("workload.spiffe.io", value);
    }
    let body = http_body_util::Full::new(bytes::Bytes::from_static(&[0, 0, 0, 0, 0]));
    let response =
        client.send_request(request.header("content-type", "application/grpc").body(body).unwrap()).await.unwrap();
    let text =
        |name: &str| response.headers().get(name).map(|value| value.to_str().unwrap().to_owned()).unwrap_or_default();
    (text("grpc-status"), text("grpc-message"))
}

const INVALID_ARGUMENT: &str = "3";
const UNIMPLEMENTED: &str = "12";

/// NEW-150: an end that nobody asked for is seen, and the same socket can be served again.
#[tokio::test]
async fn an_end_by_itself_is_seen() {
    let host = Host::new();
    let served = host.serve("job").await;
    assert!(!served.has_ended());
    served.break_down();
    let seen = async {
        while !served.has_ended() {
            tokio::task::yield_now().await;
        }
    };
    timeout(DEADLINE, seen).await.unwrap();
    drop(served);
    let again = host.serve("job").await;
    assert_eq!(status(&again, "FetchX509SVID", None).await.0, INVALID_ARGUMENT);
    assert!(!again.has_ended());
}

/// Workload API standard, section 4: without the security header nothing is answered.
#[tokio::test]
async fn the_security_header_is_required() {
    let host = Host::new();
    let served = host.serve("job").await;
    for method in ["FetchX509SVID", "FetchX509Bundles", "FetchJWTSVID"] {
        for header in [None, Some("false"), Some("True")] {
            assert_eq!(status(&served, method, header).await.0, INVALID_ARGUMENT, "{method} {header:?}");
        }
    }
    assert_eq!(status(&served, "FetchX509SVID", Some("true")).await.0, "", "a stream is open");
}

#[tokio::test]
async fn jwt_methods_are_unimplemented() {
    let host = Host::new();
    let served = host.serve("job").await;
    for method in ["FetchJWTSVID", "FetchJWTBundles", "ValidateJWTSVID", "FetchWITSVID", "Nonsense"] {
        assert_eq!(status(&served, method, Some("true")).await.0, UNIMPLEMENTED, "{method}");
    }
}

#[tokio::test]
async fn bundles_can_be_had_without_an_svid() {
    let host = Host::new();
    let served = host.serve("job").await;
    let client = spiffe::WorkloadApiClient::connect_to(&served.endpoint()).await.unwrap();
    let bundles = client.fetch_x509_bundles().await.unwrap();
    let (domain, bundle) = bundles.iter().next().unwrap();
    assert_eq!(domain.to_string(), "td.test");
    assert_eq!(bundle.authorities()[0].as_bytes(), &*host.issuer.authorities().borrow()[0].certificate);
}

/// All connections of one socket share one SVID, so that a job cannot make us sign in a loop.
#[tokio::test]
async fn connections_share_the_svid() {
    let host = Host::new();
    let served = host.serve("job").await;
    let mut leaves = Vec::new();
    for _ in 0..2 {
        let client = spiffe::WorkloadApiClient::connect_to(&served.endpoint()).await.unwrap();
        leaves.push(client.fetch_x509_context().await.unwrap().default_svid().unwrap().leaf().as_bytes().to_vec());
    }
    assert_eq!(leaves[0], leaves[1]);
}

#[tokio::test]
async fn a_stale_socket_is_replaced() {
    let host = Host::new();
    drop(StdListener::bind(host.socket("job")).unwrap());
    assert!(host.socket("job").exists());
    let served = host.serve("job").await;
    identity(&served, &id("job")).await;
}

#[tokio::test]
async fn a_socket_in_use_and_a_file_are_left_alone() {
    let host = Host::new();
    let served = host.serve("job").await;
    let error = host.issuer.serve(host.socket("job"), id("job")).await.err().unwrap();
    assert!(error.to_string().contains("another process serves"), "{error}");
    identity(&served, &id("job")).await;
    std::fs::write(host.socket("file"), "precious").unwrap();
    let error = host.issuer.serve(host.socket("file"), id("job")).await.err().unwrap();
    assert!(error.to_string().contains("is no socket"), "{error}");
    assert_eq!(std::fs::read(host.socket("file")).unwrap(), b"precious");
}

#[tokio::test]
async fn a_path_too_long_for_a_socket_is_told_and_the_longest_works() {
    let host = Host::new();
    let room = 107 - host.dir.path().as_os_str().len() - 1;
    let served = host.issuer.serve(host.socket(&"s".repeat(room)), id("job")).await.unwrap();
    identity(&served, &id("job")).await;
    let error = host.issuer.serve(host.socket(&"s".repeat(room + 1)), id("job")).await.err().unwrap();
    assert!(error.to_string().contains("has 108 bytes, a Unix socket takes 107"), "{error}");
}

#[tokio::test]
async fn a_socket_has_the_permissions_asked_for() {
    let host = Host::new();
    let mode = |name: &str| std::fs::metadata(host.socket(name)).unwrap().permissions().mode() & 0o777;
    let _served = host.serve("job").await;
    assert_eq!(mode("job"), 0o600);
    let access = SocketAccess { mode: 0o660 };
    let _served = host.issuer.serve_for(host.socket("group"), id("job"), access).await.unwrap();
    assert_eq!(mode("group"), 0o660);
}

#[tokio::test]
async fn a_foreign_id_is_not_served() {
    let host = Host::new();
    let foreign: SpiffeId = "spiffe://td.test.evil/job".parse().unwrap();
    assert!(host.issuer.serve(host.socket("job"), foreign).await.is_err());
    assert!(!host.socket("job").exists());
}

/// Who is dropped late does not take the socket of who came after.
#[tokio::test]
async fn only_the_own_socket_file_is_removed() {
    let host = Host::new();
    let first = host.serve("job").await;
    std::fs::remove_file(host.socket("job")).unwrap();
    let second = host.serve("job").await;
    drop(first);
    identity(&second, &id("job")).await;
}

/// A dropped identity leaves no task behind, however many clients it had.
#[tokio::test]
async fn dropping_ends_every_task() {
    let host = Host::new();
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let before = tasks();
    let served = host.serve("job").await;
    let mut clients = Vec::new();
    for _ in 0..3 {
        clients.push(spiffe::X509Source::builder().endpoint(served.endpoint()).build().await.unwrap());
    }
    assert!(tasks() > before);
    drop(served);
    for client in clients {
        client.shutdown().await;
    }
    until("all tasks have ended", async || tasks() <= before).await;
}

/// A workload that opens connections without end is bounded and harms itself alone.
#[tokio::test]
async fn connections_of_one_socket_are_bounded() {
    let host = Host::new();
    let (greedy, other) = (host.serve("greedy").await, host.serve("other").await);
    let mut held = Vec::new();
    for _ in 0..40 {
        held.push(UnixStream::connect(greedy.socket()).await.unwrap());
    }
    let late = executor::identity::exact(&greedy.endpoint(), &id("greedy"), Duration::from_millis(500)).await;
    assert!(late.is_err(), "all connections are taken");
    identity(&other, &id("other")).await;
    held.clear();
    identity(&greedy, &id("greedy")).await;
}

/// Measures what idle served sockets cost: run alone, with `--ignored --nocapture`.
#[tokio::test]
#[ignore = "a measurement"]
#[expect(clippy::print_stdout, reason = "a measurement")]
async fn cost_of_idle_sockets() {
    let host = Host::new();
    let _one = host.serve("warm").await;
    let resident = || {
        let text = std::fs::read_to_string("/proc/self/statm").unwrap();
        text.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
    };
    let (memory, begin) = (resident(), std::time::Instant::now());
    let mut served = Vec::new();
    for number in 0..200 {
        served.push(host.serve(&format!("job-{number}")).await);
    }
    let threads = std::fs::read_dir("/proc/self/task").unwrap().count();
    println!("200 idle: {} bytes each, {:?}, {threads} threads", (resident() - memory) / 200, begin.elapsed() / 200);
    let (memory, begin) = (resident(), std::time::Instant::now());
    let mut clients = Vec::new();
    for one in &served {
        clients.push(spiffe::X509Source::builder().endpoint(one.endpoint()).build().await.unwrap());
    }
    println!(
        "200 with a client in this process: {} bytes each, {:?}",
        (resident() - memory) / 200,
        begin.elapsed() / 200
    );
}
