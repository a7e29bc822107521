//! A client that knows only HTTP and JSON, for looking at the double and at a real API server alike.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, RETRY_AFTER, USER_AGENT};
use http::{HeaderMap, Method, Request};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use serde_json::Value;
use tokio::time::timeout;

use crate::real::Error;

/// An API server that is well answers within this time.
const PATIENCE: Duration = Duration::from_secs(30);

/// How the body of a call is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content {
    /// An object, or DeleteOptions.
    Json,
    /// RFC 7386.
    MergePatch,
    /// Kubernetes' own.
    StrategicMergePatch,
    /// RFC 6902.
    JsonPatch,
}

impl Content {
    fn name(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::MergePatch => "application/merge-patch+json",
            Self::StrategicMergePatch => "application/strategic-merge-patch+json",
            Self::JsonPatch => "application/json-patch+json",
        }
    }
}

/// A whole answer, of whatever status.
#[derive(Debug, Clone)]
pub struct Reply {
    /// The HTTP status.
    pub status: u16,
    /// The object or Status; text where it was no JSON.
    pub body: Value,
    headers: HeaderMap,
}

impl Reply {
    /// The `Retry-After` in seconds.
    #[must_use]
    pub fn retry_after(&self) -> Option<u64> {
        self.headers.get(RETRY_AFTER)?.to_str().ok()?.parse().ok()
    }

    /// The object, of an answer below 400.
    ///
    /// # Errors
    /// The call was refused.
    pub fn object(self, call: &str) -> Result<Value, Error> {
        if self.status < 400 {
            return Ok(self.body);
        }
        Err(Error::Status { call: call.to_owned(), status: self.status, body: self.body.to_string() })
    }
}

/// A client with one bearer token.
#[derive(Clone)]
pub struct Client {
    base: String,
    token: String,
    inner: hyper_util::client::legacy::Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
}

