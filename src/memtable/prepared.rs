//! One batch of a put, checked and brought into row form outside every lock.

use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, RecordBatch, RecordBatchOptions, new_null_array,
};
use datafusion::arrow::buffer::BooleanBuffer;

use super::conform::conform;
use super::payload::detach;
use crate::error::{Error, Result};
use crate::index::key::{KeyCodec, Keys};
use crate::schema::{TableSchema, column_names};

/// A batch that an append cannot refuse for its content.
#[derive(Debug)]
pub(crate) struct PreparedBatch {
    /// The rows, in row form.
    pub(crate) rows: RecordBatch,
    /// The key of each row; `None` for a table without one.
    pub(crate) keys: Option<Keys>,
    /// How many rows are tombstones.
    pub(crate) tombstones: usize,
    /// The payload of the rows.
    pub(crate) bytes: usize,
}

impl PreparedBatch {
    /// Rows to insert, or to replace those of the same key. Columns are matched by
    /// name; a nullable one may be missing.
    ///
    /// # Errors
    ///
    /// `Invalid` for a batch that is not of the table's columns, or has a NULL where
    /// there may be none.
    pub(crate) fn upserts(
        schema: &TableSchema,
        codec: Option<&KeyCodec>,
        batch: &RecordBatch,
    ) -> Result<Self> {
        let table = schema.table();
        let logical = schema.logical();
        for field in batch.schema_ref().fields() {
            if logical.field_with_name(field.name()).is_err() {
                return Err(Error::invalid(format!(
                    "table '{table}' has no column '{}'; its columns are {}",
                    field.name(),
                    column_names(logical)
                )));
            }
        }
        let mut columns = Vec::with_capacity(logical.fields().len() + 1);
        for field in logical.fields() {
            let column = match batch.column_by_name(field.name()) {
                Some(column) => conform(table, field, column)?,
                None => new_null_array(field.data_type(), batch.num_rows()),
            };
            if !field.is_nullable() && column.logical_null_count() > 0 {
                return Err(Error::invalid(format!(
                    "table '{table}': the column '{}' is NOT NULL, and a row has no value for it; \
                     give every row one",
                    field.name()
                )));
            }
            columns.push(column);
        }
        columns.push(flags(batch.num_rows(), false));
        Self::from_columns(schema, codec, columns, batch.num_rows())
    }

    /// Tombstones for the rows whose key columns are `keys`, in key order.
    ///
    /// # Errors
    ///
    /// `Invalid` where a key is NULL or not of the columns' types.
    pub(crate) fn deletes(
        schema: &TableSchema,
        codec: &KeyCodec,
        keys: &[ArrayRef],
    ) -> Result<Self> {
        let rows = keys.first().map_or(0, |column| column.len());
        if keys.len() != schema.key().len() || keys.iter().any(|column| column.len() != rows) {
            return Err(Error::internal(format!(
                "table '{}': a deletion needs {} key columns of one length",
                schema.table(),
                schema.key().len()
            )));
        }
        let mut columns = Vec::with_capacity(schema.logical().fields().len() + 1);
        for (position, field) in schema.logical().fields().iter().enumerate() {
            let key = schema.key().iter().zip(keys);
            let mut of_column = key.filter(|(own, _)| **own == position);
            columns.push(match of_column.next() {
                Some((_, column)) => conform(schema.table(), field, column)?,
                None => new_null_array(field.data_type(), rows),
            });
        }
        columns.push(flags(rows, true));
        Self::from_columns(schema, Some(codec), columns, rows)
    }

    /// Rows in row or stored form, as a replay finds them in the log.
    ///
    /// # Errors
    ///
    /// `Corrupt` when the columns are not those of the table.
    pub(crate) fn replayed(
        schema: &TableSchema,
        codec: Option<&KeyCodec>,
        rows: &RecordBatch,
    ) -> Result<Self> {
        let fields = schema.rows().fields();
        if rows.num_columns() != fields.len() {
            return Err(Error::corrupt(format!(
                "table '{}': a logged batch has {} columns ({}), and the table stores {} ({})",
                schema.table(),
                rows.num_columns(),
                column_names(rows.schema_ref()),
                fields.len(),
                column_names(schema.rows())
            )));
        }
        let mut columns = Vec::with_capacity(fields.len());
        for field in fields {
            let column = rows.column_by_name(field.name()).ok_or_else(|| {
                Error::corrupt(format!(
                    "table '{}': a logged batch lacks the column '{}'",
                    schema.table(),
                    field.name()
                ))
            })?;
            columns.push(conform(schema.table(), field, column)?);
        }
        Self::from_columns(schema, codec, columns, rows.num_rows())
    }

    fn from_columns(
        schema: &TableSchema,
        codec: Option<&KeyCodec>,
        columns: Vec<ArrayRef>,
        rows: usize,
    ) -> Result<Self> {
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let batch = RecordBatch::try_new_with_options(Arc::clone(schema.rows()), columns, &options)
            .map_err(|error| {
                Error::invalid(format!("table '{}': {error}", schema.table())).with_source(error)
            })?;
        let keys = match codec {
            Some(codec) => Some(codec.encode(&codec.columns_of(&batch))?),
            None => None,
        };
        let tombstones = batch.column(schema.tombstone()).as_boolean().true_count();
        if keys.is_none() && tombstones > 0 {
            return Err(Error::invalid(format!(
                "table '{}' has no primary key, so no row of it can be deleted; declare a key",
                schema.table()
            )));
        }
        let (rows, bytes) = detach(batch)?;
        Ok(Self {
            rows,
            keys,
            tombstones,
            bytes,
        })
    }
}

fn flags(rows: usize, value: bool) -> ArrayRef {
    let values = match value {
        true => BooleanBuffer::new_set(rows),
        false => BooleanBuffer::new_unset(rows),
    };
    Arc::new(BooleanArray::new(values, None))
}
