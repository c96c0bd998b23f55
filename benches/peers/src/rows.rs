//! The rows that the workloads write, made before any clock starts.

use std::sync::Arc;

use datafusion::arrow::array::{AsArray, Int64Array, RecordBatch, StringArray};
use datafusion::arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef};

const WORDS: [&str; 8] = [
    "alder", "birch", "cedar", "elm", "hazel", "larch", "maple", "rowan",
];

/// `id BIGINT NOT NULL, n BIGINT, txt VARCHAR`; `id` is the key where there is one.
pub fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("id", DataType::Int64, false),
        Field::new("n", DataType::Int64, true),
        Field::new("txt", DataType::Utf8, true),
    ]))
}

/// The rows (id, n), with a text.
pub fn batch(rows: &[(i64, i64)]) -> RecordBatch {
    let texts = rows
        .iter()
        .map(|(id, n)| format!("{} {}", WORDS[(id & 7) as usize], WORDS[(n & 7) as usize]));
    RecordBatch::try_new(
        schema(),
        vec![
            Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| row.0))),
            Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| row.1))),
            Arc::new(StringArray::from_iter_values(texts)),
        ],
    )
    .expect("three columns of one length")
}

/// Rows with the ids `first`, `first + step` and so on, in batches of `batch_rows`.
pub fn sequence(first: i64, step: i64, rows: usize, batch_rows: usize) -> Vec<RecordBatch> {
    let all: Vec<(i64, i64)> = (0..rows as i64)
        .map(|row| first + row * step)
        .map(|id| (id, value_of(id)))
        .collect();
    all.chunks(batch_rows).map(batch).collect()
}

/// The `n` that a row has before anything rewrites it.
pub fn value_of(id: i64) -> i64 {
    (id.wrapping_mul(2_654_435_761) >> 7) & 0xffff
}

/// The rows and the sum of `n` of batches that have a column of that name.
pub fn count_and_sum(batches: &[RecordBatch]) -> (usize, i64) {
    batches.iter().fold((0, 0), |(count, sum), batch| {
        let n = batch.column_by_name("n").expect("a column n");
        let n = n.as_primitive::<Int64Type>();
        let of_batch: i64 = n.iter().flatten().sum();
        (count + batch.num_rows(), sum + of_batch)
    })
}
