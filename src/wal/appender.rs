//! Appends entries to the log of one shard, or learns that another writer has it.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use lance_io::object_store::ObjectStore;
use object_store::path::Path;
use tracing::{error, warn};

use super::entry::{encode_sentinel, peek_epoch};
use crate::clock;
use crate::error::{Error, ErrorKind, Result};
use crate::layout::ShardLayout;
use crate::objects::get;

/// How far a fence climbs over entries that a predecessor still appends.
const MAX_FENCE_CLIMB: u32 = 1_024;

/// The one writer's end of a log. It takes one append at a time, and a dropped append
/// leaves it at the same position.
#[derive(Debug)]
pub(crate) struct WalAppender {
    store: Arc<ObjectStore>,
    layout: ShardLayout,
    writer_epoch: u64,
    next_position: u64,
    retries: u32,
    base_delay: Duration,
}

/// What became of one attempt to take a position.
enum Attempt {
    Stored,
    /// Other bytes are there.
    Taken(Bytes),
    /// Nothing is known, or nothing is there: the same position is tried again.
    Unclear(object_store::Error),
}

impl WalAppender {
    /// An appender whose next entry goes to `next_position`. A failed append is repeated
    /// `retries` times.
    pub(crate) fn new(
        store: Arc<ObjectStore>,
        layout: ShardLayout,
        writer_epoch: u64,
        next_position: u64,
        retries: u32,
        base_delay: Duration,
    ) -> Self {
        Self {
            store,
            layout,
            writer_epoch,
            next_position,
            retries,
            base_delay,
        }
    }

    /// Where the next entry goes.
    pub(crate) fn next_position(&self) -> u64 {
        self.next_position
    }

    /// Stores `bytes` at the next position, which it returns. `stored_epoch` reads the
    /// epoch of the shard's latest manifest.
    ///
    /// After an error nobody knows whether the entry is stored: `Fenced` says that another
    /// writer has the shard, `Poisoned` that this writer must end.
    pub(crate) async fn append<F, Fut>(&mut self, bytes: Bytes, stored_epoch: F) -> Result<u64>
    where
        F: Fn() -> Fut + Send + Sync,
        Fut: Future<Output = Result<u64>> + Send,
    {
        let position = self.next_position;
        let path = self.layout.wal_entry(position);
        let mut attempt = 0;
        loop {
            let failure = match self.attempt(&path, &bytes).await {
                Attempt::Stored => return self.advance(),
                Attempt::Taken(occupant) => {
                    return Err(self.lost(&path, &occupant, &stored_epoch).await);
                }
                Attempt::Unclear(failure) => failure,
            };
            self.check_epoch(&path, &stored_epoch).await?;
            self.pause(&path, attempt, failure).await?;
            attempt += 1;
        }
    }

    /// Takes the first free position from the next one on with an entry that only fences,
    /// and returns that position. What lies below it is the predecessor's and must be
    /// replayed.
    pub(crate) async fn write_sentinel<F, Fut>(&mut self, stored_epoch: F) -> Result<u64>
    where
        F: Fn() -> Fut + Send + Sync,
        Fut: Future<Output = Result<u64>> + Send,
    {
        let bytes = encode_sentinel(self.writer_epoch)?;
        let (mut attempt, mut climbed) = (0, 0);
        let position = loop {
            let path = self.layout.wal_entry(self.next_position);
            match self.attempt(&path, &bytes).await {
                Attempt::Stored => break self.advance()?,
                Attempt::Taken(occupant) => {
                    let epoch = peek_epoch(&path, &occupant)?;
                    if epoch > self.writer_epoch {
                        return Err(self.fenced(&path, epoch));
                    }
                    if climbed == MAX_FENCE_CLIMB {
                        return Err(Error::new(
                            ErrorKind::Conflict,
                            format!(
                                "the log does not come to rest below {path}: another writer \
                                 appends faster than it can be fenced; stop it and open again"
                            ),
                        ));
                    }
                    climbed += 1;
                    attempt = 0;
                    self.advance()?;
                }
                Attempt::Unclear(failure) => {
                    self.check_epoch(&path, &stored_epoch).await?;
                    self.pause(&path, attempt, failure).await?;
                    attempt += 1;
                }
            }
        };
        // A still newer writer may have fenced below this position in the meantime.
        let epoch = stored_epoch().await?;
        match epoch > self.writer_epoch {
            true => Err(self.fenced(&self.layout.wal_entry(position), epoch)),
            false => Ok(position),
        }
    }

