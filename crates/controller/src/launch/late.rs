//! Executors whose create was given up, and which are there all the same.

use std::time::Duration;

use domain::id::{AssignmentId, Epoch, executor_name};
use domain::lifecycle::{Event, Life, Settlement};
use domain::metadata::Mark;

use super::Launch;
use super::making::FIRST_RETRY;

/// Between two looks for an executor whose create was not answered.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

impl Launch {
    /// A create without an answer may have been carried out, and what was listed a moment ago need not show it. Its executor
    /// is asked for by its name, by a mark that says what it says already, before its slot can be another's (NEW-55, NEW-62):
    /// until somebody answers, also when its life has ended meanwhile, it counts as being made ([`Making`](crate::board::Making)).
    pub(super) async fn look_for(&self, id: AssignmentId, epoch: Epoch) {
        let name = executor_name(id, &self.instance, epoch);
        let may_be_there = |life: &Life| (life.epoch() == epoch && life.occupies_slot()).then(|| life.steps_text());
        let mut pause = FIRST_RETRY;
        while let Some(steps) = self.board.read(id, may_be_there).flatten() {
            if self.board.may_decide() && self.backend.mark(&name, Mark::Steps(steps)).await.is_ok() {
                return;
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// A backend may carry a create out long after its caller has gone: a former process, or a call of ours that was given up.
    /// No look excludes that. Such an executor holds a slot from when it is seen, so nothing is started while there are too
    /// many; its task is not laid out for it, so its attempt has failed like any other, and `reap` removes it (NEW-55, NEW-63).
    pub(super) fn give_up_late(&self) {
        for (id, epoch) in self.board.came_late() {
            let cause = "an executor of an earlier attempt came when it was not expected any more".to_owned();
            let failed = Event::LaunchFailed {
                epoch,
                permanent: None,
                cause,
                remedy: String::new(),
                retry_at: self.board.now(),
            };
            // Its message was never in hand.
            let settled = Event::Settled { epoch, how: Settlement::GivenBack };
            for event in [Event::LaunchBegun { epoch }, failed, settled] {
                self.board.apply(id, event);
            }
        }
    }
}
