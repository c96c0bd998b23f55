//! Rules that rewrite plans: physical ones now, analyzer rules for DELETE and UPDATE
//! beside them later. One rule a file; `register` says in which order they run.

mod pin_snapshot;

pub(crate) use pin_snapshot::PinSnapshotRule;
