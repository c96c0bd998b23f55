//! Writing a memtable as a generation.

use std::collections::HashMap;
use std::num::NonZero;
use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use lance_core::utils::deletion::DeletionVector;
use lance_file::versions::create_writer;
use lance_file::writer::FileWriterOptions;
use lance_table::feature_flags::apply_feature_flags;
use lance_table::format::{DataStorageFormat, DeletionFile, Fragment, Manifest};
use lance_table::io::commit::{ManifestNamingScheme, write_manifest_file_to_path};
use lance_table::io::deletion::{deletion_file_path, write_deletion_file};
use object_store::path::Path;
use roaring::RoaringBitmap;

use super::checksum;
use super::key_index::KeyIndex;
use super::target::GenerationTarget;
use crate::clock;
use crate::error::{Error, Result};
use crate::layout::{BLOOM_FILTER_FILE, generation_folder};

const DATA_DIR: &str = "data";
/// The only version that a generation ever has.
pub(super) const VERSION: u64 = 1;
/// The only fragment of a generation.
const FRAGMENT: u64 = 0;
/// The most rows that the file writer takes at once, as in Lance.
const WRITE_ROWS: usize = 128 * 1024;

/// The rows of one memtable.
pub(crate) struct GenerationInput {
    pub(crate) generation: u64,
    /// In row form and in the order of insertion, tombstones and replaced rows included.
    pub(crate) batches: Vec<RecordBatch>,
    /// The offsets of the rows that a later row of the same memtable replaced.
    pub(crate) replaced: RoaringBitmap,
}

/// What the shard manifest says of a generation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WrittenGeneration {
    pub(crate) generation: u64,
    /// The name of its folder in the shard's.
    pub(crate) folder: String,
    /// Rows in the data file, replaced ones and tombstones included.
    pub(crate) physical_rows: u64,
    /// The bytes of the key columns' values; `None` for a table without a key.
    pub(crate) primary_key_bytes: Option<u64>,
}

/// Writes a generation into a folder of its own. Nobody sees it before the shard
/// manifest names the folder; after an error or a crash the folder is an orphan.
///
/// # Errors
///
/// `Invalid` when there are no rows or a key is NULL, `Unsupported` when there are
/// more than 2^32 - 1 rows or the base table is in Lance's legacy file format.
pub(crate) async fn write_generation(
    target: &GenerationTarget,
    input: GenerationInput,
) -> Result<WrittenGeneration> {
    let GenerationInput {
        generation,
        batches,
        replaced,
    } = input;
    let rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
    let table = target.schema().table();
    if rows == 0 {
        return Err(Error::invalid(format!(
            "table '{table}': generation {generation} would have no rows; flush a memtable that has some"
        )));
    }
    if u32::try_from(rows).is_err() {
        return Err(Error::unsupported(format!(
            "table '{table}': generation {generation} would have {rows} rows, and a deletion file \
             counts in 32 bits; write fewer rows at once"
        )));
    }

    let folder = generation_folder(&clock::random_folder_prefix(), generation);
    let path = target.path(&folder);
    let context = |error: Error| {
        error.context(format!(
            "table '{table}': writing the generation at '{path}'"
        ))
    };

    let mut fragment = write_data_file(target, &path, &batches)
        .await
        .map_err(context)?;
    let mut checksums = HashMap::new();
    fragment.deletion_file = write_replaced(target, &path, replaced, &mut checksums)
        .await
        .map_err(context)?;
    let primary_key_bytes = write_key_files(target, &path, batches, &mut checksums)
        .await
        .map_err(context)?;
    write_manifest(target, &path, fragment, checksums)
        .await
        .map_err(context)?;

    Ok(WrittenGeneration {
        generation,
        folder,
        physical_rows: rows as u64,
        primary_key_bytes,
    })
}

