//! The rows of a key map in key order, made by the readers that need them.
//!
//! A put never pays for it: a range read that finds the run too far behind sorts
//! the rows that came since, merges them in and publishes the result; the few rows
//! behind it are looked at one by one.

use std::cmp::Ordering;
use std::ops::Bound;
use std::sync::Arc;

use arc_swap::ArcSwap;
use parking_lot::Mutex;

/// A tail up to this length, or this part of the run, is cheaper to look through.
const MIN_TAIL_ROWS: u32 = 1_024;
const TAIL_PART: u32 = 16;

/// All rows below [`Self::len`], sorted by key and then by row.
#[derive(Debug, Default)]
pub(super) struct Run {
    pub(super) rows: Vec<u32>,
}

impl Run {
    /// The rows that the run covers.
    pub(super) fn len(&self) -> u32 {
        self.rows.len() as u32
    }
}

/// The latest published run.
#[derive(Debug, Default)]
pub(super) struct RunCell {
    latest: ArcSwap<Run>,
    merging: Mutex<()>,
}

impl RunCell {
    /// A run that covers all but a short tail of `len` rows. While another reader is
    /// merging, the run as it is: nobody waits for a merge.
    pub(super) fn up_to_date(&self, len: u32, compare: impl Fn(u32, u32) -> Ordering) -> Arc<Run> {
        let run = self.latest.load_full();
        if is_fresh(&run, len) {
            return run;
        }
        let Some(_merging) = self.merging.try_lock() else {
            return run;
        };
        let run = self.latest.load_full();
        if is_fresh(&run, len) {
            return run;
        }
        let mut tail: Vec<u32> = (run.len()..len).collect();
        tail.sort_unstable_by(|&a, &b| compare(a, b));
        let mut rows = Vec::with_capacity(len as usize);
        let mut old = run.rows.iter().copied().peekable();
        for row in tail {
            while let Some(before) = old.next_if(|&old| compare(old, row) == Ordering::Less) {
                rows.push(before);
            }
            rows.push(row);
        }
        rows.extend(old);
        let merged = Arc::new(Run { rows });
        self.latest.store(Arc::clone(&merged));
        merged
    }

    pub(super) fn bytes(&self) -> usize {
        self.latest.load().rows.capacity() * size_of::<u32>()
    }
}

fn is_fresh(run: &Run, len: u32) -> bool {
    len.saturating_sub(run.len()) <= MIN_TAIL_ROWS.max(run.len() / TAIL_PART)
}

/// Whether a key that compares so to a lower bound is within it.
pub(super) fn starts_at(to_lower: Bound<Ordering>) -> bool {
    match to_lower {
        Bound::Included(order) => order != Ordering::Less,
        Bound::Excluded(order) => order == Ordering::Greater,
        Bound::Unbounded => true,
    }
}

/// Whether a key that compares so to an upper bound is beyond it.
pub(super) fn stops_at(to_upper: Bound<Ordering>) -> bool {
    match to_upper {
        Bound::Included(order) => order == Ordering::Greater,
        Bound::Excluded(order) => order != Ordering::Less,
        Bound::Unbounded => false,
    }
}
