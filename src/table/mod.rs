//! A table: a base table and the shard before it.
//!
//! ```text
//! builder ──► handle ──► writer of the shard
//!               │
//!               └──► snapshot ──► memtables │ generations │ base
//!                        └── shadow: rows of an older tier that a newer one replaces
//! ```
//!
//! A snapshot never changes. It is taken newest tier first, so it never shows a row
//! without the rows before it; masks of dead rows are computed on first use and shared by
//! all reads of an unchanged table.

mod base;
mod builder;
mod handle;
mod probe;
mod shadow;
mod snapshot;
mod tier_stats;

pub(crate) use base::BaseTier;
pub use builder::TableBuilder;
pub(crate) use handle::WeakTable;
pub use handle::{Flushed, MemWalTable, Pending};
pub(crate) use snapshot::MemtableTier;
pub use snapshot::TableSnapshot;
pub use tier_stats::TierStats;
