//! Questions about Gitea's behaviour, asked of the real Gitea and of its double alike.
//!
//! What the traces do not show, the questions do. Each names the rules of [`Rules`](crate::gitea::Rules) that it
//! decides; a server answers with `Ok` if it behaves as the contract says. Invariant: a question that cannot be asked
//! is a wrong answer. The only questions that are not put to the real Gitea speak of newer servers than can be
//! installed, and their table says from where the answer is known.

mod area;
mod bench;
mod double;
mod ending;
mod fetch;
mod judge;
mod life;
mod log;
mod newer;
mod real;
mod side;
mod task;
mod update;
mod wire;

use futures::future::LocalBoxFuture;

pub use bench::{Bench, ask};
pub use judge::{Outcome, Verdict, double_for, judge};
pub use real::{Pace, Real};
pub use side::{Answer, Delivery, Observed, Service, Side};

/// One question.
pub struct Question {
    /// What is asked, in a few words.
    pub name: &'static str,
    /// The rules that the answer decides.
    pub rules: &'static [&'static str],
    /// Which servers are asked.
    pub of: Of,
    /// Asks; an error is an answer that the contract does not give.
    pub ask: Ask,
}

/// How a question is put.
pub type Ask = for<'a> fn(&'a Bench<'a>) -> LocalBoxFuture<'a, anyhow::Result<()>>;

/// Which servers a question is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Of {
    /// Gitea 1.26.0, real and double.
    Both,
    /// The same, with timeouts of seconds: the question lets time pass.
    Hasty,
    /// A newer server, which only the double plays; from here the answer is known.
    Newer {
        /// Where the contract has it from.
        source: &'static str,
    },
}

/// All questions.
pub fn questions() -> impl Iterator<Item = &'static Question> {
    let topics = [
        fetch::QUESTIONS,
        update::QUESTIONS,
        log::QUESTIONS,
        ending::QUESTIONS,
        life::QUESTIONS,
        task::QUESTIONS,
        wire::QUESTIONS,
        area::QUESTIONS,
        newer::QUESTIONS,
    ];
    topics.into_iter().flatten()
}
