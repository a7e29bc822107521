//! What passes of the heads of requests and responses, and what is refused.

use http::{HeaderMap, Version};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use super::*;

/// An upstream that answers with what it was asked, as text.
async fn mirror() -> SocketAddr {
    serve(|request: Request<Incoming>| async move {
        let mut text = format!("{} {} {:?}\n", request.method(), request.uri(), request.version());
        for (name, value) in request.headers() {
            text.push_str(&format!("{name}: {}\n", value.to_str().unwrap()));
        }
        Response::builder()
            .header("connection", "x-private")
            .header("x-private", "1")
            .header("keep-alive", "timeout=5")
            .header("x-public", "1")
            .body(any(Full::new(Bytes::from(text))))
            .unwrap()
    })
    .await
}

async fn text(response: Response<Incoming>) -> String {
    String::from_utf8(response.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap()
}

#[tokio::test]
async fn headers_of_the_hop_stay_in_both_directions() {
    let proxy = Proxy::before(mirror().await).await;
    let request = Request::get(proxy.url("/a/b?c=%2F"))
        .header("connection", "x-secret")
        .header("x-secret", "1")
        .header("proxy-authorization", "Basic x")
        .header("upgrade", "h2c")
        .header("authorization", "token of the job");
    let response = send(request.body(full("")).unwrap()).await;
    let headers: HeaderMap = response.headers().clone();
    let seen = text(response).await;
    assert!(seen.starts_with("GET /a/b?c=%2F HTTP/1.1\n"), "{seen}");
    assert!(seen.contains("authorization: token of the job\n"), "{seen}");
    for name in ["x-secret", "proxy-authorization", "upgrade", "connection"] {
        assert!(!seen.contains(&format!("{name}:")), "{name} in {seen}");
    }
    assert_eq!(headers["x-public"], "1");
    assert!(!headers.contains_key("x-private") && !headers.contains_key("keep-alive"));
}

/// HTTP/2 in, HTTP/1.1 out.
#[tokio::test]
async fn http2_is_translated() {
    let proxy = Proxy::before(mirror().await).await;
    let client: Client<_, AnyBody> = Client::builder(TokioExecutor::new()).http2_only(true).build_http();
    let request = Request::get(proxy.url("/x")).header("cookie", "a=1").header("cookie", "b=2");
    let response = timeout(DEADLINE, client.request(request.body(full("")).unwrap())).await.unwrap().unwrap();
    assert_eq!(response.version(), Version::HTTP_2);
    let seen = text(response).await;
    assert!(seen.starts_with("GET /x HTTP/1.1\n") && seen.contains("cookie: a=1; b=2\n"), "{seen}");
}

async fn raw(proxy: &Proxy, request: &str) -> String {
    let mut stream = TcpStream::connect(proxy.address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = vec![0; 12];
    timeout(DEADLINE, stream.read_exact(&mut answer)).await.unwrap().unwrap();
    String::from_utf8(answer).unwrap()
}

/// NEW-97, SRV-2: tunnels, other protocols and other servers.
#[tokio::test]
async fn what_is_no_plain_request_is_refused() {
    let proxy = Proxy::before(mirror().await).await;
    for (request, status) in [
        ("GET / HTTP/1.1\r\nhost: a\r\n\r\n", 200),
        ("CONNECT other:443 HTTP/1.1\r\nhost: other\r\n\r\n", 400),
        ("GET http://other/ HTTP/1.1\r\nhost: other\r\n\r\n", 400),
        ("OPTIONS * HTTP/1.1\r\nhost: a\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n", 501),
    ] {
        assert_eq!(raw(&proxy, request).await, format!("HTTP/1.1 {status}"), "{request:?}");
    }
}

/// A length beside chunks does not reach the upstream, which could take the one for the other.
#[tokio::test]
async fn a_request_of_two_lengths_does_not_pass_as_such() {
    let proxy = Proxy::before(mirror().await).await;
    let request = "POST / HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: 3\r\n\
                   transfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
    let mut stream = TcpStream::connect(proxy.address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    timeout(DEADLINE, stream.read_to_string(&mut answer)).await.unwrap().unwrap();
    let refused = answer.starts_with("HTTP/1.1 400");
    assert!(refused || !answer.contains("content-length: 3"), "{answer}");
}
