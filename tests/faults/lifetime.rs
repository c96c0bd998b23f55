//! Handles that are dropped, closes that are cut short, runtimes that end, logs and base
//! tables of others, columns that cannot be stored.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Field, Fields, Schema};
use datafusion::arrow::ipc::reader::StreamReader;
use datafusion::arrow::ipc::writer::StreamWriter;
use datafusion::common::ScalarValue;
use datafusion_memwal::{ErrorKind, MemWalTable};
use lance::dataset::{InsertBuilder, WriteMode, WriteParams};

use super::support::fault_store::{Fault, Faults, Request};
use super::support::tables::{
    builder, create, keys, open, pairs, read_everywhere, rows, schema, session, shared_uri, sql,
};
use super::{is_waiting, settle};

const ON_DEMAND: (&str, &str) = ("flush_interval", "on_demand");

#[tokio::test]
async fn a_close_that_is_dropped_can_be_repeated() {
    let (uri, faults) = (shared_uri(), Faults::new());
    let options = [("durable_write", "false"), ("flush_interval", "1h")];
    let table = create(&uri, &faults, &options).await;
    table.put(vec![rows(&[(1, 1)])]).await.unwrap();
    settle().await;
    faults.add(Request::Put, "/wal/", Fault::Block, usize::MAX);
    table.put(vec![rows(&[(2, 2)])]).await.unwrap();
    {
        let mut close = Box::pin(table.close());
        assert!(is_waiting(&mut close).await);
    }
    faults.heal();
    table.close().await.unwrap();
    assert_eq!(read_everywhere(&open(&uri, &faults).await).await.len(), 2);
}

#[tokio::test]
async fn a_drop_appends_what_no_put_has_waited_for() {
    let (uri, faults) = (shared_uri(), Faults::new());
    let options = [("durable_write", "false"), ("flush_interval", "1h")];
    let table = create(&uri, &faults, &options).await;
    for id in 0..3 {
        table.put(vec![rows(&[(id, id)])]).await.unwrap();
        settle().await;
    }
    drop(table);
    assert_eq!(read_everywhere(&open(&uri, &faults).await).await.len(), 3);
}

#[test]
fn a_runtime_that_ends_ends_the_writer() {
    let runtime = || {
        tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap()
    };
    let (uri, faults) = (shared_uri(), Faults::new());
    let first = runtime();
    let table = first.block_on(create(&uri, &faults, &[ON_DEMAND]));
    first.block_on(table.put(vec![rows(&[(1, 1)])])).unwrap();
    drop(first);
    runtime().block_on(async {
        let error = table.put(vec![rows(&[(2, 2)])]).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Poisoned, "{error}");
        let reopened = open(&uri, &faults).await;
        assert_eq!(read_everywhere(&reopened).await, BTreeMap::from([(1, 1)]));
    });
}

#[tokio::test]
async fn a_flush_after_the_store_has_healed_does_not_tell_old_news() {
    let (uri, faults) = (shared_uri(), Faults::new());
    let table = create(&uri, &faults, &[ON_DEMAND]).await;
    table.put(vec![rows(&[(1, 1)])]).await.unwrap();
    faults.add(Request::Put, "_gen_", Fault::Fail, usize::MAX);
    assert_eq!(
        table.flush().await.unwrap_err().kind(),
        ErrorKind::Unavailable
    );
    faults.heal();
    assert!(table.flush().await.unwrap().is_some());
}

/// Rewrites a log entry as Lance does in its mode without memtables: no generation.
fn strip_generation(entry: &Path) {
    let reader = StreamReader::try_new(std::fs::File::open(entry).unwrap(), None).unwrap();
    let mut metadata = reader.schema().metadata().clone();
    metadata.remove("generation").unwrap();
    let schema = Schema::new_with_metadata(reader.schema().fields().clone(), metadata);
    let mut bytes = Vec::new();
    let mut writer = StreamWriter::try_new(&mut bytes, &schema).unwrap();
    for batch in reader {
        writer.write(&batch.unwrap()).unwrap();
    }
    writer.finish().unwrap();
    std::fs::write(entry, bytes).unwrap();
}

#[tokio::test]
async fn a_log_with_entries_of_a_writer_without_memtables_loses_nothing() {
    // The number of the entry, of those that are there, which names no generation.
    for stripped in [1, 2] {
        let folder = tempfile::tempdir().unwrap();
        let uri = folder.path().join("t").to_str().unwrap().to_string();
        let builder = || MemWalTable::builder(&uri).with_option(ON_DEMAND.0, ON_DEMAND.1);
        let key = ["id".to_string()];
        let table = builder().create(schema(), &key).await.unwrap();
        table.put(vec![rows(&[(1, 1)])]).await.unwrap();
        table.put(vec![rows(&[(2, 2)])]).await.unwrap();
        drop(table);
        let entries = super::damage::files(folder.path(), "arrow");
        strip_generation(&entries[stripped - 1]);
        for id in 3..7 {
            let table = builder().open().await.unwrap();
            let found = read_everywhere(&table).await;
            assert_eq!(
                found.len() as i64,
                id - 1,
                "entry {stripped}, before row {id}"
            );
            table.put(vec![rows(&[(id, id)])]).await.unwrap();
        }
    }
}

