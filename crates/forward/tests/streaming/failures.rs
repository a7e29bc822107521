//! What each side sees when the other one, or the forwarder's patience, ends.

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use super::*;

const SHORT: Duration = Duration::from_millis(300);

/// An upstream that reads the head of a request, sends `answer` and then hangs up or waits for ever.
async fn raw_upstream(answer: &'static str, hang_up: bool) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            tokio::spawn(async move {
                let _ = stream.read(&mut [0; 4096]).await;
                let _ = stream.write_all(answer.as_bytes()).await;
                if !hang_up {
                    std::future::pending::<()>().await;
                }
            });
        }
    });
    address
}

fn get(proxy: &Proxy) -> Request<AnyBody> {
    Request::get(proxy.url("/")).body(full("")).unwrap()
}

/// An upstream that dies within a body: the client sees a failure, never a short body.
#[tokio::test]
async fn death_of_the_upstream_within_a_body_is_seen() {
    for answer in [
        "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nshort",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nshort\r\n",
    ] {
        let proxy = Proxy::before(raw_upstream(answer, true).await).await;
        let response = send(get(&proxy)).await;
        assert_eq!(response.status(), StatusCode::OK);
        assert!(timeout(DEADLINE, drain(response.into_body())).await.unwrap().is_err(), "{answer:?}");
    }
}

#[tokio::test]
async fn an_upstream_that_fails_before_it_answers_is_a_bad_gateway() {
    let nobody = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    for upstream in [nobody, raw_upstream("", true).await, raw_upstream("nonsense\r\n\r\n", false).await] {
        let proxy = Proxy::before(upstream).await;
        assert_eq!(send(get(&proxy)).await.status(), StatusCode::BAD_GATEWAY);
    }
}

#[tokio::test]
async fn an_upstream_that_does_not_answer_is_a_gateway_timeout() {
    let proxy = Proxy::with_limit(raw_upstream("", false).await, SHORT).await;
    assert_eq!(send(get(&proxy)).await.status(), StatusCode::GATEWAY_TIMEOUT);
}

/// An upstream that takes nothing of a request is its fault, too.
#[tokio::test]
async fn an_upstream_that_does_not_read_is_a_gateway_timeout() {
    let proxy = Proxy::with_limit(raw_upstream("", false).await, SHORT).await;
    let mut stream = TcpStream::connect(proxy.address).await.unwrap();
    stream.write_all(b"PUT / HTTP/1.1\r\nhost: a\r\ncontent-length: 67108864\r\n\r\n").await.unwrap();
    let (mut reader, mut writer) = stream.into_split();
    tokio::spawn(async move { while writer.write_all(&[0; CHUNK]).await.is_ok() {} });
    let mut status = [0; 12];
    timeout(DEADLINE, reader.read_exact(&mut status)).await.unwrap().unwrap();
    assert_eq!(&status, b"HTTP/1.1 504");
}

#[tokio::test]
async fn a_client_that_sends_nothing_more_is_timed_out() {
    let upstream = serve(|request: Request<Incoming>| async move {
        let _ = drain(request.into_body()).await;
        Response::new(full("done"))
    });
    let proxy = Proxy::with_limit(upstream.await, SHORT).await;
    let mut stream = TcpStream::connect(proxy.address).await.unwrap();
    stream.write_all(b"PUT / HTTP/1.1\r\nhost: a\r\ncontent-length: 100\r\n\r\nbegin").await.unwrap();
    let mut status = [0; 12];
    timeout(DEADLINE, stream.read_exact(&mut status)).await.unwrap().unwrap();
    assert_eq!(&status, b"HTTP/1.1 408");
}

/// A slow upload that never rests for the limit is no stall, however long it takes.
#[tokio::test]
async fn slow_is_not_stalled() {
    let upstream = serve(|request: Request<Incoming>| async move {
        let length = drain(request.into_body()).await.unwrap();
        Response::new(any(Full::new(Bytes::from(length.to_string()))))
    });
    let proxy = Proxy::with_limit(upstream.await, SHORT).await;
    let mut stream = TcpStream::connect(proxy.address).await.unwrap();
    stream.write_all(b"PUT / HTTP/1.1\r\nhost: a\r\ncontent-length: 12\r\n\r\n").await.unwrap();
    for _ in 0..12 {
        tokio::time::sleep(SHORT / 4).await;
        stream.write_all(b"x").await.unwrap();
    }
    let mut status = [0; 12];
    timeout(DEADLINE, stream.read_exact(&mut status)).await.unwrap().unwrap();
    assert_eq!(&status, b"HTTP/1.1 200");
}

#[tokio::test]
async fn a_response_that_stops_is_ended() {
    let upstream = raw_upstream("HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nbegin", false).await;
    let proxy = Proxy::with_limit(upstream, SHORT).await;
    let response = send(get(&proxy)).await;
    assert!(timeout(DEADLINE, drain(response.into_body())).await.unwrap().is_err());
}

