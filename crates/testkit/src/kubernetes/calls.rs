//! The record of calls: what was asked, by whom, in which order, and how it ended.

use std::time::{Duration, Instant};

use serde_json::Value;

use super::resource::Resource;
use crate::gitea::CallEnd;

/// What a call does, in the words of RBAC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "named as in the API")]
pub enum Verb {
    Get,
    List,
    Watch,
    Create,
    Update,
    Patch,
    Delete,
    DeleteCollection,
}

impl Verb {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Get,
        Self::List,
        Self::Watch,
        Self::Create,
        Self::Update,
        Self::Patch,
        Self::Delete,
        Self::DeleteCollection,
    ];

    /// The word that stands in rules and messages.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Delete => "delete",
            Self::DeleteCollection => "deletecollection",
        }
    }
}

/// One call.
#[derive(Debug, Clone)]
pub struct Call {
    /// Its number, from 0, in order of arrival.
    pub number: usize,
    /// When it arrived.
    pub instant: Instant,
    /// How long it took, once it has ended; of a watch, until its answer began.
    pub took: Option<Duration>,
    /// What it does.
    pub verb: Verb,
    /// To what.
    pub resource: Resource,
    /// In which namespace; empty for all, or where there are none.
    pub namespace: String,
    /// To which object; empty for lists. Of a create, the name in its body.
    pub name: String,
    /// `status`, or empty.
    pub subresource: String,
    /// The query of its URL, decoded.
    pub query: Vec<(String, String)>,
    /// Who says that it is asking.
    pub user_agent: String,
    /// The content type of its body.
    pub content_type: String,
    /// Its body; `Null` if it had none or was no JSON.
    pub body: Value,
    /// How it ended.
    pub end: CallEnd,
}

impl Call {
    /// Whether it is a call of this kind.
    #[must_use]
    pub fn is(&self, verb: Verb, resource: Resource) -> bool {
        self.verb == verb && self.resource == resource
    }

    /// The value of a part of its query.
    #[must_use]
    pub fn asked(&self, key: &str) -> Option<&str> {
        self.query.iter().find(|(each, _)| each == key).map(|(_, value)| value.as_str())
    }

    /// The HTTP status of its answer.
    #[must_use]
    pub fn status(&self) -> Option<u16> {
        match self.end {
            CallEnd::Answered { status, .. } => Some(status),
            _ => None,
        }
    }
}
