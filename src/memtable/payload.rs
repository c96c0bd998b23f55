//! What a batch weighs, and a copy of it where it would hold far more than that.

use std::ops::Range;

use datafusion::arrow::array::{
    Array, ArrayData, ArrayRef, MutableArrayData, RecordBatch, RecordBatchOptions, make_array,
};
use datafusion::arrow::buffer::Buffer;
use datafusion::arrow::datatypes::DataType;

use crate::error::Result;

/// A batch that retains more than this many times its payload is copied.
const MAX_RETAINED: usize = 2;

/// Retained memory that is not worth a copy: builders round up, and small batches
/// are joined soon.
const SLACK_BYTES: usize = 1 << 10;

/// The batch, copied if it is a small part of larger buffers, and its payload in bytes.
pub(super) fn detach(batch: RecordBatch) -> Result<(RecordBatch, usize)> {
    let columns: Vec<ArrayData> = batch
        .columns()
        .iter()
        .map(|column| column.to_data())
        .collect();
    let payload = columns
        .iter()
        .map(|data| payload(data, 0..data.len()))
        .sum();
    if retained(&columns) <= payload * MAX_RETAINED + SLACK_BYTES {
        return Ok((batch, payload));
    }
    let columns = columns.iter().map(copy).collect();
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    let copied = RecordBatch::try_new_with_options(batch.schema(), columns, &options)?;
    Ok((copied, payload))
}

fn copy(data: &ArrayData) -> ArrayRef {
    let mut copied = MutableArrayData::new(vec![data], false, data.len());
    copied.extend(0, 0, data.len());
    make_array(copied.freeze())
}

/// The bytes of the allocations that the columns keep alive, each counted once.
fn retained(columns: &[ArrayData]) -> usize {
    let mut allocations = Vec::new();
    for data in columns {
        collect_allocations(data, &mut allocations);
    }
    allocations.sort_unstable();
    allocations.dedup_by_key(|(address, _)| *address);
    allocations.iter().map(|(_, bytes)| bytes).sum()
}

fn collect_allocations(data: &ArrayData, allocations: &mut Vec<(usize, usize)>) {
    let nulls = data.nulls().map(|nulls| nulls.buffer());
    for buffer in data.buffers().iter().chain(nulls) {
        allocations.push((buffer.data_ptr().addr().get(), buffer.capacity()));
    }
    for child in data.child_data() {
        collect_allocations(child, allocations);
    }
}

/// The bytes of `rows` of an array, children included, as if copied out of it.
fn payload(data: &ArrayData, rows: Range<usize>) -> usize {
    let len = rows.len();
    let rows = data.offset() + rows.start..data.offset() + rows.end;
    let child = |rows: Range<usize>| -> usize {
        let children = data.child_data().iter();
        children.map(|child| payload(child, rows.clone())).sum()
    };
    let values = match data.data_type() {
        DataType::Null => 0,
        DataType::Boolean => len.div_ceil(8),
        DataType::Utf8 | DataType::Binary => {
            offsets_bytes::<i32>(len) + span::<i32>(data, rows).len()
        }
        DataType::LargeUtf8 | DataType::LargeBinary => {
            offsets_bytes::<i64>(len) + span::<i64>(data, rows).len()
        }
        DataType::List(_) | DataType::Map(_, _) => {
            offsets_bytes::<i32>(len) + child(span::<i32>(data, rows))
        }
        DataType::LargeList(_) => offsets_bytes::<i64>(len) + child(span::<i64>(data, rows)),
        DataType::FixedSizeList(_, size) => {
            let size = usize::try_from(*size).unwrap_or(0);
            child(rows.start * size..rows.end * size)
        }
        DataType::FixedSizeBinary(size) => len * usize::try_from(*size).unwrap_or(0),
        DataType::Struct(_) => child(rows),
        DataType::Dictionary(keys, _) => {
            let values = data.child_data().iter();
            len * keys.primitive_width().unwrap_or(0)
                + values
                    .map(|values| payload(values, 0..values.len()))
                    .sum::<usize>()
        }
        other => match other.primitive_width() {
            Some(width) => len * width,
            None => return data.get_slice_memory_size().unwrap_or(0),
        },
    };
    values + data.nulls().map_or(0, |_| len.div_ceil(8))
}

fn offsets_bytes<O>(len: usize) -> usize {
    (len + 1) * size_of::<O>()
}

/// The range of child elements or bytes that `rows` cover.
fn span<O: TryInto<usize> + Copy + datafusion::arrow::datatypes::ArrowNativeType>(
    data: &ArrayData,
    rows: Range<usize>,
) -> Range<usize> {
    let offsets = data.buffers().first().map(Buffer::typed_data::<O>);
    let at = |row: usize| {
        let offset = offsets.and_then(|offsets| offsets.get(row));
        offset.map_or(0, |offset| offset.as_usize())
    };
    at(rows.start)..at(rows.end)
}
