//! The base table: a Lance dataset that generations are compacted into, or that was there
//! before the log.

use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use lance::Dataset;
use lance::dataset::{ProjectionRequest, TakeBuilder};
use tokio::sync::OnceCell;

use crate::error::Result;
use crate::generation::key_rows;
use crate::index::key::{KeyCodec, Keys, SortedKeys};

/// One version of the base table.
#[derive(Debug)]
pub(crate) struct BaseTier {
    dataset: Arc<Dataset>,
    rows: u64,
    codec: Option<KeyCodec>,
    keys: OnceCell<Arc<SortedKeys>>,
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
        let keys = self
            .keys
            .get_or_try_init(|| async {
                match &self.codec {
                    Some(codec) if self.rows > 0 => {
                        key_rows(&self.dataset, codec).await.map(Arc::new)
                    }
                    _ => Ok(Arc::new(SortedKeys::new(
                        Keys::Fixed(Vec::new()),
                        Vec::new(),
                    ))),
                }
            })
            .await?;
        Ok(Arc::clone(keys))
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
