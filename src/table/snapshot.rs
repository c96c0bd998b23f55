//! One state of a table, fixed for ever.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, RecordBatch};
use datafusion::common::ScalarValue;
use roaring::RoaringTreemap;
use tokio::sync::OnceCell;

use crate::error::{Error, Result};
use crate::generation::Generation;
use crate::index::key::KeyCodec;
use crate::memtable::MemtableView;
use crate::schema::TableSchema;
use crate::table::base::BaseTier;
use crate::table::shadow::{Shadows, TierRef};

/// A memtable as one snapshot sees it.
#[derive(Debug)]
pub(crate) struct MemtableTier {
    /// Sealed, waiting for its flush.
    pub(crate) frozen: bool,
    pub(crate) view: MemtableView,
}

/// One state of a table: the visible rows of each memtable, the generations and one
/// version of the base table. It never changes; cloning it is cheap.
#[derive(Debug, Clone)]
pub struct TableSnapshot(Arc<Parts>);

#[derive(Debug)]
struct Parts {
    id: u64,
    table_id: u64,
    schema: Arc<TableSchema>,
    codec: Option<KeyCodec>,
    memtables: Vec<Arc<MemtableTier>>,
    generations: Vec<Arc<Generation>>,
    base: Arc<BaseTier>,
    shadows: Arc<Shadows>,
    /// The dead rows of each tier, newest tier first, computed on first use.
    dead: Vec<OnceCell<Option<Arc<RoaringTreemap>>>>,
}

/// What a snapshot is made of; `memtables` and `generations` newest first.
pub(crate) struct SnapshotParts {
    pub(crate) id: u64,
    pub(crate) table_id: u64,
    pub(crate) schema: Arc<TableSchema>,
    pub(crate) codec: Option<KeyCodec>,
    pub(crate) memtables: Vec<Arc<MemtableTier>>,
    pub(crate) generations: Vec<Arc<Generation>>,
    pub(crate) base: Arc<BaseTier>,
    pub(crate) shadows: Arc<Shadows>,
}

impl TableSnapshot {
    pub(crate) fn new(parts: SnapshotParts) -> Self {
        let tiers = parts.memtables.len() + parts.generations.len() + 1;
        Self(Arc::new(Parts {
            id: parts.id,
            table_id: parts.table_id,
            schema: parts.schema,
            codec: parts.codec,
            memtables: parts.memtables,
            generations: parts.generations,
            base: parts.base,
            shadows: parts.shadows,
            dead: (0..tiers).map(|_| OnceCell::new()).collect(),
        }))
    }

    /// Grows with every different state of one open table; equal ids are equal content.
    pub fn id(&self) -> u64 {
        self.0.id
    }

    /// The same for all snapshots of one open table.
    pub(crate) fn table_id(&self) -> u64 {
        self.0.table_id
    }

    pub(crate) fn schema(&self) -> &Arc<TableSchema> {
        &self.0.schema
    }

    pub(crate) fn codec(&self) -> Option<&KeyCodec> {
        self.0.codec.as_ref()
    }

    /// Newest first: the active one, then the frozen ones.
    pub(crate) fn memtables(&self) -> &[Arc<MemtableTier>] {
        &self.0.memtables
    }

    /// Newest first.
    pub(crate) fn generations(&self) -> &[Arc<Generation>] {
        &self.0.generations
    }

    pub(crate) fn base(&self) -> &Arc<BaseTier> {
        &self.0.base
    }

    /// The rows of a memtable that newer tiers replace or delete; those that it replaces
    /// itself are not among them.
    pub(crate) async fn dead_in_memtable(
        &self,
        index: usize,
    ) -> Result<Option<Arc<RoaringTreemap>>> {
        self.dead(index).await
    }

    /// The rows of a generation, by offset, that newer tiers replace or delete, and its
    /// own tombstones. What its deletion vector hides is not among them.
    pub(crate) async fn dead_in_generation(
        &self,
        index: usize,
    ) -> Result<Option<Arc<RoaringTreemap>>> {
        self.dead(self.0.memtables.len() + index).await
    }

    /// The rows of the base table, by row address, that newer tiers replace or delete, and
    /// those that a later row of the base table itself replaces.
    pub(crate) async fn dead_in_base(&self) -> Result<Option<Arc<RoaringTreemap>>> {
        self.dead(self.0.memtables.len() + self.0.generations.len())
            .await
    }

