//! What the put path and the background tasks of one writer share.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;

use crate::error::{Error, Result};
use crate::generation::GenerationTarget;
use crate::index::key::KeyCodec;
use crate::manifest::ManifestStore;
use crate::memtable::{Memtable, PreparedBatch};
use crate::options::TableOptions;
use crate::schema::TableSchema;
use crate::shard::cursors::Cursors;
use crate::shard::log_book::LogBook;
use crate::shard::rotation::Fill;
use crate::shard::stats::Counters;
use crate::shard::tiers::Tiers;

/// Above this many rows the index task takes a put, so that a large batch does not hold
/// up the caller's thread; at or below it the caller applies it at once.
const INLINE_INDEX_ROWS: usize = 4_096;

/// Everything of one writer but its tasks.
pub(crate) struct ShardState {
    pub(crate) options: TableOptions,
    pub(crate) target: GenerationTarget,
    pub(crate) manifests: ManifestStore,
    pub(crate) writer_epoch: u64,
    pub(crate) tiers: ArcSwap<Tiers>,
    pub(crate) cursors: Cursors,
    pub(crate) log_book: LogBook,
    pub(crate) counters: Counters,
    /// Serialises appends to the memtable and rotations; held for no await.
    put_lock: Mutex<()>,
    pub(crate) flush_failure: Mutex<FlushFailure>,
    /// Set under the put lock; no put is taken after it.
    pub(crate) closing: AtomicBool,
    /// Size of the log entry that is being appended.
    pub(crate) entry_bytes: AtomicUsize,
    /// Told after each publish, so that what was read from memory can be let go.
    pub(crate) on_publish: OnceLock<Box<dyn Fn() + Send + Sync>>,
    pub(crate) wake_append: Notify,
    pub(crate) wake_index: Notify,
    pub(crate) wake_flush: Notify,
}

/// What became of the flush that is being retried.
#[derive(Debug, Default)]
pub(crate) struct FlushFailure {
    /// How often a failure was reported over the life of this writer.
    count: u64,
    /// The last one, by generation; `None` after a success.
    pub(crate) last: Option<(u64, Error)>,
}

/// The parts that a [`ShardState`] is made of.
pub(crate) struct ShardParts {
    pub(crate) options: TableOptions,
    pub(crate) target: GenerationTarget,
    pub(crate) manifests: ManifestStore,
    pub(crate) writer_epoch: u64,
    pub(crate) tiers: Tiers,
    pub(crate) log_book: LogBook,
}

/// Where the rows of one put lie: enough to know when they can be read.
#[derive(Debug, Clone)]
pub(crate) struct Ticket {
    memtable: Arc<Memtable>,
    /// Batches of the memtable, up to and with this put.
    end: u64,
}

/// The answer of the put lock.
pub(crate) enum Admission {
    /// The rows are in the memtable.
    Taken(Ticket),
    /// The memory limit leaves no room; the batches are handed back.
    Full(Vec<PreparedBatch>),
}

impl fmt::Debug for ShardState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShardState")
            .field("table", &self.schema().table())
            .field("writer_epoch", &self.writer_epoch)
            .finish_non_exhaustive()
    }
}

impl ShardState {
    pub(crate) fn new(parts: ShardParts) -> Self {
        Self {
            options: parts.options,
            target: parts.target,
            manifests: parts.manifests,
            writer_epoch: parts.writer_epoch,
            // Everything there is at this moment came from the log.
            cursors: Cursors::starting_at(parts.tiers.active.global_end()),
            tiers: ArcSwap::from_pointee(parts.tiers),
            log_book: parts.log_book,
            counters: Counters::default(),
            put_lock: Mutex::default(),
            flush_failure: Mutex::default(),
            closing: AtomicBool::new(false),
            entry_bytes: AtomicUsize::new(0),
            on_publish: OnceLock::new(),
            wake_append: Notify::new(),
            wake_index: Notify::new(),
            wake_flush: Notify::new(),
        }
    }

