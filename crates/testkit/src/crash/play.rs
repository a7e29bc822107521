//! Playing a scene: once to learn its boundaries, and once for each point.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::keeper::Watched;
use super::scene::LATER;
use super::stage::{Setting, Stage};
use super::{Boundary, Kind, Point, Register, Scene, judge};
use crate::gitea::Sweep;
use crate::world::Programs;

/// What came of a point.
#[derive(Debug)]
pub enum Verdict {
    /// As if nothing had happened.
    Survived,
    /// A task was handed out to a controller that died before it stored it (SCH-15).
    Lost,
    /// A task was ended with a reason by an orderly stop that found it in no queue yet (NEW-16).
    GivenUp,
    /// The scene ended without the boundary.
    NotReached,
    /// What was wrong, and the story of the run.
    Failed {
        /// One text for each thing.
        wrong: Vec<String>,
        /// Calls, states, logs.
        story: String,
    },
}

/// Longer than Gitea waits for a word about a task.
const ZOMBIE: Duration = Duration::from_secs(16 * 60);

/// For what the runners said before they ended.
const WORDS: Duration = Duration::from_secs(2);

/// Plays a scene without a kill; returns its boundaries in the order in which they were met first.
///
/// # Errors
/// It cannot be played, or something is wrong with it as it is.
pub async fn record(programs: &Programs, scene: Scene, setting: &Setting) -> anyhow::Result<Vec<Boundary>> {
    let register = Arc::new(Register::new(None));
    let stage = Stage::set(programs, scene, setting, register, Watched::Always).await?;
    let wrong = play(&stage, scene).await;
    anyhow::ensure!(wrong.is_empty(), "scene {}: {wrong:#?}\n{}", scene.word(), stage.story().await);
    Ok(stage.register.met())
}

/// Plays a scene and kills the controller at a point of it.
///
/// # Errors
/// It cannot be begun.
pub async fn strike(programs: &Programs, point: &Point, setting: &Setting) -> anyhow::Result<Verdict> {
    let register = Arc::new(Register::new(Some((point.boundary.clone(), point.moment))));
    let watched = if point.boundary.kind() == Kind::Write { Watched::UntilStruck } else { Watched::Never };
    let stage = Stage::set(programs, point.scene, setting, register, watched).await?;
    let mut wrong = play(&stage, point.scene).await;
    let lost = stage.keeper.lost();
    // One kill finds one FetchTask between Gitea's commit and the queue's; see [`Keeper::lost`](super::keeper::Keeper::lost).
    wrong.extend((lost.len() > 1).then(|| format!("the tasks {lost:?} were lost by one kill (SCH-15)")));
    Ok(match (wrong.is_empty(), stage.register.struck(), lost.is_empty()) {
        (true, false, _) => Verdict::NotReached,
        (true, true, false) => Verdict::Lost,
        (true, true, true) if judge::some_given_up(&stage) => Verdict::GivenUp,
        (true, true, true) => Verdict::Survived,
        (false, ..) => Verdict::Failed { wrong, story: stage.story().await },
    })
}

/// Everything in order, a later job, and what is wrong.
async fn play(stage: &Stage, scene: Scene) -> Vec<String> {
    let played = async {
        scene.play(stage).await?;
        stage.empty().await?;
        stage.register.close();
        end_of_the_lost(stage);
        stage.push(&[LATER])?;
        stage.until("the later job is over", |stage| stage.over(LATER)).await?;
        stage.empty().await
    };
    let ended = played.await.err().map(|error| format!("{error:#}"));
    let asked = Instant::now();
    loop {
        let wrong: Vec<String> = judge::wrong(stage, scene).into_iter().chain(ended.clone()).collect();
        // A runner's last word may still be on its way to the desk.
        if wrong.is_empty() || ended.is_some() || asked.elapsed() > WORDS {
            return wrong;
        }
        tokio::time::sleep(WORDS / 20).await;
    }
}

fn end_of_the_lost(stage: &Stage) {
    if !stage.keeper.lost().is_empty() {
        stage.cast.gitea.advance(ZOMBIE);
        stage.cast.gitea.sweep(Sweep::Zombie);
    }
}
