//! The peer: Lance's own MemWAL.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use datafusion::arrow::array::{RecordBatch, RecordBatchIterator};
use datafusion::arrow::datatypes::{Field, Schema, SchemaRef};
use futures::TryStreamExt;
use lance::Dataset;
use lance::dataset::builder::DatasetBuilder;
use lance::dataset::mem_wal::scanner::{
    LsmDataSourceCollector, LsmPointLookupPlanner, SsTableCache,
};
use lance::dataset::mem_wal::{
    DatasetMemWalExt, LsmScanner, ShardSnapshot, ShardWriter, ShardWriterConfig,
};
use lance::dataset::{InsertBuilder, WriteParams};
use lance::session::Session;
use lance_core::utils::bloomfilter::sbbf::Sbbf;
use lance_io::object_store::ObjectStoreParams;
use object_store::ObjectStoreExt;
use uuid::Uuid;

use crate::harness::Result;
use crate::rows::schema;

const KEY_METADATA: &str = "lance-schema:unenforced-primary-key";

/// One shard of a Lance table with the key `id`, and its writer.
pub struct LancePeer {
    pub dataset: Arc<Dataset>,
    pub writer: ShardWriter,
    shard: Uuid,
}

/// Lance's defaults, rows readable before they are in the log.
pub fn not_durable() -> ShardWriterConfig {
    ShardWriterConfig {
        durable_write: false,
        ..ShardWriterConfig::default()
    }
}

/// Lance's defaults with durable puts.
pub fn durable(interval: Duration) -> ShardWriterConfig {
    ShardWriterConfig {
        durable_write: true,
        max_wal_flush_interval: Some(interval),
        ..ShardWriterConfig::default()
    }
}

/// The columns with the key marked as Lance wants it.
pub fn keyed_schema() -> SchemaRef {
    let fields: Vec<Field> = schema()
        .fields()
        .iter()
        .map(|field| match field.name().as_str() {
            "id" => field.as_ref().clone().with_metadata(HashMap::from([(
                KEY_METADATA.to_string(),
                "true".to_string(),
            )])),
            _ => field.as_ref().clone(),
        })
        .collect();
    Arc::new(Schema::new(fields))
}

/// The same rows under [`keyed_schema`].
pub fn keyed(batches: &[RecordBatch]) -> Result<Vec<RecordBatch>> {
    batches
        .iter()
        .map(|batch| Ok(batch.clone().with_schema(keyed_schema())?))
        .collect()
}

impl LancePeer {
    pub async fn create(
        uri: &str,
        config: ShardWriterConfig,
        params: Option<ObjectStoreParams>,
    ) -> Result<Self> {
        let write = WriteParams {
            store_params: params,
            session: Some(Arc::new(Session::default())),
            ..WriteParams::default()
        };
        let empty = RecordBatchIterator::new([], keyed_schema());
        let mut dataset = InsertBuilder::new(uri)
            .with_params(&write)
            .execute_stream(empty)
            .await?;
        let no_indexes: [String; 0] = [];
        dataset
            .initialize_mem_wal()
            .unsharded()
            .maintained_indexes(no_indexes)
            .execute()
            .await?;
        Self::start(dataset, Uuid::new_v4(), config).await
    }

    /// Opens the table again, which replays the log of `shard`.
    pub async fn open(
        uri: &str,
        shard: Uuid,
        config: ShardWriterConfig,
        params: ObjectStoreParams,
    ) -> Result<Self> {
        let dataset = DatasetBuilder::from_uri(uri)
            .with_session(Arc::new(Session::default()))
            .with_store_params(params)
            .load()
            .await?;
        Self::start(dataset, shard, config).await
    }

    async fn start(dataset: Dataset, shard: Uuid, config: ShardWriterConfig) -> Result<Self> {
        let writer = dataset.mem_wal_writer(shard, config).await?;
        Ok(Self {
            dataset: Arc::new(dataset),
            writer,
            shard,
        })
    }

    pub fn shard(&self) -> Uuid {
        self.shard
    }

    pub async fn put_all(&self, batches: &[RecordBatch]) -> Result<()> {
        for batch in batches {
            self.writer.put(vec![batch.clone()]).await?;
        }
        Ok(())
    }

    /// Waits until a scan of the memtable reads `batches` batches.
    pub async fn wait_readable(&self, batches: usize) -> Result<()> {
        while self.writer.scan().await?.readable_count() < batches {
            tokio::task::yield_now().await;
        }
        Ok(())
    }

    /// Seals the memtable and waits for its generation.
    pub async fn flush(&self) -> Result<()> {
        self.writer.force_freeze_active().await?.wait().await?;
        Ok(())
    }

    async fn snapshot(&self) -> Result<ShardSnapshot> {
        let mut snapshot = ShardSnapshot::new(self.shard);
        if let Some(manifest) = self.writer.manifest().await? {
            snapshot = snapshot.with_current_generation(manifest.current_generation);
            for table in &manifest.sstables {
                snapshot = snapshot.with_sstable(table.generation, table.path.clone());
            }
        }
        Ok(snapshot)
    }

    /// The given columns of all rows of the table, as Lance's scanner reads it.
    pub async fn scan(&self, columns: &[&str]) -> Result<Vec<RecordBatch>> {
        let memtables = self.writer.in_memory_memtable_refs().await?;
        let scanner = LsmScanner::new(
            Arc::clone(&self.dataset),
            vec![self.snapshot().await?],
            vec!["id".to_string()],
        )
        .with_in_memory_memtables(self.shard, memtables)
        .project(columns)?;
        Ok(scanner.try_into_stream().await?.try_collect().await?)
    }

    /// A planner of point lookups at its best: datasets opened and warmed before, with the
    /// Bloom filter of each generation in memory.
    pub async fn planner(&self) -> Result<LsmPointLookupPlanner> {
        let snapshot = self.snapshot().await?;
        let cache = Arc::new(SsTableCache::new(64));
        let cache_for_warming: Arc<dyn lance::dataset::mem_wal::scanner::DatasetCache> =
            Arc::clone(&cache) as _;
        self.dataset
            .prewarm_mem_wal(std::slice::from_ref(&snapshot), Some(&cache_for_warming))
            .await?;
        let mut filters = Vec::new();
        let store = self.dataset.object_store(None).await?;
        for table in &snapshot.sstables {
            let path = self
                .dataset
                .branch_location()
                .path
                .join("_mem_wal")
                .join(self.shard.to_string())
                .join(table.path.as_str())
                .join("bloom_filter.bin");
            let bytes = store.inner.get(&path).await?.bytes().await?;
            filters.push((table.generation, Arc::new(Sbbf::new(&bytes)?)));
        }
        let memtables = self.writer.in_memory_memtable_refs().await?;
        let collector = LsmDataSourceCollector::new(Arc::clone(&self.dataset), vec![snapshot])
            .with_in_memory_memtables(self.shard, memtables);
        let columns: SchemaRef = Arc::new(Schema::from(self.dataset.schema()));
        Ok(
            LsmPointLookupPlanner::new(collector, vec!["id".to_string()], columns)?
                .with_session(self.dataset.session())
                .with_sstable_cache(cache)
                .with_bloom_filters(filters),
        )
    }
}
