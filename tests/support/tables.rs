//! Small tables and a way to read them back through every access path.

use std::collections::BTreeMap;
use std::sync::Arc;

use datafusion::arrow::array::{AsArray, Int64Array, RecordBatch, StringArray};
use datafusion::arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef};
use datafusion::execution::SessionStateBuilder;
use datafusion::prelude::{SessionConfig, SessionContext};
use datafusion_memwal::{MemWalSessionExt, MemWalTable, MemWalTableProvider, TableBuilder};

use super::fault_store::Faults;

/// `id BIGINT NOT NULL PRIMARY KEY, n BIGINT, txt VARCHAR`
pub fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("id", DataType::Int64, false),
        Field::new("n", DataType::Int64, true),
        Field::new("txt", DataType::Utf8, true),
    ]))
}

/// Rows (id, n), the text being `row {id}`.
pub fn rows(rows: &[(i64, i64)]) -> RecordBatch {
    RecordBatch::try_new(
        schema(),
        vec![
            Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| row.0))),
            Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| row.1))),
            Arc::new(StringArray::from_iter_values(
                rows.iter().map(|row| format!("row {}", row.0)),
            )),
        ],
    )
    .unwrap()
}

/// Keys for a delete.
pub fn keys(ids: &[i64]) -> RecordBatch {
    let schema = Schema::new(vec![Field::new("id", DataType::Int64, false)]);
    let ids = Arc::new(Int64Array::from(ids.to_vec()));
    RecordBatch::try_new(Arc::new(schema), vec![ids]).unwrap()
}

/// A builder whose store goes through `faults`.
pub fn builder(uri: &str, faults: &Arc<Faults>, options: &[(&str, &str)]) -> TableBuilder {
    options.iter().fold(
        MemWalTable::builder(uri)
            .with_name("t")
            .with_store_params(faults.params()),
        |builder, (key, value)| builder.with_option(*key, *value),
    )
}

/// A store that no other test sees and that outlives the tables in it.
pub fn shared_uri() -> String {
    format!("shared-memory://{}/t", uuid::Uuid::new_v4())
}

pub async fn create(uri: &str, faults: &Arc<Faults>, options: &[(&str, &str)]) -> MemWalTable {
    builder(uri, faults, options)
        .create(schema(), &["id".to_string()])
        .await
        .unwrap()
}

pub async fn open(uri: &str, faults: &Arc<Faults>) -> MemWalTable {
    builder(uri, faults, &[]).open().await.unwrap()
}

/// A session in which the table is called `t`.
pub fn session(table: &MemWalTable) -> SessionContext {
    let config = SessionConfig::new().with_information_schema(true);
    let state = SessionStateBuilder::new()
        .with_default_features()
        .with_config(config)
        .with_memwal()
        .build();
    let session = SessionContext::new_with_state(state);
    session
        .register_table("t", Arc::new(MemWalTableProvider::new(table.clone())))
        .unwrap();
    session
}

pub async fn sql(
    session: &SessionContext,
    sql: &str,
) -> datafusion::error::Result<Vec<RecordBatch>> {
    session.sql(sql).await?.collect().await
}

/// (id, n) of each row of a query whose first columns are these, by id; a repeated id fails.
pub fn pairs(batches: &[RecordBatch]) -> BTreeMap<i64, i64> {
    let mut found = BTreeMap::new();
    for batch in batches {
        let ids = batch.column(0).as_primitive::<Int64Type>();
        let ns = batch.column(1).as_primitive::<Int64Type>();
        for row in 0..batch.num_rows() {
            let before = found.insert(ids.value(row), ns.value(row));
            assert_eq!(before, None, "id {} came twice", ids.value(row));
        }
    }
    found
}

/// The table as every access path sees it: scan, count, filter, key lookup by SQL and by
/// the API. They must agree with each other; what they agree on is returned.
pub async fn read_everywhere(table: &MemWalTable) -> BTreeMap<i64, i64> {
    let session = session(table);
    let scanned = pairs(&sql(&session, "SELECT id, n FROM t").await.unwrap());
    let count = sql(&session, "SELECT count(*) FROM t").await.unwrap();
    let count = count[0].column(0).as_primitive::<Int64Type>().value(0);
    assert_eq!(
        count as usize,
        scanned.len(),
        "count(*) disagrees with the scan"
    );
    let filtered = sql(&session, "SELECT id, n FROM t WHERE txt LIKE 'row %'").await;
    assert_eq!(pairs(&filtered.unwrap()), scanned, "a filter disagrees");
    let ranged = sql(&session, "SELECT id, n FROM t WHERE id >= 0").await;
    assert_eq!(pairs(&ranged.unwrap()), scanned, "a key range disagrees");
    for (&id, &n) in scanned.iter().take(50) {
        let found = sql(&session, &format!("SELECT id, n FROM t WHERE id = {id}"))
            .await
            .unwrap();
        assert_eq!(
            pairs(&found),
            BTreeMap::from([(id, n)]),
            "key lookup of {id}"
        );
        let row = table.get(&[id.into()]).await.unwrap().unwrap();
        assert_eq!(pairs(&[row]), BTreeMap::from([(id, n)]), "get of {id}");
    }
    scanned
}
