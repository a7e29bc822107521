//! Asks every question of both sides, several at once.

use futures::StreamExt as _;
use serde::Serialize;

use super::{Of, Pace, Question, Real, Side, ask, questions};
use crate::gitea::{Gitea, Rules, Settings};

/// What a side made of a question.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum Outcome {
    /// It answers as the contract says.
    Right,
    /// It answers otherwise, or could not be asked.
    Wrong {
        /// How.
        how: String,
    },
    /// The behaviour is newer than what can be installed.
    Absent {
        /// From where the answer is known.
        source: &'static str,
    },
}

/// A question with both answers.
#[derive(Debug, Clone, Serialize)]
pub struct Verdict {
    /// The question.
    pub question: &'static str,
    /// The rules it decides.
    pub rules: &'static [&'static str],
    /// What the real Gitea says.
    pub real: Outcome,
    /// What the double says.
    pub double: Outcome,
}

impl Verdict {
    /// Whether nobody answered wrongly.
    #[must_use]
    pub fn holds(&self) -> bool {
        ![&self.real, &self.double].into_iter().any(|outcome| matches!(outcome, Outcome::Wrong { .. }))
    }
}

/// Questions that are asked at the same time: most of each is waiting for the server.
const AT_ONCE: usize = 8;
const ALL_AT_ONCE: usize = 64;

/// Asks all questions whose name contains `wanted`.
///
/// # Errors
///
/// The real Gitea does not start; nothing was judged then.
pub async fn judge(wanted: &str) -> anyhow::Result<Vec<Verdict>> {
    let (calm, hasty) = (tempfile::tempdir()?, tempfile::tempdir()?);
    let (calm, hasty) =
        tokio::try_join!(Real::start(calm.path(), Pace::Default), Real::start(hasty.path(), Pace::Hasty))?;
    let chosen: Vec<_> = questions().filter(|question| question.name.contains(wanted)).collect();
    // The hasty ones wait most of their time and would be last: they start first, all of them.
    let (slow, quick): (Vec<_>, Vec<_>) = chosen.iter().partition(|question| question.of == Of::Hasty);
    let slow = verdicts(slow, &hasty, ALL_AT_ONCE);
    let quick = verdicts(quick, &calm, AT_ONCE);
    let (slow, quick) = tokio::join!(slow, quick);
    let mut verdicts: Vec<Verdict> = slow.into_iter().chain(quick).collect();
    let order = |verdict: &Verdict| questions().position(|question| question.name == verdict.question);
    verdicts.sort_by_key(order);
    Ok(verdicts)
}

async fn verdicts(questions: Vec<&'static Question>, real: &Real, at_once: usize) -> Vec<Verdict> {
    let asked = questions.into_iter().map(|question| async move {
        let real = match question.of {
            Of::Newer { source } => Outcome::Absent { source },
            Of::Both | Of::Hasty => outcome(question, real).await,
        };
        let double = double_for(question, Rules::default()).await;
        let double = outcome(question, &double).await;
        Verdict { question: question.name, rules: question.rules, real, double }
    });
    futures::stream::iter(asked).buffer_unordered(at_once).collect().await
}

/// A double that keeps `rules`, or what a newer server makes of them if the question is about one.
pub async fn double_for(question: &Question, rules: Rules) -> Gitea {
    match question.of {
        Of::Both | Of::Hasty => Gitea::start_with(rules, Settings::default()).await,
        Of::Newer { .. } => {
            let settings = Settings { capabilities_header: Some("job-summary"), ..Settings::default() };
            Gitea::start_with(rules.newer(), settings).await
        }
    }
}

async fn outcome(question: &Question, side: &dyn Side) -> Outcome {
    match ask(question, side).await {
        Ok(()) => Outcome::Right,
        Err(error) => Outcome::Wrong { how: format!("{error:#}") },
    }
}
