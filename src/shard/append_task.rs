//! The one consumer that writes the log: one entry at a time, of the oldest memtable that
//! still owes rows.
//!
//! Being single gives the order; the interval only bounds the bill. A wake-up names no
//! memtable: what to append is looked up when the append begins, since append order is
//! replay order and replay order decides which row of a key is the newest.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::clock::{self, Instant};
use crate::error::Result;
use crate::memtable::Memtable;
use crate::shard::state::ShardState;
use crate::wal::{EntryHeader, WalAppender, encode};

/// An entry takes as many whole puts as this, and one at least.
const MAX_ENTRY_BYTES: u64 = 64 << 20;

/// Appends until the writer closes or fails.
pub(crate) async fn run(state: Arc<ShardState>, mut appender: WalAppender) {
    let mut last_began: Option<Instant> = None;
    loop {
        wait_until_due(&state, last_began).await;
        if state.cursors.failure().is_some() {
            return;
        }
        // Read first: a put that was taken before the close began must be seen below.
        let closing = state.closing.load(Ordering::Acquire);
        state.freeze_if_full();
        let Some(memtable) = oldest_that_owes(&state) else {
            if closing {
                state.cursors.ring();
                return;
            }
            continue;
        };
        last_began = Some(clock::now());
        if let Err(error) = append(&state, &mut appender, &memtable).await {
            state.fail(error);
            return;
        }
    }
}

/// The oldest memtable with rows that are not in the log.
fn oldest_that_owes(state: &ShardState) -> Option<Arc<Memtable>> {
    let durable = state.cursors.durable();
    state
        .tiers
        .load()
        .memtables()
        .find(|memtable| memtable.local(durable) < memtable.batches())
        .cloned()
}

/// Returns when an append is due, when a memtable has come of age, or when the writer ends.
async fn wait_until_due(state: &ShardState, last_began: Option<Instant>) {
    loop {
        let woken = state.wake_append.notified();
        tokio::pin!(woken);
        woken.as_mut().enable();
        if state.cursors.failure().is_some() || state.closing.load(Ordering::Acquire) {
            return;
        }
        let deadline = match oldest_that_owes(state) {
            Some(memtable) => {
                let due = last_began.map(|began| began + state.options.flush_interval.duration());
                match due {
                    Some(due) if due > clock::now() && !is_urgent(state, &memtable) => Some(due),
                    _ => return,
                }
            }
            None => state
                .tiers
                .load()
                .active
                .oldest_row_at()
                .map(|born| born + state.options.max_memtable_age),
        };
        match deadline {
            Some(deadline) if deadline <= clock::now() => return,
            Some(deadline) => {
                tokio::select! {
                    () = &mut woken => {}
                    () = clock::sleep_until(deadline) => return,
                }
            }
            None => woken.await,
        }
    }
}

/// Whether the interval does not hold an append up: a sealed memtable waits for its flush,
/// or the buffer is full.
fn is_urgent(state: &ShardState, memtable: &Memtable) -> bool {
    let sealed = memtable.generation() < state.tiers.load().active.generation();
    sealed || state.unlogged_bytes() >= state.options.max_wal_buffer_size as u64
}

#[tracing::instrument(level = "debug", name = "wal_append", skip_all, fields(
    shard = %state.target.layout().shard(),
    generation = memtable.generation(),
    wal_position = appender.next_position(),
))]
async fn append(state: &ShardState, appender: &mut WalAppender, memtable: &Memtable) -> Result<()> {
    let durable = memtable.local(state.cursors.durable());
    let pending = memtable.batches_from(durable, MAX_ENTRY_BYTES);
    let header = EntryHeader {
        writer_epoch: state.writer_epoch,
        generation: Some(memtable.generation()),
    };
    // The entry is about as large as its rows, and counts towards the limit of memory from
    // before it is made until the store has it.
    state
        .entry_bytes
        .store(pending.bytes as usize, Ordering::Relaxed);
    let entry = encode(state.schema(), &header, &pending.batches)?;
    let bytes = entry.bytes.len();
    let appended = appender
        .append(entry.bytes, || state.manifests.epoch())
        .await;
    state.entry_bytes.store(0, Ordering::Relaxed);
    let position = appended?;
    // Noted before the cursor moves: who sees the rows durable finds their entry.
    state.log_book.note(
        memtable.generation(),
        position,
        entry.batches,
        pending.rows as usize,
    );
    state.counters.note_append(position, bytes);
    state
        .cursors
        .advance_durable(memtable.global_offset() + pending.end);
    Ok(())
}
