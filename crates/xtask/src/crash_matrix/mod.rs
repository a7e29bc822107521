//! `cargo xtask crash-matrix`: the controller is killed at each of its boundaries and started anew, and every task must
//! come to its end as if nothing had happened (NEW-148, T5).

mod plan;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use anyhow::Context as _;
use serde::Serialize;
use tempfile::TempDir;
use testkit::crash::{Moment, Point, Scene, Setting, Verdict, record, strike};
use testkit::world::Programs;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::backend_kind::BackendKind;
use crate::mutations::{draw, of_commit};
use crate::queue_kind::QueueKind;
use crate::rows::{Tally, conclude, table};
use crate::say::{self, Step};
use crate::sides::Sides;

/// Kill the controller at each of its boundaries, start it anew, and judge what follows.
///
/// A boundary is a call to Gitea, to NATS or to Kubernetes, or a change of the state folder. Scenes are played twice to record them; then each is
/// struck in a run of its own: calls before they are forwarded, between their effect and the answer, and after the
/// answer; changes before they are made. Nothing is judged by the program's own words.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Only the points with these words in them; a whole point repeats it without recording.
    #[arg(long, value_name = "FILTER", default_value = "")]
    only: String,
    /// Only so many of them, drawn by `--seed`.
    #[arg(long, value_name = "COUNT")]
    sample: Option<usize>,
    /// What the draw starts from; without it the current commit, so that each commit draws others.
    #[arg(long)]
    seed: Option<u64>,
    /// Runs at a time.
    #[arg(long, value_name = "COUNT", default_value_t = AT_A_TIME)]
    jobs: usize,
    /// Where tasks wait; the calls to NATS are boundaries too.
    #[arg(long, value_enum, default_value_t)]
    queue: QueueKind,
    /// Where executors are made; the calls to Kubernetes are boundaries too.
    #[arg(long, value_enum, default_value_t)]
    backend: BackendKind,
    /// Print the points, and strike none.
    #[arg(long)]
    list: bool,
    /// Write a row per point into this file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Runs at a time: most of a run is waiting.
const AT_A_TIME: usize = 8;

/// A point that is not reached in one run may be in the next: runners report by the clock.
const TRIES: usize = 3;

/// So many points of a hundred may stay unreached.
const UNREACHED_PER_CENT: usize = 2;

#[derive(Serialize)]
struct Row {
    point: String,
    #[serde(skip)]
    scene: Option<Scene>,
    #[serde(skip)]
    moment: Option<Moment>,
    verdict: &'static str,
    seconds: f64,
    wrong: Vec<String>,
}

pub(crate) async fn main(root: &Path, arguments: Arguments) -> anyhow::Result<ExitCode> {
    let (programs, _kept) = programs(root).await?;
    let programs = Arc::new(programs);
    let sides = Sides { queue: arguments.queue, backend: arguments.backend };
    let mut complaints = Vec::new();
    let mut points = match arguments.only.parse() {
        Ok(point) => vec![point],
        Err(_) => {
            let all = points(&programs, sides, arguments.jobs).await?;
            complaints = plan::below_the_floor(&all, sides);
            all.into_iter().filter(|point| point.to_string().contains(&arguments.only)).collect()
        }
    };
    if let Some(count) = arguments.sample {
        let seed = arguments.seed.map_or_else(|| of_commit(root), Ok)?;
        say::line(&format!("{count} of {} points, --seed {seed}", points.len()));
        draw(&mut points, count, seed);
    }
    if arguments.list {
        points.iter().for_each(|point| say::result(&point.to_string()));
        return Ok(ExitCode::SUCCESS);
    }
    let stories = stories(root)?;
    let rows = judge(&programs, points, (sides, arguments.jobs), &stories).await?;
    say::result(&summary(&rows));
    complaints.extend(too_many_unreached(&rows));
    complaints.iter().for_each(|complaint| say::line(complaint));
    let tally: Tally = rows.iter().filter_map(Row::tally).chain(complaints.iter().map(|_| Tally::one(false))).sum();
    conclude(&rows, tally, arguments.json.as_deref())
}

