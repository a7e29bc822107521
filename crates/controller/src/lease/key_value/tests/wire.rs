//! A wire to a server that can lose its answers.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// What becomes of what the server says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answers {
    Pass,
    Swallow,
}

/// A relay on a loopback port. Dropping it takes no further connection.
pub(super) struct Wire {
    port: u16,
    /// How answers fare, and how often everything was cut.
    answers: watch::Sender<(Answers, u32)>,
    keeper: JoinHandle<()>,
}

impl Wire {
    pub(super) async fn to(server: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (answers, seen) = watch::channel((Answers::Pass, 0));
        let keeper = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                if let Ok(server) = TcpStream::connect(("127.0.0.1", server)).await {
                    tokio::spawn(relay(client, server, seen.clone()));
                }
            }
        });
        Self { port, answers, keeper }
    }

    pub(super) fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    /// From now on nothing that the server says arrives.
    pub(super) fn swallow_answers(&self) {
        self.answers.send_modify(|(answers, _)| *answers = Answers::Swallow);
    }

    /// Ends all connections; new ones are whole.
    pub(super) fn cut(&self) {
        self.answers.send_modify(|(answers, cuts)| (*answers, *cuts) = (Answers::Pass, *cuts + 1));
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.keeper.abort();
    }
}

async fn relay(client: TcpStream, server: TcpStream, mut answers: watch::Receiver<(Answers, u32)>) {
    let began = answers.borrow().1;
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let seen = answers.clone();
    tokio::select! {
        () = pump(from_client, to_server, || Answers::Pass) => {}
        () = pump(from_server, to_client, || seen.borrow().0) => {}
        _ = answers.wait_for(|(_, cuts)| *cuts != began) => {}
    }
}

async fn pump(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, answers: impl Fn() -> Answers) {
    let mut buffer = [0; 4096];
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        if answers() == Answers::Pass && to.write_all(&buffer[..length]).await.is_err() {
            return;
        }
    }
}
