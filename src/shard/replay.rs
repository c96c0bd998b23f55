//! Rebuilds the memtables of a shard from its log.
//!
//! A memtable ends where its entries end. Entries carry the generation they belong to, so
//! a larger generation seals the memtable before it; entries without one (a writer that
//! keeps no memtable) are divided by the same rule as the live path, and sealed before new rows
//! are put beside them. A generation that the
//! log names is never divided, even if the limits were lowered since: a reader skips every
//! entry below the manifest's generation, so the second half would be lost with the next
//! crash. Each sealed memtable is flushed before the next one grows, which bounds memory to
//! two memtables and moves the replay position, so that a second reopen reads the tail only.

use std::sync::Arc;

use futures::{StreamExt, pin_mut};

use crate::error::{Error, ErrorKind, Result};
use crate::generation::{Generation, GenerationTarget};
use crate::manifest::{ManifestStore, ShardManifest};
use crate::memtable::{Memtable, PreparedBatch};
use crate::options::TableOptions;
use crate::shard::flush::flush_memtable;
use crate::shard::log_book::LogBook;
use crate::shard::rotation::Fill;
use crate::wal::{WalEntry, read_entries};

/// What replay hands to the writer.
pub(crate) struct Replayed {
    /// The memtable that goes on taking writes; all it holds is durable and indexed.
    pub(crate) active: Arc<Memtable>,
    /// The generations that were flushed on the way, oldest first.
    pub(crate) flushed: Vec<Arc<Generation>>,
    /// The entries of the active memtable.
    pub(crate) log_book: LogBook,
}

/// One replay in progress.
struct Replay<'a> {
    target: &'a GenerationTarget,
    manifests: &'a ManifestStore,
    options: &'a TableOptions,
    writer_epoch: u64,
    active: Arc<Memtable>,
    /// The largest generation that an entry has named so far.
    stamp: Option<u64>,
    /// Whether the active memtable has rows of entries that do not carry its number.
    is_misnumbered: bool,
    flushed: Vec<Arc<Generation>>,
    log_book: LogBook,
}

/// Replays the entries after the manifest's replay position, up to `end` (exclusive).
///
/// # Errors
///
/// `Corrupt` names an entry that is missing or damaged; nothing is truncated. `Fenced`
/// when an entry was written under a later epoch than `manifest`'s.
#[tracing::instrument(level = "debug", name = "replay", skip_all, fields(
    shard = %target.layout().shard(),
    first = manifest.replay_after_wal_entry_position + 1,
    end,
))]
pub(crate) async fn replay(
    target: &GenerationTarget,
    manifests: &ManifestStore,
    options: &TableOptions,
    manifest: &ShardManifest,
    end: u64,
) -> Result<Replayed> {
    let mut replay = Replay {
        target,
        manifests,
        options,
        writer_epoch: manifest.writer_epoch,
        active: Arc::new(Memtable::new(
            Arc::clone(target.schema()),
            target.codec().cloned(),
            manifest.current_generation,
            0,
        )),
        stamp: None,
        is_misnumbered: false,
        flushed: Vec::new(),
        log_book: LogBook::default(),
    };
    let entries = read_entries(
        Arc::clone(target.store()),
        target.layout().clone(),
        Arc::clone(target.schema()),
        manifest.replay_after_wal_entry_position + 1,
        end,
    );
    pin_mut!(entries);
    while let Some(entry) = entries.next().await {
        let (position, entry) = entry?;
        if entry.header.writer_epoch > manifest.writer_epoch {
            return Err(Error::new(
                ErrorKind::Fenced,
                format!(
                    "log entry {position} was written under epoch {}, above this writer's {}",
                    entry.header.writer_epoch, manifest.writer_epoch
                ),
            ));
        }
        let already_flushed = entry
            .header
            .generation
            .is_some_and(|generation| generation < manifest.current_generation);
        if !entry.batches.is_empty() && !already_flushed {
            replay.take(position, entry).await?;
        }
    }
    replay.finish().await?;
    Ok(Replayed {
        active: replay.active,
        flushed: replay.flushed,
        log_book: replay.log_book,
    })
}

impl Replay<'_> {
    async fn take(&mut self, position: u64, entry: WalEntry) -> Result<()> {
        let put = entry
            .batches
            .iter()
            .map(|rows| PreparedBatch::replayed(self.target.schema(), self.target.codec(), rows))
            .collect::<Result<Vec<_>>>()?;
        let more = Fill::of_put(&put);
        self.rotate_before(position, entry.header.generation, &more)
            .await?;
        self.active.append(put)?;
        self.active.apply_index()?;
        self.log_book
            .note(self.active.generation(), position, more.batches, more.rows);
        Ok(())
    }

    async fn rotate_before(
        &mut self,
        position: u64,
        stamp: Option<u64>,
        more: &Fill,
    ) -> Result<()> {
        let number = self.active.generation();
        let rotate = match (self.stamp, stamp) {
            (Some(before), Some(now)) if now < before => {
                return Err(Error::corrupt(format!(
                    "log entry {position} belongs to generation {now}, after entries of \
                     generation {before}; the log is out of order, restore it from a backup"
                )));
            }
            (Some(before), Some(now)) => now > before,
            // A number may be sealed only when no later entry carries it: such an entry
            // would be skipped by the next replay.
            (None, Some(now)) => now > number,
            (None, None) => {
                Fill::of(&self.active, &self.log_book).would_overflow(more, self.options)
            }
            (Some(_), None) => false,
        };
        self.stamp = stamp.or(self.stamp);
        if rotate && self.active.rows() > 0 {
            self.seal().await?;
        }
        self.is_misnumbered |= stamp != Some(self.active.generation());
        Ok(())
    }

    /// Seals a memtable whose entries do not all carry its number, before new rows join it
    /// under that number.
    async fn finish(&mut self) -> Result<()> {
        if self.is_misnumbered && self.active.rows() > 0 {
            self.seal().await?;
        }
        Ok(())
    }

    /// Flushes the active memtable and begins the next.
    async fn seal(&mut self) -> Result<()> {
        let number = self.active.generation();
        let covered = self.log_book.span(number).last;
        let generation = flush_memtable(
            self.target,
            self.manifests,
            self.writer_epoch,
            &self.active,
            covered,
        )
        .await?;
        self.log_book.forget(number);
        self.is_misnumbered = false;
        self.flushed.push(generation);
        self.active = Arc::new(Memtable::new(
            Arc::clone(self.target.schema()),
            self.target.codec().cloned(),
            number + 1,
            self.active.global_end(),
        ));
        Ok(())
    }
}
