#![expect(clippy::unwrap_used, reason = "tests")]

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::assignment::Rules;
use crate::identity::{IdentityCase, IdentityRules, TrustClass};
use crate::samples::{SECRET, fetched_at, payload, rules, task, task_with};

const SUBJECT: &str = "ci.f66f031b.pod";
const NONCE: [u8; 12] = [7; 12];
const KEY: &[u8] = b"0123456789abcdef0123456789abcdef";
const OTHER_KEY: &[u8] = b"fedcba9876543210fedcba9876543210";

/// Requirements §4.4.
const V1: &str = r#"{"version":1,"id":"gitea-task-42","backend":"pod","task":"CCoSP2pvYnM6CiAgcHVibGlzaDoKICAgIHJ1bnMtb246IFtzZWxmLWhvc3RlZCwgcG9kXQogICAgc3RlcHM6IFtdChocChoKCnJlcG9zaXRvcnkSDBoKb3duZXIvcmVwbw==","identity":{"Repository":"owner/repo","Task":"publish","SPIFFEID":"spiffe://example.org/ci/owner/repo/publish"}}"#;

fn ring(current: &[u8], previous: Option<&[u8]>) -> KeyRing {
    KeyRing::new(Key::new(current).unwrap(), previous.map(|text| Key::new(text).unwrap()))
}

fn ours() -> InstanceId {
    "f66f031b".parse().unwrap()
}

fn assignment(task: &[u8], rules: &Rules) -> Assignment {
    Assignment::from_task(task, rules, fetched_at()).unwrap()
}

fn sealed() -> Vec<u8> {
    let task = task("publish", "pod");
    seal(&ring(KEY, None), SUBJECT, &assignment(&task, &rules()), &task, NONCE).unwrap()
}

fn problem(subject: &str, envelope: &[u8]) -> OpenError {
    open(&ring(KEY, None), subject, envelope, &ours()).err().unwrap()
}

fn changed(change: impl FnOnce(&mut serde_json::Map<String, Value>)) -> Vec<u8> {
    let mut outer: Value = serde_json::from_slice(&sealed()).unwrap();
    change(outer.as_object_mut().unwrap());
    serde_json::to_vec(&outer).unwrap()
}

/// ENV-4, ENV-5: what was sealed comes out, the task byte for byte.
#[test]
fn a_sealed_task_opens() {
    let task = task("publish", "[]");
    let assignment = assignment(&task, &rules());
    let envelope = seal(&ring(KEY, None), SUBJECT, &assignment, &task, NONCE).unwrap();
    let opened = open(&ring(KEY, None), SUBJECT, &envelope, &ours()).unwrap();
    assert_eq!(opened.assignment, assignment);
    assert_eq!(*opened.task, task);
}

/// §4.4: the outer keys of version 2, and nothing secret among them (NEW-35).
#[test]
fn the_outside_shows_nothing_secret() {
    let envelope = sealed();
    let outer: serde_json::Map<String, Value> = serde_json::from_slice(&envelope).unwrap();
    let mut keys: Vec<_> = outer.keys().map(String::as_str).collect();
    keys.sort_unstable();
    assert_eq!(keys, ["alg", "backend", "id", "instance", "kid", "nonce", "sealed", "version"]);
    assert_eq!((&outer["version"], &outer["kid"]), (&Value::from(2), &Value::from("3eb1bd43")));
    let text = String::from_utf8(envelope).unwrap();
    let inside = STANDARD.decode(outer["sealed"].as_str().unwrap()).unwrap();
    for secret in [SECRET, "publish", "owner"] {
        assert!(!text.contains(secret));
        assert!(!inside.windows(secret.len()).any(|window| window == secret.as_bytes()));
    }
}

/// NEW-35, F29: an envelope that was moved to another subject does not open.
#[test]
fn an_envelope_stays_on_its_subject() {
    assert_eq!(problem("ci.f66f031b.vm", &sealed()), OpenError::NotAuthentic);
    assert_eq!(problem("", &sealed()), OpenError::NotAuthentic);
}

