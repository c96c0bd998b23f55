//! The key index of a generation: a Lance BTree of (key, row) over every row, also
//! those that were replaced or that delete.
//!
//! Source: Lance's MemWAL specification, "Primary key index".

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, RecordBatch, UInt64Array};
use datafusion::arrow::compute::{concat, take};
use datafusion::arrow::datatypes::{DataType, Field, Schema, UInt64Type};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::stream;
use lance_core::ROW_ADDR;
use lance_core::cache::LanceCache;
use lance_core::utils::bloomfilter::sbbf::Sbbf;
use lance_index::scalar::IndexStore;
use lance_index::scalar::btree::train_btree_index;
use lance_index::scalar::lance_format::LanceIndexStore;
use lance_io::object_store::ObjectStore;
use object_store::path::Path;

use super::bloom;
use super::checksum::{self, Verdict};
use crate::error::{Error, Result};
use crate::index::key::{KeyCodec, Keys, SortedKeys};
use crate::layout::KEY_INDEX_DIR;

/// Rows per page of the BTree, which is also what Lance's own writer takes.
const PAGE_ROWS: usize = 8192;
const PAGE_FILE: &str = "page_data.lance";
const VALUE_COLUMN: &str = "value";

/// What a flush computes from the keys of its rows.
pub(crate) struct KeyIndex {
    /// (`value`, `_rowaddr`) of every row, sorted by both.
    sorted: RecordBatch,
    pub(crate) bloom: Sbbf,
    /// The bytes of the key columns' values.
    pub(crate) key_bytes: u64,
}

impl KeyIndex {
    /// The index of rows whose key columns are `columns`, batch by batch.
    pub(crate) fn build(codec: &KeyCodec, batches: &[RecordBatch]) -> Result<Self> {
        let parts: Vec<Vec<ArrayRef>> = batches
            .iter()
            .map(|batch| codec.columns_of(batch))
            .collect();
        let key_bytes: u64 = parts.iter().flatten().map(value_bytes).sum();
        let rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
        if !codec.is_fixed() && !fits_offsets(key_bytes, rows, codec.names().len()) {
            return Err(Error::unsupported(format!(
                "{rows} rows with keys of {key_bytes} bytes are too many for one key index, which \
                 takes 2 GiB; write fewer rows at once"
            )));
        }
        let columns = (0..codec.names().len())
            .map(|column| {
                let arrays: Vec<_> = parts
                    .iter()
                    .filter_map(|part| part.get(column).map(|array| array.as_ref()))
                    .collect();
                Ok(concat(&arrays)?)
            })
            .collect::<Result<Vec<ArrayRef>>>()?;
        let keys = codec.encode(&columns)?;
        let values: ArrayRef = match (columns.as_slice(), &keys) {
            ([only], _) => Arc::clone(only),
            (_, Keys::Bytes(keys)) => Arc::new(keys.clone()),
            (_, Keys::Fixed(_)) => {
                return Err(Error::internal("a key of several columns is not bytes"));
            }
        };
        let order = UInt64Array::from(sorted_rows(&keys));
        let schema = Schema::new(vec![
            Field::new(VALUE_COLUMN, codec.index_type(), true),
            Field::new(ROW_ADDR, DataType::UInt64, false),
        ]);
        let values = take(&values, &order, None)?;
        Ok(Self {
            sorted: RecordBatch::try_new(Arc::new(schema), vec![values, Arc::new(order)])?,
            bloom: bloom::build(&columns)?,
            key_bytes,
        })
    }

    /// Writes the BTree into the folder of a generation; gives the checksum of its keys.
    pub(crate) async fn write(&self, store: &Arc<ObjectStore>, folder: &Path) -> Result<String> {
        let rows = self.sorted.num_rows();
        let pages: Vec<_> = (0..rows)
            .step_by(PAGE_ROWS)
            .map(|start| Ok(self.sorted.slice(start, PAGE_ROWS.min(rows - start))))
            .collect();
        let source = RecordBatchStreamAdapter::new(self.sorted.schema(), stream::iter(pages));
        let index = index_store(store, folder);
        train_btree_index(Box::pin(source), &index, PAGE_ROWS as u64, None, None).await?;
        let written = store.read_one_all(&page_file(folder)).await?;
        Ok(checksum::of(&written))
    }
}

