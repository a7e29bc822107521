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
/// More kinds of lines than this are not remembered for longer than they have to be.
const KINDS: usize = 1024;

/// Tells the time; a test brings its own.
pub(super) type Now = fn() -> Instant;

/// An event format that leaves repetitions out.
pub(super) struct Summed<F> {
    inner: F,
    form: LogFormat,
    now: Now,
    told: Mutex<HashMap<u64, Told>>,
}

#[derive(Clone, Copy)]
struct Told {
    at: Instant,
    left_out: u64,
}

impl<F> Summed<F> {
    pub(super) fn new(inner: F, form: LogFormat, now: Now) -> Self {
        Self { inner, form, now, told: Mutex::default() }
    }

    /// How many lines like this were left out before it; none: it is left out as well.
    fn admit(&self, kind: u64) -> Option<u64> {
        let now = (self.now)();
        let recent = |told: &Told| now.saturating_duration_since(told.at) < PAUSE;
        let mut all = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() > KINDS {
            all.retain(|_, told| recent(told));
        }
        if let Some(told) = all.get_mut(&kind).filter(|told| recent(told)) {
            told.left_out += 1;
            return None;
        }
        let before = all.insert(kind, Told { at: now, left_out: 0 });
        Some(before.map_or(0, |told| told.left_out))
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
