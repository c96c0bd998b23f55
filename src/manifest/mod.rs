//! The manifests of one shard: who its writer is, which generations are flushed, and where
//! replay begins.
//!
//! ```text
//!   manifest/1  ──►  manifest/2  ──►  manifest/3          version_hint.json {"version":2}
//!   epoch 1          epoch 1          epoch 2
//!   claimed          generation 1     claimed by the next writer
//! ```
//!
//! Called by the shard: `claim` when it opens, `commit` after each flush, `epoch` when an
//! append fails; and by readers: `latest`.
//!
//! Invariants:
//!
//! * A version is only ever created, by put-if-absent, and versions have no gap. Of two
//!   writers that build on one version, one finds the next version taken.
//! * The epoch never goes down. A writer with an epoch below the stored one is fenced and
//!   can change nothing.
//! * Two writers may want to store the very same change, a claim above all. Each adds a
//!   number of its own (a field that other readers skip), so identical bytes are proof that
//!   a write whose answer was lost is one's own.
//! * Ours end with a checksum, so that an altered one is refused and not believed. One that
//!   Lance's writer made has none, and is believed as it is.
//! * The hint saves a listing and proves nothing: the versions above it are always tried.

mod model;
mod store;
#[cfg(test)]
mod tests;

pub(crate) use model::{GenerationEntry, ShardManifest};
pub(crate) use store::ManifestStore;
