//! The hours in which the runner lives: signals, notices of the proxy, keep-alives and the clock become events, and
//! what [`Supervision`] decides is done.

use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use domain::executor_api::Report;
use rustix::process::Signal;
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval, sleep_until};

use crate::deliver::Outbox;
use crate::facade::Facade;
use crate::limits::Limits;
use crate::proxy::Notice;
use crate::runner::orphans::strays::Strays;
use crate::runner::process::{Ended, Process};
use crate::signals::{self, Signals};
use crate::supervise::{Action, Event, Supervision};

/// A living runner and everything that may end it.
pub(super) struct Watch {
    process: Process,
    outbox: Arc<Outbox>,
    facade: Arc<Facade>,
    limits: Limits,
    registration: PathBuf,
    supervision: Supervision,
    strays: Strays,
    cause: String,
}

impl Watch {
    /// `registration` is removed as soon as the runner has read it.
    pub(super) fn new(
        process: Process,
        outbox: Arc<Outbox>,
        facade: Arc<Facade>,
        limits: Limits,
        registration: PathBuf,
    ) -> Self {
        let supervision = Supervision::new(limits.graces);
        let strays = process.strays(limits.graces.strays);
        Self { process, outbox, facade, limits, registration, supervision, strays, cause: String::new() }
    }

    /// The runner was sent home; valid after its end.
    pub(super) fn had_nothing_to_do(&self) -> bool {
        self.supervision.had_nothing_to_do()
    }

    /// Waits for the runner's end and does what must be done until then.
    pub(super) async fn until_ended(
        &mut self,
        signals: &mut Signals,
        mut notices: mpsc::UnboundedReceiver<Notice>,
    ) -> Ended {
        let (end_wanted, mut end_asked) = mpsc::channel(1);
        let mut alive = std::pin::pin!(keep_alive(Arc::clone(&self.facade), self.limits, end_wanted));
        let outbox = Arc::clone(&self.outbox);
        let mut looks = interval(Strays::LOOK);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let ended = loop {
            let event = tokio::select! {
                // What has already passed the proxy counts before the clock does.
                biased;
                ended = self.process.ended() => break ended,
                Some(notice) = notices.recv() => self.event_of(notice),
                () = outbox.until(|spool| spool.announced()), if self.supervision.announcing() => Some(Event::Announced),
                Some(signal) = signals.recv() => Some(self.end_asked(signals::name(signal))),
                Some(()) = end_asked.recv() => Some(self.end_asked("the facade ended this assignment".to_owned())),
                () = at(self.supervision.wake_at()) => Some(Event::Tick),
                never = alive.as_mut() => match never {},
                _ = looks.tick(), if self.supervision.winding_up() => {
                    self.strays.look();
                    None
                }
            };
            if let Some(action) = event.and_then(|event| self.supervision.handle(event, Instant::now())) {
                self.act(action);
            }
        };
        // What was on its way when the runner ended still tells why it did.
        while let Ok(notice) = notices.try_recv() {
            if let Some(event) = self.event_of(notice) {
                self.supervision.handle(event, Instant::now());
            }
        }
        tracing::info!(code = ended.code, signal = ended.signal, "the runner has ended");
        ended
    }

    fn event_of(&self, notice: Notice) -> Option<Event> {
        match notice {
            Notice::SentHome => Some(Event::SentHome),
            Notice::Welcome => Some(Event::Welcome),
            Notice::JobSeen => Some(Event::JobSeen),
            Notice::Polling => {
                // The runner has read it and needs it no more; a step shall not find it (NEW-116).
                if let Err(error) = std::fs::remove_file(&self.registration) {
                    tracing::warn!(%error, "the runner's registration was not removed");
                }
                None
            }
        }
    }

    fn end_asked(&mut self, cause: String) -> Event {
        tracing::info!(%cause, "asked to end");
        self.cause = cause;
        Event::EndAsked
    }

    fn act(&self, action: Action) {
        tracing::info!(?action, "supervision");
        match action {
            Action::Announce => self.outbox.interrupt(&self.cause),
            Action::Terminate => self.process.signal(Signal::TERM),
            Action::Kill => self.process.signal(Signal::KILL),
        }
    }
}

/// Tells the facade that the runner was started, then that it lives; says so when the facade wants its end.
async fn keep_alive(facade: Arc<Facade>, limits: Limits, end_wanted: mpsc::Sender<()>) -> Infallible {
    let mut ticks = interval(limits.keep_alive);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut report = Report::RunnerStarted;
    loop {
        ticks.tick().await;
        if let (_, Some(reply)) = facade.report(&report, limits.report).await {
            report = Report::KeepAlive;
            if !reply.go_on {
                // Said before and not heard yet is as good.
                let _ = end_wanted.try_send(());
            }
        }
    }
}

async fn at(instant: Option<Instant>) {
    match instant {
        Some(instant) => sleep_until(instant.into()).await,
        None => std::future::pending().await,
    }
}
