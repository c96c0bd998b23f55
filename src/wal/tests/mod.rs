//! Entries through damage and schema changes, appends through a store that fails, and
//! Lance's own log as the referee.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, DictionaryArray, Float32Array, Int32Array, Int64Array,
    ListArray, RecordBatch, StringArray, StructArray,
};
use datafusion::arrow::datatypes::{DataType, Field, Fields, Int32Type, Int64Type, Schema};
use datafusion::arrow::ipc::writer::StreamWriter;
use futures::TryStreamExt;
use futures::stream::BoxStream;
use lance::dataset::mem_wal::{WalAppender as LanceAppender, WalTailer as LanceTailer};
use lance_core::datatypes::Schema as LanceSchema;
use lance_io::object_store::ObjectStore;
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore as Store, ObjectStoreExt, PutMode, PutMultipartOptions, PutOptions, PutPayload,
    PutResult, Result as StoreResult,
};
use parking_lot::Mutex;
use uuid::Uuid;

use super::entry::decode;
use super::*;
use crate::error::{ErrorKind, Result};
use crate::layout::ShardLayout;
use crate::schema::{TableSchema, declare};

mod entry;
mod faulty;

use faulty::*;

const DELAY: Duration = Duration::from_millis(10);
const HEADER: EntryHeader = EntryHeader {
    writer_epoch: 4,
    generation: Some(2),
};

fn layout() -> ShardLayout {
    ShardLayout::new(Path::from("t"), Uuid::from_u128(7))
}

fn pair_fields() -> Fields {
    Fields::from(vec![
        Field::new("a", DataType::Int32, true),
        Field::new("b", DataType::Utf8, true),
    ])
}

/// A key, a dictionary, and a list of structs.
fn table() -> Arc<TableSchema> {
    let tag = DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8));
    let item = Arc::new(Field::new("item", DataType::Struct(pair_fields()), true));
    let schema = Schema::new(vec![
        Field::new("id", DataType::Int64, false),
        Field::new("tag", tag, true),
        Field::new("pairs", DataType::List(item), true),
        Field::new("x", DataType::Float32, true),
    ]);
    let declared = declare("t", &schema, &["id".to_string()]).unwrap();
    let mut base = LanceSchema::try_from(declared.as_ref()).unwrap();
    base.set_field_id(None);
    Arc::new(TableSchema::from_base("t", &base).unwrap())
}

fn rows(schema: &TableSchema, ids: &[i64]) -> RecordBatch {
    let tags: DictionaryArray<Int32Type> = ids
        .iter()
        .map(|id| format!("tag {id}"))
        .map(Some)
        .collect::<Vec<_>>()
        .iter()
        .map(Option::as_deref)
        .collect();
    let DataType::List(item) = schema.rows().field(2).data_type() else {
        panic!("pairs is a list");
    };
    let DataType::Struct(fields) = item.data_type() else {
        panic!("pairs holds structs");
    };
    let numbers = Int32Array::from_iter_values(ids.iter().map(|id| *id as i32 * 10));
    let texts = StringArray::from_iter_values(ids.iter().map(|id| format!("b{id}")));
    let pairs = StructArray::new(
        fields.clone(),
        vec![Arc::new(numbers), Arc::new(texts)],
        None,
    );
    let offsets = datafusion::arrow::buffer::OffsetBuffer::from_lengths(vec![1; ids.len()]);
    let lists = ListArray::new(Arc::clone(item), offsets, Arc::new(pairs), None);
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from(ids.to_vec())),
        Arc::new(tags),
        Arc::new(lists),
        Arc::new(Float32Array::from_iter_values(
            ids.iter().map(|id| *id as f32),
        )),
        Arc::new(BooleanArray::from(vec![false; ids.len()])),
    ];
    RecordBatch::try_new(Arc::clone(schema.rows()), columns).unwrap()
}

fn example(schema: &TableSchema, ids: &[i64]) -> Bytes {
    example_of(HEADER.writer_epoch, schema, ids)
}

