//! Table functions: `memwal_tiers('t')` and `memwal_flush('t')`.
//!
//! Their argument is a table reference as a string, resolved while the statement is
//! planned; what they do, they do when it runs, once.

mod call;
mod flush;
mod resolve;
mod tiers;

pub(crate) use flush::MemWalFlushFunction;
pub(crate) use tiers::MemWalTiersFunction;
