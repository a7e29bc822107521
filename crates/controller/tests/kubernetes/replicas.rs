//! Two controllers for one registration: a Lease of the real API server says who works.

use std::net::{Ipv4Addr, SocketAddr};
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use testkit::real::{Gate, Run, Seen, Signal, eventually, signal};
use testkit::wires::{Cable, Switchboard};
use testkit::world::asked_at;
use tokio::process::Child;

use crate::site::{JOB, Site, free_port, said};

/// NEW-59: from a kill until the other serves.
const KILLED: Duration = Duration::from_secs(20);

/// From an orderly end: the next look of a standby, and its start, on a busy machine.
const ORDERLY: Duration = Duration::from_secs(10);

/// A step for each of its leaders. Words as they are said are not found in the script, which is shown as well.
const LONG: &str = "
on: push
jobs:
  long:
    runs-on: pod
    steps:
";

const SHORT: &str = "
on: push
jobs:
  short:
    runs-on: pod
    steps:
      - run: echo ra''n
";

/// T16, T42, NEW-59, NEW-60, NEW-62, SCH-10, SCH-11, SCH-12, F48, F49, F50, F62: one job outlives four leaders, of which one
/// ends in order, one is killed, one stands still until the other leads, and one alone cannot reach the API server: each
/// time the other one leads in time and adopts its Pod, and the former one ends by itself as soon as it can know. What is
/// queued meanwhile runs once, whichever of two that listen its executor reaches.
#[tokio::test]
#[ignore = "needs a real Kubernetes: cargo xtask test --only kubernetes"]
async fn a_job_outlives_its_leaders() {
    let mut pair = Pair::start().await;
    pair.begin(0);
    pair.serves(0, JOB).await;
    pair.begin(1);
    pair.stands_by(1).await;
    let job = Long::begin(&pair.site, 4).await;
    an_orderly_end(&mut pair).await;
    job.goes_on(&pair.site, 0).await;
    a_kill(&mut pair).await;
    job.goes_on(&pair.site, 1).await;
    a_leader_that_stands_still(&mut pair).await;
    job.goes_on(&pair.site, 2).await;
    a_leader_that_is_cut_off(&mut pair, &job).await;
    pair.site.nothing_left().await;
    let made = pair.site.calls("create", "pods");
    assert_eq!(made.len(), 3, "{made:#?}");
}

async fn an_orderly_end(pair: &mut Pair) {
    let (began, process) = (Instant::now(), pair.taken(0));
    signal(process.id().unwrap(), Signal::Terminate);
    pair.serves(1, ORDERLY).await;
    say("SIGTERM until the other serves", began.elapsed());
    assert!(ended(process, &pair.site).await.success(), "{}", pair.site.log_end());
    pair.begin(0);
    pair.stands_by(0).await;
}

async fn a_kill(pair: &mut Pair) {
    let (began, mut process) = (Instant::now(), pair.taken(1));
    process.kill().await.unwrap();
    pair.serves(0, KILLED).await;
    say("SIGKILL until the other serves", began.elapsed());
    pair.begin(1);
    pair.stands_by(1).await;
}

/// It thaws when the other one has run another job.
async fn a_leader_that_stands_still(pair: &mut Pair) {
    let (began, process) = (Instant::now(), pair.taken(0));
    signal(process.id().unwrap(), Signal::Stop);
    let short = pair.site.push(SHORT).await;
    pair.serves(1, KILLED).await;
    say("SIGSTOP until the other serves", began.elapsed());
    let page = pair.site.ends(&short, "success").await;
    assert_eq!(said(&page, "ran"), 1, "{page}");
    signal(process.id().unwrap(), Signal::Continue);
    fences_itself(process, &pair.site, 1).await;
    pair.begin(0);
    pair.stands_by(0).await;
}

/// Both listen for executors, which reach one or the other. Who is cut off decides nothing meanwhile, and ends when it can
/// hear of the other one.
async fn a_leader_that_is_cut_off(pair: &mut Pair, job: &Long) {
    let (began, mut process) = (Instant::now(), pair.taken(1));
    pair.cables[1].cut();
    pair.serves(0, KILLED).await;
    say("a partition until the other serves", began.elapsed());
    let late = Long::begin(&pair.site, 2).await;
    for number in 0..2 {
        // Its next connections are to both, in turns.
        pair.facade.hang_up();
        late.goes_on(&pair.site, number).await;
    }
    late.ends(&pair.site).await;
    job.goes_on(&pair.site, 3).await;
    job.ends(&pair.site).await;
    assert!(process.try_wait().unwrap().is_none(), "{}", pair.site.log_end());
    assert!(pair.site.log().contains("nobody confirms the lease"), "{}", pair.site.log_end());
    pair.cables[1].mend();
    fences_itself(process, &pair.site, 2).await;
}

