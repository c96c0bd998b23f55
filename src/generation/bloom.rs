//! The Bloom filter of a generation: whether a key may be in it.
//!
//! A split-block filter over Lance's hash of a key: SipHash-1-3 with zero keys, as
//! the standard library's `DefaultHasher` has it, over each key column's null flag
//! and value. Source: Lance's MemWAL specification, "Bloom filter".

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};

use datafusion::arrow::array::{Array, ArrayRef, ArrowPrimitiveType, AsArray};
use datafusion::arrow::datatypes::{
    DataType, Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type, UInt16Type, UInt32Type,
    UInt64Type,
};
use datafusion::common::ScalarValue;
use lance_core::utils::bloomfilter::sbbf::Sbbf;

use crate::error::{Error, Result};

/// How often a filter says "maybe" of a key that is not there.
const FALSE_POSITIVES_PER_LOOKUP: f64 = 0.001;

/// Whether a filter that is found in a folder can be trusted. Lance's own writer
/// hashes the values of these types only and calls every key of another type the
/// same, so that its filter would deny keys that are there.
pub(crate) fn is_trusted(types: &[&DataType]) -> bool {
    types.iter().all(|data_type| {
        matches!(
            data_type,
            DataType::Int32 | DataType::Int64 | DataType::Utf8 | DataType::Binary
        )
    })
}

/// A filter with the keys of all rows.
pub(crate) fn build(columns: &[ArrayRef]) -> Result<Sbbf> {
    let hashes = hash_rows(columns)?;
    let mut filter = Sbbf::with_ndv_fpp(hashes.len() as u64, FALSE_POSITIVES_PER_LOOKUP)
        .map_err(|error| Error::internal(format!("cannot size a Bloom filter: {error}")))?;
    for hash in hashes {
        filter.insert_hash(hash);
    }
    Ok(filter)
}

/// The hash of each row's key, given the key columns in key order.
pub(crate) fn hash_rows(columns: &[ArrayRef]) -> Result<Vec<u64>> {
    let rows = columns.first().map_or(0, |column| column.len());
    let mut hashers = vec![DefaultHasher::new(); rows];
    for column in columns {
        feed_column(&mut hashers, column)?;
    }
    Ok(hashers.iter().map(Hasher::finish).collect())
}

/// The hash of one key; `None` when a value is of a type that no key has.
pub(crate) fn hash_values(values: &[ScalarValue]) -> Option<u64> {
    let mut hasher = DefaultHasher::new();
    for value in values {
        match value {
            ScalarValue::Boolean(value) => feed(&mut hasher, value.as_ref()),
            ScalarValue::Int8(value) => feed(&mut hasher, value.as_ref()),
            ScalarValue::Int16(value) => feed(&mut hasher, value.as_ref()),
            ScalarValue::Int32(value) => feed(&mut hasher, value.as_ref()),
            ScalarValue::Int64(value) => feed(&mut hasher, value.as_ref()),
            ScalarValue::UInt8(value) => feed(&mut hasher, value.as_ref()),
            ScalarValue::UInt16(value) => feed(&mut hasher, value.as_ref()),
            ScalarValue::UInt32(value) => feed(&mut hasher, value.as_ref()),
            ScalarValue::UInt64(value) => feed(&mut hasher, value.as_ref()),
            ScalarValue::Utf8(value) | ScalarValue::LargeUtf8(value) => {
                feed(&mut hasher, value.as_deref());
            }
            ScalarValue::Binary(value) | ScalarValue::LargeBinary(value) => {
                feed(&mut hasher, value.as_deref());
            }
            _ => return None,
        }
    }
    Some(hasher.finish())
}

fn feed<T: Hash + ?Sized>(hasher: &mut DefaultHasher, value: Option<&T>) {
    value.is_none().hash(hasher);
    if let Some(value) = value {
        value.hash(hasher);
    }
}

