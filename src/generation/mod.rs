//! A generation: one flushed memtable, kept as a small Lance dataset of one fragment.
//!
//! ```text
//! {table}/_mem_wal/{shard}/{8 hex}_gen_{n}/
//!     data/{name}.lance        every row of the memtable, in the order of insertion   write
//!     _deletions/0-1-{id}.bin  the rows that a later row of the memtable replaced     write
//!     _pk_index/               (key, row) of every row, as a Lance BTree          key_index
//!     bloom_filter.bin         the hashes of the keys                                 bloom
//!     _versions/{1}.manifest   written last                                           write
//! ```
//!
//! Invariants: a row's offset in the data file is its position in the memtable, and
//! its address, since there is one fragment and its id is 0. Nothing in the folder
//! changes once it is written. Until the shard manifest names the folder nobody reads
//! it, so a crash during a write leaves an orphan and nothing else.
//!
//! Damage: the manifest holds checksums of the Bloom filter and the key index, which are
//! left out when they differ, and of the deletions and its own lists of columns and files,
//! which are needed. The data file has none, nor have the pages in Lance's format: that a bit of it
//! has flipped is Lance's to notice, and it notices only what it cannot decode. A read that
//! panics says that the folder is corrupt.
//!
//! The flush of a shard writes generations; snapshots and operators open and read
//! them. [`scan_plan`] and [`key_rows`] read the base table in the same way.

mod bloom;
mod checksum;
mod damage;
mod key_index;
mod open;
mod scan;
mod target;
#[cfg(test)]
mod tests;
mod write;

pub(crate) use open::Generation;
pub(crate) use scan::{key_rows, scan_plan};
pub(crate) use target::GenerationTarget;
pub(crate) use write::{GenerationInput, write_generation};