    fn tiers(&self) -> impl Iterator<Item = TierRef<'_>> {
        let parts = &self.0;
        parts
            .memtables
            .iter()
            .map(|tier| TierRef::Memtable(&tier.view))
            .chain(
                parts
                    .generations
                    .iter()
                    .map(|generation| TierRef::Generation(generation)),
            )
            .chain([TierRef::Base(&parts.base)])
    }

    async fn dead(&self, tier: usize) -> Result<Option<Arc<RoaringTreemap>>> {
        if self.0.codec.is_none() {
            return Ok(None);
        }
        let cell = self
            .0
            .dead
            .get(tier)
            .ok_or_else(|| Error::internal(format!("the snapshot has no tier {tier}")))?;
        let dead = cell
            .get_or_try_init(|| async {
                let Some(older) = self.tiers().nth(tier) else {
                    return Ok(None);
                };
                let mut dead = RoaringTreemap::new();
                match older {
                    TierRef::Memtable(_) => {}
                    TierRef::Generation(generation) => {
                        let tombstones = generation.tombstones().await?;
                        dead.extend(tombstones.iter().map(u64::from));
                    }
                    TierRef::Base(base) => dead |= base.replaced().await?,
                }
                let memtables = tier.min(self.0.memtables.len());
                let newer_generations = &self.0.generations[..tier - memtables];
                dead |= self
                    .0
                    .shadows
                    .collect_sealed(older, newer_generations)
                    .await?
                    .as_ref();
                for newer in self.tiers().take(memtables) {
                    self.0.shadows.collect(older, newer, &mut dead).await?;
                }
                Ok::<_, Error>((!dead.is_empty()).then(|| Arc::new(dead)))
            })
            .await?;
        Ok(dead.clone())
    }

    /// The newest row of a key, all logical columns; `None` when there is none or it was
    /// deleted. `key` has one value per key column, in key order.
    ///
    /// # Errors
    ///
    /// `Invalid` when the table has no key or `key` has another number of values.
    pub async fn get(&self, key: &[ScalarValue]) -> Result<Option<RecordBatch>> {
        let schema = self.schema();
        let codec = self.codec().ok_or_else(|| {
            Error::invalid(format!(
                "table '{}' has no primary key, so a row cannot be looked up by key",
                schema.table()
            ))
        })?;
        if key.len() != schema.key().len() {
            return Err(Error::invalid(format!(
                "table '{}': the key has {} columns ({}) and was given {} values",
                schema.table(),
                schema.key().len(),
                codec.names().join(", "),
                key.len()
            )));
        }
        let Some(encoded) = codec.encode_values(key)? else {
            return Ok(None);
        };
        let all: Vec<usize> = (0..schema.logical().fields().len()).collect();
        for tier in self.memtables() {
            if let Some(row) = tier.view.lookup(encoded.as_ref()) {
                return match tier.view.is_tombstone(row) {
                    true => Ok(None),
                    false => self.logical(tier.view.take(&[row], &all)?).map(Some),
                };
            }
        }
        let columns = || -> Vec<String> {
            let fields = schema.logical().fields().iter();
            fields.map(|field| field.name().clone()).collect()
        };
        for generation in self.generations() {
            if !generation.may_contain(key) {
                continue;
            }
            let Some(row) = generation.keys().await?.lookup(encoded.as_ref()) else {
                continue;
            };
            let tombstones = generation.tombstones().await?;
            if u32::try_from(row).is_ok_and(|offset| tombstones.contains(offset)) {
                return Ok(None);
            }
            let rows = generation.take(&[row], &columns()).await?;
            return self.logical(rows).map(Some);
        }
        match self.base().keys().await?.lookup(encoded.as_ref()) {
            Some(row) => self
                .logical(self.base().take(&[row], &columns()).await?)
                .map(Some),
            None => Ok(None),
        }
    }

    /// A batch of all logical columns under the logical schema.
    fn logical(&self, batch: RecordBatch) -> Result<RecordBatch> {
        let schema = self.schema().logical();
        let columns: Vec<ArrayRef> = batch
            .columns()
            .iter()
            .zip(schema.fields())
            .map(
                |(array, field)| match array.data_type() == field.data_type() {
                    true => Ok(Arc::clone(array)),
                    false => Ok(datafusion::arrow::compute::cast(array, field.data_type())?),
                },
            )
            .collect::<Result<_>>()?;
        Ok(RecordBatch::try_new(Arc::clone(schema), columns)?)
    }
}
