//! The batches of one generation and the index of their keys.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use super::batches::{BatchLog, Pending};
use super::prepared::PreparedBatch;
use super::read::MemtableView;
use crate::clock::{self, Instant};
use crate::error::{Error, Result};
use crate::index::key::{KeyCodec, KeyMap};
use crate::schema::TableSchema;

/// See the module.
#[derive(Debug)]
pub(crate) struct Memtable {
    schema: Arc<TableSchema>,
    generation: u64,
    global_offset: u64,
    log: BatchLog,
    keys: Option<KeyMap>,
    /// Puts that are in the log and not yet in the indexes. Its lock also makes
    /// appends one at a time.
    unindexed: Mutex<Vec<Vec<PreparedBatch>>>,
    /// Held while the indexes are fed; the error that ended it, if one did.
    applying: Mutex<Option<Error>>,
    indexed: AtomicU64,
    oldest_row_at: OnceLock<Instant>,
}

impl Memtable {
    /// An empty memtable that begins after `global_offset` batches of its writer.
    /// `codec` is that of the schema's key.
    pub(crate) fn new(
        schema: Arc<TableSchema>,
        codec: Option<KeyCodec>,
        generation: u64,
        global_offset: u64,
    ) -> Self {
        Self {
            schema,
            generation,
            global_offset,
            log: BatchLog::new(),
            keys: codec.map(|codec| KeyMap::new(codec.is_fixed())),
            unindexed: Mutex::default(),
            applying: Mutex::default(),
            indexed: AtomicU64::new(0),
            oldest_row_at: OnceLock::new(),
        }
    }

    /// Appends the batches of one put, all or none of them.
    ///
    /// # Errors
    ///
    /// `Unsupported` when row positions would run out; nothing was appended.
    pub(crate) fn append(&self, put: Vec<PreparedBatch>) -> Result<()> {
        if put.is_empty() {
            return Ok(());
        }
        for batch in &put {
            let keys = batch.keys.as_ref().map(|keys| keys.len());
            let wanted = self.keys.as_ref().map(|_| batch.rows.num_rows());
            if keys != wanted || batch.rows.schema_ref() != self.schema.rows() {
                return Err(Error::internal(format!(
                    "table '{}': a batch was prepared for another table",
                    self.schema.table()
                )));
            }
        }
        let mut unindexed = self.unindexed.lock();
        self.log.append(&put)?;
        self.oldest_row_at.get_or_init(clock::now);
        unindexed.push(put);
        Ok(())
    }

    /// Feeds the indexes with every put that was appended before the call, and tidies
    /// up the log. Who comes second waits for who came first.
    ///
    /// # Errors
    ///
    /// The index's own error, then and ever after.
    pub(crate) fn apply_index(&self) -> Result<()> {
        let mut failed = self.applying.lock();
        if let Some(error) = &*failed {
            return Err(error.clone());
        }
        let puts = std::mem::take(&mut *self.unindexed.lock());
        for put in puts {
            if let Err(error) = self.index_put(&put) {
                let error = error.context(format!("table '{}'", self.schema.table()));
                *failed = Some(error.clone());
                return Err(error);
            }
            self.indexed.fetch_add(put.len() as u64, Ordering::Release);
        }
        self.log.join_full_chunks();
        Ok(())
    }

    fn index_put(&self, put: &[PreparedBatch]) -> Result<()> {
        let Some(index) = &self.keys else {
            return Ok(());
        };
        put.iter()
            .filter_map(|batch| batch.keys.as_ref())
            .try_for_each(|keys| index.insert(keys))
    }

    /// The table's columns.
    pub(crate) fn schema(&self) -> &Arc<TableSchema> {
        &self.schema
    }

    /// The generation that this memtable will be flushed to.
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    /// How many batches the writer had taken before this memtable began.
    pub(crate) fn global_offset(&self) -> u64 {
        self.global_offset
    }

    /// How many batches the writer had taken when the last of this memtable came.
    pub(crate) fn global_end(&self) -> u64 {
        self.global_offset + self.batches()
    }

    /// How many batches were appended.
    pub(crate) fn batches(&self) -> u64 {
        self.log.len()
    }

    /// How many rows were appended, replaced ones and tombstones included.
    pub(crate) fn rows(&self) -> u64 {
        self.rows_of(self.batches())
    }

    /// The payload of the rows.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes_of(self.batches())
    }

    /// The rows of the first `batches` batches.
    pub(crate) fn rows_of(&self, batches: u64) -> u64 {
        u64::from(self.log.rows_of(batches.min(self.batches())))
    }

    /// The payload of the first `batches` batches.
    pub(crate) fn bytes_of(&self, batches: u64) -> u64 {
        self.log.bytes_of(batches.min(self.batches()))
    }

    /// Bytes held beyond the payload, except by puts that are not indexed yet.
    pub(crate) fn index_bytes(&self) -> u64 {
        let keys = self.keys.as_ref().map_or(0, KeyMap::bytes);
        (keys + self.log.overhead_bytes()) as u64
    }

    /// How many batches every index has taken.
    pub(crate) fn indexed_batches(&self) -> u64 {
        self.indexed.load(Ordering::Acquire)
    }

    /// When the first put came.
    pub(crate) fn oldest_row_at(&self) -> Option<Instant> {
        self.oldest_row_at.get().copied()
    }

    /// How many of this memtable's batches lie within the first `global_count`
    /// batches of the writer. The one way from a global count to a local one.
    pub(crate) fn local(&self, global_count: u64) -> u64 {
        global_count
            .saturating_sub(self.global_offset)
            .min(self.batches())
    }

    /// How many batches a reader sees now. `durable` is the writer's global count, or
    /// `None` where a row need not be durable to be seen.
    pub(crate) fn visible_batches(&self, durable: Option<u64>) -> u64 {
        let indexed = self.indexed_batches();
        durable.map_or(indexed, |durable| indexed.min(self.local(durable)))
    }

    /// The first `visible_batches` batches, as they will stay; those that are not
    /// indexed are never seen.
    pub(crate) fn view(self: &Arc<Self>, visible_batches: u64) -> MemtableView {
        let visible = visible_batches.min(self.indexed_batches());
        let rows = self.log.rows_of(visible);
        let segments = self.log.segments(&(0..rows));
        MemtableView::new(Arc::clone(self), rows, segments)
    }

    /// What follows the first `from` batches, for the WAL: as many whole puts as
    /// `max_bytes` takes, but one at least if there is one. Nothing has to be
    /// released afterwards: the log holds each row once, for readers and the WAL.
    pub(crate) fn batches_from(&self, from: u64, max_bytes: u64) -> Pending {
        self.log.pending(from, max_bytes)
    }

    pub(super) fn keys(&self) -> Option<&KeyMap> {
        self.keys.as_ref()
    }
}
