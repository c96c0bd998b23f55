//! Small batches are joined, so that rows put one at a time scan like rows put by
//! the thousand. A row is copied at most twice: with the other batches of its chunk
//! of the log, and with the pieces that came of small chunks before it.

use std::sync::Arc;

use datafusion::arrow::compute::concat_batches;

use super::segment::Segment;

/// From here on a segment is left as it is: one more would not be noticed in a scan.
const WHOLE_ROWS: usize = 1_024;
const WHOLE_BYTES: usize = 128 << 10;

/// A trailing run of small segments is joined once it has this many of one of them.
const RUN_SEGMENTS: usize = 64;
const RUN_ROWS: usize = 4_096;
const RUN_BYTES: usize = 8 << 20;

/// Adds `fresh` segments of a full chunk to the joined ones before them.
pub(super) fn push_joined(joined: &mut Vec<Arc<Segment>>, fresh: Vec<Arc<Segment>>) {
    joined.extend(join_small(fresh));
    let run_start = joined
        .iter()
        .rposition(|segment| !is_small(segment))
        .map_or(0, |whole| whole + 1);
    let run = joined.get(run_start..).unwrap_or_default();
    let rows: usize = run.iter().map(|segment| segment.batch.num_rows()).sum();
    let bytes: usize = run.iter().map(|segment| segment.bytes).sum();
    if run.len() >= RUN_SEGMENTS || rows >= RUN_ROWS || bytes >= RUN_BYTES {
        let run = joined.split_off(run_start);
        joined.extend(join_small(run));
    }
}

/// The same rows, with small neighbours joined.
fn join_small(segments: Vec<Arc<Segment>>) -> Vec<Arc<Segment>> {
    let mut joined = Vec::new();
    let mut group: Vec<Arc<Segment>> = Vec::new();
    let mut group_bytes = 0;
    for segment in segments {
        let small = is_small(&segment);
        if !small || group_bytes + segment.bytes > RUN_BYTES {
            close(&mut group, &mut joined);
            group_bytes = 0;
        }
        if small {
            group_bytes += segment.bytes;
            group.push(segment);
        } else {
            joined.push(segment);
        }
    }
    close(&mut group, &mut joined);
    joined
}

fn is_small(segment: &Segment) -> bool {
    segment.batch.num_rows() < WHOLE_ROWS && segment.bytes < WHOLE_BYTES
}

fn close(group: &mut Vec<Arc<Segment>>, joined: &mut Vec<Arc<Segment>>) {
    let group = std::mem::take(group);
    let (Some(first), true) = (group.first(), group.len() > 1) else {
        joined.extend(group);
        return;
    };
    let schema = first.batch.schema_ref();
    match concat_batches(schema, group.iter().map(|segment| &segment.batch)) {
        Ok(batch) => joined.push(Arc::new(Segment {
            start: first.start,
            batch,
            tombstones: group.iter().map(|segment| segment.tombstones).sum(),
            bytes: group.iter().map(|segment| segment.bytes).sum(),
        })),
        // Joining is for speed only: a type that Arrow cannot join stays in pieces.
        Err(_) => joined.extend(group),
    }
}
