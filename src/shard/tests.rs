//! What only the inside of a writer can show.

use std::sync::Arc;

use datafusion::arrow::array::{BinaryArray, Int64Array, RecordBatch};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};

use crate::error::ErrorKind;
use crate::index::key::Keys;
use crate::memtable::PreparedBatch;
use crate::table::MemWalTable;

fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new("id", DataType::Int64, false)]))
}

fn row(id: i64) -> RecordBatch {
    RecordBatch::try_new(schema(), vec![Arc::new(Int64Array::from(vec![id]))]).unwrap()
}

#[tokio::test]
async fn fault_06_an_index_that_fails_ends_the_writer_and_a_reopen_rebuilds_it() {
    let folder = tempfile::tempdir().unwrap();
    let uri = folder.path().join("t").to_str().unwrap().to_string();
    let table = MemWalTable::create(&uri, schema(), &["id"]).await.unwrap();
    table.put(vec![row(1)]).await.unwrap();

    // Keys of the wrong kind stand for an index that cannot take a batch.
    let writer = table.writer();
    let state = writer.state();
    let mut put = super::prepare_put(state.schema(), state.codec(), &[row(2)]).unwrap();
    let bad = PreparedBatch {
        keys: Some(Keys::Bytes(BinaryArray::from_vec(vec![b"x"]))),
        ..put.remove(0)
    };
    let failed = writer
        .put(vec![bad])
        .await
        .unwrap()
        .wait()
        .await
        .unwrap_err();
    assert_eq!(failed.kind(), ErrorKind::Poisoned, "{failed}");
    for id in [1, 3] {
        let error = table.put(vec![row(id)]).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Poisoned);
    }
    assert_eq!(table.snapshot().unwrap_err().kind(), ErrorKind::Poisoned);
    assert!(table.stats().failure.is_some());
    drop(table);

    let table = MemWalTable::open(&uri).await.unwrap();
    assert!(table.get(&[1_i64.into()]).await.unwrap().is_some());
    table.put(vec![row(4)]).await.unwrap();
    assert!(table.get(&[4_i64.into()]).await.unwrap().is_some());
}
