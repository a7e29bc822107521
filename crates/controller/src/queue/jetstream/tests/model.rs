//! Any order of calls against a model that fits on a page.

use std::collections::{BTreeMap, BTreeSet};

use domain::reason::Reason;

use super::*;

/// A number and a life.
type Name = (i64, &'static str);

#[derive(Debug, Clone, Default, PartialEq)]
struct Expected {
    place: usize,
    attempts: u32,
    leased: bool,
    delayed: bool,
}

#[derive(Default)]
struct Model {
    waiting: BTreeMap<Name, Expected>,
    ended: BTreeSet<Name>,
    places: usize,
}

impl Model {
    fn publish(&mut self, name: Name) -> Result<Published, &'static str> {
        if self.ended.contains(&name) {
            return Err("ended");
        }
        match self.waiting.keys().find(|other| other.0 == name.0) {
            Some(other) if *other == name => Ok(Published::Duplicate),
            Some(_) => Err("conflict"),
            None => {
                self.places += 1;
                self.waiting.insert(name, Expected { place: self.places, ..Expected::default() });
                Ok(Published::New)
            }
        }
    }

    fn may_come(&self) -> Vec<Name> {
        self.waiting.iter().filter(|(_, is)| !is.leased && !is.delayed).map(|(name, _)| *name).collect()
    }

    fn listed(&self) -> Vec<(Name, u32, bool)> {
        let mut all: Vec<_> = self.waiting.iter().collect();
        all.sort_by_key(|(_, is)| is.place);
        all.into_iter().map(|(name, is)| (*name, is.attempts, is.leased)).collect()
    }
}

/// Chance that is the same in every run.
struct Chance(u64);

impl Chance {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

fn named((n, life): Name) -> Message {
    message(n, life)
}

fn key_of(name: Name) -> Key {
    let Message { id, digest, .. } = named(name);
    Key { id, digest }
}

fn name_of(id: domain::id::AssignmentId, digest: &domain::id::PayloadDigest) -> Name {
    let n = id.task().get();
    ["a", "b"].map(|life| (n, life)).into_iter().find(|name| key_of(*name).digest == *digest).unwrap()
}

/// NEW-3, NEW-34, NEW-45, NEW-46, NEW-50, NEW-52, PUB-2, PRC-4, PRC-9, CON-4: any order of calls, new processes and dead
/// servers: what lies there, its history, and who has it in hand, is what the model says after every step.
#[tokio::test]
async fn any_order_of_calls() {
    for seed in [1, 2] {
        let mut server = start().await;
        let (mut model, mut chance) = (Model::default(), Chance(seed));
        let mut queue = open(&server, "model").await;
        for step in 0..120 {
            let at = format!("seed {seed}, step {step}");
            one_step(&mut model, &mut chance, &mut queue, &mut server, &at).await;
            let listed = repeat("list", async || queue.list(Backend::Pod).await).await;
            let listed: Vec<_> = listed.iter().map(|is| (name_of(is.id, &is.digest), is.attempts, is.leased)).collect();
            assert_eq!(listed, model.listed(), "{at}");
        }
    }
}

async fn one_step(model: &mut Model, chance: &mut Chance, queue: &mut JetStream, server: &mut NatsServer, at: &str) {
    let mut name =
        (i64::try_from(chance.below(6)).unwrap() + 1, ["a", "a", "b"][usize::try_from(chance.below(3)).unwrap()]);
    // Mostly something that is there.
    if let (true, Some(there)) =
        (chance.below(4) > 0, model.waiting.keys().nth(usize::try_from(chance.below(4)).unwrap()))
    {
        name = *there;
    }
    match chance.below(20) {
        0..6 => {
            let published = repeat("publish", async || match queue.publish(named(name)).await {
                Err(QueueError::Ended { .. }) => Ok(Err("ended")),
                Err(QueueError::Conflict { .. }) => Ok(Err("conflict")),
                other => other.map(Ok),
            });
            assert_eq!(published.await, model.publish(name), "{at}: publish {name:?}");
        }
        6..12 => {
            let candidates = model.may_come();
            let pulled = repeat("pull", async || match queue.pull(Backend::Pod, Timestamp::now()).await {
                Ok(None) if !candidates.is_empty() => Err(QueueError::Unavailable { cause: "nothing yet".to_owned() }),
                other => other,
            });
            let pulled = pulled.await;
            let came = pulled.as_ref().map(|is| name_of(is.id, &is.digest));
            assert_eq!(came.is_some(), !candidates.is_empty(), "{at}: {came:?} of {candidates:?}");
            if let (Some(name), Some(delivery)) = (came, pulled) {
                assert!(candidates.contains(&name), "{at}: {name:?} of {candidates:?}");
                let expected = model.waiting.get_mut(&name).unwrap();
                assert!(delivery.body == named(name).body && delivery.attempts == expected.attempts, "{at}");
                expected.leased = true;
            }
        }
        12..17 => settle_one(model, chance, queue, name).await,
        17..19 => {
            *queue = open(server, "model").await;
            model.waiting.values_mut().for_each(|is| is.leased = false);
        }
        _ => {
            server.kill();
            server.start_again().await.unwrap();
        }
    }
}

async fn settle_one(model: &mut Model, chance: &mut Chance, queue: &JetStream, name: Name) {
    let (disposition, delayed) = match chance.below(6) {
        0 => (Disposition::Ack, false),
        1 => (Disposition::Reject { reason: Reason::QueueTimeout }, false),
        2 => (Disposition::Release, false),
        3 => (later(3600), true),
        _ => (later(0), false),
    };
    repeat("settle", async || queue.settle(key_of(name), disposition.clone()).await).await;
    match disposition {
        Disposition::Ack | Disposition::Reject { .. } => {
            model.waiting.remove(&name);
            model.ended.insert(name);
        }
        Disposition::Release => {
            model.waiting.entry(name).and_modify(|is| is.leased = false);
        }
        Disposition::Retry { .. } => {
            let tried =
                |is: &mut Expected| *is = Expected { attempts: is.attempts + 1, leased: false, delayed, ..is.clone() };
            model.waiting.entry(name).and_modify(tried);
        }
    }
    model.waiting.retain(|_, is| is.place > 0);
}
