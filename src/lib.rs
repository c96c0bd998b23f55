//! A table for Apache DataFusion that takes writes one row at a time.

#![deny(
    missing_docs,
    unsafe_code,
    clippy::unwrap_used,
    clippy::clone_on_ref_ptr
)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod clock;
mod error;
mod exec;
mod generation;
mod index;
mod layout;
mod manifest;
mod memtable;
mod options;
mod schema;
mod shard;
mod sql;
mod table;
mod wal;

pub use error::{Error, ErrorKind, Result};
pub use options::{FlushInterval, SessionOptions, TableOptions};
pub use shard::TableStats;
pub use sql::{MemWalSessionExt, MemWalTableFactory, MemWalTableProvider};
pub use table::{Flushed, MemWalTable, Pending, TableBuilder, TableSnapshot, TierStats};