/// A drawn part, for the checks of every change.
pub(crate) async fn sample(root: &Path, sides: Sides, count: usize) -> anyhow::Result<(Tally, Vec<String>)> {
    let (programs, _kept) = programs(root).await?;
    let programs = Arc::new(programs);
    let mut points = points(&programs, sides, AT_A_TIME).await?;
    let mut complaints = plan::below_the_floor(&points, sides);
    let seed = of_commit(root)?;
    say::line(&format!("{count} of {} points, --seed {seed}", points.len()));
    draw(&mut points, count, seed);
    let rows = judge(&programs, points, (sides, AT_A_TIME), &stories(root)?).await?;
    complaints.extend(too_many_unreached(&rows));
    let tally = rows.iter().filter_map(Row::tally).chain(complaints.iter().map(|_| Tally::one(false))).sum();
    Ok((tally, complaints))
}

/// The programs, and what removes the copies among them in the end.
async fn programs(root: &Path) -> anyhow::Result<(Programs, TempDir)> {
    let built = crate::build::controller(root).await?;
    let place = target(root).join("crash-matrix");
    std::fs::create_dir_all(&place).with_context(|| format!("make {}", place.display()))?;
    // A build meanwhile must not change what is struck.
    let kept = testkit::real::workplace(&place)?;
    let controller = kept.path().join("gitea-dynamic-runner");
    std::fs::hard_link(&built, &controller)
        .or_else(|_other_disk| std::fs::copy(&built, &controller).map(drop))
        .with_context(|| format!("copy {} to {}", built.display(), controller.display()))?;
    Ok((Programs { controller, stand_in: &["stand-in"], place }, kept))
}

fn target(root: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from)
}

/// Where the stories of failed runs are kept; those of the last time go.
fn stories(root: &Path) -> anyhow::Result<PathBuf> {
    let folder = target(root).join("crash-matrix/failed");
    let _none_yet = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).with_context(|| format!("make {}", folder.display()))?;
    Ok(folder)
}

/// Every scene is recorded twice and gives its points: what is met in one recording only depends on the clock.
async fn points(programs: &Arc<Programs>, sides: Sides, jobs: usize) -> anyhow::Result<Vec<Point>> {
    let mut step = Step::begin("record the scenes");
    let (mut runs, seats) = (JoinSet::new(), Arc::new(Semaphore::new(jobs)));
    for scene in Scene::ALL.into_iter().chain(Scene::ALL) {
        let (programs, seats) = (Arc::clone(programs), Arc::clone(&seats));
        runs.spawn(async move {
            let _seat = seats.acquire_owned().await?;
            Ok::<_, anyhow::Error>((scene, record(&programs, scene, &setting(sides)).await?))
        });
    }
    let mut recordings = Vec::new();
    while let Some(recorded) = runs.join_next().await {
        let (scene, met) = recorded??;
        step.tick(&format!("{} of {} boundaries", scene.word(), met.len()));
        recordings.extend(plan::points(scene, met));
    }
    let (points, once) = plan::met_twice(recordings);
    step.end(&format!("{} points; {once} more were met in one of two recordings only", points.len()));
    Ok(points)
}

async fn judge(
    programs: &Arc<Programs>,
    points: Vec<Point>,
    (sides, jobs): (Sides, usize),
    stories: &Path,
) -> anyhow::Result<Vec<Row>> {
    let (mut runs, seats, count) = (JoinSet::new(), Arc::new(Semaphore::new(jobs)), points.len());
    let mut step = Step::begin(format!("{count} points"));
    for point in points {
        let (programs, seats) = (Arc::clone(programs), Arc::clone(&seats));
        runs.spawn(async move {
            let _seat = seats.acquire_owned().await;
            let started = Instant::now();
            let verdict = reached(&programs, &point, sides).await;
            (point, verdict, started.elapsed().as_secs_f64())
        });
    }
    let mut rows = Vec::new();
    while let Some(struck) = runs.join_next().await {
        let (point, verdict, seconds) = struck?;
        let row = row(&point, verdict, seconds, &stories.join(format!("{}.log", rows.len() + 1)));
        complain(&row, sides);
        rows.push(row);
        let failed = rows.iter().filter(|row| row.verdict == "FAILED").count();
        step.tick(&format!("{} judged, {failed} failed", rows.len()));
    }
    step.end(if rows.iter().any(|row| row.verdict == "FAILED") { "FAILED" } else { "ok" });
    rows.sort_by(|one, other| one.point.cmp(&other.point));
    Ok(rows)
}

