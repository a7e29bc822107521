//! Cuts known secrets out of what is written, whole, before anything else is done to the text (NEW-141).

use std::io::{self, Write};
use std::sync::{Arc, RwLock};

use tracing_subscriber::fmt::MakeWriter;
use zeroize::Zeroizing;

/// Shorter texts are no secrets of ours, and cutting them would garble ordinary words.
const SHORTEST: usize = 12;

const CUT: &[u8] = b"[redacted]";

/// The secrets of this process. Clones share one list.
#[derive(Clone, Default)]
pub struct Secrets(Arc<RwLock<Vec<Zeroizing<Vec<u8>>>>>);

impl Secrets {
    /// Registers a secret; one of fewer than 12 bytes is left alone. Registering twice is free.
    pub fn add(&self, secret: &str) {
        let secret = secret.trim().as_bytes();
        if secret.len() < SHORTEST {
            return;
        }
        let mut known = self.0.write().unwrap_or_else(std::sync::PoisonError::into_inner);
        if known.iter().all(|other| other.as_slice() != secret) {
            known.push(Zeroizing::new(secret.to_vec()));
            // A secret that contains another one is cut first.
            known.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        }
    }

    /// A writer that cuts.
    pub fn writer<M>(&self, inner: M) -> Cutting<M> {
        Cutting { secrets: self.clone(), inner }
    }

    /// The text without the secrets; none when it has none.
    fn cut(&self, line: &[u8]) -> Option<Vec<u8>> {
        let known = self.0.read().unwrap_or_else(std::sync::PoisonError::into_inner);
        let mut cut: Option<Vec<u8>> = None;
        for secret in known.iter() {
            while let Some(at) = find(cut.as_deref().unwrap_or(line), secret) {
                let text = cut.get_or_insert_with(|| line.to_vec());
                text.splice(at..at + secret.len(), CUT.iter().copied());
            }
        }
        cut
    }
}

fn find(text: &[u8], secret: &[u8]) -> Option<usize> {
    text.windows(secret.len()).position(|window| window == secret)
}

/// Makes writers that cut.
pub struct Cutting<M> {
    secrets: Secrets,
    inner: M,
}

/// One line on its way; `tracing-subscriber` writes each event with one call.
pub struct CuttingWriter<W> {
    secrets: Secrets,
    inner: W,
}

impl<'a, M: MakeWriter<'a>> MakeWriter<'a> for Cutting<M> {
    type Writer = CuttingWriter<M::Writer>;

    fn make_writer(&'a self) -> Self::Writer {
        CuttingWriter { secrets: self.secrets.clone(), inner: self.inner.make_writer() }
    }
}

impl<W: Write> Write for CuttingWriter<W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.inner.write_all(self.secrets.cut(line).as_deref().unwrap_or(line))?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// NEW-141: every occurrence of every secret, the longer one first.
    #[test]
    fn cuts_every_secret() {
        let secrets = Secrets::default();
        secrets.add("0123456789abcdef");
        secrets.add("0123456789abcdef-and-more\n");
        secrets.add("short");
        let cut = |text: &str| secrets.cut(text.as_bytes()).map(|t| String::from_utf8_lossy(&t).into_owned());
        assert_eq!(cut("a 0123456789abcdef b 0123456789abcdef").as_deref(), Some("a [redacted] b [redacted]"));
        assert_eq!(cut("0123456789abcdef-and-more!").as_deref(), Some("[redacted]!"));
        assert_eq!(cut("short 0123456789abcde"), None);
    }
}
