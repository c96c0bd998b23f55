//! The base table: a Lance dataset that generations are compacted into, or that was there
//! before the log.

use std::sync::Arc;

use datafusion::arrow::array::{AsArray, RecordBatch};
use datafusion::arrow::datatypes::UInt64Type;
use futures::TryStreamExt;
use lance::Dataset;
use lance::dataset::{ProjectionRequest, TakeBuilder};
use lance_core::ROW_ADDR;
use roaring::RoaringTreemap;
use tokio::sync::OnceCell;

use crate::error::{Error, Result};
use crate::generation::key_rows;
use crate::index::key::{KeyCodec, Keys, SortedKeys};

/// One version of the base table.
#[derive(Debug)]
pub(crate) struct BaseTier {
    dataset: Arc<Dataset>,
    rows: u64,
    codec: Option<KeyCodec>,
    keys: OnceCell<BaseKeys>,
}

/// The newest row of each key of the base table.
#[derive(Debug)]
struct BaseKeys {
    newest: Arc<SortedKeys>,
    /// Lance enforces no key: rows that a later row of the same key replaces.
    replaced: RoaringTreemap,
}

impl BaseTier {
    pub(crate) async fn new(dataset: Arc<Dataset>, codec: Option<KeyCodec>) -> Result<Self> {
        let rows = dataset.count_rows(None).await? as u64;
        Ok(Self {
            dataset,
            rows,
            codec,
            keys: OnceCell::new(),
        })
    }

    pub(crate) fn dataset(&self) -> &Arc<Dataset> {
        &self.dataset
    }

    pub(crate) fn version(&self) -> u64 {
        self.dataset.manifest().version
    }

    /// Rows that Lance returns, deleted ones not counted.
    pub(crate) fn rows(&self) -> u64 {
        self.rows
    }

    /// The keys of all rows with their row addresses, read on first use: about 16 bytes of
    /// memory a row for an integer key.
    pub(crate) async fn keys(&self) -> Result<Arc<SortedKeys>> {
        let keys = self.keys.get_or_try_init(|| self.read_keys()).await?;
        Ok(Arc::clone(&keys.newest))
    }

    /// The rows that a later row of the base table itself replaces.
    pub(crate) async fn replaced(&self) -> Result<&RoaringTreemap> {
        let keys = self.keys.get_or_try_init(|| self.read_keys()).await?;
        Ok(&keys.replaced)
    }

    async fn read_keys(&self) -> Result<BaseKeys> {
        let newest = match &self.codec {
            Some(codec) if self.rows > 0 => key_rows(&self.dataset, codec).await?,
            _ => SortedKeys::new(Keys::Fixed(Vec::new()), Vec::new()),
        };
        let mut replaced = RoaringTreemap::new();
        if newest.len() as u64 != self.rows {
            replaced = self.addresses().await?;
            for (_, row) in newest.iter() {
                replaced.remove(row);
            }
        }
        Ok(BaseKeys {
            newest: Arc::new(newest),
            replaced,
        })
    }

    /// The addresses of all rows.
    async fn addresses(&self) -> Result<RoaringTreemap> {
        let mut scanner = self.dataset.scan();
        scanner.empty_project()?.with_row_address();
        let mut batches = scanner.try_into_stream().await?;
        let mut addresses = RoaringTreemap::new();
        while let Some(batch) = batches.try_next().await? {
            let column = batch
                .column_by_name(ROW_ADDR)
                .and_then(|column| column.as_primitive_opt::<UInt64Type>())
                .ok_or_else(|| Error::internal("a scan of the base table gave no row addresses"))?;
            addresses.extend(column.values().iter().copied());
        }
        Ok(addresses)
    }

    /// The rows at `addresses`, in that order.
    pub(crate) async fn take(&self, addresses: &[u64], columns: &[String]) -> Result<RecordBatch> {
        let dataset = &self.dataset;
        let projection = ProjectionRequest::from_columns(columns, dataset.schema())
            .into_projection_plan(Arc::clone(dataset))?;
        // By address and not by id: a table with stable row ids tells them apart.
        let take = TakeBuilder::try_new_from_addresses(
            Arc::clone(dataset),
            addresses.to_vec(),
            Arc::new(projection),
        )?;
        Ok(take.execute().await?)
    }
}
