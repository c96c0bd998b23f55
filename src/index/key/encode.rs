//! A primary key as one value that compares, hashes and sorts.
//!
//! A key of one integer or boolean column is a `u64`; any other key is a byte
//! string. Both orders are the order of the columns, so one comparison serves
//! equality, ranges and sorted runs. The bytes of a composite key are those of the
//! generation's key index (Lance's MemWAL specification, "Primary key index"): per
//! column `0x01` and the value, integers as eight big-endian bytes with the sign
//! bit flipped, strings with `0x00` escaped to `0x00 0xFF` and ended by `0x00 0x00`.

use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BinaryArray, BinaryBuilder, BooleanArray, RecordBatch,
};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Int64Type, UInt64Type};
use datafusion::common::ScalarValue;

use crate::error::{Error, Result};
use crate::schema::TableSchema;

const SIGN_BIT: u64 = 1 << 63;

/// The keys of a run of rows, one per row, in row order.
#[derive(Debug, Clone)]
pub(crate) enum Keys {
    /// One integer or boolean column.
    Fixed(Vec<u64>),
    /// Everything else.
    Bytes(BinaryArray),
}

/// One key, borrowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum KeyRef<'a> {
    /// One integer or boolean column.
    Fixed(u64),
    /// Everything else.
    Bytes(&'a [u8]),
}

/// One key, owned.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Key {
    /// One integer or boolean column.
    Fixed(u64),
    /// Everything else.
    Bytes(Box<[u8]>),
}

impl Key {
    pub(crate) fn as_ref(&self) -> KeyRef<'_> {
        match self {
            Self::Fixed(key) => KeyRef::Fixed(*key),
            Self::Bytes(key) => KeyRef::Bytes(key),
        }
    }
}

impl Keys {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Fixed(keys) => keys.len(),
            Self::Bytes(keys) => keys.len(),
        }
    }

    /// Bytes of keys that are not of fixed width.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Fixed(_) => 0,
            Self::Bytes(keys) => keys.value_data().len(),
        }
    }

    /// The key of `row`; the caller keeps `row` below [`Self::len`].
    pub(crate) fn get(&self, row: usize) -> KeyRef<'_> {
        match self {
            Self::Fixed(keys) => KeyRef::Fixed(keys[row]),
            Self::Bytes(keys) => KeyRef::Bytes(keys.value(row)),
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = KeyRef<'_>> {
        (0..self.len()).map(|row| self.get(row))
    }
}

/// Turns the key columns of a table into [`Keys`].
#[derive(Debug, Clone)]
pub(crate) struct KeyCodec {
    table: Arc<str>,
    columns: Arc<[KeyColumn]>,
}

#[derive(Debug)]
struct KeyColumn {
    name: String,
    position: usize,
    data_type: DataType,
}

impl KeyCodec {
    /// The codec of a table's key; `None` for a table without one.
    pub(crate) fn new(schema: &TableSchema) -> Option<Self> {
        if !schema.is_keyed() {
            return None;
        }
        let columns = schema
            .key()
            .iter()
            .map(|&position| {
                let field = schema.logical().field(position);
                KeyColumn {
                    name: field.name().clone(),
                    position,
                    data_type: field.data_type().clone(),
                }
            })
            .collect();
        Some(Self {
            table: Arc::from(schema.table()),
            columns,
        })
    }

    /// Whether keys are [`Keys::Fixed`].
    pub(crate) fn is_fixed(&self) -> bool {
        matches!(&*self.columns, [only] if is_fixed_width(&only.data_type))
    }

    /// The Arrow type of the key in a generation's key index: the column's own, or
    /// `Binary` for a composite key.
    pub(crate) fn index_type(&self) -> DataType {
        match &*self.columns {
            [only] => only.data_type.clone(),
            _ => DataType::Binary,
        }
    }