    pub(crate) fn schema(&self) -> &Arc<TableSchema> {
        self.target.schema()
    }

    pub(crate) fn codec(&self) -> Option<&KeyCodec> {
        self.target.codec()
    }

    /// Takes one put into the active memtable, as one change: no rotation, log entry or
    /// snapshot ever ends inside it.
    pub(crate) fn admit(&self, put: Vec<PreparedBatch>) -> Result<Admission> {
        let more = Fill::of_put(&put);
        let needed = memory_of(&put);
        let held = self.put_lock.lock();
        self.cursors.check()?;
        if self.closing.load(Ordering::Acquire) {
            return Err(self.closed());
        }
        if self.unflushed_bytes() + needed > self.options.max_unflushed_size && self.holds_rows() {
            self.rotate(&held);
            return Ok(Admission::Full(put));
        }
        let fill = self.fill(&self.tiers.load().active);
        if fill.is_full(&self.options) || fill.would_overflow(&more, &self.options) {
            self.rotate(&held);
        }
        let tiers = self.tiers.load();
        let memtable = Arc::clone(&tiers.active);
        memtable.append(put)?;
        let ticket = Ticket {
            end: memtable.batches(),
            memtable,
        };
        if self.fill(&ticket.memtable).is_full(&self.options) {
            self.rotate(&held);
        }
        drop(held);
        self.counters.note_put(more.rows);
        self.apply_index(&ticket, more.rows);
        self.wake_append.notify_one();
        Ok(Admission::Taken(ticket))
    }

    /// Applies a small put's indexes on the calling thread. Only while no older memtable
    /// lags behind: rows of a newer memtable must never be visible before those of an older.
    fn apply_index(&self, ticket: &Ticket, rows: usize) {
        let older_is_done = || {
            self.tiers
                .load()
                .memtables()
                .take_while(|memtable| memtable.generation() < ticket.memtable.generation())
                .all(|memtable| memtable.indexed_batches() == memtable.batches())
        };
        if rows <= INLINE_INDEX_ROWS && older_is_done() {
            self.index(&ticket.memtable);
        } else {
            self.wake_index.notify_one();
        }
    }

    /// Brings the indexes of one memtable up to its rows; a failure ends the writer,
    /// because an index cannot take half a batch back.
    pub(crate) fn index(&self, memtable: &Memtable) {
        let span = tracing::debug_span!(
            "index_apply",
            shard = %self.target.layout().shard(),
            generation = memtable.generation()
        );
        let _entered = span.enter();
        match memtable.apply_index() {
            Ok(()) => self.cursors.ring(),
            Err(error) => self.fail(error.context("index apply")),
        }
    }

    /// How often a flush has been reported as failing.
    pub(crate) fn flush_failures(&self) -> u64 {
        self.flush_failure.lock().count
    }

    pub(crate) fn report_flush_failure(&self, generation: u64, error: Error) {
        let mut failure = self.flush_failure.lock();
        failure.count += 1;
        failure.last = Some((generation, error));
    }

    /// Ends the writer for a reason that every later call will be given.
    pub(crate) fn fail(&self, error: Error) {
        tracing::error!(
            shard = %self.target.layout().shard(),
            generation = self.tiers.load().active.generation(),
            wal_position = self.counters.last_position(),
            kind = %error.kind(),
            %error,
            "the writer ends"
        );
        self.cursors.fail(error);
    }

    /// Seals the active memtable if it has rows. Returns the generation that everything
    /// put so far ends in, or `None` if all of it is flushed.
    pub(crate) fn freeze(&self) -> Result<Option<u64>> {
        let held = self.put_lock.lock();
        self.cursors.check()?;
        self.rotate(&held);
        Ok(self
            .tiers
            .load()
            .frozen
            .last()
            .map(|last| last.generation()))
    }

