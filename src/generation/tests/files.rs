use std::collections::HashMap;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray, Int64Array};
use datafusion::arrow::datatypes::Int64Type;
use datafusion::common::ScalarValue;
use roaring::RoaringBitmap;
use tempfile::TempDir;

use super::fixture::{KEYS, base, base_of_version, key_of, lookup, rows, target_of, write};
use crate::error::ErrorKind;
use crate::generation::*;
use crate::index::key::SortedKeys;
use crate::layout::{BLOOM_FILTER_FILE, KEY_INDEX_DIR};

#[tokio::test]
async fn a_generation_is_a_dataset_with_the_ids_of_the_base() {
    let folder = TempDir::new().unwrap();
    for uri in [folder.path().to_str().unwrap(), "memory://table"] {
        let target = target_of(base(uri, &["id"], uri.starts_with("memory")).await).await;
        let written = write(&target).await;
        assert_eq!((written.generation, written.physical_rows), (7, 6));
        assert_eq!(written.primary_key_bytes, Some(48));
        assert!(written.folder.ends_with("_gen_7"));

        let generation = Generation::open(&target, 7, &written.folder).await.unwrap();
        let dataset = generation.dataset();
        dataset.validate().await.unwrap();
        assert_eq!(dataset.count_rows(None).await.unwrap(), 4);
        assert_eq!(
            (generation.physical_rows(), generation.deleted_rows()),
            (6, 2)
        );
        assert_eq!(dataset.manifest().max_fragment_id, Some(0));
        assert_eq!(dataset.manifest().version, 1);
        assert!(dataset.version().timestamp.timestamp() > 1_700_000_000);
        assert_eq!(
            dataset.manifest().data_storage_format,
            target.base().manifest().data_storage_format
        );
        let key = dataset.schema().unenforced_primary_key();
        assert_eq!(key.len(), 1);
        for field in &target.base().schema().fields {
            assert_eq!(dataset.schema().field(&field.name).unwrap().id, field.id);
            for (ours, theirs) in dataset
                .schema()
                .field(&field.name)
                .unwrap()
                .children
                .iter()
                .zip(&field.children)
            {
                assert_eq!(ours.id, theirs.id);
            }
        }
        assert!(
            target.base().schema().field("id").unwrap().id + 1
                < target.base().schema().field("small").unwrap().id
        );
    }
}

#[tokio::test]
async fn every_kind_of_key_is_found_and_its_replaced_rows_are_not() {
    for names in KEYS {
        let target = target_of(base("memory://table", names, false).await).await;
        let codec = target.codec().unwrap();
        let written = write(&target).await;
        for index_is_there in [true, false] {
            if !index_is_there {
                let index = target.path(&written.folder).join(KEY_INDEX_DIR);
                target.store().remove_dir_all(index).await.unwrap();
            }
            let generation = Generation::open(&target, 7, &written.folder).await.unwrap();
            let keys = generation.keys().await.unwrap();
            let found: Vec<_> = (0..=5).map(|id| lookup(codec, &keys, names, id)).collect();
            assert_eq!(found, [None, Some(2), Some(4), Some(3), Some(5), None]);
            assert_eq!(keys.len(), 4);
            let tombstones = generation.tombstones().await.unwrap();
            assert_eq!(*tombstones, RoaringBitmap::from([3]));
            for id in 1..=4 {
                assert!(generation.may_contain(&key_of(names, id)));
            }
            let denied = (100..200).filter(|&id| !generation.may_contain(&key_of(names, id)));
            let expected = if names == ["small"] { 0 } else { 100 };
            assert_eq!(denied.count(), expected, "{names:?}");
        }
    }
}

#[tokio::test]
async fn rows_are_taken_in_the_order_asked_for() {
    let target = target_of(base("memory://table", &["id"], false).await).await;
    let written = write(&target).await;
    let generation = Generation::open(&target, 7, &written.folder).await.unwrap();
    let names = ["word".to_string(), "id".to_string()];
    let batch = generation.take(&[5, 2, 4], &names).await.unwrap();
    let words: Vec<_> = batch
        .column(0)
        .as_string::<i32>()
        .iter()
        .flatten()
        .collect();
    assert_eq!(words, ["four", "one", "two"]);
    assert_eq!(
        batch.column(1).as_primitive::<Int64Type>().values(),
        &[4, 1, 2]
    );
    assert_eq!(generation.take(&[5, 2], &[]).await.unwrap().num_rows(), 2);
    assert_eq!(generation.take(&[], &names).await.unwrap().num_rows(), 0);
    assert!(generation.take(&[2], &["nope".to_string()]).await.is_err());
}

#[tokio::test]
async fn what_the_flush_has_is_not_read_again() {
    let target = target_of(base("memory://table", &["id"], false).await).await;
    let written = write(&target).await;
    let codec = target.codec().unwrap();
    let id: ArrayRef = Arc::new(Int64Array::from(vec![8]));
    let keys = SortedKeys::new(codec.encode(&[id]).unwrap(), vec![0]);
    let generation = Generation::open(&target, 7, &written.folder)
        .await
        .unwrap()
        .with_keys(Arc::new(keys), RoaringBitmap::from([5]));
    assert_eq!(generation.keys().await.unwrap().len(), 1);
    assert!(generation.tombstones().await.unwrap().contains(5));
}

