//! Packs: objects one after the other, without deltas, followed by the SHA-1 of all of it.

use sha1::{Digest as _, Sha1};

use super::Object;

/// A pack of these objects.
pub fn pack(objects: &[Object]) -> Vec<u8> {
    let bytes = objects.iter().map(|object| object.data.len() + 10).sum::<usize>() + 32;
    let mut pack = Vec::with_capacity(bytes);
    pack.extend_from_slice(b"PACK");
    pack.extend_from_slice(&2_u32.to_be_bytes());
    pack.extend_from_slice(&u32::try_from(objects.len()).unwrap_or(u32::MAX).to_be_bytes());
    for object in objects {
        entry_head(object, &mut pack);
        pack.extend_from_slice(&object.data);
    }
    let hash = Sha1::digest(&pack);
    pack.extend_from_slice(&hash);
    pack
}

/// The type and the length: four bits of the length in the first byte, seven in each of the others.
fn entry_head(object: &Object, pack: &mut Vec<u8>) {
    let low = |size: usize, mask: usize| u8::try_from(size & mask).unwrap_or_default();
    let mut size = object.size;
    let mut byte = (object.kind.number() << 4) | low(size, 0x0f);
    size >>= 4;
    while size > 0 {
        pack.push(byte | 0x80);
        byte = low(size, 0x7f);
        size >>= 7;
    }
    pack.push(byte);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::git::ObjectKind;

    #[test]
    fn lengths_take_as_many_bytes_as_they_need() {
        let head = |size: usize| {
            let mut bytes = Vec::new();
            let object = Object { size, ..Object::new(ObjectKind::Blob, b"") };
            entry_head(&object, &mut bytes);
            bytes
        };
        assert_eq!(head(0), [0x30]);
        assert_eq!(head(15), [0x3f]);
        assert_eq!(head(16), [0xb0, 0x01]);
        assert_eq!(head(0x7ff), [0xbf, 0x7f]);
        assert_eq!(head(0x800), [0xb0, 0x80, 0x01]);
    }

    #[test]
    fn a_pack_ends_with_its_hash() {
        let bytes = pack(&[Object::new(ObjectKind::Blob, b"x"), Object::new(ObjectKind::Tree, b"")]);
        assert_eq!(&bytes[..12], b"PACK\0\0\0\x02\0\0\0\x02");
        let (content, hash) = bytes.split_at(bytes.len() - 20);
        assert_eq!(hash, &Sha1::digest(content)[..]);
    }
}
