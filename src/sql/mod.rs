//! What DataFusion sees of a table.
//!
//! ```text
//! register    one call on a SessionStateBuilder sets up all of the following
//! factory     CREATE EXTERNAL TABLE ... STORED AS MEMWAL  -> provider
//! provider    scan: one fresh snapshot per scan           -> exec
//! rules/      all scans of one plan read the same snapshot
//! sink        INSERT: one statement is one put
//! functions/  memwal_tiers('t'), memwal_flush('t')
//! ```
//!
//! Invariants: planning a statement never writes; a clause that is not honoured is
//! an error; two CREATEs of one location in one process share one writer
//! ([`open_tables`]). Nothing inside the crate calls this layer.

mod definition;
mod factory;
mod functions;
mod location;
mod open_tables;
mod provider;
mod register;
mod rules;
mod sink;
#[cfg(test)]
mod tests;

pub use factory::MemWalTableFactory;
pub use provider::MemWalTableProvider;
pub use register::MemWalSessionExt;
