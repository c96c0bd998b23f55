//! What an operator reads, also and above all from a writer that has ended.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::shard::state::ShardState;

/// Counts over the life of one writer.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    puts: AtomicU64,
    rows: AtomicU64,
    appends: AtomicU64,
    appended_bytes: AtomicU64,
    last_position: AtomicU64,
    flushes: AtomicU64,
    flushed_rows: AtomicU64,
    backpressure_waits: AtomicU64,
}

impl Counters {
    pub(crate) fn note_put(&self, rows: usize) {
        self.puts.fetch_add(1, Ordering::Relaxed);
        self.rows.fetch_add(rows as u64, Ordering::Relaxed);
    }

    pub(crate) fn note_append(&self, position: u64, bytes: usize) {
        self.appends.fetch_add(1, Ordering::Relaxed);
        self.appended_bytes
            .fetch_add(bytes as u64, Ordering::Relaxed);
        self.last_position.fetch_max(position, Ordering::Relaxed);
    }

    /// The position of the newest entry that this writer knows of.
    pub(crate) fn last_position(&self) -> u64 {
        self.last_position.load(Ordering::Relaxed)
    }

    /// The position of the newest entry that is known before this writer's first append.
    pub(crate) fn start_after(&self, position: u64) {
        self.last_position.fetch_max(position, Ordering::Relaxed);
    }

    pub(crate) fn note_flush(&self, rows: u64) {
        self.flushes.fetch_add(1, Ordering::Relaxed);
        self.flushed_rows.fetch_add(rows, Ordering::Relaxed);
    }

    pub(crate) fn note_backpressure(&self) {
        self.backpressure_waits.fetch_add(1, Ordering::Relaxed);
    }
}

/// The state of a table's writer at one moment. Readable also after the writer ended.
#[non_exhaustive]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableStats {
    /// The epoch under which this writer claimed the shard.
    pub writer_epoch: u64,
    /// The generation that the active memtable will become.
    pub active_generation: u64,
    /// Rows in the active memtable, replaced ones and tombstones included.
    pub active_rows: u64,
    /// Batches in the active memtable.
    pub active_batches: u64,
    /// Bytes of rows in the active memtable.
    pub active_bytes: u64,
    /// Sealed memtables that wait for their flush.
    pub frozen_memtables: u64,
    /// Generations that a query reads.
    pub generations: u64,
    /// Batches that this writer has in the log, replayed ones included; exclusive.
    pub durable_batch_count: u64,
    /// Batches that this writer had taken before the active memtable began.
    pub global_offset: u64,
    /// Batches that still owe an append to the log.
    pub unlogged_batches: u64,
    /// Bytes of rows that still owe an append to the log.
    pub unlogged_bytes: u64,
    /// The next position of the log.
    pub next_wal_position: u64,
    /// Bytes of memory that count towards `max_unflushed_size`.
    pub unflushed_bytes: u64,
    /// Puts taken by this writer.
    pub puts: u64,
    /// Rows taken by this writer.
    pub rows: u64,
    /// Log entries written by this writer.
    pub wal_appends: u64,
    /// Bytes of these entries.
    pub wal_bytes: u64,
    /// Memtables flushed by this writer.
    pub flushes: u64,
    /// Rows of these memtables.
    pub flushed_rows: u64,
    /// Puts that had to wait for memory.
    pub backpressure_waits: u64,
    /// Why the writer ended, if it did.
    pub failure: Option<String>,
}

/// Reads the statistics of a writer.
pub(crate) fn read(state: &ShardState) -> TableStats {
    let tiers = state.tiers.load();
    let active = &tiers.active;
    let durable = state.cursors.durable();
    let counters = &state.counters;
    let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    TableStats {
        writer_epoch: state.writer_epoch,
        active_generation: active.generation(),
        active_rows: active.rows(),
        active_batches: active.batches(),
        active_bytes: active.bytes(),
        frozen_memtables: tiers.frozen.len() as u64,
        generations: tiers.generations.len() as u64,
        durable_batch_count: durable,
        global_offset: active.global_offset(),
        unlogged_batches: active.global_end().saturating_sub(durable),
        unlogged_bytes: state.unlogged_bytes(),
        next_wal_position: get(&counters.last_position) + 1,
        unflushed_bytes: state.unflushed_bytes() as u64,
        puts: get(&counters.puts),
        rows: get(&counters.rows),
        wal_appends: get(&counters.appends),
        wal_bytes: get(&counters.appended_bytes),
        flushes: get(&counters.flushes),
        flushed_rows: get(&counters.flushed_rows),
        backpressure_waits: get(&counters.backpressure_waits),
        failure: state.cursors.failure().map(ToString::to_string),
    }
}