#[tokio::test]
async fn a_broken_folder_is_named() {
    let target = target_of(base("memory://table", &["id"], false).await).await;
    let missing = Generation::open(&target, 1, "00000000_gen_1")
        .await
        .unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::Corrupt);
    assert!(missing.message().contains("00000000_gen_1"), "{missing}");

    let written = write(&target).await;
    let path = target.path(&written.folder);
    target
        .store()
        .delete(&path.clone().join(BLOOM_FILTER_FILE))
        .await
        .unwrap();
    let generation = Generation::open(&target, 7, &written.folder).await.unwrap();
    assert!(generation.may_contain(&[ScalarValue::Int64(Some(100))]));

    target
        .store()
        .remove_dir_all(path.join("data"))
        .await
        .unwrap();
    let generation = Generation::open(&target, 7, &written.folder).await.unwrap();
    let error = generation
        .take(&[2], &["id".to_string()])
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    assert!(error.message().contains(&written.folder), "{error}");
}

#[tokio::test]
async fn a_generation_of_another_schema_is_refused() {
    let folder = TempDir::new().unwrap();
    let uri = folder.path().to_str().unwrap();
    let target = target_of(base(uri, &["id"], false).await).await;
    let written = write(&target).await;
    let mut dataset = target.base().as_ref().clone();
    let rename = lance::dataset::ColumnAlteration::new("word".to_string());
    dataset
        .alter_columns(&[rename.rename("term".to_string())])
        .await
        .unwrap();
    let target = target_of(dataset).await;
    let error = Generation::open(&target, 7, &written.folder)
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.message().contains("'term'"), "{error}");
}

/// More rows than a page of the key index holds, most of them replaced later.
#[tokio::test]
async fn a_generation_of_many_pages_keeps_the_newest_row_of_each_key() {
    const ROWS: i64 = 30_000;
    for names in [&["id"][..], &["txt", "id"]] {
        let target = target_of(base("memory://table", names, false).await).await;
        let ids: Vec<i64> = (0..ROWS).map(|row| row * 7919 % 10_007).collect();
        let mut newest = HashMap::new();
        let mut replaced = RoaringBitmap::new();
        for (row, &id) in ids.iter().enumerate() {
            if let Some(old) = newest.insert(id, row as u64) {
                replaced.insert(old as u32);
            }
        }
        let schema = target.schema().rows();
        let batches = ids
            .chunks(700)
            .map(|ids| rows(schema, ids, &vec!["w"; ids.len()], &vec![false; ids.len()]))
            .collect();
        let input = GenerationInput {
            generation: 1,
            batches,
            replaced,
        };
        let written = write_generation(&target, input).await.unwrap();
        let generation = Generation::open(&target, 1, &written.folder).await.unwrap();
        let keys = generation.keys().await.unwrap();
        assert_eq!(keys.len(), newest.len());
        assert_eq!(
            generation.physical_rows() - generation.deleted_rows(),
            newest.len() as u64
        );
        for (&id, &row) in &newest {
            let found = lookup(target.codec().unwrap(), &keys, names, id);
            assert_eq!(found, Some(row));
            assert!(generation.may_contain(&key_of(names, id)));
        }
        let absent = (20_000..30_000).filter(|&id| generation.may_contain(&key_of(names, id)));
        assert!(
            absent.count() < 50,
            "the filter is sized for one in a thousand"
        );
    }
}

#[tokio::test]
async fn a_generation_needs_rows() {
    let target = target_of(base("memory://table", &["id"], false).await).await;
    let input = GenerationInput {
        generation: 1,
        batches: vec![],
        replaced: RoaringBitmap::new(),
    };
    let error = write_generation(&target, input).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
}

#[tokio::test]
async fn a_generation_has_the_file_format_of_the_base() {
    use lance_file::version::LanceFileVersion;
    for version in ["legacy", "2.0", "2.1", "2.2"] {
        let version: LanceFileVersion = version.parse().unwrap();
        let dataset = base_of_version("memory://table", version).await;
        let format = dataset.manifest().data_storage_format.clone();
        let target = target_of(dataset).await;
        let schema = target.schema().rows();
        let input = GenerationInput {
            generation: 1,
            batches: vec![rows(schema, &[1, 2], &["a", ""], &[false, true])],
            replaced: RoaringBitmap::new(),
        };
        let written = write_generation(&target, input).await;
        if version == LanceFileVersion::Legacy {
            assert_eq!(written.unwrap_err().kind(), ErrorKind::Unsupported);
            continue;
        }
        let folder = written.unwrap().folder;
        let generation = Generation::open(&target, 1, &folder).await.unwrap();
        assert_eq!(generation.dataset().manifest().data_storage_format, format);
        assert!(generation.tombstones().await.unwrap().contains(1));
        let words = generation.take(&[0], &["word".to_string()]).await.unwrap();
        assert_eq!(words.column(0).as_string::<i32>().value(0), "a");
    }
}
