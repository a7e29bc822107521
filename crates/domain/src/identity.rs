//! Who a job is: `spiffe://<trust domain>/[<prefix>/]ci/<owner>/<repo>/<job key>` (requirements IDN, NEW-120, NEW-123,
//! NEW-124; SPIFFE ID standard §2). IDs are built from checked segments; what is no segment is refused, never rewritten.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::reason::{Reason, Refusal};

#[cfg(test)]
mod tests;

/// A text that is not what it should be. It shows the beginning of the text, escaped: this may reach a job page.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} {text:?}: {rule}")]
pub struct InvalidIdentity {
    what: &'static str,
    text: String,
    rule: &'static str,
}

impl InvalidIdentity {
    fn new(what: &'static str, text: &str, rule: &'static str) -> Self {
        Self { what, text: text.chars().take(120).collect(), rule }
    }
}

macro_rules! text_type {
    ($name:ident) => {
        impl $name {
            /// The text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl TryFrom<String> for $name {
            type Error = InvalidIdentity;

            fn try_from(text: String) -> Result<Self, InvalidIdentity> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(value: $name) -> String {
                value.0
            }
        }
    };
}

/// A SPIFFE trust domain: 1 to 255 of `a-z 0-9 . - _`; upper case is lowered when parsed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TrustDomain(String);

text_type!(TrustDomain);

impl FromStr for TrustDomain {
    type Err = InvalidIdentity;

    fn from_str(text: &str) -> Result<Self, InvalidIdentity> {
        let lower = text.to_ascii_lowercase();
        let legal = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'.' | b'-' | b'_');
        if (1..=255).contains(&lower.len()) && lower.bytes().all(legal) {
            return Ok(Self(lower));
        }
        Err(InvalidIdentity::new("trust domain", text, "must be 1 to 255 of a-z, 0-9, '.', '-' and '_'"))
    }
}

/// One segment of a SPIFFE path: `A-Z a-z 0-9 . - _`, not empty, not `.` or `..`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Segment(String);

text_type!(Segment);

impl FromStr for Segment {
    type Err = InvalidIdentity;

    fn from_str(text: &str) -> Result<Self, InvalidIdentity> {
        let legal = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_');
        if !text.is_empty() && !matches!(text, "." | "..") && text.bytes().all(legal) {
            return Ok(Self(text.to_owned()));
        }
        let rule = "must be of A-Z, a-z, 0-9, '.', '-' and '_', and neither '.' nor '..' alone";
        Err(InvalidIdentity::new("path segment", text, rule))
    }
}

/// A SPIFFE ID with a path, at most 2048 bytes, not under `/spire`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SpiffeId(String);

text_type!(SpiffeId);

impl SpiffeId {
    const LONGEST: usize = 2048;

    /// The ID of these segments in a trust domain.
    ///
    /// # Errors
    ///
    /// When there is no segment, the first is `spire`, or the whole is longer than 2048 bytes.
    pub fn from_segments(trust_domain: &TrustDomain, segments: &[&Segment]) -> Result<Self, InvalidIdentity> {
        let mut text = format!("spiffe://{trust_domain}");
        for segment in segments {
            text.push('/');
            text.push_str(segment.as_str());
        }
        text.parse()
    }

    /// The trust domain it belongs to.
    #[must_use]
    pub fn trust_domain(&self) -> &str {
        let rest = self.0.strip_prefix("spiffe://").unwrap_or_default();
        rest.split_once('/').map_or(rest, |(domain, _)| domain)
    }
}

impl FromStr for SpiffeId {
    type Err = InvalidIdentity;

    fn from_str(text: &str) -> Result<Self, InvalidIdentity> {
        let refuse = |rule| InvalidIdentity::new("SPIFFE ID", text, rule);
        let rest = text.strip_prefix("spiffe://").ok_or(refuse("must begin with spiffe://"))?;
        let (domain, path) = rest.split_once('/').ok_or(refuse("must have a path"))?;
        // An ID is compared byte by byte, so nothing is lowered here (SPIFFE ID standard §2.1).
        if domain.parse::<TrustDomain>().map_or(true, |legal| legal.as_str() != domain) {
            return Err(refuse("the trust domain must be 1 to 255 of a-z, 0-9, '.', '-' and '_'"));
        }
        if path.split('/').any(|segment| segment.parse::<Segment>().is_err()) {
            return Err(refuse("every path segment is of A-Z, a-z, 0-9, '.', '-', '_' and neither '.' nor '..'"));
        }
        if path.split('/').next() == Some("spire") {
            return Err(refuse("paths under /spire are reserved"));
        }
        if text.len() > Self::LONGEST {
            return Err(refuse("at most 2048 bytes"));
        }
        Ok(Self(text.to_owned()))
    }
}

/// `owner/name`, both legal segments (IDN-4).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Repository {
    owner: Segment,
    name: Segment,
}

impl Repository {
    /// The owner.
    #[must_use]
    pub fn owner(&self) -> &Segment {
        &self.owner
    }

    /// The name.
    #[must_use]
    pub fn name(&self) -> &Segment {
        &self.name
    }
}

impl FromStr for Repository {
    type Err = InvalidIdentity;

    fn from_str(text: &str) -> Result<Self, InvalidIdentity> {
        let rule = "must be owner/name, each of A-Z, a-z, 0-9, '.', '-' and '_', and neither '.' nor '..' alone";
        let refuse = || InvalidIdentity::new("repository", text, rule);
        let (owner, name) = text.split_once('/').ok_or_else(refuse)?;
        Ok(Self { owner: owner.parse().map_err(|_| refuse())?, name: name.parse().map_err(|_| refuse())? })
    }
}

