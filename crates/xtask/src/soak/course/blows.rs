//! How a blow falls, and what becomes of the way to Gitea with it.

use std::time::{Duration, Instant};

use domain::id::assignment_of_name;
use testkit::gitea::Latency;
use testkit::kubernetes::Fate;
use testkit::real::{Process, Signal};

use super::super::chance::{Blow, ClusterWeather, Deed, Target, Trouble, Weather};
use super::{Befallen, Course, Due, OFFERED_AGAIN, State, Struck};

impl Course {
    /// Lets a blow fall; false when there is nobody whom it could strike.
    pub(super) fn fall(&mut self, blow: &Blow) -> bool {
        if let Some(weather) = &blow.weather {
            self.change(weather);
        }
        if let Some(weather) = &blow.cluster {
            self.change_cluster(weather);
        }
        let struck = match blow.target {
            Target::Controller => self.strike_controller(blow),
            Target::Executor => self.strike_process(blow, &self.world.executor_processes()),
            Target::Runner => self.strike_process(blow, &self.world.runners()),
            Target::Pod => self.strike_pod(blow),
            Target::Nats => self.strike_nats(blow),
        };
        if struck {
            *self.account.blows.entry((blow.target, word(blow.deed))).or_default() += 1;
        }
        struck
    }

    fn change_cluster(&mut self, weather: &ClusterWeather) {
        let kubernetes = &self.world.cluster().kubernetes;
        match weather {
            ClusterWeather::Fault(on, fault) => kubernetes.fail(on.clone(), fault.clone()),
            ClusterWeather::Slow(most) => {
                kubernetes.set_latency(Latency::between(Duration::ZERO, *most, self.wanted.seed));
            }
            ClusterWeather::CutWatches => kubernetes.cut_watches(),
            ClusterWeather::Forgets => kubernetes.forget_history(),
            ClusterWeather::For(trouble, lasting) => {
                match trouble {
                    Trouble::Away(away) => kubernetes.set_away(*away),
                    Trouble::Silent => kubernetes.silence_watches(true),
                    Trouble::Agent => self.world.cluster().agent_is_away(true),
                }
                self.due.push((Instant::now() + *lasting, Due::Clears(*trouble)));
            }
        }
    }

    fn strike_pod(&mut self, blow: &Blow) -> bool {
        let Deed::Befalls(fate) = blow.deed else { return false };
        let pods = self.world.executors();
        let Some(pod) = one_of(&pods, blow) else { return false };
        let (at, task) = (Instant::now(), assignment_of_name(pod).map(|assignment| assignment.task().get()));
        let struck = self.world.cluster().kubernetes.kubelet().befalls(pod, fate);
        self.account.befallen.extend(task.filter(|_| struck).map(|task| Befallen { at, fate, task }));
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
        let Deed::Sends(signal) = blow.deed else { return false };
        match (self.state, signal) {
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
        let Deed::Sends(signal) = blow.deed else { return false };
        if self.nats.is_some() {
            return false;
        }
        let now = Instant::now();
        self.queue_away.push((now, now + blow.lasting + OFFERED_AGAIN));
        self.nats = Some(self.world.broker().strike(signal, blow.lasting));
        true
    }

    fn strike_process(&mut self, blow: &Blow, processes: &[Process]) -> bool {
        let Deed::Sends(signal) = blow.deed else { return false };
        let Some(process) = one_of(processes, blow) else { return false };
        let at = Instant::now();
        process.signal(signal);
        self.account.struck.extend(process.task().map(|task| Struck { at, signal, task }));
        if signal == Signal::Stop {
            self.due.push((at + blow.lasting, Due::Resume(process.pid)));
        }
        true
    }
}

/// The one of several that a blow strikes.
fn one_of<'a, T>(all: &'a [T], blow: &Blow) -> Option<&'a T> {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a part of a small count")]
    let which = (blow.which * all.len() as f64) as usize;
    all.get(which)
}

/// As people call it.
fn word(deed: Deed) -> &'static str {
    match deed {
        Deed::Sends(Signal::Terminate) => "SIGTERM",
        Deed::Sends(Signal::Interrupt) => "SIGINT",
        Deed::Sends(Signal::Kill) => "SIGKILL",
        Deed::Sends(Signal::Stop) => "SIGSTOP",
        Deed::Sends(Signal::Continue) => "SIGCONT",
        Deed::Befalls(Fate::Deleted) => "deletion",
        Deed::Befalls(Fate::Forced) => "forced deletion",
        Deed::Befalls(Fate::Evicted) => "eviction",
        Deed::Befalls(Fate::OutOfMemory) => "end for want of memory",
        Deed::Befalls(Fate::Preempted) => "preemption",
    }
}
