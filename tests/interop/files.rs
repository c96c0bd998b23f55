//! The files themselves: ours and Lance's of the same rows differ in nothing that a reader sees.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use datafusion::arrow::datatypes::Schema;
use datafusion::arrow::ipc::reader::StreamReader;
use lance::Dataset;
use lance::dataset::WriteParams;
use lance::dataset::mem_wal::util::parse_bit_reversed_filename;
use lance_core::datatypes::Field;

use super::kinds::{KINDS, Kind};
use super::lance_side::LanceSide;
use super::our_side;
use super::script::{BASE, FIRST};

/// What a reader goes by in a field, children included.
fn described(field: &Field) -> String {
    let children: Vec<String> = field.children.iter().map(described).collect();
    let metadata: BTreeMap<_, _> = field.metadata.iter().collect();
    format!(
        "{} {} {} nullable={} key={:?} {metadata:?} {children:?}",
        field.id,
        field.name,
        field.logical_type,
        field.nullable,
        field.unenforced_primary_key_position,
    )
}

/// Log entries that hold rows: schema, then the keys of the metadata.
fn entries(shard: &Path) -> Vec<(Schema, Vec<String>)> {
    let mut files: Vec<(u64, PathBuf)> = std::fs::read_dir(shard.join("wal"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter_map(|path| {
            let position = parse_bit_reversed_filename(path.file_name()?.to_str()?)?;
            Some((position, path))
        })
        .collect();
    files.sort();
    let mut found = Vec::new();
    for (_, path) in files {
        let reader = StreamReader::try_new(std::fs::File::open(path).unwrap(), None).unwrap();
        let schema = reader.schema().as_ref().clone();
        if reader.map(|batch| batch.unwrap().num_rows()).sum::<usize>() > 0 {
            let mut keys: Vec<String> = schema.metadata().keys().cloned().collect();
            keys.sort();
            found.push((schema.with_metadata(Default::default()), keys));
        }
    }
    found
}

/// The only generation of a table and its shard folder.
async fn shard_of(uri: &str) -> (PathBuf, Dataset, Vec<String>) {
    let lance = LanceSide::open(uri).await;
    let manifest = lance.writer.manifest().await.unwrap().unwrap();
    let [sstable] = manifest.sstables.as_slice() else {
        panic!("one generation was expected: {manifest:?}");
    };
    assert!(sstable.path.ends_with("_gen_1"));
    let folder = lance.folder(&sstable.path);
    lance.crash().await;
    let dataset = Dataset::open(folder.to_str().unwrap()).await.unwrap();
    let mut names: Vec<String> = std::fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name != "_transactions")
        .collect();
    names.sort();
    (folder.parent().unwrap().to_path_buf(), dataset, names)
}

async fn write_both(kind: &Kind, folder: &Path) -> (String, String) {
    let uri = |name| folder.join(name).to_str().unwrap().to_string();
    let (ours, lances) = (uri("ours"), uri("lances"));
    kind.write_base(&ours, BASE, WriteParams::default()).await;
    let table = our_side::open(&ours).await;
    our_side::run(&table, kind, FIRST).await;
    drop(table);
    let dataset = kind.write_base(&lances, BASE, WriteParams::default()).await;
    let lance = LanceSide::start(&lances, dataset).await;
    lance.run(kind, FIRST).await;
    lance.crash().await;
    (ours, lances)
}

#[tokio::test]
async fn generations_and_log_entries_look_alike() {
    for kind in KINDS {
        let folder = tempfile::tempdir().unwrap();
        let (ours, lances) = write_both(kind, folder.path()).await;
        let (our_shard, our_generation, our_files) = shard_of(&ours).await;
        let (their_shard, their_generation, their_files) = shard_of(&lances).await;

        assert_eq!(our_files, their_files, "{}", kind.name);
        let fields = |dataset: &Dataset| -> Vec<String> {
            dataset.schema().fields.iter().map(described).collect()
        };
        assert_eq!(
            fields(&our_generation),
            fields(&their_generation),
            "{}",
            kind.name
        );
        let base = Dataset::open(&ours).await.unwrap();
        for column in &base.schema().fields {
            let stored = our_generation.schema().field(&column.name).unwrap();
            assert_eq!(stored.id, column.id, "{}, {}", kind.name, column.name);
            let is_key = kind.key.contains(&column.name.as_str());
            assert_eq!(stored.nullable, !is_key, "{}, {}", kind.name, column.name);
        }
        let format = |dataset: &Dataset| dataset.manifest().data_storage_format.clone();
        assert_eq!(format(&our_generation), format(&their_generation));
        for dataset in [&our_generation, &their_generation] {
            assert_eq!(dataset.manifest().version, 1);
            assert_eq!(dataset.fragments().len(), 1);
            assert_eq!(dataset.fragments()[0].id, 0);
        }
        let rows = |dataset: &Dataset| dataset.fragments()[0].physical_rows;
        assert_eq!(
            rows(&our_generation),
            rows(&their_generation),
            "{}",
            kind.name
        );
        let deleted = |dataset: &Dataset| {
            let file = dataset.fragments()[0].deletion_file.clone();
            file.and_then(|file| file.num_deleted_rows)
        };
        assert_eq!(
            deleted(&our_generation),
            deleted(&their_generation),
            "{}",
            kind.name
        );

        let (our_log, their_log) = (entries(&our_shard), entries(&their_shard));
        assert!(our_log.len() > 4 && their_log.len() > 4);
        for (schema, keys) in our_log.iter().chain(&their_log) {
            assert_eq!(
                (schema, keys),
                (&their_log[0].0, &their_log[0].1),
                "{}",
                kind.name
            );
        }
    }
}
