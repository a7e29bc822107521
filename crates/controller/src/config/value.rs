//! The types of settings that are not domain names: spans of time, counts, lists, paths.
//!
//! Every function here is a rule of one row of [`super::table`]. None guesses: what does not parse is an error that
//! the caller turns into a text with the setting's name (CFG-9).

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use domain::id::Backend;

use super::allow::AllowList;
use super::setting::Problem;
use crate::backend::local::isolation::{Access, Shared, UserRange};

pub(super) fn invalid<T>(why: impl Into<String>) -> Result<T, Problem> {
    Err(Problem::Invalid(why.into()))
}

/// A count from 1 to `MAX`.
pub(super) fn count<const MAX: u32>(text: &str) -> Result<NonZeroU32, Problem> {
    digits(text).filter(|n| n.get() <= MAX).ok_or(Problem::Breaks)
}

/// A count from `MIN` to `MAX`.
pub(super) fn count_from<const MIN: u32, const MAX: u32>(text: &str) -> Result<NonZeroU32, Problem> {
    count::<MAX>(text).and_then(|count| if count.get() < MIN { Err(Problem::Breaks) } else { Ok(count) })
}

/// A number from 0 to `MAX`.
pub(super) fn number<const MAX: u32>(text: &str) -> Result<u32, Problem> {
    match text {
        "0" => Ok(0),
        _ => count::<MAX>(text).map(NonZeroU32::get),
    }
}

fn digits(text: &str) -> Option<NonZeroU32> {
    if text.bytes().all(|b| b.is_ascii_digit()) { text.parse().ok() } else { None }
}

/// A duration with unit, between `MIN` and `MAX` seconds.
pub(super) fn span<const MIN: u64, const MAX: u64>(text: &str) -> Result<Duration, Problem> {
    if text.bytes().all(|b| b.is_ascii_digit()) {
        return invalid("it has no unit");
    }
    let Ok(span) = humantime::parse_duration(text) else { return Err(Problem::Breaks) };
    if span < Duration::from_secs(MIN) || span > Duration::from_secs(MAX) {
        return invalid("it is out of range");
    }
    Ok(span)
}

/// As [`span`], in whole seconds: what SPIRE's API takes.
pub(super) fn whole_seconds<const MIN: u64, const MAX: u64>(text: &str) -> Result<Duration, Problem> {
    span::<MIN, MAX>(text).and_then(|s| if s.subsec_nanos() == 0 { Ok(s) } else { invalid("it is not whole seconds") })
}

/// `true` or `false`.
pub(super) fn flag(text: &str) -> Result<bool, Problem> {
    text.parse().map_err(|_| Problem::Breaks)
}

/// A comma list of words: letters, digits and `_`.
pub(super) fn words(text: &str) -> Result<Vec<String>, Problem> {
    let word = |w: &str| !w.is_empty() && w.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    let words: Vec<_> = text.split(',').map(str::trim).collect();
    match words.iter().find(|w| !word(w)) {
        Some(bad) => invalid(format!("{bad:?} is not a word of letters, digits and _")),
        None => Ok(words.into_iter().map(str::to_owned).collect()),
    }
}

/// `label=backend,…`; a label is what `runs-on` can name and Gitea stores whole (no colon, no comma, no space).
pub(super) fn extra_labels(text: &str) -> Result<Vec<(String, Backend)>, Problem> {
    let mut labels: Vec<(String, Backend)> = Vec::new();
    for item in text.split(',').map(str::trim) {
        let Some((label, backend)) = item.split_once('=') else {
            return invalid(format!("{item:?} is not label=backend"));
        };
        let backend = backend.trim().parse().map_err(|e| Problem::Invalid(format!("{item:?}: {e}")))?;
        let label = plain_label(label.trim()).map_err(Problem::Invalid)?;
        match labels.iter().find(|(known, _)| *known == label) {
            Some((_, other)) if *other != backend => return invalid(format!("label {label:?} names two backends")),
            Some(_) => {}
            None => labels.push((label, backend)),
        }
    }
    Ok(labels)
}

/// Checks one label.
pub(crate) fn plain_label(label: &str) -> Result<String, String> {
    let legal = |b: u8| b.is_ascii_graphic() && !matches!(b, b':' | b',' | b'=' | b'"');
    if label.is_empty() || label.len() > 255 || !label.bytes().all(legal) {
        return Err(format!("label {label:?} must be 1 to 255 printable ASCII characters without space : , = \""));
    }
    if label == "self-hosted" {
        return Err("label \"self-hosted\" is neutral and names no backend".into());
    }
    Ok(label.to_owned())
}

/// `none`, or the backend of jobs whose labels name none.
pub(super) fn default_backend(text: &str) -> Result<Option<Backend>, Problem> {
    if text == "none" { Ok(None) } else { text.parse().map(Some).map_err(|_| Problem::Breaks) }
}

