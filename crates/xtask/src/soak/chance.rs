//! What a soak draws by lot. Pure: the seed decides everything, so that a failure can be repeated as far as the machine's
//! own timing allows.

use std::ops::Range;
use std::time::Duration;

use fastrand::Rng;
use testkit::gitea::{Away, FaultSpec, JobSpec, Method, StepSpec};
use testkit::kubernetes::{Fate, Fault, On, Verb};
use testkit::real::Signal;

use crate::backend_kind::BackendKind;
use crate::queue_kind::QueueKind;
use crate::sides::Sides;

/// Whom a blow strikes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Target {
    Controller,
    Executor,
    Runner,
    Pod,
    Nats,
}

/// What it does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Deed {
    /// To a process.
    Sends(Signal),
    /// To a Pod.
    Befalls(Fate),
}

/// One blow.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Blow {
    /// Time since the one before.
    pub(super) after: Duration,
    pub(super) target: Target,
    pub(super) deed: Deed,
    /// Which of several, as a part of their number.
    pub(super) which: f64,
    /// How long a stopped process stays stopped, or how long a controller stays away.
    pub(super) lasting: Duration,
    /// What becomes of the way to Gitea at the same time.
    pub(super) weather: Option<Weather>,
    /// What becomes of the cluster.
    pub(super) cluster: Option<ClusterWeather>,
}

/// Trouble on the way to Gitea.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Weather {
    /// The next calls of a method meet this fault.
    Fault(Method, FaultSpec),
    /// Every call takes up to so long, until the next weather.
    Slow(Duration),
    /// The whole server is away for a while.
    Away(Away, Duration),
}

/// Trouble with the API of the cluster, or with its node.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum ClusterWeather {
    /// The next such calls meet this fault.
    Fault(On, Fault),
    /// Every call takes up to so long, until the next weather.
    Slow(Duration),
    /// All watches break off.
    CutWatches,
    /// The versions that watches go on from are forgotten.
    Forgets,
    /// Something is wrong for a while.
    For(Trouble, Duration),
}

/// What lasts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Trouble {
    /// The API server is away.
    Away(Away),
    /// Watches tell nothing.
    Silent,
    /// The SPIRE agent of the node is away.
    Agent,
}

/// One job.
pub(super) struct Job {
    pub(super) spec: JobSpec,
    /// A user cancels it so long after the push.
    pub(super) cancelled_after: Option<Duration>,
}

impl Blow {
    pub(super) fn draw(rng: &mut Rng, sides: Sides) -> Self {
        let pods = sides.backend == BackendKind::Pod;
        let kinds = KINDS.iter().filter(|kind| match kind.0 {
            Target::Nats => sides.queue == QueueKind::Jetstream,
            Target::Pod => pods,
            Target::Controller | Target::Executor | Target::Runner => true,
        });
        let mut left = rng.u32(0..kinds.clone().map(|kind| kind.2).sum());
        let past = |kind: &&(Target, Deed, u32)| {
            let hit = left < kind.2;
            left = left.saturating_sub(kind.2);
            hit
        };
        // The weights add up to the bound of the draw.
        let (target, deed, _) = kinds.clone().find(past).copied().unwrap_or(KINDS[0]);
        Self {
            // From its making to its claim a Pod takes longer than a process.
            after: between(rng, if pods { 100..2000 } else { 50..900 }),
            target,
            deed,
            which: rng.f64(),
            // Often at once: then the next process meets the calls of the last one.
            lasting: if rng.f64() < 0.4 { Duration::ZERO } else { between(rng, 50..2500) },
            weather: (rng.f64() < 0.35).then(|| Weather::draw(rng)),
            cluster: (pods && rng.f64() < 0.35).then(|| ClusterWeather::draw(rng)),
        }
    }

    /// Whether it ends the process it strikes.
    pub(super) fn kills(&self) -> bool {
        self.deed != Deed::Sends(Signal::Stop)
    }
}

const fn sends(target: Target, signal: Signal, weight: u32) -> (Target, Deed, u32) {
    (target, Deed::Sends(signal), weight)
}

const fn befalls(fate: Fate, weight: u32) -> (Target, Deed, u32) {
    (Target::Pod, Deed::Befalls(fate), weight)
}

/// What may happen, and how often.
const KINDS: [(Target, Deed, u32); 16] = [
    sends(Target::Controller, Signal::Kill, 25),
    sends(Target::Controller, Signal::Terminate, 7),
    sends(Target::Controller, Signal::Stop, 5),
    sends(Target::Executor, Signal::Kill, 18),
    sends(Target::Executor, Signal::Terminate, 10),
    sends(Target::Executor, Signal::Stop, 5),
    sends(Target::Runner, Signal::Kill, 18),
    sends(Target::Runner, Signal::Terminate, 8),
    sends(Target::Runner, Signal::Stop, 4),
    sends(Target::Nats, Signal::Kill, 15),
    sends(Target::Nats, Signal::Stop, 5),
    befalls(Fate::Deleted, 8),
    befalls(Fate::Forced, 6),
    befalls(Fate::Evicted, 5),
    befalls(Fate::OutOfMemory, 5),
    befalls(Fate::Preempted, 3),
];

