//! The table as its users hold it.

use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use arc_swap::ArcSwap;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::ScalarValue;
use parking_lot::Mutex;

use crate::error::Result;
use crate::options::TableOptions;
use crate::schema::TableSchema;
use crate::shard::{PendingRows, ShardWriter, TableStats, prepare_delete, prepare_put, read_stats};
use crate::table::base::BaseTier;
use crate::table::builder::TableBuilder;
use crate::table::shadow::Shadows;
use crate::table::snapshot::{MemtableTier, SnapshotParts, TableSnapshot};
use crate::table::tier_stats::{self, TierStats};

static NEXT_TABLE_ID: AtomicU64 = AtomicU64::new(1);

/// A table that takes writes one row at a time, shows them at once and keeps them as
/// Lance on an object store. Clones share one writer; the last one that is dropped ends it.
///
/// One process writes a table at a time: opening it elsewhere fences this handle, and
/// every later call on it fails with [`ErrorKind::Fenced`](crate::ErrorKind::Fenced).
#[derive(Debug, Clone)]
pub struct MemWalTable(Arc<Open>);

/// A handle that does not keep the table open.
#[derive(Debug, Clone)]
pub(crate) struct WeakTable(Weak<Open>);

#[derive(Debug)]
struct Open {
    id: u64,
    uri: String,
    schema: Arc<TableSchema>,
    writer: ShardWriter,
    base: ArcSwap<BaseTier>,
    shadows: Arc<Shadows>,
    last: Mutex<Last>,
}

/// The newest snapshot that was handed out, so that reads of an unchanged table share its masks.
#[derive(Debug, Default)]
struct Last {
    id: u64,
    taken_of: Option<Visible>,
    snapshot: Option<TableSnapshot>,
}

/// What decides whether two snapshots are the same.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Visible {
    tiers_version: u64,
    base_version: u64,
    /// Visible batches of each memtable, newest first.
    batches: Vec<u64>,
}

/// What [`MemWalTable::flush`] wrote.
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flushed {
    /// The number of the newest generation.
    pub generation: u64,
    /// Its rows, replaced ones and tombstones included.
    pub rows: u64,
}

/// Rows that were taken and are on their way to being readable: await it to learn that
/// they are (and, in durable mode, that they are in the log). Dropping it does not take
/// the rows back.
#[must_use = "rows that nobody waits for may still be refused by the store"]
#[derive(Debug)]
pub struct Pending(PendingRows);

impl IntoFuture for Pending {
    type Output = Result<()>;
    type IntoFuture = Pin<Box<dyn Future<Output = Result<()>> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.0.wait())
    }
}

impl WeakTable {
    /// The table, if it is still open.
    pub(crate) fn upgrade(&self) -> Option<MemWalTable> {
        self.0.upgrade().map(MemWalTable)
    }
}

impl MemWalTable {
    /// A table at `uri`: a path, or a URL of a store that Lance reaches.
    pub fn builder(uri: &str) -> TableBuilder {
        TableBuilder::new(uri)
    }

    /// Makes a new table with default options; see [`TableBuilder::create`].
    ///
    /// # Errors
    ///
    /// Those of [`TableBuilder::create`].
    pub async fn create(uri: &str, schema: SchemaRef, key: &[&str]) -> Result<Self> {
        let key: Vec<String> = key.iter().map(ToString::to_string).collect();
        Self::builder(uri).create(schema, &key).await
    }

    /// Opens a table or a plain Lance dataset; see [`TableBuilder::open`].
    ///
    /// # Errors
    ///
    /// Those of [`TableBuilder::open`].
    pub async fn open(uri: &str) -> Result<Self> {
        Self::builder(uri).open().await
    }

    pub(crate) fn start(
        uri: String,
        schema: Arc<TableSchema>,
        writer: ShardWriter,
        base: BaseTier,
    ) -> Self {
        let open = Arc::new(Open {
            id: NEXT_TABLE_ID.fetch_add(1, Ordering::Relaxed),
            uri,
            schema,
            writer,
            base: ArcSwap::from_pointee(base),
            shadows: Arc::new(Shadows::default()),
            last: Mutex::new(Last::default()),
        });
        let weak = Arc::downgrade(&open);
        // A snapshot that nobody reads must not keep a flushed memtable in memory.
        let let_go = move || {
            if let Some(open) = weak.upgrade() {
                open.last.lock().snapshot = None;
            }
        };
        // The state is new, so its place is empty.
        let _ = open.writer.state().on_publish.set(Box::new(let_go));
        Self(open)
    }

