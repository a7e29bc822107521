//! NEW-106: bodies are streams with back-pressure.

use futures::stream;
use http::{HeaderMap, HeaderValue};
use http_body_util::StreamBody;
use tokio::sync::Notify;

use super::*;

const WHOLE: u64 = 64 * MIB;
/// What the sockets of two hops and the buffers of four HTTP stacks may hold at most; far below the whole.
const IN_FLIGHT: u64 = 24 * MIB;

/// A reader that does not read makes the sender wait, at bounded memory, and everything arrives when it reads again.
#[tokio::test]
async fn an_upload_waits_for_its_reader() {
    let go = Arc::new(Notify::new());
    let upstream = serve({
        let go = go.clone();
        move |request: Request<Incoming>| {
            let go = go.clone();
            async move {
                go.notified().await;
                let length = drain(request.into_body()).await.unwrap();
                Response::new(any(Full::new(Bytes::from(length.to_string()))))
            }
        }
    });
    let proxy = Proxy::before(upstream.await).await;
    let (taken, alive) = (Arc::default(), Arc::default());
    let before = resident();
    let request = Request::put(proxy.url("/up")).body(any(Source::new(WHOLE, &taken, &alive))).unwrap();
    let answer = tokio::spawn(async move { send(request).await });
    let stalled = rest(&taken).await;
    assert!(stalled < IN_FLIGHT, "{stalled} bytes went to a reader that does not read");
    assert!(resident().saturating_sub(before) < IN_FLIGHT, "{} bytes of memory", resident() - before);
    go.notify_one();
    let answer = answer.await.unwrap().into_body().collect().await.unwrap().to_bytes();
    assert_eq!(answer, WHOLE.to_string());
    assert_eq!(proxy.sent.load(Ordering::SeqCst), WHOLE);
}

#[tokio::test]
async fn a_download_waits_for_its_reader() {
    let (taken, alive) = (Arc::<AtomicU64>::default(), Arc::<AtomicUsize>::default());
    let upstream = serve({
        let taken = taken.clone();
        move |_| {
            let body = any(Source::new(WHOLE, &taken, &alive));
            async move { Response::new(body) }
        }
    });
    let proxy = Proxy::before(upstream.await).await;
    let before = resident();
    let response = send(Request::get(proxy.url("/down")).body(full("")).unwrap()).await;
    let stalled = rest(&taken).await;
    assert!(stalled < IN_FLIGHT, "{stalled} bytes went to a reader that does not read");
    assert!(resident().saturating_sub(before) < IN_FLIGHT, "{} bytes of memory", resident() - before);
    assert_eq!(drain(response.into_body()).await.unwrap(), WHOLE);
    assert_eq!(proxy.received.load(Ordering::SeqCst), WHOLE);
}

/// The first bytes of a response arrive while the last of the request are not yet sent.
#[tokio::test]
async fn both_directions_flow_at_once() {
    let upstream = serve(|request: Request<Incoming>| async move { Response::new(any(request.into_body())) });
    let proxy = Proxy::before(upstream.await).await;
    let (send_more, more) = futures::channel::mpsc::unbounded();
    let body = any(StreamBody::new(more));
    let chunk = |text: &'static str| Ok::<_, Infallible>(Frame::data(Bytes::from_static(text.as_bytes())));
    send_more.unbounded_send(chunk("one")).unwrap();
    let mut echo = send(Request::post(proxy.url("/")).body(body).unwrap()).await.into_body();
    for text in ["one", "two", "three"] {
        let frame = timeout(DEADLINE, echo.frame()).await.unwrap().unwrap().unwrap();
        assert_eq!(frame.into_data().unwrap(), text);
        let next = if text == "one" { "two" } else { "three" };
        send_more.unbounded_send(chunk(next)).unwrap();
    }
}