fn example_of(writer_epoch: u64, schema: &TableSchema, ids: &[i64]) -> Bytes {
    let header = EntryHeader {
        writer_epoch,
        ..HEADER
    };
    encode(schema, &header, &[rows(schema, ids)]).unwrap().bytes
}

fn path() -> Path {
    layout().wal_entry(1)
}

fn ids(batches: &[RecordBatch]) -> Vec<i64> {
    let columns = batches.iter().map(|batch| batch.column(0));
    columns
        .flat_map(|ids| ids.as_primitive::<Int64Type>().values().to_vec())
        .collect()
}

#[tokio::test(start_paused = true)]
async fn an_append_survives_a_store_that_fails() {
    let (store, faulty) = faulty();
    let schema = table();
    let mut appender = appender(&store, 1, 1);
    let epoch = || async { Ok(1) };
    for (id, faults) in [
        (1, vec![]),
        (2, vec![Fault::LostAnswer]),
        (3, vec![Fault::FalseConflict]),
        (4, vec![Fault::Denied, Fault::Denied]),
        (5, vec![Fault::LostAnswer, Fault::FalseConflict]),
    ] {
        *faulty.faults.lock() = faults;
        let position = appender.append(example(&schema, &[id]), epoch).await;
        assert_eq!(position.unwrap(), id as u64);
    }
    assert_eq!(replay(&store, 1, 6).await.unwrap(), [1, 2, 3, 4, 5]);
    assert_eq!(find_tip(&store, &layout(), 0).await.unwrap(), 6);

    *faulty.faults.lock() = vec![Fault::Denied; 9];
    let error = appender.append(example(&schema, &[6]), epoch).await;
    let error = error.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Poisoned);
    assert!(std::error::Error::source(&error).is_some());
    assert_eq!(appender.next_position(), 6);

    // An unavailable store and a manifest that has moved on: no use in trying again.
    *faulty.faults.lock() = vec![Fault::Denied];
    let error = appender.append(example(&schema, &[6]), || async { Ok(2) });
    assert_eq!(error.await.unwrap_err().kind(), ErrorKind::Fenced);
}

#[tokio::test(start_paused = true)]
async fn a_dropped_append_leaves_the_appender_where_it_was() {
    let (store, faulty) = faulty();
    let schema = table();
    let mut appender = appender(&store, 1, 1);
    let bytes = example(&schema, &[1]);
    let hang = || std::future::pending::<Result<u64>>();
    *faulty.faults.lock() = vec![Fault::LostAnswer];
    let dropped = tokio::time::timeout(DELAY, appender.append(bytes.clone(), hang)).await;
    assert!(dropped.is_err());
    assert_eq!(appender.next_position(), 1);
    let position = appender.append(bytes, || async { Ok(1) }).await.unwrap();
    assert_eq!((position, appender.next_position()), (1, 2));
}

#[tokio::test(start_paused = true)]
async fn a_successor_fences_an_idle_writer() {
    let store = Arc::new(ObjectStore::memory());
    let schema = table();
    let mut old = appender(&store, 1, 1);
    let epoch = || async { Ok(2) };
    old.append(example_of(1, &schema, &[1]), epoch)
        .await
        .unwrap();

    // The old writer appends between the search for the tip and the fence.
    let tip = find_tip(&store, &layout(), 0).await.unwrap();
    old.append(example_of(1, &schema, &[2]), epoch)
        .await
        .unwrap();
    let mut new = appender(&store, 2, tip);
    assert_eq!(new.write_sentinel(epoch).await.unwrap(), 3);
    assert_eq!(replay(&store, 1, 4).await.unwrap(), [1, 2]);

    let stale = || async { Ok(1) };
    let error = old
        .append(example_of(1, &schema, &[3]), stale)
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Fenced);
    assert_eq!(
        new.append(example_of(2, &schema, &[4]), epoch)
            .await
            .unwrap(),
        4
    );
    // An entry that nobody else can have written: neither overwritten nor passed by.
    let mut lost = appender(&store, 9, 4);
    let nine = || async { Ok(9) };
    let error = lost
        .append(example_of(2, &schema, &[5]), nine)
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Poisoned);
    assert!(error.message().contains(layout().wal_entry(4).as_ref()));
    // A claim that was overtaken before its fence.
    let mut late = appender(&store, 8, 4);
    let error = late.write_sentinel(nine).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Fenced);
}

