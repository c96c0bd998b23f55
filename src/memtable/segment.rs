//! A piece of the log: consecutive rows in one record batch.

use std::ops::Range;
use std::sync::Arc;

use datafusion::arrow::array::{Array, AsArray, BooleanArray, RecordBatch};
use datafusion::arrow::datatypes::DataType;

/// One batch of rows, and the position of the first.
#[derive(Debug)]
pub(crate) struct Segment {
    /// The position of the first row in the memtable.
    pub(crate) start: u32,
    /// The rows, in row form.
    pub(crate) batch: RecordBatch,
    pub(super) tombstones: usize,
    pub(super) bytes: usize,
}

impl Segment {
    /// The position after the last row.
    pub(crate) fn end(&self) -> u32 {
        self.start + self.batch.num_rows() as u32
    }

    /// Which rows are tombstones: `_tombstone` is the last column of the row form.
    pub(super) fn tombstone_flags(&self) -> Option<&BooleanArray> {
        let last = self.batch.columns().last()?;
        (*last.data_type() == DataType::Boolean).then(|| last.as_boolean())
    }

    /// The part of the segment that lies within `rows`; `None` when there is none.
    pub(super) fn within(self: &Arc<Self>, rows: &Range<u32>) -> Option<Arc<Self>> {
        let start = self.start.max(rows.start);
        let end = self.end().min(rows.end);
        if start >= end {
            return None;
        }
        if start == self.start && end == self.end() {
            return Some(Arc::clone(self));
        }
        let len = (end - start) as usize;
        let mut part = Self {
            start,
            batch: self.batch.slice((start - self.start) as usize, len),
            tombstones: self.tombstones,
            bytes: self.bytes / self.batch.num_rows() * len,
        };
        if part.tombstones > 0 {
            part.tombstones = part.tombstone_flags().map_or(0, BooleanArray::true_count);
        }
        Some(Arc::new(part))
    }
}
