//! Storage that is not what the format says: an open names it and changes nothing.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use datafusion_memwal::{Error, ErrorKind, MemWalTable};

use super::support::tables::{pairs, read_everywhere, rows, schema, session, sql};

/// A table on disk with five log entries, dropped without close.
async fn table_with_entries() -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let uri = folder.path().join("t").to_str().unwrap().to_string();
    let table = MemWalTable::builder(&uri)
        .with_option("flush_interval", "on_demand")
        .create(schema(), &["id".to_string()])
        .await
        .unwrap();
    for id in 0..5 {
        table.put(vec![rows(&[(id, id)])]).await.unwrap();
    }
    (folder, uri)
}

pub fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => folders.push(path),
                false if path.extension().is_some_and(|found| found == extension) => {
                    found.push(path)
                }
                false => {}
            }
        }
    }
    found.sort_by_key(|path| position(path));
    found
}

/// The number in the name of a log entry or manifest.
fn position(path: &Path) -> u64 {
    let name = path.file_stem().unwrap().to_str().unwrap();
    u64::from_str_radix(name, 2).map_or(0, u64::reverse_bits)
}

async fn open_error(uri: &str) -> Error {
    MemWalTable::open(uri).await.unwrap_err()
}

#[tokio::test]
async fn a16_a_damaged_entry_in_the_middle_is_named_and_nothing_is_truncated() {
    type Damage = fn(&Path);
    let cut: Damage = |path| {
        let bytes = std::fs::read(path).unwrap();
        std::fs::write(path, &bytes[..bytes.len() / 2]).unwrap();
    };
    let flip: Damage = |path| {
        let mut bytes = std::fs::read(path).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 0x10;
        std::fs::write(path, bytes).unwrap();
    };
    let empty: Damage = |path| std::fs::write(path, []).unwrap();
    let remove: Damage = |path| std::fs::remove_file(path).unwrap();
    for damage in [cut, flip, empty, remove] {
        let (folder, uri) = table_with_entries().await;
        let entries = files(folder.path(), "arrow");
        let third = entries
            .iter()
            .find(|path| position(path) == 3)
            .unwrap()
            .clone();
        let intact = std::fs::read(&third).unwrap();
        damage(&third);
        let error = open_error(&uri).await;
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        let name = third.file_name().unwrap().to_str().unwrap();
        assert!(error.to_string().contains(name), "{error}");
        // All the others are still there, so a restored object brings everything back.
        assert!(files(folder.path(), "arrow").len() + 1 >= entries.len());
        std::fs::write(&third, intact).unwrap();
        let table = MemWalTable::open(&uri).await.unwrap();
        assert_eq!(table.stats().active_rows, 5);
    }
}

#[tokio::test]
async fn a_damaged_manifest_is_named() {
    let (folder, uri) = table_with_entries().await;
    let newest = files(folder.path(), "binpb").pop().unwrap();
    std::fs::write(&newest, b"\xff\xff\xff").unwrap();
    let error = open_error(&uri).await;
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    let name = newest.file_name().unwrap().to_str().unwrap();
    assert!(error.to_string().contains(name), "{error}");
}

#[tokio::test]
async fn a_missing_generation_is_named() {
    let (folder, uri) = table_with_entries().await;
    let table = MemWalTable::open(&uri).await.unwrap();
    table.flush().await.unwrap();
    table.close().await.unwrap();
    let shard = files(folder.path(), "arrow")[0]
        .ancestors()
        .nth(2)
        .unwrap()
        .to_path_buf();
    let generation = std::fs::read_dir(shard)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .find(|path| path.to_str().unwrap().contains("_gen_"))
        .unwrap();
    std::fs::remove_dir_all(&generation).unwrap();
    let error = open_error(&uri).await;
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    assert!(error.to_string().contains("_gen_1"), "{error}");
}

/// A table on disk whose rows lie in one generation, some of them replaced in it.
async fn table_with_a_generation() -> (tempfile::TempDir, String, BTreeMap<i64, i64>) {
    let (folder, uri) = table_with_entries().await;
    let table = MemWalTable::open(&uri).await.unwrap();
    table.put(vec![rows(&[(1, 10), (7, 7)])]).await.unwrap();
    table.flush().await.unwrap();
    table.close().await.unwrap();
    let newest = [(0, 0), (1, 10), (2, 2), (3, 3), (4, 4), (7, 7)];
    (folder, uri, newest.into())
}

/// The one file of the generation whose path holds `part` and ends with `extension`.
fn file_of_generation(folder: &Path, part: &str, extension: &str) -> PathBuf {
    let mut found = files(folder, extension);
    found.retain(|path| {
        let path = path.to_str().unwrap();
        path.contains("_gen_") && path.contains(part)
    });
    assert_eq!(found.len(), 1, "{found:?}");
    found.remove(0)
}

