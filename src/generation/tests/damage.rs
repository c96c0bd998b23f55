use std::sync::Arc;

use lance_table::format::Manifest;
use lance_table::io::commit::write_manifest_file_to_path;
use roaring::RoaringBitmap;

use super::fixture::{base, key_of, lookup, rows, target_of, write};
use crate::error::ErrorKind;
use crate::generation::*;
use crate::layout::{BLOOM_FILTER_FILE, KEY_INDEX_DIR};

async fn rewrite_manifest(target: &GenerationTarget, folder: &str, change: fn(&mut Manifest)) {
    let generation = Generation::open(target, 7, folder).await.unwrap();
    let dataset = generation.dataset();
    let mut manifest = dataset.manifest().clone();
    change(&mut manifest);
    let path = &dataset.manifest_location().path;
    target.store().delete(path).await.unwrap();
    write_manifest_file_to_path(target.store(), &mut manifest, None, path, None)
        .await
        .unwrap();
}

/// A base of its own for each, since what one has read stays in its session.
async fn written(with_checksums: bool) -> (GenerationTarget, String) {
    let target = target_of(base("memory://table", &["id"], false).await).await;
    let folder = write(&target).await.folder;
    if !with_checksums {
        // As another writer leaves it.
        let forget: fn(&mut Manifest) = |manifest| {
            assert_eq!(manifest.config.len(), 4, "{:?}", manifest.config);
            manifest.config_mut().clear();
        };
        rewrite_manifest(&target, &folder, forget).await;
    }
    (target, folder)
}

#[tokio::test]
async fn a_damaged_filter_is_left_out() {
    for (with_checksums, zero) in [(true, true), (true, false), (false, true)] {
        let (target, folder) = written(with_checksums).await;
        let path = target.path(&folder).join(BLOOM_FILTER_FILE);
        let mut bytes = target.store().read_one_all(&path).await.unwrap().to_vec();
        match zero {
            true => bytes.fill(0),
            false => bytes.iter_mut().for_each(|byte| *byte = !*byte),
        }
        target.store().put(&path, &bytes).await.unwrap();
        let generation = Generation::open(&target, 7, &folder).await.unwrap();
        assert!((1..=4).all(|id| generation.may_contain(&key_of(&["id"], id))));
    }
}

/// The key index of six other rows.
async fn other_key_index(target: &GenerationTarget) -> Vec<u8> {
    let schema = target.schema().rows();
    let ids = [0, 2, 5, 1, 3, 6];
    let input = GenerationInput {
        generation: 8,
        batches: vec![rows(schema, &ids, &["w"; 6], &[false; 6])],
        replaced: RoaringBitmap::new(),
    };
    let folder = write_generation(target, input).await.unwrap().folder;
    let path = target.path(&folder).join(KEY_INDEX_DIR);
    let path = path.join("page_data.lance");
    target.store().read_one_all(&path).await.unwrap().to_vec()
}

#[tokio::test]
async fn a_damaged_key_index_is_not_used() {
    for (with_checksums, emptied) in [(true, true), (true, false), (false, true)] {
        let (target, folder) = written(with_checksums).await;
        let path = target.path(&folder).join(KEY_INDEX_DIR);
        let path = path.join("page_data.lance");
        let bytes = match emptied {
            true => Vec::new(),
            false => other_key_index(&target).await,
        };
        target.store().put(&path, &bytes).await.unwrap();
        let generation = Generation::open(&target, 7, &folder).await.unwrap();
        let keys = generation.keys().await.unwrap();
        let codec = target.codec().unwrap();
        let found: Vec<_> = (0..=5)
            .map(|id| lookup(codec, &keys, &["id"], id))
            .collect();
        assert_eq!(found, [None, Some(2), Some(4), Some(3), Some(5), None]);
    }
}

/// Bytes that decode, and say something else.
#[tokio::test]
async fn a_manifest_of_other_files_or_columns_is_refused() {
    type Change = fn(&mut Manifest);
    let no_deletions: Change = |manifest| {
        let mut fragment = manifest.fragments[0].clone();
        fragment.deletion_file = None;
        manifest.fragments = Arc::new(vec![fragment]);
    };
    let other_columns: Change = |manifest| {
        let mut fragment = manifest.fragments[0].clone();
        let file = &mut fragment.files[0];
        let mut columns = file.column_indices.to_vec();
        columns.swap(0, 1);
        file.column_indices = columns.into();
        manifest.fragments = Arc::new(vec![fragment]);
    };
    let other_mark: Change = |manifest| {
        let mark = manifest.schema.fields.last_mut().unwrap();
        mark.id += 1;
    };
    let nothing: Change = |_| {};
    for (change, is_seen) in [
        (no_deletions, true),
        (other_columns, true),
        (other_mark, true),
        (nothing, false),
    ] {
        let (target, folder) = written(true).await;
        rewrite_manifest(&target, &folder, change).await;
        let opened = Generation::open(&target, 7, &folder).await;
        assert_eq!(opened.is_err(), is_seen);
        if let Err(error) = opened {
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
            assert!(error.message().contains("damaged manifest"), "{error}");
        }
    }
}

/// Each has the size it was written with, so that the manifest names what is damaged.
#[tokio::test]
async fn the_object_that_was_cut_is_named() {
    let (target, folder) = written(true).await;
    let generation = Generation::open(&target, 7, &folder).await.unwrap();
    let name = generation.dataset().fragments()[0].files[0].path.clone();
    let path = target.path(&folder).join("data").join(name.as_str());
    let bytes = target.store().read_one_all(&path).await.unwrap();
    let half = &bytes[..bytes.len() / 2];
    target.store().put(&path, half).await.unwrap();
    for error in [
        generation.tombstones().await.unwrap_err(),
        generation
            .take(&[2], &["id".to_string()])
            .await
            .unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        assert!(error.message().contains(&name), "{error}");
    }
}

/// The flush of a shard opens what it wrote in a task of its own.
#[test]
fn generations_are_read_in_spawned_tasks() {
    fn is_send<T: Send>(_: fn(Arc<Generation>) -> T) {}
    is_send(|generation| async move {
        generation.keys().await?;
        generation.tombstones().await?;
        generation.take(&[], &[]).await
    });
}
