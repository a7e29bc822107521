//! Tasks that wait because the namespace takes no more Pods: the memory they are held in, and what keeping them alive costs.
//! A look-ahead is far smaller, so so many wait only where slots are free and nothing can be made of them.

use std::path::Path;
use std::time::Duration;

use super::site::{NAMESPACE, Site};
use super::{eventually, job};
use crate::bench::figure::{Figure, mib, millis};
use crate::bench::process::Memory;
use crate::say::Step;

const MINUTE: Duration = Duration::from_secs(60);
/// Minutes that are told one by one: whether memory grows is seen by comparing them.
const MINUTES: usize = 3;

pub(super) async fn measure(program: &Path, count: usize) -> anyhow::Result<Vec<Figure>> {
    let mut site = Site::prepare(count).await?;
    site.kubernetes.set_quota(NAMESPACE, 0);
    let mut step = Step::begin(format!("{count} tasks that wait"));
    site.serve(program).await?;
    step.tick("until they are fetched and stored");
    site.gitea.push((0..count).map(|_| job()).collect());
    eventually(&site, "every task is stored", |site| site.tells("dispatched") >= count).await?;
    let mut figures = Vec::new();
    let row = |what: String, value, goal| Figure::new(format!("{count} waiting tasks: {what}"), value, goal);
    for minute in 1..=MINUTES {
        let cpu = site.cpu()?;
        tokio::time::sleep(MINUTE).await;
        step.tick(&format!("minute {minute}"));
        let used = (site.cpu()? - cpu).whole();
        let Memory { all, own } = site.memory()?;
        let memory = format!("{}, {}", mib(all), mib(own));
        figures.push(row(format!("memory after {minute} min: resident, of it private"), memory, "60 MiB, flat"));
        figures.push(row(
            format!("CPU in minute {minute}, a sign of life every 5 s for each in it"),
            millis(used),
            "flat",
        ));
    }
    step.end("done");
    Ok(figures)
}