impl Weather {
    fn draw(rng: &mut Rng) -> Self {
        let method = [Method::UpdateTask, Method::UpdateLog][rng.usize(0..2)];
        // An answer to FetchTask that is lost after the commit loses the task, and no kill was in it.
        let any = [Method::UpdateTask, Method::UpdateLog, Method::FetchTask][rng.usize(0..3)];
        let times = rng.u32(1..4);
        match rng.u32(0..20) {
            0..4 => Self::Fault(any, FaultSpec::cut().times(times)),
            4..9 => Self::Fault(method, FaultSpec::cut().after_commit().times(times)),
            9..12 => Self::Fault(any, FaultSpec::answer(502, "text/html", "<h1>bad gateway</h1>").times(times)),
            12 => Self::Fault(method, FaultSpec::hang()),
            13..17 => Self::Slow(between(rng, 1..250)),
            17 => Self::Away(Away::Refusing, between(rng, 100..3000)),
            _ => Self::Away(Away::Unavailable, between(rng, 100..3000)),
        }
    }
}

impl ClusterWeather {
    fn draw(rng: &mut Rng) -> Self {
        const VERBS: [Verb; 7] =
            [Verb::Create, Verb::Create, Verb::Patch, Verb::Delete, Verb::Update, Verb::List, Verb::Watch];
        let on = On::verb(VERBS[rng.usize(0..VERBS.len())]);
        let times = rng.u32(1..4);
        match rng.u32(0..20) {
            0..3 => Self::Fault(on, Fault::cut().times(times)),
            3..7 => Self::Fault(on, Fault::lost_answer().times(times)),
            7 => Self::Fault(on, Fault::internal().times(times)),
            8 => Self::Fault(on, Fault::too_many_requests(1).times(times)),
            9 => Self::Fault(on, Fault::timeout().after_commit().times(times)),
            10 => Self::Fault(on, Fault::hang()),
            11..14 => Self::Slow(between(rng, 1..250)),
            14 => Self::CutWatches,
            15 => Self::Forgets,
            16 => Self::For(Trouble::Silent, between(rng, 100..3000)),
            17 => Self::For(Trouble::Agent, between(rng, 100..3000)),
            18 => Self::For(Trouble::Away(Away::Refusing), between(rng, 100..3000)),
            _ => Self::For(Trouble::Away(Away::Unavailable), between(rng, 100..3000)),
        }
    }
}

impl Job {
    pub(super) fn draw(rng: &mut Rng, number: usize) -> Self {
        let mut steps: Vec<String> = (0..rng.usize(1..4)).map(|step| lines(rng, step).join("\n")).collect();
        let last = match rng.u32(0..100) {
            0..12 => "fail",
            12..15 => "vanish",
            15..18 => "terminate-self",
            18..23 => "leave-behind",
            _ => "say the end",
        };
        if let Some(step) = steps.last_mut() {
            step.push('\n');
            step.push_str(last);
        }
        if rng.f64() < 0.05 {
            steps[0].insert_str(0, "on-cancel leave\n");
        }
        let repository = format!("acme/app{}", number % 7);
        let spec = JobSpec::new(format!("job{number}")).runs_on(["local"]).repository(repository);
        Self {
            spec: spec.steps(steps.iter().map(StepSpec::run)),
            cancelled_after: (rng.f64() < 0.2).then(|| between(rng, 0..15000)),
        }
    }
}

fn lines(rng: &mut Rng, step: usize) -> Vec<String> {
    let line = |at: usize| match rng.u32(0..3) {
        0 => format!("say step {step} line {at}"),
        1 => format!("sleep {}", rng.u32(20..1200)),
        _ => format!("burst {}", rng.u32(1..30)),
    };
    (0..4).map(line).collect()
}

fn between(rng: &mut Rng, millis: Range<u64>) -> Duration {
    Duration::from_millis(rng.u64(millis))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seed_decides_everything() {
        let all = Sides { queue: QueueKind::Jetstream, backend: BackendKind::Pod };
        let blows = |seed| {
            let mut rng = Rng::with_seed(seed);
            (0..50).map(|_| Blow::draw(&mut rng, all)).collect::<Vec<_>>()
        };
        assert_eq!(blows(1), blows(1));
        assert_ne!(blows(1), blows(2));
        let targets: std::collections::BTreeSet<_> = blows(3).iter().map(|blow| blow.target).collect();
        assert_eq!(targets.len(), 5);
        let mut rng = Rng::with_seed(3);
        let fewest = Sides { queue: QueueKind::Embedded, backend: BackendKind::Local };
        let elsewhere = |blow: &Blow| matches!(blow.target, Target::Nats | Target::Pod) || blow.cluster.is_some();
        assert!((0..500).all(|_| !elsewhere(&Blow::draw(&mut rng, fewest))));
    }
}
