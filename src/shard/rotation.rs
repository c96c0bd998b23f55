//! When a memtable is full: the one rule, asked by the put path, by the timer and by replay.

use std::time::Duration;

use crate::clock;
use crate::memtable::{Memtable, PreparedBatch};
use crate::options::TableOptions;
use crate::shard::log_book::LogBook;
use crate::wal::MAX_JOINED_ROWS;

/// How much a memtable holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Fill {
    /// Rows, replaced ones and tombstones included.
    pub(crate) rows: usize,
    /// Bytes of the rows.
    pub(crate) bytes: usize,
    /// Batches that its log entries hold or will hold.
    pub(crate) batches: usize,
    /// Its log entries.
    pub(crate) wal_entries: usize,
    /// Time since its first row.
    pub(crate) age: Duration,
}

impl Fill {
    /// What a memtable holds, its rows that still wait for the log counted as they will be
    /// written.
    pub(crate) fn of(memtable: &Memtable, log_book: &LogBook) -> Self {
        let span = log_book.span(memtable.generation());
        let rows = memtable.rows() as usize;
        let waiting_rows = rows.saturating_sub(span.rows);
        Self {
            rows,
            bytes: memtable.bytes() as usize,
            batches: span.batches + joined(memtable.batches() as usize, waiting_rows),
            wal_entries: span.entries,
            age: memtable
                .oldest_row_at()
                .map_or_else(Default::default, |born| clock::now() - born),
        }
    }

    /// What a put adds to a memtable.
    pub(crate) fn of_put(put: &[PreparedBatch]) -> Self {
        let rows = put.iter().map(|batch| batch.rows.num_rows()).sum();
        Self {
            rows,
            bytes: put.iter().map(|batch| batch.bytes).sum(),
            batches: joined(put.len(), rows),
            ..Self::default()
        }
    }

    /// Whether the memtable is to be frozen.
    pub(crate) fn is_full(&self, options: &TableOptions) -> bool {
        self.rows > 0
            && (self.rows >= options.max_memtable_rows
                || self.bytes >= options.max_memtable_size
                || self.batches >= options.max_memtable_batches
                || self.wal_entries >= options.max_memtable_wal_entries
                || self.age >= options.max_memtable_age)
    }

    /// Whether `more` would take the memtable beyond a limit, so that it must be frozen first.
    pub(crate) fn would_overflow(&self, more: &Self, options: &TableOptions) -> bool {
        self.rows > 0
            && (self.rows + more.rows > options.max_memtable_rows
                || self.bytes + more.bytes > options.max_memtable_size
                || self.batches + more.batches > options.max_memtable_batches)
    }
}

/// The most batches that the log makes of `batches` with `rows` in all: two neighbours that
/// it leaves apart have more rows than it joins.
fn joined(batches: usize, rows: usize) -> usize {
    batches.min(2 * rows / MAX_JOINED_ROWS + 1).min(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_limit_counts_and_an_empty_memtable_is_never_full() {
        let options = TableOptions::default();
        let one = Fill {
            rows: 1,
            ..Fill::default()
        };
        assert!(!one.is_full(&options));
        for full in [
            Fill {
                rows: options.max_memtable_rows,
                ..one
            },
            Fill {
                bytes: options.max_memtable_size,
                ..one
            },
            Fill {
                batches: options.max_memtable_batches,
                ..one
            },
            Fill {
                wal_entries: options.max_memtable_wal_entries,
                ..one
            },
            Fill {
                age: options.max_memtable_age,
                ..one
            },
        ] {
            assert!(full.is_full(&options), "{full:?}");
            assert!(!Fill { rows: 0, ..full }.is_full(&options));
        }
    }
}