/// ENV-6, NEW-35, F29: each outer key is authenticated, and none can be added, left out or repeated.
#[test]
fn each_outer_key_is_authentic() {
    let set = |key: &str, value: Value| problem(SUBJECT, &changed(|outer| drop(outer.insert(key.to_owned(), value))));
    assert_eq!(set("version", 3.into()), OpenError::UnknownVersion(3));
    assert_eq!(set("version", 1.into()), OpenError::UnknownVersion(1));
    assert_eq!(set("instance", "other".into()), OpenError::ForeignInstance("other".parse().unwrap()));
    assert_eq!(set("id", "gitea-task-43".into()), OpenError::NotAuthentic);
    assert_eq!(set("backend", "vm".into()), OpenError::NotAuthentic);
    assert_eq!(set("kid", "00000000".into()), OpenError::UnknownKey("00000000".to_owned()));
    assert_eq!(set("alg", "none".into()), OpenError::NotAuthentic);
    assert_eq!(set("nonce", STANDARD.encode([8; 12]).into()), OpenError::NotAuthentic);
    assert_eq!(set("nonce", STANDARD.encode([7; 11]).into()), OpenError::Malformed);
    assert_eq!(set("sealed", "".into()), OpenError::NotAuthentic);
    assert_eq!(set("more", "".into()), OpenError::Malformed);
    for key in ["instance", "id", "backend", "kid", "alg", "nonce", "sealed", "version"] {
        assert_eq!(problem(SUBJECT, &changed(|outer| drop(outer.remove(key)))), OpenError::Malformed, "{key}");
    }
    let twice = String::from_utf8(sealed()).unwrap().replacen('{', "{\"backend\":\"pod\",", 1);
    assert_eq!(problem(SUBJECT, twice.as_bytes()), OpenError::Malformed);
    assert_eq!(problem(SUBJECT, b"[]"), OpenError::Malformed);
}

/// NEW-35: another instance's envelope is foreign even when it is made with the same key.
#[test]
fn a_foreign_envelope_is_told_apart() {
    let other = "other".parse().unwrap();
    assert_eq!(open(&ring(KEY, None), SUBJECT, &sealed(), &other).err(), Some(OpenError::ForeignInstance(ours())));
}

/// NEW-36, T24: the ring opens what its previous key sealed; a missing key is told, not loss.
#[test]
fn keys_rotate() {
    let opens = |ring: &KeyRing| open(ring, SUBJECT, &sealed(), &ours()).map(|opened| opened.assignment.id.to_string());
    assert_eq!(opens(&ring(OTHER_KEY, Some(KEY))), Ok("gitea-task-42".to_owned()));
    assert_eq!(opens(&ring(OTHER_KEY, None)), Err(OpenError::UnknownKey("3eb1bd43".to_owned())));
}

/// ENV-6: whoever holds the key can still not make an assignment that its task does not say.
#[test]
fn the_inside_is_derived_again() {
    let bytes = task("publish", "pod");
    let good = assignment(&bytes, &rules());
    let contradicts = |assignment: Assignment, task: &[u8]| {
        let envelope = seal(&ring(KEY, None), SUBJECT, &assignment, task, NONCE).unwrap();
        assert_eq!(problem(SUBJECT, &envelope), OpenError::Contradiction);
    };
    contradicts(good.clone(), &task("publish", "vm"));
    contradicts(Assignment { backend: Backend::Vm, ..good.clone() }, &bytes);
    contradicts(Assignment { class: TrustClass::Untrusted, ..good.clone() }, &bytes);
    contradicts(Assignment { repository: "owner/other".parse().unwrap(), ..good.clone() }, &bytes);
    contradicts(Assignment { id: "gitea-task-43".parse().unwrap(), ..good.clone() }, &bytes);
    let spiffe_id = "spiffe://example.org/ci/other/repo/publish".parse().unwrap();
    contradicts(Assignment { spiffe_id, ..good }, &bytes);
}

/// ENV-9, T13: what was sealed under another configuration opens with its own identity, whatever today's rules say.
#[test]
fn a_changed_configuration_invalidates_nothing() {
    let bytes = task("publish", "pod");
    let identity = IdentityRules {
        trust_domain: "earlier.example".parse().unwrap(),
        prefix: Some("blue".parse().unwrap()),
        case: IdentityCase::Preserve,
    };
    let earlier = Rules { identity, ..rules() };
    let envelope = seal(&ring(KEY, None), SUBJECT, &assignment(&bytes, &earlier), &bytes, NONCE).unwrap();
    let opened = open(&ring(KEY, None), SUBJECT, &envelope, &ours()).unwrap();
    assert_eq!(opened.assignment.spiffe_id.as_str(), "spiffe://earlier.example/blue/ci/owner/repo/publish");
}

