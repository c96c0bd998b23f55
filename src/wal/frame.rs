//! The messages of an Arrow IPC stream, checked before Arrow is asked to decode them.
//!
//! Arrow's reader trusts lengths and offsets: on hostile bytes it panics or reserves
//! what they ask for, and a stream that is cut between two messages it takes for whole.
//! So every length is held against the object here, and the end marker must be there.

use datafusion::arrow::ipc::{
    Message, MessageHeader, RecordBatch as BatchMessage, root_as_message,
};

const CONTINUATION: [u8; 4] = [0xff; 4];
const PREFIX_BYTES: usize = 8;
const BITS_PER_BYTE: usize = 8;

/// What is wrong with the bytes; the caller adds the path.
pub(super) type Defect = String;

/// One entry of the schema's metadata.
pub(super) struct Tag {
    pub key: String,
    pub value: String,
}

struct Framed<'a> {
    message: Message<'a>,
    body_bytes: usize,
    next: usize,
}

/// The metadata of the schema that the stream begins with.
pub(super) fn tags(bytes: &[u8]) -> Result<Vec<Tag>, Defect> {
    let first = message_at(bytes, 0)?.ok_or("the stream ends before its schema")?;
    let schema = first
        .message
        .header_as_schema()
        .ok_or("the stream does not begin with a schema")?;
    let mut tags = Vec::new();
    for pair in schema.custom_metadata().into_iter().flatten() {
        let (Some(key), Some(value)) = (pair.key(), pair.value()) else {
            return Err("the schema's metadata has a key without a value".to_string());
        };
        tags.push(Tag {
            key: key.to_string(),
            value: value.to_string(),
        });
    }
    Ok(tags)
}

/// Follows the messages to the end marker, and returns where that ends.
pub(super) fn check(bytes: &[u8]) -> Result<usize, Defect> {
    let mut at = 0;
    let mut is_first = true;
    while let Some(framed) = message_at(bytes, at)? {
        let header = framed.message.header_type();
        if is_first != (header == MessageHeader::Schema) {
            return Err("the stream does not hold exactly one schema, at its start".to_string());
        }
        match header {
            MessageHeader::Schema => {}
            MessageHeader::RecordBatch => {
                let batch = framed.message.header_as_record_batch();
                check_batch(batch, framed.body_bytes, bytes.len())?;
            }
            MessageHeader::DictionaryBatch => {
                let dictionary = framed.message.header_as_dictionary_batch();
                let batch = dictionary.and_then(|dictionary| dictionary.data());
                check_batch(batch, framed.body_bytes, bytes.len())?;
            }
            _ => return Err("the stream holds a message of an unknown kind".to_string()),
        }
        is_first = false;
        at = framed.next;
    }
    if is_first {
        return Err("the stream ends before its schema".to_string());
    }
    Ok(at + PREFIX_BYTES)
}

/// The message at `at`, or `None` for the end marker.
fn message_at(bytes: &[u8], at: usize) -> Result<Option<Framed<'_>>, Defect> {
    let cut = || format!("the stream is cut at byte {at} of {}", bytes.len());
    let rest = bytes.get(at..).ok_or_else(cut)?;
    let (marker, rest) = rest.split_first_chunk::<4>().ok_or_else(cut)?;
    let (length, rest) = rest.split_first_chunk::<4>().ok_or_else(cut)?;
    if *marker != CONTINUATION {
        return Err(format!("there is no message at byte {at}"));
    }
    let length = usize::try_from(i32::from_le_bytes(*length))
        .map_err(|_| format!("the message at byte {at} has a negative length"))?;
    if length == 0 {
        return Ok(None);
    }
    let (header, body) = rest.split_at_checked(length).ok_or_else(cut)?;
    let message = root_as_message(header)
        .map_err(|error| format!("the message at byte {at} cannot be read: {error}"))?;
    let body_bytes = usize::try_from(message.bodyLength())
        .map_err(|_| format!("the message at byte {at} has a body of negative length"))?;
    if body_bytes > body.len() {
        return Err(cut());
    }
    Ok(Some(Framed {
        message,
        body_bytes,
        next: at + PREFIX_BYTES + length + body_bytes,
    }))
}

fn check_batch(
    batch: Option<BatchMessage<'_>>,
    body_bytes: usize,
    object_bytes: usize,
) -> Result<(), Defect> {
    let batch = batch.ok_or("a batch message holds no batch")?;
    if batch.compression().is_some() {
        return Err("a batch is compressed, which no writer of this format does".to_string());
    }
    // Each row takes at least the bit of its tombstone.
    let most_rows = object_bytes.saturating_mul(BITS_PER_BYTE);
    if !usize::try_from(batch.length()).is_ok_and(|rows| rows <= most_rows) {
        return Err(format!("a batch claims to hold {} rows", batch.length()));
    }
    for node in batch.nodes().into_iter().flatten() {
        if !(0..=node.length()).contains(&node.null_count()) {
            return Err("a column claims more nulls than rows".to_string());
        }
    }
    for buffer in batch.buffers().into_iter().flatten() {
        let end = usize::try_from(buffer.offset())
            .ok()
            .zip(usize::try_from(buffer.length()).ok())
            .and_then(|(offset, length)| offset.checked_add(length));
        if end.is_none_or(|end| end > body_bytes) {
            return Err("a buffer lies outside of its message".to_string());
        }
    }
    Ok(())
}
