//! A base table, the rows of a generation, and questions about them.

use crate::generation::write::WrittenGeneration;
use std::sync::Arc;

use datafusion::arrow::array::{
    ArrayRef, BooleanArray, Int64Array, RecordBatch, RecordBatchIterator, StringArray,
    new_null_array,
};
use datafusion::arrow::compute::concat_batches;
use datafusion::arrow::datatypes::{DataType, Field, Schema};
use datafusion::common::ScalarValue;
use datafusion::execution::TaskContext;
use datafusion::physical_plan::{ExecutionPlan, collect};
use lance::Dataset;
use lance::dataset::WriteParams;
use lance_file::version::LanceFileVersion;
use roaring::RoaringBitmap;

use crate::generation::*;
use crate::index::key::{KeyCodec, SortedKeys};
use crate::layout::{ShardLayout, UNSHARDED_SHARD};
use crate::schema::{TableSchema, declare};

/// The kinds of key that are stored in different ways.
pub(super) const KEYS: [&[&str]; 4] = [&["id"], &["txt"], &["txt", "id"], &["small"]];

fn columns() -> Schema {
    let number = Arc::new(Field::new("item", DataType::Float32, true));
    let word = Arc::new(Field::new("item", DataType::Utf8, true));
    Schema::new(vec![
        Field::new("id", DataType::Int64, false),
        Field::new("gone", DataType::Int64, true),
        Field::new("small", DataType::Int16, false),
        Field::new("txt", DataType::Utf8, false),
        Field::new("v", DataType::FixedSizeList(number, 2), true),
        Field::new("words", DataType::List(Arc::clone(&word)), true),
        Field::new("pair", DataType::Struct(vec![word].into()), true),
    ])
}

/// Rows whose every key column says `ids`, with `marks` in `_tombstone` if the schema has it.
pub(super) fn rows(schema: &Schema, ids: &[i64], words: &[&str], dead: &[bool]) -> RecordBatch {
    let arrays = schema
        .fields()
        .iter()
        .map(|field| -> ArrayRef {
            match field.name().as_str() {
                "id" => Arc::new(Int64Array::from(ids.to_vec())),
                "small" => {
                    let ids: ArrayRef = Arc::new(Int64Array::from(ids.to_vec()));
                    datafusion::arrow::compute::cast(&ids, &DataType::Int16).unwrap()
                }
                "txt" => Arc::new(StringArray::from_iter_values(
                    ids.iter().map(|id| format!("k{id}")),
                )),
                "word" => Arc::new(StringArray::from(words.to_vec())),
                "_tombstone" => Arc::new(BooleanArray::from(dead.to_vec())),
                _ => new_null_array(field.data_type(), ids.len()),
            }
        })
        .collect();
    RecordBatch::try_new(Arc::new(schema.clone()), arrays).unwrap()
}

/// A base table with the ids 1, 3 and 9 and, since `gone` was dropped, a gap in its field ids.
pub(super) async fn base(uri: &str, key: &[&str], stable_row_ids: bool) -> Dataset {
    let key: Vec<String> = key.iter().map(|name| name.to_string()).collect();
    let mut fields = columns().fields().to_vec();
    fields.push(Arc::new(Field::new("word", DataType::Utf8, true)));
    let schema = declare("t", &Schema::new(fields), &key).unwrap();
    let batch = rows(&schema, &[1, 3, 9], &["a", "b", "c"], &[]);
    let params = WriteParams {
        enable_stable_row_ids: stable_row_ids,
        // A memory:// store is found again through the session it was made in only.
        session: Some(Arc::default()),
        ..Default::default()
    };
    let source = RecordBatchIterator::new([Ok(batch)], schema);
    let mut dataset = Dataset::write(source, uri, Some(params)).await.unwrap();
    dataset.drop_columns(&["gone"]).await.unwrap();
    dataset
}

pub(super) async fn target_of(base: Dataset) -> GenerationTarget {
    let schema = TableSchema::from_base("t", base.schema()).unwrap();
    let layout = ShardLayout::new(base.branch_location().path, UNSHARDED_SHARD);
    GenerationTarget::new(Arc::new(base), layout, Arc::new(schema))
        .await
        .unwrap()
}

/// Six rows in two batches: 1 and 2 replaced later, 3 deleted, 4 put once.
pub(super) async fn write(target: &GenerationTarget) -> WrittenGeneration {
    let schema = target.schema().rows();
    let first = rows(schema, &[1, 2, 1], &["x", "x", "one"], &[false; 3]);
    let second = rows(
        schema,
        &[3, 2, 4],
        &["", "two", "four"],
        &[true, false, false],
    );
    let replaced = match target.schema().is_keyed() {
        true => RoaringBitmap::from([0, 1]),
        false => RoaringBitmap::new(),
    };
    let input = GenerationInput {
        generation: 7,
        batches: vec![first, second],
        replaced,
    };
    write_generation(target, input).await.unwrap()
}

pub(super) fn key_of(names: &[&str], id: i64) -> Vec<ScalarValue> {
    names
        .iter()
        .map(|name| match *name {
            "id" => ScalarValue::Int64(Some(id)),
            "small" => ScalarValue::Int16(Some(id as i16)),
            _ => ScalarValue::from(format!("k{id}").as_str()),
        })
        .collect()
}

pub(super) fn lookup(codec: &KeyCodec, keys: &SortedKeys, names: &[&str], id: i64) -> Option<u64> {
    let key = codec.encode_values(&key_of(names, id)).unwrap().unwrap();
    keys.lookup(key.as_ref())
}

pub(super) async fn run(plan: Arc<dyn ExecutionPlan>) -> RecordBatch {
    let schema = plan.schema();
    let batches = collect(plan, Arc::new(TaskContext::default()))
        .await
        .unwrap();
    concat_batches(&schema, &batches).unwrap()
}

/// A base table of two plain columns in a given file format.
pub(super) async fn base_of_version(uri: &str, version: LanceFileVersion) -> Dataset {
    let fields = vec![
        Field::new("id", DataType::Int64, false),
        Field::new("word", DataType::Utf8, true),
    ];
    let schema = declare("t", &Schema::new(fields), &["id".to_string()]).unwrap();
    let source = RecordBatchIterator::new([Ok(rows(&schema, &[9], &["c"], &[]))], schema);
    let params = WriteParams {
        data_storage_version: Some(version),
        session: Some(Arc::default()),
        ..Default::default()
    };
    Dataset::write(source, uri, Some(params)).await.unwrap()
}
