//! The one thread that owns the database connection; the async side sends it work and awaits the answer.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use tokio::sync::oneshot;

use super::super::QueueError;
use super::store::Store;

/// Longer than a busy disk needs for one commit; a disk that hangs must not hang its callers.
const ANSWER_DEADLINE: Duration = Duration::from_secs(30);

type Work = Box<dyn FnOnce(&mut Store) + Send>;

/// A handle to the thread, which ends when the last handle is gone and the work sent before is done.
#[derive(Clone)]
pub(super) struct Writer {
    work: mpsc::Sender<Work>,
}

impl Writer {
    /// Starts the thread, opens the store on it, and returns when that succeeded.
    pub(super) async fn start(
        open: impl FnOnce() -> Result<Store, QueueError> + Send + 'static,
    ) -> Result<Self, QueueError> {
        let (work, inbox) = mpsc::channel::<Work>();
        let (opened, answer) = oneshot::channel();
        thread::Builder::new()
            .name("queue".to_owned())
            .spawn(move || match open() {
                Ok(mut store) => {
                    // Whoever asked may be gone by now; then the handles are too and the loop ends at once.
                    drop(opened.send(Ok(())));
                    for work in inbox {
                        work(&mut store);
                    }
                }
                Err(error) => drop(opened.send(Err(error))),
            })
            .map_err(|error| QueueError::Unavailable { cause: format!("no thread for the queue: {error}") })?;
        await_answer(answer).await?;
        Ok(Self { work })
    }

    /// Runs `work` on the thread and returns its answer. The work is done even when the caller goes away. The returned
    /// future borrows nothing and the work is sent at once, in the order of the calls.
    pub(super) fn call<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Store) -> Result<T, QueueError> + Send + 'static,
    ) -> BoxFuture<'static, Result<T, QueueError>> {
        let (reply, answer) = oneshot::channel();
        self.send(move |store| drop(reply.send(work(store))));
        await_answer(answer).boxed()
    }

    /// Runs `work` on the thread; nobody waits for it.
    pub(super) fn send(&self, work: impl FnOnce(&mut Store) + Send + 'static) {
        // A thread that ended drops the work and with it the sender of its answer, which `await_answer` notices.
        drop(self.work.send(Box::new(work)));
    }
}

async fn await_answer<T>(answer: oneshot::Receiver<Result<T, QueueError>>) -> Result<T, QueueError> {
    match tokio::time::timeout(ANSWER_DEADLINE, answer).await {
        Ok(Ok(result)) => result,
        Ok(Err(_)) => Err(QueueError::Unavailable { cause: "its thread has ended".to_owned() }),
        Err(_) => Err(QueueError::Unavailable { cause: format!("no answer from the disk within {ANSWER_DEADLINE:?}") }),
    }
}
