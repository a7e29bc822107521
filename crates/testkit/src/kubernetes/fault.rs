//! Faults that a test orders: refusals, lost answers, hanging calls, missing rights.

use std::collections::BTreeSet;

use serde_json::json;

use super::calls::Verb;
use super::refusal::Refusal;
use super::resource::Resource;
use crate::gitea::Moment;

/// Which calls a fault strikes; what is not named is anything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct On {
    verb: Option<Verb>,
    resource: Option<Resource>,
    name: Option<String>,
    subresource: Option<String>,
}

impl On {
    /// Every call.
    #[must_use]
    pub fn any() -> Self {
        Self::default()
    }

    /// Calls that do this to objects of this kind.
    #[must_use]
    pub fn call(verb: Verb, resource: Resource) -> Self {
        Self { verb: Some(verb), resource: Some(resource), ..Self::default() }
    }

    /// Calls that do this, to anything.
    #[must_use]
    pub fn verb(verb: Verb) -> Self {
        Self { verb: Some(verb), ..Self::default() }
    }

    /// Calls to objects of this kind.
    #[must_use]
    pub fn resource(resource: Resource) -> Self {
        Self { resource: Some(resource), ..Self::default() }
    }

    /// Only those about the object of this name.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Only those through this path below the object, for example `status`.
    #[must_use]
    pub fn through(mut self, subresource: impl Into<String>) -> Self {
        self.subresource = Some(subresource.into());
        self
    }

    fn fits(&self, target: &Target<'_>) -> bool {
        self.verb.is_none_or(|verb| verb == target.verb)
            && self.resource.is_none_or(|resource| resource == target.resource)
            && self.name.as_deref().is_none_or(|name| name == target.name)
            && self.subresource.as_deref().is_none_or(|path| path == target.subresource)
    }
}

/// What a call is about.
pub(crate) struct Target<'a> {
    pub(crate) verb: Verb,
    pub(crate) resource: Resource,
    pub(crate) name: &'a str,
    pub(crate) subresource: &'a str,
}

/// What the client sees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Symptom {
    Refusal {
        refusal: Refusal,
        retry_after: Option<u64>,
    },
    /// Refused with the words that fit the call.
    Forbidden(String),
    Page {
        status: u16,
        body: String,
    },
    Hang,
    Cut,
}

/// One ordered fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    times: u32,
    pub(crate) moment: Moment,
    pub(crate) symptom: Symptom,
}

impl Fault {
    /// 500 with a Status.
    #[must_use]
    pub fn internal() -> Self {
        let message = "Internal error occurred: the double was told to fail";
        Self::refusal(Refusal { code: 500, reason: "InternalError", message: message.into(), details: None }, None)
    }

    /// 503 with a Status and, if named, when to come back.
    #[must_use]
    pub fn unavailable(retry_after: Option<u64>) -> Self {
        let message = "the server is currently unable to handle the request";
        Self::refusal(
            Refusal { code: 503, reason: "ServiceUnavailable", message: message.into(), details: None },
            retry_after,
        )
    }

    /// 429 with a Status that says when to come back, in seconds.
    #[must_use]
    pub fn too_many_requests(retry_after: u64) -> Self {
        let message = "the server has received too many requests and has asked us to try again later";
        Self::refusal(
            Refusal { code: 429, reason: "TooManyRequests", message: message.into(), details: None },
            Some(retry_after),
        )
    }

    /// 504: etcd did not answer the API server in time; nobody knows whether it wrote.
    #[must_use]
    pub fn timeout() -> Self {
        let message =
            "the server was unable to return a response in the time allotted, but may still be processing the request";
        Self::refusal(Refusal { code: 504, reason: "Timeout", message: message.into(), details: None }, Some(1))
    }

    /// 403 because a quota is used up; the text follows `exceeded quota: `.
    #[must_use]
    pub fn quota(text: &str) -> Self {
        Self::new(Symptom::Forbidden(format!("exceeded quota: {text}")))
    }

    /// 403 with these words after `is forbidden: `.
    #[must_use]
    pub fn forbidden(why: &str) -> Self {
        Self::new(Symptom::Forbidden(why.to_owned()))
    }