async fn write_data_file(
    target: &GenerationTarget,
    folder: &Path,
    batches: &[RecordBatch],
) -> Result<Fragment> {
    let version = target
        .base()
        .manifest()
        .data_storage_format
        .lance_file_format();
    let name = format!("{}.lance", clock::random_uuid().simple());
    let output = target
        .store()
        .create(&folder.clone().join(DATA_DIR).join(name.as_str()))
        .await?;
    let schema = target.schema().generation_schema()?;
    let mut writer = create_writer(version, output, schema, FileWriterOptions::default())?;
    for batch in batches {
        for start in (0..batch.num_rows()).step_by(WRITE_ROWS) {
            let part = batch.slice(start, WRITE_ROWS.min(batch.num_rows() - start));
            writer.write_batch(&part).await?;
        }
    }
    let summary = writer.finish().await?;
    let (fields, columns) = writer
        .field_id_to_column_indices()
        .iter()
        .map(|&(field, column)| (field as i32, column as i32))
        .unzip();
    let size = NonZero::new(summary.size_bytes);
    Ok(Fragment::new(FRAGMENT)
        .with_file(name, fields, columns, version, size)
        .with_physical_rows(summary.num_rows as usize))
}

/// Bitmap or nothing: Lance's writer never makes the array kind here either.
async fn write_replaced(
    target: &GenerationTarget,
    folder: &Path,
    replaced: RoaringBitmap,
    checksums: &mut HashMap<String, String>,
) -> Result<Option<DeletionFile>> {
    if replaced.is_empty() {
        return Ok(None);
    }
    let deleted = DeletionVector::from(replaced);
    let file = write_deletion_file(folder, FRAGMENT, VERSION, &deleted, target.store()).await?;
    if let Some(file) = &file {
        let path = deletion_file_path(folder, FRAGMENT, file);
        let written = target.store().read_one_all(&path).await?;
        checksums.insert(checksum::DELETIONS.to_string(), checksum::of(&written));
    }
    Ok(file)
}

/// The key index and the Bloom filter; gives the bytes of the keys.
async fn write_key_files(
    target: &GenerationTarget,
    folder: &Path,
    batches: Vec<RecordBatch>,
    checksums: &mut HashMap<String, String>,
) -> Result<Option<u64>> {
    let Some(codec) = target.codec().cloned() else {
        return Ok(None);
    };
    // Sorting a large generation takes long enough to starve the other tasks of a thread.
    let index = tokio::task::spawn_blocking(move || KeyIndex::build(&codec, &batches))
        .await
        .map_err(|error| Error::internal(format!("the key index task failed: {error}")))??;
    let keys = index.write(target.store(), folder).await?;
    checksums.insert(checksum::KEY_INDEX.to_string(), keys);
    let path = folder.clone().join(BLOOM_FILTER_FILE);
    let bloom = index.bloom.to_bytes();
    target.store().put(&path, &bloom).await?;
    checksums.insert(checksum::BLOOM_FILTER.to_string(), checksum::of(&bloom));
    Ok(Some(index.key_bytes))
}

async fn write_manifest(
    target: &GenerationTarget,
    folder: &Path,
    fragment: Fragment,
    mut checksums: HashMap<String, String>,
) -> Result<()> {
    let base = target.base().manifest();
    let format = DataStorageFormat::new(base.data_storage_format.lance_file_format());
    let schema = target.schema().generation_schema()?;
    let contents = checksum::contents(&schema, &fragment);
    let contents = checksum::of(contents.as_bytes());
    checksums.insert(checksum::CONTENTS.to_string(), contents);
    let mut manifest = Manifest::new(schema, Arc::new(vec![fragment]), format, HashMap::new());
    manifest.set_timestamp(clock::unix_nanos());
    manifest.update_max_fragment_id();
    manifest.config_mut().extend(checksums);
    apply_feature_flags(&mut manifest, false, false)?;
    let path = ManifestNamingScheme::V2.manifest_path(folder, VERSION);
    write_manifest_file_to_path(target.store(), &mut manifest, None, &path, None).await?;
    Ok(())
}
