//! Reads, claims and changes the manifests of one shard.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use lance_io::object_store::ObjectStore;
use object_store::ObjectStoreExt;
use object_store::path::Path;
use parking_lot::Mutex;
use tracing::{debug, error, info, warn};
use uuid::Uuid;

use super::model::{ShardManifest, ShardStatus};
use crate::clock::{self, Instant};
use crate::error::{Error, ErrorKind, Result};
use crate::layout::ShardLayout;
use crate::objects::{get, last_number};

const MAX_CLAIM_TRIES: u32 = 16;
const MAX_COMMIT_TRIES: u32 = 10;
const RETRY_BASE_DELAY: Duration = Duration::from_millis(50);
const MAX_HINT_WAIT: Duration = Duration::from_secs(5);
/// Versions tried one by one above a hint before the folder is listed.
const MAX_PROBES: u32 = 16;
/// Lance may prune versions that are a day old. Building on a version that is remembered
/// for less than that finds its successor, if there is one, and so cannot fork history.
const MAX_CACHE_AGE: Duration = Duration::from_secs(60 * 60);

/// The manifests of one shard.
#[derive(Debug)]
pub(crate) struct ManifestStore {
    store: Arc<ObjectStore>,
    layout: ShardLayout,
    /// The newest manifest seen, and when it was asked for.
    cached: Mutex<Option<(ShardManifest, Instant)>>,
    /// One commit at a time: concurrent ones would only lose to each other.
    commit_turn: tokio::sync::Mutex<()>,
}

/// What became of one attempt to create a version.
enum Attempt {
    Stored,
    Taken,
    /// Not known, or refused although nothing is there.
    Unclear(Error),
}

impl ManifestStore {
    pub(crate) fn new(store: Arc<ObjectStore>, layout: ShardLayout) -> Self {
        Self {
            store,
            layout,
            cached: Mutex::new(None),
            commit_turn: tokio::sync::Mutex::new(()),
        }
    }

    /// The latest manifest as it is stored now; `None` for a shard that was never claimed.
    pub(crate) async fn latest(&self) -> Result<Option<ShardManifest>> {
        Ok(self.refresh().await?.map(|(manifest, _)| manifest))
    }

    /// The epoch of the latest manifest as it is stored now.
    pub(crate) async fn epoch(&self) -> Result<u64> {
        let manifest = self.latest().await?.ok_or_else(|| self.vanished())?;
        Ok(manifest.writer_epoch)
    }

    /// Makes the caller the shard's writer: the epoch of the returned manifest is its own.
    ///
    /// Of writers that claim at once, one wins and the others get `Fenced`: none of them
    /// raises the epoch a second time, or they would fence each other for ever.
    pub(crate) async fn claim(&self, shard_spec_id: u32) -> Result<ShardManifest> {
        let _turn = self.commit_turn.lock().await;
        let (shard, nonce) = (self.layout.shard(), clock::random_uuid());
        let mut failure = None;
        let mut tried: Option<ShardManifest> = None;
        for attempt in 0..MAX_CLAIM_TRIES {
            if attempt > 0 {
                self.pause("claim", attempt, failure.as_ref()).await;
            }
            let asked = clock::now();
            let latest = match self.refresh().await {
                Err(error) if error.kind() == ErrorKind::Unavailable => {
                    failure = Some(error);
                    continue;
                }
                other => other?,
            };
            // What came first is a commit of the old writer, or another claim, or ours.
            if let (Some(tried), Some((stored, bytes))) = (&tried, &latest)
                && stored.writer_epoch >= tried.writer_epoch
            {
                if **bytes != *tried.encode(nonce) {
                    return Err(self.fenced(tried.writer_epoch, stored.writer_epoch));
                }
                return Ok(self.published(tried.clone(), asked).await);
            }
            let base = match latest {
                Some((manifest, _)) => manifest,
                None => ShardManifest::unclaimed(shard, shard_spec_id),
            };
            if base.status == ShardStatus::Sealed {
                return Err(Error::invalid(format!(
                    "the shard {} is sealed, since its table is being dropped; finish or undo the \
                     drop before you open the table for writing",
                    self.layout.root()
                )));
            }
            let mut target = self.next_version(&base)?;
            target.writer_epoch = base
                .writer_epoch
                .checked_add(1)
                .ok_or_else(|| self.exhausted())?;
            failure = match self.attempt(&target, nonce).await? {
                Attempt::Stored => {
                    info!(%shard, version = target.version, writer_epoch = target.writer_epoch, "claimed");
                    return Ok(self.published(target, asked).await);
                }
                Attempt::Taken => None,
                Attempt::Unclear(error) => Some(error),
            };
            tried = Some(target);
        }
        Err(self.gave_up("claimed", MAX_CLAIM_TRIES, failure))
    }

