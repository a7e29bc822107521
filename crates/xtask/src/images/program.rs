//! Whether a program stands alone.

use std::path::Path;

use anyhow::{Context as _, ensure};

/// A program header that names the loader of a program that is not static.
const INTERPRETER: u32 = 3;

/// Fails unless the program runs without a loader and without libraries.
pub(super) fn ensure_static(program: &Path) -> anyhow::Result<()> {
    let content = std::fs::read(program).with_context(|| format!("read {}", program.display()))?;
    let kinds = header_kinds(&content).with_context(|| format!("{} is no program (ELF, 64 bit)", program.display()))?;
    ensure!(
        !kinds.contains(&INTERPRETER),
        "{} asks for a loader and libraries, which its image does not have; it must be built with crt-static",
        program.display()
    );
    Ok(())
}

/// The kinds of an ELF file's program headers; none when it is not one of 64 bits, lowest byte first.
fn header_kinds(elf: &[u8]) -> Option<Vec<u32>> {
    let bytes = |at: usize, count: usize| elf.get(at..at.checked_add(count)?);
    let number = |at: usize, count: usize| -> Option<usize> {
        bytes(at, count)?
            .iter()
            .rev()
            .try_fold(0_usize, |sum, byte| sum.checked_mul(256)?.checked_add(usize::from(*byte)))
    };
    if bytes(0, 6)? != b"\x7fELF\x02\x01" {
        return None;
    }
    let (start, size, count) = (number(32, 8)?, number(54, 2)?, number(56, 2)?);
    (0..count).map(|at| u32::try_from(number(start.checked_add(size.checked_mul(at)?)?, 4)?).ok()).collect()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    /// The head of a program with headers of these kinds.
    fn elf(kinds: &[u8]) -> Vec<u8> {
        let mut elf = vec![0; 64];
        elf[..6].copy_from_slice(b"\x7fELF\x02\x01");
        (elf[32], elf[54], elf[56]) = (64, 56, u8::try_from(kinds.len()).unwrap());
        for kind in kinds {
            elf.push(*kind);
            elf.extend([0; 55]);
        }
        elf
    }

    /// IMG-1, F151, T75: a program that needs a loader does not get into an image. This very test needs one; a static one
    /// has segments, notes, and what it relocates itself by.
    #[test]
    fn a_program_that_needs_a_loader() {
        let own = std::env::current_exe().unwrap();
        let refused = ensure_static(&own).unwrap_err().to_string();
        assert!(refused.contains("crt-static"), "{refused}");
        let file = tempfile::NamedTempFile::new().unwrap();
        for (kinds, is_static) in [(&[1, 2, 4][..], true), (&[1, 2, 3, 4], false)] {
            std::fs::write(file.path(), elf(kinds)).unwrap();
            assert_eq!(ensure_static(file.path()).is_ok(), is_static, "{kinds:?}");
        }
        assert_eq!(header_kinds(&elf(&[1])[..66]), None);
        std::fs::write(file.path(), "#!/bin/sh\n").unwrap();
        assert!(ensure_static(file.path()).unwrap_err().to_string().contains("is no program"));
    }
}
