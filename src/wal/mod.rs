//! The write-ahead log of one shard: objects numbered from 1, each written once.
//!
//! ```text
//!              replayed at open                     appended
//!        ┌──────────┴──────────┐              ┌────────┴───────
//!   1  2  3  …  n   n+1 (the fence of this writer)   n+2   n+3   …
//!      └ replay_after_wal_entry_position: these are in generations
//! ```
//!
//! Called by the shard: `find_tip` and `WalAppender::write_sentinel` when it takes the
//! shard over, `read_entries` up to its own fence, then `WalAppender::append`.
//!
//! Invariants:
//!
//! * An object is only ever created, never replaced or deleted. So an entry that a
//!   reader has seen keeps its bytes, and a taken position stays taken: a writer that was
//!   stalled for days still runs into the fence of its successor.
//! * Positions have no gap: the position moves on only after the entry before it is known
//!   to be stored. Each writer has one append in flight, so the next free position is the
//!   only one that a writer can be about to take. A successor that holds it by its fence,
//!   and then replays everything below, has every row that was ever acknowledged.
//!   This is why a successful append need not ask for the epoch again.
//! * A lost answer is never taken for a lost race: the object at the position is read
//!   back, and identical bytes are our own.
//! * Damage is an error. Nothing is skipped, cut or repaired.

mod appender;
mod conform;
mod entry;
mod frame;
mod tailer;
#[cfg(test)]
mod tests;

pub(crate) use appender::WalAppender;
pub(crate) use entry::{EntryHeader, MAX_JOINED_ROWS, WalEntry, encode};
pub(crate) use tailer::{find_tip, read_entries};
