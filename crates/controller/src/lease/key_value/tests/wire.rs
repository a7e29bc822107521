//! A wire to a server that can lose its answers.

use std::sync::Arc;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// What becomes of what the server says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answers {
    Pass,
    /// They pass until the client has said this.
    PassUntil(&'static str),
    Swallow,
}

/// How answers fare, and how often everything was cut.
type State = watch::Sender<(Answers, u32)>;

/// A relay on a loopback port. Dropping it takes no further connection.
pub(super) struct Wire {
    port: u16,
    state: Arc<State>,
    keeper: JoinHandle<()>,
}

impl Wire {
    pub(super) async fn to(server: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::new(watch::Sender::new((Answers::Pass, 0)));
        let seen = Arc::clone(&state);
        let keeper = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                if let Ok(server) = TcpStream::connect(("127.0.0.1", server)).await {
                    tokio::spawn(relay(client, server, Arc::clone(&seen)));
                }
            }
        });
        Self { port, state, keeper }
    }

    pub(super) fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    /// From the next time on that the client says this, nothing that the server says arrives. What the client says does.
    pub(super) fn lose_answers_from(&self, said: &'static str) {
        self.state.send_modify(|(answers, _)| *answers = Answers::PassUntil(said));
    }

    /// Ends all connections; new ones are whole.
    pub(super) fn cut(&self) {
        self.state.send_modify(|(answers, cuts)| (*answers, *cuts) = (Answers::Pass, *cuts + 1));
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.keeper.abort();
    }
}

async fn relay(client: TcpStream, server: TcpStream, state: Arc<State>) {
    let began = state.borrow().1;
    let mut cut = state.subscribe();
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let asked = |chunk: &[u8]| {
        let says = |said: &str| chunk.windows(said.len()).any(|window| window == said.as_bytes());
        state.send_if_modified(|(answers, _)| match answers {
            Answers::PassUntil(said) if says(said) => {
                *answers = Answers::Swallow;
                true
            }
            _ => false,
        });
        Answers::Pass
    };
    tokio::select! {
        () = pump(from_client, to_server, asked) => {}
        () = pump(from_server, to_client, |_| state.borrow().0) => {}
        _ = cut.wait_for(|(_, cuts)| *cuts != began) => {}
    }
}

async fn pump(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, fate: impl Fn(&[u8]) -> Answers) {
    let mut buffer = [0; 4096];
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        let chunk = &buffer[..length];
        if fate(chunk) != Answers::Swallow && to.write_all(chunk).await.is_err() {
            return;
        }
    }
}
