use std::sync::Arc;

use datafusion::arrow::array::{AsArray, RecordBatch};
use datafusion::arrow::datatypes::{Int64Type, Schema};
use datafusion::common::ScalarValue;
use futures::TryStreamExt;
use lance::dataset::mem_wal::scanner::{LsmScanner, ShardSnapshot};
use lance::dataset::mem_wal::{DatasetMemWalExt, ShardWriterConfig};
use roaring::RoaringBitmap;

use super::fixture::{KEYS, base, key_of, lookup, rows, target_of, write};
use crate::error::ErrorKind;
use crate::generation::*;
use crate::layout::UNSHARDED_SHARD;

#[tokio::test]
async fn lance_reads_what_we_wrote() {
    for names in KEYS {
        let target = target_of(base("memory://table", names, false).await).await;
        let written = write(&target).await;
        let snapshot = ShardSnapshot::new(UNSHARDED_SHARD)
            .with_current_generation(8)
            .with_sstable(7, written.folder);
        let key = names.iter().map(|name| name.to_string()).collect();
        let stream = LsmScanner::new(Arc::clone(target.base()), vec![snapshot], key)
            .try_into_stream()
            .await
            .unwrap();
        let batches: Vec<RecordBatch> = stream.try_collect().await.unwrap();
        let mut seen = Vec::new();
        for batch in &batches {
            let ids = batch["id"].as_primitive::<Int64Type>().values();
            let words = batch["word"].as_string::<i32>();
            seen.extend(
                ids.iter()
                    .zip(words.iter().flatten())
                    .map(|(&id, word)| (id, word)),
            );
        }
        seen.sort_unstable();
        assert_eq!(seen, [(1, "one"), (2, "two"), (4, "four"), (9, "c")]);
    }
}

#[tokio::test]
async fn what_lance_wrote_is_read() {
    for names in KEYS {
        let mut dataset = base("memory://table", names, false).await;
        dataset
            .initialize_mem_wal()
            .unsharded()
            .execute()
            .await
            .unwrap();
        let target = target_of(dataset).await;
        let config = ShardWriterConfig::default();
        let writer = target
            .base()
            .mem_wal_writer(UNSHARDED_SHARD, config)
            .await
            .unwrap();
        let schema = Schema::from(target.base().schema());
        let put = rows(&schema, &[1, 2, 1, 4], &["x", "two", "one", "four"], &[]);
        writer.put(vec![put]).await.unwrap();
        let key: Vec<usize> = names
            .iter()
            .map(|name| schema.index_of(name).unwrap())
            .collect();
        let dead = rows(&schema, &[3], &[""], &[]).project(&key).unwrap();
        writer.delete(vec![dead]).await.unwrap();
        writer
            .force_freeze_active()
            .await
            .unwrap()
            .wait()
            .await
            .unwrap();
        let manifest = writer.manifest().await.unwrap().unwrap();
        writer.close().await.unwrap();
        let [written] = manifest.sstables.as_slice() else {
            panic!("one generation was flushed: {manifest:?}");
        };

        let generation = Generation::open(&target, written.generation, &written.path)
            .await
            .unwrap();
        assert_eq!(
            (generation.physical_rows(), generation.deleted_rows()),
            (5, 1)
        );
        let codec = target.codec().unwrap();
        let keys = generation.keys().await.unwrap();
        let found: Vec<_> = (0..=4).map(|id| lookup(codec, &keys, names, id)).collect();
        assert_eq!(found, [None, Some(2), Some(1), Some(4), Some(3)]);
        assert_eq!(
            *generation.tombstones().await.unwrap(),
            RoaringBitmap::from([4])
        );
        assert!((1..=4).all(|id| generation.may_contain(&key_of(names, id))));
        let denied = (100..200).filter(|&id| !generation.may_contain(&key_of(names, id)));
        assert_eq!(denied.count(), if names == ["small"] { 0 } else { 100 });
        let taken = generation
            .take(&[3, 2], &["word".to_string()])
            .await
            .unwrap();
        let words: Vec<_> = taken
            .column(0)
            .as_string::<i32>()
            .iter()
            .flatten()
            .collect();
        assert_eq!(words, ["four", "one"]);
    }
}
#[tokio::test]
async fn a_table_without_a_key_keeps_every_row() {
    let target = target_of(base("memory://table", &[], false).await).await;
    let written = write(&target).await;
    assert_eq!(written.primary_key_bytes, None);
    let generation = Generation::open(&target, 7, &written.folder).await.unwrap();
    assert_eq!(generation.dataset().count_rows(None).await.unwrap(), 6);
    assert!(generation.may_contain(&[ScalarValue::Int64(Some(100))]));
    let error = generation.keys().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);

    // Lance 14.0.2 flushes no key index for such a table, and cannot scan the result:
    // its scanner opens the index of every generation. Ours is no worse than its own.
    let mut dataset = base("memory://table", &[], false).await;
    dataset
        .initialize_mem_wal()
        .unsharded()
        .execute()
        .await
        .unwrap();
    let lance = target_of(dataset).await;
    let config = ShardWriterConfig::default();
    let writer = lance
        .base()
        .mem_wal_writer(UNSHARDED_SHARD, config)
        .await
        .unwrap();
    let schema = Schema::from(lance.base().schema());
    writer
        .put(vec![rows(&schema, &[1], &["x"], &[])])
        .await
        .unwrap();
    writer
        .force_freeze_active()
        .await
        .unwrap()
        .wait()
        .await
        .unwrap();
    let manifest = writer.manifest().await.unwrap().unwrap();
    writer.close().await.unwrap();
    let theirs = &manifest.sstables[0];
    Generation::open(&lance, theirs.generation, &theirs.path)
        .await
        .unwrap();
    for (target, folder) in [(&target, &written.folder), (&lance, &theirs.path)] {
        let snapshot = ShardSnapshot::new(UNSHARDED_SHARD)
            .with_current_generation(8)
            .with_sstable(7, folder.clone());
        let scanner = LsmScanner::new(Arc::clone(target.base()), vec![snapshot], vec![]);
        let error = scanner.try_into_stream().await.err().unwrap();
        assert!(error.to_string().contains("_pk_index"), "{error}");
    }
}
