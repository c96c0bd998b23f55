//! The one consumer that feeds puts to the indexes, oldest memtable first. It never waits
//! for the object store.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::shard::state::ShardState;

/// Applies until the writer closes or fails.
pub(crate) async fn run(state: Arc<ShardState>) {
    loop {
        let woken = state.wake_index.notified();
        tokio::pin!(woken);
        woken.as_mut().enable();
        // Read first: a put that was taken before the close began must be seen below.
        let closing = state.closing.load(Ordering::Acquire);
        apply_all(&state);
        if closing || state.cursors.failure().is_some() {
            return;
        }
        woken.await;
    }
}

/// Brings the indexes of every memtable up to its rows, oldest first.
fn apply_all(state: &ShardState) {
    for memtable in state.tiers.load().memtables() {
        if memtable.indexed_batches() < memtable.batches() {
            state.index(memtable);
        }
    }
}
