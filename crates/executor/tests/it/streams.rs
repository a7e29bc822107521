//! What a job asks of Gitea through the loopback address.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use domain::executor_api::GITEA_BASE_HEADER;
use http_body_util::Full;
use hyper::Response;
use tokio::sync::Notify;

use crate::double::{Act, CAPABILITY, Facade, Seen};
use crate::world::{Run, limits, steps};

fn stream_answer(path: &str) -> Response<Full<Bytes>> {
    let (kind, body) = match path {
        "/lab/once.git/info/refs" => ("text/plain", "refs of https://git.example.org/x"),
        _ => ("application/json", r#"{"signedUploadUrl":"https://git.example.org/twirp/up?sig=1"}"#),
    };
    let response =
        Response::builder().header("content-type", kind).header(GITEA_BASE_HEADER, "https://git.example.org");
    response.body(Full::new(Bytes::from(body))).unwrap()
}

/// T67, NEW-110, NEW-117, F84, F113: a step's calls carry the executor's credentials and not its own; artifact URLs
/// come back through the proxy; nothing else is edited, and what the facade says to the proxy stays there; the
/// executor's own routes are closed.
#[tokio::test]
async fn a_step_talks_to_gitea() {
    let script = "\
curl -sS -H 'x-runner-token: forged' -H 'x-runner-uuid: forged' -H 'authorization: Basic job' $GITHUB_SERVER_URL/lab/once.git/info/refs; echo
curl -sS -X POST -d '{}' $GITHUB_SERVER_URL/twirp/github.actions.results.api.v1.ArtifactService/CreateArtifact | sed \"s#$GITHUB_SERVER_URL#OWN#\"; echo
curl -sS -o /dev/null -w 'report %{http_code}\\n' -X POST -d '{\"event\":\"hello\"}' $GITHUB_SERVER_URL/executor/v1/report
curl -sS -o /dev/null -w 'fetch %{http_code}\\n' -X POST -H 'content-type: application/proto' $GITHUB_SERVER_URL/api/actions/runner.v1.RunnerService/FetchTask
curl -sS -o /dev/null -w 'spelled %{http_code}\\n' --path-as-is -X POST $GITHUB_SERVER_URL/api/./actions/runner.v1.RunnerService/FetchTask
curl -sS -o /dev/null -D - $GITHUB_SERVER_URL/lab/once.git/info/refs | grep -qi x-gdr && echo told || echo untold";
    let facade = Facade::with_streams(steps(&[script]), |_| Act::Serve, stream_answer).await;
    assert_eq!(Run::start(&facade, limits()).code().await, 0);
    let log = facade.log();
    for row in [
        "refs of https://git.example.org/x",
        r#"{"signedUploadUrl":"OWN/twirp/up?sig=1"}"#,
        "report 403",
        "fetch 401",
        "spelled 400",
        "untold",
    ] {
        assert!(log.iter().any(|have| have == row), "{row} is not in {log:#?}");
    }
    let seen = facade.seen();
    let streams = seen
        .iter()
        .filter_map(|seen| if let Seen::Stream { path, headers } = seen { Some((path, headers)) } else { None });
    let streams: Vec<_> = streams.collect();
    assert_eq!(streams.len(), 3, "{streams:?}");
    let (_, headers) = streams.first().unwrap();
    assert_eq!(headers.get("authorization").unwrap(), "Basic job");
    assert_eq!(headers.get("x-runner-token").unwrap(), CAPABILITY);
    assert_eq!(headers.get("host").unwrap(), "facade.invalid");
}

/// §1.4: an upstream that falls silent costs a job the limit and no more.
#[tokio::test]
async fn a_silent_upstream() {
    let script = "curl -sS -m 20 -o /dev/null -w 'silence %{http_code}\\n' $GITHUB_SERVER_URL/lab/once.git/info/refs";
    let facade = Facade::start(steps(&[script]), |seen| match seen.last() {
        Some(Seen::Stream { .. }) => Act::Wait(Arc::new(Notify::new())),
        _ => Act::Serve,
    })
    .await;
    let limits = executor::Limits { no_progress: Duration::from_millis(500), ..limits() };
    assert_eq!(Run::start(&facade, limits).code().await, 0);
    let log = facade.log();
    assert!(log.iter().any(|row| row == "silence 504"), "{log:#?}");
}

/// EXE-2, T67, NEW-117, F113: the proxy listens on 127.0.0.1 alone, so that no other address reaches it, not even another one
/// of loopback.
#[tokio::test]
async fn the_proxy_is_on_loopback_alone() {
    let facade = Facade::start(steps(&["echo \"at $GITHUB_SERVER_URL\"; sleep 3"]), |_| Act::Serve).await;
    let run = Run::start(&facade, limits());
    facade
        .until(|seen| matches!(seen, Seen::Log(log) if log.rows.iter().any(|row| row.content.starts_with("at http"))))
        .await;
    let log = facade.log();
    let url = log.iter().find_map(|row| row.strip_prefix("at http://127.0.0.1:")).unwrap();
    let port: u16 = url.trim_end_matches('/').parse().unwrap();
    let reaches = async |host: &str| tokio::net::TcpStream::connect((host, port)).await.is_ok();
    assert!(reaches("127.0.0.1").await);
    assert!(!reaches("127.0.0.2").await && !reaches("::1").await);
    let local: Vec<String> = listeners(port);
    assert_eq!(local, [format!("0100007F:{port:04X}")]);
    assert_eq!(run.code().await, 0);
}

/// The addresses on which somebody listens at this port, as the kernel's table spells them.
fn listeners(port: u16) -> Vec<String> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(|table| std::fs::read_to_string(table).unwrap_or_default());
    let words = tables.iter().flat_map(|table| table.lines()).map(|line| line.split_whitespace().collect::<Vec<_>>());
    let listening = words.filter(|words| words.get(3) == Some(&"0A"));
    listening.map(|words| words[1].to_owned()).filter(|local| local.ends_with(&format!(":{port:04X}"))).collect()
}
