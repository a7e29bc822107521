//! Executors as Pods: tasks that come one by one or all at once, thousands that are found at a start, tasks that wait, and
//! what an idle program asks the API server.
//!
//! The API server is our double, which is no part of what is measured: a row that its own work is in says so.

mod adopt;
mod site;
mod waiting;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use testkit::gitea::{Gitea, JobSpec};
use testkit::kubernetes::{Resource, Verb};

use super::figure::{Figure, millis};
use super::subject::now;
use super::task::fetched;
use crate::samples::Samples;
use crate::say::Step;
use site::Site;

/// From the first task of a row to its last Pod.
const LIMIT: Duration = Duration::from_secs(300);
/// Between two looks.
const LOOK: Duration = Duration::from_millis(50);
/// One task after this, ten a second.
const PACE: Duration = Duration::from_millis(100);
/// An idle program is listened to for so long.
const IDLE: Duration = Duration::from_secs(60);

/// How much of it; nothing of what is 0.
pub(super) struct Sizes<'a> {
    /// Tasks that come ten a second.
    pub(super) paced: usize,
    /// Tasks that come at once.
    pub(super) burst: usize,
    /// Executors that exist at a start, one row for each.
    pub(super) adopted: &'a [usize],
    /// Tasks that wait for a slot.
    pub(super) waiting: usize,
}

pub(super) async fn measure(program: &Path, sizes: &Sizes<'_>) -> anyhow::Result<Vec<Figure>> {
    let mut figures = Vec::new();
    if sizes.paced > 0 {
        figures.extend(paced(program, sizes.paced).await?);
    }
    if sizes.burst > 0 {
        figures.extend(burst(program, sizes.burst).await?);
    }
    for count in sizes.adopted {
        figures.extend(adopt::measure(program, *count).await?);
    }
    if sizes.waiting > 0 {
        figures.extend(waiting::measure(program, sizes.waiting).await?);
    }
    figures.extend(idle(program).await?);
    Ok(figures)
}

async fn paced(program: &Path, count: usize) -> anyhow::Result<Vec<Figure>> {
    let mut site = Site::prepare(count).await?;
    site.serve(program).await?;
    let mut step = Step::begin(format!("{count} tasks, ten a second"));
    let started = tokio::time::Instant::now();
    for number in 0..count {
        tokio::time::sleep_until(started + PACE * u32::try_from(number)?).await;
        step.tick(&format!("task {number}"));
        site.gitea.push_one(job());
    }
    all_made(&site, count).await?;
    step.end("done");
    let (durable, made): (BTreeMap<_, _>, _) = (site.told("dispatched")?.into_iter().collect(), site.created());
    let since = |begin: &dyn Fn(i64) -> Option<Duration>, end: &BTreeMap<i64, Duration>| {
        end.iter().filter_map(|(task, at)| Some(at.saturating_sub(begin(*task)?))).collect::<Samples>()
    };
    let stored = since(&|task| fetched(&site.gitea, task), &durable);
    let created = since(&|task| durable.get(&task).copied(), &made);
    let row = |what: &str, times: &Samples, percent, goal| {
        Figure::new(format!("ten tasks a second: {what}, p{percent}"), millis(times.percentile(percent)), goal)
    };
    Ok(vec![
        row("handed out → durable in NATS", &stored, 50, ""),
        row("handed out → durable in NATS", &stored, 99, "50 ms"),
        row("durable → Pod created", &created, 50, "200 ms"),
        row("durable → Pod created", &created, 99, "1 s"),
    ])
}

async fn burst(program: &Path, count: usize) -> anyhow::Result<Vec<Figure>> {
    let mut site = Site::prepare(count).await?;
    site.serve(program).await?;
    let step = Step::begin(format!("{count} tasks at once"));
    let (cpu, begin) = (site.cpu()?, now());
    site.gitea.push((0..count).map(|_| job()).collect());
    all_made(&site, count).await?;
    let made = site.created();
    let (first, last) = (made.values().min().copied(), made.values().max().copied());
    let used = (site.cpu()? - cpu).whole();
    step.end("done");
    let after = |at: Option<Duration>| millis(at.unwrap_or_default().saturating_sub(begin));
    Ok(vec![
        Figure::new(format!("{count} tasks at once: there → first Pod created (the poll)"), after(first), ""),
        Figure::new(format!("{count} tasks at once: there → last Pod created"), after(last), ""),
        Figure::new(format!("{count} tasks at once: CPU of the controller"), millis(used), ""),
    ])
}

async fn all_made(site: &Site, count: usize) -> anyhow::Result<()> {
    eventually(site, "every Pod was created", |site| site.kubernetes.count(Verb::Create, Resource::Pods) >= count).await
}

/// Looks seldom and counts calls only: the double has other work to do, and objects are copied by whoever looks at them.
async fn eventually(site: &Site, what: &str, condition: impl Fn(&Site) -> bool) -> anyhow::Result<()> {
    let until = Instant::now() + LIMIT;
    while !condition(site) {
        anyhow::ensure!(Instant::now() < until, "not within {LIMIT:?}: {what}\n{}", site.tail());
        tokio::time::sleep(LOOK).await;
    }
    Ok(())
}

/// What it asks the API server while there is nothing to do.
async fn idle(program: &Path) -> anyhow::Result<Vec<Figure>> {
    let mut site = Site::prepare(200).await?;
    site.serve(program).await?;
    let step = Step::begin(format!("idle for {} s", IDLE.as_secs()));
    // Its first list, watch and Lease are behind it.
    tokio::time::sleep(Duration::from_secs(5)).await;
    let (begin, cpu) = (Instant::now(), site.cpu()?);
    tokio::time::sleep(IDLE).await;
    let used = (site.cpu()? - cpu).whole().div_duration_f64(IDLE) * 100.0;
    let mut kinds: BTreeMap<String, usize> = BTreeMap::new();
    for call in site.kubernetes.calls().into_iter().filter(|call| call.instant >= begin) {
        *kinds.entry(format!("{} {}", call.verb.name(), call.resource.plural())).or_default() += 1;
    }
    step.end("done");
    let named: Vec<String> = kinds.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
    let calls: usize = kinds.values().sum();
    Ok(vec![
        Figure::new("idle: calls of the Kubernetes API in a minute", format!("{calls} ({})", named.join(", ")), ""),
        Figure::new("idle: CPU of a core", format!("{used:.1} %"), ""),
    ])
}

fn job() -> JobSpec {
    JobSpec::new("bench").runs_on(["pod"])
}

/// So many tasks as an earlier process held: handed out to the registration that the program has.
async fn handed_out(gitea: &Gitea, site: &Site, count: usize) -> anyhow::Result<Vec<i64>> {
    gitea.push((0..count).map(|_| job()).collect());
    let (client, mut tasks) = (site.earlier(), Vec::new());
    while tasks.len() < count {
        tasks.extend(client.take().await?.map(|task| task.id));
    }
    Ok(tasks)
}