/// Empties, cuts and zeroes a file, and flips bits at 24 places of it.
fn damages(intact: &[u8]) -> Vec<Vec<u8>> {
    let mut damages = vec![
        Vec::new(),
        intact[..intact.len() / 2].to_vec(),
        vec![0; intact.len()],
    ];
    for at in 0..24 {
        let mut bytes = intact.to_vec();
        bytes[at * intact.len() / 24] ^= 1 << (at % 8);
        damages.push(bytes);
    }
    damages
}

#[tokio::test]
async fn a_damaged_filter_or_key_index_costs_time_only() {
    let (folder, uri, newest) = table_with_a_generation().await;
    for (part, extension) in [("bloom_filter", "bin"), ("page_data", "lance")] {
        let path = file_of_generation(folder.path(), part, extension);
        let intact = std::fs::read(&path).unwrap();
        for damage in damages(&intact) {
            std::fs::write(&path, damage).unwrap();
            let table = MemWalTable::open(&uri).await.unwrap();
            assert_eq!(read_everywhere(&table).await, newest, "{}", path.display());
            for (&id, &number) in &newest {
                let row = table.get(&[id.into()]).await.unwrap().unwrap();
                assert_eq!(row, rows(&[(id, number)]), "{}", path.display());
            }
            table.close().await.unwrap();
        }
        std::fs::write(&path, intact).unwrap();
    }
}

#[tokio::test]
async fn what_a_generation_cannot_do_without_is_corrupt_when_damaged() {
    let (folder, uri, newest) = table_with_a_generation().await;
    for part in ["_deletions", "_versions"] {
        let extension = if part == "_deletions" {
            "bin"
        } else {
            "manifest"
        };
        let path = file_of_generation(folder.path(), part, extension);
        let intact = std::fs::read(&path).unwrap();
        for (number, damage) in damages(&intact).into_iter().enumerate() {
            std::fs::write(&path, damage).unwrap();
            match MemWalTable::open(&uri).await {
                // A bit that changes nothing, the timestamp's say, or is seen later.
                Ok(table) if part == "_versions" && number > 2 => {
                    let read = sql(&session(&table), "SELECT id, n FROM t").await;
                    if let Ok(batches) = read {
                        assert_eq!(pairs(&batches), newest, "damage {number}");
                    }
                    for (&id, &number) in &newest {
                        match table.get(&[id.into()]).await {
                            Ok(row) => assert_eq!(row, Some(rows(&[(id, number)]))),
                            Err(error) => assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}"),
                        }
                    }
                    table.close().await.unwrap();
                }
                Ok(_) => panic!("damage {number} of {part} was not seen"),
                Err(error) => {
                    let kinds = [ErrorKind::Corrupt, ErrorKind::Unsupported];
                    assert!(kinds.contains(&error.kind()), "damage {number}: {error}");
                    assert!(number > 2 || error.kind() == ErrorKind::Corrupt, "{error}");
                    assert!(error.to_string().contains("_gen_1"), "{error}");
                }
            }
        }
        std::fs::write(&path, intact).unwrap();
    }
    let table = MemWalTable::open(&uri).await.unwrap();
    assert_eq!(read_everywhere(&table).await, newest);
}

#[tokio::test]
async fn no_flipped_bit_of_a_manifest_is_believed() {
    let (folder, uri, newest) = table_with_a_generation().await;
    let path = files(folder.path(), "binpb").pop().unwrap();
    let name = path.file_name().unwrap().to_str().unwrap();
    let intact = std::fs::read(&path).unwrap();
    for damage in damages(&intact) {
        std::fs::write(&path, damage).unwrap();
        let error = open_error(&uri).await;
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        assert!(error.to_string().contains(name), "{error}");
    }
    std::fs::write(&path, intact).unwrap();
    let table = MemWalTable::open(&uri).await.unwrap();
    assert_eq!(read_everywhere(&table).await, newest);
}

#[tokio::test]
async fn a_location_that_cannot_hold_a_table_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, b"x").unwrap();
    let uri = file.to_str().unwrap();
    for error in [
        open_error(uri).await,
        MemWalTable::create(uri, schema(), &["id"])
            .await
            .unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains("is a file"), "{error}");
    }
    let below = format!("{uri}/t");
    let error = MemWalTable::create(&below, schema(), &["id"])
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    let nothing = folder.path().join("nothing");
    let error = open_error(nothing.to_str().unwrap()).await;
    assert!(error.to_string().contains("nothing lies at"), "{error}");
}