    /// Stores `change` applied to the latest manifest, as the writer of `writer_epoch`.
    ///
    /// `change` may run several times, each time on what is then stored, and makes the same
    /// of the same. Version, shard and epoch are not its to set. Whether a commit that
    /// failed with `Unavailable`, or was dropped, has taken effect is not known: look at
    /// the latest manifest before it is repeated.
    pub(crate) async fn commit(
        &self,
        writer_epoch: u64,
        change: impl Fn(&mut ShardManifest) + Send,
    ) -> Result<ShardManifest> {
        let _turn = self.commit_turn.lock().await;
        let nonce = clock::random_uuid();
        let mut base = self.remembered();
        let mut failure = None;
        let mut tried: Option<ShardManifest> = None;
        for attempt in 0..MAX_COMMIT_TRIES {
            if attempt > 0 {
                self.pause("commit", attempt, failure.as_ref()).await;
            }
            let asked = clock::now();
            let current = match base.take() {
                Some(cached) => cached,
                None => match self.refresh().await {
                    Err(error) if error.kind() == ErrorKind::Unavailable => {
                        failure = Some(error);
                        continue;
                    }
                    other => {
                        let (stored, bytes) = other?.ok_or_else(|| self.vanished())?;
                        if let Some(tried) = &tried
                            && *bytes == *ShardManifest::encode(tried, nonce)
                        {
                            return Ok(self.published(stored, asked).await);
                        }
                        stored
                    }
                },
            };
            if current.writer_epoch > writer_epoch {
                return Err(self.fenced(writer_epoch, current.writer_epoch));
            }
            if current.writer_epoch < writer_epoch {
                return Err(Error::internal(format!(
                    "the epoch {writer_epoch} never claimed the shard {}, which is at epoch {}",
                    self.layout.root(),
                    current.writer_epoch
                )));
            }
            let mut target = self.next_version(&current)?;
            change(&mut target);
            target.version = current.version + 1;
            target.shard_id = current.shard_id;
            target.writer_epoch = writer_epoch;
            target.check().map_err(|defect| {
                Error::internal(format!(
                    "the next manifest of the shard {} would be wrong: {defect}",
                    self.layout.root()
                ))
            })?;
            failure = match self.attempt(&target, nonce).await? {
                Attempt::Stored => return Ok(self.published(target, asked).await),
                Attempt::Taken => None,
                Attempt::Unclear(error) => Some(error),
            };
            tried = Some(target);
        }
        Err(self.gave_up("changed", MAX_COMMIT_TRIES, failure))
    }

    /// The latest manifest and its bytes, from the store.
    async fn refresh(&self) -> Result<Option<(ShardManifest, Bytes)>> {
        let asked = clock::now();
        let hinted = match self.hint().await {
            Some(version) => self.read(version).await?,
            None => None,
        };
        let mut newest = match hinted {
            Some(found) => found,
            None => match self.read_last_listed().await? {
                Some(found) => found,
                None => return Ok(None),
            },
        };
        let mut probes = 0;
        while let Some(next) = newest.0.version.checked_add(1)
            && let Some(found) = self.read(next).await?
        {
            newest = found;
            probes += 1;
            if probes % MAX_PROBES == 0
                && let Some(listed) = self.read_last_listed().await?
                && listed.0.version > newest.0.version
            {
                newest = listed;
            }
        }
        self.remember(&newest.0, asked);
        Ok(Some(newest))
    }

    async fn read(&self, version: u64) -> Result<Option<(ShardManifest, Bytes)>> {
        let path = self.layout.manifest(version);
        let Some(bytes) = get(&self.store, &path)
            .await
            .map_err(|error| unavailable(&path, error))?
        else {
            return Ok(None);
        };
        let manifest = ShardManifest::decode(&path, self.layout.shard(), version, &bytes)?;
        Ok(Some((manifest, bytes)))
    }

    async fn read_last_listed(&self) -> Result<Option<(ShardManifest, Bytes)>> {
        let dir = self.layout.manifest_dir();
        let last = last_number(&self.store, &dir, ShardLayout::manifest_version)
            .await
            .map_err(|error| unavailable(&dir, error))?;
        let Some(version) = last else {
            return Ok(None);
        };
        let found = self.read(version).await?.ok_or_else(|| {
            Error::new(
                ErrorKind::Unavailable,
                format!(
                    "the shard manifest {} is listed and cannot be found; try again",
                    self.layout.manifest(version)
                ),
            )
        })?;
        Ok(Some(found))
    }