    #[cfg(test)]
    pub(crate) fn writer(&self) -> &ShardWriter {
        &self.0.writer
    }

    pub(crate) fn downgrade(&self) -> WeakTable {
        WeakTable(Arc::downgrade(&self.0))
    }

    /// Where the table lies.
    pub fn uri(&self) -> &str {
        &self.0.uri
    }

    /// The name by which error messages call the table.
    pub fn name(&self) -> &str {
        self.0.schema.table()
    }

    /// The columns, in order.
    pub fn schema(&self) -> SchemaRef {
        Arc::clone(self.0.schema.logical())
    }

    pub(crate) fn table_schema(&self) -> &Arc<TableSchema> {
        &self.0.schema
    }

    /// The columns of the primary key, as positions in [`Self::schema`], in key order;
    /// empty for an append-only table.
    pub fn primary_key(&self) -> &[usize] {
        self.0.schema.key()
    }

    /// The options that the writer goes by.
    pub fn options(&self) -> &TableOptions {
        &self.0.writer.state().options
    }

    /// Adds rows as one atomic change; a row of a key that is there replaces it, the last
    /// of several wins. Returns when every later read sees the rows and, with
    /// `durable_write`, they are in the log. Columns are matched by name.
    ///
    /// Dropping the future before the rows were taken writes nothing; after that the rows
    /// stay. A put of keyed rows that failed without an acknowledgement may be repeated.
    ///
    /// # Errors
    ///
    /// `Invalid` for rows that do not fit the columns, `Unsupported` for more than one
    /// memtable holds, `Backpressure`, and the reason of a writer that ended.
    pub async fn put(&self, batches: Vec<RecordBatch>) -> Result<()> {
        self.put_no_wait(batches).await?.await
    }

    /// As [`Self::put`], returning as soon as the rows are taken: await the value for the rest.
    ///
    /// # Errors
    ///
    /// Those of [`Self::put`].
    pub async fn put_no_wait(&self, batches: Vec<RecordBatch>) -> Result<Pending> {
        let state = self.0.writer.state();
        let rows = prepare_put(&self.0.schema, state.codec(), &batches)?;
        self.0.writer.put(rows).await.map(Pending)
    }

    /// Deletes the rows of the given keys as one atomic change. The batches hold the key
    /// columns and no other; a key without a row is no error. Otherwise as [`Self::put`].
    ///
    /// # Errors
    ///
    /// Those of [`Self::put`], and `Unsupported` for a table without a key.
    pub async fn delete(&self, keys: Vec<RecordBatch>) -> Result<()> {
        self.delete_no_wait(keys).await?.await
    }

    /// As [`Self::delete`], returning as soon as the tombstones are taken.
    ///
    /// # Errors
    ///
    /// Those of [`Self::delete`].
    pub async fn delete_no_wait(&self, keys: Vec<RecordBatch>) -> Result<Pending> {
        let state = self.0.writer.state();
        let rows = prepare_delete(&self.0.schema, state.codec(), &keys)?;
        self.0.writer.put(rows).await.map(Pending)
    }

    /// The newest row of a key; see [`TableSnapshot::get`].
    ///
    /// # Errors
    ///
    /// Those of [`TableSnapshot::get`] and [`Self::snapshot`].
    pub async fn get(&self, key: &[ScalarValue]) -> Result<Option<RecordBatch>> {
        self.snapshot()?.get(key).await
    }