impl fmt::Display for Repository {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.owner, self.name)
    }
}

impl TryFrom<String> for Repository {
    type Error = InvalidIdentity;

    fn try_from(text: String) -> Result<Self, InvalidIdentity> {
        text.parse()
    }
}

impl From<Repository> for String {
    fn from(repository: Repository) -> String {
        repository.to_string()
    }
}

/// `^[A-Za-z_][A-Za-z0-9_-]*$` (IDN-3).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct JobKey(String);

text_type!(JobKey);

impl FromStr for JobKey {
    type Err = InvalidIdentity;

    fn from_str(text: &str) -> Result<Self, InvalidIdentity> {
        let first = |b: u8| b.is_ascii_alphabetic() || b == b'_';
        let further = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-');
        if text.bytes().next().is_some_and(first) && text.bytes().all(further) {
            return Ok(Self(text.to_owned()));
        }
        let rule = "must begin with a letter or '_' and go on with letters, digits, '_' and '-'";
        Err(InvalidIdentity::new("job key", text, rule))
    }
}

/// How much a task's identity may be trusted (NEW-120).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TrustClass {
    /// Somebody with write access caused it.
    Trusted,
    /// Anybody may have.
    Untrusted,
}

impl TrustClass {
    /// The segment that keeps the two apart.
    fn segment(self) -> &'static str {
        match self {
            Self::Trusted => "ci",
            Self::Untrusted => "ci-untrusted",
        }
    }
}

/// How repository names appear in the path (NEW-123).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum IdentityCase {
    /// Lower case, as Gitea's names are case-insensitive.
    #[default]
    Lower,
    /// As Gitea spells them: a migration aid.
    Preserve,
}

/// What an identity is made by.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdentityRules {
    /// The trust domain of every job.
    pub trust_domain: TrustDomain,
    /// A segment before `ci`; never `spire`.
    pub prefix: Option<Segment>,
    /// Spelling of repository names.
    pub case: IdentityCase,
}

impl IdentityRules {
    /// The identity of a job.
    ///
    /// # Errors
    ///
    /// When the whole would be longer than a SPIFFE ID may be, or reserved.
    pub fn identity(&self, class: TrustClass, repository: &Repository, key: &JobKey) -> Result<SpiffeId, Refusal> {
        let spell = |segment: &Segment| match self.case {
            IdentityCase::Lower => segment.as_str().to_ascii_lowercase(),
            IdentityCase::Preserve => segment.as_str().to_owned(),
        };
        let prefix = self.prefix.as_ref().map(|prefix| format!("{prefix}/")).unwrap_or_default();
        let (owner, name) = (spell(&repository.owner), spell(&repository.name));
        let text = format!("spiffe://{}/{prefix}{}/{owner}/{name}/{key}", self.trust_domain, class.segment());
        text.parse().map_err(|error: InvalidIdentity| Refusal {
            reason: Reason::InvalidRepository,
            cause: format!("the identity of this job would be no SPIFFE ID: {error}"),
            remedy: "Shorten the names of the repository or the job.".to_owned(),
        })
    }

    /// Whether these rules can give `id` to some job: it is below `ci` or `ci-untrusted` of our trust domain and prefix
    /// (POD-5). Its spelling is not judged: that is a setting which may change while a task waits.
    #[must_use]
    pub fn give(&self, id: &SpiffeId) -> bool {
        let mut path = id.as_str().split('/').skip(3);
        if id.trust_domain() != self.trust_domain.as_str() {
            return false;
        }
        if let Some(prefix) = &self.prefix
            && path.next() != Some(prefix.as_str())
        {
            return false;
        }
        let [class, _owner, _name, job] = path.collect::<Vec<_>>()[..] else { return false };
        [TrustClass::Trusted, TrustClass::Untrusted].iter().any(|known| known.segment() == class)
            && job.parse::<JobKey>().is_ok()
    }

    /// Whether `id` is the identity of this job under some trust domain, prefix and case, of either class: what can be
    /// said of an ID that was made under rules that are not known any more (ENV-8, ENV-9).
    #[must_use]
    pub fn some_rules_give(id: &SpiffeId, repository: &Repository, key: &JobKey) -> bool {
        let path: Vec<&str> = id.as_str().split('/').skip(3).collect();
        let ([class, owner, name, job] | [_, class, owner, name, job]) = path[..] else { return false };
        let spelled =
            |segment: &Segment, text: &str| text == segment.as_str() || text == segment.as_str().to_ascii_lowercase();
        [TrustClass::Trusted, TrustClass::Untrusted].iter().any(|known| known.segment() == class)
            && spelled(&repository.owner, owner)
            && spelled(&repository.name, name)
            && job == key.as_str()
    }
}

/// The segment of an earlier controller for a name that is none (IDN-6); only for migration.
#[must_use]
pub fn slug_with_hash(input: &str) -> String {
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if !input.is_empty() && input.chars().all(legal) {
        return input.to_owned();
    }
    let trim = |text: &str| text.trim_matches(|c| matches!(c, '-' | '.' | '_')).to_owned();
    let mut slug = String::new();
    for c in input.chars() {
        if legal(c) {
            slug.push(c);
        } else if !slug.ends_with('\u{0}') {
            // NUL marks a run of other characters: a literal '-' beside it stays apart.
            slug.push('\u{0}');
        }
    }
    let slug = trim(&slug.replace('\u{0}', "-"));
    let mut slug = trim(&slug.chars().take(48).collect::<String>());
    if slug.is_empty() {
        slug.push_str("segment");
    }
    let hash = data_encoding::HEXLOWER.encode(&Sha256::digest(input)[..6]);
    format!("{slug}-{hash}")
}
