//! The Kubernetes API is away: when a job ends, and for long.

use std::time::{Duration, Instant};

use testkit::gitea::{Gitea, JobId, Status};
use testkit::kubernetes::{Call, Fault, On, Resource, Verb};
use testkit::outcome::Rule;
use testkit::world::SOON;

use crate::site::text;
use crate::{Site, job, site};

/// A runner that has to wait for anything but Gitea waits longer.
const AT_ONCE: Duration = Duration::from_secs(5);

/// The longest that a task may wait for its executor.
const WAIT: Duration = Duration::from_secs(25);

/// From now on every call fails so, the watch that is open included.
fn goes_away(site: &Site, how: Fault) {
    site.kubernetes.fail(On::any(), how.always());
    site.kubernetes.cut_watches();
}

/// A running job for each of these keys, at a gate of its own, with its Pod.
async fn running<const N: usize>(site: &Site, keys: [&str; N]) -> [(JobId, String); N] {
    let gates = keys.map(|key| format!("gate {key}"));
    running_as(site, std::array::from_fn(|n| (keys[n], gates[n].as_str()))).await
}

/// The same with a step that comes to a gate of its key.
async fn running_as<const N: usize>(site: &Site, steps: [(&str, &str); N]) -> [(JobId, String); N] {
    let jobs = steps.map(|(key, step)| site.gitea.push_one(job(key, &[step])));
    for (key, _) in steps {
        site.desk.arrived(key, 1, SOON).await;
    }
    // What comes next of these is their end: a step that begins waits for its record (NEW-27).
    let begun = |gitea: &Gitea, job| gitea.state(job).steps.iter().any(|step| step.status == Status::Running);
    let all = |gitea: &Gitea| jobs.iter().all(|job| begun(gitea, *job));
    site.check(site.gitea.wait_for("their steps run", all, SOON).await);
    let gone = |site: &Site| site.kubernetes.names(Resource::Secrets).is_empty();
    site.eventually("their Secrets are gone", SOON, gone).await;
    jobs.map(|job| (job, pod_of(site, job)))
}

fn pod_of(site: &Site, job: JobId) -> String {
    let of_task = format!("gitea-task-{}-", site.gitea.state(job).task.unwrap());
    site.kubernetes.names(Resource::Pods).into_iter().find(|name| name.starts_with(&of_task)).unwrap()
}

/// A job is let go, and its runner has Gitea's answer before anybody could wait for a mark.
async fn ends_at_once(site: &Site, key: &str, job: JobId) {
    let task = site.gitea.state(job).task.unwrap();
    site.desk.open_gate(key);
    let answered = |notes: &[testkit::world::Note]| {
        notes.iter().any(|note| note.task == task && note.verb == "final" && note.rest == "SUCCESS")
    };
    site.desk.until("the runner has its answer", AT_ONCE, answered).await;
    assert_eq!(site.gitea.state(job).status, Status::Success);
}

/// How often Gitea was told an end of this job.
fn ends_told(site: &Site, job: JobId) -> usize {
    let calls = site.gitea.calls_of(site.gitea.state(job).task.unwrap());
    calls.iter().filter(|call| call.told().is_some()).count()
}

/// When it was tried to mark or to remove what was made for a job: a removal begins with the entry.
fn tries(site: &Site, job: JobId, since: Instant) -> Vec<Instant> {
    let of_task = format!("gitea-task-{}-", site.gitea.state(job).task.unwrap());
    let ours = |call: &Call| {
        let kind = call.is(Verb::Patch, Resource::Pods) || call.is(Verb::Delete, Resource::ClusterStaticEntries);
        kind && call.name.starts_with(&of_task) && call.instant >= since
    };
    site.kubernetes.calls().iter().filter(|call| ours(call)).map(|call| call.instant).collect()
}

/// The lines of the log that say so of a job.
fn lines(site: &Site, job: JobId, words: &str) -> usize {
    let task = format!("\"task_id\":{},", site.gitea.state(job).task.unwrap());
    site.log().lines().filter(|line| line.contains(words) && line.contains(&task)).count()
}

