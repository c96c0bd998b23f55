//! The log of the batches of a memtable, in the order of their puts.
//!
//! ```text
//! joined segments                      chunks of 64 batches as they were put
//! [ 4,096 rows ][ 4,096 ][ 64 ][ 64 ]  [|||||||..|] [|||     ]
//!                                       0 1 2       ^ the appender fills this one
//! ```
//!
//! A full chunk is joined and dropped by the one who applies the index; a reader
//! holds the list that it has loaded, so neither waits for the other.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use datafusion::arrow::array::RecordBatch;

use super::join::push_joined;
use super::prepared::PreparedBatch;
use super::segment::Segment;
use crate::error::{Error, Result};
use crate::index::paged::Paged;

const CHUNK_BATCHES: u64 = 64;
const MAX_ROWS: u64 = u32::MAX as u64 - 1;

/// What the WAL still owes, up to the end of a put.
#[derive(Debug)]
pub(crate) struct Pending {
    /// The count of this memtable's batches that are durable once these are.
    pub(crate) end: u64,
    /// Their rows, in row form and order. Empty when
    /// there is nothing to append, or only batches without rows.
    pub(crate) batches: Vec<RecordBatch>,
    pub(crate) rows: u64,
    pub(crate) bytes: u64,
}

/// See the module. One thread appends and one joins at a time; the memtable sees to it.
#[derive(Debug)]
pub(super) struct BatchLog {
    len: AtomicU64,
    /// Rows up to and including each batch.
    row_ends: Paged<AtomicU32>,
    /// Bytes up to and including each batch, doubled; plus 1 where a put ends.
    byte_ends: Paged<AtomicU64>,
    lists: ArcSwap<Lists>,
}

#[derive(Debug, Default)]
struct Lists {
    joined: Vec<Arc<Segment>>,
    /// The batches before the first chunk: a multiple of [`CHUNK_BATCHES`].
    joined_batches: u64,
    chunks: Vec<Arc<Chunk>>,
}

#[derive(Debug)]
struct Chunk(Box<[OnceLock<Arc<Segment>>]>);

impl Chunk {
    fn new() -> Self {
        Self((0..CHUNK_BATCHES).map(|_| OnceLock::new()).collect())
    }

    fn segments(&self) -> impl Iterator<Item = &Arc<Segment>> {
        self.0.iter().map_while(OnceLock::get)
    }
}

impl BatchLog {
    pub(super) fn new() -> Self {
        Self {
            len: AtomicU64::new(0),
            row_ends: Paged::new(),
            byte_ends: Paged::new(),
            lists: ArcSwap::default(),
        }
    }

    /// How many batches were published.
    pub(super) fn len(&self) -> u64 {
        self.len.load(Ordering::Acquire)
    }

    /// The rows of the first `batches` batches.
    pub(super) fn rows_of(&self, batches: u64) -> u32 {
        position_before(batches)
            .and_then(|last| self.row_ends.get(last))
            .map_or(0, |end| end.load(Ordering::Relaxed))
    }

    /// The bytes of the first `batches` batches.
    pub(super) fn bytes_of(&self, batches: u64) -> u64 {
        self.byte_end(batches) >> 1
    }

    /// Bytes of the bookkeeping of batches.
    pub(super) fn overhead_bytes(&self) -> usize {
        self.row_ends.bytes() + self.byte_ends.bytes()
    }

    /// Appends one put and publishes its batches together.
    pub(super) fn append(&self, put: &[PreparedBatch]) -> Result<()> {
        let first = self.len.load(Ordering::Relaxed);
        let mut rows = self.rows_of(first);
        let mut bytes = self.bytes_of(first);
        let put_rows: usize = put.iter().map(|batch| batch.rows.num_rows()).sum();
        if u64::from(rows) + put_rows as u64 > MAX_ROWS || first + put.len() as u64 > MAX_ROWS {
            return Err(Error::unsupported(format!(
                "a memtable holds at most {MAX_ROWS} rows; split the put"
            )));
        }
        for (batch, number) in put.iter().zip(first..) {
            let segment = Arc::new(Segment {
                start: rows,
                batch: batch.rows.clone(),
                tombstones: batch.tombstones,
                bytes: batch.bytes,
            });
            rows = segment.end();
            bytes += batch.bytes as u64;
            let ends_put = number + 1 == first + put.len() as u64;
            self.row_ends
                .make(number as u32)
                .store(rows, Ordering::Relaxed);
            self.byte_ends
                .make(number as u32)
                .store(bytes << 1 | u64::from(ends_put), Ordering::Relaxed);
            self.place(number, segment)?;
        }
        self.len.store(first + put.len() as u64, Ordering::Release);
        Ok(())
    }