    /// The table as it is now.
    ///
    /// # Errors
    ///
    /// The reason of a writer that ended: what it holds may differ from what the log will
    /// replay, so nothing is read from it.
    pub fn snapshot(&self) -> Result<TableSnapshot> {
        let state = self.0.writer.state();
        let mut last = self.0.last.lock();
        state.cursors.check()?;
        let tiers = state.tiers.load_full();
        let base = self.0.base.load_full();
        // Newest first: a row of a newer memtable is visible only after all of the older
        // ones are, so this order can never show it without them.
        let durable = state.durable_bound();
        let newest_first: Vec<_> = [&tiers.active]
            .into_iter()
            .chain(tiers.frozen.iter().rev())
            .map(|memtable| (memtable, memtable.visible_batches(durable)))
            .collect();
        let visible = Visible {
            tiers_version: tiers.version,
            base_version: base.version(),
            batches: newest_first.iter().map(|(_, batches)| *batches).collect(),
        };
        if last.taken_of.as_ref() == Some(&visible)
            && let Some(snapshot) = &last.snapshot
        {
            return Ok(snapshot.clone());
        }
        last.id += 1;
        let snapshot = TableSnapshot::new(SnapshotParts {
            id: last.id,
            table_id: self.0.id,
            schema: Arc::clone(&self.0.schema),
            codec: state.codec().cloned(),
            memtables: newest_first
                .iter()
                .enumerate()
                .map(|(index, (memtable, batches))| {
                    Arc::new(MemtableTier {
                        frozen: index > 0,
                        view: memtable.view(*batches),
                    })
                })
                .collect(),
            generations: tiers.generations.iter().rev().cloned().collect(),
            base,
            shadows: Arc::clone(&self.0.shadows),
        });
        last.taken_of = Some(visible);
        last.snapshot = Some(snapshot.clone());
        Ok(snapshot)
    }

    /// Seals the memtable and waits until all rows put before lie in generations. Returns
    /// the newest of them, `None` when there was nothing to flush.
    ///
    /// # Errors
    ///
    /// The store's failure after several tries (the flush goes on trying), or the reason
    /// of a writer that ended.
    pub async fn flush(&self) -> Result<Option<Flushed>> {
        let generation = self.0.writer.flush().await?;
        Ok(generation.map(|generation| Flushed {
            generation: generation.number(),
            rows: generation.physical_rows(),
        }))
    }

    /// Reads the newest version of the base table, which another process may have changed.
    ///
    /// # Errors
    ///
    /// `Unavailable` when the store does not answer; `Unsupported` when the columns changed.
    pub async fn refresh_base(&self) -> Result<()> {
        let current = self.0.base.load_full();
        let mut dataset = current.dataset().as_ref().clone();
        dataset.checkout_latest().await?;
        if dataset.manifest().version == current.version() {
            return Ok(());
        }
        let schema = TableSchema::from_base(self.name(), dataset.schema())?;
        if schema.stored() != self.0.schema.stored() {
            return Err(crate::error::Error::unsupported(format!(
                "table '{}': the columns of the base table changed; open the table again",
                self.name()
            )));
        }
        let codec = self.0.writer.state().codec().cloned();
        let base = BaseTier::new(Arc::new(dataset), codec).await?;
        self.0.shadows.keep_base(base.version());
        self.0.base.store(Arc::new(base));
        Ok(())
    }

    /// What the writer holds and has done. Readable also after it ended.
    pub fn stats(&self) -> TableStats {
        read_stats(self.0.writer.state())
    }

    /// What lies where, newest tier first. Readable also after the writer ended.
    ///
    /// # Errors
    ///
    /// `Unavailable` when a generation's keys cannot be read.
    pub async fn tiers(&self) -> Result<Vec<TierStats>> {
        let state = self.0.writer.state();
        match self.snapshot() {
            Ok(snapshot) => tier_stats::of_snapshot(state, &snapshot).await,
            Err(_) => Ok(tier_stats::of_ended(state, &self.0.base.load())),
        }
    }

    /// The most rows that one put may bring.
    pub fn max_put_rows(&self) -> usize {
        self.options().max_memtable_rows
    }

    /// Whether the writer still lives: neither closed nor ended by a failure.
    pub fn is_open(&self) -> bool {
        self.0.writer.state().cursors.failure().is_none()
    }

    /// Ends the writer in order: everything taken is in the log, sealed memtables are
    /// flushed. Later calls on any clone fail with `Closed`; a second close does nothing.
    ///
    /// # Errors
    ///
    /// The first failure of the writer, be it older than this call.
    pub async fn close(&self) -> Result<()> {
        self.0.writer.close().await
    }
}
