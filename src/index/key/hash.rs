//! The hash of a key, for memory only: its seed differs in every process, so that
//! nobody can choose keys that collide.

use std::sync::LazyLock;

use super::KeyRef;
use crate::clock;

static SEED: LazyLock<u64> = LazyLock::new(clock::random_u64);

/// Odd constants without structure: the fraction of pi.
const PI_1: u64 = 0x243F_6A88_85A3_08D3;
const PI_2: u64 = 0x1319_8A2E_0370_7345;

/// The hash of `key`; all of its bits are equally good.
pub(crate) fn hash_key(key: KeyRef<'_>) -> u64 {
    match key {
        KeyRef::Fixed(key) => fold(fold(key ^ *SEED, PI_1) ^ PI_2, PI_1),
        KeyRef::Bytes(key) => {
            let mut hash = *SEED ^ key.len() as u64;
            for chunk in key.chunks(8) {
                hash = fold(hash ^ word(chunk), PI_1).wrapping_add(PI_2);
            }
            fold(hash ^ PI_2, PI_1)
        }
    }
}

/// Up to eight bytes as one number that compares as they do, the missing ones 0.
pub(super) fn word(chunk: &[u8]) -> u64 {
    if let Ok(whole) = <[u8; 8]>::try_from(chunk) {
        return u64::from_be_bytes(whole);
    }
    let mut padded = [0; 8];
    for (to, from) in padded.iter_mut().zip(chunk) {
        *to = *from;
    }
    u64::from_be_bytes(padded)
}

fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}
