//! What a job may reach of Gitea: methods and paths, built in or from a file (NEW-95).
//!
//! What must never be reached is not for the file to say: a rule that names it is refused, and a wider one does not
//! open it.

use std::path::Path;

use axum::http::Method;
use forward::path::{self, Segments};

/// The list without a file, in the form of the file.
const BUILT_IN: &str = include_str!("proxy-paths.txt");

/// Larger files are not read.
const LARGEST: u64 = 1 << 20;

/// Closed whatever a list says, in any case of letters.
const NEVER: [&[&str]; 6] =
    [&["metrics"], &["api", "internal"], &["api", "actions"], &["-", "admin"], &["user", "login"], &["executor", "v1"]];

/// Words of Gitea itself where an owner could stand.
const NO_OWNERS: [&str; 7] = ["api", "executor", "metrics", "twirp", "user", "v2", "-"];

const METHODS: [Method; 6] = [Method::GET, Method::HEAD, Method::POST, Method::PUT, Method::PATCH, Method::DELETE];

/// Rules, of which one must fit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AllowList(Vec<Rule>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Rule {
    methods: Vec<Method>,
    parts: Vec<Part>,
    end: End,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Word(String),
    Any,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Here,
    /// Any number of further segments.
    Below,
}

/// Why a file is no list.
#[derive(Debug, thiserror::Error)]
pub enum AllowError {
    /// It cannot be read.
    #[error("it cannot be read: {0}")]
    Unreadable(#[from] std::io::Error),
    /// A line breaks a rule.
    #[error("line {line}, {text:?}: {rule}; {remedy}")]
    Line {
        /// Counted from 1.
        line: usize,
        /// As it stands there.
        text: String,
        /// What it breaks.
        rule: &'static str,
        /// What to write.
        remedy: &'static str,
    },
    /// Nothing is allowed.
    #[error("it has no rule; write one per line, for example: * /api/v1/**")]
    Empty,
}

/// The rule that is broken, and the remedy.
type Wrong = (&'static str, &'static str);

impl Default for AllowList {
    fn default() -> Self {
        #[expect(clippy::expect_used, reason = "a constant, which the tests parse")]
        Self::parse(BUILT_IN).expect("the built-in list")
    }
}

impl AllowList {
    /// Reads a list.
    ///
    /// # Errors
    /// [`AllowError`], with the first line that is wrong.
    pub fn read(path: &Path) -> Result<Self, AllowError> {
        use std::io::Read as _;
        let mut text = String::new();
        let file = std::fs::File::open(path)?;
        if !file.metadata()?.is_file() {
            return Err(std::io::Error::other("not a regular file").into());
        }
        file.take(LARGEST).read_to_string(&mut text)?;
        Self::parse(&text)
    }

    fn parse(text: &str) -> Result<Self, AllowError> {
        let mut rules = Vec::new();
        for (line, text) in text.lines().map(str::trim).enumerate() {
            if text.is_empty() || text.starts_with('#') {
                continue;
            }
            let wrong = |(rule, remedy)| AllowError::Line { line: line + 1, text: text.to_owned(), rule, remedy };
            rules.push(Rule::parse(text).map_err(wrong)?);
        }
        if rules.is_empty() { Err(AllowError::Empty) } else { Ok(Self(rules)) }
    }

    /// Whether a request may pass.
    pub(crate) fn allows(&self, method: &Method, path: &Segments<'_>) -> bool {
        let never = NEVER.iter().any(|closed| path.starts_with_ignoring_case(closed));
        !never && self.0.iter().any(|rule| rule.fits(method, path))
    }
}

impl Rule {
    fn parse(text: &str) -> Result<Self, Wrong> {
        let mut words = text.split_ascii_whitespace();
        let (Some(methods), Some(pattern), None) = (words.next(), words.next(), words.next()) else {
            return Err(("a rule is methods and one path", "write for example: GET,HEAD /api/v1/**"));
        };
        let (methods, segments) = (methods_of(methods)?, segments_of(pattern)?);
        let (end, words) = match segments.list().split_last() {
            Some((last, words)) if last.raw() == "**" => (End::Below, words),
            _ => (End::Here, segments.list()),
        };
        let parts: Vec<_> = words.iter().map(part_of).collect::<Result<_, _>>()?;
        if NEVER.iter().any(|closed| segments.starts_with_ignoring_case(closed)) {
            return Err(("this path is never for jobs", "take the line out"));
        }
        Ok(Self { methods, parts, end })
    }

    fn fits(&self, method: &Method, path: &Segments<'_>) -> bool {
        let list = path.list();
        let length = match self.end {
            End::Here => list.len() == self.parts.len(),
            End::Below => list.len() >= self.parts.len(),
        };
        let owner = |at: usize| at == 0 && NO_OWNERS.iter().any(|word| list[0].is_ignoring_case(word));
        let fits = |(at, part): (usize, &Part)| match part {
            Part::Word(word) => list[at].is(word),
            // A name that is no text is nobody's.
            Part::Any => !owner(at) && std::str::from_utf8(list[at].decoded()).is_ok(),
        };
        length && self.methods.contains(method) && self.parts.iter().enumerate().all(fits)
    }
}

fn methods_of(text: &str) -> Result<Vec<Method>, Wrong> {
    if text == "*" {
        return Ok(METHODS.to_vec());
    }
    let known = |name: &str| METHODS.into_iter().find(|method| method.as_str() == name);
    text.split(',').map(known).collect::<Option<_>>().ok_or((
        "a method is not one of GET, HEAD, POST, PUT, PATCH and DELETE",
        "write them with commas and without spaces, or * for all",
    ))
}

fn segments_of(pattern: &str) -> Result<Segments<'_>, Wrong> {
    match path::parse(pattern) {
        Ok(segments) if segments.list().is_empty() => Err(("/ alone is a page for people", "name what lies below it")),
        Ok(segments) => Ok(segments),
        Err(_) => Err((
            "a path begins with / and has no empty, . or .. segment, no query and no encoded separator",
            "write it as the job sends it, for example: /*/*/info/refs",
        )),
    }
}

