//! When a memtable is full: the one rule, asked by the put path, by the timer and by replay.

use std::time::Duration;

use crate::options::TableOptions;

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
