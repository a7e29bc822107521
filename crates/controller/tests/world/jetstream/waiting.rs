//! What waits in the stream, and what is being started, costs no delivery that would count.

use std::time::Duration;

use async_nats::jetstream;
use async_nats::jetstream::consumer::{Info, PullConsumer};
use connectrpc::ErrorCode;
use futures::TryStreamExt as _;
use testkit::gitea::{FaultSpec, Method, Status};
use testkit::outcome::Rule;
use testkit::world::{Allowance, Plan, SOON, World, job};
use tokio::time::Instant;

use super::on_stream;
use crate::towards_gitea::{one_is_cancelled, one_runs_and_three_wait, the_next_process_knows, the_rest_runs_in_order};

/// The controller's only consumer, as an operator reads it; none while it is made anew.
pub(super) async fn consumer(world: &World) -> Option<Info> {
    let context = jetstream::new(world.broker().client().await.unwrap());
    let stream = context.get_stream("CI_RUNNER").await.unwrap();
    let mut all: Vec<Info> = stream.consumers().try_collect().await.unwrap();
    assert!(all.len() < 2, "{all:#?}");
    all.pop()
}

/// Waits until so many lie there that were never handed out, nothing else does, and the consumer has handed out so many
/// since it was made.
async fn lie_untouched(world: &World, messages: u64, handed_out: u64) {
    let end = Instant::now() + SOON;
    loop {
        let seen = consumer(world).await;
        let fits = |seen: &Info| {
            (seen.num_pending, seen.num_ack_pending, seen.delivered.consumer_sequence) == (messages, 0, handed_out)
        };
        if seen.as_ref().is_some_and(fits) {
            return;
        }
        assert!(Instant::now() < end, "not {messages} untouched after {handed_out}: {seen:#?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// T4, NEW-34, NEW-157, NEW-21, PRC-5, F05, F52, F20, F22: as with the file of a state folder: what waits in the stream is handed
/// out to nobody, before and after the controller is killed. The next one, whose consumer begins anew, knows it all the
/// same, keeps it alive, shows it, hears its cancel, and runs the rest in the order of their arrival.
#[tokio::test]
async fn what_waits_is_known_to_the_next_process() {
    let mut world = on_stream(Plan::capacity(1).set("LOOK_AHEAD", "3")).await;
    let jobs = one_runs_and_three_wait(&world).await;
    lie_untouched(&world, 3, 1).await;
    the_next_process_knows(&mut world, jobs).await;
    lie_untouched(&world, 3, 0).await;
    one_is_cancelled(&world, jobs).await;
    lie_untouched(&world, 2, 0).await;
    the_rest_runs_in_order(&world, jobs).await;
    world.finish().await;
}

/// Longer than the consumer waits for a word about what it has handed out.
const SLOW: Duration = Duration::from_secs(75);

/// T41, NEW-43, CON-4, NEW-52, F30: a start that takes longer than the consumer waits for a word (its executor cannot claim, as
/// Gitea is asked first and is away) is handed out once and has one executor. After an orderly end in the middle the next
/// process finds both where they are, has nothing handed out again, and the job runs once.
#[tokio::test]
async fn a_slow_start_is_handed_out_once() {
    let mut world = on_stream(Plan::capacity(2)).await;
    world.allow(Allowance::Breaks(Rule::Silence));
    let slow = world.push_one(job("slow", &["say here"]));
    world.eventually("its executor exists", SOON, |world| one(&world.executors())).await;
    let away = FaultSpec::gitea(ErrorCode::Unavailable, "database is locked").times(u32::MAX);
    world.gitea.fail_next(Method::UpdateTask, away);
    let made = world.executors();
    stays_handed_out(&world, 1, SLOW).await;
    nobody_else_gets_it(&world).await;
    assert_eq!(world.executors(), made);
    assert!(world.sigterm(SOON).await.success(), "{}", world.log());
    world.restart();
    stays_handed_out(&world, 0, SOON / 3).await;
    assert_eq!((world.executors(), world.desk.told(world.task_of(slow), "task").len()), (made, 0));
    world.gitea.clear_faults();
    world.ends_as(slow, Status::Success, SOON).await;
    assert_eq!(world.desk.executions()[&world.task_of(slow)], 1);
    world.finish().await;
}

/// Waits until the only message is handed out so often by this consumer, and sees for so long that this stays so and that
/// one executor is there.
async fn stays_handed_out(world: &World, times: u64, lasting: Duration) {
    let (mut begun, patience) = (None, Instant::now() + SOON);
    let hands = |seen: Info| (seen.delivered.consumer_sequence, seen.num_ack_pending, seen.num_redelivered);
    let wanted = (times, usize::try_from(times).unwrap(), 0);
    while begun.is_none_or(|begun: Instant| begun.elapsed() < lasting) {
        let seen = consumer(world).await.map(hands);
        match begun {
            None if seen == Some(wanted) => begun = Some(Instant::now()),
            None => assert!(Instant::now() < patience, "not {wanted:?}: {seen:?}"),
            Some(begun) => assert_eq!(seen, Some(wanted), "after {:?}", begun.elapsed()),
        }
        one(&world.executors()).unwrap();
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
}

/// Another hand finds nothing: what nobody speaks of for too long is given to the next who asks.
async fn nobody_else_gets_it(world: &World) {
    let durable = consumer(world).await.unwrap().name;
    let context = jetstream::new(world.broker().client().await.unwrap());
    let pulled: PullConsumer = context.get_consumer_from_stream(durable, "CI_RUNNER").await.unwrap();
    let mut messages = pulled.fetch().max_messages(1).messages().await.unwrap();
    assert!(messages.try_next().await.unwrap().is_none(), "it is handed out twice");
}

fn one(executors: &[String]) -> Result<(), String> {
    if executors.len() == 1 { Ok(()) } else { Err(format!("{executors:?}")) }
}
