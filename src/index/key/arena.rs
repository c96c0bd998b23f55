//! Byte-string keys, one after the other, readable while more are added.
//!
//! A key is one word for its length, then its bytes as big-endian words, the last
//! one padded with zeros: comparing words compares the bytes, and where all common
//! words are equal the shorter key is the smaller one.

use std::cmp::Ordering;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::hash::word;
use crate::index::paged::Paged;

const WORD_BYTES: usize = size_of::<u64>();

/// One writer adds; a reader asks only for keys that were published to it.
#[derive(Debug)]
pub(super) struct KeyArena {
    words: Paged<AtomicU64>,
}

impl KeyArena {
    pub(super) fn new() -> Self {
        Self {
            words: Paged::new(),
        }
    }

    /// The words that a key of `len` bytes takes.
    pub(super) fn words_of(len: usize) -> u64 {
        1 + len.div_ceil(WORD_BYTES) as u64
    }

    /// Writes `key` at word `at` and returns where the next one begins.
    pub(super) fn push(&self, at: u32, key: &[u8]) -> u32 {
        self.words.make(at).store(key.len() as u64, Relaxed);
        let mut next = at + 1;
        for chunk in key.chunks(WORD_BYTES) {
            self.words.make(next).store(word(chunk), Relaxed);
            next += 1;
        }
        next
    }

    /// The key at `at` against `key`.
    pub(super) fn compare(&self, at: u32, key: &[u8]) -> Ordering {
        let words = self.words_at(at);
        for (own, chunk) in words.zip(key.chunks(WORD_BYTES)) {
            match own.cmp(&word(chunk)) {
                Ordering::Equal => {}
                unequal => return unequal,
            }
        }
        self.len(at).cmp(&key.len())
    }

    /// Whether the key at `at` is `key`.
    pub(super) fn equals(&self, at: u32, key: &[u8]) -> bool {
        self.len(at) == key.len() && self.compare(at, key) == Ordering::Equal
    }

    /// The key at `a` against the key at `b`.
    pub(super) fn compare_two(&self, a: u32, b: u32) -> Ordering {
        for (one, other) in self.words_at(a).zip(self.words_at(b)) {
            match one.cmp(&other) {
                Ordering::Equal => {}
                unequal => return unequal,
            }
        }
        self.len(a).cmp(&self.len(b))
    }

    /// Replaces what `key` holds by the key at `at`.
    pub(super) fn read(&self, at: u32, key: &mut Vec<u8>) {
        key.clear();
        for word in self.words_at(at) {
            key.extend_from_slice(&word.to_be_bytes());
        }
        key.truncate(self.len(at));
    }

    pub(super) fn bytes(&self) -> usize {
        self.words.bytes()
    }

    fn len(&self, at: u32) -> usize {
        self.words.get(at).map_or(0, |len| len.load(Relaxed)) as usize
    }

    fn words_at(&self, at: u32) -> impl Iterator<Item = u64> {
        let end = at + Self::words_of(self.len(at)) as u32;
        self.words.iter(at + 1..end).map(|word| word.load(Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_compare_as_their_bytes() {
        let keys: [&[u8]; 7] = [
            b"",
            b"\0",
            b"1234567",
            b"12345678",
            b"12345678\0",
            b"12345679",
            b"2",
        ];
        let arena = KeyArena::new();
        let mut next = 0;
        let mut places = vec![];
        for key in keys {
            places.push(next);
            next = arena.push(next, key);
        }
        let mut read = vec![];
        for (a, &place) in places.iter().enumerate() {
            arena.read(place, &mut read);
            assert_eq!(read, keys[a]);
            for (b, &other) in places.iter().enumerate() {
                assert_eq!(arena.compare(place, keys[b]), a.cmp(&b));
                assert_eq!(arena.compare_two(place, other), a.cmp(&b));
                assert_eq!(arena.equals(place, keys[b]), a == b);
            }
        }
    }
}
