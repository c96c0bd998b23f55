//! Tables of different keys and values, filled by one rule: the number of the key and the
//! version of the row decide every value.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use datafusion::arrow::array::{
    ArrayRef, FixedSizeListBuilder, Float32Builder, Int32Array, Int64Array, RecordBatch,
    RecordBatchIterator, StringArray,
};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::common::ScalarValue;
use lance::Dataset;
use lance::dataset::WriteParams;

use super::script::Model;

/// A kind of table. A column is known by its name; see [`field`].
#[derive(Debug)]
pub struct Kind {
    pub name: &'static str,
    columns: &'static [&'static str],
    pub key: &'static [&'static str],
    /// Columns that Lance creates and drops again, so that the field ids have gaps.
    dropped: &'static [&'static str],
}

pub const INT64: Kind = Kind {
    name: "Int64 key",
    columns: &["id", "n", "txt", "must"],
    key: &["id"],
    dropped: &[],
};

pub const KINDS: [&Kind; 4] = [
    &INT64,
    &Kind {
        name: "Utf8 key, float vector",
        columns: &["name", "v", "must"],
        key: &["name"],
        dropped: &[],
    },
    // The key is not in the order of the columns.
    &Kind {
        name: "composite key",
        columns: &["b", "n", "a", "txt"],
        key: &["a", "b"],
        dropped: &[],
    },
    &Kind {
        name: "gaps between the field ids",
        columns: &["old_v", "id", "v", "old_n", "must", "n"],
        key: &["id"],
        dropped: &["old_v", "old_n"],
    },
];

fn field(name: &str) -> Field {
    let element = Arc::new(Field::new("item", DataType::Float32, true));
    match name {
        "id" => Field::new(name, DataType::Int64, false),
        "name" | "b" => Field::new(name, DataType::Utf8, false),
        "a" | "must" => Field::new(name, DataType::Int32, false),
        "n" | "old_n" => Field::new(name, DataType::Int64, true),
        "txt" => Field::new(name, DataType::Utf8, true),
        _ => Field::new(name, DataType::FixedSizeList(element, 4), true),
    }
}

fn column(name: &str, rows: &[(i64, i64)]) -> ArrayRef {
    let numbers = |value: fn(i64, i64) -> i32| {
        Arc::new(Int32Array::from_iter_values(
            rows.iter().map(|&(key, version)| value(key, version)),
        ))
    };
    let texts = |value: fn(i64, i64) -> Option<String>| {
        Arc::new(StringArray::from_iter(
            rows.iter().map(|&(key, version)| value(key, version)),
        ))
    };
    match name {
        "id" => Arc::new(Int64Array::from_iter_values(
            rows.iter().map(|row| row.0 - 3),
        )),
        "name" => texts(|key, _| Some(format!("ключ-{key}"))),
        "a" => numbers(|key, _| key as i32 / 3 - 1),
        "b" => texts(|key, _| Some("b".repeat((key % 3) as usize))),
        "must" => numbers(|key, version| key as i32 * 100 + version as i32),
        "n" | "old_n" => {
            Arc::new(Int64Array::from_iter(rows.iter().map(|&(key, version)| {
                ((key + version) % 3 != 0).then_some(key * 100 + version)
            })))
        }
        "txt" => texts(|key, version| {
            ((key + version) % 4 != 0).then(|| format!("row {key}, version {version}"))
        }),
        _ => {
            let mut vectors = FixedSizeListBuilder::new(Float32Builder::new(), 4);
            for &(key, version) in rows {
                let values = [key as f32, version as f32, 0.5, -1.0];
                vectors.values().append_slice(&values);
                vectors.append((key + version) % 5 != 0);
            }
            Arc::new(vectors.finish())
        }
    }
}

impl Kind {
    pub fn has_gaps(&self) -> bool {
        !self.dropped.is_empty()
    }