impl Client {
    /// `url` is that of the API, without a slash at its end; `ca` is needed for `https`.
    ///
    /// # Errors
    /// `ca` holds no certificate.
    pub fn new(url: &str, token: &str, ca: Option<&str>) -> Result<Self, Error> {
        let mut roots = rustls::RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(ca.unwrap_or_default().as_bytes()) {
            let certificate = certificate.map_err(Error::system("read the cluster's CA"))?;
            roots.add(certificate).map_err(Error::system("trust the cluster's CA"))?;
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(Error::system("prepare TLS"))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let connector = HttpsConnectorBuilder::new().with_tls_config(config).https_or_http().enable_http1().build();
        let inner = hyper_util::client::legacy::Client::builder(TokioExecutor::new()).build(connector);
        Ok(Self { base: url.to_owned(), token: token.to_owned(), inner })
    }

    /// The same server, asked with another token.
    #[must_use]
    pub fn with_token(&self, token: &str) -> Self {
        Self { token: token.to_owned(), ..self.clone() }
    }

    /// GET; `path` has its leading slash and its query.
    ///
    /// # Errors
    /// No answer within 30 s. So it is for all methods.
    pub async fn get(&self, path: &str) -> Result<Reply, Error> {
        self.call(Method::GET, path, Content::Json, &Value::Null).await
    }

    /// POST.
    ///
    /// # Errors
    /// As [`Self::get`].
    pub async fn post(&self, path: &str, body: &Value) -> Result<Reply, Error> {
        self.call(Method::POST, path, Content::Json, body).await
    }

    /// PUT.
    ///
    /// # Errors
    /// As [`Self::get`].
    pub async fn put(&self, path: &str, body: &Value) -> Result<Reply, Error> {
        self.call(Method::PUT, path, Content::Json, body).await
    }

    /// PATCH with a merge patch.
    ///
    /// # Errors
    /// As [`Self::get`].
    pub async fn patch(&self, path: &str, body: &Value) -> Result<Reply, Error> {
        self.call(Method::PATCH, path, Content::MergePatch, body).await
    }

    /// DELETE; `options` are DeleteOptions or `Null`.
    ///
    /// # Errors
    /// As [`Self::get`].
    pub async fn delete(&self, path: &str, options: &Value) -> Result<Reply, Error> {
        self.call(Method::DELETE, path, Content::Json, options).await
    }

    /// Any call, answered as a whole.
    ///
    /// # Errors
    /// As [`Self::get`].
    pub async fn call(&self, method: Method, path: &str, content: Content, body: &Value) -> Result<Reply, Error> {
        let name = format!("{method} {path}");
        let no_answer = |cause: String| Error::NoAnswer { call: name.clone(), cause };
        let exchange = async {
            let response = self.open(method, path, content, body).await?;
            let (parts, body) = response.into_parts();
            let body = body.collect().await.map_err(|cause| cause.to_string())?.to_bytes();
            Ok::<_, String>((parts, body))
        };
        let (parts, body) = match timeout(PATIENCE, exchange).await {
            Ok(answer) => answer.map_err(no_answer)?,
            Err(_) => return Err(no_answer(format!("nothing within {} s", PATIENCE.as_secs()))),
        };
        let text = || String::from_utf8_lossy(&body).into_owned().into();
        let body = serde_json::from_slice(&body).unwrap_or_else(|_| text());
        Ok(Reply { status: parts.status.as_u16(), body, headers: parts.headers })
    }

    /// Begins a watch; `path` says `watch=1`.
    ///
    /// # Errors
    /// No answer within 30 s, or another than 200.
    pub async fn watch(&self, path: &str) -> Result<Watch, Error> {
        let name = format!("GET {path}");
        let no_answer = |cause: String| Error::NoAnswer { call: name.clone(), cause };
        let opened = timeout(PATIENCE, self.open(Method::GET, path, Content::Json, &Value::Null)).await;
        let response = opened.map_err(|_| no_answer("nothing in time".to_owned()))?.map_err(no_answer)?;
        let (parts, body) = response.into_parts();
        if parts.status.as_u16() != 200 {
            let body = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
            let body = String::from_utf8_lossy(&body).into_owned();
            return Err(Error::Status { call: name, status: parts.status.as_u16(), body });
        }
        Ok(Watch { call: name, body, kept: Vec::new() })
    }

    async fn open(
        &self,
        method: Method,
        path: &str,
        content: Content,
        body: &Value,
    ) -> Result<http::Response<Incoming>, String> {
        let body = if body.is_null() { Bytes::new() } else { body.to_string().into() };
        let request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.base))
            .header(AUTHORIZATION, format!("Bearer {}", self.token))
            .header(USER_AGENT, "testkit")
            .header(CONTENT_TYPE, content.name());
        let request = request.body(Full::new(body)).map_err(|cause| cause.to_string())?;
        self.inner.request(request).await.map_err(|cause| format!("{cause:?}"))
    }
}

/// The lines of a watch.
pub struct Watch {
    call: String,
    body: Incoming,
    kept: Vec<u8>,
}

impl Watch {
    /// The next event, bookmarks included; `None` when the server ended the stream or it broke off.
    ///
    /// # Errors
    /// Nothing came within 30 s, or no JSON.
    pub async fn next(&mut self) -> Result<Option<Value>, Error> {
        loop {
            if let Some(end) = self.kept.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.kept.drain(..=end).collect();
                let event = serde_json::from_slice(&line);
                return event.map(Some).map_err(Error::system(format!("read a line of {}", self.call)));
            }
            let no_answer = |_| Error::NoAnswer { call: self.call.clone(), cause: "no event in time".to_owned() };
            match timeout(PATIENCE, self.body.frame()).await.map_err(no_answer)? {
                Some(Ok(frame)) => self.kept.extend(frame.into_data().unwrap_or_default()),
                Some(Err(_)) | None => return Ok(None),
            }
        }
    }
}
