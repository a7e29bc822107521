//! The way of a job to its repository: git, REST, artifacts, packages, through our mTLS and on an allow-list (FAC-11,
//! NEW-95, NEW-96, NEW-97). The job's own `Authorization` passes; nothing else in a request says who it is.
//!
//! Bodies are streamed with back-pressure. Gitea away is 502, silence of 60 s is 504; nothing is repeated here.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Extension, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Uri, header};
use axum::middleware::Next;
use axum::response::Response;
use connectrpc::ErrorCode;
use domain::executor_api::GITEA_BASE_HEADER;
use domain::lifecycle::Phase;
use forward::path::{self, Segments};
use forward::{Forwarder, Streamed};
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::rt::{TokioExecutor, TokioTimer};

use super::auth::Caller;
use super::{Facade, answer};
use crate::config::AllowList;
use crate::gitea::Connector;

/// Below Gitea's own, so that no request goes out on a connection that is just being closed.
const IDLE: Duration = Duration::from_secs(20);

/// Request headers that pass; everything else stays here (NEW-96).
const PASSED: [HeaderName; 22] = [
    header::ACCEPT,
    header::ACCEPT_ENCODING,
    header::ACCEPT_LANGUAGE,
    header::AUTHORIZATION,
    header::CACHE_CONTROL,
    header::CONTENT_ENCODING,
    header::CONTENT_LENGTH,
    header::CONTENT_RANGE,
    header::CONTENT_TYPE,
    header::EXPECT,
    header::IF_MATCH,
    header::IF_MODIFIED_SINCE,
    header::IF_NONE_MATCH,
    header::RANGE,
    header::TRANSFER_ENCODING,
    header::USER_AGENT,
    HeaderName::from_static("git-protocol"),
    HeaderName::from_static("x-actions-results-md5"),
    HeaderName::from_static("x-ms-blob-content-type"),
    HeaderName::from_static("x-ms-blob-type"),
    HeaderName::from_static("x-ms-version"),
    HeaderName::from_static("x-tfs-filelength"),
];

type Client = HttpClient<Connector, Streamed<Body>>;

/// The one server the facade forwards to; a request line never chooses another (SRV-2).
pub struct Upstream {
    forwarder: Forwarder<Client>,
    scheme: http::uri::Scheme,
    authority: http::uri::Authority,
    /// Path below which Gitea lives, without trailing `/`.
    prefix: String,
    paths: AllowList,
    base: HeaderValue,
    /// Bytes of request bodies that passed, and of response bodies.
    traffic: [Arc<AtomicU64>; 2],
}

/// The layer: behind it a request names a path of this server, and one path whoever reads it (NEW-97, SRV-2). For every
/// route, so that an encoded spelling of one is not another.
pub(super) async fn plain(request: Request, next: Next) -> Response {
    let (head, body) = request.into_parts();
    if let Err(refused) = forward::check(&head) {
        let mut response = answer::error(ErrorCode::InvalidArgument, &refused.to_string());
        *response.status_mut() = refused.status();
        return response;
    }
    if let Err(malformed) = path::parse(head.uri.path()) {
        return answer::error(ErrorCode::InvalidArgument, &malformed.to_string());
    }
    next.run(Request::from_parts(head, body)).await
}

/// Everything that is not RunnerService and not the executor's own reports.
pub(super) async fn pass(
    State(facade): State<Arc<Facade>>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Response {
    if !may_use_proxy(&facade, caller) {
        facade.ops.metrics.facade_denied("proxy");
        return answer::unauthenticated("assignment");
    }
    let upstream = &facade.upstream;
    let (uri, artifacts) = match target(upstream, request.method(), request.uri()) {
        Ok(target) => target,
        Err((code, why)) => {
            facade.ops.metrics.facade_denied("path");
            return answer::error(code, why);
        }
    };
    let rewrite = |parts: &mut http::request::Parts| {
        parts.uri = uri;
        parts.headers = passed(&parts.headers, upstream);
    };
    match upstream.forwarder.forward(request, rewrite).await {
        Ok(mut response) => {
            if artifacts {
                response.headers_mut().insert(GITEA_BASE_HEADER, upstream.base.clone());
            }
            response.map(Body::new)
        }
        Err(error) => {
            let code =
                if error.status().is_client_error() { ErrorCode::InvalidArgument } else { ErrorCode::Unavailable };
            let mut response = answer::error(code, &format!("the repository's server gave no good answer: {error}"));
            *response.status_mut() = error.status();
            response
        }
    }
}

/// Only a claimed assignment has a job that could ask; its access ends with its executor's grace (NEW-100).
fn may_use_proxy(facade: &Facade, caller: Caller) -> bool {
    let Some(view) = facade.board.view(caller.id()) else { return false };
    let working = matches!(
        view.life.phase(),
        Phase::Claimed | Phase::Running | Phase::Ending(_) | Phase::Final(_) | Phase::Draining(_)
    );
    caller.is_live() && working && view.life.epoch() == caller.epoch() && !view.wants.removal
}

type Denied = (ErrorCode, &'static str);

/// Where a request goes, and whether its reply is an artifact service's; or why it goes nowhere. The upstream path is
/// built from what was parsed, never from what was sent.
fn target(upstream: &Upstream, method: &Method, uri: &Uri) -> Result<(Uri, bool), Denied> {
    let segments = allowed(&upstream.paths, method, uri)?;
    let artifacts = is_artifact_service(&segments);
    let uri = upstream.uri(&segments, uri.query()).ok_or(MALFORMED)?;
    Ok((uri, artifacts))
}

const MALFORMED: Denied = (ErrorCode::InvalidArgument, "the path is malformed");

/// The segments of a path that may pass, or why not.
fn allowed<'a>(list: &AllowList, method: &Method, uri: &'a Uri) -> Result<Segments<'a>, Denied> {
    if uri.authority().is_some() || uri.scheme().is_some() || method == Method::CONNECT {
        return Err((ErrorCode::InvalidArgument, "only paths of the repository's server are forwarded"));
    }
    let segments = path::parse(uri.path()).map_err(|_| MALFORMED)?;
    if list.allows(method, &segments) {
        return Ok(segments);
    }
    Err((ErrorCode::PermissionDenied, "this path is not on the allow-list of the job's proxy"))
}

