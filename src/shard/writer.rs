//! The writer of a shard: its only door for changes, and the owner of its tasks.

use std::sync::Arc;

use tokio::sync::Mutex;
use tokio::task::JoinSet;

use crate::clock;
use crate::error::{Error, Result};
use crate::generation::{Generation, GenerationTarget};
use crate::manifest::{ManifestStore, ShardManifest};
use crate::memtable::PreparedBatch;
use crate::options::TableOptions;
use crate::shard::drain::{drain, wait_for_predecessor};
use crate::shard::replay::replay;
use crate::shard::rotation::Fill;
use crate::shard::state::{Admission, ShardParts, ShardState, Ticket, memory_of};
use crate::shard::supervise::supervised;
use crate::shard::tiers::Tiers;
use crate::shard::{append_task, flush, index_task};
use crate::wal::{WalAppender, find_tip};

/// Generations that are opened side by side.
const CONCURRENT_OPENS: usize = 8;

/// One writer of one shard. Dropped without [`ShardWriter::close`] it loses nothing that
/// was durable: the log is replayed by the next.
#[derive(Debug)]
pub(crate) struct ShardWriter {
    state: Arc<ShardState>,
    /// `None` once all have ended. Held by a close, for which a second one waits.
    tasks: Mutex<Option<JoinSet<()>>>,
}

/// Rows of a put that are on their way to being readable.
#[must_use = "rows that nobody waits for may still be refused by the store"]
#[derive(Debug)]
pub(crate) struct PendingRows {
    state: Arc<ShardState>,
    ticket: Option<Ticket>,
}

impl PendingRows {
    /// Waits until the rows can be read and, in durable mode, are in the log.
    pub(crate) async fn wait(self) -> Result<()> {
        match &self.ticket {
            Some(ticket) => self.state.wait_visible(ticket).await,
            None => Ok(()),
        }
    }
}

impl ShardWriter {
    /// Claims the shard, fences the writer before, replays the log and starts the tasks.
    /// `compacted` is the newest generation whose rows are in the base table already.
    pub(crate) async fn open(
        target: GenerationTarget,
        options: TableOptions,
        shard_spec_id: u32,
        compacted: u64,
    ) -> Result<Self> {
        wait_for_predecessor(&target.uri("")).await;
        let manifests = ManifestStore::new(Arc::clone(target.store()), target.layout().clone());
        let manifest = manifests.claim(shard_spec_id).await?;
        let lower_bound = manifest
            .replay_after_wal_entry_position
            .max(manifest.wal_entry_position_last_seen);
        let tip = find_tip(target.store(), target.layout(), lower_bound).await?;
        let mut appender = WalAppender::new(
            Arc::clone(target.store()),
            target.layout().clone(),
            manifest.writer_epoch,
            tip,
            options.max_wal_persist_retries,
            options.wal_persist_retry_base_delay,
        );
        // The sentinel stands where a stalled predecessor would append next.
        let end = match manifest.writer_epoch {
            1 => tip,
            _ => appender.write_sentinel(|| manifests.epoch()).await?,
        };
        let generations = open_generations(&target, &manifest, compacted).await?;
        let replayed = replay(&target, &manifests, &options, &manifest, end).await?;
        let mut all = generations;
        all.extend(replayed.flushed);
        let tiers = Tiers {
            version: 0,
            active: replayed.active,
            frozen: Vec::new(),
            generations: all,
        };
        let state = Arc::new(ShardState::new(ShardParts {
            options,
            target,
            manifests,
            writer_epoch: manifest.writer_epoch,
            tiers,
            log_book: replayed.log_book,
        }));
        state.counters.start_after(appender.next_position() - 1);
        state.freeze_if_full();
        let mut tasks = JoinSet::new();
        let watch = || Arc::clone(&state);
        let append = append_task::run(watch(), appender);
        tasks.spawn(supervised(watch(), "append", append));
        tasks.spawn(supervised(watch(), "index", index_task::run(watch())));
        tasks.spawn(supervised(watch(), "flush", flush::run(watch())));
        Ok(Self {
            state,
            tasks: Mutex::new(Some(tasks)),
        })
    }

    pub(crate) fn state(&self) -> &Arc<ShardState> {
        &self.state
    }