fn part_of(segment: &path::Segment<'_>) -> Result<Part, Wrong> {
    match segment.raw() {
        "*" => Ok(Part::Any),
        raw if raw.contains('*') => {
            Err(("* stands for a whole segment, and ** only at the end", "write * or the word"))
        }
        _ => match std::str::from_utf8(segment.decoded()) {
            Ok(word) => Ok(Part::Word(word.to_owned())),
            Err(_) => Err(("a segment is no text", "write it in UTF-8, percent-encoded")),
        },
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[track_caller]
    fn check(list: &AllowList, method: Method, path: &str, expect: bool) {
        assert_eq!(list.allows(&method, &path::parse(path).unwrap()), expect, "{method} {path}");
    }

    /// NEW-95, F100: the list without a file.
    #[test]
    fn the_built_in_list() {
        let list = AllowList::default();
        for (method, path) in [
            (Method::GET, "/acme/app/info/refs"),
            (Method::HEAD, "/acme/app.git/info/refs"),
            (Method::POST, "/acme/app.git/git-upload-pack"),
            (Method::POST, "/acme/app/git-receive-pack"),
            (Method::POST, "/acme/app.git/info/lfs/objects/batch"),
            (Method::PUT, "/acme/app.git/info/lfs/objects/0a"),
            (Method::GET, "/api/v1"),
            (Method::DELETE, "/api/v1/repos/acme/app"),
            (Method::POST, "/api/actions_pipeline/_apis/pipelines/workflows/1/artifacts"),
            (Method::POST, "/twirp/github.actions.results.api.v1.ArtifactService/CreateArtifact"),
            (Method::POST, "/twirp/github.actions.results.api.v1.CacheService/CreateCacheEntry"),
            (Method::PUT, "/api/packages/acme/generic/x/1/y"),
            (Method::GET, "/v2/"),
        ] {
            check(&list, method, path, true);
        }
        for (method, path) in [
            (Method::GET, "/"),
            (Method::GET, "/metrics"),
            (Method::GET, "/api/internal/x"),
            (Method::GET, "/-/admin"),
            (Method::GET, "/user/login"),
            (Method::GET, "/acme/app"),
            (Method::GET, "/acme/app/settings"),
            (Method::GET, "/acme/app/git-upload-pack"),
            (Method::POST, "/acme/app/info/refs"),
            (Method::POST, "/api/actions/runner.v1.RunnerService/FetchTask"),
            (Method::GET, "/Api/Actions/info/refs"),
            (Method::GET, "/%61pi/x/info/refs"),
            (Method::GET, "/%ff/x/info/refs"),
            (Method::GET, "/twirp/other/x"),
            (Method::POST, "/twirp/github.actions.results.api.v1.ArtifactService/a/b"),
            (Method::OPTIONS, "/api/v1/x"),
            (Method::TRACE, "/api/v1/x"),
        ] {
            check(&list, method, path, false);
        }
    }

    /// NEW-95: a file replaces the list, and opens nothing that must stay closed, however wide its rules are.
    #[test]
    fn a_list_of_ones_own() {
        let list = AllowList::parse("# ours\n\n  GET,HEAD\t/api/**  \r\nPOST /a%2Db/*/c\n* /-/**\n* /*/**\n").unwrap();
        check(&list, Method::GET, "/api/v1/x", true);
        check(&list, Method::POST, "/api/v1/x", false);
        check(&list, Method::POST, "/a-b/x/c", true);
        check(&list, Method::GET, "/anybody/anything", true);
        check(&list, Method::GET, "/-/x", true);
        for path in ["/api/internal/x", "/API/Internal", "/api/actions/x", "/-/admin/x", "/metrics", "/user/login"] {
            check(&list, Method::GET, path, false);
        }
    }

    /// NEW-95, CFG-9: an error names the line, the rule and the remedy.
    #[test]
    fn wrong_lists() {
        for (line, words) in [
            ("GET", "methods and one path"),
            ("GET /a b", "methods and one path"),
            ("GET, HEAD /a", "methods and one path"),
            ("get /a", "not one of GET"),
            ("FETCH /a", "not one of GET"),
            ("GET a/b", "begins with /"),
            ("GET /a//b", "no empty"),
            ("GET /a/../b", "no empty"),
            ("GET /a?b", "no query"),
            ("GET /", "page for people"),
            ("GET /a*/b", "a whole segment"),
            ("GET /**/b", "only at the end"),
            ("GET /metrics", "never for jobs"),
            ("GET /API/Internal/**", "never for jobs"),
            ("* /api/actions/**", "never for jobs"),
        ] {
            let text = format!("* /api/v1/**\n\n{line}\n");
            let error = AllowList::parse(&text).unwrap_err().to_string();
            assert!(error.starts_with(&format!("line 3, {line:?}: ")), "{error}");
            assert!(error.contains(words) && error.contains("; "), "{line}: {error}");
        }
        assert!(AllowList::parse("# nothing\n").unwrap_err().to_string().contains("no rule"));
        let missing = AllowList::read(Path::new("/nowhere/at/all")).unwrap_err().to_string();
        assert!(missing.contains("cannot be read"), "{missing}");
    }
}