fn feed_column(hashers: &mut [DefaultHasher], column: &ArrayRef) -> Result<()> {
    match column.data_type() {
        DataType::Boolean => feed_all(hashers, column.as_boolean().iter()),
        DataType::Int8 => feed_numbers::<Int8Type>(hashers, column),
        DataType::Int16 => feed_numbers::<Int16Type>(hashers, column),
        DataType::Int32 => feed_numbers::<Int32Type>(hashers, column),
        DataType::Int64 => feed_numbers::<Int64Type>(hashers, column),
        DataType::UInt8 => feed_numbers::<UInt8Type>(hashers, column),
        DataType::UInt16 => feed_numbers::<UInt16Type>(hashers, column),
        DataType::UInt32 => feed_numbers::<UInt32Type>(hashers, column),
        DataType::UInt64 => feed_numbers::<UInt64Type>(hashers, column),
        DataType::Utf8 => feed_all(hashers, column.as_string::<i32>().iter()),
        DataType::LargeUtf8 => feed_all(hashers, column.as_string::<i64>().iter()),
        DataType::Binary => feed_all(hashers, column.as_binary::<i32>().iter()),
        DataType::LargeBinary => feed_all(hashers, column.as_binary::<i64>().iter()),
        other => {
            return Err(Error::internal(format!(
                "a key column of type {other} cannot be hashed"
            )));
        }
    }
    Ok(())
}

fn feed_numbers<T>(hashers: &mut [DefaultHasher], column: &ArrayRef)
where
    T: ArrowPrimitiveType,
    T::Native: Hash,
{
    feed_all(hashers, column.as_primitive::<T>().iter());
}

fn feed_all<T: Hash>(hashers: &mut [DefaultHasher], values: impl Iterator<Item = Option<T>>) {
    for (hasher, value) in hashers.iter_mut().zip(values) {
        feed(hasher, value.as_ref());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use datafusion::arrow::array::{
        BinaryArray, BooleanArray, Int8Array, Int64Array, LargeStringArray, RecordBatch,
        StringArray, UInt32Array,
    };
    use lance::dataset::mem_wal::scanner::exec::{compute_pk_hash, compute_pk_hash_from_scalars};

    use super::*;

    #[test]
    fn hashes_agree_with_lance_for_every_kind_of_key() {
        let columns: Vec<ArrayRef> = vec![
            Arc::new(Int64Array::from(vec![Some(1), Some(-7), None])),
            Arc::new(StringArray::from(vec!["", "a\0b", "é"])),
            Arc::new(BooleanArray::from(vec![true, false, true])),
            Arc::new(Int8Array::from(vec![1, 2, -3])),
            Arc::new(UInt32Array::from(vec![1, 2, u32::MAX])),
            Arc::new(BinaryArray::from(vec![&b"x"[..], b"", b"zz"])),
            Arc::new(LargeStringArray::from(vec!["q", "w", "e"])),
        ];
        for chosen in [&columns[..], &columns[0..1], &columns[1..2], &columns[5..6]] {
            let named = chosen.iter().enumerate();
            let batch =
                RecordBatch::try_from_iter(named.map(|(i, c)| (i.to_string(), Arc::clone(c))))
                    .unwrap();
            let positions: Vec<usize> = (0..chosen.len()).collect();
            let hashes = hash_rows(chosen).unwrap();
            for (row, &hash) in hashes.iter().enumerate() {
                assert_eq!(hash, compute_pk_hash(&batch, &positions, row));
                let values: Vec<ScalarValue> = chosen
                    .iter()
                    .map(|column| ScalarValue::try_from_array(column, row).unwrap())
                    .collect();
                assert_eq!(hash, compute_pk_hash_from_scalars(&values));
                assert_eq!(hash_values(&values), Some(hash));
            }
        }
    }

    /// The filter outlives the toolchain: a standard library that hashes in another
    /// way must fail here, not lose rows.
    #[test]
    fn the_hash_does_not_depend_on_the_toolchain() {
        let hash = hash_values(&[ScalarValue::Int64(Some(42))]);
        assert_eq!(hash, Some(10_647_740_223_564_246_356));
    }
}
