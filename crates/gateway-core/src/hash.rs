//! A fast hash for tables that live for one batch or one row. Not for keys that outlive it: who chooses the keys could
//! choose them to collide.

use std::hash::{BuildHasherDefault, Hasher};

/// Builds the hasher: `HashMap<K, V, Fast>`.
pub type Fast = BuildHasherDefault<FastHasher>;

#[derive(Default, Clone, Copy, Debug)]
pub struct FastHasher(u64);

/// An odd number without a pattern: the fraction of the golden ratio.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

impl FastHasher {
    fn add(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(FACTOR);
    }
}

impl Hasher for FastHasher {
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.add(u64::from_le_bytes(*word));
        }
        if !rest.is_empty() {
            let mut last = [0; 8];
            last[..rest.len()].copy_from_slice(rest);
            self.add(u64::from_le_bytes(last));
        }
        self.add(bytes.len() as u64);
    }

    fn write_u8(&mut self, value: u8) {
        self.add(value.into());
    }

    fn write_u16(&mut self, value: u16) {
        self.add(value.into());
    }

    fn write_u64(&mut self, value: u64) {
        self.add(value);
    }

    fn write_i64(&mut self, value: i64) {
        self.add(value.cast_unsigned());
    }

    fn write_usize(&mut self, value: usize) {
        self.add(value as u64);
    }

    fn finish(&self) -> u64 {
        // A table looks at the highest and the lowest bits; the product has mixed only the high ones.
        self.0 ^ (self.0 >> 32)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::hash::BuildHasher as _;

    use super::*;

    #[test]
    fn neighbours_fall_apart_in_high_and_low_bits() {
        let hashes: Vec<u64> = (0..4_096_u64).map(|number| Fast::default().hash_one(number)).collect();
        let low: HashSet<u64> = hashes.iter().map(|hash| hash & 0xfff).collect();
        let high: HashSet<u64> = hashes.iter().map(|hash| hash >> 57).collect();
        assert!(low.len() > 2_000, "{}", low.len());
        assert_eq!(high.len(), 128);
    }

    #[test]
    fn texts_are_told_apart_by_content_and_length() {
        let of = |text: &str| Fast::default().hash_one(text);
        assert_eq!(of("gpt-4o-mini"), of("gpt-4o-mini"));
        assert_ne!(of("gpt-4o-mini"), of("gpt-4o-mini\0"));
        assert_ne!(of("abcdefgh"), of("abcdefgi"));
    }
}
