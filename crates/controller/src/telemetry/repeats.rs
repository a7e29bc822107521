//! The same line is written once and then at most every five minutes, with the number of those that were left out
//! (NEW-142): one layer under everything that logs, so that no loop has to think of it.
//!
//! Lines are the same when level, words and subject are; numbers inside an error's text do not count, since most of them
//! are times, sizes and ports. Below INFO everything is written.

use std::collections::HashMap;
use std::fmt::{self, Write as _};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use crate::config::LogFormat;

/// The pause between two lines that are the same.
const PAUSE: Duration = Duration::from_secs(5 * 60);
/// Kinds of lines in one generation. Nearly every line of a job is of a kind of its own: what is remembered must not grow
/// with the number of jobs.
const KINDS: usize = 1024;

/// Tells the time; a test brings its own.
pub(super) type Now = fn() -> Instant;

/// An event format that leaves repetitions out.
pub(super) struct Summed<F> {
    inner: F,
    form: LogFormat,
    now: Now,
    memory: Mutex<Memory>,
}

#[derive(Clone, Copy)]
struct Told {
    at: Instant,
    left_out: u64,
}

/// What was told, in two generations. Who is told again is in the younger one; when that is full, the older one is forgotten:
/// a line that has not come for at least [`KINDS`] other kinds.
#[derive(Default)]
struct Memory {
    young: HashMap<u64, Told>,
    old: HashMap<u64, Told>,
}

impl Memory {
    fn take(&mut self, kind: u64) -> Option<Told> {
        self.young.remove(&kind).or_else(|| self.old.remove(&kind))
    }

    fn put(&mut self, kind: u64, told: Told) {
        if self.young.len() >= KINDS {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(kind, told);
    }
}

impl<F> Summed<F> {
    pub(super) fn new(inner: F, form: LogFormat, now: Now) -> Self {
        Self { inner, form, now, memory: Mutex::default() }
    }

    /// How many lines like this were left out before it; none: it is left out as well.
    fn admit(&self, kind: u64) -> Option<u64> {
        let now = (self.now)();
        let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        let before = memory.take(kind);
        let (told, admitted) = match before {
            Some(told) if now.saturating_duration_since(told.at) < PAUSE => {
                (Told { left_out: told.left_out + 1, ..told }, None)
            }
            _ => (Told { at: now, left_out: 0 }, Some(before.map_or(0, |told| told.left_out))),
        };
        memory.put(kind, told);
        admitted
    }
}

impl<S, N, F> FormatEvent<S, N> for Summed<F>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(&self, ctx: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let left_out = match Kind::of(event) {
            Some(kind) => match self.admit(kind) {
                Some(left_out) => left_out,
                None => return Ok(()),
            },
            None => 0,
        };
        if left_out == 0 {
            return self.inner.format_event(ctx, writer, event);
        }
        let mut line = String::new();
        self.inner.format_event(ctx, Writer::new(&mut line), event)?;
        // A format may have nothing to say of an event.
        if line.is_empty() {
            return Ok(());
        }
        match (self.form, line.trim_end().strip_suffix('}')) {
            (LogFormat::Json, Some(open)) => writeln!(writer, "{open},\"repeated\":{left_out}}}"),
            _ => writeln!(writer, "{} ({left_out} more like it)", line.trim_end()),
        }
    }
}

/// What makes two lines the same.
struct Kind {
    hash: DefaultHasher,
    level: Level,
    always: bool,
}

impl Kind {
    /// None: it is always written.
    fn of(event: &Event<'_>) -> Option<u64> {
        let level = *event.metadata().level();
        let mut kind = Self { hash: DefaultHasher::new(), level, always: level > Level::INFO };
        level.as_str().hash(&mut kind.hash);
        event.record(&mut kind);
        (!kind.always).then(|| kind.hash.finish())
    }
}

impl Visit for Kind {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let mut text = String::new();
        let _always_fits = write!(text, "{value:?}");
        self.record_str(field, &text);
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        // An audit is no repetition, however often it is the same.
        self.always |= value == "identity audit";
        field.name().hash(&mut self.hash);
        if matches!(field.name(), "error" | "cause") {
            value.bytes().filter(|byte| !byte.is_ascii_digit()).for_each(|byte| byte.hash(&mut self.hash));
        } else {
            value.hash(&mut self.hash);
        }
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        // A failure that goes on from one executor to the next is the same failure.
        if field.name() == "task_id" || (field.name() == "epoch" && self.level == Level::INFO) {
            (field.name(), value).hash(&mut self.hash);
        }
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.record_u64(field, value.unsigned_abs());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// NEW-142: what is remembered does not grow with the number of jobs, and a line that goes on is left out all along.
    #[test]
    fn many_kinds_of_lines() {
        let summed = Summed::new((), LogFormat::Json, Instant::now);
        assert_eq!(summed.admit(0), Some(0));
        for kind in 1..100_000 {
            assert_eq!(summed.admit(kind), Some(0));
            assert!(!kind.is_multiple_of(500) || summed.admit(0).is_none(), "after {kind} others");
        }
        let memory = summed.memory.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(memory.young.len() + memory.old.len() <= 2 * KINDS);
    }
}
