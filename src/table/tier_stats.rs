//! What lies where: one line per tier, for an operator and for `memwal_tiers`.

use crate::shard::ShardState;
use crate::table::base::BaseTier;

/// One tier of a table in numbers.
#[non_exhaustive]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TierStats {
    /// `active`, `frozen`, `generation` or `base`.
    pub tier: &'static str,
    /// The generation number of a memtable or generation.
    pub generation: Option<u64>,
    /// Rows stored, replaced ones and tombstones included.
    pub rows: u64,
    /// Of these, the rows that a read may look at: indexed and, in durable mode, in the log.
    /// Rows that a newer row of their key replaces are among them.
    pub visible_rows: u64,
    /// Bytes in memory, indexes included; 0 for a tier on the object store.
    pub bytes: u64,
    /// Position of the memtable's first log entry.
    pub wal_first: Option<u64>,
    /// Position of its last.
    pub wal_last: Option<u64>,
    /// Batches that are not in the log yet.
    pub lag_batches: u64,
}

/// The tiers of a shard and its base table, newest first.
pub(crate) fn tier_stats(state: &ShardState, base: &BaseTier) -> Vec<TierStats> {
    let tiers = state.tiers.load();
    let durable = state.cursors.durable();
    let memtables = [&tiers.active]
        .into_iter()
        .chain(tiers.frozen.iter().rev())
        .enumerate()
        .map(|(index, memtable)| {
            let span = state.log_book.span(memtable.generation());
            let logged = (span.entries > 0).then_some(span);
            let visible = memtable.view(memtable.visible_batches(state.durable_bound()));
            TierStats {
                tier: if index == 0 { "active" } else { "frozen" },
                generation: Some(memtable.generation()),
                rows: memtable.rows(),
                visible_rows: u64::from(visible.rows()),
                bytes: memtable.bytes() + memtable.index_bytes(),
                wal_first: logged.map(|span| span.first),
                wal_last: logged.map(|span| span.last),
                lag_batches: memtable.batches() - memtable.local(durable),
            }
        });
    let generations = tiers.generations.iter().rev().map(|generation| TierStats {
        tier: "generation",
        generation: Some(generation.number()),
        rows: generation.physical_rows(),
        visible_rows: generation.physical_rows() - generation.deleted_rows(),
        bytes: 0,
        wal_first: None,
        wal_last: None,
        lag_batches: 0,
    });
    let base = TierStats {
        tier: "base",
        generation: None,
        rows: base.rows(),
        visible_rows: base.rows(),
        bytes: 0,
        wal_first: None,
        wal_last: None,
        lag_batches: 0,
    };
    memtables.chain(generations).chain([base]).collect()
}
