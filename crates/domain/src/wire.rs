//! The few bytes of protobuf we read and write by hand, so that a task's very bytes stay what Gitea sent (ENV-5).

use std::ops::Range;

/// Bytes that are no protobuf message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a protobuf message")]
pub struct Malformed;

const VARINT: u8 = 0;
const FIXED64: u8 = 1;
const BYTES: u8 = 2;
const FIXED32: u8 = 5;

/// One field of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Field {
    pub(crate) number: u32,
    /// Tag, length and content.
    pub(crate) whole: Range<usize>,
    /// The content of a length-delimited field; none for others.
    pub(crate) content: Option<Range<usize>>,
    /// The value of a varint field; none for others.
    pub(crate) value: Option<u64>,
}

/// The fields of a message, in their order. Groups are not read: no message of Gitea's has ever held one.
pub(crate) fn fields(message: &[u8]) -> Result<Vec<Field>, Malformed> {
    walk(message).collect()
}

/// As [`fields`], one by one: what stands before the damage can still be read.
pub(crate) fn walk(message: &[u8]) -> impl Iterator<Item = Result<Field, Malformed>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        (at < message.len()).then(|| {
            let found = field(message, at);
            at = found.as_ref().map_or(message.len(), |field| field.whole.end);
            found
        })
    })
}

fn field(message: &[u8], start: usize) -> Result<Field, Malformed> {
    let mut at = start;
    let tag = varint(message, &mut at)?;
    let number = u32::try_from(tag >> 3).ok().filter(|n| *n > 0).ok_or(Malformed)?;
    let (mut content, mut value) = (None, None);
    match (tag & 7) as u8 {
        VARINT => value = Some(varint(message, &mut at)?),
        FIXED64 => at = at.checked_add(8).ok_or(Malformed)?,
        FIXED32 => at = at.checked_add(4).ok_or(Malformed)?,
        BYTES => {
            let length = usize::try_from(varint(message, &mut at)?).map_err(|_| Malformed)?;
            let end = at.checked_add(length).ok_or(Malformed)?;
            content = Some(at..end);
            at = end;
        }
        _ => return Err(Malformed),
    }
    if at > message.len() {
        return Err(Malformed);
    }
    Ok(Field { number, whole: start..at, content, value })
}

fn varint(bytes: &[u8], at: &mut usize) -> Result<u64, Malformed> {
    let mut value = 0_u64;
    for shift in (0..64).step_by(7) {
        let byte = *bytes.get(*at).ok_or(Malformed)?;
        *at += 1;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(Malformed)
}

/// Appends a length-delimited field.
pub(crate) fn put_bytes(out: &mut Vec<u8>, number: u32, content: &[u8]) {
    put_varint(out, u64::from(number) << 3 | u64::from(BYTES));
    put_varint(out, content.len() as u64);
    out.extend_from_slice(content);
}

fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// The very bytes of the task in a `FetchTaskResponse` (field 1); none when Gitea had no task.
///
/// # Errors
///
/// When the bytes are no message.
pub fn task_bytes(fetch_response: &[u8]) -> Result<Option<&[u8]>, Malformed> {
    let mut of_one = fields(fetch_response)?.into_iter().rev().filter(|field| field.number == 1);
    Ok(of_one.find_map(|field| field.content).map(|range| &fetch_response[range]))
}

/// A `FetchTaskResponse` that holds exactly these task bytes.
#[must_use]
pub fn fetch_response(task: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(task.len() + 12);
    put_bytes(&mut out, 1, task);
    out
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    /// ENV-5: what goes in comes out byte for byte, and a cut message is an error, never a shorter task.
    #[test]
    fn the_task_stays_what_it_was() {
        let task = [8, 42, 0xfa, 7, 3, b'n', b'e', b'w'];
        let response = fetch_response(&task);
        assert_eq!(task_bytes(&response), Ok(Some(&task[..])));
        assert_eq!(task_bytes(&[16, 7]), Ok(None), "only a version");
        assert_eq!(task_bytes(&[&response[..], &[8, 1]].concat()), Ok(Some(&task[..])), "field 1 of another type");
        for cut in 1..response.len() {
            assert_eq!(task_bytes(&response[..cut]), Err(Malformed), "{cut}");
        }
    }

    /// ENV-5: every wire type is stepped over by its own length; what is no message is an error.
    #[test]
    fn unknown_fields_are_stepped_over() {
        let message = [&[0xf9, 7][..], &[7; 8], &[0xfd, 7], &[8; 4], &[0xf8, 7, 0xff, 1], &[0xfa, 7, 1, b'x']].concat();
        let lengths: Vec<_> = fields(&message).unwrap().iter().map(|field| field.whole.len()).collect();
        assert_eq!(lengths, [10, 6, 4, 4]);
        for broken in [&[0xf8][..], &[0xfb, 7], &[0, 1], &[0xfa, 7, 2, 1], &[0xf9, 7, 1], &[0xff; 11]] {
            assert_eq!(fields(broken), Err(Malformed), "{broken:?}");
        }
        let huge_length = [&[10][..], &[0xff; 9], &[1]].concat();
        assert_eq!(fields(&huge_length), Err(Malformed));
    }
}
