//! One writer of one shard: what is put, when it is durable, when it can be read.
//!
//! ```text
//!            put ──► state (put lock) ──► active memtable ──► frozen … ──► generation
//!                       │      │                                  ▲
//!            index_task ◄      ► append_task ──► log              │ flush
//!                  └─► indexed      └─► durable        visible = derived from both
//! ```
//!
//! Invariants:
//!
//! * A put enters one memtable under one lock and one publish; no rotation, log entry or
//!   snapshot ends inside it.
//! * Three tasks, each a single consumer: appends go oldest memtable first, flushes are
//!   published strictly in order, indexes never wait for the store.
//! * What is visible is derived at each read ([`cursors`]); nothing caches it.
//! * A failure that cannot be undone ends the writer: every later call gets the reason.
//!
//! `table` is the only caller.

mod append_task;
mod cursors;
mod drain;
mod flush;
mod index_task;
mod log_book;
mod prepare;
mod replay;
mod rotation;
mod state;
mod stats;
mod supervise;
#[cfg(test)]
mod tests;
mod tiers;
mod writer;

pub(crate) use prepare::{prepare_delete, prepare_put};
pub(crate) use state::ShardState;
pub use stats::TableStats;
pub(crate) use stats::read as read_stats;
pub(crate) use writer::{PendingRows, ShardWriter};
