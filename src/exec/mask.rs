//! The step that every tier ends with: drop dead rows, filter, project.

use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, BooleanBufferBuilder, RecordBatch, RecordBatchOptions,
};
use datafusion::arrow::compute::{FilterBuilder, cast, filter_record_batch};
use datafusion::arrow::datatypes::{SchemaRef, UInt64Type};
use datafusion::physical_plan::metrics::RecordOutput;
use lance_core::ROW_ADDR;
use roaring::RoaringTreemap;

use super::ScanRequest;
use super::metrics::TierMetrics;
use super::tier::Tier;
use crate::error::{Error, Result};

/// Turns what a tier has read into rows of the scan's output.
#[derive(Debug, Clone)]
pub(super) struct RowStep {
    request: Arc<ScanRequest>,
    metrics: TierMetrics,
}

impl RowStep {
    pub(super) fn new(request: &Arc<ScanRequest>, metrics: &TierMetrics) -> Self {
        Self {
            request: Arc::clone(request),
            metrics: metrics.clone(),
        }
    }

    /// `columns` are those of [`ScanRequest::read`], of `rows` rows; `live` says which to
    /// keep, all when it is `None`. The buffers are passed on when nothing is dropped.
    pub(super) fn apply(
        &self,
        columns: Vec<ArrayRef>,
        rows: usize,
        live: Option<&BooleanArray>,
    ) -> Result<RecordBatch> {
        let _timer = self.metrics.baseline.elapsed_compute().timer();
        self.metrics.rows_read.add(rows);
        let (columns, kept) = match live {
            None => (columns, rows),
            Some(live) => {
                let mut kept = FilterBuilder::new(live);
                if columns.len() > 1 {
                    kept = kept.optimize();
                }
                let kept = kept.build();
                let columns = columns
                    .iter()
                    .map(|column| kept.filter(column))
                    .collect::<Result<Vec<_>, _>>()?;
                (columns, kept.count())
            }
        };
        self.metrics.rows_masked.add(rows - kept);
        let mut batch = under(self.request.read_schema(), columns, kept)?;
        if let Some(predicate) = self.request.predicate() {
            let holds = predicate.evaluate(&batch)?.into_array(kept)?;
            let holds = holds.as_boolean_opt().ok_or_else(|| {
                Error::internal(format!("the filter '{predicate}' does not give a boolean"))
            })?;
            if holds.null_count() > 0 || holds.true_count() < kept {
                batch = filter_record_batch(&batch, holds)?;
            }
            self.metrics.rows_filtered.add(kept - batch.num_rows());
        }
        let columns = self
            .request
            .output()
            .iter()
            .map(|&column| Arc::clone(batch.column(column)))
            .collect();
        let batch = under(self.request.projected(), columns, batch.num_rows())?;
        Ok(batch.record_output(&self.metrics.baseline))
    }

    /// The same for a batch of Lance, whose row addresses say which rows are dead.
    pub(super) fn apply_lance(
        &self,
        batch: &RecordBatch,
        tier: &Tier,
        dead: Option<&RoaringTreemap>,
    ) -> Result<RecordBatch> {
        let live = match dead {
            None => None,
            Some(dead) => live_rows(batch, tier, dead)?,
        };
        let columns = self
            .request
            .read_names()
            .iter()
            .map(|name| {
                batch.column_by_name(name).map(Arc::clone).ok_or_else(|| {
                    Error::corrupt(format!("{tier}: the stored rows have no column '{name}'"))
                })
            })
            .collect::<Result<Vec<_>>>()?;
        self.apply(columns, batch.num_rows(), live.as_ref())
    }
}

/// Which rows of a Lance batch are not dead; `None` for all.
fn live_rows(
    batch: &RecordBatch,
    tier: &Tier,
    dead: &RoaringTreemap,
) -> Result<Option<BooleanArray>> {
    let addresses = batch
        .column_by_name(ROW_ADDR)
        .and_then(|column| column.as_primitive_opt::<UInt64Type>())
        .ok_or_else(|| Error::internal(format!("{tier}: Lance gave no row addresses")))?
        .values();
    let Some(&first) = addresses.first() else {
        return Ok(None);
    };
    // A scan without a filter reads rows in order and leaves none out.
    if (first..).zip(addresses).all(|(next, found)| next == *found) {
        let first = tier.row_of_address(first);
        return Ok(without_dead(None, first, addresses.len(), dead));
    }
    let rows = || {
        addresses
            .iter()
            .map(|address| tier.row_of_address(*address))
    };
    let (Some(least), Some(most)) = (rows().min(), rows().max()) else {
        return Ok(None);
    };
    // A batch is a run of neighbours: most often none of them is dead.
    let below = least.checked_sub(1).map_or(0, |row| dead.rank(row));
    if dead.rank(most) == below {
        return Ok(None);
    }
    let live: BooleanArray = rows().map(|row| Some(!dead.contains(row))).collect();
    Ok((live.true_count() < live.len()).then_some(live))
}

/// Which of the `rows` rows from `first` on are in `live` (all when it is `None`) and not
/// dead; `None` for all. It takes a step per dead row, not one per row.
pub(super) fn without_dead(
    live: Option<BooleanArray>,
    first: u64,
    rows: usize,
    dead: &RoaringTreemap,
) -> Option<BooleanArray> {
    let mut dead = dead.iter();
    dead.advance_to(first);
    let end = first + rows as u64;
    let mut dead = dead.take_while(|row| *row < end).peekable();
    if dead.peek().is_none() {
        return live;
    }
    let mut bits = BooleanBufferBuilder::new(rows);
    match live {
        None => bits.append_n(rows, true),
        Some(live) => bits.append_buffer(live.values()),
    }
    dead.for_each(|row| bits.set_bit((row - first) as usize, false));
    Some(BooleanArray::new(bits.finish(), None))
}

/// `columns` under the fields of `schema`: Lance and a memtable know them with other
/// metadata and nullability, inside nested types too.
fn under(schema: &SchemaRef, columns: Vec<ArrayRef>, rows: usize) -> Result<RecordBatch> {
    let columns = columns
        .into_iter()
        .zip(schema.fields())
        .map(
            |(column, field)| match column.data_type() == field.data_type() {
                true => Ok(column),
                false => Ok(cast(&column, field.data_type())?),
            },
        )
        .collect::<Result<Vec<_>>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    Ok(RecordBatch::try_new_with_options(
        Arc::clone(schema),
        columns,
        &options,
    )?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(live: Option<BooleanArray>) -> Option<Vec<usize>> {
        live.map(|live| live.values().set_indices().collect())
    }

    #[test]
    fn dead_rows_are_taken_out_of_the_range_they_lie_in() {
        let dead = RoaringTreemap::from_iter([2, 9, 10, 12, (1 << 32) + 10]);
        assert_eq!(set(without_dead(None, 3, 6, &dead)), None);
        assert_eq!(set(without_dead(None, 9, 4, &dead)), Some(vec![2]));
        assert_eq!(
            set(without_dead(None, 1 << 32, 11, &dead)).map(|s| s.len()),
            Some(10)
        );
        let own = BooleanArray::from(vec![true, false, true, true]);
        assert_eq!(
            set(without_dead(Some(own.clone()), 3, 4, &dead)),
            set(Some(own.clone()))
        );
        assert_eq!(set(without_dead(Some(own), 10, 4, &dead)), Some(vec![3]));
    }
}