/// Ends with an error when it hears that another one leads; the process of this test that does so as the given one.
async fn fences_itself(process: Child, site: &Site, number: usize) {
    let began = Instant::now();
    assert!(!ended(process, site).await.success(), "{}", site.log_end());
    say("the former leader ended by itself within", began.elapsed());
    let lost = site.log().matches("scheduler leadership lost").count();
    assert_eq!(lost, number, "{}", site.log_end());
}

async fn ended(mut process: Child, site: &Site) -> ExitStatus {
    let status = tokio::time::timeout(JOB, process.wait()).await;
    status.unwrap_or_else(|_| panic!("it runs on:\n{}", site.log_end())).unwrap()
}

#[expect(clippy::print_stderr, reason = "a figure that a person may ask for with --nocapture")]
fn say(what: &str, took: Duration) {
    eprintln!("figure: {what}: {:.2} s", took.as_secs_f64());
}

/// A job that waits at a gate for each of its leaders.
struct Long {
    run: Run,
    gates: Vec<Gate>,
}

impl Long {
    /// Begins it, and returns when it waits at the first gate.
    async fn begin(site: &Site, leaders: usize) -> Self {
        let (mut workflow, mut gates) = (LONG.to_owned(), Vec::new());
        for number in 0..leaders {
            let gate = Gate::at(site.cluster.host_address()).await.unwrap();
            workflow += &format!("      - run: |\n          {}\n          echo wo''rd-{number}\n", gate.wait_here());
            gates.push(gate);
        }
        let run = site.push(&workflow).await;
        gates[0].arrived(1, JOB).await.unwrap_or_else(|error| panic!("{error}\n{}", site.log_end()));
        Self { run, gates }
    }

    /// What it says next is heard.
    async fn goes_on(&self, site: &Site, number: usize) {
        self.gates[number].open();
        let heard = eventually("the job's page has its next word", JOB, async || {
            let page: String = site.pages(&self.run).await.into_values().collect();
            let heard = said(&page, &format!("word-{number}")) > 0;
            Ok(if heard { Seen::Done(()) } else { Seen::NotYet(format!("{page}\n{}", site.log_end())) })
        });
        heard.await.unwrap();
    }

    async fn ends(&self, site: &Site) {
        let page = site.ends(&self.run, "success").await;
        let mut words = (0..self.gates.len()).map(|number| said(&page, &format!("word-{number}")));
        assert!(words.all(|times| times == 1), "{page}");
    }
}

/// Two replicas on this machine, behind one address for executors, each with a wire of its own to the API server.
struct Pair {
    running: [Option<Child>; 2],
    ops: [SocketAddr; 2],
    facades: [SocketAddr; 2],
    cables: [Cable; 2],
    facade: Switchboard,
    site: Site,
}

impl Pair {
    async fn start() -> Self {
        let cluster = testkit::real::kubernetes::Cluster::start().await.unwrap();
        let mut site = Site::without_controller(cluster, &[], testkit::real::NatsSettings::default()).await;
        let server: SocketAddr = site.cluster.url().strip_prefix("https://").unwrap().parse().unwrap();
        let local = |()| SocketAddr::from((Ipv4Addr::LOCALHOST, free_port(Ipv4Addr::LOCALHOST)));
        let (ops, facades) = ([(); 2].map(local), [(); 2].map(local));
        let facade = Switchboard::at(site.cluster.host_address().into(), facades.to_vec()).await.unwrap();
        let url = format!("https://{}", facade.address());
        site.prepare(&[("LEADER_ELECTION", "kubernetes"), ("RUNNER_FACADE_URL", &url)]).await;
        let cables = [Cable::to(server).await.unwrap(), Cable::to(server).await.unwrap()];
        Self { running: [None, None], ops, facades, cables, facade, site }
    }

    fn begin(&mut self, number: usize) {
        self.running[number] = Some(self.site.replica(&[
            ("STATE_DIR", self.site.dir.path().join(format!("state-{number}")).display().to_string()),
            ("OPS_LISTEN", self.ops[number].to_string()),
            ("RUNNER_FACADE_LISTEN", self.facades[number].to_string()),
            ("KUBERNETES_API", format!("https://{}", self.cables[number].address())),
        ]));
    }

    fn taken(&mut self, number: usize) -> Child {
        self.running[number].take().unwrap()
    }

    async fn serves(&self, number: usize, limit: Duration) {
        self.shows(number, limit, |status, _| status == 200).await;
    }

    async fn stands_by(&self, number: usize) {
        self.shows(number, JOB, |status, body| status == 503 && body.contains("\"standby\"")).await;
    }

    /// Waits until its readiness is so.
    async fn shows(&self, number: usize, limit: Duration, fits: impl Fn(u16, &str) -> bool) {
        let address = self.ops[number].to_string();
        let shown = eventually("a replica shows how it is", limit, async || {
            let answer = asked_at(&address, "/readyz").await;
            let shown = answer.as_ref().is_ok_and(|(status, body)| fits(*status, body));
            Ok(if shown { Seen::Done(()) } else { Seen::NotYet(format!("{answer:?}\n{}", self.site.log_end())) })
        });
        shown.await.unwrap();
    }
}
