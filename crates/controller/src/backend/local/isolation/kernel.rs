//! Doors of the kernel that no namespace closes, closed for a job by a seccomp filter.
//!
//! First of all the key rings: a key belongs to a uid and not to a process, so that it outlives a job and is found by
//! the next one of the same uid (NEW-173). The others are what container runtimes refuse as well. The filter is
//! written out here, because one made by `seccompiler` ends every program of another word size.

use std::io;

use seccompiler::{BpfProgram, apply_filter, sock_filter};

/// The system calls of one architecture that a job does not have.
struct Closed {
    /// As `AUDIT_ARCH_…` in linux/audit.h.
    arch: u32,
    /// `add_key`, `request_key`, `keyctl`, `kexec_load`, `kexec_file_load` (not on i386), `bpf`, `perf_event_open`,
    /// `open_by_handle_at`, `userfaultfd`.
    calls: &'static [u32],
}

/// Every architecture whose programs may run beside ours on one kernel. Numbers: the kernel's system call tables.
const CLOSED: [Closed; 4] = [
    // x86_64
    Closed { arch: 0xC000_003E, calls: &[248, 249, 250, 246, 320, 321, 298, 304, 323] },
    // i386
    Closed { arch: 0x4000_0003, calls: &[286, 287, 288, 283, 357, 336, 342, 374] },
    // aarch64
    Closed { arch: 0xC000_00B7, calls: &[217, 218, 219, 104, 294, 280, 241, 265, 282] },
    // arm
    Closed { arch: 0x4000_0028, calls: &[309, 310, 311, 347, 401, 386, 364, 371, 388] },
];

/// From here on calls of the x32 kind are numbered, the third one of x86_64: hardly any kernel has it, and no list
/// above holds its numbers.
const X32: u32 = 0x4000_0000;

/// Fields of what a filter looks at, `seccomp_data` in linux/seccomp.h.
const NUMBER: u32 = 0;
const ARCH: u32 = 4;

/// Words of the filter language, linux/bpf_common.h: load a word, jump, answer.
const LOAD: u16 = 0x20;
const IF_EQUAL: u16 = 0x15;
const IF_AT_LEAST: u16 = 0x35;
const ANSWER: u16 = 0x06;

/// `SECCOMP_RET_ALLOW`.
const ALLOW: u32 = 0x7FFF_0000;
/// `SECCOMP_RET_ERRNO` with ENOSYS: what a kernel without that call says, so that programs do without.
const NO_SUCH_CALL: u32 = 0x0005_0000 | 38;

/// Closes them for this thread and whatever it becomes or starts. There is no way back.
pub(super) fn close_doors() -> io::Result<()> {
    apply_filter(&filter()).map_err(io::Error::other)
}

fn filter() -> BpfProgram {
    let step = |code, jt, jf, k| sock_filter { code, jt, jf, k };
    let mut program = vec![step(LOAD, 0, 0, ARCH)];
    for Closed { arch, calls } in &CLOSED {
        // Too many for a jump would be a list of more than 80 calls.
        let rest = u8::try_from(2 * calls.len() + 4).unwrap_or(u8::MAX);
        program.extend([step(IF_EQUAL, 0, rest, *arch), step(LOAD, 0, 0, NUMBER)]);
        let refused = calls.iter().map(|&call| (IF_EQUAL, call)).chain([(IF_AT_LEAST, X32)]);
        program.extend(refused.flat_map(|(when, k)| [step(when, 0, 1, k), step(ANSWER, 0, 0, NO_SUCH_CALL)]));
        program.push(step(ANSWER, 0, 0, ALLOW));
    }
    // One that we know nothing of: there is none on these kernels.
    program.push(step(ANSWER, 0, 0, NO_SUCH_CALL));
    program
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use std::process::Command;

    use super::*;

    /// What the filter answers, by the rules of its language.
    fn answer(arch: u32, number: u32) -> u32 {
        let (program, mut at, mut loaded) = (filter(), 0, 0);
        loop {
            let step = &program[at];
            let holds = match step.code {
                ANSWER => return step.k,
                LOAD => {
                    loaded = if step.k == ARCH { arch } else { number };
                    at += 1;
                    continue;
                }
                IF_EQUAL => loaded == step.k,
                _ => loaded >= step.k,
            };
            at += 1 + usize::from(if holds { step.jt } else { step.jf });
        }
    }

    /// NEW-173: on every architecture the listed calls are refused, and no other one is.
    #[test]
    fn exactly_the_listed_calls_are_refused() {
        for Closed { arch, calls } in &CLOSED {
            for number in 0..1000 {
                let expected = if calls.contains(&number) { NO_SUCH_CALL } else { ALLOW };
                assert_eq!(answer(*arch, number), expected, "{arch:x} {number}");
            }
            assert_eq!(answer(*arch, X32 | 250), NO_SUCH_CALL, "{arch:x}");
        }
        assert_eq!(answer(0xF3, 1), NO_SUCH_CALL);
    }

    /// NEW-173: a program behind the filter puts no key into the ring of its user, and still makes namespaces.
    #[test]
    fn a_program_behind_the_filter_keeps_no_key() {
        const SCRIPT: &str = "
import ctypes, errno, os
libc = ctypes.CDLL(None, use_errno=True)
add_key = {'x86_64': 248, 'aarch64': 217}[os.uname().machine]
kept = libc.syscall(add_key, b'user', b'gdr-unit-test', b'x', ctypes.c_size_t(1), -4)
print(kept, errno.errorcode.get(ctypes.get_errno()))
os.execvp('unshare', ['unshare', '-Ur', 'true'])
";
        let behind = || {
            close_doors().unwrap();
            Command::new("/usr/bin/python3").args(["-c", SCRIPT]).output().unwrap()
        };
        // The filter is this thread's, and stays with it.
        let output = std::thread::spawn(behind).join().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), "-1 ENOSYS\n");
        assert!(output.status.success(), "{output:?}");
    }
}