/// The path of a configuration that an executor can use: what would end every job is found here, once (NEW-115).
pub(super) fn runner_config(text: &str) -> Result<PathBuf, Problem> {
    let path = absolute(text)?;
    match executor::check_base(&path) {
        Ok(()) => Ok(path),
        Err(executor::BaseError::Unreadable(error)) => Err(Problem::Unreadable(super::secret::plain(&error))),
        Err(executor::BaseError::Malformed(why)) => Err(Problem::Invalid(why)),
    }
}

/// An absolute path.
pub(super) fn absolute(text: &str) -> Result<PathBuf, Problem> {
    let path = PathBuf::from(text);
    if path.is_absolute() { Ok(path) } else { invalid("it is not an absolute path") }
}

/// The allow-list in the file at an absolute path.
pub(super) fn allow_list(text: &str) -> Result<AllowList, Problem> {
    AllowList::read(&absolute(text)?).map_err(|error| Problem::Invalid(error.to_string()))
}

/// Uids `FIRST-LAST`. Users of the system have lower ones; the highest two mean nobody.
pub(super) fn users(text: &str) -> Result<UserRange, Problem> {
    const LAST: u32 = u32::MAX - 2;
    let (first, last) = text.split_once('-').ok_or(Problem::Breaks)?;
    let (first, last) = (digits(first).ok_or(Problem::Breaks)?.get(), digits(last).ok_or(Problem::Breaks)?.get());
    if (1000..=last).contains(&first) && last <= LAST { Ok(first..=last) } else { Err(Problem::Breaks) }
}

/// Paths that jobs see, `/path` or `/path:rw`.
pub(super) fn shared(text: &str) -> Result<Vec<Shared>, Problem> {
    let one = |item: &str| {
        let (path, access) = match item.strip_suffix(":rw") {
            Some(path) => (path, Access::Writable),
            None => (item, Access::ReadOnly),
        };
        let path = absolute(path)?;
        if path.parent().is_none() {
            return invalid("/ is the whole host; name what jobs need");
        }
        Ok(Shared { path, access })
    };
    text.split(',').map(str::trim).map(one).collect()
}

/// Text that obeys no further rule here; the component that uses it checks the rest.
pub(super) fn any(text: &str) -> Result<String, Problem> {
    Ok(text.to_owned())
}

/// Exactly one of these words.
pub(super) fn one_of<T: Copy>(text: &str, words: &[(&str, T)]) -> Result<T, Problem> {
    words.iter().find(|(word, _)| *word == text).map(|(_, value)| *value).ok_or(Problem::Breaks)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// NEW-171: no user of the system and nobody is given to a job.
    #[test]
    fn ranges_of_users() {
        assert_eq!(users("2000000-2001023"), Ok(2_000_000..=2_001_023));
        for bad in ["", "5", "0-10", "999-2000", "2000-1999", "2000-4294967294", "2000-4294967295", "a-b", "2000-"] {
            assert!(users(bad).is_err(), "{bad:?}");
        }
    }

    /// NEW-170: a path is read-only unless it is said otherwise.
    #[test]
    fn shared_paths() {
        let shared_path = |path: &str, access| Shared { path: path.into(), access };
        let both = vec![shared_path("/a b", Access::ReadOnly), shared_path("/c", Access::Writable)];
        assert_eq!(shared("/a b, /c:rw"), Ok(both));
        for bad in ["a", "/a,", "/", "/:rw", "//", "/a,/."] {
            assert!(shared(bad).is_err(), "{bad}");
        }
    }

    /// CFG-9: counts that are not counts.
    #[test]
    fn counts_and_spans() {
        for bad in ["x", "0", "-1", "4.5", "99999999999", "", "+3", " 3"] {
            assert!(count::<1024>(bad).is_err(), "{bad:?}");
        }
        assert_eq!(count::<1024>("1024").map(NonZeroU32::get), Ok(1024));
        assert!(count::<1024>("1025").is_err());
        assert_eq!(count_from::<64, 100>("64").map(NonZeroU32::get), Ok(64));
        assert!(count_from::<64, 100>("63").is_err() && count_from::<64, 100>("101").is_err());
        assert_eq!(number::<32>("0"), Ok(0));
        assert!(number::<32>("33").is_err());
        assert_eq!(span::<1, 86_400>("1h 30m"), Ok(Duration::from_secs(5400)));
        for bad in ["30", "0s", "25h", "-1s", "", "s", "1 parsec"] {
            assert!(span::<1, 86_400>(bad).is_err(), "{bad:?}");
        }
        assert!(whole_seconds::<30, 86_400>("30500ms").is_err());
    }

    #[test]
    fn labels() {
        assert_eq!(extra_labels("fast=local, big=vm").map(|l| l.len()), Ok(2));
        for bad in ["fast", "=local", "a:b=local", "self-hosted=local", "a=cloud", "a=local,a=vm", "a b=local"] {
            assert!(extra_labels(bad).is_err(), "{bad}");
        }
    }
}