/// ENV-4: the vector of version 1, byte for byte, and its digest (§4.4).
#[test]
fn version_1_is_read() {
    let earlier = read_v1(V1.as_bytes()).unwrap();
    assert_eq!(earlier.task.len(), 97);
    let digest = data_encoding::HEXLOWER.encode(&Sha256::digest(&*earlier.task));
    assert_eq!(digest, "7a5a21d9db2e6fa51462ffa28bc385e01e1cba41dd113cddbb266b4cbba7f2c7");
    assert_eq!((earlier.id.to_string().as_str(), earlier.backend), ("gitea-task-42", Backend::Pod));
    assert_eq!((earlier.repository.to_string().as_str(), earlier.job_key.as_str()), ("owner/repo", "publish"));
    assert_eq!(earlier.spiffe_id.as_str(), "spiffe://example.org/ci/owner/repo/publish");
    let today = earlier.assignment(&rules(), fetched_at()).unwrap();
    assert_eq!(today.digest.as_str(), "7a5a21d9db2e6fa5");
    assert_eq!(today.class, TrustClass::Untrusted, "it names no event");
}

/// ENV-6, F29: version 1 proves nothing, so what differs from its task is refused.
#[test]
fn version_1_must_say_what_its_task_says() {
    let read = |from: &str, to: &str| {
        let text = V1.replacen(from, to, 1);
        assert_ne!(text, V1);
        read_v1(text.as_bytes()).and_then(|earlier| earlier.assignment(&rules(), fetched_at()))
    };
    assert_eq!(read("gitea-task-42", "gitea-task-43").err(), Some(OpenError::Contradiction));
    assert_eq!(read("\"pod\"", "\"vm\"").err(), Some(OpenError::Contradiction));
    assert_eq!(read("owner/repo", "owner/other").err(), Some(OpenError::Contradiction));
    assert_eq!(read("\"publish\"", "\"deploy\"").err(), Some(OpenError::Contradiction));
    assert_eq!(read("\"version\":1", "\"version\":2").err(), Some(OpenError::UnknownVersion(2)));
    assert_eq!(read("spiffe://example.org", "https://example.org").err(), Some(OpenError::Malformed));
    assert_eq!(problem(SUBJECT, V1.as_bytes()), OpenError::UnknownVersion(1), "never by the ordinary way");
}

/// NEW-37: text, as most of a task is, becomes smaller than it was.
#[test]
fn a_large_task_shrinks() {
    let payload = format!("{}# {}\n", payload("publish", "pod"), "words ".repeat(20_000));
    let bytes = task_with(&payload, json!({"repository": "owner/repo"}));
    let envelope = seal(&ring(KEY, None), SUBJECT, &assignment(&bytes, &rules()), &bytes, NONCE).unwrap();
    assert!(envelope.len() < bytes.len() / 4, "{} of {}", envelope.len(), bytes.len());
}

/// WRK-7, F107: whoever opens the envelope, whenever and under whatever limits of its own, makes the same capability for
/// the same incarnation; its end is the deadline that was sealed.
#[test]
fn bootstrap_material_follows_from_the_envelope() {
    let bytes = task("publish", "pod");
    let first = assignment(&bytes, &rules());
    let envelope = seal(&ring(KEY, None), SUBJECT, &first, &bytes, NONCE).unwrap();
    let capability = |assignment: &Assignment, epoch| {
        let made = crate::capability::KeyRing::new(crate::capability::Key::new(KEY).unwrap(), None).issue(
            &ours(),
            assignment.id,
            epoch,
            assignment.deadline,
        );
        made.expose().to_owned()
    };
    let later = open(&ring(KEY, None), SUBJECT, &envelope, &ours()).unwrap().assignment;
    let epoch = crate::id::Epoch::FIRST;
    assert_eq!(capability(&first, epoch), capability(&later, epoch));
    assert_ne!(capability(&first, epoch), capability(&later, epoch.next()));
}

proptest! {
    /// ENV-6, NEW-35: whatever bit of an envelope is flipped, it opens no more (§4.4).
    #[test]
    fn any_flipped_bit_is_noticed(at in any::<prop::sample::Index>(), bit in 0_u8..8) {
        let mut envelope = sealed();
        let at = at.index(envelope.len());
        envelope[at] ^= 1 << bit;
        prop_assert!(open(&ring(KEY, None), SUBJECT, &envelope, &ours()).is_err());
    }

    /// ENV-7: hostile bytes are an error and nothing worse.
    #[test]
    fn hostile_bytes_do_not_open(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
        prop_assert!(open(&ring(KEY, None), SUBJECT, &bytes, &ours()).is_err());
        prop_assert!(read_v1(&bytes).is_err());
    }
}