    /// Takes rows, waiting only for memory. They become readable later, all at once.
    ///
    /// # Errors
    ///
    /// `Invalid` for a put that no memtable can hold, `Backpressure` when memory stayed
    /// full, and the reason of a writer that ended.
    #[tracing::instrument(level = "debug", name = "put", skip_all, fields(
        shard = %self.state.target.layout().shard(),
    ))]
    pub(crate) async fn put(&self, put: Vec<PreparedBatch>) -> Result<PendingRows> {
        self.state.cursors.check()?;
        if put.is_empty() {
            return Ok(PendingRows {
                state: Arc::clone(&self.state),
                ticket: None,
            });
        }
        self.refuse_oversized(&put)?;
        let mut admission = self.state.admit(put)?;
        let ticket = loop {
            match admission {
                Admission::Taken(ticket) => break ticket,
                Admission::Full(put) => {
                    self.wait_for_memory(&put).await?;
                    admission = self.state.admit(put)?;
                }
            }
        };
        Ok(PendingRows {
            state: Arc::clone(&self.state),
            ticket: Some(ticket),
        })
    }

    fn refuse_oversized(&self, put: &[PreparedBatch]) -> Result<()> {
        let more = Fill::of_put(put);
        let options = &self.state.options;
        if more.rows > options.max_memtable_rows
            || more.bytes > options.max_memtable_size
            || more.batches > options.max_memtable_batches
        {
            return Err(Error::unsupported(format!(
                "table '{}': one change of {} rows and {} bytes does not fit a memtable \
                 ({} rows, {} bytes); divide it, or raise 'max_memtable_rows' or \
                 'max_memtable_size'",
                self.state.schema().table(),
                more.rows,
                more.bytes,
                options.max_memtable_rows,
                options.max_memtable_size
            )));
        }
        Ok(())
    }

    async fn wait_for_memory(&self, put: &[PreparedBatch]) -> Result<()> {
        let more = memory_of(put);
        let state = &self.state;
        let limit = state.options.max_unflushed_size;
        state.counters.note_backpressure();
        tracing::warn!(
            shard = %state.target.layout().shard(),
            generation = state.tiers.load().active.generation(),
            wal_position = state.counters.last_position(),
            unflushed_bytes = state.unflushed_bytes(),
            limit,
            "backpressure: a put waits for memory"
        );
        let room = state.cursors.wait_for(|| {
            let fits = state.unflushed_bytes() + more <= limit || !state.holds_rows();
            fits.then_some(())
        });
        clock::within(
            state.options.backpressure_timeout,
            || {
                format!(
                    "table '{}': {} bytes are held until the object store takes them, and \
                     'max_unflushed_size' is {limit}; nothing was written, retry when the store \
                     has caught up",
                    state.schema().table(),
                    state.unflushed_bytes()
                )
            },
            room,
        )
        .await?
    }

    /// Seals the active memtable and waits until everything put so far lies in
    /// generations. Returns the newest of them, or `None` if nothing had to be flushed.
    pub(crate) async fn flush(&self) -> Result<Option<Arc<Generation>>> {
        let state = &self.state;
        let Some(last) = state.freeze()? else {
            return Ok(None);
        };
        // Failures from before this call say nothing about it; a retry that sleeps is woken.
        let failures_before = state.flush_failures();
        state.wake_flush.notify_one();
        state
            .cursors
            .wait_for(|| {
                let tiers = state.tiers.load();
                let flushed = tiers
                    .frozen
                    .iter()
                    .all(|memtable| memtable.generation() > last);
                if flushed {
                    let newest = tiers
                        .generations
                        .iter()
                        .rfind(|generation| generation.number() <= last);
                    return Some(Ok(newest.cloned()));
                }
                (state.flush_failures() > failures_before)
                    .then(|| flush::reported_failure(state))
                    .flatten()
                    .map(Err)
            })
            .await?
    }

    /// Ends the writer in order: what was taken is in the log, memtables that were sealed
    /// are flushed. A second call does nothing.
    ///
    /// # Errors
    ///
    /// The first failure of the writer, be it older than the call.
    pub(crate) async fn close(&self) -> Result<()> {
        let state = &self.state;
        state.refuse_puts();
        let mut held = self.tasks.lock().await;
        if let Some(tasks) = held.as_mut() {
            state.wake_append.notify_one();
            state.wake_index.notify_one();
            state.wake_flush.notify_one();
            // They stay in their place: a close that is dropped half-way can be repeated.
            // One that panicked has left its reason as the failure of the writer.
            while tasks.join_next().await.is_some() {}
        }
        *held = None;
        if let Some(error) = state.cursors.failure()
            && error.kind() != crate::error::ErrorKind::Closed
        {
            return Err(error.clone());
        }
        let unflushed = flush::reported_failure(state);
        state.cursors.fail(state.closed());
        unflushed.map_or(Ok(()), Err)
    }
}

impl Drop for ShardWriter {
    /// The tasks end with their set, after a last append where rows would be lost; whoever
    /// still waits for them is told.
    fn drop(&mut self) {
        let tasks = self.tasks.get_mut().take();
        if !tasks.is_some_and(|tasks| drain(&self.state, tasks)) {
            self.state.cursors.fail(self.state.closed());
        }
    }
}

async fn open_generations(
    target: &GenerationTarget,
    manifest: &ShardManifest,
    compacted: u64,
) -> Result<Vec<Arc<Generation>>> {
    use futures::{StreamExt, TryStreamExt, stream};
    let mut entries: Vec<_> = manifest
        .generations
        .iter()
        .filter(|entry| entry.generation > compacted)
        .cloned()
        .collect();
    entries.sort_by_key(|entry| entry.generation);
    stream::iter(entries)
        .map(|entry| async move {
            Generation::open(target, entry.generation, &entry.path)
                .await
                .map(Arc::new)
        })
        .buffered(CONCURRENT_OPENS)
        .try_collect()
        .await
}