    /// Seals the active memtable if the rule says so; the timer's way in.
    pub(crate) fn freeze_if_full(&self) {
        let held = self.put_lock.lock();
        if self.fill(&self.tiers.load().active).is_full(&self.options) {
            self.rotate(&held);
        }
    }

    /// Refuses puts from now on.
    pub(crate) fn refuse_puts(&self) {
        let _held = self.put_lock.lock();
        self.closing.store(true, Ordering::Release);
    }

    /// Seals the active memtable if it has rows; the caller holds the put lock.
    fn rotate(&self, _held: &MutexGuard<'_, ()>) {
        let tiers = self.tiers.load_full();
        if tiers.active.rows() == 0 {
            return;
        }
        let span = tracing::debug_span!(
            "freeze",
            shard = %self.target.layout().shard(),
            generation = tiers.active.generation(),
            wal_position = self.counters.last_position(),
            rows = tiers.active.rows()
        );
        let _entered = span.enter();
        let generation = tiers.active.generation() + 1;
        let next = Arc::new(Memtable::new(
            Arc::clone(self.schema()),
            self.codec().cloned(),
            generation,
            tiers.active.global_end(),
        ));
        // A publish by the flush task may come between; `rcu` applies the change to what it left.
        self.tiers.rcu(|tiers| tiers.frozen_with(Arc::clone(&next)));
        self.wake_index.notify_one();
        self.wake_append.notify_one();
        self.wake_flush.notify_one();
    }

    fn fill(&self, memtable: &Memtable) -> Fill {
        Fill::of(memtable, &self.log_book)
    }

    /// Bytes held in memory: memtables with their indexes, and the log entry on its way.
    /// Rows that wait for the log are those of the memtable and count once.
    pub(crate) fn unflushed_bytes(&self) -> usize {
        let memtables: u64 = self
            .tiers
            .load()
            .memtables()
            .map(|memtable| memtable.bytes() + memtable.index_bytes())
            .sum();
        memtables as usize + self.entry_bytes.load(Ordering::Relaxed)
    }

    /// Whether waiting can make room: an empty shard takes any put that a memtable holds.
    pub(crate) fn holds_rows(&self) -> bool {
        let tiers = self.tiers.load();
        tiers.active.rows() > 0 || !tiers.frozen.is_empty()
    }

    /// Bytes of rows that wait for the log.
    pub(crate) fn unlogged_bytes(&self) -> u64 {
        let durable = self.cursors.durable();
        self.tiers
            .load()
            .memtables()
            .map(|memtable| memtable.bytes() - memtable.bytes_of(memtable.local(durable)))
            .sum()
    }

    /// The durable cursor as a reader must respect it, `None` where rows may be read before
    /// they are in the log.
    pub(crate) fn durable_bound(&self) -> Option<u64> {
        self.options.durable_write.then(|| self.cursors.durable())
    }

    /// Waits until the rows of a put can be read.
    pub(crate) async fn wait_visible(&self, ticket: &Ticket) -> Result<()> {
        self.cursors
            .wait_for(|| {
                (ticket.memtable.visible_batches(self.durable_bound()) >= ticket.end).then_some(())
            })
            .await
    }

    pub(crate) fn closed(&self) -> Error {
        Error::new(
            crate::error::ErrorKind::Closed,
            format!(
                "table '{}' was closed; open it again",
                self.schema().table()
            ),
        )
    }
}

/// The memory that a put will take, an estimate for its part of the key index included.
pub(crate) fn memory_of(put: &[PreparedBatch]) -> usize {
    /// A row of the key index, at a moment when its hash table has just grown.
    const INDEX_BYTES_PER_ROW: usize = 40;
    put.iter()
        .map(|batch| {
            let index = match &batch.keys {
                None => 0,
                Some(keys) => batch.rows.num_rows() * INDEX_BYTES_PER_ROW + keys.bytes(),
            };
            batch.bytes + index
        })
        .sum()
}
