//! Everything a job asks of Gitea beside RunnerService: git, REST, artifacts, packages. Streamed through the facade.

use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HOST};
use http::uri::{Authority, Scheme};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioTimer};

use super::artifacts::{bases, rewrite};
use super::reply::{Body, full, text};
use crate::facade::{Credentials, IDLE, with_causes};
use crate::link::Link;

/// Set by the facade on replies of the artifact services: the base URLs under which Gitea names itself (NEW-110).
const GITEA_BASE: HeaderName = HeaderName::from_static("x-gdr-gitea-base");

/// Replies of the artifact services that name URLs: a list of all artifacts of a run at most.
const JSON_LIMIT: usize = 8 << 20;

/// Headers that belong to one connection (RFC 9110 §7.6.1).
const HOP_BY_HOP: [&str; 8] = [
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "transfer-encoding",
    "upgrade",
];

/// Sends requests on, with our credentials instead of whatever the job put there.
pub(super) struct Streamer {
    client: Client<Link, Incoming>,
    authority: String,
    credentials: Credentials,
    own: String,
}

impl Streamer {
    /// `own` is the base URL of the proxy itself, without trailing `/`.
    pub(super) fn new(link: Link, authority: String, credentials: Credentials, own: String) -> Self {
        let client = Client::builder(TokioExecutor::new())
            .pool_idle_timeout(IDLE)
            .pool_timer(TokioTimer::new())
            .timer(TokioTimer::new())
            .build(link);
        Self { client, authority, credentials, own }
    }

    /// Passes a request and its reply on as they are.
    pub(super) async fn stream(&self, request: Request<Incoming>) -> Response<Body> {
        match self.forward(request).await {
            Ok(response) => response.map(|body| body.map_err(Into::into).boxed_unsync()),
            Err(problem) => text(StatusCode::BAD_GATEWAY, &problem),
        }
    }

    /// The same for a call whose reply names URLs of Gitea.
    pub(super) async fn artifacts(&self, mut request: Request<Incoming>) -> Response<Body> {
        // What is to be read must not come compressed.
        request.headers_mut().remove(ACCEPT_ENCODING);
        match self.forward(request).await {
            Ok(response) => self.rewritten(response).await,
            Err(problem) => text(StatusCode::BAD_GATEWAY, &problem),
        }
    }

    async fn rewritten(&self, response: Response<Incoming>) -> Response<Body> {
        let (mut parts, body) = response.into_parts();
        let named = gitea_bases(&mut parts.headers);
        if named.is_empty() || !is_plain_json(&parts.headers) {
            return Response::from_parts(parts, body.map_err(Into::into).boxed_unsync());
        }
        let Ok(body) = Limited::new(body, JSON_LIMIT).collect().await else {
            return text(StatusCode::BAD_GATEWAY, "the reply of the artifact service was cut off or is too large");
        };
        let mut json = body.to_bytes().to_vec();
        for base in &named {
            json = rewrite(&json, base, &self.own);
        }
        parts.headers.insert(CONTENT_LENGTH, HeaderValue::from(json.len()));
        Response::from_parts(parts, full(json))
    }

    async fn forward(&self, request: Request<Incoming>) -> Result<Response<Incoming>, String> {
        let (mut parts, body) = request.into_parts();
        parts.uri = self.target(&parts.uri)?;
        strip_hop_by_hop(&mut parts.headers);
        parts.headers.remove(HOST);
        self.credentials.put(&mut parts.headers);
        parts.version = http::Version::HTTP_11;
        let request = Request::from_parts(parts, body);
        let mut response = self.client.request(request).await.map_err(|error| with_causes(&error))?;
        strip_hop_by_hop(response.headers_mut());
        Ok(response)
    }

    fn target(&self, uri: &Uri) -> Result<Uri, String> {
        let mut target = uri.clone().into_parts();
        target.scheme = Some(Scheme::HTTPS);
        target.authority = Some(self.authority.parse::<Authority>().map_err(|error| error.to_string())?);
        Uri::from_parts(target).map_err(|error| error.to_string())
    }
}

/// Takes the facade's own header out of the reply and returns what it names.
fn gitea_bases(headers: &mut HeaderMap) -> Vec<String> {
    let named = headers.get_all(GITEA_BASE).into_iter().filter_map(|value| value.to_str().ok());
    let named = named.flat_map(bases).map(str::to_owned).collect();
    headers.remove(GITEA_BASE);
    named
}

fn is_plain_json(headers: &HeaderMap) -> bool {
    let json = headers.get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"application/json"));
    json && !headers.contains_key(CONTENT_ENCODING)
}

fn strip_hop_by_hop(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all("connection")
        .into_iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    for name in named {
        headers.remove(name);
    }
    for name in HOP_BY_HOP {
        headers.remove(name);
    }
}
