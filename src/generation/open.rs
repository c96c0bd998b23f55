//! An open generation: what a snapshot reads of it.

use std::future::Future;
use std::sync::Arc;

use datafusion::arrow::array::{AsArray, RecordBatch, RecordBatchOptions};
use datafusion::arrow::datatypes::{Schema, UInt64Type};
use datafusion::common::ScalarValue;
use futures::TryStreamExt;
use lance::Dataset;
use lance::dataset::ProjectionRequest;
use lance::dataset::builder::DatasetBuilder;
use lance_core::datatypes::Field;
use lance_core::utils::bloomfilter::sbbf::Sbbf;
use lance_table::format::Fragment;
use lance_table::io::deletion::deletion_file_path;
use roaring::RoaringBitmap;
use tokio::sync::OnceCell;

use super::checksum::{self, Verdict};
use super::damage::{caught, named};
use super::target::GenerationTarget;
use super::write::VERSION;
use super::{bloom, key_index, scan};
use crate::error::{Error, ErrorKind, Result};
use crate::index::key::SortedKeys;
use crate::layout::BLOOM_FILTER_FILE;
use crate::schema::TOMBSTONE;

/// One generation, opened. What takes a read of its own is read at its first use.
#[derive(Debug)]
pub(crate) struct Generation {
    number: u64,
    folder: String,
    target: GenerationTarget,
    dataset: Arc<Dataset>,
    physical_rows: u64,
    deleted_rows: u64,
    bloom: Option<Sbbf>,
    keys: OnceCell<Arc<SortedKeys>>,
    tombstones: OnceCell<Arc<RoaringBitmap>>,
}

impl Generation {
    /// Opens the generation in `folder` of the shard.
    ///
    /// # Errors
    ///
    /// `Corrupt` when the folder is missing or is no generation, `Unsupported` when
    /// its columns are not those of the table.
    pub(crate) async fn open(target: &GenerationTarget, number: u64, folder: &str) -> Result<Self> {
        let mut builder =
            DatasetBuilder::from_uri(target.uri(folder)).with_session(target.base().session());
        if let Some(params) = target.store_params() {
            builder = builder.with_store_params(params);
        }
        let load = async { Ok(builder.load().await?) };
        let dataset = named(target, folder, None, load).await?;
        let [fragment] = dataset.fragments().as_slice() else {
            return Err(target.corrupt(folder, "is not a dataset of one fragment"));
        };
        if !is_as_written(&dataset, fragment) {
            return Err(target.corrupt(folder, "has a damaged manifest"));
        }
        check_columns(target, folder, &dataset)?;
        if fragment.id != 0 {
            return Err(target.corrupt(folder, "has a fragment that is not number 0"));
        }
        let physical_rows = fragment
            .physical_rows
            .ok_or_else(|| target.corrupt(folder, "does not say how many rows it has"))?
            as u64;
        let count = async { Ok(dataset.count_deleted_rows().await? as u64) };
        let ((), deleted_rows, bloom) = futures::try_join!(
            check_deletions(target, folder, &dataset, fragment),
            named(target, folder, Some(&dataset), count),
            read_bloom(target, folder, &dataset, physical_rows),
        )?;
        Ok(Self {
            number,
            folder: folder.to_string(),
            bloom,
            target: target.clone(),
            dataset: Arc::new(dataset),
            physical_rows,
            deleted_rows,
            keys: OnceCell::new(),
            tombstones: OnceCell::new(),
        })
    }

    /// The same with what the flush that wrote it has in memory.
    pub(crate) fn with_keys(self, keys: Arc<SortedKeys>, tombstones: RoaringBitmap) -> Self {
        Self {
            keys: OnceCell::new_with(Some(keys)),
            tombstones: OnceCell::new_with(Some(Arc::new(tombstones))),
            ..self
        }
    }

    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    pub(crate) fn dataset(&self) -> &Arc<Dataset> {
        &self.dataset
    }

    /// Rows in the data file: every row offset is below.
    pub(crate) fn physical_rows(&self) -> u64 {
        self.physical_rows
    }

    /// Rows that a later row of the same generation replaced; no scan sees them.
    pub(crate) fn deleted_rows(&self) -> u64 {
        self.deleted_rows
    }

