//! A relay on the wire in front of a NATS server: it carries each message of a client on, and each answer back, and
//! strikes between them. What was published without a place for an answer is no boundary: nobody waits for it.

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::{Boundary, Moment, Register};

/// What a message is called, by its subject and its content, headers included; none: it is no boundary.
pub type Name = Arc<dyn Fn(&str, &[u8]) -> Option<String> + Send + Sync>;

/// From the last byte of an answer on its way until the controller is killed after it: enough to have read it.
const TAKEN_IN: Duration = Duration::from_millis(5);

/// From the end of a connection until the server has stored what came by it.
const STORED: Duration = Duration::from_millis(20);

/// The running relay; it ends with this.
pub struct Relay {
    address: SocketAddr,
    doorkeeper: JoinHandle<()>,
    under_way: TaskTracker,
}

impl Relay {
    /// Carries to the server at this port of loopback what comes to a port of the kernel's choice.
    ///
    /// # Errors
    /// There is no port.
    pub async fn start(server: u16, name: Name, register: Arc<Register>) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let (under_way, way) = (TaskTracker::new(), Way { name, register });
        let tracker = under_way.clone();
        let doorkeeper = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let way = way.clone();
                tracker.spawn(async move {
                    let _left_or_cut = connection(client, server, way).await;
                });
            }
        });
        Ok(Self { address, doorkeeper, under_way })
    }

    /// Waits until nothing is on its way any more: what a dead client had sent is stored, or never will be.
    pub async fn settled(&self) {
        self.under_way.close();
        self.under_way.wait().await;
        self.under_way.reopen();
        tokio::time::sleep(STORED).await;
    }

    /// Its URL.
    #[must_use]
    pub fn url(&self) -> String {
        format!("nats://{}", self.address)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.doorkeeper.abort();
    }
}

#[derive(Clone)]
struct Way {
    name: Name,
    register: Arc<Register>,
}

/// What one connection knows of its questions.
#[derive(Default)]
struct Asked {
    /// By the subject that the answer comes to.
    questions: BTreeMap<String, Boundary>,
    /// Subjects by the number of their subscription: what a consumer hands out comes under its own subject.
    subscriptions: BTreeMap<String, String>,
}

impl Asked {
    fn answered(&mut self, message: &Message) -> Option<Boundary> {
        let by_number = || self.subscriptions.get(&message.subscription).cloned();
        self.questions.remove(&message.subject).or_else(|| {
            let subject = by_number()?;
            self.questions.remove(&subject)
        })
    }
}

async fn connection(client: TcpStream, server: u16, way: Way) -> io::Result<()> {
    let server = TcpStream::connect((Ipv4Addr::LOCALHOST, server)).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
    let (asked, cut) = (Mutex::default(), CancellationToken::new());
    let there = questions(from_client, to_server, &way, &asked, &cut);
    let back = answers(from_server, to_client, &way, &asked, &cut);
    tokio::select! {
        // What was sent is carried on, also when the client dies meanwhile.
        _ = async { tokio::join!(there, back) } => {}
        () = cut.cancelled() => {}
    }
    Ok(())
}

async fn questions(
    from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    way: &Way,
    asked: &Mutex<Asked>,
    cut: &CancellationToken,
) -> io::Result<()> {
    let mut from = BufReader::new(from);
    while let Some(frame) = Frame::read(&mut from).await? {
        if let Some((subject, number)) = frame.subscription() {
            locked(asked).subscriptions.insert(number, subject);
        }
        if let Some(message) = frame.message()
            && let Some(reply) = &message.reply
            && let Some(name) = (way.name)(&message.subject, frame.content())
        {
            let boundary = way.register.meets(name);
            if way.register.strikes(&boundary, Moment::Before) {
                cut.cancel();
                return Ok(());
            }
            locked(asked).questions.insert(reply.clone(), boundary);
        }
        to.write_all(&frame.bytes).await?;
    }
    to.shutdown().await
}

async fn answers(
    from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    way: &Way,
    asked: &Mutex<Asked>,
    cut: &CancellationToken,
) -> io::Result<()> {
    let mut from = BufReader::new(from);
    while let Some(frame) = Frame::read(&mut from).await? {
        let boundary = frame.message().and_then(|message| locked(asked).answered(&message));
        if boundary.as_ref().is_some_and(|boundary| way.register.strikes(boundary, Moment::Between)) {
            cut.cancel();
            return Ok(());
        }
        to.write_all(&frame.bytes).await?;
        if let Some(boundary) = boundary.filter(|boundary| way.register.wants(boundary, Moment::After)) {
            tokio::time::sleep(TAKEN_IN).await;
            way.register.strikes(&boundary, Moment::After);
        }
    }
    Ok(())
}

