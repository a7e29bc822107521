//! The controller of a world: killed, ended, frozen, started again.

use std::path::Path;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use super::{World, must};
use crate::outcome;
use crate::real::Signal;

impl World {
    /// `kill -9` to the controller alone.
    pub fn kill9(&mut self) {
        self.controller.kill9();
        self.note_end(outcome::Death::Killed);
    }

    /// SIGTERM to the controller alone; waits for its end.
    ///
    /// # Panics
    /// It does not end within `limit`.
    pub async fn sigterm(&mut self, limit: Duration) -> ExitStatus {
        let status = must(self.controller.sigterm(limit).await, "the controller's end");
        self.note_end(outcome::Death::InOrder);
        status
    }

    /// Sends SIGTERM to the controller and does not wait; see [`World::ended`].
    ///
    /// # Panics
    /// It does not run.
    pub fn ask_to_end(&self) {
        assert!(self.controller.pid().is_some(), "the controller does not run");
        self.controller.signal(Signal::Terminate);
    }

    /// Whether the controller has ended, by itself or because it was asked to; looks and does not wait.
    ///
    /// # Panics
    /// The kernel does not say.
    pub fn exited(&mut self) -> Option<ExitStatus> {
        let status = must(self.controller.exited(), "the controller's end");
        if status.is_some() {
            self.note_end(outcome::Death::InOrder);
        }
        status
    }

    /// The end of a controller that ends by itself or was asked to.
    ///
    /// # Panics
    /// It does not end within `limit`.
    pub async fn ended(&mut self, limit: Duration) -> ExitStatus {
        let status = must(self.controller.ended(limit).await, "the controller's end");
        self.note_end(outcome::Death::InOrder);
        status
    }

    /// SIGSTOP to the controller alone, until [`World::go_on`].
    pub fn pause(&mut self) {
        self.controller.signal(Signal::Stop);
        let now = Instant::now();
        if let Some(process) = self.controllers.last_mut() {
            process.paused.push((now, now));
        }
    }

    /// SIGCONT to the controller.
    pub fn go_on(&mut self) {
        self.controller.signal(Signal::Continue);
        if let Some(pause) = self.controllers.last_mut().and_then(|process| process.paused.last_mut()) {
            pause.1 = Instant::now();
        }
    }

    /// Starts the controller again on its state.
    ///
    /// # Panics
    /// It cannot be started.
    pub fn restart(&mut self) {
        // Before it runs: no call of its own may seem older than it is.
        self.controllers.push(outcome::Controller::started());
        must(self.controller.restart(), "the controller");
    }

    /// As [`World::restart`] with so many slots, fewer or more than before.
    ///
    /// # Panics
    /// It cannot be started.
    pub fn restart_with(&mut self, capacity: u32) {
        self.controller.set_capacity(capacity);
        self.restart();
    }

    /// As [`World::restart`], from here on with this setting.
    ///
    /// # Panics
    /// It cannot be started.
    pub fn restart_set(&mut self, name: &str, value: &str) {
        self.controller.set(name, value);
        self.restart();
    }

    /// As [`World::restart`], from here on with this program: another version of ours.
    ///
    /// # Panics
    /// It cannot be started.
    pub fn restart_as(&mut self, program: &Path) {
        self.controller.set_program(program.to_owned());
        self.restart();
    }

    /// This program, another version of ours, is started beside the controller and waits for its turn, which comes by SIGTERM to
    /// the controller: as a deployment rolls.
    ///
    /// # Panics
    /// It does not wait, or the controller does not end within `limit`.
    pub async fn roll_to(&mut self, program: &Path, limit: Duration) {
        must(self.controller.roll_to(program.to_owned(), limit).await, "the next controller");
        self.note_end(outcome::Death::InOrder);
        self.controllers.push(outcome::Controller::started());
    }

    fn note_end(&mut self, death: outcome::Death) {
        self.look_at_what_waits();
        if let Some(process) = self.controllers.last_mut() {
            process.ended.get_or_insert((Instant::now(), death));
        }
    }

    /// The processes of the controller so far.
    #[must_use]
    pub fn controllers(&self) -> &[outcome::Controller] {
        &self.controllers
    }
}
