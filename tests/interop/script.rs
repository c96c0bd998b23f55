//! What is done to a table, by whichever writer, and what must be in it afterwards.

use std::collections::BTreeMap;

use Step::{Delete, Flush, Put, Singles};

/// One change. A row is (number of the key, version of the values); see [`super::kinds`].
#[derive(Debug, Clone, Copy)]
pub enum Step {
    /// One put of one batch.
    Put(&'static [(i64, i64)]),
    /// Puts of one row each, none waiting for the one before.
    Singles(&'static [(i64, i64)]),
    Delete(&'static [i64]),
    /// Everything so far goes into a generation.
    Flush,
}

/// All keys that the scripts touch, and one that they never do.
pub const KEYS: std::ops::Range<i64> = 0..14;

/// Rows that lie in the base table before any log is there.
pub const BASE: &[(i64, i64)] = &[(0, 0), (1, 0), (2, 0), (4, 0), (6, 0), (8, 0)];

/// The writer that begins: rewrites and deletes within a memtable, across a flush, of base
/// rows and of keys that are not there.
pub const FIRST: &[Step] = &[
    Put(&[(0, 1), (1, 1), (2, 1)]),
    Delete(&[2]),
    Put(&[(1, 2)]),
    Put(&[(3, 1), (4, 1), (3, 2)]),
    Flush,
    Put(&[(0, 2), (5, 1)]),
    Delete(&[1, 6, 11]),
    Singles(&[(6, 3), (7, 3), (10, 1), (7, 4), (8, 5)]),
    Delete(&[10]),
    Put(&[(2, 5)]),
];

/// The other writer goes on.
pub const SECOND: &[Step] = &[
    Put(&[(3, 6)]),
    Delete(&[0]),
    Flush,
    Put(&[(0, 7), (12, 1)]),
    Delete(&[5, 8]),
];

/// The first writer again.
pub const THIRD: &[Step] = &[
    Singles(&[(5, 8), (12, 2)]),
    Delete(&[3, 4]),
    Flush,
    Put(&[(1, 9)]),
];

/// The newest version of each key that is there.
pub type Model = BTreeMap<i64, i64>;

pub fn model(base: &[(i64, i64)], scripts: &[&[Step]]) -> Model {
    let mut model: Model = base.iter().copied().collect();
    for step in scripts.iter().copied().flatten() {
        match step {
            Put(rows) | Singles(rows) => model.extend(rows.iter().copied()),
            Delete(keys) => model.retain(|key, _| !keys.contains(key)),
            Flush => {}
        }
    }
    model
}
