//! Turns what a caller puts or deletes into rows of a memtable, outside every lock.
//!
//! Everything that can be wrong with a batch is found here, before anything is written.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, RecordBatch};

use crate::error::{Error, Result};
use crate::index::key::KeyCodec;
use crate::memtable::PreparedBatch;
use crate::schema::{TableSchema, column_names};

/// The batches of one put: columns by name in any order, a missing nullable one is NULL.
/// Batches without rows vanish.
///
/// # Errors
///
/// `Invalid` for an unknown, repeated or mistyped column, for NULL in a NOT NULL column
/// and for a NULL key.
pub(crate) fn prepare_put(
    schema: &TableSchema,
    codec: Option<&KeyCodec>,
    batches: &[RecordBatch],
) -> Result<Vec<PreparedBatch>> {
    batches
        .iter()
        .map(|batch| {
            refuse_repeated_columns(schema, batch)?;
            PreparedBatch::upserts(schema, codec, batch)
        })
        .filter(has_rows)
        .collect()
}

/// The tombstones of one delete: `batches` hold the key columns, and no other.
///
/// # Errors
///
/// `Unsupported` for a table without a key; otherwise as [`prepare_put`].
pub(crate) fn prepare_delete(
    schema: &TableSchema,
    codec: Option<&KeyCodec>,
    batches: &[RecordBatch],
) -> Result<Vec<PreparedBatch>> {
    let Some(codec) = codec else {
        return Err(Error::unsupported(format!(
            "table '{}' has no primary key, so a row of it cannot be deleted; create it with \
             PRIMARY KEY (…)",
            schema.table()
        )));
    };
    batches
        .iter()
        .map(|batch| {
            refuse_repeated_columns(schema, batch)?;
            let keys = key_columns(schema, codec, batch)?;
            PreparedBatch::deletes(schema, codec, &keys)
        })
        .filter(has_rows)
        .collect()
}

fn has_rows(prepared: &Result<PreparedBatch>) -> bool {
    !matches!(prepared, Ok(batch) if batch.rows.num_rows() == 0)
}

fn key_columns(
    schema: &TableSchema,
    codec: &KeyCodec,
    batch: &RecordBatch,
) -> Result<Vec<ArrayRef>> {
    let names = codec.names();
    let keys: Option<Vec<ArrayRef>> = names
        .iter()
        .map(|name| batch.column_by_name(name).map(Arc::clone))
        .collect();
    match keys {
        Some(keys) if keys.len() == batch.num_columns() => Ok(keys),
        _ => Err(Error::invalid(format!(
            "table '{}': a delete takes the key columns ({}) and was given ({})",
            schema.table(),
            names.join(", "),
            column_names(batch.schema_ref())
        ))),
    }
}

fn refuse_repeated_columns(schema: &TableSchema, batch: &RecordBatch) -> Result<()> {
    let fields = batch.schema_ref().fields();
    for (index, field) in fields.iter().enumerate() {
        if fields[..index]
            .iter()
            .any(|earlier| earlier.name() == field.name())
        {
            return Err(Error::invalid(format!(
                "table '{}': a batch brings the column '{}' twice",
                schema.table(),
                field.name()
            )));
        }
    }
    Ok(())
}