fn setting(sides: Sides) -> Setting {
    Setting { engine: sides.queue.engine(), backend: sides.backend.backend() }
}

async fn reached(programs: &Programs, point: &Point, sides: Sides) -> anyhow::Result<Verdict> {
    let mut verdict = strike(programs, point, &setting(sides)).await?;
    for _ in 1..TRIES {
        if !matches!(verdict, Verdict::NotReached) {
            break;
        }
        verdict = strike(programs, point, &setting(sides)).await?;
    }
    Ok(verdict)
}

fn row(point: &Point, verdict: anyhow::Result<Verdict>, seconds: f64, story_file: &Path) -> Row {
    let (verdict, wrong) = match verdict {
        Ok(Verdict::Survived) => ("survived", Vec::new()),
        Ok(Verdict::Lost) => ("lost", Vec::new()),
        Ok(Verdict::GivenUp) => ("given up", Vec::new()),
        Ok(Verdict::NotReached) => ("not reached", Vec::new()),
        Ok(Verdict::Failed { mut wrong, story }) => {
            let kept = std::fs::write(story_file, format!("{point}\n{wrong:#?}\n\n{story}"));
            wrong.extend(kept.is_ok().then(|| format!("all of it: {}", story_file.display())));
            ("FAILED", wrong)
        }
        Err(error) => ("FAILED", vec![format!("{error:#}")]),
    };
    let (scene, moment) = (Some(point.scene), Some(point.moment));
    Row { point: point.to_string(), scene, moment, verdict, seconds, wrong }
}

impl Row {
    /// A point that was not reached is judged with the others like it.
    fn tally(&self) -> Option<Tally> {
        (self.verdict != "not reached").then(|| Tally::one(self.verdict != "FAILED"))
    }
}

fn complain(row: &Row, sides: Sides) {
    if row.verdict == "FAILED" {
        say::line(&format!("\n{}: FAILED\n  {}", row.point, row.wrong.join("\n  ")));
        say::line(&format!("  again: cargo xtask crash-matrix {} --only '{}'", sides.words(), row.point));
    }
}

fn too_many_unreached(rows: &[Row]) -> Option<String> {
    let unreached: Vec<&str> =
        rows.iter().filter(|row| row.verdict == "not reached").map(|row| row.point.as_str()).collect();
    unreached.iter().for_each(|point| say::line(&format!("not reached: {point}")));
    let limit = (rows.len() * UNREACHED_PER_CENT / 100).max(1);
    (unreached.len() > limit).then(|| format!("{} points were not reached; at most {limit} may be", unreached.len()))
}

/// Scenes by moments: how many points of each there are, and what came of them.
fn summary(rows: &[Row]) -> String {
    let mut cells = Vec::new();
    for scene in Scene::ALL {
        for moment in Moment::ALL {
            let of = |row: &&Row| row.scene == Some(scene) && row.moment == Some(moment);
            let count = |verdict: &str| rows.iter().filter(of).filter(|row| row.verdict == verdict).count().to_string();
            let all = rows.iter().filter(of).count();
            if all > 0 {
                let name = [scene.word().to_owned(), moment.word().to_owned(), all.to_string()];
                let counts = ["survived", "lost", "given up", "not reached", "FAILED"].map(count);
                cells.push(name.into_iter().chain(counts).collect());
            }
        }
    }
    let head = ["scene", "killed", "points", "survived", "lost (SCH-15)", "given up (NEW-16)", "not reached", "failed"];
    format!("{}\n{} points", table(&head, &cells), rows.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_verdict_has_its_column() -> anyhow::Result<()> {
        let point: Point = "stop: Declare #1, after".parse()?;
        let failed = Verdict::Failed { wrong: vec![], story: String::new() };
        let verdicts = [Verdict::Survived, Verdict::Lost, Verdict::GivenUp, Verdict::NotReached, failed];
        let file = tempfile::NamedTempFile::new()?;
        let rows: Vec<Row> = verdicts.into_iter().map(|verdict| row(&point, Ok(verdict), 0.0, file.path())).collect();
        let summary = summary(&rows);
        let cells: Vec<&str> = summary.lines().nth(1).unwrap_or_default().split_whitespace().collect();
        assert_eq!(cells, ["stop", "after", "5", "1", "1", "1", "1", "1"], "{summary}");
        Ok(())
    }
}
