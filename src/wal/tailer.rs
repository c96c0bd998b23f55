//! Reads the log of one shard: where it ends, and its entries in order.

use std::sync::Arc;

use futures::{Stream, StreamExt, stream};
use lance_io::object_store::ObjectStore;
use object_store::ObjectStoreExt;
use object_store::path::Path;

use super::entry::{WalEntry, decode};
use crate::error::{Error, ErrorKind, Result};
use crate::layout::ShardLayout;
use crate::objects::{get, last_number};
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
    let dir = layout.wal_dir();
    let listed = last_number(store, &dir, ShardLayout::wal_position)
        .await
        .map_err(|error| unavailable(&dir, error))?
        .unwrap_or(0);
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

/// The entries from `first` up to, not including, `end`, in order, each with its
/// position. An entry that is not there is an error.
pub(crate) fn read_entries(
    store: Arc<ObjectStore>,
    layout: ShardLayout,
    schema: Arc<TableSchema>,
    first: u64,
    end: u64,
) -> impl Stream<Item = Result<(u64, WalEntry)>> + Send + Unpin {
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
) -> Result<(u64, WalEntry)> {
    let bytes = get(&store, &path)
        .await
        .map_err(|error| unavailable(&path, error))?
        .ok_or_else(|| {
            Error::corrupt(format!(
                "table '{}': WAL entry {position} is missing; restore the object {path}",
                schema.table()
            ))
        })?;
    let entry = decode(&schema, &path, bytes)?;
    Ok((position, entry))
}

fn unavailable(path: &Path, error: object_store::Error) -> Error {
    Error::from(error).context(format!("reading the log at {path}"))
}
