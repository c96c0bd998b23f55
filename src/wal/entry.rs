//! The bytes of one WAL entry.
//!
//! An entry is an Arrow IPC stream. The metadata of its schema says who wrote it:
//!
//! | key | value |
//! | --- | --- |
//! | `writer_epoch` | decimal, always there |
//! | `generation` | decimal, the memtable that the rows belong to |
//! | `fence_sentinel` | `true` on an entry without batches, which only fences |
//!
//! Arrow IPC has no checksum, so a changed bit in a value would be replayed as data. Behind
//! the end marker of the stream, where readers of the format no longer look, we therefore
//! write `MWCS` and the CRC-32 of everything before, little-endian. (A key of our own in the
//! metadata would not do: Lance's writer refuses to replay rows under a schema with metadata
//! that the table does not have.) An entry without it, as Lance writes them, is held to its
//! structure alone.
//! Source: Lance's MemWAL specification, "WAL entry".

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use bytes::Bytes;
use crc32fast::hash as crc32;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::buffer::Buffer;
use datafusion::arrow::compute::concat_batches;
use datafusion::arrow::datatypes::{Fields, Schema};
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::ipc::reader::StreamDecoder;
use datafusion::arrow::ipc::writer::StreamWriter;
use object_store::path::Path;

use super::conform::{to_row_form, to_stored_form};
use super::frame::{self, Defect, Tag};
use crate::error::{Error, Result};
use crate::schema::TableSchema;

const WRITER_EPOCH_KEY: &str = "writer_epoch";
const GENERATION_KEY: &str = "generation";
const FENCE_SENTINEL_KEY: &str = "fence_sentinel";
/// Keys under which Lance names the generation that prepared blobs were written to.
const TARGET_KEY_PREFIX: &str = "mem_wal_target_";
const CHECKSUM_MARK: [u8; 4] = *b"MWCS";
/// Neighbouring batches are written as one up to this size: a replayed memtable then
/// holds few batches where its first life took many tiny puts.
pub(crate) const MAX_JOINED_ROWS: usize = 8_192;

/// Who wrote an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EntryHeader {
    pub writer_epoch: u64,
    /// The memtable of the rows; Lance's WAL-only mode writes none.
    pub generation: Option<u64>,
}

/// What an entry holds; no batches means that it only fences.
#[derive(Debug)]
pub(crate) struct WalEntry {
    pub header: EntryHeader,
    /// In row form.
    pub batches: Vec<RecordBatch>,
}

/// The bytes of an entry, and how many batches its rows were joined into.
#[derive(Debug)]
pub(crate) struct Encoded {
    pub bytes: Bytes,
    pub batches: usize,
}

/// The bytes of an entry with the rows of `batches`, which are in row form.
pub(crate) fn encode(
    schema: &TableSchema,
    header: &EntryHeader,
    batches: &[RecordBatch],
) -> Result<Encoded> {
    let fault = |defect: String| {
        Error::internal(format!(
            "table '{}': rows cannot be written to the log: {defect}",
            schema.table()
        ))
    };
    let mut metadata = schema.stored().metadata().clone();
    metadata.retain(|key, _| !key.starts_with(TARGET_KEY_PREFIX));
    metadata.remove(FENCE_SENTINEL_KEY);
    metadata.remove(GENERATION_KEY);
    metadata.extend(
        header
            .generation
            .map(|generation| (GENERATION_KEY.to_string(), generation.to_string())),
    );
    let stored = Schema::new_with_metadata(schema.stored().fields().clone(), metadata);
    let stored = Arc::new(signed(stored, header.writer_epoch));
    let batches = batches
        .iter()
        .filter(|batch| batch.num_rows() > 0)
        .map(|batch| {
            let columns = to_stored_form(schema, batch)?;
            RecordBatch::try_new(Arc::clone(&stored), columns).map_err(|error| error.to_string())
        })
        .collect::<Result<Vec<_>, Defect>>()
        .map_err(fault)?;
    if batches.is_empty() {
        return Err(fault(
            "there are none, and an entry without rows is a fence".to_string(),
        ));
    }
    let joined = join(&stored, batches);
    let bytes = write(&stored, &joined).map_err(fault)?;
    Ok(Encoded {
        bytes,
        batches: joined.len(),
    })
}

/// The bytes of an entry that only takes its position, so that an older writer of the
/// shard finds it taken.
pub(crate) fn encode_sentinel(writer_epoch: u64) -> Result<Bytes> {
    let metadata = HashMap::from([(FENCE_SENTINEL_KEY.to_string(), "true".to_string())]);
    let schema = signed(
        Schema::new_with_metadata(Fields::empty(), metadata),
        writer_epoch,
    );
    write(&schema, &[])
        .map_err(|defect| Error::internal(format!("a fence cannot be written: {defect}")))
}

