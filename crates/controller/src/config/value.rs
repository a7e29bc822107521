//! The types of settings that are not domain names: addresses, spans of time, counts, lists.
//!
//! Every function here is a rule of one row of [`super::table`]. None guesses: what does not parse is an error that
//! the caller turns into a text with the setting's name (CFG-9).

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use domain::id::Backend;
use http::Uri;

use super::setting::Problem;
use crate::backend::local::isolation::{Access, Shared, UserRange};
use crate::facade::AllowList;

fn invalid<T>(why: impl Into<String>) -> Result<T, Problem> {
    Err(Problem::Invalid(why.into()))
}

/// The address of a Gitea: absolute http(s), host in lower case, without trailing `/`, userinfo, query or fragment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GiteaUrl {
    text: String,
    host: String,
    tls: bool,
}

impl GiteaUrl {
    /// Reads an address.
    ///
    /// # Errors
    /// What is wrong with it, without a password that may stand in it.
    pub fn parse(text: &str) -> Result<Self, Problem> {
        let url = parts(text)?;
        let host = url.host.to_ascii_lowercase();
        let port = url.port.map(|p| format!(":{p}")).unwrap_or_default();
        let scheme = if url.tls { "https" } else { "http" };
        let path = url.path.trim_end_matches('/');
        if path.ends_with("/api/actions") || path.ends_with("/api/v1") {
            return invalid("it names the API; give the address as in the browser");
        }
        Ok(Self { text: format!("{scheme}://{host}{port}{path}"), host, tls: url.tls })
    }

    /// The address without trailing `/`: what the instance id is derived from (requirements §1.3).
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The base of the runner service: the address and `/api/actions` (requirements §1.1).
    #[must_use]
    pub fn actions_base(&self) -> String {
        format!("{}/api/actions", self.text)
    }

    /// Whether a password or token would cross a network in clear text.
    #[must_use]
    pub fn is_exposed(&self) -> bool {
        !self.tls && !is_loopback(&self.host)
    }
}

impl fmt::Display for GiteaUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The address executors reach the facade at: absolute https, nothing but scheme, host and port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FacadeUrl(String);

impl FacadeUrl {
    /// Reads an address.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Self, Problem> {
        let url = parts(text)?;
        if !url.tls {
            return invalid("it is not https");
        }
        if !matches!(url.path, "" | "/") {
            return invalid("it has a path");
        }
        Ok(Self(text.trim_end_matches('/').to_owned()))
    }

    /// The text, without trailing `/`.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

struct Parts<'a> {
    tls: bool,
    host: String,
    port: Option<u16>,
    path: &'a str,
}

fn parts(text: &str) -> Result<Parts<'_>, Problem> {
    let Some((scheme, rest)) = text.split_once("://") else { return invalid("it has no scheme") };
    let tls = match scheme {
        "https" => true,
        "http" => false,
        other => return invalid(format!("{other:?} is neither http nor https")),
    };
    if rest.contains('#') {
        return invalid("it has a fragment");
    }
    let Ok(uri) = text.parse::<Uri>() else { return invalid("it is not a URL") };
    let Some(authority) = uri.authority() else { return invalid("it has no host") };
    if authority.as_str().contains('@') {
        return invalid("it has a user or password in it");
    }
    if uri.query().is_some() {
        return invalid("it has a query");
    }
    if authority.host().is_empty() || authority.as_str().ends_with(':') {
        return invalid("it has no host");
    }
    let path = rest.find('/').map_or("", |at| &rest[at..]);
    Ok(Parts { tls, host: authority.host().to_owned(), port: authority.port_u16(), path })
}

fn is_loopback(host: &str) -> bool {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// Cuts a password out of a URL, for texts that people see.
#[must_use]
pub fn without_password(text: &str) -> String {
    let Some((scheme, rest)) = text.split_once("://") else { return text.to_owned() };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    match rest[..end].rsplit_once('@') {
        Some((_, host)) => format!("{scheme}://***@{host}{}", &rest[end..]),
        None => text.to_owned(),
    }
}

/// A Workload API address by the SPIFFE standard: `unix:///abs/path` or `tcp://IP:port`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkloadEndpoint(String);

impl WorkloadEndpoint {
    /// Reads an address.
    ///
    /// # Errors
    /// When it is of neither form.
    pub fn parse(text: &str) -> Result<Self, Problem> {
        let unix = text.strip_prefix("unix://").is_some_and(|path| path.starts_with('/') && path.len() > 1);
        let tcp = text.strip_prefix("tcp://").is_some_and(|addr| addr.parse::<SocketAddr>().is_ok());
        if unix || tcp { Ok(Self(text.to_owned())) } else { Err(Problem::Breaks) }
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// `:port` (every IPv4 address) or `ip:port`.
pub(super) fn listen(text: &str) -> Result<SocketAddr, Problem> {
    match text.strip_prefix(':') {
        Some(port) => port.parse().map(|port| (Ipv4Addr::UNSPECIFIED, port).into()).map_err(|_| Problem::Breaks),
        None => text.parse().map_err(|_| Problem::Breaks),
    }
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

    #[track_caller]
    fn gitea(text: &str, expect: Result<&str, &str>) {
        let got = GiteaUrl::parse(text).map(|url| url.text);
        match (expect, got) {
            (Ok(text), Ok(got)) => assert_eq!(got, text),
            (Err(part), Err(Problem::Invalid(why))) => assert!(why.contains(part), "{text}: {why}"),
            (_, got) => panic!("{text}: {got:?}"),
        }
    }

    /// §2.1, F155: the address of a Gitea.
    #[test]
    fn gitea_addresses() {
        gitea("https://Git.Example.org/", Ok("https://git.example.org"));
        gitea("https://git.example.org:3000/sub/", Ok("https://git.example.org:3000/sub"));
        gitea("http://[::1]:3000", Ok("http://[::1]:3000"));
        gitea("git.example.org", Err("no scheme"));
        gitea("ssh://git.example.org", Err("neither http nor https"));
        gitea("https://", Err(""));
        gitea("https://user:hunter2@git.example.org", Err("user or password"));
        gitea("https://git.example.org/?a=b", Err("query"));
        gitea("https://git.example.org/#a", Err("fragment"));
        gitea("https://git.example.org/api/v1", Err("names the API"));
        gitea("https://git example.org", Err("not a URL"));
    }

    /// F97: what leaves the host in clear text.
    #[test]
    fn exposure() {
        let exposed = |text| GiteaUrl::parse(text).is_ok_and(|u| u.is_exposed());
        for safe in ["https://git.example.org", "http://127.0.0.1:3000", "http://localhost", "http://[::1]:1"] {
            assert!(!exposed(safe), "{safe}");
        }
        for open in ["http://git.example.org", "http://10.0.0.1", "http://localhost.example.org"] {
            assert!(exposed(open), "{open}");
        }
    }

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

    /// NEW-141: a password in a URL is not shown.
    #[test]
    fn passwords_are_cut_out() {
        assert_eq!(without_password("nats://u:p@ss@h:4222/x@y"), "nats://***@h:4222/x@y");
        assert_eq!(without_password("https://h/p"), "https://h/p");
    }

    #[test]
    fn labels() {
        assert_eq!(extra_labels("fast=local, big=vm").map(|l| l.len()), Ok(2));
        for bad in ["fast", "=local", "a:b=local", "self-hosted=local", "a=cloud", "a=local,a=vm", "a b=local"] {
            assert!(extra_labels(bad).is_err(), "{bad}");
        }
    }
}
