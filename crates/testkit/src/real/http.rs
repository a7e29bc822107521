//! One HTTP exchange with a deadline. Connections are not kept: the server may be restarted between two calls, and each
//! test has its own runtime.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde::de::DeserializeOwned;

use super::Error;
use super::error::head;

const PATIENCE: Duration = Duration::from_secs(30);

/// What is sent, apart from the base URL.
pub(super) struct Call {
    pub(super) method: Method,
    /// With the leading `/` and the query.
    pub(super) path: String,
    pub(super) headers: Vec<(&'static str, String)>,
    pub(super) body: Bytes,
}

impl Call {
    /// A GET without credentials.
    pub(super) fn get(path: &str) -> Self {
        Self { method: Method::GET, path: path.to_owned(), headers: Vec::new(), body: Bytes::new() }
    }

    fn name(&self) -> String {
        format!("{} {}", self.method, self.path)
    }
}

/// A whole answer of any status below 400.
pub(super) struct Answer {
    call: String,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

impl Answer {
    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON; an empty one counts as `null`.
    pub(super) fn json<T: DeserializeOwned>(&self) -> Result<T, Error> {
        let body = if self.body.is_empty() { b"null".as_slice() } else { &self.body };
        serde_json::from_slice(body).map_err(|cause| Error::Unexpected {
            call: self.call.clone(),
            cause: cause.to_string(),
            body: head(&self.text(), 2000),
        })
    }
}

/// A client of one server.
pub(super) struct Http {
    base: String,
    inner: hyper_util::client::legacy::Client<HttpConnector, Full<Bytes>>,
}

impl Http {
    /// `base` is the server's URL without a trailing slash.
    pub(super) fn new(base: &str) -> Self {
        let inner = hyper_util::client::legacy::Client::builder(TokioExecutor::new())
            .pool_max_idle_per_host(0)
            .build(HttpConnector::new());
        Self { base: base.to_owned(), inner }
    }

    /// Sends, and reads the whole answer.
    pub(super) async fn send(&self, call: Call) -> Result<Answer, Error> {
        let name = call.name();
        let no_answer = |cause: String| Error::NoAnswer { call: name.clone(), cause };
        let mut request = Request::builder().method(call.method).uri(format!("{}{}", self.base, call.path));
        for (header, value) in call.headers {
            request = request.header(header, value);
        }
        let request = request.body(Full::new(call.body)).map_err(|cause| no_answer(cause.to_string()))?;
        let exchange = async {
            let response = self.inner.request(request).await.map_err(|cause| chain(&cause))?;
            let (parts, body) = response.into_parts();
            let body = body.collect().await.map_err(|cause| chain(&cause))?.to_bytes();
            Ok::<_, String>(Response::from_parts(parts, body))
        };
        let response = match tokio::time::timeout(PATIENCE, exchange).await {
            Ok(Ok(response)) => response,
            Ok(Err(cause)) => return Err(no_answer(cause)),
            Err(_) => return Err(no_answer(format!("nothing within {} s", PATIENCE.as_secs()))),
        };
        let (parts, body) = response.into_parts();
        if parts.status >= StatusCode::BAD_REQUEST {
            let body = head(&String::from_utf8_lossy(&body), 2000);
            return Err(Error::Status { call: name, status: parts.status.as_u16(), body });
        }
        Ok(Answer { call: name, headers: parts.headers, body })
    }
}

fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}
