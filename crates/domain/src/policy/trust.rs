//! Who is trusted (NEW-120, NEW-121, NEW-125): the event first, then what an operator demands of a repository beyond it.
//!
//! Whatever is missing, unknown or cannot be proven is untrusted. The head repository's name is no proof, so nobody asks
//! for it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::id::Backend;
use crate::identity::{JobKey, Repository, TrustClass};
use crate::reason::{Reason, Refusal};

/// The event of a job that a reusable workflow brings: its key is the callee's, its repository the caller's (F125).
const CALLED: &str = "workflow_call";

/// What an operator trusts, and what becomes of the rest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrustPolicy {
    /// Event names; everything else, unknown and missing included, is untrusted.
    pub trusted_events: Vec<String>,
    /// Whether untrusted jobs run at all.
    #[serde(default)]
    pub untrusted: Untrusted,
    /// Backends that untrusted jobs may have; none: any.
    #[serde(default)]
    pub untrusted_backends: Option<Vec<Backend>>,
    /// What is demanded beyond the event; the first section whose name fits a repository decides for it.
    #[serde(default)]
    pub repositories: Vec<Section>,
}

/// What becomes of untrusted jobs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Untrusted {
    /// They run, under `ci-untrusted/`.
    #[default]
    Run,
    /// They are refused with a reason.
    Refuse,
}

/// What is demanded of the jobs of some repositories.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Section {
    /// `owner/name`, `owner/*` or `*`; Gitea's names are case-insensitive.
    pub name: Pattern,
    /// Trusted refs: `default` for the default branch, else a full ref as `refs/tags/v*`; empty: every ref.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refs: Vec<Pattern>,
    /// Job key → the workflow files that it may come from; a key that is not named may come from any.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub workflows: BTreeMap<JobKey, Vec<String>>,
    /// Job keys of called workflows that are trusted all the same.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub called: Vec<JobKey>,
}

/// A text with `*` for any characters but `/`, and `**` for any.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Pattern(String);

impl TryFrom<String> for Pattern {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let fault = match text.as_str() {
            "" => "is empty",
            // Gitea 1.26 says `ref_protected: false` of every ref, so nothing would ever fit.
            "protected" => "cannot be proven: Gitea does not tell which refs are protected; name them",
            _ if text.chars().any(|c| c.is_whitespace() || c.is_control()) => "holds a space",
            _ => return Ok(Self(text)),
        };
        Err(format!("the pattern {text:?} {fault}"))
    }
}

impl From<Pattern> for String {
    fn from(pattern: Pattern) -> Self {
        pattern.0
    }
}

impl Pattern {
    /// The same in lower case, for names that Gitea takes in any.
    #[must_use]
    pub fn lower(&self) -> Self {
        Self(self.0.to_ascii_lowercase())
    }

    /// Whether the whole text is like this.
    #[must_use]
    pub fn fits(&self, text: &str) -> bool {
        glob(self.0.as_bytes(), text.as_bytes())
    }
}

fn glob(pattern: &[u8], text: &[u8]) -> bool {
    match pattern {
        [] => text.is_empty(),
        [b'*', b'*', rest @ ..] => (0..=text.len()).any(|at| glob(rest, &text[at..])),
        [b'*', rest @ ..] => {
            let end = text.iter().position(|b| *b == b'/').unwrap_or(text.len());
            (0..=end).any(|at| glob(rest, &text[at..]))
        }
        [first, rest @ ..] => text.split_first().is_some_and(|(found, more)| found == first && glob(rest, more)),
    }
}

/// What a task says of where it comes from.
#[derive(Debug, Clone, Copy)]
pub struct Origin<'a> {
    /// `context.repository`.
    pub repository: &'a Repository,
    /// The key of its job.
    pub job_key: &'a JobKey,
    /// `context.event_name`.
    pub event: Option<&'a str>,
    /// `context.ref`.
    pub git_ref: Option<&'a str>,
    /// `event.repository.default_branch`.
    pub default_branch: Option<&'a str>,
    /// `context.workflow`: the file's name.
    pub workflow: Option<&'a str>,
    /// Whether the event tells repository id and owner id (NEW-122).
    pub ids: Ids,
}

/// Whether the numbers behind a name are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ids {
    /// Both.
    Told,
    /// One is missing.
    Missing,
}