fn locked(asked: &Mutex<Asked>) -> MutexGuard<'_, Asked> {
    asked.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One line of the protocol, with the content that follows some of them.
struct Frame {
    bytes: Vec<u8>,
    line: usize,
}

/// A line that carries content.
struct Message {
    subject: String,
    subscription: String,
    reply: Option<String>,
}

impl Frame {
    async fn read(from: &mut BufReader<OwnedReadHalf>) -> io::Result<Option<Self>> {
        let mut bytes = Vec::new();
        let line = from.read_until(b'\n', &mut bytes).await?;
        if line == 0 {
            return Ok(None);
        }
        let mut frame = Self { bytes, line };
        if frame.message().is_some() {
            let size = frame.words().last().and_then(|word| word.parse::<usize>().ok());
            let size = size.ok_or_else(|| io::Error::other("not the NATS protocol"))?;
            frame.bytes.resize(line + size + 2, 0);
            from.read_exact(&mut frame.bytes[line..]).await?;
        }
        Ok(Some(frame))
    }

    fn words(&self) -> Vec<&str> {
        std::str::from_utf8(&self.bytes[..self.line]).unwrap_or_default().split_whitespace().collect()
    }

    fn content(&self) -> &[u8] {
        &self.bytes[self.line..]
    }

    /// Subject and number of a subscription.
    fn subscription(&self) -> Option<(String, String)> {
        match *self.words() {
            ["SUB", subject, .., number] => Some((subject.to_owned(), number.to_owned())),
            _ => None,
        }
    }

    fn message(&self) -> Option<Message> {
        let words = self.words();
        // Before the sizes, of which one with headers has two.
        let (mine, sizes) = match words.first().copied()? {
            "PUB" => (false, 1),
            "HPUB" => (false, 2),
            "MSG" => (true, 1),
            "HMSG" => (true, 2),
            _ => return None,
        };
        let of = words.get(1..words.len().checked_sub(sizes)?)?;
        let (subject, rest) = of.split_first()?;
        let (subscription, rest) = if mine { rest.split_first()? } else { (&"", rest) };
        let reply = rest.first().map(|reply| (*reply).to_owned());
        Some(Message { subject: (*subject).to_owned(), subscription: (*subscription).to_owned(), reply })
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::queue::Broker;
    use crate::real::NatsSettings;

    /// What the server and the client have seen when the client is dead.
    #[tokio::test]
    async fn each_moment_leaves_its_own_traces() {
        let broker = Broker::start(NatsSettings::default()).await.unwrap();
        for (moment, stored, answered) in
            [(Moment::Before, 0, false), (Moment::Between, 1, false), (Moment::After, 2, true)]
        {
            let mut victim = tokio::process::Command::new("sleep").arg("60").spawn().unwrap();
            let register = Arc::new(Register::new(Some((Boundary { name: "Store".to_owned(), nth: 1 }, moment))));
            register.open();
            register.victim(victim.id());
            let name: Name = Arc::new(|subject, _| subject.starts_with("s.").then(|| "Store".to_owned()));
            let relay = Relay::start(broker.port(), name, Arc::clone(&register)).await.unwrap();
            let context = async_nats::jetstream::new(broker.client_at(&relay.url()).await.unwrap());
            let config = async_nats::jetstream::stream::Config {
                name: "S".to_owned(),
                subjects: vec!["s.>".to_owned()],
                ..Default::default()
            };
            context.get_or_create_stream(config).await.unwrap();
            let answer = async { context.publish("s.one", "text".into()).await.unwrap().await };
            let answer = tokio::time::timeout(Duration::from_secs(2), answer).await;
            assert_eq!(answer.is_ok_and(|answer| answer.is_ok()), answered, "{moment:?}");
            assert!(!victim.wait().await.unwrap().success());
            let direct = async_nats::jetstream::new(broker.client().await.unwrap());
            let stream = direct.get_stream("S").await.unwrap();
            assert_eq!((stream.cached_info().state.messages, register.struck()), (stored, true), "{moment:?}");
        }
    }
}