    /// Whether a row of the key with `values`, in key order, can be here: `false` is certain.
    pub(crate) fn may_contain(&self, values: &[ScalarValue]) -> bool {
        let (Some(bloom), Some(codec)) = (&self.bloom, self.target.codec()) else {
            return true;
        };
        let types = codec.types();
        if types.len() != values.len() {
            return true;
        }
        let cast: Option<Vec<ScalarValue>> = values
            .iter()
            .zip(types)
            .map(|(value, data_type)| value.cast_to(data_type).ok())
            .collect();
        cast.and_then(|values| bloom::hash_values(&values))
            .is_none_or(|hash| bloom.check_hash(hash))
    }

    /// The newest row of each key, tombstones included. Read once, then kept.
    ///
    /// # Errors
    ///
    /// `Invalid` for a table without a key.
    pub(crate) async fn keys(&self) -> Result<Arc<SortedKeys>> {
        let keys = self.keys.get_or_try_init(|| self.read_keys()).await?;
        Ok(Arc::clone(keys))
    }

    /// The offsets of the visible rows that delete their key. Read once, then kept.
    pub(crate) async fn tombstones(&self) -> Result<Arc<RoaringBitmap>> {
        let rows = self
            .tombstones
            .get_or_try_init(|| self.read_tombstones())
            .await?;
        Ok(Arc::clone(rows))
    }

    /// The rows at `rows`, which are offsets of visible rows, in that order; with the
    /// columns in the order of `columns`.
    pub(crate) async fn take(&self, rows: &[u64], columns: &[String]) -> Result<RecordBatch> {
        if columns.is_empty() {
            let count = RecordBatchOptions::new().with_row_count(Some(rows.len()));
            let none = Arc::new(Schema::empty());
            return Ok(RecordBatch::try_new_with_options(none, vec![], &count)?);
        }
        let schema = self.dataset.schema().project(columns)?;
        // Offset and row id are one: there is a single fragment, numbered 0.
        let request = ProjectionRequest::from_schema(schema);
        let take = async { Ok(self.dataset.take_rows(rows, request).await?) };
        let batch = self.named(take).await?;
        if batch.num_rows() != rows.len() {
            return Err(Error::internal(format!(
                "{} rows were taken from the generation at '{}' and {} came; a replaced row was asked for",
                rows.len(),
                self.target.path(&self.folder),
                batch.num_rows()
            )));
        }
        let order = columns
            .iter()
            .map(|column| Ok(batch.schema().index_of(column)?))
            .collect::<Result<Vec<usize>>>()?;
        Ok(batch.project(&order)?)
    }

    async fn read_keys(&self) -> Result<Arc<SortedKeys>> {
        let codec = self.target.codec().ok_or_else(|| {
            Error::invalid(format!(
                "table '{}' has no key; create it with a PRIMARY KEY to look rows up",
                self.target.schema().table()
            ))
        })?;
        let path = self.target.path(&self.folder);
        let config = self.dataset.config();
        let stored = key_index::read(
            self.target.store(),
            &path,
            codec,
            self.physical_rows,
            config,
        );
        let keys = match caught(stored).await {
            Ok(Some(keys)) => keys,
            other => {
                // The scan needs the same store, so that an outage is reported by it.
                let error = other.err().map(|error| error.to_string());
                tracing::warn!(folder = %path, error, "the key index cannot be used; scanning the keys");
                self.named(scan::key_rows(&self.dataset, codec)).await?
            }
        };
        Ok(Arc::new(keys))
    }

    async fn read_tombstones(&self) -> Result<Arc<RoaringBitmap>> {
        let read = async {
            let mut scanner = self.dataset.scan();
            scanner.project(&[TOMBSTONE])?.with_row_address();
            let mut batches = scanner.try_into_stream().await?;
            let mut rows = RoaringBitmap::new();
            while let Some(batch) = batches.try_next().await? {
                let marks = batch.column(0).as_boolean_opt();
                let addresses = batch.column(1).as_primitive_opt::<UInt64Type>();
                let (Some(marks), Some(addresses)) = (marks, addresses) else {
                    return Err(Error::corrupt("its marks are not boolean"));
                };
                let marked = marks.iter().zip(addresses.values());
                rows.extend(
                    marked.filter_map(|(mark, &row)| (mark == Some(true)).then_some(row as u32)),
                );
            }
            Ok(Arc::new(rows))
        };
        self.named(read).await
    }