/// A class, and the rule that gave it: a word of the identity audit.
pub type Judgement = (TrustClass, &'static str);

impl Default for TrustPolicy {
    fn default() -> Self {
        let events = ["push", "schedule", "workflow_dispatch", "release", "pull_request_target"];
        Self {
            trusted_events: events.map(str::to_owned).to_vec(),
            untrusted: Untrusted::Run,
            untrusted_backends: None,
            repositories: Vec::new(),
        }
    }
}

impl TrustPolicy {
    /// The class of a task.
    #[must_use]
    pub fn judge(&self, origin: &Origin<'_>) -> Judgement {
        let repository = origin.repository.to_string().to_ascii_lowercase();
        let named = |section: &&Section| section.name.lower().fits(&repository);
        let section = self.repositories.iter().find(named);
        let no = |rule| (TrustClass::Untrusted, rule);
        let Some(event) = origin.event else { return no("event_missing") };
        let called = event == CALLED && section.is_some_and(|section| section.called.contains(origin.job_key));
        if !called && !self.trusted_events.iter().any(|trusted| trusted == event) {
            return no(if event == CALLED { "called_workflow" } else { "event" });
        }
        if origin.ids == Ids::Missing {
            return no("ids_missing");
        }
        if origin.workflow.is_none_or(str::is_empty) {
            // Without a file's name nothing says that the key is one of the repository's own.
            return no("workflow_missing");
        }
        match section {
            None => (TrustClass::Trusted, "event"),
            Some(section) if !section.trusts_ref(origin) => no("ref"),
            Some(section) if !section.trusts_workflow(origin) => no("workflow"),
            Some(_) => (TrustClass::Trusted, "policy"),
        }
    }

    /// Whether a task of this class may run on this backend.
    ///
    /// # Errors
    ///
    /// [`Reason::PolicyRefused`].
    pub fn permit(&self, (class, rule): Judgement, backend: Backend) -> Result<(), Refusal> {
        if class == TrustClass::Trusted {
            return Ok(());
        }
        let why = format!("the job is untrusted ({rule})");
        if self.untrusted == Untrusted::Refuse {
            return Err(refused(format!("{why}, and untrusted jobs are refused here"), None));
        }
        match &self.untrusted_backends {
            Some(backends) if !backends.contains(&backend) => {
                let words: Vec<_> = backends.iter().map(|backend| backend.as_str()).collect();
                let words = words.join(", ");
                Err(refused(
                    format!("{why}, and untrusted jobs may not run on {backend}, only on {words}"),
                    Some(words),
                ))
            }
            _ => Ok(()),
        }
    }
}

impl Section {
    fn trusts_ref(&self, origin: &Origin<'_>) -> bool {
        let Some(git_ref) = origin.git_ref else { return self.refs.is_empty() };
        let default = origin.default_branch.is_some_and(|branch| git_ref == format!("refs/heads/{branch}"));
        let fits = |pattern: &Pattern| if pattern.0 == "default" { default } else { pattern.fits(git_ref) };
        self.refs.is_empty() || self.refs.iter().any(fits)
    }

    fn trusts_workflow(&self, origin: &Origin<'_>) -> bool {
        let Some(files) = self.workflows.get(origin.job_key) else { return true };
        origin.workflow.is_some_and(|workflow| files.iter().any(|file| file == workflow))
    }
}

fn refused(cause: String, backends: Option<String>) -> Refusal {
    let remedy = backends.map_or_else(
        || "Ask somebody who may push to the repository to run it, or ask the operator of this runner.".to_owned(),
        |words| format!("Name one of {words} in `runs-on`, or ask the operator of this runner."),
    );
    Refusal { reason: Reason::PolicyRefused, cause, remedy }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn section(value: serde_json::Value) -> Section {
        serde_json::from_value(value).unwrap()
    }

    fn policy() -> TrustPolicy {
        let release = section(serde_json::json!({
            "name": "Acme/app", "refs": ["default", "refs/tags/v*"], "called": ["shared"],
            "workflows": {"publish": ["release.yml"]},
        }));
        let others = section(serde_json::json!({"name": "acme/*", "refs": ["refs/heads/**"]}));
        TrustPolicy { repositories: vec![release, others], ..TrustPolicy::default() }
    }

    /// A job `build` of a push to the default branch, with one thing changed.
    #[track_caller]
    fn check(policy: &TrustPolicy, repository: &str, change: impl Fn(&mut Origin<'_>), expect: Judgement) {
        let (repository, job_key) = (repository.parse().unwrap(), "build".parse().unwrap());
        let mut origin = Origin {
            repository: &repository,
            job_key: &job_key,
            event: Some("push"),
            git_ref: Some("refs/heads/main"),
            default_branch: Some("main"),
            workflow: Some("ci.yml"),
            ids: Ids::Told,
        };
        change(&mut origin);
        assert_eq!(policy.judge(&origin), expect, "{origin:?}");
    }

    const YES: TrustClass = TrustClass::Trusted;
    const NO: TrustClass = TrustClass::Untrusted;

    /// NEW-120, NEW-122, NEW-125, F120, F125, T21: without a policy file the event decides, and what is missing is
    /// untrusted.
    #[test]
    fn the_event_decides_first() {
        let plain = TrustPolicy::default();
        for event in ["push", "schedule", "workflow_dispatch", "release", "pull_request_target"] {
            check(&plain, "acme/app", |o| o.event = Some(event), (YES, "event"));
        }
        for event in ["pull_request", "pull_request_review", "issues", "Push", ""] {
            check(&plain, "acme/app", |o| o.event = Some(event), (NO, "event"));
        }
        check(&plain, "acme/app", |o| o.event = None, (NO, "event_missing"));
        check(&plain, "acme/app", |o| o.event = Some("workflow_call"), (NO, "called_workflow"));
        check(&plain, "acme/app", |o| o.ids = Ids::Missing, (NO, "ids_missing"));
        check(&plain, "acme/app", |o| o.workflow = None, (NO, "workflow_missing"));
        let named = TrustPolicy { trusted_events: vec!["workflow_call".to_owned()], ..TrustPolicy::default() };
        check(&named, "acme/app", |o| o.event = Some("workflow_call"), (YES, "event"));
        check(&named, "acme/app", |_| {}, (NO, "event"));
    }

    /// NEW-121, NEW-125, F121, T21: refs, workflow files per job key, called workflows, per repository; the first section
    /// that fits decides.
    #[test]
    fn a_policy_demands_more_than_the_event() {
        let policy = policy();
        check(&policy, "acme/APP", |_| {}, (YES, "policy"));
        check(&policy, "acme/app", |o| o.git_ref = Some("refs/heads/topic"), (NO, "ref"));
        check(&policy, "acme/app", |o| o.git_ref = None, (NO, "ref"));
        check(&policy, "acme/app", |o| o.default_branch = None, (NO, "ref"));
        check(&policy, "acme/app", |o| o.git_ref = Some("refs/tags/v1.2"), (YES, "policy"));
        check(&policy, "acme/app", |o| o.git_ref = Some("refs/tags/v1/x"), (NO, "ref"));
        check(&policy, "acme/app", |o| o.event = Some("pull_request"), (NO, "event"));
        check(&policy, "acme/lib", |o| o.git_ref = Some("refs/heads/a/b"), (YES, "policy"));
        check(&policy, "acme/lib", |o| o.git_ref = Some("refs/tags/v1"), (NO, "ref"));
        check(&policy, "other/app", |o| o.git_ref = Some("refs/heads/x"), (YES, "event"));
        let publish = "publish".parse().unwrap();
        for (file, expect) in [("release.yml", (YES, "policy")), ("evil.yml", (NO, "workflow"))] {
            let (repository, mut seen) = ("acme/app".parse().unwrap(), None);
            check(&policy, "acme/app", |_| {}, (YES, "policy"));
            let origin = Origin {
                repository: &repository,
                job_key: &publish,
                event: Some("push"),
                git_ref: Some("refs/heads/main"),
                default_branch: Some("main"),
                workflow: Some(file),
                ids: Ids::Told,
            };
            seen.replace(policy.judge(&origin));
            assert_eq!(seen, Some(expect), "{file}");
            let shared = "shared".parse().unwrap();
            let called = Origin { job_key: &shared, event: Some("workflow_call"), ..origin };
            assert_eq!(policy.judge(&called), (YES, "policy"));
            assert_eq!(policy.judge(&Origin { job_key: &publish, ..called }), (NO, "called_workflow"));
        }
    }

    /// NEW-120: untrusted jobs are refused, or kept to some backends; trusted ones never are.
    #[test]
    fn untrusted_jobs_are_limited() {
        let refuse = TrustPolicy { untrusted: Untrusted::Refuse, ..TrustPolicy::default() };
        let pods = TrustPolicy { untrusted_backends: Some(vec![Backend::Pod]), ..TrustPolicy::default() };
        for policy in [&refuse, &pods] {
            assert_eq!(policy.permit((YES, "event"), Backend::Local), Ok(()));
            let refusal = policy.permit((NO, "event"), Backend::Local).unwrap_err();
            assert_eq!(refusal.reason, Reason::PolicyRefused);
        }
        assert_eq!(pods.permit((NO, "event"), Backend::Pod), Ok(()));
        assert_eq!(TrustPolicy::default().permit((NO, "event"), Backend::Local), Ok(()));
    }

    /// NEW-121: what cannot be proven, and what is no pattern, is an error with its reason.
    #[test]
    fn patterns_are_checked() {
        for (text, words) in [("", "is empty"), ("protected", "cannot be proven"), ("a b", "holds a space")] {
            assert!(Pattern::try_from(text.to_owned()).unwrap_err().contains(words), "{text:?}");
        }
        assert!(serde_json::from_value::<Section>(serde_json::json!({"name": "*", "branches": []})).is_err());
        let all = Pattern("**".to_owned());
        assert!(all.fits("acme/app") && !Pattern("*".to_owned()).fits("acme/app"));
    }
}
