//! INSERT: the rows of one statement become one put.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::array::{Array, ArrayRef, RecordBatch, RecordBatchOptions, new_null_array};
use datafusion::arrow::compute::{CastOptions, cast_with_options};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::datasource::sink::DataSink;
use datafusion::error::Result as DataFusionResult;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::metrics::{
    Count, ExecutionPlanMetricsSet, MetricBuilder, MetricsSet,
};
use datafusion::physical_plan::{DisplayAs, DisplayFormatType};
use futures::TryStreamExt;

use crate::error::{Error, Result};
use crate::schema::column_names;
use crate::table::MemWalTable;

/// Writes what a plan produces into a table, all of it or nothing.
#[derive(Debug)]
pub(crate) struct MemWalSink {
    name: String,
    table: MemWalTable,
    /// The table's columns, all nullable: the check for nulls is ours, since its message
    /// names table and column.
    accepted: SchemaRef,
    /// Where each column of the table lies in the input; `None` where it is left out.
    sources: Vec<Option<usize>>,
    metrics: ExecutionPlanMetricsSet,
    rows_written: Count,
}

impl MemWalSink {
    /// A sink for rows of the schema `input`, whose columns are matched by name.
    pub(crate) fn try_new(name: &str, table: MemWalTable, input: &Schema) -> Result<Self> {
        let schema = table.schema();
        if let Some(unknown) = input
            .fields()
            .iter()
            .find(|field| schema.field_with_name(field.name()).is_err())
        {
            return Err(Error::invalid(format!(
                "table '{name}' has no column '{}'; its columns are {}",
                unknown.name(),
                column_names(&schema)
            )));
        }
        let sources = schema
            .fields()
            .iter()
            .map(|field| match input.index_of(field.name()) {
                Ok(source) => Ok(Some(source)),
                Err(_) if field.is_nullable() => Ok(None),
                Err(_) => Err(Error::invalid(format!(
                    "table '{name}': the column '{}' is NOT NULL and the statement gives it no value",
                    field.name()
                ))),
            })
            .collect::<Result<Vec<_>>>()?;
        let nullable: Vec<Field> = schema
            .fields()
            .iter()
            .map(|field| field.as_ref().clone().with_nullable(true))
            .collect();
        let metrics = ExecutionPlanMetricsSet::new();
        Ok(Self {
            name: name.to_string(),
            accepted: Arc::new(Schema::new(nullable)),
            sources,
            table,
            rows_written: MetricBuilder::new(&metrics).global_counter("rows_written"),
            metrics,
        })
    }

    /// `batch` with the table's columns, in their order and of their types.
    fn conform(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        let schema = self.table.schema();
        let columns = schema
            .fields()
            .iter()
            .zip(&self.sources)
            .map(|(field, source)| {
                let column = match source.and_then(|source| batch.columns().get(source)) {
                    Some(column) => self.cast(column, field)?,
                    None => new_null_array(field.data_type(), batch.num_rows()),
                };
                if !field.is_nullable() && column.null_count() > 0 {
                    return Err(Error::invalid(format!(
                        "table '{}': the column '{}' is NOT NULL and a row has NULL there; nothing \
                         was written",
                        self.name,
                        field.name()
                    )));
                }
                Ok(column)
            })
            .collect::<Result<Vec<_>>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        RecordBatch::try_new_with_options(schema, columns, &options).map_err(|error| {
            Error::invalid(format!(
                "table '{}': {error}; nothing was written",
                self.name
            ))
        })
    }

    fn cast(&self, column: &ArrayRef, field: &Field) -> Result<ArrayRef> {
        if column.data_type() == field.data_type() {
            return Ok(Arc::clone(column));
        }
        // `safe` would turn a value that does not fit into NULL.
        let strict = CastOptions {
            safe: false,
            ..CastOptions::default()
        };
        cast_with_options(column, field.data_type(), &strict).map_err(|error| {
            let expected = match field.data_type() {
                DataType::FixedSizeList(_, size) => format!("vectors of exactly {size} values"),
                other => format!("values of type {other}"),
            };
            Error::invalid(format!(
                "table '{}': the column '{}' takes {expected}: {error}; nothing was written",
                self.name,
                field.name()
            ))
        })
    }

    fn refuse_large(&self, rows: usize, bytes: usize) -> Result<()> {
        let (most_rows, most_bytes) = (
            self.table.max_put_rows(),
            self.table.options().max_memtable_size,
        );
        if rows <= most_rows && bytes <= most_bytes {
            return Ok(());
        }
        Err(Error::unsupported(format!(
            "table '{}': the statement has more than the {most_rows} rows or {most_bytes} bytes that \
             one memtable takes; nothing was written. Split it into several statements, or raise \
             'max_memtable_rows' or 'max_memtable_size'",
            self.name
        )))
    }
}

impl DisplayAs for MemWalSink {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MemWalSink(table={})", self.name)
    }
}

#[async_trait]
impl DataSink for MemWalSink {
    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn schema(&self) -> &SchemaRef {
        &self.accepted
    }

    async fn write_all(
        &self,
        mut data: SendableRecordBatchStream,
        _: &Arc<TaskContext>,
    ) -> DataFusionResult<u64> {
        let mut batches = Vec::new();
        let (mut rows, mut bytes) = (0, 0);
        while let Some(batch) = data.try_next().await? {
            if batch.num_rows() == 0 {
                continue;
            }
            let batch = self.conform(&batch)?;
            rows += batch.num_rows();
            bytes += payload_bytes(&batch);
            self.refuse_large(rows, bytes)?;
            batches.push(batch);
        }
        if !batches.is_empty() {
            self.table.put(batches).await?;
        }
        self.rows_written.add(rows);
        Ok(rows as u64)
    }
}

/// Bytes of the rows themselves: a slice counts its part of the buffers only.
fn payload_bytes(batch: &RecordBatch) -> usize {
    batch
        .columns()
        .iter()
        .map(|column| column.to_data().get_slice_memory_size().unwrap_or(0))
        .sum()
}
