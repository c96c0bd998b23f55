//! Indexes in memory: one writer, many readers that never block each other.
//!
//! An index is fed with whole batches in row order and bounded by row position:
//! a reader that sees `n` rows asks for `n` rows, however far the writer has come.

pub(crate) mod key;