/// Two jobs end while the API is away so; one of the Pods is deleted by hand meanwhile.
async fn ends_while_away(how: Fault) {
    let site = site(2).await;
    let [(stays, _), (goes, pod)] = running(&site, ["stays", "goes"]).await;
    goes_away(&site, how);
    let away = Instant::now();
    for (key, job) in [("stays", stays), ("goes", goes)] {
        ends_at_once(&site, key, job).await;
    }
    site.kubernetes.force_delete(&pod);
    let failed = |site: &Site| [stays, goes].iter().all(|job| lines(site, *job, "terminal mark: ") > 0);
    site.eventually("no mark is taken", SOON, failed).await;
    // From then on nobody knows what is there, and nothing is tried.
    site.eventually("no list is either", 2 * SOON, |site| site.log().contains("list Pods: ")).await;
    for job in [stays, goes] {
        let tries = tries(&site, job, away).len();
        // A mark and perhaps a removal; the client repeats by itself what a connection lost that had been idle.
        assert!(tries <= 4, "{tries} tries");
        assert_eq!(lines(&site, job, "terminal mark: "), 1, "{}", site.log());
        assert!(lines(&site, job, "removal: ") <= 1, "{}", site.log());
    }
    site.kubernetes.clear_faults();
    // Sooner than two looks at all entries.
    let gone = |site: &Site| {
        [Resource::Pods, Resource::ClusterStaticEntries].iter().all(|kind| site.kubernetes.names(*kind).is_empty())
    };
    site.eventually("nothing is left of them", Duration::from_secs(28), gone).await;
    let next = site.gitea.push(vec![job("next", &["gate next"]), job("other", &["gate next"])]);
    site.desk.arrived("next", 2, SOON).await;
    site.desk.open_gate("next");
    for job in next {
        site.ends_as(job, Status::Success, SOON).await;
    }
    assert_eq!([stays, goes].map(|job| ends_told(&site, job)), [1, 1]);
    site.finish().await;
}

/// T10, POD-8, NEW-101, FAC-9, F109: Gitea accepts the results while the API cannot be reached, hangs, or answers 500. The
/// runners have their answer at once, the log has one line for each of them, and what was made is gone when the API is back, a
/// Pod that was deleted by hand included. Gitea is told each end once.
#[tokio::test]
async fn when_jobs_end() {
    tokio::join!(ends_while_away(Fault::cut()), ends_while_away(Fault::internal()), ends_while_away(Fault::hang()));
}

/// T10, POD-8, NEW-101, F109: as long as its runner tidies up, the mark is tried again after pauses that grow, whether the API
/// fails or others wrote meanwhile, and the log has one line of each failure.
#[tokio::test]
async fn a_mark_comes_later() {
    let site = Site::start(1, &[("TERMINAL_GRACE", "12s")]).await;
    let [(one, pod)] = running_as(&site, [("one", "gate one\non-cancel ignore\ntry success\nhang")]).await;
    let patches = || On::call(Verb::Patch, Resource::Pods);
    for fault in [Fault::internal(), Fault::conflict()] {
        site.kubernetes.fail(patches(), fault);
    }
    let asked = Instant::now();
    site.desk.open_gate("one");
    site.ends_as(one, Status::Success, SOON).await;
    let marked = |site: &Site| {
        let pod = site.kubernetes.object(Resource::Pods, &pod).unwrap_or_default();
        text(&pod, "/metadata/labels/ci.ddupan.top~1terminal") == "true"
    };
    site.eventually("it is marked", SOON, marked).await;
    let tries = tries(&site, one, asked);
    // 2 s and 4 s, a fifth more or less.
    assert!(tries.len() == 3 && tries[2] - tries[1] > tries[1] - tries[0], "{tries:?}");
    for failure in ["terminal mark: ", "was told to fail", "has been modified"] {
        let expected = if failure == "terminal mark: " { 2 } else { 1 };
        assert_eq!(lines(&site, one, failure), expected, "{failure}: {}", site.log());
    }
    assert_eq!(ends_told(&site, one), 1);
    // Its runner said itself how it ends, and stayed.
    site.finish_but_for(&[Rule::FalseSuccess, Rule::Rows]).await;
}