    async fn named<T>(&self, read: impl Future<Output = Result<T>>) -> Result<T> {
        named(&self.target, &self.folder, Some(&self.dataset), read).await
    }
}

/// Compares by field id, which outlives a rename. Such a generation must be compacted
/// by whoever changed the schema; this version reads only what was written under it.
fn check_columns(target: &GenerationTarget, folder: &str, dataset: &Dataset) -> Result<()> {
    let found = &dataset.schema().fields;
    if !found.iter().any(|field| field.name == TOMBSTONE) {
        return Err(target.corrupt(folder, "has no column '_tombstone'"));
    }
    for column in &target.schema().base().fields {
        let same = found
            .iter()
            .find(|field| field.id == column.id && field.name != TOMBSTONE);
        if !same.is_some_and(|same| is_same_field(same, column)) {
            return Err(Error::unsupported(format!(
                "table '{}': the generation at '{}' was written before the column '{}' was added, \
                 renamed or retyped; undo the change, compact the table, then change it again",
                target.schema().table(),
                target.path(folder),
                column.name
            )));
        }
    }
    Ok(())
}

/// Nullability and metadata differ by design: a generation stores every value column nullable.
fn is_same_field(found: &Field, column: &Field) -> bool {
    let mut children = found.children.iter().zip(&column.children);
    found.id == column.id
        && found.name == column.name
        && found.logical_type == column.logical_type
        && found.children.len() == column.children.len()
        && children.all(|(found, column)| is_same_field(found, column))
}

/// A filter that is missing, malformed or damaged costs time only, so that it is left out.
async fn read_bloom(
    target: &GenerationTarget,
    folder: &str,
    dataset: &Dataset,
    rows: u64,
) -> Result<Option<Sbbf>> {
    let Some(codec) = target.codec() else {
        return Ok(None);
    };
    if !bloom::is_trusted(&codec.types()) {
        return Ok(None);
    }
    let path = target.path(folder).join(BLOOM_FILTER_FILE);
    let read = async { Ok(target.store().read_one_all(&path).await?) };
    let bytes = match named(target, folder, Some(dataset), read).await {
        Err(error) if error.kind() == ErrorKind::Corrupt => return Ok(None),
        other => other?,
    };
    let is_damaged = match checksum::verify(dataset.config(), checksum::BLOOM_FILTER, &bytes) {
        Verdict::Same => false,
        Verdict::Different => true,
        // It would deny every key that is there.
        Verdict::NotRecorded => rows > 0 && bytes.iter().all(|&byte| byte == 0),
    };
    if is_damaged {
        tracing::warn!(%path, "the Bloom filter is damaged; reading without it");
        return Ok(None);
    }
    Ok(Sbbf::new(&bytes).ok())
}

/// Whether the manifest says what it was written with, as far as it says that.
fn is_as_written(dataset: &Dataset, fragment: &Fragment) -> bool {
    let contents = checksum::contents(dataset.schema(), fragment);
    // Our checksums say nothing of a version that someone else has made of ours.
    dataset.manifest().version != VERSION
        || checksum::verify(dataset.config(), checksum::CONTENTS, contents.as_bytes())
            != Verdict::Different
}

/// A scan leaves out those rows that the writer left out.
async fn check_deletions(
    target: &GenerationTarget,
    folder: &str,
    dataset: &Dataset,
    fragment: &Fragment,
) -> Result<()> {
    let config = dataset.config();
    let Some(deletions) = &fragment.deletion_file else {
        return Ok(());
    };
    if dataset.manifest().version != VERSION || !config.contains_key(checksum::DELETIONS) {
        return Ok(());
    }
    let path = deletion_file_path(&target.path(folder), fragment.id, deletions);
    let read = async { Ok(target.store().read_one_all(&path).await?) };
    let bytes = named(target, folder, Some(dataset), read).await?;
    if checksum::verify(config, checksum::DELETIONS, &bytes) == Verdict::Different {
        return Err(target.corrupt(folder, &format!("has a damaged deletion file '{path}'")));
    }
    Ok(())
}
