//! Messages that are pulled, a slot in hand for each. Whatever happens to one afterwards, it is launched, settled or given
//! back: a lease that nobody remembers would keep its message from everybody until this process ends.

use std::sync::Arc;

use domain::envelope::Opened;
use domain::lifecycle::Event;

use super::Launch;
use crate::queue::unopened::RETRY;
use crate::queue::{Delivery, Disposition, Key, QueueError};
use crate::sealing::Unopenable;

impl Launch {
    /// Takes messages as long as there are slots and somebody who may have one; what is not started stays in `in_hand`, also
    /// when the queue fails on the way.
    pub(super) async fn take_while_room(self: &Arc<Self>, in_hand: &mut Vec<Key>) -> Result<(), QueueError> {
        while self.free_slots() > 0 && self.somebody_may_start() {
            let Some(delivery) = self.queue.pull(self.kind, self.board.now()).await? else { break };
            in_hand.push(delivery.key());
            if self.take(delivery).await? {
                in_hand.pop();
            }
        }
        Ok(())
    }

    /// Gives back what was pulled in vain. What the queue does not take back stays in `in_hand` for the next pass, which
    /// pulls nothing before.
    pub(super) async fn give_back(&self, in_hand: &mut Vec<Key>) -> Result<(), QueueError> {
        while let Some(key) = in_hand.first() {
            self.queue.settle(key.clone(), Disposition::Release).await?;
            in_hand.remove(0);
        }
        Ok(())
    }

    /// Launches the delivery or settles it; false: its life does not want that now, since its executor exists or its end is
    /// under way.
    async fn take(self: &Arc<Self>, delivery: Delivery) -> Result<bool, QueueError> {
        let Opened { assignment, task } = match self.open(delivery.id, &delivery.body) {
            Ok(opened) => opened,
            Err(closed) => {
                self.tell_closed(&delivery.key(), &closed);
                let at = self.board.now().saturating_add(RETRY).unwrap_or_else(|_| self.board.now());
                self.queue.settle(delivery.key(), Disposition::Retry { at, error: closed.to_string() }).await?;
                return Ok(true);
            }
        };
        if self.is_older_life(delivery.id, &delivery.digest) {
            return Ok(false);
        }
        self.make_known(&assignment, delivery.attempts, None);
        let over = self.board.over(&self.shares).contains_key(&delivery.id);
        let Some(view) = self.board.view(delivery.id).filter(|view| view.wants.launch && !over) else {
            return Ok(false);
        };
        let epoch = view.life.next_epoch();
        self.board.apply(delivery.id, Event::LaunchBegun { epoch });
        let this = Arc::clone(self);
        self.tracker.spawn(async move { this.launch(assignment, task, epoch, delivery.attempts).await });
        Ok(true)
    }

    /// On the page of the task whose message it is. Of one that nobody here has heard of a reading of the queue tells:
    /// whoever wrote it may have chosen the number of somebody else's task (NEW-35).
    fn tell_closed(&self, message: &Key, closed: &Unopenable) {
        if self.board.message(message.id).as_ref() == Some(message) {
            self.board.apply(message.id, Event::WaitsFor { what: format!("a key that opens it: {closed}") });
        }
    }
}