    fn kept(&self) -> Vec<&'static str> {
        let kept = |name: &&&str| !self.dropped.contains(*name);
        self.columns.iter().filter(kept).copied().collect()
    }

    /// The columns as a list for SQL, not in the order of the table.
    pub fn columns_backwards(&self) -> String {
        let mut names = self.kept();
        names.reverse();
        names.join(", ")
    }

    fn batch(&self, names: &[&str], rows: &[(i64, i64)]) -> RecordBatch {
        let fields: Vec<Field> = names.iter().map(|name| field(name)).collect();
        let columns = names.iter().map(|name| column(name, rows)).collect();
        RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).unwrap()
    }

    /// The columns of the table.
    pub fn schema(&self) -> SchemaRef {
        self.rows(&[]).schema()
    }

    pub fn rows(&self, rows: &[(i64, i64)]) -> RecordBatch {
        self.batch(&self.kept(), rows)
    }

    /// The key columns alone, for a delete.
    pub fn keys(&self, keys: &[i64]) -> RecordBatch {
        let rows: Vec<(i64, i64)> = keys.iter().map(|&key| (key, 0)).collect();
        self.batch(self.key, &rows)
    }

    pub fn key_names(&self) -> Vec<String> {
        self.key.iter().map(ToString::to_string).collect()
    }

    pub fn key_values(&self, key: i64) -> Vec<ScalarValue> {
        let keys = self.keys(&[key]);
        let value = |column: &ArrayRef| ScalarValue::try_from_array(column, 0).unwrap();
        keys.columns().iter().map(value).collect()
    }

    /// A condition in SQL that only this key meets.
    pub fn condition(&self, key: i64) -> String {
        let values = self.key_values(key);
        let equal = |(name, value): (&&str, &ScalarValue)| match value {
            ScalarValue::Utf8(Some(text)) => format!("{name} = '{text}'"),
            other => format!("{name} = {other}"),
        };
        let all: Vec<String> = self.key.iter().zip(&values).map(equal).collect();
        all.join(" AND ")
    }

    /// The rows of `batches` as text, by key; a key that comes twice fails.
    pub fn content(&self, batches: &[RecordBatch]) -> BTreeMap<String, String> {
        let mut content = BTreeMap::new();
        let options = FormatOptions::new().with_null("NULL");
        for batch in batches {
            let text = |names: &[&str], row: usize| -> String {
                let value = |name: &&str| {
                    let column = batch.column_by_name(name).unwrap_or_else(|| {
                        panic!("{}: no column '{name}' in {:?}", self.name, batch.schema())
                    });
                    let formatter = ArrayFormatter::try_new(column, &options).unwrap();
                    format!("{name}={}", formatter.value(row))
                };
                names.iter().map(value).collect::<Vec<_>>().join(", ")
            };
            for row in 0..batch.num_rows() {
                let key = text(self.key, row);
                let before = content.insert(key.clone(), text(&self.kept(), row));
                assert_eq!(before, None, "{}: {key} came twice", self.name);
            }
        }
        content
    }

    /// What [`Self::content`] must give.
    pub fn expected(&self, model: &Model) -> BTreeMap<String, String> {
        let rows: Vec<(i64, i64)> = model
            .iter()
            .map(|(&key, &version)| (key, version))
            .collect();
        self.content(&[self.rows(&rows)])
    }

    /// Writes `rows` as a plain Lance dataset, half of them in a second fragment.
    pub async fn write_base(&self, uri: &str, rows: &[(i64, i64)], params: WriteParams) -> Dataset {
        let batch = self.batch(self.columns, rows);
        let schema = Arc::new(Schema::new(
            self.columns
                .iter()
                .map(|name| self.marked(name))
                .collect::<Vec<_>>(),
        ));
        let batch = RecordBatch::try_new(Arc::clone(&schema), batch.columns().to_vec()).unwrap();
        let batches = (batch.num_rows() > 0).then_some(Ok(batch));
        let params = WriteParams {
            max_rows_per_file: rows.len() / 2 + 1,
            ..params
        };
        let reader = RecordBatchIterator::new(batches, schema);
        let mut dataset = Dataset::write(reader, uri, Some(params)).await.unwrap();
        if self.has_gaps() {
            dataset.drop_columns(self.dropped).await.unwrap();
        }
        dataset
    }

    /// The field, marked as Lance marks a key column.
    fn marked(&self, name: &str) -> Field {
        use lance_core::datatypes::{
            LANCE_UNENFORCED_PRIMARY_KEY, LANCE_UNENFORCED_PRIMARY_KEY_POSITION,
        };
        let Some(position) = self.key.iter().position(|key| *key == name) else {
            return field(name);
        };
        field(name).with_metadata(HashMap::from([
            (LANCE_UNENFORCED_PRIMARY_KEY.to_string(), "true".to_string()),
            (
                LANCE_UNENFORCED_PRIMARY_KEY_POSITION.to_string(),
                (position + 1).to_string(),
            ),
        ]))
    }
}