    /// 409: others wrote the object again and again meanwhile.
    #[must_use]
    pub fn conflict() -> Self {
        let message = "Operation cannot be fulfilled: the object has been modified; please apply your changes to the \
                       latest version and try again";
        Self::refusal(Refusal { code: 409, reason: "Conflict", message: message.into(), details: None }, None)
    }

    /// An admission webhook says no.
    #[must_use]
    pub fn denied_by(webhook: &str, why: &str) -> Self {
        let message = format!("admission webhook \"{webhook}\" denied the request: {why}");
        Self::refusal(Refusal { code: 403, reason: "Forbidden", message, details: None }, None)
    }

    /// An admission webhook cannot be reached, and must be.
    #[must_use]
    pub fn webhook_away(webhook: &str) -> Self {
        let message = format!(
            "Internal error occurred: failed calling webhook \"{webhook}\": failed to call webhook: Post \
             \"https://policy.invalid/\": context deadline exceeded"
        );
        Self::refusal(Refusal { code: 500, reason: "InternalError", message, details: None }, None)
    }

    /// 401, as for a token that has expired.
    #[must_use]
    pub fn unauthorized() -> Self {
        Self::refusal(Refusal::unauthorized(), None)
    }

    /// 410, as for a continue token or a resource version that is too old.
    #[must_use]
    pub fn expired() -> Self {
        Self::refusal(Refusal::expired(1, 2), None)
    }

    /// An answer that is no Status, for example a load balancer's page.
    #[must_use]
    pub fn page(status: u16, body: impl Into<String>) -> Self {
        Self::new(Symptom::Page { status, body: body.into() })
    }

    /// No answer until the client goes away. A watch gets its head and then nothing.
    #[must_use]
    pub fn hang() -> Self {
        Self::new(Symptom::Hang)
    }

    /// The connection is closed without an answer.
    #[must_use]
    pub fn cut() -> Self {
        Self::new(Symptom::Cut)
    }

    /// The server does what was asked, and the answer is lost.
    #[must_use]
    pub fn lost_answer() -> Self {
        Self::cut().after_commit()
    }

    fn refusal(mut refusal: Refusal, retry_after: Option<u64>) -> Self {
        if let Some(seconds) = retry_after {
            refusal.details = Some(json!({"retryAfterSeconds": seconds}));
        }
        Self::new(Symptom::Refusal { refusal, retry_after })
    }

    fn new(symptom: Symptom) -> Self {
        Self { times: 1, moment: Moment::BeforeCommit, symptom }
    }

    /// How many calls it strikes.
    #[must_use]
    pub fn times(mut self, times: u32) -> Self {
        self.times = times;
        self
    }

    /// It strikes every call until [`super::Kubernetes::clear_faults`].
    #[must_use]
    pub fn always(self) -> Self {
        self.times(u32::MAX)
    }

    /// It strikes after the server did what was asked.
    #[must_use]
    pub fn after_commit(mut self) -> Self {
        self.moment = Moment::AfterCommit;
        self
    }
}

/// The faults that wait for their calls, and the rights that were taken away.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    waiting: Vec<(On, Fault)>,
    missing: BTreeSet<(Verb, Resource)>,
    pub(crate) latency: crate::gitea::Latency,
}

impl Faults {
    pub(crate) fn order(&mut self, on: On, fault: Fault) {
        self.waiting.push((on, fault));
    }

    pub(crate) fn clear(&mut self) {
        self.waiting.clear();
    }

    pub(crate) fn take_right(&mut self, verb: Verb, resource: Resource) {
        self.missing.insert((verb, resource));
    }

    pub(crate) fn give_right(&mut self, verb: Verb, resource: Resource) {
        self.missing.remove(&(verb, resource));
    }

    pub(crate) fn may(&self, verb: Verb, resource: Resource) -> bool {
        !self.missing.contains(&(verb, resource))
    }

    /// The oldest fault that strikes this call.
    pub(crate) fn take(&mut self, target: &Target<'_>) -> Option<Fault> {
        self.waiting.retain(|(_, fault)| fault.times > 0);
        let (_, fault) = self.waiting.iter_mut().find(|(on, _)| on.fits(target))?;
        if fault.times != u32::MAX {
            fault.times -= 1;
        }
        Some(fault.clone())
    }
}
