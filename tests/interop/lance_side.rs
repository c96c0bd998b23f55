//! A table in the hands of Lance's own writer and readers.

use std::sync::Arc;
use std::time::Duration;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::Schema;
use futures::TryStreamExt;
use lance::Dataset;
use lance::dataset::mem_wal::scanner::{
    InMemoryMemTables, LsmDataSourceCollector, LsmPointLookupPlanner, LsmScanner, ShardSnapshot,
};
use lance::dataset::mem_wal::{
    DatasetMemWalExt, ShardWriter, ShardWriterConfig, arrow_schema_with_field_ids,
};
use lance_core::utils::bloomfilter::sbbf::Sbbf;
use uuid::Uuid;

use super::kinds::Kind;
use super::script::{KEYS, Model, Step};

pub struct LanceSide {
    pub dataset: Arc<Dataset>,
    pub writer: ShardWriter,
    pub shard: Uuid,
}

/// Small enough that a durable put is not the time that a test takes.
fn config(shard: Uuid) -> ShardWriterConfig {
    ShardWriterConfig {
        max_wal_flush_interval: Some(Duration::from_millis(5)),
        ..ShardWriterConfig::new(shard)
    }
}

impl LanceSide {
    /// Opens the one shard of a table, or a new one, and replays its log.
    pub async fn open(uri: &str) -> Self {
        Self::open_as(uri, true).await
    }

    /// The same; without a memtable the writer only logs.
    pub async fn open_as(uri: &str, enable_memtable: bool) -> Self {
        let dataset = Dataset::open(uri).await.unwrap();
        let shards = dataset.list_mem_wal_latest_shard_ids().await.unwrap();
        let shard = match shards.as_slice() {
            [] => Uuid::new_v4(),
            [only] => *only,
            many => panic!("one shard was expected: {many:?}"),
        };
        let config = config(shard).with_enable_memtable(enable_memtable);
        let writer = dataset.mem_wal_writer(shard, config).await.unwrap();
        Self {
            dataset: Arc::new(dataset),
            writer,
            shard,
        }
    }

    /// Makes an unsharded table of a plain dataset and opens it.
    pub async fn start(uri: &str, mut dataset: Dataset) -> Self {
        let builder = dataset.initialize_mem_wal().unsharded();
        builder.execute().await.unwrap();
        Self::open(uri).await
    }

    pub async fn run(&self, kind: &Kind, steps: &[Step]) {
        for step in steps {
            match step {
                Step::Put(rows) => {
                    self.writer.put(vec![kind.rows(rows)]).await.unwrap();
                }
                Step::Singles(rows) => {
                    let mut pending = Vec::new();
                    for &row in *rows {
                        let put = self.writer.put_no_wait(vec![kind.rows(&[row])]).await;
                        pending.extend(put.unwrap().1);
                    }
                    for mut put in pending {
                        put.wait().await.unwrap();
                    }
                }
                Step::Delete(keys) => {
                    self.writer.delete(vec![kind.keys(keys)]).await.unwrap();
                }
                Step::Flush => {
                    let fence = self.writer.force_freeze_active().await.unwrap();
                    fence.wait().await.unwrap();
                }
            }
        }
    }

    /// What the shard holds, the memory taken before the manifest, as Lance demands.
    async fn state(&self) -> (InMemoryMemTables, ShardSnapshot) {
        let memory = self.writer.in_memory_memtable_refs().await.unwrap();
        let manifest = self.writer.manifest().await.unwrap().unwrap();
        let mut snapshot = ShardSnapshot::new(self.shard)
            .with_spec_id(manifest.shard_spec_id)
            .with_current_generation(manifest.current_generation);
        for sstable in manifest.sstables {
            snapshot = snapshot.with_sstable(sstable.generation, sstable.path);
        }
        (memory, snapshot)
    }

    async fn scan(&self, kind: &Kind, filter: Option<&str>) -> Vec<RecordBatch> {
        let (memory, snapshot) = self.state().await;
        let base = Arc::clone(&self.dataset);
        let mut scanner = LsmScanner::new(base, vec![snapshot], kind.key_names())
            .with_in_memory_memtables(self.shard, memory);
        if let Some(filter) = filter {
            scanner = scanner.filter(filter).unwrap();
        }
        let stream = scanner.try_into_stream().await.unwrap();
        stream.try_collect().await.unwrap()
    }

    /// The folder of a generation of a table on local disk.
    pub fn folder(&self, name: &str) -> std::path::PathBuf {
        let table = std::path::Path::new(self.dataset.uri());
        table
            .join("_mem_wal")
            .join(self.shard.to_string())
            .join(name)
    }

    /// Looks keys up as Lance does, skipping generations by their Bloom filters.
    async fn planner(&self, kind: &Kind) -> LsmPointLookupPlanner {
        let (memory, snapshot) = self.state().await;
        let filters: Vec<(u64, Arc<Sbbf>)> = snapshot
            .sstables
            .iter()
            .map(|sstable| {
                let file = self.folder(&sstable.path).join("bloom_filter.bin");
                let filter = Sbbf::new(&std::fs::read(file).unwrap()).unwrap();
                (sstable.generation, Arc::new(filter))
            })
            .collect();
        let collector = LsmDataSourceCollector::new(Arc::clone(&self.dataset), vec![snapshot])
            .with_in_memory_memtables(self.shard, memory);
        let schema = Schema::from(self.dataset.schema());
        LsmPointLookupPlanner::new(collector, kind.key_names(), Arc::new(schema))
            .unwrap()
            .with_identity_schema(Arc::new(arrow_schema_with_field_ids(self.dataset.schema())))
            .with_bloom_filters(filters)
    }

    /// Every row through Lance's scan, its scan with a condition on the key, and its lookup.
    pub async fn assert_holds(&self, kind: &Kind, model: &Model, when: &str) {
        let when = format!("{}, {when}", kind.name);
        let scanned = kind.content(&self.scan(kind, None).await);
        assert_eq!(scanned, kind.expected(model), "Lance's scan: {when}");
        let planner = self.planner(kind).await;
        for key in KEYS {
            let one = model
                .get_key_value(&key)
                .map(|(&key, &version)| (key, version));
            let expected = kind.expected(&one.into_iter().collect());
            let found = self.scan(kind, Some(&kind.condition(key))).await;
            assert_eq!(
                kind.content(&found),
                expected,
                "Lance's filter, {key}: {when}"
            );
            let found = planner.lookup(&kind.key_values(key), None).await.unwrap();
            let found: Vec<RecordBatch> = found.into_iter().collect();
            assert_eq!(
                kind.content(&found),
                expected,
                "Lance's lookup, {key}: {when}"
            );
        }
    }

    /// Ends the writer as a crash would: nothing that it holds is written any more.
    pub async fn crash(self) {
        self.writer.abort().await.unwrap();
    }

    pub async fn end(self, closed: bool) {
        match closed {
            true => self.writer.close().await.unwrap(),
            false => self.crash().await,
        }
    }
}
