//! The key index: which row of a tier is the newest of a key.
//!
//! ```text
//! encode   key columns of a batch -> comparable keys
//! map      a memtable's index: one writer, many readers, grows
//!   arena    its byte-string keys      run    its rows in key order, for ranges
//! sorted   the index of a tier that no longer changes
//! hash     of a key, in memory only
//! ```

mod arena;
mod encode;
mod hash;
mod map;
mod run;
mod sorted;
#[cfg(test)]
mod tests;

pub(crate) use encode::{Key, KeyCodec, KeyRef, Keys};
pub(crate) use map::KeyMap;
pub(crate) use sorted::SortedKeys;