    /// The segments that cover exactly `rows`.
    pub(super) fn segments(&self, rows: &Range<u32>) -> Vec<Arc<Segment>> {
        let lists = self.lists.load();
        let first = lists
            .joined
            .partition_point(|segment| segment.end() <= rows.start);
        let joined = lists.joined.get(first..).unwrap_or_default();
        let as_put = lists.chunks.iter().flat_map(|chunk| chunk.segments());
        joined
            .iter()
            .chain(as_put)
            .take_while(|segment| segment.start < rows.end)
            .filter_map(|segment| segment.within(rows))
            .collect()
    }

    /// What follows the first `from` batches: as many whole puts as `max_bytes`
    /// takes, but one at least if there is one.
    pub(super) fn pending(&self, from: u64, max_bytes: u64) -> Pending {
        let len = self.len();
        let from = from.min(len);
        let limit = self.bytes_of(from).saturating_add(max_bytes);
        let mut end = from;
        for count in from + 1..=len {
            let byte_end = self.byte_end(count);
            if end > from && byte_end >> 1 > limit {
                break;
            }
            if byte_end & 1 == 1 {
                end = count;
            }
        }
        let rows = self.rows_of(from)..self.rows_of(end);
        Pending {
            end,
            batches: self
                .segments(&rows)
                .iter()
                .map(|segment| segment.batch.clone())
                .collect(),
            rows: u64::from(rows.end - rows.start),
            bytes: self.bytes_of(end) - self.bytes_of(from),
        }
    }

    /// Joins the small batches of chunks that are full.
    pub(super) fn join_full_chunks(&self) {
        // The length first: the list that is loaded after it has every chunk below it.
        let len = self.len();
        let lists = self.lists.load_full();
        let full = (len - lists.joined_batches) / CHUNK_BATCHES;
        if full == 0 {
            return;
        }
        let mut joined = lists.joined.clone();
        for chunk in lists.chunks.iter().take(full as usize) {
            let fresh = chunk
                .segments()
                .filter(|segment| segment.batch.num_rows() > 0)
                .map(Arc::clone)
                .collect();
            push_joined(&mut joined, fresh);
        }
        // The appender may have added a chunk meanwhile; only joining removes one.
        self.lists.rcu(|now| Lists {
            joined: joined.clone(),
            joined_batches: now.joined_batches + full * CHUNK_BATCHES,
            chunks: now
                .chunks
                .iter()
                .skip(full as usize)
                .map(Arc::clone)
                .collect(),
        });
    }

    fn byte_end(&self, batches: u64) -> u64 {
        position_before(batches)
            .and_then(|last| self.byte_ends.get(last))
            .map_or(0, |end| end.load(Ordering::Relaxed))
    }

    /// Puts the segment of batch `number` in its slot.
    fn place(&self, number: u64, segment: Arc<Segment>) -> Result<()> {
        let misplaced = || Error::internal("the slot of a batch is taken");
        let mut lists = self.lists.load_full();
        let mut chunk = (number - lists.joined_batches) / CHUNK_BATCHES;
        if chunk as usize == lists.chunks.len() {
            let new = Arc::new(Chunk::new());
            self.lists.rcu(|now| {
                let chunks = now.chunks.iter().chain([&new]).map(Arc::clone).collect();
                Lists {
                    joined: now.joined.clone(),
                    joined_batches: now.joined_batches,
                    chunks,
                }
            });
            lists = self.lists.load_full();
            chunk = (number - lists.joined_batches) / CHUNK_BATCHES;
        }
        let slot = lists
            .chunks
            .get(chunk as usize)
            .and_then(|chunk| chunk.0.get((number % CHUNK_BATCHES) as usize))
            .ok_or_else(misplaced)?;
        slot.set(segment).map_err(|_| misplaced())
    }
}

fn position_before(batches: u64) -> Option<u32> {
    u32::try_from(batches.checked_sub(1)?).ok()
}
