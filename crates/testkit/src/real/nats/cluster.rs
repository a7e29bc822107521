//! Several NATS servers that store together.

use super::super::Error;
use super::super::poll::{Seen, eventually};
use super::port::Port;
use super::settings::{NatsSettings, Route};
use super::{NatsServer, START_LIMIT};

/// Servers with routes to each other. Dropping it kills them and removes their folders.
pub struct NatsCluster {
    servers: Vec<NatsServer>,
}

impl NatsCluster {
    /// Starts `count` servers, 3 as a rule, with the same settings and waits until JetStream has a leader that all of
    /// them know: about 2 s.
    ///
    /// # Errors
    /// They are not installed, one ended early, or there is no leader within 30 s.
    pub async fn start(count: usize, settings: NatsSettings) -> Result<Self, Error> {
        let mut ports = (0..count).map(|_| Port::reserve()).collect::<Result<Vec<_>, _>>()?;
        let all: Vec<u16> = ports.iter().map(Port::number).collect();
        let servers = ports.drain(..).enumerate().map(|(index, own)| {
            let route = Route { own, all: all.clone() };
            NatsServer::prepare(settings.clone(), &format!("n{index}"), Some(route))
        });
        let mut cluster = Self { servers: servers.collect::<Result<_, _>>()? };
        // Each needs the others to become ready.
        cluster.servers.iter_mut().try_for_each(NatsServer::launch)?;
        cluster.ready().await?;
        Ok(cluster)
    }

    /// Waits until those that run are ready and agree on a leader.
    ///
    /// # Errors
    /// One ended early, or there is no leader within 30 s.
    pub async fn ready(&mut self) -> Result<(), Error> {
        for server in self.servers.iter_mut().filter(|server| server.running.is_some()) {
            server.ready().await?;
        }
        eventually("JetStream has a leader", START_LIMIT, async || {
            let leaders = self.leaders().await;
            let agreed = leaders.iter().all(|leader| *leader == leaders[0] && leader.is_ok());
            Ok(if agreed { Seen::Done(()) } else { Seen::NotYet(format!("{leaders:?}")) })
        })
        .await
    }

    /// The server of that index, from 0. Panics where there is none.
    pub fn server(&mut self, index: usize) -> &mut NatsServer {
        &mut self.servers[index]
    }

    /// The addresses of all servers, as clients take a list: divided by commas.
    #[must_use]
    pub fn url(&self) -> String {
        self.servers.iter().map(NatsServer::url).collect::<Vec<_>>().join(",")
    }

    /// The index of the server that a name of the form `n0` belongs to, as answers of JetStream name leaders.
    #[must_use]
    pub fn index_of(&self, name: &str) -> Option<usize> {
        self.servers.iter().position(|server| server.name == name)
    }

    /// Whom each running server takes for the leader of JetStream, or why it does not say.
    async fn leaders(&self) -> Vec<Result<String, String>> {
        let mut leaders = Vec::new();
        for server in self.servers.iter().filter(|server| server.running.is_some()) {
            let leader = server.look("/jsz").await.and_then(|page| {
                let leader = page["meta_cluster"]["leader"].as_str().filter(|name| !name.is_empty());
                leader.map(str::to_owned).ok_or_else(|| format!("{}: {}", server.name, page["meta_cluster"]))
            });
            leaders.push(leader);
        }
        leaders
    }
}
