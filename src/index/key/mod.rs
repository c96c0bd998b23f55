//! The key index: which row of a tier is the newest of a key.
//!
//! ```text
//! encode   key columns of a batch -> comparable keys
//! map      a memtable's index: one writer, many readers, grows
//! sorted   the index of a tier that no longer changes
//! ```

mod encode;

pub(crate) use encode::{Key, KeyCodec, KeyRef, Keys};
