//! An agent of this machine, for programs that run outside of any cluster.

use std::path::PathBuf;
use std::process::Child;

use tempfile::TempDir;

use super::{SpireServer, files, folder, healthy, launch};
use crate::real::Error;
use crate::real::cache::{Cache, Program};
use crate::real::leash::Leash;

/// A running agent; dropping it kills it and removes its folder. Workloads are known by their uid (`unix:uid:…`).
pub struct SpireAgent {
    child: Child,
    _leash: Leash,
    program: PathBuf,
    alias: String,
    dir: TempDir,
}

impl SpireAgent {
    /// Starts an agent that attests by a join token, and waits until its Workload API answers.
    ///
    /// # Errors
    /// It is not installed, ended early (its log says why), or is not healthy within 60 s.
    pub async fn start(server: &SpireServer) -> Result<Self, Error> {
        let program = Cache::locate()?.program(Program::SpireAgent)?;
        let dir = folder()?;
        let alias = format!("spiffe://{}/this-machine", server.settings().trust_domain);
        let token = server.join_token(&alias).await?;
        let write = |name: &str, text: &str| {
            std::fs::write(dir.path().join(name), text).map_err(Error::system(format!("write {name}")))
        };
        write("bootstrap.crt", &server.bundle().await?)?;
        write("agent.conf", &files::agent(server.settings(), server.address(), &token, dir.path()))?;
        // The admin socket may not lie in or below the folder of the other.
        for name in ["api", "data"] {
            std::fs::create_dir_all(dir.path().join(name)).map_err(Error::system("make a folder"))?;
        }
        let child = launch(&program, &dir.path().join("agent.conf"), &dir.path().join("agent.log"))?;
        let leash = Leash::tie(child.id(), Some(dir.path()), Some(dir.path()))?;
        let mut agent = Self { child, _leash: leash, program, alias, dir };
        agent.ready().await?;
        Ok(agent)
    }

    async fn ready(&mut self) -> Result<(), Error> {
        let (program, socket) = (self.program.clone(), self.dir.path().join("api/agent.sock"));
        let log = self.dir.path().join("agent.log");
        healthy(&mut self.child, "the SPIRE agent is healthy", &log, &program, &socket).await
    }

    /// `SPIFFE_ENDPOINT_SOCKET` for its workloads.
    #[must_use]
    pub fn workload_api(&self) -> String {
        format!("unix:{}", self.dir.path().join("api/agent.sock").display())
    }

    /// What entries for its workloads name as their parent.
    #[must_use]
    pub fn parent(&self) -> &str {
        &self.alias
    }

    /// What it wrote.
    #[must_use]
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("agent.log")).unwrap_or_default()
    }

    /// Kills it; its workloads' streams end.
    pub fn stop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Starts it again; its key is on the disk, since a join token works once.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub async fn start_again(&mut self) -> Result<(), Error> {
        self.child = launch(&self.program, &self.dir.path().join("agent.conf"), &self.dir.path().join("agent.log"))?;
        self.ready().await
    }
}

impl Drop for SpireAgent {
    fn drop(&mut self) {
        self.stop();
    }
}