fn is_artifact_service(segments: &Segments<'_>) -> bool {
    segments.starts_with(&["api", "actions_pipeline"])
        || segments.starts_with(&["twirp", "github.actions.results.api.v1.ArtifactService"])
}

/// What Gitea sees of a request's headers.
fn passed(headers: &HeaderMap, upstream: &Upstream) -> HeaderMap {
    let mut passed = HeaderMap::with_capacity(PASSED.len());
    for name in PASSED {
        for value in headers.get_all(&name) {
            passed.append(name.clone(), value.clone());
        }
    }
    if let Ok(host) = HeaderValue::from_str(upstream.authority.as_str()) {
        passed.insert(header::HOST, host);
    }
    let proto = if upstream.scheme == http::uri::Scheme::HTTPS { "https" } else { "http" };
    passed.insert("x-forwarded-proto", HeaderValue::from_static(proto));
    passed
}

impl Upstream {
    /// The Gitea at `base` (absolute http or https URL without trailing `/`), of which jobs may reach `paths`.
    ///
    /// # Errors
    ///
    /// When it is none.
    pub fn new(base: &str, paths: AllowList) -> anyhow::Result<Self> {
        let parts = base.parse::<Uri>()?.into_parts();
        let (Some(scheme), Some(authority)) = (parts.scheme, parts.authority) else {
            anyhow::bail!("{base:?} is no absolute URL");
        };
        let prefix = parts.path_and_query.map(|path| path.path().trim_end_matches('/').to_owned()).unwrap_or_default();
        let traffic = [Arc::default(), Arc::default()];
        let [up, down] = traffic.clone();
        let forwarder = Forwarder::new(client()).counting(up, down);
        Ok(Self { forwarder, scheme, authority, prefix, paths, base: HeaderValue::from_str(base)?, traffic })
    }

    /// Bytes up and down since the start, for the metric.
    #[must_use]
    pub fn traffic(&self) -> [Arc<AtomicU64>; 2] {
        self.traffic.clone()
    }

    fn uri(&self, segments: &Segments<'_>, query: Option<&str>) -> Option<Uri> {
        let mut path = self.prefix.clone() + &segments.to_path();
        if let Some(query) = query {
            path.push('?');
            path.push_str(query);
        }
        Uri::builder().scheme(self.scheme.clone()).authority(self.authority.clone()).path_and_query(path).build().ok()
    }
}

fn client() -> Client {
    HttpClient::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(IDLE)
        .build(Connector::new())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(method: Method, path: &str, expect: Result<(), ErrorCode>) {
        #[expect(clippy::unwrap_used, reason = "tests")]
        let uri: Uri = path.parse().unwrap();
        assert_eq!(
            allowed(&AllowList::default(), &method, &uri).map(drop).map_err(|(code, _)| code),
            expect,
            "{method} {path}"
        );
    }

    /// NEW-95, NEW-97, F100, F102: on the list, not on it, and every spelling that is none.
    #[test]
    fn the_allow_list() {
        check(Method::GET, "/acme/app/info/refs?service=git-upload-pack", Ok(()));
        for path in ["/", "/metrics", "/api/actions/runner.v1.RunnerService/FetchTask", "/API/actions/x"] {
            check(Method::GET, path, Err(ErrorCode::PermissionDenied));
        }
        for path in [
            "/api%2Factions/x",
            "/api/v1/%2e%2e/actions/x",
            "/api/v1/../x",
            "//api/v1/x",
            "/api/v1/%00",
            "/api/v1/a%5Cb",
            "/./x",
        ] {
            check(Method::GET, path, Err(ErrorCode::InvalidArgument));
        }
        check(Method::GET, "http://elsewhere.invalid/api/v1/x", Err(ErrorCode::InvalidArgument));
        check(Method::CONNECT, "elsewhere.invalid:443", Err(ErrorCode::InvalidArgument));
    }
}
