//! The token of the loopback address: what the runner's registration holds instead of the capability.

use std::fmt::Write as _;

use subtle::ConstantTimeEq as _;
use zeroize::Zeroizing;

/// A random text that only this executor's proxy accepts. No `Debug`, no `Display`.
pub(crate) struct LoopbackToken(Zeroizing<String>);

impl LoopbackToken {
    /// 256 random bits as 64 hex digits.
    ///
    /// # Errors
    /// The operating system gave no randomness.
    pub(crate) fn random() -> Result<Self, getrandom::Error> {
        let mut bytes = Zeroizing::new([0_u8; 32]);
        getrandom::fill(bytes.as_mut_slice())?;
        let mut text = Zeroizing::new(String::with_capacity(64));
        for byte in bytes.iter() {
            // Writing to a String cannot fail.
            let _ = write!(text, "{byte:02x}");
        }
        Ok(Self(text))
    }

    #[cfg(test)]
    pub(crate) fn from_text(text: &str) -> Self {
        Self(Zeroizing::new(text.to_owned()))
    }

    /// The text, for the registration file.
    pub(crate) fn expose(&self) -> &str {
        &self.0
    }

    /// Compares in constant time.
    pub(crate) fn is(&self, other: &[u8]) -> bool {
        self.0.as_bytes().ct_eq(other).into()
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn compares() {
        let token = LoopbackToken::random().unwrap();
        assert_eq!(token.expose().len(), 64);
        assert!(token.is(token.expose().as_bytes()));
        assert!(!token.is(LoopbackToken::random().unwrap().expose().as_bytes()));
        assert!(!token.is(b""));
    }
}
