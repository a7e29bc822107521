//! The messages of `spire.api.server.entry.v1.Entry` that are used, with the field numbers of SPIRE's API definitions
//! (`spire/api/server/entry/v1/entry.proto` and `spire/api/types`, 1.13). What is not written here is unknown to us and
//! not compared.

use std::fmt;

/// `spire.api.types.SPIFFEID`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(super) struct SpiffeId {
    #[prost(string, tag = "1")]
    pub(super) trust_domain: String,
    /// Begins with `/`.
    #[prost(string, tag = "2")]
    pub(super) path: String,
}

impl SpiffeId {
    /// The two parts of `spiffe://domain/path`.
    pub(super) fn of(text: &str) -> Self {
        let rest = text.strip_prefix("spiffe://").unwrap_or(text);
        let (trust_domain, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
        Self { trust_domain: trust_domain.to_owned(), path: path.to_owned() }
    }
}

/// `spire.api.types.Selector`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, prost::Message)]
pub(super) struct Selector {
    #[prost(string, tag = "1")]
    pub(super) r#type: String,
    #[prost(string, tag = "2")]
    pub(super) value: String,
}

/// `spire.api.types.Entry`, without what the server counts itself.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(super) struct Entry {
    #[prost(string, tag = "1")]
    pub(super) id: String,
    #[prost(message, optional, tag = "2")]
    pub(super) spiffe_id: Option<SpiffeId>,
    #[prost(message, optional, tag = "3")]
    pub(super) parent_id: Option<SpiffeId>,
    #[prost(message, repeated, tag = "4")]
    pub(super) selectors: Vec<Selector>,
    /// Seconds.
    #[prost(int32, tag = "5")]
    pub(super) x509_svid_ttl: i32,
    #[prost(string, repeated, tag = "6")]
    pub(super) federates_with: Vec<String>,
    #[prost(bool, tag = "7")]
    pub(super) admin: bool,
    #[prost(bool, tag = "8")]
    pub(super) downstream: bool,
    /// Seconds since 1970.
    #[prost(int64, tag = "9")]
    pub(super) expires_at: i64,
    #[prost(string, repeated, tag = "10")]
    pub(super) dns_names: Vec<String>,
    #[prost(bool, tag = "12")]
    pub(super) store_svid: bool,
    #[prost(int32, tag = "13")]
    pub(super) jwt_svid_ttl: i32,
    #[prost(string, tag = "14")]
    pub(super) hint: String,
}

/// `spire.api.types.Status`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(super) struct Status {
    #[prost(int32, tag = "1")]
    pub(super) code: i32,
    #[prost(string, tag = "2")]
    pub(super) message: String,
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", tonic::Code::from_i32(self.code), self.message)
    }
}

/// `GetEntryRequest`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(super) struct GetEntryRequest {
    #[prost(string, tag = "1")]
    pub(super) id: String,
}

/// `BatchCreateEntryRequest`, and `BatchUpdateEntryRequest` without a mask, which replaces every field.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(super) struct BatchEntries {
    #[prost(message, repeated, tag = "1")]
    pub(super) entries: Vec<Entry>,
}

/// `BatchCreateEntryResponse` and `BatchUpdateEntryResponse`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(super) struct BatchResults {
    #[prost(message, repeated, tag = "1")]
    pub(super) results: Vec<EntryResult>,
}

/// What became of one entry.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(super) struct EntryResult {
    #[prost(message, optional, tag = "1")]
    pub(super) status: Option<Status>,
    #[prost(message, optional, tag = "2")]
    pub(super) entry: Option<Entry>,
}

/// `BatchDeleteEntryRequest`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(super) struct BatchDeleteRequest {
    #[prost(string, repeated, tag = "1")]
    pub(super) ids: Vec<String>,
}

/// `BatchDeleteEntryResponse`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(super) struct BatchDeleteResponse {
    #[prost(message, repeated, tag = "1")]
    pub(super) results: Vec<DeleteResult>,
}

/// What became of one id.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(super) struct DeleteResult {
    #[prost(message, optional, tag = "1")]
    pub(super) status: Option<Status>,
    #[prost(string, tag = "2")]
    pub(super) id: String,
}

/// `ListEntriesRequest`, without a mask: answers carry all that an entry says.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(super) struct ListRequest {
    #[prost(message, optional, tag = "1")]
    pub(super) filter: Option<Filter>,
    #[prost(int32, tag = "3")]
    pub(super) page_size: i32,
    #[prost(string, tag = "4")]
    pub(super) page_token: String,
}

/// `ListEntriesRequest.Filter`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(super) struct Filter {
    #[prost(message, optional, tag = "3")]
    pub(super) by_selectors: Option<SelectorMatch>,
}

/// `spire.api.types.SelectorMatch`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(super) struct SelectorMatch {
    #[prost(message, repeated, tag = "1")]
    pub(super) selectors: Vec<Selector>,
    /// [`SelectorMatch::SUPERSET`].
    #[prost(int32, tag = "2")]
    pub(super) r#match: i32,
}

impl SelectorMatch {
    /// Entries that have all of these selectors, and perhaps more.
    pub(super) const SUPERSET: i32 = 2;
}

/// `ListEntriesResponse`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(super) struct ListResponse {
    #[prost(message, repeated, tag = "1")]
    pub(super) entries: Vec<Entry>,
    #[prost(string, tag = "2")]
    pub(super) next_page_token: String,
}
