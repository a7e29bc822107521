//! What a person reads while a task works: one changing line on a terminal, plain lines elsewhere. Progress goes to
//! standard error, results to standard output.

use std::io::{IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

/// Without a terminal, a long step says this often that it still works.
const REMINDER: Duration = Duration::from_secs(30);
const REDRAW: Duration = Duration::from_millis(200);
const WIDTH: usize = 110;

/// Writes one line of progress.
pub(crate) fn line(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}

/// Writes one line of result.
pub(crate) fn result(text: &str) {
    let _ = writeln!(std::io::stdout().lock(), "{text}");
}

/// A step that takes a while.
pub(crate) struct Step {
    title: String,
    started: Instant,
    shown: Instant,
    terminal: bool,
}

impl Step {
    /// Begins, and says so.
    pub(crate) fn begin(title: impl Into<String>) -> Self {
        let (title, now) = (title.into(), Instant::now());
        let terminal = std::io::stderr().is_terminal();
        if !terminal {
            line(&format!("{title} ..."));
        }
        Self { title, started: now, shown: now, terminal }
    }

    /// Says what is going on, as often as is good for the reader.
    pub(crate) fn tick(&mut self, detail: &str) {
        let pause = if self.terminal { REDRAW } else { REMINDER };
        if self.shown.elapsed() < pause {
            return;
        }
        self.shown = Instant::now();
        let text = format!("{} ... {} s  {}", self.title, self.started.elapsed().as_secs(), detail.trim());
        if self.terminal {
            let text: String = text.chars().filter(|c| !c.is_control()).take(WIDTH).collect();
            let _ = write!(std::io::stderr().lock(), "\r\x1b[K{text}");
        } else {
            line(&text);
        }
    }

    /// Ends with a word; returns the seconds it took.
    pub(crate) fn end(self, word: &str) -> f64 {
        let seconds = self.started.elapsed().as_secs_f64();
        let erase = if self.terminal { "\r\x1b[K" } else { "" };
        line(&format!("{erase}{}: {word} ({seconds:.1} s)", self.title));
        seconds
    }
}
