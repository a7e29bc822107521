//! What others do to the identity entries of Pods that run.

use super::*;

/// NEW-75, F72, T53: the entry of a job that runs, which somebody deleted or changed, is put right at the next sweep.
#[tokio::test]
async fn an_entry_that_somebody_takes_away_comes_back() {
    let world = World::start().await;
    let backend = world.controller();
    ready(&backend, 7).await;
    backend.mark(&name(7), claim()).await.unwrap();
    upkeep::sweep(&backend.shared).await;
    world.issuer.bound.lock().unwrap().clear();
    upkeep::sweep(&backend.shared).await;
    until("bound again", async || world.is_bound(&name(7))).await;
    assert_eq!(state(&backend, &name(7)).await, Some(ExecutorState::Running));
}

/// NEW-75, NEW-63, F73, T53: what stands in the way of an entry that is to come back ends no job that runs, and is asked about
/// again by each sweep until it is out of the way.
#[tokio::test]
async fn an_entry_that_cannot_come_back_ends_no_job() {
    let world = World::start().await;
    let backend = world.controller();
    ready(&backend, 7).await;
    backend.mark(&name(7), claim()).await.unwrap();
    let uid = backend.shared.observatory.store().get(&name(7)).unwrap().uid.clone();
    let is_refused = || backend.shared.with_care(&uid, |care| matches!(care.identity, care::Identity::Rejected(_)));
    for answer in [
        Err(IssueError::Refused { cause: "it is not ours".to_owned(), remedy: "delete it".to_owned() }),
        Ok(Standing::Rejected { cause: "it is masked".to_owned() }),
    ] {
        world.issuer.bound.lock().unwrap().clear();
        world.issuer.answers.lock().unwrap().push(answer);
        upkeep::sweep(&backend.shared).await;
        until("refused", async || is_refused()).await;
        assert_eq!(state(&backend, &name(7)).await, Some(ExecutorState::Running));
        assert_eq!(backend.ensure(launch(7)).await, Ok(Ensured::NotYet), "it is no news of a launch");
    }
    world.issuer.bound.lock().unwrap().clear();
    upkeep::sweep(&backend.shared).await;
    until("bound again", async || world.is_bound(&name(7))).await;
    assert_eq!(backend.ensure(launch(7)).await, Ok(Ensured::Ready));
}
