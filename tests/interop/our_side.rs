//! A table in our hands.

use std::sync::Arc;

use datafusion::arrow::array::{AsArray, RecordBatch};
use datafusion::arrow::datatypes::Int64Type;
use datafusion::prelude::SessionContext;
use datafusion_memwal::{MemWalTable, MemWalTableProvider};

use super::kinds::Kind;
use super::script::{KEYS, Model, Step};

pub async fn open(uri: &str) -> MemWalTable {
    let builder = MemWalTable::builder(uri).with_option("flush_interval", "20ms");
    builder.open().await.unwrap()
}

pub async fn create(uri: &str, kind: &Kind) -> MemWalTable {
    let builder = MemWalTable::builder(uri).with_option("flush_interval", "20ms");
    let created = builder.create(kind.schema(), &kind.key_names()).await;
    created.unwrap()
}

pub async fn run(table: &MemWalTable, kind: &Kind, steps: &[Step]) {
    for step in steps {
        match step {
            Step::Put(rows) => table.put(vec![kind.rows(rows)]).await.unwrap(),
            Step::Singles(rows) => {
                let mut pending = Vec::new();
                for &row in *rows {
                    let put = table.put_no_wait(vec![kind.rows(&[row])]).await;
                    pending.push(put.unwrap());
                }
                for put in pending {
                    put.await.unwrap();
                }
            }
            Step::Delete(keys) => table.delete(vec![kind.keys(keys)]).await.unwrap(),
            Step::Flush => {
                let flushed = table.flush().await.unwrap();
                assert!(flushed.is_some_and(|flushed| flushed.rows > 0));
            }
        }
    }
}

async fn query(session: &SessionContext, sql: &str) -> Vec<RecordBatch> {
    let plan = session.sql(sql).await.unwrap();
    plan.collect().await.unwrap()
}

/// Every row through a scan, a count, a condition on the key and the API.
pub async fn assert_holds(table: &MemWalTable, kind: &Kind, model: &Model, when: &str) {
    let when = format!("{}, {when}", kind.name);
    let session = SessionContext::new();
    let provider = MemWalTableProvider::new(table.clone());
    session.register_table("t", Arc::new(provider)).unwrap();
    let scanned = kind.content(&query(&session, "SELECT * FROM t").await);
    assert_eq!(scanned, kind.expected(model), "our scan: {when}");
    let backwards = format!("SELECT {} FROM t", kind.columns_backwards());
    let scanned = kind.content(&query(&session, &backwards).await);
    assert_eq!(scanned, kind.expected(model), "our backward scan: {when}");
    let count = query(&session, "SELECT count(*) FROM t").await;
    let count = count[0].column(0).as_primitive::<Int64Type>().value(0);
    assert_eq!(count as usize, model.len(), "our count: {when}");
    for key in KEYS {
        let one = model
            .get_key_value(&key)
            .map(|(&key, &version)| (key, version));
        let expected = kind.expected(&one.into_iter().collect());
        let columns = kind.columns_backwards();
        let sql = format!("SELECT {columns} FROM t WHERE {}", kind.condition(key));
        let found = query(&session, &sql).await;
        assert_eq!(
            kind.content(&found),
            expected,
            "our key lookup, {key}: {when}"
        );
        let found = table.get(&kind.key_values(key)).await.unwrap();
        let found: Vec<RecordBatch> = found.into_iter().collect();
        assert_eq!(kind.content(&found), expected, "our get, {key}: {when}");
    }
}

/// Drops the table as a crash would, or closes it.
pub async fn end(table: MemWalTable, closed: bool) {
    if closed {
        table.close().await.unwrap();
    }
    drop(table);
}