/// T10, POD-8, NEW-101, WRK-8, F109: the controller is killed before it could mark, starts while the API still refuses, and one of
/// the Pods is deleted by hand: both are found ended or gone when it answers, and Gitea is told no end a second time.
#[tokio::test]
async fn killed_before_the_mark() {
    let mut site = site(2).await;
    let [(stays, _), (goes, pod)] = running(&site, ["stays", "goes"]).await;
    goes_away(&site, Fault::internal());
    for (key, job) in [("stays", stays), ("goes", goes)] {
        ends_at_once(&site, key, job).await;
    }
    site.kill9(0).await;
    site.kubernetes.force_delete(&pod);
    let restarted = Instant::now();
    site.restart();
    let listed = |call: &Call| call.is(Verb::List, Resource::Pods) && call.instant >= restarted;
    site.eventually("it has asked for its Pods", SOON, |site| {
        site.kubernetes.calls().iter().filter(|call| listed(call)).count() >= 2
    })
    .await;
    site.kubernetes.clear_faults();
    let next = site.gitea.push(vec![job("next", &["gate next"]), job("other", &["gate next"])]);
    site.desk.arrived("next", 2, 2 * SOON).await;
    site.desk.open_gate("next");
    for job in next {
        site.ends_as(job, Status::Success, SOON).await;
    }
    assert_eq!([stays, goes].map(|job| ends_told(&site, job)), [1, 1]);
    assert_eq!([stays, goes].map(|job| site.gitea.state(job).status), [Status::Success; 2]);
    // It asks for an end that nobody could note.
    site.finish_but_for(&[Rule::UpdateAfterEnd]).await;
}

/// The most calls within one second, of those since then.
fn busiest_second(site: &Site, since: Instant) -> usize {
    let calls: Vec<Instant> =
        site.kubernetes.calls().iter().map(|call| call.instant).filter(|at| *at >= since).collect();
    let within =
        |from: &Instant| calls.iter().filter(|at| **at >= *from && at.duration_since(*from).as_secs() < 1).count();
    calls.iter().map(within).max().unwrap_or_default()
}

/// T42, NEW-28, NEW-46, NEW-15, PRC-5, F33: the API refuses everything for longer than a task may wait. A job that runs already
/// goes on; those that wait have the cause on their pages and end with their reason when they have waited for too long; what
/// Gitea still has stays there. All the while, and when the API is back, calls are few, and there are no more Pods than slots.
#[tokio::test]
async fn for_longer_than_anybody_waits() {
    let site = Site::start(4, &[("QUEUE_WAIT_LIMIT", &format!("{}s", WAIT.as_secs()))]).await;
    let [(runs, _)] = running(&site, ["runs"]).await;
    goes_away(&site, Fault::unavailable(None));
    let away = Instant::now();
    let waiting = ["a", "b", "c"].map(|key| site.gitea.push_one(job(key, &["say never"])));
    for job in waiting {
        let cause =
            |row: &&str| row.contains("Waiting for another attempt") && row.contains("currently unable to handle");
        site.eventually("its page has the cause", SOON, |site| site.gitea.state(job).rows().iter().any(cause)).await;
    }
    let later: Vec<_> = (1..=20).map(|n| site.gitea.push_one(job(&format!("later{n}"), &["gate later"]))).collect();
    for job in waiting {
        let state = site.ends_as(job, Status::Failure, 2 * SOON).await;
        let reason =
            |row: &&str| row.starts_with("##[error]queue_timeout: ") && row.contains("currently unable to handle");
        assert!(state.rows().iter().any(reason), "{:?}", state.rows());
    }
    assert_eq!(site.gitea.state(runs).status, Status::Running);
    // A full house asks Gitea for nothing.
    assert!(later.iter().all(|job| site.gitea.state(*job).task.is_none()), "one was fetched");
    let calls = site.kubernetes.calls().iter().filter(|call| call.instant >= away).count();
    assert!(calls <= 2 * WAIT.as_secs() as usize, "{calls} calls while the API is away");
    let back = Instant::now();
    site.kubernetes.clear_faults();
    site.desk.arrived("later", 3, 2 * SOON).await;
    let creates = site.kubernetes.calls_of(Verb::Create, Resource::Pods);
    assert_eq!(creates.iter().filter(|call| call.instant >= back).count(), 3);
    // A Pod takes about eight.
    let busiest = busiest_second(&site, back);
    let kinds = site.kubernetes.calls().into_iter().filter(|call| call.instant >= back);
    let kinds: Vec<_> = kinds.map(|call| format!("{} {:?} {}", call.verb.name(), call.resource, call.name)).collect();
    assert!(busiest <= 40, "a herd at its return: {busiest} calls in a second: {kinds:#?}");
    for gate in ["later", "runs"] {
        site.desk.open_gate(gate);
    }
    for job in later.into_iter().chain([runs]) {
        site.ends_as(job, Status::Success, 3 * SOON).await;
    }
    site.finish().await;
}
