//! Ends that Gitea decides while a job runs: by silence, by age. And how an executor goes after any end.

use std::time::{Duration, Instant};

use futures::future::join_all;
use testkit::gitea::{Gitea, Latency, Settings, Status, Sweep};
use testkit::outcome::Rule;
use testkit::world::{Allowance, Note, Plan, SOON, World, job};

use crate::planned;

async fn hasty() -> World {
    planned(Plan::capacity(1).set("CANCEL_GRACE", "1s").set("TERMINAL_GRACE", "3s")).await
}

/// T80, T81, NEW-32, NEW-159, NEW-163, F157, F160: Gitea fails a running job as silent or as too old. Its runner hears CANCELLED,
/// which alone stops it, and is gone soon; one that goes on is answered and not forwarded. Gitea hears of the end from nobody
/// but the call that learned of it, and its log is closed.
#[tokio::test]
async fn of_gitea() {
    let manners =
        [(Sweep::Zombie, "obey"), (Sweep::Endless, "obey"), (Sweep::Zombie, "ignore"), (Sweep::Endless, "ignore")];
    join_all(manners.map(|(sweep, manners)| judged(sweep, manners))).await;
}

async fn judged(sweep: Sweep, manners: &str) {
    let mut world = hasty().await;
    const GOES_ON: &str = "on-cancel ignore\nsay here\ngate late\nsay late\ntry state\ntry success\ntry rows\nhang";
    let script = if manners == "obey" { "say here\nhang" } else { GOES_ON };
    let job = world.push_one(job("judged", &[script, "say never"]));
    world.gitea_shows("its first row is stored", |gitea| gitea.state(job).rows().contains(&"here")).await;
    let task = world.task_of(job);
    let none = Duration::ZERO;
    world.gitea.configure(|settings| (settings.zombie_timeout, settings.endless_timeout) = (none, none));
    world.gitea.sweep(sweep);
    let Settings { zombie_timeout, endless_timeout, .. } = Settings::default();
    world.gitea.configure(|settings| {
        (settings.zombie_timeout, settings.endless_timeout) = (zombie_timeout, endless_timeout);
    });
    let judged = Instant::now();
    assert_eq!(world.gitea.state(job).status, Status::Failure);
    if manners == "obey" {
        let stopped = |notes: &[Note]| notes.iter().any(|note| note.verb == "ended" && note.rest == "CUT_OFF");
        world.desk.until("the job has stopped", SOON, stopped).await;
        assert!(judged.elapsed() < Duration::from_secs(10), "after {:?}", judged.elapsed());
        assert_eq!(world.desk.told(task, "told"), ["CANCELLED"]);
        let ended = |notes: &[Note]| notes.iter().any(|note| note.verb == "final");
        world.desk.until("its last rows count as delivered", SOON, ended).await;
    } else {
        // Whatever was under way when Gitea judged is over when the end is known here.
        let heard = |world: &World| match world.log().contains(r#""event":"terminal_accepted""#) {
            true => Ok(()),
            false => Err("not yet".to_owned()),
        };
        world.eventually("the controller has heard of it", SOON, heard).await;
        world.desk.open_gate("late");
        world.desk.until("it has tried everything", SOON, |notes| tried(notes) == 3).await;
        assert_eq!(world.desk.told(task, "tried"), ["state CANCELLED", "success CANCELLED", "rows ok"]);
    }
    world.nothing_left().await;
    let state = world.gitea.state(job);
    assert_eq!((state.status, state.archived), (Status::Failure, true));
    assert!(state.updates_after_end <= 1 && state.completed_webhooks <= 2, "{state:#?}");
    // Its reason is Gitea's own, and so is where its log ends.
    world.allow(Allowance::Unended(job));
    world.allow(Allowance::Breaks(Rule::Rows));
    world.finish().await;
}

fn tried(notes: &[Note]) -> usize {
    notes.iter().filter(|note| note.verb == "tried").count()
}

/// T60, NEW-100, NEW-55, F92: an answer to the final update that takes 2 s reaches the runner, which has time for what
/// it does behind its end; so has a post step of a cancelled job. The executor goes after that, not with the end.
#[tokio::test]
async fn nobody_is_cut_off_by_the_end() {
    let mut world = planned(Plan::capacity(1).set("TERMINAL_GRACE", "9s").set("CANCEL_GRACE", "8s")).await;
    let slow = world.push_one(job("slow", &["on-cancel ignore\ngate end\ntry success\nsleep 2500\ntry state"]));
    world.desk.arrived("end", 1, SOON).await;
    let task = world.task_of(slow);
    world.gitea.set_latency(Latency::fixed(Duration::from_secs(2)));
    world.desk.open_gate("end");
    world.desk.until("the runner has its answer", SOON, |notes| tried(notes) == 1).await;
    world.gitea.set_latency(Latency::default());
    let ended = |notes: &[Note]| notes.iter().any(|note| note.task == task && note.verb == "final");
    world.desk.until("the runner has ended in its own time", SOON, ended).await;
    assert_eq!(world.desk.told(task, "tried"), ["success SUCCESS", "state CANCELLED"]);
    world.ends_as(slow, Status::Success, SOON).await;
    world.nothing_left().await;
    let cleans = world.push_one(job("cleans", &["on-cancel ignore\nsay here\ngate post\nsleep 2500\nsay cleaned up"]));
    world.desk.arrived("post", 1, SOON).await;
    world.gitea.cancel(cleans);
    world.gitea_shows("the cancel is known", |gitea: &Gitea| gitea.state(cleans).updates_after_end > 0).await;
    world.desk.open_gate("post");
    world.gitea_shows("the post step has ended", |gitea| gitea.state(cleans).rows().contains(&"cleaned up")).await;
    // The first job says its end before its rows are told.
    world.allow(Allowance::Breaks(Rule::Rows));
    world.finish().await;
}
