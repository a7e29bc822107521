//! Ours against the official runner alone, on a real Gitea on the same machine, in turns in one run: both have the same
//! capacity, and each its own default pauses between two questions for work.
//!
//! Everything is told by one clock, the one of this machine. A job is *there*, *handed out* and *ended* when Gitea's
//! database says so, looked at every few milliseconds; that its runner *has it* and when the last row was written, its log
//! says. A push itself is left out: what Gitea takes to make jobs of it is the same for both.

mod course;
mod stages;
mod turn;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use testkit::real::{Client, Daemon, GiteaServer, Settings, Standalone, Word, workplace};

use super::figure::Figure;
use crate::provision::{self, Part};
use crate::samples::Samples;
use crate::say::Step;
use course::Course;
use turn::Turn;

const REPOSITORY: &str = "acme/bench";
const CAPACITY: u32 = 2;
/// Single jobs of each side per round; one waits for a poll by chance, so there are more of them than of pushes.
const SINGLES: usize = 3;
const ONLINE_LIMIT: Duration = Duration::from_secs(60);

/// Whose turn it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Side {
    Ours,
    Runner,
}

impl Side {
    /// What its jobs put into `runs-on`.
    fn label(self) -> &'static str {
        match self {
            Self::Ours => "ours",
            Self::Runner => "alone",
        }
    }
}

/// The turns of both sides.
type Turns = BTreeMap<Side, Vec<Turn>>;

pub(super) async fn measure(program: &Path, rounds: usize, jobs: usize) -> anyhow::Result<Vec<Figure>> {
    provision::ensure(&[Part::Gitea, Part::Runner]).await?;
    let dir = workplace(&std::env::temp_dir())?;
    let step = Step::begin("start Gitea, ours and the official runner");
    let gitea = GiteaServer::start(&dir.path().join("gitea"), &[]).await?;
    let client = gitea.client();
    client.create_repository(REPOSITORY).await?;
    let ours = start_ours(program, &client, &dir.path().join("ours")).await?;
    let runner = Daemon::start(&client, &dir.path().join("alone"), Side::Runner.label(), CAPACITY).await?;
    runner.online(&client, ONLINE_LIMIT).await?;
    step.end("both online");

    let mut course = Course::new(client, &gitea, &ours, &runner);
    let (mut many, mut one) = (Turns::new(), Turns::new());
    for round in 0..rounds {
        // Who goes first changes, so that a drift of the machine's speed favours nobody.
        let order = if round % 2 == 0 { [Side::Ours, Side::Runner] } else { [Side::Runner, Side::Ours] };
        let step = Step::begin(format!("round {} of {rounds}", round + 1));
        for side in order {
            many.entry(side).or_default().push(course.turn(side, jobs).await?);
        }
        for side in (0..SINGLES).flat_map(|_| order) {
            one.entry(side).or_default().push(course.turn(side, 1).await?);
        }
        step.end("done");
    }
    let mut figures = of_many(&many, jobs);
    figures.extend(of_one(&one));
    figures.extend(stages::figures(&ours.log(), &many[&Side::Ours]));
    Ok(figures)
}

async fn start_ours(program: &Path, client: &Client, dir: &Path) -> anyhow::Result<Standalone> {
    let settings = Settings {
        word: Word::Standalone,
        program: program.to_owned(),
        capacity: CAPACITY,
        labels: vec![Side::Ours.label().to_owned()],
        arguments: Vec::new(),
        environment: BTreeMap::from([("LOG_FORMAT".to_owned(), "json".to_owned())]),
        user: None,
    };
    let mut ours = Standalone::start(settings, client, dir).await?;
    ours.online(client, Side::Ours.label(), ONLINE_LIMIT).await?;
    Ok(ours)
}

fn of_many(turns: &Turns, jobs: usize) -> Vec<Figure> {
    let name = format!("{jobs} trivial jobs of one push, {CAPACITY} at once");
    let per_turn = |measure: &str, goal, of: &dyn Fn(&Turn) -> Duration| {
        compare(format!("{name}: {measure}"), goal, turns, |turn| vec![of(turn)])
    };
    let mut figures = vec![
        per_turn("there → all ended", "2×", &Turn::span),
        per_turn("there → the first handed out (the poll)", "", &Turn::first_wait),
        per_turn("a slot between two jobs", "", &|turn| turn.between(CAPACITY)),
    ];
    figures.extend(of_a_job(&name, turns));
    figures.extend([
        per_turn("CPU per job, with all it starts", "", &|turn| turn.cpu_per_job()),
        per_turn("CPU of Gitea per job", "", &|turn| turn.gitea_cpu_per_job()),
    ]);
    figures
}

fn of_one(turns: &Turns) -> Vec<Figure> {
    let name = "one trivial job";
    let mut figures = vec![
        compare(format!("{name}: there → ended"), "1×", turns, |turn| vec![turn.span()]),
        compare(format!("{name}: there → handed out (the poll)"), "", turns, |turn| vec![turn.first_wait()]),
    ];
    figures.extend(of_a_job(name, turns));
    figures
}

/// From the hand-out of a job to its end, part by part.
fn of_a_job(name: &str, turns: &Turns) -> Vec<Figure> {
    let per_job = |measure: &str, of: fn(&turn::Moments) -> Duration| {
        compare(format!("{name}: {measure}"), "", turns, move |turn| turn.jobs.iter().map(of).collect())
    };
    vec![
        per_job("handed out → ended", |job| job.ended.saturating_sub(job.handed_out)),
        per_job("· handed out → its runner has it", |job| job.received.saturating_sub(job.handed_out)),
        per_job("· its runner has it → last row", |job| job.last_row.saturating_sub(job.received)),
        per_job("· last row → ended", |job| job.ended.saturating_sub(job.last_row)),
    ]
}

/// The medians of both sides.
fn compare(measure: String, goal: &str, turns: &Turns, of: impl Fn(&Turn) -> Vec<Duration>) -> Figure {
    let median = |side| turns.get(&side).into_iter().flatten().flat_map(&of).collect::<Samples>().median();
    Figure::against(measure, median(Side::Ours), median(Side::Runner), goal)
}
