//! The physical operators of a scan: one per tier, each under its mask.
//!
//! ```text
//! MemWalScanExec            the union of the tiers, oldest first; LIMIT ends it early
//!   BaseScanExec            \  Lance's own plan below, its rows masked, filtered
//!   GenerationScanExec      /  and projected here
//!   MemtableScanExec        the writer's own Arrow buffers
//!   IndexLookupExec         in place of each of them when a condition on the key
//!                           finds the rows through the tier's key index
//! ```
//!
//! Invariants: a row is masked before any filter sees it, and filtered before LIMIT
//! counts it; what is given to Lance only makes it skip rows that the full filter
//! would drop; a mask is asked for when the plan runs, not while it is planned.
//! Called by `sql`, which plans a [`MemWalScanExec`] for each scan of a table.

mod filter;
mod key_condition;
mod lance_scan;
mod lookup;
mod mask;
mod memtable_scan;
mod metrics;
mod properties;
mod request;
mod scan;
mod tier;

pub(crate) use filter::{is_exact, lance_filter, physical};
pub(crate) use key_condition::KeyCondition;
pub(crate) use request::ScanRequest;
pub(crate) use scan::MemWalScanExec;