#[tokio::test]
async fn a_gap_is_an_error_and_staging_files_are_none() {
    let store = Arc::new(ObjectStore::memory());
    let schema = table();
    assert_eq!(find_tip(&store, &layout(), 0).await.unwrap(), 1);
    assert_eq!(find_tip(&store, &layout(), 8).await.unwrap(), 9);
    for position in [1, 2, 4] {
        let bytes = example(&schema, &[position as i64]);
        let path = layout().wal_entry(position);
        store.inner.put(&path, bytes.into()).await.unwrap();
    }
    let staging = Path::from(format!("{}.tmp.0a", layout().wal_entry(77)));
    store.inner.put(&staging, "half".into()).await.unwrap();
    assert_eq!(find_tip(&store, &layout(), 0).await.unwrap(), 5);
    let error = replay(&store, 1, 5).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(
        error.message().contains("WAL entry 3 is missing"),
        "{error}"
    );
    assert_eq!(replay(&store, 1, 3).await.unwrap(), [1, 2]);
}

#[tokio::test]
async fn lance_reads_our_log_and_we_read_lances() {
    let schema = table();
    for local in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let (store, root) = match local {
            true => ObjectStore::from_uri(folder.path().to_str().unwrap())
                .await
                .unwrap(),
            false => (Arc::new(ObjectStore::memory()), Path::from("t")),
        };
        let layout = ShardLayout::new(root.clone(), Uuid::from_u128(7));
        let shard = layout.shard();
        let mut ours = WalAppender::new(Arc::clone(&store), layout.clone(), 4, 1, 0, DELAY);
        let epoch = || async { Ok(4) };
        assert_eq!(ours.write_sentinel(epoch).await.unwrap(), 1);
        ours.append(example(&schema, &[1, 2]), epoch).await.unwrap();

        let tailer = LanceTailer::new(Arc::clone(&store), root.clone(), shard);
        let fence = tailer.read_entry(1).await.unwrap().unwrap();
        assert_eq!((fence.writer_epoch, fence.batches.len()), (4, 0));
        let entry = tailer.read_entry(2).await.unwrap().unwrap();
        assert_eq!(entry.writer_epoch, 4);
        assert_eq!(ids(&entry.batches), [1, 2]);
        assert_eq!(entry.batches[0].schema().fields(), schema.stored().fields());
        assert_eq!(tailer.next_position().await.unwrap(), 3);

        let lance = LanceAppender::open(Arc::clone(&store), root.clone(), shard, 0)
            .await
            .unwrap();
        let columns = entry.batches[0].columns().to_vec();
        let stored = RecordBatch::try_new(Arc::clone(schema.stored()), columns).unwrap();
        lance.append(vec![stored]).await.unwrap();
        assert_eq!(find_tip(&store, &layout, 0).await.unwrap(), 4);
        let entries = read_entries(Arc::clone(&store), layout, Arc::clone(&schema), 1, 4);
        let entries: Vec<_> = entries.try_collect().await.unwrap();
        assert!(entries[0].1.batches.is_empty());
        assert_eq!(entries[1].1.batches, entries[2].1.batches);
        assert_eq!(entries[2].1.header.generation, None);
        assert_eq!(entries[1].1.batches, [rows(&schema, &[1, 2])]);
    }
}