    async fn attempt(&self, path: &Path, bytes: &Bytes) -> Attempt {
        use object_store::Error::{AlreadyExists, Precondition};
        match self.store.put_if_absent(path, bytes.clone().into()).await {
            Ok(()) => Attempt::Stored,
            Err(refusal @ (AlreadyExists { .. } | Precondition { .. })) => {
                match get(&self.store, path).await {
                    // An earlier attempt of ours whose answer was lost.
                    Ok(Some(occupant)) if occupant == *bytes => Attempt::Stored,
                    Ok(Some(occupant)) => Attempt::Taken(occupant),
                    // S3 also says so while another put of the same key is under way.
                    Ok(None) => Attempt::Unclear(refusal),
                    Err(failure) => Attempt::Unclear(failure),
                }
            }
            Err(failure) => Attempt::Unclear(failure),
        }
    }

    fn advance(&mut self) -> Result<u64> {
        let position = self.next_position;
        self.next_position = position
            .checked_add(1)
            .ok_or_else(|| Error::corrupt(format!("the log of {} is full", self.layout.root())))?;
        Ok(position)
    }

    /// Fenced if the manifest says so. A manifest that cannot be read says nothing.
    async fn check_epoch<F, Fut>(&self, path: &Path, stored_epoch: &F) -> Result<()>
    where
        F: Fn() -> Fut + Send + Sync,
        Fut: Future<Output = Result<u64>> + Send,
    {
        match stored_epoch().await {
            Ok(epoch) if epoch > self.writer_epoch => Err(self.fenced(path, epoch)),
            _ => Ok(()),
        }
    }

    async fn lost<F, Fut>(&self, path: &Path, occupant: &[u8], stored_epoch: &F) -> Error
    where
        F: Fn() -> Fut + Send + Sync,
        Fut: Future<Output = Result<u64>> + Send,
    {
        let found = peek_epoch(path, occupant);
        if let Ok(epoch) = found
            && epoch > self.writer_epoch
        {
            return self.fenced(path, epoch);
        }
        if let Err(fenced) = self.check_epoch(path, stored_epoch).await {
            return fenced;
        }
        let error = Error::new(
            ErrorKind::Poisoned,
            format!(
                "the WAL entry {path} exists and is not what this writer (epoch {}) stored there; \
                 drop the table handle and open the table again, which replays the log",
                self.writer_epoch
            ),
        );
        error!(
            shard = %self.layout.shard(),
            wal_position = self.next_position,
            writer_epoch = self.writer_epoch,
            "WAL position holds foreign bytes"
        );
        match found {
            Ok(_) => error,
            Err(unreadable) => error.with_source(unreadable),
        }
    }

    fn fenced(&self, path: &Path, epoch: u64) -> Error {
        error!(
            shard = %self.layout.shard(),
            wal_position = self.next_position,
            writer_epoch = self.writer_epoch,
            stored_epoch = epoch,
            "fenced by another writer"
        );
        Error::new(
            ErrorKind::Fenced,
            format!(
                "another writer (epoch {epoch}) has taken the shard {} from this one (epoch {}), \
                 seen at {path}; open the table again only if this process is to be its writer",
                self.layout.shard(),
                self.writer_epoch
            ),
        )
    }

    /// Waits before the next attempt, or fails for good when there is none left.
    async fn pause(&self, path: &Path, attempt: u32, failure: object_store::Error) -> Result<()> {
        if attempt >= self.retries {
            error!(
                shard = %self.layout.shard(),
                wal_position = self.next_position,
                writer_epoch = self.writer_epoch,
                error = %failure,
                "WAL append failed for good"
            );
            let tries = attempt.saturating_add(1);
            return Err(Error::new(
                ErrorKind::Poisoned,
                format!(
                    "the WAL entry {path} could not be stored in {tries} tries, and whether it is \
                     there is not known: {failure}; drop the table handle and open the table again"
                ),
            )
            .with_source(failure));
        }
        let delay = clock::backoff(self.base_delay, attempt);
        warn!(
            shard = %self.layout.shard(),
            wal_position = self.next_position,
            writer_epoch = self.writer_epoch,
            attempt,
            delay_ms = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX),
            error = %failure,
            "WAL append is tried again"
        );
        clock::sleep(delay).await;
        Ok(())
    }
}
