//! Indexes in memory: one writer, many readers that never block each other.
//!
//! An index is fed with whole batches in row order and bounded by row position:
//! a reader that sees `n` rows asks for `n` rows, however far the writer has come.
//!
//! ```text
//! paged    an array that grows under its readers: what an index is built of
//! key      which row of a tier is the newest of a key
//! ```

pub(crate) mod key;
pub(crate) mod paged;