    /// The key columns of a batch in row form, in key order.
    pub(crate) fn columns_of(&self, batch: &RecordBatch) -> Vec<ArrayRef> {
        self.columns
            .iter()
            .map(|column| Arc::clone(batch.column(column.position)))
            .collect()
    }

    /// The names of the key columns, in key order.
    pub(crate) fn names(&self) -> Vec<&str> {
        self.columns
            .iter()
            .map(|column| column.name.as_str())
            .collect()
    }

    /// The type of each key column, in key order.
    pub(crate) fn types(&self) -> Vec<&DataType> {
        self.columns
            .iter()
            .map(|column| &column.data_type)
            .collect()
    }

    /// The keys of rows whose key columns are `columns`, in key order.
    ///
    /// # Errors
    ///
    /// `Invalid` where a key is NULL.
    pub(crate) fn encode(&self, columns: &[ArrayRef]) -> Result<Keys> {
        for (column, array) in self.columns.iter().zip(columns) {
            if array.null_count() > 0 {
                return Err(Error::invalid(format!(
                    "table '{}': the key column '{}' is NULL in a row; give every row a key",
                    self.table, column.name
                )));
            }
        }
        match columns {
            [only] if self.is_fixed() => Ok(Keys::Fixed(fixed_keys(only)?)),
            [only] => Ok(Keys::Bytes(plain_bytes(only)?)),
            _ => self.encode_composite(columns),
        }
    }

    /// The key whose columns have `values`, in key order; `None` when a value is NULL
    /// or is none that the column can hold, so that no row has this key.
    pub(crate) fn encode_values(&self, values: &[ScalarValue]) -> Result<Option<Key>> {
        let mut columns = Vec::with_capacity(values.len());
        for (column, value) in self.columns.iter().zip(values) {
            let Ok(key) = value.cast_to(&column.data_type) else {
                return Ok(None);
            };
            // A value that the cast rounds, such as 1.5 for an integer key, is no key.
            let is_exact = key
                .cast_to(&value.data_type())
                .is_ok_and(|back| back == *value);
            if key.is_null() || !is_exact {
                return Ok(None);
            }
            columns.push(key.to_array()?);
        }
        Ok(match self.encode(&columns)? {
            Keys::Fixed(keys) => keys.first().map(|key| Key::Fixed(*key)),
            Keys::Bytes(keys) => (!keys.is_empty()).then(|| Key::Bytes(keys.value(0).into())),
        })
    }

    fn encode_composite(&self, columns: &[ArrayRef]) -> Result<Keys> {
        enum Part {
            Fixed(Vec<u64>),
            Flag(BooleanArray),
            Bytes(BinaryArray),
        }
        let parts = columns
            .iter()
            .map(|array| {
                Ok(match array.data_type() {
                    DataType::Boolean => Part::Flag(array.as_boolean().clone()),
                    data_type if is_fixed_width(data_type) => Part::Fixed(fixed_keys(array)?),
                    _ => Part::Bytes(plain_bytes(array)?),
                })
            })
            .collect::<Result<Vec<_>>>()?;
        let rows = columns.first().map_or(0, |array| array.len());
        let mut keys = BinaryBuilder::with_capacity(rows, rows * columns.len() * 9);
        let mut key = Vec::new();
        for row in 0..rows {
            key.clear();
            for part in &parts {
                key.push(0x01);
                match part {
                    Part::Fixed(values) => key.extend_from_slice(&values[row].to_be_bytes()),
                    Part::Flag(values) => key.push(u8::from(values.value(row))),
                    Part::Bytes(values) => push_escaped(&mut key, values.value(row)),
                }
            }
            keys.append_value(&key);
        }
        Ok(Keys::Bytes(keys.finish()))
    }
}

fn push_escaped(key: &mut Vec<u8>, value: &[u8]) {
    for &byte in value {
        key.push(byte);
        if byte == 0 {
            key.push(0xFF);
        }
    }
    key.extend_from_slice(&[0, 0]);
}