/// Background tasks own these futures.
#[test]
fn the_log_works_in_spawned_tasks() {
    struct Epochs;
    impl Epochs {
        async fn epoch(&self) -> Result<u64> {
            Ok(1)
        }
    }
    fn is_send(_: impl Send) {}
    let store = Arc::new(ObjectStore::memory());
    let epochs = Arc::new(Epochs);
    let mut appender = appender(&store, 1, 1);
    is_send(appender.append(Bytes::new(), || epochs.epoch()));
    is_send(appender.write_sentinel(|| epochs.epoch()));
    is_send(find_tip(&store, &layout(), 0));
    is_send(read_entries(Arc::clone(&store), layout(), table(), 1, 2));
}

/// Lance's writer takes over a shard whose log is ours, and we take it back.
#[tokio::test]
async fn lances_writer_replays_our_log() {
    use datafusion::arrow::array::RecordBatchIterator;
    use lance::Dataset;
    use lance::dataset::mem_wal::{DatasetMemWalExt, ShardWriterConfig};

    let folder = tempfile::tempdir().unwrap();
    let columns = Schema::new(vec![
        Field::new("id", DataType::Int64, false),
        Field::new("x", DataType::Float32, true),
    ]);
    let declared = declare("t", &columns, &["id".to_string()]).unwrap();
    let uri = folder.path().to_str().unwrap();
    let none = RecordBatchIterator::new(vec![], Arc::clone(&declared));
    let mut dataset = Dataset::write(none, uri, None).await.unwrap();
    let builder = dataset.initialize_mem_wal().unsharded();
    builder.execute().await.unwrap();
    let schema = Arc::new(TableSchema::from_base("t", dataset.schema()).unwrap());
    let store = dataset.object_store(None).await.unwrap();
    let shard = Uuid::from_u128(9);
    let layout = ShardLayout::new(dataset.branch_location().path.clone(), shard);
    let batch = |ids: &[i64]| {
        let columns: Vec<ArrayRef> = vec![
            Arc::new(Int64Array::from(ids.to_vec())),
            Arc::new(Float32Array::from(vec![0.5; ids.len()])),
            Arc::new(BooleanArray::from(vec![false; ids.len()])),
        ];
        RecordBatch::try_new(Arc::clone(schema.rows()), columns).unwrap()
    };

    let manifests = crate::manifest::ManifestStore::new(Arc::clone(&store), layout.clone());
    let epoch = manifests.claim(1).await.unwrap().writer_epoch;
    let mut ours = WalAppender::new(Arc::clone(&store), layout.clone(), epoch, 1, 0, DELAY);
    ours.write_sentinel(|| manifests.epoch()).await.unwrap();
    let header = EntryHeader {
        writer_epoch: epoch,
        generation: Some(1),
    };
    for ids in [[1, 2].as_slice(), &[3]] {
        let bytes = encode(&schema, &header, &[batch(ids)]).unwrap().bytes;
        ours.append(bytes, || manifests.epoch()).await.unwrap();
    }

    let mut config = ShardWriterConfig::new(shard);
    config.max_wal_flush_interval = Some(DELAY);
    let lance = dataset.mem_wal_writer(shard, config).await.unwrap();
    assert_eq!(lance.memtable_stats().await.unwrap().row_count, 3);
    let put = RecordBatch::try_new(
        Arc::clone(schema.logical()),
        batch(&[4]).columns()[..2].to_vec(),
    )
    .unwrap();
    lance.put(vec![put]).await.unwrap();

    let bytes = encode(&schema, &header, &[batch(&[5])]).unwrap().bytes;
    let error = ours.append(bytes, || manifests.epoch()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Fenced);
    let end = find_tip(&store, &layout, 0).await.unwrap();
    let entries = read_entries(store, layout, Arc::clone(&schema), 1, end);
    let entries: Vec<_> = entries.try_collect().await.unwrap();
    let all = entries.iter().flat_map(|(_, entry)| ids(&entry.batches));
    assert_eq!(all.collect::<Vec<_>>(), [1, 2, 3, 4]);
    assert_eq!(entries.last().unwrap().1.header.generation, Some(1));
    drop(lance);
}