/// The entry that `bytes` hold, its batches in row form. Whatever is wrong with them is
/// an error that names `path`.
pub(crate) fn decode(schema: &TableSchema, path: &Path, bytes: Bytes) -> Result<WalEntry> {
    let corrupt = |defect: Defect| corrupt(path, defect);
    let (tags, stream_bytes) = open(&bytes).map_err(corrupt)?;
    if tags
        .iter()
        .any(|tag| tag.key.starts_with(TARGET_KEY_PREFIX))
    {
        return Err(Error::unsupported(format!(
            "table '{}': the WAL entry {path} refers to blobs, which this version cannot replay; \
             flush the shard with Lance's own writer first",
            schema.table()
        )));
    }
    let header = EntryHeader {
        writer_epoch: epoch(&tags).map_err(corrupt)?,
        generation: number(&tags, GENERATION_KEY).map_err(corrupt)?,
    };
    // A last guard: Arrow's decoder has assertions that no check from outside can cover.
    let batches = catch_unwind(AssertUnwindSafe(|| read(bytes.slice(..stream_bytes))))
        .unwrap_or_else(|_| Err("Arrow cannot decode it".to_string()))
        .map_err(corrupt)?;
    let batches = batches
        .iter()
        .filter(|batch| batch.num_rows() > 0)
        .map(|batch| to_row_form(schema, batch))
        .collect::<Result<_, Defect>>()
        .map_err(corrupt)?;
    Ok(WalEntry { header, batches })
}

/// The epoch of the writer of an entry, whatever its schema.
pub(super) fn peek_epoch(path: &Path, bytes: &[u8]) -> Result<u64> {
    open(bytes)
        .and_then(|(tags, _)| epoch(&tags))
        .map_err(|defect| corrupt(path, defect))
}

fn corrupt(path: &Path, defect: Defect) -> Error {
    Error::corrupt(format!(
        "the WAL entry {path} cannot be read: {defect}; restore the object from a copy"
    ))
}

fn signed(schema: Schema, writer_epoch: u64) -> Schema {
    let mut metadata = schema.metadata;
    metadata.insert(WRITER_EPOCH_KEY.to_string(), writer_epoch.to_string());
    Schema::new_with_metadata(schema.fields, metadata)
}

fn join(schema: &Arc<Schema>, batches: Vec<RecordBatch>) -> Vec<RecordBatch> {
    let mut joined = Vec::new();
    let mut group: Vec<RecordBatch> = Vec::new();
    let mut group_rows = 0;
    let mut close = |group: &mut Vec<RecordBatch>| {
        let group = std::mem::take(group);
        match group.len() {
            0 | 1 => joined.extend(group),
            // A dictionary whose keys do not suffice for the joined values stays apart.
            _ => match concat_batches(schema, &group) {
                Ok(batch) => joined.push(batch),
                Err(_) => joined.extend(group),
            },
        }
    };
    for batch in batches {
        if group_rows + batch.num_rows() > MAX_JOINED_ROWS {
            close(&mut group);
            group_rows = 0;
        }
        group_rows += batch.num_rows();
        group.push(batch);
    }
    close(&mut group);
    joined
}

fn write(schema: &Schema, batches: &[RecordBatch]) -> Result<Bytes, Defect> {
    let stream = || -> Result<Vec<u8>, ArrowError> {
        let mut bytes = Vec::new();
        let mut writer = StreamWriter::try_new(&mut bytes, schema)?;
        for batch in batches {
            writer.write(batch)?;
        }
        writer.finish()?;
        drop(writer);
        Ok(bytes)
    };
    let mut bytes = stream().map_err(|error| error.to_string())?;
    let checksum = crc32(&bytes);
    bytes.extend(CHECKSUM_MARK);
    bytes.extend(checksum.to_le_bytes());
    Ok(Bytes::from(bytes))
}

fn read(bytes: Bytes) -> Result<Vec<RecordBatch>, Defect> {
    let mut rest = Buffer::from(bytes);
    let mut decoder = StreamDecoder::new();
    let mut batches = Vec::new();
    while !rest.is_empty() {
        let batch = decoder
            .decode(&mut rest)
            .map_err(|error| error.to_string())?;
        batches.extend(batch);
    }
    decoder.finish().map_err(|error| error.to_string())?;
    Ok(batches)
}

/// Checks everything about the bytes that does not need the table's schema, and returns
/// the metadata of the stream and the size of the stream.
fn open(bytes: &[u8]) -> Result<(Vec<Tag>, usize), Defect> {
    let end = frame::check(bytes)?;
    let (stream, rest) = bytes.split_at_checked(end).unwrap_or((bytes, &[]));
    if !rest.is_empty() {
        let expected = [CHECKSUM_MARK, crc32(stream).to_le_bytes()].concat();
        if rest != expected {
            return Err("its checksum does not match its bytes".to_string());
        }
    }
    Ok((frame::tags(stream)?, end))
}

fn epoch(tags: &[Tag]) -> Result<u64, Defect> {
    number(tags, WRITER_EPOCH_KEY)?
        .ok_or_else(|| format!("its schema lacks the key '{WRITER_EPOCH_KEY}'"))
}

fn number(tags: &[Tag], key: &str) -> Result<Option<u64>, Defect> {
    tags.iter()
        .find(|tag| tag.key == key)
        .map(|tag| {
            let value = &tag.value;
            let number = value.parse();
            number.map_err(|_| format!("its key '{key}' is '{value}', not a number"))
        })
        .transpose()
}
