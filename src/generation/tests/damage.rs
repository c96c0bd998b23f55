use std::sync::Arc;

use lance_table::io::commit::write_manifest_file_to_path;

use super::fixture::{base, key_of, lookup, target_of, write};
use crate::error::ErrorKind;
use crate::generation::*;
use crate::layout::{BLOOM_FILTER_FILE, KEY_INDEX_DIR};

/// Makes the folder one of a writer that records no checksums.
async fn forget_checksums(target: &GenerationTarget, folder: &str) {
    let generation = Generation::open(target, 7, folder).await.unwrap();
    let dataset = generation.dataset();
    let mut manifest = dataset.manifest().clone();
    assert_eq!(manifest.config.len(), 4, "{:?}", manifest.config);
    manifest.config_mut().clear();
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
        forget_checksums(&target, &folder).await;
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

#[tokio::test]
async fn a_damaged_key_index_is_not_used() {
    for (with_checksums, emptied) in [(true, true), (true, false), (false, true)] {
        let (target, folder) = written(with_checksums).await;
        let path = target.path(&folder).join(KEY_INDEX_DIR);
        let path = path.join("page_data.lance");
        let mut bytes = target.store().read_one_all(&path).await.unwrap().to_vec();
        match emptied {
            true => bytes.clear(),
            // Where the keys lie is Lance's: every 3 becomes a 2 somewhere in the file.
            false => bytes.iter_mut().for_each(|byte| {
                if *byte == 3 {
                    *byte = 2;
                }
            }),
        }
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
