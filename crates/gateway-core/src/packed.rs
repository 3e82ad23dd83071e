//! Numbers of variable length, and reading bytes that may be damaged.

/// Why stored bytes cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("stored bytes are damaged: {0}")]
pub struct Malformed(pub &'static str);

/// Seven bits a byte, lowest first; the highest bit says that more follow.
pub(crate) fn put_varint(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    bytes.push(value.to_le_bytes()[0]);
}

pub(crate) fn take_varint(bytes: &mut &[u8]) -> Result<u64, Malformed> {
    let (mut value, mut shift) = (0_u64, 0);
    loop {
        let (byte, rest) = bytes.split_first().ok_or(Malformed("a number ends early"))?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(value);
        }
        shift += 7;
        if shift > 63 {
            return Err(Malformed("a number is too long"));
        }
    }
}

pub(crate) fn take<'a>(bytes: &mut &'a [u8], length: usize) -> Result<&'a [u8], Malformed> {
    let (taken, rest) = bytes.split_at_checked(length).ok_or(Malformed("a list ends early"))?;
    *bytes = rest;
    Ok(taken)
}

pub(crate) fn take_length(bytes: &mut &[u8]) -> Result<usize, Malformed> {
    usize::try_from(take_varint(bytes)?).map_err(|_| Malformed("a length is too large"))
}