fn is_fixed_width(data_type: &DataType) -> bool {
    data_type.is_integer() || *data_type == DataType::Boolean
}

/// Order-preserving: signed values get their sign bit flipped.
fn fixed_keys(array: &ArrayRef) -> Result<Vec<u64>> {
    if array.data_type().is_signed_integer() {
        let wide = cast(array, &DataType::Int64)?;
        let values = wide.as_primitive::<Int64Type>().values();
        return Ok(values
            .iter()
            .map(|&value| value as u64 ^ SIGN_BIT)
            .collect());
    }
    let wide = cast(array, &DataType::UInt64)?;
    Ok(wide.as_primitive::<UInt64Type>().values().to_vec())
}

fn plain_bytes(array: &ArrayRef) -> Result<BinaryArray> {
    Ok(cast(array, &DataType::Binary)?.as_binary::<i32>().clone())
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::{Int32Array, Int64Array, StringArray};
    use datafusion::arrow::datatypes::{Field, Schema};
    use lance::dataset::mem_wal::index::encode_pk_tuple;

    use super::*;
    use crate::schema::declare;

    fn codec(fields: Vec<Field>) -> KeyCodec {
        let names: Vec<String> = fields.iter().map(|field| field.name().clone()).collect();
        let declared = declare("t", &Schema::new(fields), &names).unwrap();
        let mut base = lance_core::datatypes::Schema::try_from(declared.as_ref()).unwrap();
        base.set_field_id(None);
        KeyCodec::new(&TableSchema::from_base("t", &base).unwrap()).unwrap()
    }

    #[test]
    fn integers_sort_as_their_values() {
        let codec = codec(vec![Field::new("id", DataType::Int64, false)]);
        let values: ArrayRef = Arc::new(Int64Array::from(vec![i64::MIN, -1, 0, 1, i64::MAX]));
        let Keys::Fixed(keys) = codec.encode(&[values]).unwrap() else {
            panic!("an integer key is fixed");
        };
        assert!(keys.is_sorted());
    }

    #[test]
    fn composite_keys_are_the_bytes_that_lance_writes() {
        let codec = codec(vec![
            Field::new("a", DataType::Int32, false),
            Field::new("b", DataType::Utf8, false),
            Field::new("c", DataType::Boolean, false),
        ]);
        let columns: Vec<ArrayRef> = vec![
            Arc::new(Int32Array::from(vec![-7, 7])),
            Arc::new(StringArray::from(vec!["x\0y", ""])),
            Arc::new(BooleanArray::from(vec![true, false])),
        ];
        let keys = codec.encode(&columns).unwrap();
        for row in 0..2 {
            let tuple: Vec<ScalarValue> = columns
                .iter()
                .map(|column| ScalarValue::try_from_array(column, row).unwrap())
                .collect();
            let expected = encode_pk_tuple(&tuple).unwrap();
            assert_eq!(keys.get(row), KeyRef::Bytes(&expected));
            let one = codec.encode_values(&tuple).unwrap().unwrap();
            assert_eq!(one.as_ref(), keys.get(row));
        }
    }

    #[test]
    fn a_value_that_the_column_cannot_hold_is_no_key() {
        let codec = codec(vec![Field::new("id", DataType::Int32, false)]);
        let key = |value: ScalarValue| codec.encode_values(&[value]).unwrap();
        assert!(key(ScalarValue::Int64(Some(5))).is_some());
        assert_eq!(key(ScalarValue::Float64(Some(1.5))), None);
        assert_eq!(key(ScalarValue::Int64(Some(1 << 40))), None);
        assert_eq!(key(ScalarValue::Int32(None)), None);
    }

    #[test]
    fn a_null_key_is_refused_and_names_its_column() {
        let codec = codec(vec![Field::new("id", DataType::Int64, false)]);
        let values: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), None]));
        let error = codec.encode(&[values]).unwrap_err();
        assert!(error.to_string().contains("'id' is NULL"), "{error}");
    }
}
