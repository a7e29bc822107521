//! What the selected queue needs (CFG-3, CFG-13).

use super::Reader;
use crate::config::nats::{Login, Nats};
use crate::config::setting::Setting;
use crate::config::{Queue, QueueKind, SecretFile, SettingError, table};

impl Reader<'_> {
    /// The queue. What only the other one uses is not looked at.
    pub(super) fn queue(&self) -> Option<Queue> {
        match self.get(&table::QUEUE)? {
            QueueKind::Embedded => Some(Queue::Embedded),
            QueueKind::JetStream => self.nats().map(|nats| Queue::JetStream(Box::new(nats))),
        }
    }

    fn nats(&self) -> Option<Nats> {
        let servers = self.get(&table::NATS_URL);
        let plaintext = self.get(&table::ALLOW_PLAINTEXT);
        for server in servers.iter().flatten().filter(|server| server.is_exposed() && plaintext == Some(false)) {
            self.error(SettingError::new(
                "NATS_URL",
                format!("NATS_URL: {server} would carry passwords and tasks with all their secrets in clear text"),
                "use tls://, or set ALLOW_PLAINTEXT=true if the network is yours alone",
            ));
        }
        let ca = self.optional(&table::NATS_CA_FILE);
        let (stream, subject_base) = (self.get(&table::NATS_STREAM), self.get(&table::NATS_SUBJECT_BASE));
        let producer = self.login(&table::NATS_PRODUCER_USER, &table::NATS_PRODUCER_PASSWORD_FILE);
        let worker = self.login(&table::NATS_WORKER_USER, &table::NATS_WORKER_PASSWORD_FILE);
        if let (Some(producer), Some(worker)) = (&producer, &worker)
            && producer.user == worker.user
        {
            self.error(SettingError::new(
                "NATS_WORKER_USER",
                format!("NATS_WORKER_USER: {:?} is NATS_PRODUCER_USER as well", worker.user),
                "give each of the two connections a user with its own rights only",
            ));
        }
        let accept_v1 = self.get(&table::ENVELOPE_ACCEPT_V1);
        Some(Nats {
            servers: servers?,
            ca: ca?,
            stream: stream?,
            subject_base: subject_base?,
            accept_v1: accept_v1?,
            producer: producer?,
            worker: worker?,
        })
    }

    fn login(&self, user: &Setting<String>, password: &Setting<SecretFile>) -> Option<Login> {
        let (user, password) = (self.get(user), self.get(password));
        Some(Login { user: user?, password: password? })
    }
}
