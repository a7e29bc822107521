//! How a blow falls, and what becomes of the way to Gitea with it.

use std::time::{Duration, Instant};

use testkit::gitea::Latency;
use testkit::real::{Process, Signal};

use super::super::chance::{Blow, Target, Weather};
use super::{Course, Due, OFFERED_AGAIN, State, Struck};

impl Course {
    /// Lets a blow fall; false when there is nobody whom it could strike.
    pub(super) fn fall(&mut self, blow: &Blow) -> bool {
        if let Some(weather) = &blow.weather {
            self.change(weather);
        }
        let struck = match blow.target {
            Target::Controller => self.strike_controller(blow),
            Target::Executor => self.strike_process(blow, &self.world.executor_processes()),
            Target::Runner => self.strike_process(blow, &self.world.runners()),
            Target::Nats => self.strike_nats(blow),
        };
        if struck {
            *self.account.blows.entry((blow.target, word(blow.signal))).or_default() += 1;
        }
        struck
    }

    fn change(&mut self, weather: &Weather) {
        let gitea = &self.world.gitea;
        let now = Instant::now();
        match weather {
            Weather::Fault(method, fault) => gitea.fail_next(*method, fault.clone()),
            Weather::Slow(most) => gitea.set_latency(Latency::between(Duration::ZERO, *most, self.wanted.seed)),
            Weather::Away(away, lasting) => {
                gitea.set_away(*away);
                self.away.push((now, now + *lasting));
                self.due.push((now + *lasting, Due::GiteaIsBack));
            }
        }
    }

    fn strike_controller(&mut self, blow: &Blow) -> bool {
        let now = Instant::now();
        match (self.state, blow.signal) {
            // It may be killed while it is stopped or ends in order.
            (State::Up | State::Paused { .. } | State::Ending { .. }, Signal::Kill) => {
                if matches!(self.state, State::Paused { .. }) {
                    self.world.go_on();
                }
                self.world.kill9();
                self.state = State::Down { until: now + blow.lasting };
            }
            (State::Up, Signal::Stop) => {
                self.world.pause();
                self.state = State::Paused { until: now + blow.lasting };
            }
            (State::Up, _) => {
                self.world.ask_to_end();
                self.state = State::Ending { since: now, then: blow.lasting };
            }
            _ => return false,
        }
        true
    }

    fn strike_nats(&mut self, blow: &Blow) -> bool {
        if self.nats.is_some() {
            return false;
        }
        let now = Instant::now();
        self.queue_away.push((now, now + blow.lasting + OFFERED_AGAIN));
        self.nats = Some(self.world.broker().strike(blow.signal, blow.lasting));
        true
    }

    fn strike_process(&mut self, blow: &Blow, processes: &[Process]) -> bool {
        let count = processes.len();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a part of a small count")]
        let Some(process) = processes.get((blow.which * count as f64) as usize) else { return false };
        let at = Instant::now();
        process.signal(blow.signal);
        self.account.struck.extend(process.task().map(|task| Struck { at, signal: blow.signal, task }));
        if blow.signal == Signal::Stop {
            self.due.push((at + blow.lasting, Due::Resume(process.pid)));
        }
        true
    }
}

/// As people call it.
fn word(signal: Signal) -> &'static str {
    match signal {
        Signal::Terminate => "SIGTERM",
        Signal::Interrupt => "SIGINT",
        Signal::Kill => "SIGKILL",
        Signal::Stop => "SIGSTOP",
        Signal::Continue => "SIGCONT",
    }
}
