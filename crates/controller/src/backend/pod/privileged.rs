//! PRIVILEGED_POLICY_FILE (NEW-70): TOML, one `[[privileged]]` section per repository or group of them and label.
//!
//! A job asks for a privileged Pod by one of these labels in its `runs-on`. It gets one where a section says so, on the
//! section's nodes; else it fails. An untrusted job never gets one.

use std::collections::BTreeMap;
use std::path::Path;

use domain::identity::{Repository, TrustClass};
use domain::policy::Pattern;
use domain::reason::{Reason, Refusal};
use serde::Deserialize;

/// More is no policy that somebody can read.
const LARGEST: u64 = 64 << 10;

/// Who may have privileged Pods; by default nobody.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PrivilegedPolicy(Vec<Section>);

/// Whom a section lets.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Section {
    /// `owner/name` or `owner/*`; Gitea's names are case-insensitive.
    repository: Pattern,
    /// The label in `runs-on` that asks for it.
    label: String,
    /// `trusted`, and nothing else: said in the file so that nobody takes the policy for more than it is.
    trust: TrustClass,
    /// The nodes for it: labels that they all have.
    node_selector: BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    privileged: Vec<Section>,
}

/// One privileged Pod that the policy allows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Grant {
    /// The nodes it may be on, and no other.
    pub(super) node_selector: BTreeMap<String, String>,
}

impl PrivilegedPolicy {
    /// Reads a TOML file.
    ///
    /// # Errors
    /// It cannot be read, or what is wrong with it.
    pub fn read(path: &Path) -> Result<Self, String> {
        let size = std::fs::metadata(path).map_err(|error| error.to_string())?.len();
        if size > LARGEST {
            return Err(format!("it has {size} bytes; {LARGEST} are the most"));
        }
        Self::parse(&std::fs::read_to_string(path).map_err(|error| error.to_string())?)
    }

    /// Reads the text of the file.
    ///
    /// # Errors
    /// What is wrong with it, with its line.
    pub fn parse(text: &str) -> Result<Self, String> {
        let file: File = toml::from_str(text).map_err(|error| {
            let line = error.span().map_or(1, |span| 1 + text[..span.start.min(text.len())].matches('\n').count());
            format!("line {line}: {}", error.message())
        })?;
        if file.privileged.is_empty() {
            return Err("it has no [[privileged]] section, so it allows nothing; take the setting out".to_owned());
        }
        for section in &file.privileged {
            section.check()?;
        }
        Ok(Self(file.privileged))
    }

    /// The labels that ask for a privileged Pod.
    pub fn labels(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|section| section.label.as_str())
    }

    /// What a job with these labels gets; none: an ordinary Pod.
    ///
    /// # Errors
    /// It asks for a privileged Pod and may not have one.
    pub(super) fn decide(
        &self,
        repository: &Repository,
        class: TrustClass,
        labels: &[String],
    ) -> Result<Option<Grant>, Refusal> {
        let asked = |section: &&Section| labels.contains(&section.label);
        let Some(label) = self.0.iter().find(asked).map(|section| section.label.clone()) else { return Ok(None) };
        let refused = |cause: String| Refusal {
            reason: Reason::PrivilegedNotAllowed,
            cause,
            remedy: format!("Take the label {label:?} out of `runs-on`, or ask the operator of this runner."),
        };
        if class == TrustClass::Untrusted {
            return Err(refused(format!("the label {label:?} asks for a privileged Pod, which no untrusted job gets")));
        }
        let name = repository.to_string().to_ascii_lowercase();
        let granted = self.0.iter().filter(asked).find(|section| section.repository.lower().fits(&name));
        let granted = granted.map(|section| Grant { node_selector: section.node_selector.clone() });
        let cause = || format!("the label {label:?} asks for a privileged Pod, and no policy allows {repository} one");
        granted.map(Some).ok_or_else(|| refused(cause()))
    }
}

impl Section {
    fn check(&self) -> Result<(), String> {
        let whose = format!("the section of label {:?}", self.label);
        if self.trust == TrustClass::Untrusted {
            return Err(format!("{whose}: trust = \"untrusted\": untrusted jobs are never privileged"));
        }
        if self.node_selector.is_empty() {
            return Err(format!("{whose}: node_selector is empty; name the nodes that are for it"));
        }
        if self.label.is_empty() {
            return Err("a section has an empty label".to_owned());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    const POLICY: &str = "[[privileged]]\nrepository = \"Acme/*\"\nlabel = \"privileged\"\ntrust = \"trusted\"\n\
                          node_selector = { \"example.org/privileged\" = \"true\" }\n";

    fn decide(repository: &str, class: TrustClass, label: &str) -> Result<Option<Grant>, Reason> {
        let labels = ["pod".to_owned(), label.to_owned()];
        let policy = PrivilegedPolicy::parse(POLICY).unwrap();
        policy.decide(&repository.parse().unwrap(), class, &labels).map_err(|refusal| refusal.reason)
    }

    /// NEW-70, F66, T51: privileged only where the policy says it, on its nodes; untrusted never.
    #[test]
    fn only_whom_the_policy_names() {
        let granted = decide("acme/app", TrustClass::Trusted, "privileged").unwrap().unwrap();
        assert_eq!(granted.node_selector["example.org/privileged"], "true");
        assert_eq!(decide("acme/app", TrustClass::Trusted, "other"), Ok(None));
        assert_eq!(decide("other/app", TrustClass::Trusted, "privileged"), Err(Reason::PrivilegedNotAllowed));
        assert_eq!(decide("acme/app", TrustClass::Untrusted, "privileged"), Err(Reason::PrivilegedNotAllowed));
        let labels = ["privileged".to_owned()];
        let nobody = PrivilegedPolicy::default().decide(&"acme/app".parse().unwrap(), TrustClass::Trusted, &labels);
        assert_eq!(nobody, Ok(None), "without a policy it is a label like any other");
    }

    /// NEW-70, CFG-2: a policy that says nothing, or too much, is an error at the start.
    #[test]
    fn a_policy_is_checked() {
        for (text, words) in [
            ("", "no [[privileged]] section"),
            (&POLICY.replace("\"trusted\"", "\"untrusted\""), "never privileged"),
            (&POLICY.replace("{ \"example.org/privileged\" = \"true\" }", "{}"), "node_selector is empty"),
            (&POLICY.replace("label", "labels"), "line 3: unknown field"),
        ] {
            let error = PrivilegedPolicy::parse(text).unwrap_err();
            assert!(error.contains(words), "{error}");
        }
    }
}
