//! Whether Lance can store a schema, found out in memory before a table is made.
//!
//! Some types have no encoding, some only none for their NULLs, and some encoders panic. A
//! table that takes such a column would accept rows that it can never flush.

use std::sync::Arc;

use datafusion::arrow::array::{
    ArrayRef, FixedSizeListArray, LargeListArray, ListArray, MapArray, RecordBatch, StructArray,
    new_null_array,
};
use datafusion::arrow::buffer::OffsetBuffer;
use datafusion::arrow::compute::concat;
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::common::ScalarValue;
use lance::dataset::{InsertBuilder, WriteParams};
use lance_file::version::LanceFileVersion;

use crate::clock;
use crate::error::{Error, Result};

/// Values, and then NULLs, of each type.
const ROWS_OF_EACH: usize = 2;

/// Writes and reads rows of values and of NULLs.
///
/// # Errors
///
/// `Unsupported` names the first column that cannot be stored.
pub(crate) async fn probe_encoding(
    table: &str,
    schema: &SchemaRef,
    version: Option<LanceFileVersion>,
) -> Result<()> {
    if store(schema, version).await.is_ok() {
        return Ok(());
    }
    for field in schema.fields() {
        let alone = Arc::new(Schema::new(vec![Arc::clone(field)]));
        if let Err(error) = store(&alone, version).await {
            return Err(Error::unsupported(format!(
                "table '{table}': Lance cannot store the column '{}' of type {}; choose another \
                 type ({})",
                field.name(),
                field.data_type(),
                error.message()
            )));
        }
    }
    Ok(())
}

async fn store(schema: &SchemaRef, version: Option<LanceFileVersion>) -> Result<()> {
    let fields: Vec<Field> = schema
        .fields()
        .iter()
        .map(|field| Field::new(field.name(), field.data_type().clone(), true))
        .collect();
    let columns = fields
        .iter()
        .map(|field| {
            let values = sample(field.data_type(), ROWS_OF_EACH)?;
            let nulls = new_null_array(field.data_type(), ROWS_OF_EACH);
            Ok(concat(&[&values, &nulls])?)
        })
        .collect::<Result<Vec<_>>>()?;
    let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)?;
    let nulls = batch.slice(ROWS_OF_EACH, ROWS_OF_EACH);
    let singles = (0..batch.num_rows())
        .map(|row| batch.slice(row, 1))
        .collect();
    for (batch, parts) in [
        (batch.clone(), vec![batch.clone()]),
        (nulls.clone(), vec![nulls]),
        (batch, singles),
    ] {
        // On a task of its own, where a panic is an answer.
        let written = tokio::spawn(async move {
            let uri = format!("memory://probe-{}", clock::random_uuid());
            let params = WriteParams {
                data_storage_version: version,
                ..WriteParams::default()
            };
            let dataset = InsertBuilder::new(uri.as_str())
                .with_params(&params)
                .execute(parts)
                .await?;
            let read = dataset.scan().try_into_batch().await?;
            Ok::<_, lance_core::Error>(read.columns() == batch.columns())
        });
        let is_same = written
            .await
            .map_err(|_| Error::unsupported("its encoder failed"))??;
        if !is_same {
            return Err(Error::unsupported(
                "its values do not come back as they were",
            ));
        }
    }
    Ok(())
}

/// `rows` values that are not NULL, and have no empty list in them.
fn sample(data_type: &DataType, rows: usize) -> Result<ArrayRef> {
    let lengths = || OffsetBuffer::<i32>::from_lengths(std::iter::repeat_n(1, rows));
    Ok(match data_type {
        DataType::List(field) => {
            let values = sample(field.data_type(), rows)?;
            Arc::new(ListArray::try_new(
                Arc::clone(field),
                lengths(),
                values,
                None,
            )?)
        }
        DataType::LargeList(field) => {
            let values = sample(field.data_type(), rows)?;
            let lengths = OffsetBuffer::from_lengths(std::iter::repeat_n(1, rows));
            Arc::new(LargeListArray::try_new(
                Arc::clone(field),
                lengths,
                values,
                None,
            )?)
        }
        DataType::FixedSizeList(field, size) => {
            let items = usize::try_from(*size).unwrap_or(0) * rows;
            let values = sample(field.data_type(), items)?;
            Arc::new(FixedSizeListArray::try_new(
                Arc::clone(field),
                *size,
                values,
                None,
            )?)
        }
        DataType::Struct(fields) if !fields.is_empty() => {
            let children = fields
                .iter()
                .map(|field| sample(field.data_type(), rows))
                .collect::<Result<Vec<_>>>()?;
            Arc::new(StructArray::try_new(fields.clone(), children, None)?)
        }
        DataType::Map(entries, sorted) => {
            let values = sample(entries.data_type(), rows)?;
            let values = values
                .as_any()
                .downcast_ref::<StructArray>()
                .cloned()
                .ok_or_else(|| Error::internal("the entries of a map are no struct"))?;
            let map = MapArray::try_new(Arc::clone(entries), lengths(), values, None, *sorted)?;
            Arc::new(map)
        }
        DataType::Struct(_) => new_null_array(data_type, rows),
        other => ScalarValue::new_default(other)?.to_array_of_size(rows)?,
    })
}