#[tokio::test]
async fn keys_that_the_base_table_has_twice_are_one_row() {
    let folder = tempfile::tempdir().unwrap();
    let uri = folder.path().join("t").to_str().unwrap().to_string();
    let table = MemWalTable::create(&uri, schema(), &["id"]).await.unwrap();
    table.close().await.unwrap();
    let dataset = Arc::new(lance::Dataset::open(&uri).await.unwrap());
    let params = WriteParams {
        mode: WriteMode::Append,
        ..WriteParams::default()
    };
    InsertBuilder::new(dataset)
        .with_params(&params)
        .execute(vec![rows(&[(1, 10), (2, 20), (1, 11)])])
        .await
        .unwrap();
    let table = MemWalTable::open(&uri).await.unwrap();
    assert_eq!(
        read_everywhere(&table).await,
        BTreeMap::from([(1, 11), (2, 20)])
    );
    table.put(vec![rows(&[(1, 100)])]).await.unwrap();
    assert_eq!(
        read_everywhere(&table).await,
        BTreeMap::from([(1, 100), (2, 20)])
    );
    table.delete(vec![keys(&[1])]).await.unwrap();
    assert_eq!(read_everywhere(&table).await, BTreeMap::from([(2, 20)]));
}

#[tokio::test]
async fn columns_that_lance_cannot_store_are_refused_when_the_table_is_made() {
    let item = |data_type| Arc::new(Field::new("item", data_type, true));
    let inner = Fields::from(vec![Field::new("a", DataType::Int64, true)]);
    for data_type in [
        DataType::FixedSizeList(item(DataType::Utf8), 2),
        DataType::FixedSizeList(item(DataType::Struct(inner)), 2),
        DataType::Struct(Fields::empty()),
    ] {
        let columns = vec![
            Field::new("id", DataType::Int64, false),
            Field::new("x", data_type.clone(), true),
        ];
        let uri = shared_uri();
        let error = MemWalTable::create(&uri, Arc::new(Schema::new(columns)), &["id"])
            .await
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{data_type}: {error}");
        assert!(error.to_string().contains("the column 'x'"), "{error}");
        assert!(!MemWalTable::builder(&uri).exists().await.unwrap());
    }
}

#[tokio::test]
async fn a_dataset_of_the_legacy_format_is_refused_before_anything_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let uri = folder.path().join("t").to_str().unwrap().to_string();
    let params = WriteParams {
        data_storage_version: Some(lance_file::version::LanceFileVersion::Legacy),
        ..WriteParams::default()
    };
    InsertBuilder::new(uri.as_str())
        .with_params(&params)
        .execute(vec![rows(&[(1, 1)])])
        .await
        .unwrap();
    let error = MemWalTable::open(&uri).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("legacy file format"), "{error}");
    assert!(!folder.path().join("t/_mem_wal").exists());
}

#[tokio::test]
async fn dictionaries_of_many_puts_are_joined() {
    let narrow = DataType::Dictionary(Box::new(DataType::Int8), Box::new(DataType::Utf8));
    let schema = Arc::new(Schema::new(vec![
        Field::new("id", DataType::Int64, false),
        Field::new("n", narrow.clone(), true),
    ]));
    let (uri, faults) = (shared_uri(), Faults::new());
    let table = builder(&uri, &faults, &[ON_DEMAND])
        .create(Arc::clone(&schema), &["id".to_string()])
        .await
        .unwrap();
    for start in (0..500).step_by(100) {
        let ids: Vec<i64> = (start..start + 100).collect();
        let texts = ids.iter().map(|id| format!("text {id}"));
        let texts: ArrayRef = Arc::new(StringArray::from_iter_values(texts));
        let columns = vec![
            Arc::new(Int64Array::from(ids)) as ArrayRef,
            cast(&texts, &narrow).unwrap(),
        ];
        let batch = RecordBatch::try_new(Arc::clone(&schema), columns).unwrap();
        table.put(vec![batch]).await.unwrap();
    }
    let distinct = "SELECT count(DISTINCT n) FROM t WHERE id >= 0";
    for flushed in [false, true] {
        if flushed {
            table.flush().await.unwrap();
        }
        let counted = sql(&session(&table), distinct).await.unwrap();
        let counted = ScalarValue::try_from_array(counted[0].column(0), 0).unwrap();
        assert_eq!(counted, ScalarValue::Int64(Some(500)), "flushed={flushed}");
    }
}

#[tokio::test]
async fn a_value_that_no_key_can_have_finds_no_row() {
    let (uri, faults) = (shared_uri(), Faults::new());
    let table = create(&uri, &faults, &[ON_DEMAND]).await;
    table.put(vec![rows(&[(1, 1)])]).await.unwrap();
    for flushed in [false, true] {
        if flushed {
            table.flush().await.unwrap();
        }
        let absent = [
            ScalarValue::Float64(Some(1.5)),
            ScalarValue::Decimal128(Some(15), 3, 1),
            ScalarValue::UInt64(Some(u64::MAX)),
            ScalarValue::Int64(None),
        ];
        for value in absent {
            let found = table.get(std::slice::from_ref(&value)).await.unwrap();
            assert!(found.is_none(), "{value:?}, flushed={flushed}");
        }
        let row = table.get(&[ScalarValue::Float64(Some(1.0))]).await.unwrap();
        assert_eq!(pairs(&[row.unwrap()]), BTreeMap::from([(1, 1)]));
    }
}
