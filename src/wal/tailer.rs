//! Reads the log of one shard: where it ends, and its entries in order.

use std::sync::Arc;

use bytes::Bytes;
use futures::{Stream, StreamExt, TryStreamExt, stream};
use lance_io::object_store::ObjectStore;
use object_store::path::Path;
use object_store::{ObjectStoreExt, Result as StoreResult};

use super::entry::{WalEntry, decode};
use crate::error::{Error, ErrorKind, Result};
use crate::layout::{ShardLayout, parse_reversed_name};
use crate::schema::TableSchema;

/// Entries fetched side by side. Each is at most about `max_wal_buffer_size`.
const MAX_READS_IN_FLIGHT: usize = 16;
/// Entries that may appear above the listing while the end is being looked for.
const MAX_PROBES: u64 = 4_096;

/// The first free position of the log, at least `lower_bound + 1`.
pub(crate) async fn find_tip(
    store: &ObjectStore,
    layout: &ShardLayout,
    lower_bound: u64,
) -> Result<u64> {
    let listed = last_listed(store, layout).await?.unwrap_or(0);
    let full = || Error::corrupt(format!("the log at {} is full", layout.wal_dir()));
    let mut tip = listed.max(lower_bound).checked_add(1).ok_or_else(full)?;
    for _ in 0..MAX_PROBES {
        let path = layout.wal_entry(tip);
        match store.inner.head(&path).await {
            Ok(_) => tip = tip.checked_add(1).ok_or_else(full)?,
            Err(object_store::Error::NotFound { .. }) => return Ok(tip),
            Err(error) => return Err(unavailable(&path, error)),
        }
    }
    Err(Error::new(
        ErrorKind::Conflict,
        format!(
            "the log at {} grows faster than its end can be found; stop its other writer and open again",
            layout.wal_dir()
        ),
    ))
}

/// The entries from `first` up to, not including, `end`, in order, each with its position
/// and its size in bytes. An entry that is not there is an error.
pub(crate) fn read_entries(
    store: Arc<ObjectStore>,
    layout: ShardLayout,
    schema: Arc<TableSchema>,
    first: u64,
    end: u64,
) -> impl Stream<Item = Result<(u64, WalEntry, usize)>> + Send + Unpin {
    stream::iter(first..end)
        .map(move |position| {
            let (store, schema) = (Arc::clone(&store), Arc::clone(&schema));
            read_entry(store, schema, layout.wal_entry(position), position)
        })
        .buffered(MAX_READS_IN_FLIGHT)
        .boxed()
}

async fn read_entry(
    store: Arc<ObjectStore>,
    schema: Arc<TableSchema>,
    path: Path,
    position: u64,
) -> Result<(u64, WalEntry, usize)> {
    let bytes = get(&store, &path)
        .await
        .map_err(|error| unavailable(&path, error))?
        .ok_or_else(|| {
            Error::corrupt(format!(
                "table '{}': WAL entry {position} is missing; restore the object {path}",
                schema.table()
            ))
        })?;
    let size = bytes.len();
    let entry = decode(&schema, &path, bytes)?;
    Ok((position, entry, size))
}

/// The object at `path`, or `None` if there is none.
pub(super) async fn get(store: &ObjectStore, path: &Path) -> StoreResult<Option<Bytes>> {
    match store.inner.get(path).await {
        Ok(object) => object.bytes().await.map(Some),
        Err(object_store::Error::NotFound { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

async fn last_listed(store: &ObjectStore, layout: &ShardLayout) -> Result<Option<u64>> {
    let dir = layout.wal_dir();
    let listing = store
        .inner
        .list(Some(&dir))
        .try_filter_map(async |object| {
            let name = object.location.filename().unwrap_or_default();
            let position = parse_reversed_name(name);
            // A local store leaves `{name}.tmp.{id}` behind when it crashes while writing:
            // such a file is not an entry, and counting it would leave a gap.
            Ok(position.filter(|&position| layout.wal_entry(position).filename() == Some(name)))
        })
        .try_fold(None, async |last: Option<u64>, position| {
            Ok(last.max(Some(position)))
        })
        .await;
    match listing {
        Err(object_store::Error::NotFound { .. }) => Ok(None),
        other => other.map_err(|error| unavailable(&dir, error)),
    }
}

fn unavailable(path: &Path, error: object_store::Error) -> Error {
    Error::from(error).context(format!("reading the log at {path}"))
}
