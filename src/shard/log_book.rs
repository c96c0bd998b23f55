//! Which log entries hold which memtable.

use std::collections::BTreeMap;

use parking_lot::Mutex;

/// The log entries of one memtable.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct LogSpan {
    /// Position of the first entry, 0 when there is none yet.
    pub(crate) first: u64,
    /// Position of the last entry, 0 when there is none yet.
    pub(crate) last: u64,
    /// Number of entries.
    pub(crate) entries: usize,
    /// Batches in these entries.
    pub(crate) batches: usize,
    /// Rows in these entries.
    pub(crate) rows: usize,
}

/// The spans of all memtables that are not flushed yet, by generation.
#[derive(Debug, Default)]
pub(crate) struct LogBook {
    spans: Mutex<BTreeMap<u64, LogSpan>>,
}

impl LogBook {
    /// Notes an entry of the memtable of `generation`.
    pub(crate) fn note(&self, generation: u64, position: u64, batches: usize, rows: usize) {
        let mut spans = self.spans.lock();
        let span = spans.entry(generation).or_default();
        if span.entries == 0 {
            span.first = position;
        }
        span.last = position;
        span.entries += 1;
        span.batches += batches;
        span.rows += rows;
    }

    /// The entries of the memtable of `generation`.
    pub(crate) fn span(&self, generation: u64) -> LogSpan {
        self.spans
            .lock()
            .get(&generation)
            .copied()
            .unwrap_or_default()
    }

    /// Forgets a memtable that was flushed.
    pub(crate) fn forget(&self, generation: u64) {
        self.spans.lock().remove(&generation);
    }
}
