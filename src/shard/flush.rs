//! Turns frozen memtables into generations, strictly in order, and publishes each by one
//! commit of the shard's manifest.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::clock;
use crate::error::{Error, ErrorKind, Result};
use crate::generation::{Generation, GenerationInput, GenerationTarget, write_generation};
use crate::manifest::{GenerationEntry, ManifestStore};
use crate::memtable::Memtable;
use crate::shard::state::ShardState;

const RETRY_BASE_DELAY: Duration = Duration::from_millis(200);
/// After this many failures in a row a waiting `flush` is told; the retries go on.
const FAILURES_BEFORE_REPORT: u32 = 4;

/// Flushes until the writer closes or fails.
pub(crate) async fn run(state: Arc<ShardState>) {
    loop {
        let woken = state.wake_flush.notified();
        tokio::pin!(woken);
        woken.as_mut().enable();
        let oldest = state.tiers.load().frozen.first().cloned();
        let Some(memtable) = oldest else {
            if state.closing.load(Ordering::Acquire) || state.cursors.failure().is_some() {
                return;
            }
            woken.await;
            continue;
        };
        if flush_until_done(&state, &memtable).await.is_err() {
            return;
        }
    }
}

/// Flushes one memtable, trying again for as long as the writer lives.
async fn flush_until_done(state: &ShardState, memtable: &Arc<Memtable>) -> Result<()> {
    let end = memtable.global_end();
    // Never before the log has it all: the commit moves the replay position past its entries.
    state
        .cursors
        .wait_for(|| {
            (state.cursors.durable() >= end && memtable.indexed_batches() == memtable.batches())
                .then_some(())
        })
        .await?;
    let mut failures = 0;
    loop {
        state.cursors.check()?;
        match flush_once(state, memtable).await {
            Ok(generation) => {
                state
                    .tiers
                    .rcu(|tiers| tiers.published(Arc::clone(&generation)));
                state.log_book.forget(memtable.generation());
                state.flush_failure.lock().last = None;
                state.counters.note_flush(memtable.rows());
                if let Some(let_go) = state.on_publish.get() {
                    let_go();
                }
                state.cursors.ring();
                return Ok(());
            }
            Err(error) if error.kind() == ErrorKind::Fenced => {
                state.fail(error.clone());
                return Err(error);
            }
            Err(error) => {
                failures += 1;
                tracing::warn!(
                    shard = %state.target.layout().shard(),
                    generation = memtable.generation(),
                    wal_position = state.log_book.span(memtable.generation()).last,
                    failures,
                    %error,
                    "flush failed, trying again"
                );
                if failures >= FAILURES_BEFORE_REPORT {
                    state.report_flush_failure(memtable.generation(), error.clone());
                    state.cursors.ring();
                    if state.closing.load(Ordering::Acquire) {
                        return Err(error);
                    }
                }
                let pause = clock::sleep(clock::backoff(RETRY_BASE_DELAY, failures));
                tokio::select! {
                    () = pause => {}
                    () = state.wake_flush.notified() => {}
                }
            }
        }
    }
}

#[tracing::instrument(level = "debug", name = "flush", skip_all, fields(
    shard = %state.target.layout().shard(),
    generation = memtable.generation(),
))]
async fn flush_once(state: &ShardState, memtable: &Arc<Memtable>) -> Result<Arc<Generation>> {
    let covered = state.log_book.span(memtable.generation()).last;
    flush_memtable(
        &state.target,
        &state.manifests,
        state.writer_epoch,
        memtable,
        covered,
    )
    .await
}

/// Writes the generation of a sealed memtable and publishes it. `covered` is the position
/// of its last log entry.
pub(crate) async fn flush_memtable(
    target: &GenerationTarget,
    manifests: &ManifestStore,
    writer_epoch: u64,
    memtable: &Arc<Memtable>,
    covered: u64,
) -> Result<Arc<Generation>> {
    let number = memtable.generation();
    let view = memtable.view(memtable.batches());
    let input = GenerationInput {
        generation: number,
        batches: view
            .segments()
            .iter()
            .map(|segment| segment.batch.clone())
            .collect(),
        replaced: view.replaced(),
    };
    let bytes = memtable.bytes();
    let written = write_generation(target, input).await?;
    let publish = tracing::debug_span!("publish", shard = %target.layout().shard(), generation = number, wal_position = covered);
    let commit = manifests.commit(writer_epoch, |manifest| {
        // An earlier attempt may have been published though its answer was lost.
        if manifest.current_generation != number {
            return;
        }
        manifest.replay_after_wal_entry_position =
            manifest.replay_after_wal_entry_position.max(covered);
        manifest.wal_entry_position_last_seen = manifest.wal_entry_position_last_seen.max(covered);
        manifest.current_generation = number + 1;
        manifest.generations.push(GenerationEntry {
            generation: number,
            path: written.folder.clone(),
            in_memory_bytes: Some(bytes),
            physical_rows: Some(written.physical_rows),
            primary_key_bytes: written.primary_key_bytes,
        });
    });
    let manifest = tracing::Instrument::instrument(commit, publish).await?;
    let published = manifest
        .generations
        .iter()
        .find(|entry| entry.generation == number)
        .ok_or_else(|| {
            Error::corrupt(format!(
                "the manifest {} of the shard expects generation {}, and this writer has {number}; \
                 open the table again",
                manifest.version, manifest.current_generation
            ))
        })?;
    let generation = Generation::open(target, number, &published.path).await?;
    let generation = match target.codec() {
        Some(_) => generation.with_keys(Arc::new(view.sorted_keys()), view.tombstones()),
        None => generation,
    };
    Ok(Arc::new(generation))
}

/// The error of a flush that a caller waits for, if its retries have been failing.
pub(crate) fn reported_failure(state: &ShardState) -> Option<Error> {
    let failure = state.flush_failure.lock();
    failure.last.as_ref().map(|(generation, error)| {
        error
            .clone()
            .context(format!("flush of generation {generation} keeps failing"))
    })
}
