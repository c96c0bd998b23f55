//! One tier of a snapshot, as an operator addresses it.

use std::fmt;
use std::sync::Arc;

use datafusion::arrow::array::ArrayRef;
use datafusion::physical_plan::ExecutionPlan;
use roaring::RoaringTreemap;

use super::ScanRequest;
use crate::error::{Error, Result};
use crate::generation::{Generation, scan_plan};
use crate::table::{BaseTier, MemtableTier, TableSnapshot};

/// One tier; the number is its place in the snapshot's list.
#[derive(Debug, Clone)]
pub(super) enum Tier {
    /// The active memtable or a frozen one.
    Memtable(Arc<MemtableTier>, usize),
    /// A flushed memtable.
    Generation(Arc<Generation>, usize),
    /// The base table.
    Base(Arc<BaseTier>),
}

impl Tier {
    /// The tiers of a snapshot in the order of insertion. Empty ones are left out, but
    /// for the active memtable: a scan has at least one input.
    pub(super) fn oldest_first(snapshot: &TableSnapshot) -> Vec<Self> {
        let base = Self::Base(Arc::clone(snapshot.base()));
        let generations = snapshot.generations().iter().enumerate().rev();
        let memtables = snapshot.memtables().iter().enumerate().rev();
        [base]
            .into_iter()
            .chain(generations.map(|(index, tier)| Self::Generation(Arc::clone(tier), index)))
            .chain(memtables.map(|(index, tier)| Self::Memtable(Arc::clone(tier), index)))
            .filter(|tier| tier.rows() > 0 || matches!(tier, Self::Memtable(_, 0)))
            .collect()
    }

    /// Rows in the tier, replaced ones included, without those that Lance itself hides.
    pub(super) fn rows(&self) -> u64 {
        match self {
            Self::Memtable(tier, _) => u64::from(tier.view.rows()),
            Self::Generation(tier, _) => tier.physical_rows().saturating_sub(tier.deleted_rows()),
            Self::Base(tier) => tier.rows(),
        }
    }

    /// The rows that must not be read: replaced or deleted by newer tiers.
    pub(super) async fn dead(
        &self,
        snapshot: &TableSnapshot,
    ) -> Result<Option<Arc<RoaringTreemap>>> {
        match self {
            Self::Memtable(_, index) => snapshot.dead_in_memtable(*index).await,
            Self::Generation(_, index) => snapshot.dead_in_generation(*index).await,
            Self::Base(_) => snapshot.dead_in_base().await,
        }
    }

    /// The row by which a mask knows a Lance row address.
    pub(super) fn row_of_address(&self, address: u64) -> u64 {
        match self {
            Self::Generation(_, _) => address & u64::from(u32::MAX),
            _ => address,
        }
    }

    /// The columns that `request` reads, of the given rows.
    pub(super) async fn take(&self, rows: &[u64], request: &ScanRequest) -> Result<Vec<ArrayRef>> {
        if request.read().is_empty() {
            return Ok(Vec::new());
        }
        let batch = match self {
            Self::Memtable(tier, _) => {
                let rows = rows
                    .iter()
                    .map(|row| u32::try_from(*row))
                    .collect::<Result<Vec<_>, _>>()
                    .map_err(|error| {
                        Error::internal("a row position is too large").with_source(error)
                    })?;
                tier.view.take(&rows, request.read())?
            }
            Self::Generation(tier, _) => tier.take(rows, request.read_names()).await?,
            Self::Base(tier) => tier.take(rows, request.read_names()).await?,
        };
        Ok(batch.columns().to_vec())
    }

    /// Lance's own plan for `request`; `None` for a memtable. Row addresses come with it
    /// when rows can be dead, or when there is no other column to count rows by.
    pub(super) async fn lance_plan(
        &self,
        request: &ScanRequest,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let dataset = match self {
            Self::Memtable(_, _) => return Ok(None),
            Self::Generation(tier, _) => tier.dataset(),
            Self::Base(tier) => tier.dataset(),
        };
        let with_rows = request.is_keyed() || request.read().is_empty();
        let filter = request.lance_filter().cloned();
        scan_plan(dataset, request.read_names(), filter, with_rows)
            .await
            .map(Some)
    }

    /// Whether both are the same stored data, so that a Lance plan serves for both.
    pub(super) fn is_same_dataset(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Generation(a, _), Self::Generation(b, _)) => {
                Arc::ptr_eq(a, b) || a.number() == b.number()
            }
            (Self::Base(a), Self::Base(b)) => a.version() == b.version(),
            _ => false,
        }
    }
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memtable(tier, _) if tier.frozen => f.write_str("tier=frozen"),
            Self::Memtable(_, _) => f.write_str("tier=active"),
            Self::Generation(tier, _) => write!(f, "generation={}", tier.number()),
            Self::Base(_) => f.write_str("tier=base"),
        }
    }
}
