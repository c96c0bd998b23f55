//! What lies where: one line per tier, for an operator and for `memwal_tiers`.

use lance::Dataset;

use crate::error::Result;
use crate::memtable::Memtable;
use crate::shard::ShardState;
use crate::table::base::BaseTier;
use crate::table::snapshot::TableSnapshot;

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
    /// Of these, the rows that a query returns. Their sum over all tiers is `count(*)`.
    /// `None` when the writer has ended, since nothing is read from it then.
    pub visible_rows: Option<u64>,
    /// Bytes in memory, indexes included; for a tier on the object store the bytes of its
    /// data files, as far as they are recorded.
    pub bytes: u64,
    /// Position of the memtable's first log entry.
    pub wal_first: Option<u64>,
    /// Position of its last.
    pub wal_last: Option<u64>,
    /// Batches that are not in the log yet.
    pub lag_batches: u64,
}

/// The tiers of a snapshot, newest first.
pub(crate) async fn of_snapshot(
    state: &ShardState,
    snapshot: &TableSnapshot,
) -> Result<Vec<TierStats>> {
    let mut tiers = Vec::new();
    for (index, tier) in snapshot.memtables().iter().enumerate() {
        let dead = snapshot.dead_in_memtable(index).await?;
        let visible = tier.view.live_rows_without(dead.as_deref());
        let name = if tier.frozen { "frozen" } else { "active" };
        tiers.push(memtable(state, name, tier.view.memtable(), Some(visible)));
    }
    for (index, generation) in snapshot.generations().iter().enumerate() {
        let dead = snapshot.dead_in_generation(index).await?;
        let live = generation.physical_rows() - generation.deleted_rows();
        tiers.push(TierStats {
            rows: generation.physical_rows(),
            visible_rows: Some(live - dead.map_or(0, |dead| dead.len())),
            ..stored(
                "generation",
                Some(generation.number()),
                generation.dataset(),
            )
        });
    }
    let dead = snapshot.dead_in_base().await?;
    tiers.push(TierStats {
        visible_rows: Some(snapshot.base().rows() - dead.map_or(0, |dead| dead.len())),
        ..base(snapshot.base())
    });
    Ok(tiers)
}

/// The tiers of a writer that has ended, newest first.
pub(crate) fn of_ended(state: &ShardState, base_tier: &BaseTier) -> Vec<TierStats> {
    let tiers = state.tiers.load();
    let active = memtable(state, "active", &tiers.active, None);
    let frozen = tiers.frozen.iter().rev();
    let generations = tiers.generations.iter().rev().map(|generation| TierStats {
        rows: generation.physical_rows(),
        ..stored(
            "generation",
            Some(generation.number()),
            generation.dataset(),
        )
    });
    [active]
        .into_iter()
        .chain(frozen.map(|tier| memtable(state, "frozen", tier, None)))
        .chain(generations)
        .chain([base(base_tier)])
        .collect()
}

fn memtable(
    state: &ShardState,
    tier: &'static str,
    memtable: &Memtable,
    visible_rows: Option<u64>,
) -> TierStats {
    let span = state.log_book.span(memtable.generation());
    let logged = (span.entries > 0).then_some(span);
    TierStats {
        tier,
        generation: Some(memtable.generation()),
        rows: memtable.rows(),
        visible_rows,
        bytes: memtable.bytes() + memtable.index_bytes(),
        wal_first: logged.map(|span| span.first),
        wal_last: logged.map(|span| span.last),
        lag_batches: memtable.batches() - memtable.local(state.cursors.durable()),
    }
}

fn base(base: &BaseTier) -> TierStats {
    TierStats {
        rows: base.rows(),
        ..stored("base", None, base.dataset())
    }
}

fn stored(tier: &'static str, generation: Option<u64>, dataset: &Dataset) -> TierStats {
    let files = dataset
        .fragments()
        .iter()
        .flat_map(|fragment| fragment.files.iter());
    TierStats {
        tier,
        generation,
        rows: 0,
        visible_rows: None,
        bytes: files
            .filter_map(|file| file.file_size_bytes.get())
            .map(u64::from)
            .sum(),
        wal_first: None,
        wal_last: None,
        lag_batches: 0,
    }
}
