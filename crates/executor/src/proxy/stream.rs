//! Everything a job asks of Gitea beside RunnerService: git, REST, artifacts, packages. Streamed through the facade.

use std::time::Duration;

use domain::executor_api::GITEA_BASE_HEADER;
use forward::{BoxError, ForwardError, Forwarder, Streamed};
use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HOST};
use http::uri::{Authority, InvalidUriParts, Scheme};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;

use super::artifacts::{bases, rewrite};
use super::reply::{Body, full, text};
use crate::facade::{Credentials, with_causes};
use crate::link::Link;

/// Replies of the artifact services that name URLs: a list of all artifacts of a run at most.
const JSON_LIMIT: usize = 8 << 20;

/// Sends requests on, with our credentials instead of whatever the job put there.
pub(super) struct Streamer {
    forwarder: Forwarder<Client<Link, Streamed<Incoming>>>,
    authority: Authority,
    credentials: Credentials,
    own: String,
}

/// A reply of the facade, and the base URLs that it named.
struct Passed {
    response: Response<Streamed<Incoming>>,
    gitea_bases: Vec<String>,
}

/// The request was not answered by the facade.
#[derive(Debug, thiserror::Error)]
enum StreamError {
    #[error("the request target is none: {0}")]
    Target(#[from] InvalidUriParts),
    #[error(transparent)]
    Forward(#[from] ForwardError),
}

impl Streamer {
    /// `own` is the base URL of the proxy itself, without trailing `/`; an exchange in which nothing moves for
    /// `no_progress` is ended.
    pub(super) fn new(
        link: Link,
        authority: Authority,
        credentials: Credentials,
        own: String,
        no_progress: Duration,
    ) -> Self {
        let forwarder = Forwarder::new(link.client()).no_progress(no_progress);
        Self { forwarder, authority, credentials, own }
    }

    /// Passes a request and its reply on as they are.
    pub(super) async fn stream(&self, request: Request<Incoming>) -> Response<Body> {
        match self.forward(request).await {
            Ok(passed) => streamed(passed.response),
            Err(error) => error.answer(),
        }
    }

    /// The same for a call whose reply names URLs of Gitea.
    pub(super) async fn artifacts(&self, mut request: Request<Incoming>) -> Response<Body> {
        // What is to be read must not come compressed.
        request.headers_mut().remove(ACCEPT_ENCODING);
        match self.forward(request).await {
            Ok(passed) => self.rewritten(passed).await,
            Err(error) => error.answer(),
        }
    }

    async fn rewritten(&self, Passed { response, gitea_bases }: Passed) -> Response<Body> {
        if gitea_bases.is_empty() || !is_plain_json(response.headers()) {
            return streamed(response);
        }
        let (mut parts, body) = response.into_parts();
        let Ok(body) = Limited::new(body, JSON_LIMIT).collect().await else {
            return text(StatusCode::BAD_GATEWAY, "the reply of the artifact service was cut off or is too large");
        };
        let mut json = body.to_bytes().to_vec();
        for base in &gitea_bases {
            json = rewrite(&json, base, &self.own);
        }
        parts.headers.insert(CONTENT_LENGTH, HeaderValue::from(json.len()));
        Response::from_parts(parts, full(json))
    }

    async fn forward(&self, request: Request<Incoming>) -> Result<Passed, StreamError> {
        let target = self.target(request.uri())?;
        let rewrite = |parts: &mut http::request::Parts| {
            parts.uri = target;
            parts.headers.remove(HOST);
            self.credentials.put(&mut parts.headers);
        };
        let mut response = self.forwarder.forward(request, rewrite).await?;
        let gitea_bases = take_gitea_bases(response.headers_mut());
        Ok(Passed { response, gitea_bases })
    }

    fn target(&self, uri: &Uri) -> Result<Uri, InvalidUriParts> {
        let mut target = uri.clone().into_parts();
        target.scheme = Some(Scheme::HTTPS);
        target.authority = Some(self.authority.clone());
        Uri::from_parts(target)
    }
}

impl StreamError {
    fn answer(&self) -> Response<Body> {
        let status = match self {
            Self::Target(_) => StatusCode::BAD_REQUEST,
            Self::Forward(error) => error.status(),
        };
        text(status, &with_causes(self))
    }
}

fn streamed(response: Response<Streamed<Incoming>>) -> Response<Body> {
    response.map(|body| body.map_err(BoxError::from).boxed_unsync())
}

/// Takes the facade's own header out of the reply and returns what it names.
fn take_gitea_bases(headers: &mut HeaderMap) -> Vec<String> {
    let named = headers.get_all(GITEA_BASE_HEADER).into_iter().filter_map(|value| value.to_str().ok());
    let named = named.flat_map(bases).map(str::to_owned).collect();
    headers.remove(GITEA_BASE_HEADER);
    named
}

fn is_plain_json(headers: &HeaderMap) -> bool {
    let json = headers.get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"application/json"));
    json && !headers.contains_key(CONTENT_ENCODING)
}