/// Trailers pass in both directions, without what belongs to one hop.
#[tokio::test]
async fn trailers_pass() {
    let with_trailers = |text: &'static str, name: &'static str| {
        let trailers: HeaderMap = [(name, "sum"), ("keep-alive", "1")]
            .map(|(name, value)| (name.parse().unwrap(), HeaderValue::from_static(value)))
            .into_iter()
            .collect();
        let frames = [Frame::data(Bytes::from_static(text.as_bytes())), Frame::trailers(trailers)];
        any(StreamBody::new(stream::iter(frames.map(Ok::<_, Infallible>))))
    };
    let upstream = serve(move |request: Request<Incoming>| async move {
        let trailers = request.into_body().collect().await.unwrap().trailers().cloned().unwrap_or_default();
        assert_eq!(trailers["x-up"], "sum");
        assert!(!trailers.contains_key("keep-alive"));
        Response::builder().header("trailer", "x-down, keep-alive").body(with_trailers("down", "x-down")).unwrap()
    });
    let proxy = Proxy::before(upstream.await).await;
    let request = Request::post(proxy.url("/")).header("trailer", "x-up, keep-alive").header("te", "trailers");
    let response = send(request.body(with_trailers("up", "x-up")).unwrap()).await;
    let collected = response.into_body().collect().await.unwrap();
    let trailers = collected.trailers().cloned().unwrap_or_default();
    assert_eq!(collected.to_bytes(), "down");
    assert_eq!(trailers["x-down"], "sum");
    assert!(!trailers.contains_key("keep-alive"));
}

/// A client that answers at once with the frames it is given.
#[derive(Clone)]
struct Mirror;

impl<B: Body + Send + 'static> tower_service::Service<Request<B>> for Mirror {
    type Response = Response<B>;
    type Error = Infallible;
    type Future = std::future::Ready<Result<Response<B>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        std::future::ready(Ok(Response::new(request.into_body())))
    }
}

/// Not a byte is copied: the buffers that come out are those that went in, through both directions.
#[tokio::test]
async fn frames_are_passed_and_not_copied() {
    let chunks: Vec<Bytes> = (0..8).map(|fill| Bytes::from(vec![fill; CHUNK])).collect();
    let frames = chunks.clone().into_iter().map(|chunk| Ok::<_, Infallible>(Frame::data(chunk)));
    let (sent, received) = (Arc::default(), Arc::default());
    let forwarder = Forwarder::new(Mirror).counting(Arc::clone(&sent), Arc::clone(&received));
    let body = StreamBody::new(stream::iter(frames));
    let mut echo = forwarder.forward(Request::post("/").body(body).unwrap(), |_| {}).await.unwrap().into_body();
    for chunk in chunks {
        let data = echo.frame().await.unwrap().unwrap().into_data().unwrap();
        assert_eq!((data.as_ptr(), data.len()), (chunk.as_ptr(), chunk.len()));
    }
    assert!(echo.frame().await.is_none());
    let whole = 8 * CHUNK as u64;
    assert_eq!((sent.load(Ordering::SeqCst), received.load(Ordering::SeqCst)), (whole, whole));
}

/// Measures what passes through on one connection: run alone, with `--ignored --nocapture`.
#[tokio::test]
#[ignore = "a measurement"]
#[expect(clippy::print_stdout, reason = "a measurement")]
async fn throughput() {
    let upstream = serve(|_| {
        let body = any(Source::new(1024 * MIB, &Arc::default(), &Arc::default()));
        async move { Response::new(body) }
    });
    let upstream = upstream.await;
    let proxy = Proxy::before(upstream).await;
    for (name, url) in [("direct", format!("http://{upstream}/")), ("forwarded", proxy.url("/"))] {
        let begin = std::time::Instant::now();
        let response = send(Request::get(url).body(full("")).unwrap()).await;
        let length = drain(response.into_body()).await.unwrap();
        println!("{name}: {} MiB in {:?}, one thread for all", length / MIB, begin.elapsed());
    }
}
