//! Gitea is away (T34, F16): the process stays, jobs go on, everything is delivered when it is back.

use std::time::Duration;

use connectrpc::ErrorCode;
use testkit::gitea::{Away, Call, CallEnd, FaultSpec, Gitea, JobId, Latency, Method, Status};
use testkit::world::{SOON, World, job};

use crate::world;

/// A runner's rows and its state are each held for 10 s before it may end.
const HELD: Duration = Duration::from_secs(20);

/// The ways of being away that end a call at once.
const WAYS: [Away; 2] = [Away::Refusing, Away::Unavailable];

/// T34, NEW-13, F16: at the start of a controller that is registered already.
#[tokio::test]
async fn at_the_start() {
    let mut world = world(1).await;
    for away in WAYS {
        world.nothing_left().await;
        assert!(world.sigterm(SOON).await.success());
        world.gitea.set_away(away);
        let (before, declared) = (world.gitea.connections(), world.gitea.counters().declares);
        let fetches = world.gitea.counters().fetches;
        world.restart();
        world.gitea_shows("it has tried", |gitea| gitea.connections() > before).await;
        world.gitea.set_away(Away::No);
        world.gitea_shows("it has declared itself", |gitea| gitea.counters().declares > declared).await;
        let job = world.push_one(job("after", &["say here"]));
        world.ends_as(job, Status::Success, SOON).await;
        let now = world.gitea.counters();
        assert!(now.declares == declared + 1 && now.fetches <= fetches + 4, "a herd at its return: {now:?}");
    }
    world.finish().await;
}

/// T34, NEW-13, F16: in the middle of a job that writes on, and at its end: every row once, the true result, and the
/// runner does not wait for it. Away behind closed doors, behind a reverse proxy, and with Gitea's own error for every
/// call; in the last case the controller is killed meanwhile.
#[tokio::test]
async fn in_mid_job_and_at_its_end() {
    let set = |away: Away| move |gitea: &Gitea| gitea.set_away(away);
    let broken = |gitea: &Gitea| {
        gitea.fail_all(&FaultSpec::gitea(ErrorCode::Internal, "database is locked").times(u32::MAX));
    };
    let nothing = |_: &mut World| {};
    let kill = |world: &mut World| {
        world.kill9();
        world.restart();
    };
    tokio::join!(
        away_in_mid_job(set(Away::Refusing), nothing),
        away_in_mid_job(set(Away::Unavailable), nothing),
        away_in_mid_job(broken, kill),
    );
}

async fn away_in_mid_job(leave: impl Fn(&Gitea), meanwhile: impl Fn(&mut World)) {
    let mut world = world(1).await;
    let job = in_the_middle(&world, "burst 120\ngate middle\nburst 120").await;
    leave(&world.gitea);
    world.desk.open_gate("middle");
    world.eventually("the runner has gone", HELD + SOON, |world| none(world.runners().len())).await;
    assert_eq!(world.gitea.state(job).status, Status::Running);
    meanwhile(&mut world);
    world.gitea.set_away(Away::No);
    world.gitea.clear_faults();
    assert_exact(&world, job).await;
    world.finish().await;
}

/// F10, F161: a slow Gitea is waited for, one call of a task at a time.
#[tokio::test]
async fn slow() {
    let world = world(2).await;
    world.gitea.set_latency(Latency::between(Duration::from_millis(200), Duration::from_millis(700), 5));
    let jobs = world.push([job("one", &["burst 300", "burst 300"]), job("two", &["fail"])]);
    world.ends_as(jobs[0], Status::Success, SOON).await;
    world.ends_as(jobs[1], Status::Failure, SOON).await;
    world.finish().await;
}

async fn in_the_middle(world: &World, first: &str) -> JobId {
    let job = world.push_one(job("long", &[first, "say second"]));
    let stored = |gitea: &Gitea| gitea.state(job).rows().contains(&"row 120");
    world.gitea_shows("the rows before the gate are stored", stored).await;
    job
}

async fn assert_exact(world: &World, job: JobId) {
    let state = world.ends_as(job, Status::Success, SOON).await;
    let row = |row: usize| format!("row {row}");
    let first: Vec<_> = (1..=120).map(row).chain((1..=120).map(row)).collect();
    assert_eq!(state.page().steps, [first, vec!["second".to_owned()]]);
}

fn none(count: usize) -> Result<(), String> {
    if count == 0 { Ok(()) } else { Err(format!("{count} left")) }
}

/// NEW-20, F11: one job that Gitea cannot parse makes every FetchTask fail. The process stays and asks ever more slowly,
/// says why, counts by class, and goes on when the job is gone; what runs is not touched.
#[tokio::test]
async fn a_broken_job_spoils_every_fetch() {
    let world = world(2).await;
    let runs = world.push_one(job("runs", &["gate open"]));
    world.desk.arrived("open", 1, SOON).await;
    world.gitea.break_picks(Some("pick task: yaml: line 1: did not find expected key"));
    let waits = world.push_one(job("waits", &["say here"]));
    let refused = |gitea: &Gitea| gitea.calls().iter().filter(|call| is_refused_fetch(call)).count();
    world.gitea_shows("four refusals", |gitea| refused(gitea) >= 4).await;
    let at: Vec<_> =
        world.gitea.calls().iter().filter(|call| is_refused_fetch(call)).map(|call| call.instant).collect();
    for (pair, seconds) in at.windows(2).zip([1.0, 2.0, 4.0]) {
        let pause = pair[1].duration_since(pair[0]).as_secs_f64();
        assert!(pause >= 0.8 * seconds, "{pause} s instead of {seconds} s");
    }
    assert!(world.log().contains("did not find expected key"), "the cause is said");
    let metrics = metrics(&world).await;
    assert!(metrics.contains("gdr_fetch_errors_total{code=\"internal\"} "), "{metrics}");
    world.desk.open_gate("open");
    world.ends_as(runs, Status::Success, SOON).await;
    world.gitea.break_picks(None);
    world.ends_as(waits, Status::Success, SOON).await;
    world.finish().await;
}

fn is_refused_fetch(call: &Call) -> bool {
    call.method == Method::FetchTask && matches!(call.end, CallEnd::Answered { status: 500, .. })
}

async fn metrics(world: &World) -> String {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let address = std::fs::read_to_string(world.state().join("ops.addr")).unwrap();
    let address = address.trim().trim_start_matches("http://");
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let request = format!("GET /metrics HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    tokio::time::timeout(SOON, stream.read_to_string(&mut answer)).await.unwrap().unwrap();
    answer
}
