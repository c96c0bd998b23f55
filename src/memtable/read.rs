//! What one snapshot sees of one memtable: fixed for ever.

use std::collections::HashMap;
use std::ops::Bound;
use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, BooleanArray, RecordBatch, RecordBatchOptions, new_empty_array,
};
use datafusion::arrow::buffer::BooleanBuffer;
use datafusion::arrow::compute::interleave;
use roaring::{RoaringBitmap, RoaringTreemap};

use super::memtable::Memtable;
use super::segment::Segment;
use crate::error::{Error, Result};
use crate::index::key::{KeyMap, KeyRef, Keys, SortedKeys};

/// The first rows of a memtable.
#[derive(Debug, Clone)]
pub(crate) struct MemtableView {
    memtable: Arc<Memtable>,
    rows: u32,
    segments: Arc<[Arc<Segment>]>,
}

impl MemtableView {
    pub(super) fn new(memtable: Arc<Memtable>, rows: u32, segments: Vec<Arc<Segment>>) -> Self {
        Self {
            memtable,
            rows,
            segments: segments.into(),
        }
    }

    /// The memtable that is seen.
    pub(crate) fn memtable(&self) -> &Arc<Memtable> {
        &self.memtable
    }

    /// The generation of the memtable that is seen.
    pub(crate) fn generation(&self) -> u64 {
        self.memtable.generation()
    }

    /// Visible rows, replaced ones and tombstones included.
    pub(crate) fn rows(&self) -> u32 {
        self.rows
    }

    /// The visible rows in order, in row form.
    pub(crate) fn segments(&self) -> &[Arc<Segment>] {
        &self.segments
    }

    /// Which rows of a segment of this view a reader of the table sees: not the
    /// replaced ones, not tombstones. `None` when it sees all.
    pub(crate) fn live(&self, segment: &Segment) -> Option<BooleanArray> {
        let keys = self.memtable.keys()?;
        let newest = keys.live(segment.start..segment.end(), self.rows);
        let kept = match segment.tombstones {
            0 => None,
            _ => segment.tombstone_flags().map(|flags| !flags.values()),
        };
        let live: BooleanBuffer = match (newest, kept) {
            (Some(newest), Some(kept)) => &newest & &kept,
            (one, other) => one.or(other)?,
        };
        Some(BooleanArray::new(live, None))
    }

    /// How many rows a reader of the table sees.
    pub(crate) fn live_rows(&self) -> u64 {
        self.segments
            .iter()
            .map(|segment| match self.live(segment) {
                Some(live) => live.true_count() as u64,
                None => segment.batch.num_rows() as u64,
            })
            .sum()
    }

    /// The same but for the rows in `dead`.
    pub(crate) fn live_rows_without(&self, dead: Option<&RoaringTreemap>) -> u64 {
        let hidden = dead.map_or(0, |dead| {
            dead.iter()
                .filter_map(|row| u32::try_from(row).ok())
                .filter(|&row| self.is_live(row))
                .count()
        });
        self.live_rows() - hidden as u64
    }

    fn is_live(&self, row: u32) -> bool {
        let newest = |keys: &KeyMap| keys.is_live(row, self.rows);
        self.memtable.keys().is_none_or(newest) && !self.is_tombstone(row)
    }

    /// The newest visible row of a key, be it a tombstone.
    pub(crate) fn lookup(&self, key: KeyRef<'_>) -> Option<u32> {
        self.memtable.keys()?.newest(key, self.rows)
    }

    /// Whether a visible row deletes its key.
    pub(crate) fn is_tombstone(&self, row: u32) -> bool {
        let Some((segment, offset)) = self.locate(row) else {
            return false;
        };
        let segment = &self.segments[segment];
        segment.tombstones > 0
            && segment
                .tombstone_flags()
                .is_some_and(|flags| flags.value(offset))
    }

    /// The newest visible row of each key within the bounds, tombstones included, in
    /// ascending order of rows.
    pub(crate) fn range(&self, lower: Bound<KeyRef<'_>>, upper: Bound<KeyRef<'_>>) -> Vec<u32> {
        self.memtable
            .keys()
            .map(|keys| keys.range(lower, upper, self.rows))
            .unwrap_or_default()
    }

    /// The given columns of the row form, of the given rows in the given order.
    ///
    /// # Errors
    ///
    /// `Internal` for a row or a column that is not there.
    pub(crate) fn take(&self, rows: &[u32], columns: &[usize]) -> Result<RecordBatch> {
        let mut sources: Vec<&Segment> = Vec::new();
        let mut source_of = HashMap::new();
        let mut places = Vec::with_capacity(rows.len());
        for &row in rows {
            let (segment, offset) = self.locate(row).ok_or_else(|| {
                Error::internal(format!(
                    "table '{}': row {row} of generation {} is not visible",
                    self.memtable.schema().table(),
                    self.memtable.generation()
                ))
            })?;
            let source = *source_of.entry(segment).or_insert_with(|| {
                sources.push(&self.segments[segment]);
                sources.len() - 1
            });
            places.push((source, offset));
        }
        let schema = Arc::new(self.memtable.schema().rows().project(columns)?);
        let taken = columns
            .iter()
            .zip(schema.fields())
            .map(|(&column, field)| -> Result<ArrayRef> {
                let arrays: Vec<&dyn Array> = sources
                    .iter()
                    .map(|source| source.batch.column(column).as_ref())
                    .collect();
                Ok(match (arrays.as_slice(), places.as_slice()) {
                    ([], _) => new_empty_array(field.data_type()),
                    ([only], [(_, offset)]) => only.slice(*offset, 1),
                    _ => interleave(&arrays, &places)?,
                })
            })
            .collect::<Result<Vec<_>>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
        Ok(RecordBatch::try_new_with_options(schema, taken, &options)?)
    }

    /// Hands out the key of each visible row from `from_row` on, in order.
    pub(crate) fn for_each_key(&self, from_row: u32, f: impl FnMut(u32, KeyRef<'_>)) {
        if let Some(keys) = self.memtable.keys() {
            keys.for_each_key(from_row..self.rows, f);
        }
    }

    /// The visible rows that a newer visible row replaces.
    pub(crate) fn replaced(&self) -> RoaringBitmap {
        match self.memtable.keys() {
            Some(keys) if keys.any_replaced(self.rows) => (0..self.rows)
                .filter(|&row| !keys.is_live(row, self.rows))
                .collect(),
            _ => RoaringBitmap::new(),
        }
    }

    /// The visible rows that are tombstones, replaced ones included.
    pub(crate) fn tombstones(&self) -> RoaringBitmap {
        let with_any = self
            .segments
            .iter()
            .filter(|segment| segment.tombstones > 0);
        with_any
            .filter_map(|segment| Some((segment.start, segment.tombstone_flags()?)))
            .flat_map(|(start, flags)| {
                flags
                    .values()
                    .set_indices()
                    .map(move |offset| start + offset as u32)
            })
            .collect()
    }

    /// The newest visible row of each key, tombstones included, by key.
    pub(crate) fn sorted_keys(&self) -> SortedKeys {
        match self.memtable.keys() {
            Some(keys) => keys.sorted(self.rows),
            None => SortedKeys::from_sorted(Keys::Fixed(Vec::new()), Vec::new()),
        }
    }

    /// The segment of a visible row, and the row's place in it.
    fn locate(&self, row: u32) -> Option<(usize, usize)> {
        let after = self
            .segments
            .partition_point(|segment| segment.start <= row);
        let segment = after.checked_sub(1)?;
        let offset = row - self.segments.get(segment)?.start;
        (row < self.rows).then_some((segment, offset as usize))
    }
}
