//! Lance's own plan for reading a generation or the base table.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray};
use datafusion::arrow::compute::concat;
use datafusion::arrow::datatypes::UInt64Type;
use datafusion::logical_expr::Expr;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::projection::ProjectionExec;
use futures::TryStreamExt;
use lance::Dataset;
use lance_core::ROW_ADDR;

use crate::error::{Error, Result};
use crate::index::key::{KeyCodec, Keys, SortedKeys};

/// A plan that reads the live rows of `dataset` that satisfy `filter`, in the order of
/// their addresses, with exactly `columns` in that order; after them, when
/// `with_row_offsets` is set, `_rowaddr`: the row's physical address, `fragment << 32 |
/// offset`, also for a table with stable row ids. In a generation it is the row's offset.
///
/// An address names a row of this version of `dataset` only.
pub(crate) async fn scan_plan(
    dataset: &Dataset,
    columns: &[String],
    filter: Option<Expr>,
    with_row_offsets: bool,
) -> Result<Arc<dyn ExecutionPlan>> {
    let mut scanner = dataset.scan();
    // A plan without any column would not count its rows.
    let counts_only = columns.is_empty() && !with_row_offsets;
    if columns.is_empty() {
        scanner.empty_project()?;
    } else {
        scanner.project(columns)?;
    }
    if with_row_offsets || counts_only {
        scanner.with_row_address();
    }
    if let Some(filter) = filter {
        scanner.filter_expr(filter);
    }
    scanner.scan_in_order(true);
    let plan = scanner.create_plan().await?;
    if counts_only {
        let nothing: Vec<(Arc<dyn PhysicalExpr>, String)> = Vec::new();
        return Ok(Arc::new(ProjectionExec::try_new(nothing, plan)?));
    }
    let schema = plan.schema();
    let wanted = columns
        .iter()
        .map(String::as_str)
        .chain(with_row_offsets.then_some(ROW_ADDR));
    if !schema
        .fields()
        .iter()
        .map(|field| field.name().as_str())
        .eq(wanted)
    {
        return Err(Error::internal(format!(
            "Lance planned the columns {schema} for a scan of {columns:?}"
        )));
    }
    Ok(plan)
}

/// The address of the newest row of each key among the live rows of `dataset`.
///
/// # Errors
///
/// `Invalid` when a key is NULL, `Unsupported` when the keys take more than 2 GiB.
pub(crate) async fn key_rows(dataset: &Dataset, codec: &KeyCodec) -> Result<SortedKeys> {
    let mut scanner = dataset.scan();
    scanner.project(&codec.names())?.with_row_address();
    let mut batches = scanner.try_into_stream().await?;
    let mut fixed = Vec::new();
    let mut bytes: Vec<ArrayRef> = Vec::new();
    let mut key_bytes = 0_usize;
    let mut rows = Vec::new();
    while let Some(batch) = batches.try_next().await? {
        let (addresses, columns) = match batch.columns().split_last() {
            Some((last, columns)) => (last.as_primitive_opt::<UInt64Type>(), columns),
            None => (None, &[][..]),
        };
        let addresses =
            addresses.ok_or_else(|| Error::internal("a scan of keys has no row addresses"))?;
        rows.extend_from_slice(addresses.values());
        match codec.encode(columns)? {
            Keys::Fixed(keys) => fixed.extend(keys),
            Keys::Bytes(keys) => {
                key_bytes += keys.value_data().len();
                if i32::try_from(key_bytes).is_err() {
                    return Err(Error::unsupported(format!(
                        "the keys of '{}' take more than 2 GiB, which an index in memory cannot hold; \
                         use a shorter key",
                        dataset.uri()
                    )));
                }
                bytes.push(Arc::new(keys));
            }
        }
    }
    let keys = if codec.is_fixed() {
        Keys::Fixed(fixed)
    } else {
        let parts: Vec<_> = bytes.iter().map(|array| array.as_ref()).collect();
        match parts.is_empty() {
            true => Keys::Bytes(Vec::<&[u8]>::new().into()),
            false => Keys::Bytes(concat(&parts)?.as_binary::<i32>().clone()),
        }
    };
    Ok(SortedKeys::new(keys, rows))
}
