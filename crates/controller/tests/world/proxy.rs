//! What a job reaches through the loopback proxy (T19, F100 to F103, NEW-94 to NEW-97).

use testkit::gitea::Status;
use testkit::world::{Plan, SOON, World, job};

use crate::{planned, world};

/// Runs a job of these requests; their answers in order.
async fn asked(world: &World, requests: &[&str]) -> Vec<String> {
    let script: Vec<_> = requests.iter().map(|request| format!("proxy {request}")).collect();
    let job = world.push_one(job("asks", &[&script.join("\n")]));
    let state = world.ends_as(job, Status::Success, SOON).await;
    world.desk.told(state.task.unwrap(), "proxy")
}

/// T19, NEW-95, F100: the allow-list, and nothing beside it.
#[tokio::test]
async fn the_allow_list() {
    let world = world(1).await;
    let allowed = [
        "GET /api/v1/version",
        "GET /acme/app/info/refs?service=git-upload-pack",
        "POST /acme/app.git/git-upload-pack Content-Length=0",
        "POST /acme/app.git/info/lfs/objects/batch Content-Length=0",
        "POST /twirp/github.actions.results.api.v1.ArtifactService/CreateArtifact Content-Length=0",
    ];
    for answer in asked(&world, &allowed).await {
        assert!(answer.ends_with(" 200"), "{answer}");
    }
    assert_eq!(world.gitea.seen().len(), allowed.len());
    let denied = [
        "GET /",
        "POST / Content-Length=0",
        "GET /metrics",
        "GET /api/internal/x",
        "GET /-/admin",
        "GET /user/login",
        "GET /acme/app",
        "GET /api/actions/runner.v1.RunnerService/FetchTask",
        "POST /executor/v1/report Content-Length=0",
        "POST /ping.v1.PingService/Ping Content-Length=0",
    ];
    for answer in asked(&world, &denied).await {
        assert!(answer.ends_with(" 403") || answer.ends_with(" 401"), "{answer}");
    }
    assert_eq!(world.gitea.seen().len(), allowed.len(), "it never reached Gitea");
    world.finish().await;
}

/// NEW-95: a list of one's own replaces the built-in one.
#[tokio::test]
async fn a_list_of_ones_own() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "# little\nGET /api/v1/version\n* /*/*/**\n").unwrap();
    let world = planned(Plan::capacity(1).set("PROXY_PATHS_FILE", file.path().to_str().unwrap())).await;
    let requests = ["GET /api/v1/version", "GET /acme/app/wiki", "GET /api/v1/user", "GET /api/internal/x"];
    let answers = asked(&world, &requests).await;
    assert_eq!(
        answers.iter().map(|answer| &answer[answer.len() - 3..]).collect::<Vec<_>>(),
        ["200", "200", "403", "403"]
    );
    world.finish().await;
}

/// T19, NEW-97, F102: every trick with a path or a request is refused before Gitea sees anything.
#[tokio::test]
async fn tricks() {
    let world = world(1).await;
    let tricks = [
        "POST /api/actions/runner.v1.RunnerService%2FFetchTask Content-Length=0",
        "POST /api%2Factions/runner.v1.RunnerService/FetchTask Content-Length=0",
        "POST /api/actions/%2e%2e/actions/runner.v1.RunnerService/FetchTask Content-Length=0",
        "POST /api/v1/%2e%2e/actions/runner.v1.RunnerService/FetchTask Content-Length=0",
        "POST /api/v1/../actions/runner.v1.RunnerService/FetchTask Content-Length=0",
        "POST /API/actions/runner.v1.RunnerService/FetchTask Content-Length=0",
        "POST //api/actions/runner.v1.RunnerService/FetchTask Content-Length=0",
        "GET //api/v1/version",
        "GET /./api/v1/version",
        "GET /api/v1/%00",
        "GET /api/v1/a%5Cb",
        "GET /api/v1/a\\b",
        "GET http://elsewhere.invalid/api/v1/version",
        "POST /api/v1/x Content-Length=0 Content-Length=5",
        "GET /api/v1/version Host=a.invalid Host=b.invalid",
        "CONNECT elsewhere.invalid:443",
    ];
    for answer in asked(&world, &tricks).await {
        assert!(answer.ends_with(" 400") || answer.ends_with(" 403"), "{answer}");
    }
    assert!(world.gitea.seen().is_empty(), "{:?}", world.gitea.seen());
    world.finish().await;
}

/// T19, NEW-96, F103, F101: Gitea sees its own Host and our forwarding values, and no header that speaks of an
/// identity.
#[tokio::test]
async fn headers() {
    let world = world(1).await;
    let request = "GET /api/v1/version Accept=application/json Authorization=Bearer:x X-WEBAUTH-USER=admin \
                   X-Forwarded-For=10.0.0.1 X-Forwarded-Host=evil.invalid X-Forwarded-Proto=https Forwarded=for=10.0.0.1 \
                   X-Real-IP=10.0.0.1 x-runner-uuid=u x-runner-token=t Host=evil.invalid Connection=x-hop x-hop=1";
    assert_eq!(asked(&world, &[request]).await, ["GET /api/v1/version 200"]);
    let seen = world.gitea.seen().remove(0);
    let address = world.gitea.address().to_string();
    assert_eq!(seen.header("host"), Some(address.as_str()));
    assert_eq!(seen.header("accept"), Some("application/json"));
    assert_eq!(seen.header("x-forwarded-proto"), Some("http"));
    let names: Vec<_> = seen.headers.iter().map(|(name, _)| name.as_str()).collect();
    for name in
        ["x-webauth-user", "x-forwarded-for", "x-forwarded-host", "forwarded", "x-real-ip", "x-hop", "x-runner-uuid"]
    {
        assert!(!names.contains(&name), "{names:?}");
    }
    assert!(seen.headers.iter().all(|(_, value)| value != "t"), "{:?}", seen.headers);
    world.finish().await;
}
