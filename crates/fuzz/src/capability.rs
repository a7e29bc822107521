//! What an executor presents as its capability (requirements §4.3; IDN-9).

use domain::id::Epoch;

use crate::samples::{id, instance, moment, ring};

/// Only the very text that the ring makes is good, and it means what it was made for.
pub(crate) fn check(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    let ring = ring();
    if let Ok(grant) = ring.verify(text, &instance(), id()) {
        let again = text.rsplit_once('.').and_then(|(name, _)| ring.again(name, &instance(), id()).ok());
        let Some((epoch, capability)) = again else { panic!("good, but it cannot be made again: {text:?}") };
        assert!(epoch == grant.epoch && capability.expose() == text, "good, but made otherwise: {text:?}");
    }
    if let Ok((epoch, capability)) = ring.again(text, &instance(), id()) {
        let grant = ring.verify(capability.expose(), &instance(), id());
        assert!(grant.is_ok_and(|grant| grant.epoch == epoch), "made, but not good: {text:?}");
    }
    let _ = ring.verify_form_1(text, id());
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let epochs = [Epoch::FIRST, Epoch::FIRST.next()];
    let texts = epochs.map(|epoch| ring().issue(&instance(), id(), epoch, moment()).expose().to_owned());
    let names = texts.clone().map(|text| text.rsplit_once('.').map(|(name, _)| name.to_owned()).unwrap_or_default());
    texts.into_iter().chain(names).map(String::into_bytes).collect()
}