/// The newest row of each key as the key index in `folder` has them; `None` when the
/// index does not hold `rows` rows, or holds keys of another type.
///
/// # Errors
///
/// `Corrupt` when `config` has the checksum of other bytes.
pub(crate) async fn read(
    store: &Arc<ObjectStore>,
    folder: &Path,
    codec: &KeyCodec,
    rows: u64,
    config: &HashMap<String, String>,
) -> Result<Option<SortedKeys>> {
    if config.contains_key(checksum::KEY_INDEX) {
        let path = page_file(folder);
        let bytes = store.read_one_all(&path).await?;
        if checksum::verify(config, checksum::KEY_INDEX, &bytes) == Verdict::Different {
            return Err(Error::corrupt(format!("the checksum of '{path}' is wrong")));
        }
    }
    let reader = index_store(store, folder)
        .open_index_file(PAGE_FILE)
        .await?;
    if reader.num_rows() as u64 != rows {
        return Ok(None);
    }
    let page = reader.read_range(0..reader.num_rows(), None).await?;
    let (Some(values), Some(ids)) = (page.column_by_name("values"), page.column_by_name("ids"))
    else {
        return Ok(None);
    };
    let Some(ids) = ids.as_primitive_opt::<UInt64Type>() else {
        return Ok(None);
    };
    if values.data_type() != &codec.index_type() || ids.values().iter().any(|&id| id >= rows) {
        return Ok(None);
    }
    let keys = if codec.names().len() == 1 {
        codec.encode(&[Arc::clone(values)])?
    } else {
        match values.as_binary_opt::<i32>() {
            Some(keys) if keys.null_count() == 0 => Keys::Bytes(keys.clone()),
            _ => return Ok(None),
        }
    };
    let ids = ids.values().to_vec();
    Ok(Some(if is_sorted(&keys, &ids) {
        SortedKeys::from_sorted(keys, ids)
    } else {
        SortedKeys::new(keys, ids)
    }))
}

fn page_file(folder: &Path) -> Path {
    folder.clone().join(KEY_INDEX_DIR).join(PAGE_FILE)
}

fn index_store(store: &Arc<ObjectStore>, folder: &Path) -> LanceIndexStore {
    LanceIndexStore::new(
        Arc::clone(store),
        folder.clone().join(KEY_INDEX_DIR),
        Arc::new(LanceCache::no_cache()),
    )
}

/// The rows in the order of (key, row).
fn sorted_rows(keys: &Keys) -> Vec<u64> {
    match keys {
        Keys::Fixed(keys) => {
            let mut pairs: Vec<(u64, u64)> = keys.iter().copied().zip(0..).collect();
            pairs.sort_unstable();
            pairs.into_iter().map(|(_, row)| row).collect()
        }
        Keys::Bytes(keys) => {
            let mut rows: Vec<usize> = (0..keys.len()).collect();
            rows.sort_unstable_by(|&a, &b| keys.value(a).cmp(keys.value(b)).then(a.cmp(&b)));
            rows.into_iter().map(|row| row as u64).collect()
        }
    }
}

fn is_sorted(keys: &Keys, rows: &[u64]) -> bool {
    (1..rows.len()).all(|at| (keys.get(at - 1), rows[at - 1]) <= (keys.get(at), rows[at]))
}

/// Whether the keys fit the 32-bit offsets of an Arrow array, were every byte escaped.
fn fits_offsets(key_bytes: u64, rows: usize, columns: usize) -> bool {
    const FRAME_BYTES_PER_VALUE: u64 = 9;
    let frames = (rows as u64).saturating_mul(columns as u64 * FRAME_BYTES_PER_VALUE);
    let bytes = key_bytes.saturating_mul(2).saturating_add(frames);
    i32::try_from(bytes).is_ok()
}

fn value_bytes(column: &ArrayRef) -> u64 {
    let data = column.to_data();
    data.get_slice_memory_size().unwrap_or_default() as u64
}
