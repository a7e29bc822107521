//! Subjects, consumers, buckets and message ids of one instance (requirements §1.3). Two instances share a stream without
//! touching each other (NEW-1, NEW-39).

use domain::id::{AssignmentId, Backend, InstanceId, PayloadDigest};

use super::super::Key;

/// The names of one instance in one stream.
#[derive(Debug, Clone)]
pub(super) struct Names {
    pub(super) stream: String,
    base: String,
    instance: InstanceId,
}

impl Names {
    pub(super) fn new(stream: &str, base: &str, instance: InstanceId) -> Self {
        let base = base.strip_suffix('.').unwrap_or(base).to_owned();
        Self { stream: stream.to_owned(), base, instance }
    }

    /// What a stream of ours takes, of every instance.
    pub(super) fn all_subjects(&self) -> String {
        format!("{}.>", self.base)
    }

    pub(super) fn subject(&self, backend: Backend) -> String {
        format!("{}.{}.{backend}", self.base, self.instance)
    }

    /// Where the earlier controller published: of every instance, since it knew none.
    pub(super) fn earlier_subject(&self, backend: Backend) -> String {
        format!("{}.{backend}", self.base)
    }

    /// The consumer by which the earlier controller took from there.
    pub(super) fn earlier_durable(backend: Backend) -> String {
        backend.to_string()
    }

    pub(super) fn durable(&self, backend: Backend) -> String {
        format!("{}-{backend}", self.instance)
    }

    /// The stream behind the key-value bucket of records.
    pub(super) fn records(&self) -> String {
        format!("KV_{}_RECORDS", self.stream)
    }

    /// Where a record lies: keys of ours hold characters that a bucket's do not, so they are written in hexadecimal.
    pub(super) fn record(&self, kind: &str, key: &str) -> String {
        format!(
            "$KV.{}_RECORDS.{}.{kind}.{}",
            self.stream,
            self.instance,
            data_encoding::HEXLOWER.encode(key.as_bytes())
        )
    }

    /// Every record of a kind.
    pub(super) fn records_of(&self, kind: &str) -> String {
        format!("$KV.{}_RECORDS.{}.{kind}.*", self.stream, self.instance)
    }

    /// `Nats-Msg-Id`. What comes after a third dot tells apart a second message of the same life (PUB-2).
    pub(super) fn message_id(&self, key: &Key, again: Option<u64>) -> String {
        let first = format!("{}.{}.{}", self.instance, key.id, key.digest);
        again.map_or_else(|| first.clone(), |again| format!("{first}.{again:x}"))
    }

    /// Which message an id names; none when this instance did not write it.
    pub(super) fn key(&self, message_id: &str) -> Option<Key> {
        let mut parts = message_id.strip_prefix(self.instance.as_str())?.strip_prefix('.')?.splitn(3, '.');
        let id: AssignmentId = parts.next()?.parse().ok()?;
        let digest = PayloadDigest::try_from(parts.next()?.to_owned()).ok()?;
        Some(Key { id, digest })
    }
}

/// The key of a record's subject.
pub(super) fn key_of_record(subject: &str) -> Option<String> {
    let (_, hex) = subject.rsplit_once('.')?;
    String::from_utf8(data_encoding::HEXLOWER.decode(hex.as_bytes()).ok()?).ok()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn names(instance: &str) -> Names {
        Names::new("CI_RUNNER", "ci.runner.", instance.parse().unwrap())
    }

    /// NEW-1, NEW-39, PUB-1, CON-1, F153, T15: the forms of requirements §1.3, and the vector of §4.4.
    #[test]
    fn the_forms_of_the_specification() {
        let names = names("f66f031b");
        assert_eq!(
            (names.subject(Backend::Pod).as_str(), names.records().as_str()),
            ("ci.runner.f66f031b.pod", "KV_CI_RUNNER_RECORDS")
        );
        assert_eq!(names.durable(Backend::Local), "f66f031b-local");
        let earlier = (names.earlier_subject(Backend::Pod), Names::earlier_durable(Backend::Vm));
        assert_eq!(earlier, ("ci.runner.pod".to_owned(), "vm".to_owned()));
        let id = "f66f031b.gitea-task-42.7a5a21d9db2e6fa5";
        let key = names.key(id).unwrap();
        assert_eq!(names.message_id(&key, None), id);
        assert_eq!(names.message_id(&key, Some(31)), format!("{id}.1f"));
        assert_eq!(names.key(&format!("{id}.1f")), Some(key));
    }

    /// NEW-41, NEW-1: what another instance or the earlier controller wrote is not ours.
    #[test]
    fn foreign_ids_are_foreign() {
        let names = names("f66f031b");
        for foreign in [
            "gitea-task-42",
            "f66f031bb.gitea-task-42.7a5a21d9db2e6fa5",
            "other.gitea-task-42.7a5a21d9db2e6fa5",
            "f66f031b.gitea-task-0.7a5a21d9db2e6fa5",
            "f66f031b.gitea-task-42.7a5a",
            "f66f031b.gitea-task-42",
            "",
        ] {
            assert_eq!(names.key(foreign), None, "{foreign}");
        }
    }

    #[test]
    fn a_record_is_found_by_any_key() {
        let names = names("f66f031b");
        let subject = names.record("pin", "spiffe://example.org/ci/a/b/c");
        assert!(subject.starts_with("$KV.CI_RUNNER_RECORDS.f66f031b.pin."), "{subject}");
        assert_eq!(key_of_record(&subject).as_deref(), Some("spiffe://example.org/ci/a/b/c"));
    }
}
