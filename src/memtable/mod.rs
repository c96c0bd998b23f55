//! The memtable: the rows of one generation before they are flushed.
//!
//! It owns the log of the batches that were put, in order, and the index of their
//! keys. The shard appends, applies the index and asks for what the WAL still owes;
//! a snapshot takes a view and reads it for as long as it likes.
//!
//! ```text
//! put -> prepared -> append -> batches (log) -----> batches_from -> WAL
//!                                 |   |
//!                      apply_index    +-- joined behind the scenes
//!                           |                       |
//!                        key map ----------------> view (first n batches)
//! ```
//!
//! Invariants:
//! * A row's position never changes, though the batch that holds it may be joined
//!   with its neighbours.
//! * A put's batches are published together and indexed together, so that no count
//!   of batches that this module hands out ends inside a put.
//! * `indexed` counts batches that every index has taken; it never goes back. An
//!   index that failed once fails for ever.
//! * A view answers the same for ever, whatever is appended beside it.

mod batches;
mod conform;
mod join;
#[allow(clippy::module_inception, reason = "the file is the noun")]
mod memtable;
mod payload;
mod prepared;
mod read;
mod segment;
#[cfg(test)]
mod tests;

pub(crate) use memtable::Memtable;
pub(crate) use prepared::PreparedBatch;
pub(crate) use read::MemtableView;
pub(crate) use segment::Segment;
