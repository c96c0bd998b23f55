//! A batch of one schema brought to another: columns and struct children are found by
//! field id where both sides have one and by name otherwise; no value is converted.

use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, FixedSizeListArray, LargeListArray, ListArray,
    MapArray, RecordBatch, RecordBatchOptions, StructArray, new_null_array,
};
use datafusion::arrow::datatypes::{DataType, Field, Fields};
use datafusion::arrow::error::ArrowError;
use lance_core::datatypes::LANCE_FIELD_ID_KEY;

use super::frame::Defect;
use crate::schema::TableSchema;

/// `batch`, as an entry holds it, in the row form of today's table.
pub(super) fn to_row_form(
    schema: &TableSchema,
    batch: &RecordBatch,
) -> Result<RecordBatch, Defect> {
    let present = batch.schema_ref().fields();
    let columns = schema
        .stored()
        .fields()
        .iter()
        .zip(schema.rows().fields())
        .enumerate()
        .map(|(index, (ids, wanted))| match find(present, ids) {
            Some(source) => conform(batch.column(source), ids, wanted),
            None if index == schema.tombstone() => {
                Ok(Arc::new(BooleanArray::from(vec![false; batch.num_rows()])) as ArrayRef)
            }
            None if schema.key().contains(&index) => {
                Err(format!("the key column '{}' is missing", wanted.name()))
            }
            None => Ok(new_null_array(wanted.data_type(), batch.num_rows())),
        })
        .collect::<Result<Vec<_>, _>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(Arc::clone(schema.rows()), columns, &options).map_err(text)
}

/// The columns of a batch in row form, with the field ids of the stored form.
pub(super) fn to_stored_form(
    schema: &TableSchema,
    batch: &RecordBatch,
) -> Result<Vec<ArrayRef>, Defect> {
    let stored = schema.stored().fields();
    if batch.num_columns() != stored.len() {
        return Err(format!(
            "a batch has {} columns where the row form has {}",
            batch.num_columns(),
            stored.len()
        ));
    }
    batch
        .columns()
        .iter()
        .zip(stored)
        .map(|(column, field)| conform(column, field, field))
        .collect()
}

fn find(fields: &Fields, wanted: &Field) -> Option<usize> {
    let by_id =
        field_id(wanted).and_then(|id| fields.iter().position(|field| field_id(field) == Some(id)));
    by_id.or_else(|| {
        fields.iter().position(|field| {
            field.name() == wanted.name()
                && (field_id(field).is_none() || field_id(wanted).is_none())
        })
    })
}

fn field_id(field: &Field) -> Option<&str> {
    field.metadata().get(LANCE_FIELD_ID_KEY).map(String::as_str)
}

/// `array` as the type of `wanted`; `ids` is the same field with its ids.
fn conform(array: &ArrayRef, ids: &Field, wanted: &Field) -> Result<ArrayRef, Defect> {
    if array.data_type() == wanted.data_type() {
        return Ok(Arc::clone(array));
    }
    use DataType::{FixedSizeList, LargeList, List, Map, Struct};
    let nulls = array.nulls().cloned();
    let conformed: ArrayRef = match (array.data_type(), ids.data_type(), wanted.data_type()) {
        (Struct(_), Struct(ids), Struct(wanted)) => {
            Arc::new(conform_struct(array.as_struct(), ids, wanted)?)
        }
        (List(_), List(ids), List(wanted)) => {
            let list = array.as_list::<i32>();
            let values = conform(list.values(), ids, wanted)?;
            let offsets = list.offsets().clone();
            let list = ListArray::try_new(Arc::clone(wanted), offsets, values, nulls);
            Arc::new(list.map_err(text)?)
        }
        (LargeList(_), LargeList(ids), LargeList(wanted)) => {
            let list = array.as_list::<i64>();
            let values = conform(list.values(), ids, wanted)?;
            let offsets = list.offsets().clone();
            let list = LargeListArray::try_new(Arc::clone(wanted), offsets, values, nulls);
            Arc::new(list.map_err(text)?)
        }
        (FixedSizeList(_, have), FixedSizeList(ids, _), FixedSizeList(wanted, size))
            if have == size =>
        {
            let values = conform(array.as_fixed_size_list().values(), ids, wanted)?;
            let list = FixedSizeListArray::try_new(Arc::clone(wanted), *size, values, nulls);
            Arc::new(list.map_err(text)?)
        }
        (Map(_, have), Map(ids, _), Map(wanted, sorted)) if have == sorted => {
            let map = array.as_map();
            let (Struct(id_fields), Struct(fields)) = (ids.data_type(), wanted.data_type()) else {
                return Err(format!("the entries of '{}' are not pairs", wanted.name()));
            };
            let entries = conform_struct(map.entries(), id_fields, fields)?;
            let offsets = map.offsets().clone();
            let map = MapArray::try_new(Arc::clone(wanted), offsets, entries, nulls, *sorted);
            Arc::new(map.map_err(text)?)
        }
        (have, _, wanted_type) => {
            return Err(format!(
                "the column '{}' is of type {have} where the table has {wanted_type}",
                wanted.name()
            ));
        }
    };
    Ok(conformed)
}

fn conform_struct(
    array: &StructArray,
    ids: &Fields,
    wanted: &Fields,
) -> Result<StructArray, Defect> {
    let children = ids
        .iter()
        .zip(wanted)
        .map(|(ids, wanted)| match find(array.fields(), ids) {
            Some(source) => conform(array.column(source), ids, wanted),
            None if wanted.is_nullable() => Ok(new_null_array(wanted.data_type(), array.len())),
            None => Err(format!("the field '{}' is missing", wanted.name())),
        })
        .collect::<Result<Vec<_>, _>>()?;
    let (wanted, nulls) = (wanted.clone(), array.nulls().cloned());
    StructArray::try_new_with_length(wanted, children, nulls, array.len()).map_err(text)
}

fn text(error: ArrowError) -> Defect {
    error.to_string()
}