    async fn attempt(&self, target: &ShardManifest, nonce: Uuid) -> Result<Attempt> {
        let path = self.layout.manifest(target.version);
        let bytes = Bytes::from(target.encode(nonce));
        let failure = match self.store.put_if_absent(&path, bytes.clone().into()).await {
            Ok(()) => return Ok(Attempt::Stored),
            Err(refusal @ object_store::Error::NotSupported { .. }) => {
                return Err(Error::unsupported(format!(
                    "the object store cannot create {path} only if it is absent, on which a single \
                     writer per shard rests: {refusal}; keep the table in another store"
                ))
                .with_source(refusal));
            }
            Err(failure) => failure,
        };
        Ok(match get(&self.store, &path).await {
            Ok(Some(stored)) if stored == bytes => Attempt::Stored,
            Ok(Some(_)) => Attempt::Taken,
            Ok(None) | Err(_) => Attempt::Unclear(
                Error::from(failure).context(format!("storing the shard manifest {path}")),
            ),
        })
    }

    async fn hint(&self) -> Option<u64> {
        let path = self.layout.version_hint();
        let bytes = get(&self.store, &path).await.ok()??;
        let hint: serde_json::Value = serde_json::from_slice(&bytes).ok()?;
        hint.get("version")?.as_u64().filter(|&version| version > 0)
    }

    /// After a version is stored. The hint is a courtesy: it may fail or be late.
    async fn published(&self, manifest: ShardManifest, asked: Instant) -> ShardManifest {
        self.remember(&manifest, asked);
        let path = self.layout.version_hint();
        let hint = format!("{{\"version\":{}}}", manifest.version);
        let put = self.store.inner.put(&path, hint.into());
        match clock::within(MAX_HINT_WAIT, || "it took too long".to_string(), put).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => debug!(%path, %error, "version hint not written"),
            Err(error) => debug!(%path, %error, "version hint not written"),
        }
        manifest
    }

    fn remembered(&self) -> Option<ShardManifest> {
        let now = clock::now();
        let cached = self.cached.lock();
        let (manifest, asked) = cached.as_ref()?;
        (now.duration_since(*asked) < MAX_CACHE_AGE).then(|| manifest.clone())
    }

    fn remember(&self, manifest: &ShardManifest, asked: Instant) {
        let mut cached = self.cached.lock();
        let newest = cached.as_ref().map_or(0, |(newest, _)| newest.version);
        if manifest.version >= newest {
            *cached = Some((manifest.clone(), asked));
        }
    }

    fn next_version(&self, base: &ShardManifest) -> Result<ShardManifest> {
        let mut next = base.clone();
        next.version = base
            .version
            .checked_add(1)
            .ok_or_else(|| self.exhausted())?;
        Ok(next)
    }

    async fn pause(&self, what: &str, attempt: u32, failure: Option<&Error>) {
        warn!(
            shard = %self.layout.shard(),
            attempt,
            error = failure.map(tracing::field::display),
            "manifest {what} is tried again"
        );
        // After a lost race the next version is free at once.
        if failure.is_some() {
            clock::sleep(clock::backoff(RETRY_BASE_DELAY, attempt.saturating_sub(1))).await;
        }
    }

    fn fenced(&self, ours: u64, stored: u64) -> Error {
        error!(shard = %self.layout.shard(), writer_epoch = ours, stored_epoch = stored, "fenced by another writer");
        Error::new(
            ErrorKind::Fenced,
            format!(
                "another writer (epoch {stored}) has taken the shard {} before this one (epoch \
                 {ours}); open the table again only if this process is to be its writer",
                self.layout.root()
            ),
        )
    }

    fn gave_up(&self, done: &str, tries: u32, failure: Option<Error>) -> Error {
        let what = format!(
            "the manifest of the shard {} was not {done} in {tries} tries",
            self.layout.root()
        );
        match failure {
            Some(failure) => Error::new(
                ErrorKind::Unavailable,
                format!("{what}: {failure}; try again when the object store answers"),
            )
            .with_source(failure),
            None => Error::new(
                ErrorKind::Conflict,
                format!("{what}, since others changed it each time; try again"),
            ),
        }
    }

    fn vanished(&self) -> Error {
        Error::corrupt(format!(
            "the shard {} has no manifest; restore {}",
            self.layout.root(),
            self.layout.manifest_dir()
        ))
    }

    fn exhausted(&self) -> Error {
        Error::corrupt(format!(
            "the manifest of the shard {} has no number left for the next version or epoch",
            self.layout.root()
        ))
    }
}

fn unavailable(path: &Path, error: object_store::Error) -> Error {
    Error::from(error).context(format!("reading the shard manifest {path}"))
}