/// A client that stops reading holds the upstream no longer than the limit, though nobody polls the body any more.
#[tokio::test]
async fn a_reader_that_stops_frees_the_upstream() {
    let (taken, alive) = (Arc::<AtomicU64>::default(), Arc::<AtomicUsize>::default());
    let upstream = serve({
        let (taken, alive) = (taken.clone(), alive.clone());
        move |_| {
            let body = any(Source::new(1024 * MIB, &taken, &alive));
            async move { Response::new(body) }
        }
    });
    let proxy = Proxy::with_limit(upstream.await, SHORT).await;
    let response = send(get(&proxy)).await;
    until("the upstream has begun", || taken.load(Ordering::SeqCst) > 0).await;
    until("the upstream is free", || alive.load(Ordering::SeqCst) == 0).await;
    assert!(taken.load(Ordering::SeqCst) < 1024 * MIB);
    assert!(timeout(DEADLINE, drain(response.into_body())).await.unwrap().is_err());
}

/// A client that leaves early takes the upstream's work with it.
#[tokio::test]
async fn a_client_that_leaves_ends_the_download() {
    let (taken, alive) = (Arc::<AtomicU64>::default(), Arc::<AtomicUsize>::default());
    let upstream = serve({
        let (taken, alive) = (taken.clone(), alive.clone());
        move |_| {
            let body = any(Source::new(1024 * MIB, &taken, &alive));
            async move { Response::new(body) }
        }
    });
    let proxy = Proxy::before(upstream.await).await;
    let mut body = send(get(&proxy)).await.into_body();
    body.frame().await.unwrap().unwrap();
    drop(body);
    until("the upstream is free", || alive.load(Ordering::SeqCst) == 0).await;
    assert!(taken.load(Ordering::SeqCst) < 1024 * MIB);
}

#[tokio::test]
async fn a_client_that_leaves_ends_the_upload() {
    let broken = Arc::new(AtomicUsize::new(0));
    let upstream = serve({
        let broken = broken.clone();
        move |request: Request<Incoming>| {
            let broken = broken.clone();
            async move {
                if drain(request.into_body()).await.is_err() {
                    broken.fetch_add(1, Ordering::SeqCst);
                }
                Response::new(full(""))
            }
        }
    });
    let proxy = Proxy::before(upstream.await).await;
    let mut stream = TcpStream::connect(proxy.address).await.unwrap();
    stream.write_all(b"PUT / HTTP/1.1\r\nhost: a\r\ncontent-length: 100\r\n\r\nbegin").await.unwrap();
    until("the upstream has begun", || proxy.sent.load(Ordering::SeqCst) == 5).await;
    drop(stream);
    until("the upstream saw it", || broken.load(Ordering::SeqCst) == 1).await;
}

/// A client that leaves before the answer frees the upstream's connection.
#[tokio::test]
async fn a_client_that_leaves_before_the_answer_is_not_waited_for() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let proxy = Proxy::before(listener.local_addr().unwrap()).await;
    let mut client = TcpStream::connect(proxy.address).await.unwrap();
    client.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
    let (mut upstream, _) = timeout(DEADLINE, listener.accept()).await.unwrap().unwrap();
    assert!(upstream.read(&mut [0; 4096]).await.unwrap() > 0);
    drop(client);
    assert_eq!(timeout(DEADLINE, upstream.read(&mut [0; 1])).await.unwrap().unwrap_or(0), 0);
}

/// No task outlives its exchange.
#[tokio::test]
async fn exchanges_leave_nothing_behind() {
    let upstream = serve(|request: Request<Incoming>| async move { Response::new(any(request.into_body())) });
    let proxy = Proxy::before(upstream.await).await;
    let client = client();
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let once = async || {
        let request = Request::post(proxy.url("/")).body(full("hello")).unwrap();
        let response = client.request(request).await.unwrap();
        assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "hello");
    };
    once().await;
    let before = tasks();
    for _ in 0..50 {
        once().await;
    }
    until("every watcher has ended", || tasks() <= before).await;
}

/// An upstream client that reads a request's body and fails as it fails.
#[derive(Clone)]
struct Reader;

impl<B> tower_service::Service<Request<B>> for Reader
where
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<forward::BoxError> + Send,
{
    type Response = Response<AnyBody>;
    type Error = forward::BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        Box::pin(async move {
            request.into_body().collect().await.map_err(Into::into)?;
            Ok(Response::new(full("")))
        })
    }
}

/// That a client broke off is not blamed on the upstream.
#[tokio::test]
async fn a_broken_off_request_is_the_clients_doing() {
    let frames = [Ok(Frame::data(Bytes::from_static(b"begin"))), Err("gone")];
    let body = http_body_util::StreamBody::new(futures::stream::iter(frames));
    let verdict = Forwarder::new(Reader).forward(Request::put("/").body(body).unwrap(), |_| {}).await;
    assert_eq!(verdict.err().unwrap().status(), StatusCode::BAD_REQUEST);
}
