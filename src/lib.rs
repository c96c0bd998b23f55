//! A table for Apache DataFusion that takes writes one row at a time, shows them at once
//! to SQL, survives a crash, and keeps its data on object storage as Lance.
//!
//! # It is, and it is not
//!
//! * It is a write path before a Lance dataset: a log on the object store, memtables with
//!   their own key index, small flushed generations. The format is Lance's MemWAL; Lance's
//!   own writer and readers open the same table.
//! * It is a [`TableProvider`](datafusion::catalog::TableProvider): `CREATE EXTERNAL TABLE …
//!   STORED AS MEMWAL`, `INSERT`, `SELECT`.
//! * It is not a server, and not a multi-writer table: one process writes a table at a
//!   time, the next one that opens it fences the one before.
//! * It is not a compactor yet: generations stay where they were flushed.
//!
//! # Architecture
//!
//! ```text
//! INSERT, put                                    SELECT, get
//!     │ one put = one atomic change                  │ one snapshot per statement
//!     ▼                                              ▼
//! ┌──────────┐  append task  ┌─────┐     ┌────────┬────────┬─────────────┬──────┐
//! │ memtable ├──────────────►│ log │     │ active │ frozen │ generations │ base │
//! │ + index  │               └─────┘     └────────┴────────┴─────────────┴──────┘
//! └────┬─────┘                             each read under its mask: rows that a
//!      │ freeze, flush                     newer tier replaces or deletes
//!      ▼
//! ┌────────────┐
//! │ generation │  a Lance dataset of one fragment
//! └────────────┘
//! ```
//!
//! | layer | what it owns |
//! | --- | --- |
//! | `sql` | what DataFusion sees: factory, provider, sink, table functions, a rule |
//! | `exec` | one physical operator per tier and kind of access, each under its mask |
//! | `table` | base table and shard as one: open, snapshot, shadows |
//! | `shard` | one writer: put, two cursors, three tasks, freeze, flush, replay, fence |
//! | `memtable`, `generation`, `wal`, `manifest` | four parts that do not know each other |
//! | `index` | indexes in memory: one writer, many readers |
//! | `objects` | the reads of the object store that log and manifests share |
//! | `schema`, `options`, `session_options`, `layout`, `clock`, `error` | words, no input or output |
//!
//! Imports go down only; a test reads them.
//!
//! # What a read sees
//!
//! Two cursors: `durable` counts the batches that are in the log, `indexed` those that every
//! index of a memtable has taken. What is visible is derived from both at each read and
//! stored nowhere. With `durable_write` a row is visible when it is indexed and durable,
//! without it when it is indexed; in both modes a put returns when its rows are visible
//! through every access path.
//!
//! # Example
//!
//! ```
//! use datafusion::execution::SessionStateBuilder;
//! use datafusion::prelude::SessionContext;
//! use datafusion_memwal::MemWalSessionExt;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> datafusion::error::Result<()> {
//! let state = SessionStateBuilder::new()
//!     .with_default_features()
//!     .with_memwal()
//!     .build();
//! let session = SessionContext::new_with_state(state);
//! for statement in [
//!     "CREATE EXTERNAL TABLE docs (id BIGINT NOT NULL, title VARCHAR, PRIMARY KEY (id))
//!      STORED AS MEMWAL LOCATION 'memory://docs'",
//!     "INSERT INTO docs VALUES (1, 'draft'), (2, 'log')",
//!     "INSERT INTO docs VALUES (1, 'final')",
//! ] {
//!     session.sql(statement).await?.collect().await?;
//! }
//! let titles = session.sql("SELECT title FROM docs ORDER BY id").await?;
//! datafusion::assert_batches_eq!(
//!     ["+-------+", "| title |", "+-------+", "| final |", "| log   |", "+-------+"],
//!     &titles.collect().await?
//! );
//! # Ok(())
//! # }
//! ```

#![deny(
    missing_docs,
    unsafe_code,
    clippy::unwrap_used,
    clippy::clone_on_ref_ptr
)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::clone_on_ref_ptr))]

mod clock;
mod error;
mod exec;
mod generation;
#[cfg(test)]
mod house;
mod index;
mod layout;
mod manifest;
mod memtable;
mod objects;
mod options;
mod schema;
mod session_options;
mod shard;
mod sql;
mod table;
mod wal;

pub use error::{Error, ErrorKind, Result};
pub use options::{FlushInterval, TableOptions};
pub use session_options::SessionOptions;
pub use shard::TableStats;
pub use sql::{MemWalSessionExt, MemWalTableFactory, MemWalTableProvider};
pub use table::{Flushed, MemWalTable, Pending, TableBuilder, TableSnapshot, TierStats};
