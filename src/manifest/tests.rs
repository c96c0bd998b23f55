//! Claims, commits and lost answers, and Lance's own store as the referee.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use async_trait::async_trait;
use futures::stream::BoxStream;
use lance::dataset::mem_wal::ShardManifestStore;
use lance_io::object_store::ObjectStore;
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore as Store, ObjectStoreExt, PutMode, PutMultipartOptions, PutOptions, PutPayload,
    PutResult, Result as StoreResult,
};
use uuid::Uuid;

use super::model::ShardStatus;
use super::*;
use crate::clock;
use crate::error::ErrorKind;
use crate::layout::ShardLayout;

fn layout() -> ShardLayout {
    ShardLayout::new(Path::from("t"), Uuid::from_u128(7))
}

fn manifests(store: &Arc<ObjectStore>) -> ManifestStore {
    ManifestStore::new(Arc::clone(store), layout())
}

fn flushed(manifest: &mut ShardManifest) {
    let generation = manifest.current_generation;
    manifest.generations.push(GenerationEntry {
        generation,
        path: format!("0123abcd_gen_{generation}"),
        in_memory_bytes: Some(10),
        physical_rows: Some(0),
        primary_key_bytes: None,
    });
    manifest.current_generation += 1;
    manifest.replay_after_wal_entry_position += 3;
}

/// Loses the answers of the next `lost` conditional puts, after they took effect, and
/// denies the next `denied` ones, before.
#[derive(Debug)]
struct Flaky {
    inner: Arc<dyn Store>,
    lost: AtomicU32,
    denied: AtomicU32,
    /// How many reads fail after the next lost answer.
    blind: AtomicU32,
    unreadable: AtomicU32,
}

fn take(counter: &AtomicU32) -> bool {
    counter
        .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| {
            left.checked_sub(1)
        })
        .is_ok()
}

fn outage() -> object_store::Error {
    object_store::Error::Generic {
        store: "flaky",
        source: "no answer".into(),
    }
}

impl fmt::Display for Flaky {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("flaky")
    }
}

#[async_trait]
impl Store for Flaky {
    async fn put_opts(
        &self,
        to: &Path,
        put: PutPayload,
        how: PutOptions,
    ) -> StoreResult<PutResult> {
        let conditional = how.mode == PutMode::Create;
        if conditional && take(&self.denied) {
            return Err(outage());
        }
        let result = self.inner.put_opts(to, put, how).await;
        match conditional && take(&self.lost) {
            true => {
                let blind = self.blind.swap(0, Ordering::SeqCst);
                self.unreadable.store(blind, Ordering::SeqCst);
                Err(outage())
            }
            false => result,
        }
    }
    async fn put_multipart_opts(
        &self,
        to: &Path,
        how: PutMultipartOptions,
    ) -> StoreResult<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(to, how).await
    }
    async fn get_opts(&self, from: &Path, how: GetOptions) -> StoreResult<GetResult> {
        match from.filename() != Some("version_hint.json") && take(&self.unreadable) {
            true => Err(outage()),
            false => self.inner.get_opts(from, how).await,
        }
    }
    fn delete_stream(
        &self,
        paths: BoxStream<'static, StoreResult<Path>>,
    ) -> BoxStream<'static, StoreResult<Path>> {
        self.inner.delete_stream(paths)
    }
    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, StoreResult<ObjectMeta>> {
        self.inner.list(prefix)
    }
    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> StoreResult<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }
    async fn copy_opts(&self, from: &Path, to: &Path, how: CopyOptions) -> StoreResult<()> {
        self.inner.copy_opts(from, to, how).await
    }
}

fn flaky() -> (Arc<ObjectStore>, Arc<Flaky>) {
    let mut store = ObjectStore::memory();
    let flaky = Arc::new(Flaky {
        inner: Arc::clone(&store.inner),
        lost: AtomicU32::new(0),
        denied: AtomicU32::new(0),
        blind: AtomicU32::new(0),
        unreadable: AtomicU32::new(0),
    });
    store.inner = Arc::clone(&flaky) as Arc<dyn Store>;
    (Arc::new(store), flaky)
}

#[tokio::test]
async fn a_claim_fences_the_writer_before_it() {
    let store = Arc::new(ObjectStore::memory());
    let (first, second) = (manifests(&store), manifests(&store));
    assert_eq!(first.latest().await.unwrap(), None);
    let claimed = first.claim(3).await.unwrap();
    let numbers = (
        claimed.version,
        claimed.writer_epoch,
        claimed.current_generation,
    );
    assert_eq!(numbers, (1, 1, 1));
    let committed = first.commit(1, flushed).await.unwrap();
    assert_eq!((committed.version, committed.current_generation), (2, 2));

    let taken = second.claim(3).await.unwrap();
    assert_eq!((taken.version, taken.writer_epoch), (3, 2));
    assert_eq!(taken.generations, committed.generations);
    assert_eq!(first.epoch().await.unwrap(), 2);
    let error = first.commit(1, flushed).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Fenced);
    assert_eq!(second.latest().await.unwrap(), Some(taken));
}

#[tokio::test]
async fn a_cached_manifest_does_not_hide_the_fence() {
    let store = Arc::new(ObjectStore::memory());
    let (first, second) = (manifests(&store), manifests(&store));
    first.claim(0).await.unwrap();
    second.claim(0).await.unwrap();
    let error = first.commit(1, flushed).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Fenced, "{error}");
}

#[tokio::test(start_paused = true)]
async fn of_claims_at_once_one_wins() {
    let store = Arc::new(ObjectStore::memory());
    let claims = (0..8).map(|_| {
        let manifests = manifests(&store);
        async move { manifests.claim(0).await }
    });
    let results = futures::future::join_all(claims).await;
    let mut epochs = Vec::new();
    for result in results {
        match result {
            Ok(manifest) => epochs.push(manifest.writer_epoch),
            Err(error) => assert_eq!(error.kind(), ErrorKind::Fenced, "{error}"),
        }
    }
    epochs.sort_unstable();
    let unique = epochs.len();
    epochs.dedup();
    assert!(
        unique > 0 && epochs.len() == unique,
        "two writers share an epoch"
    );
}

/// Two claims of one base are the same message: only the nonce tells them apart.
#[tokio::test(start_paused = true)]
async fn a_rival_claim_is_not_taken_for_ones_own() {
    let (store, flaky) = flaky();
    let (ours, theirs) = (
        ManifestStore::new(Arc::clone(&store), layout()),
        manifests(&store),
    );
    flaky.denied.store(1, Ordering::SeqCst);
    let rival = async {
        clock::sleep(std::time::Duration::from_millis(1)).await;
        theirs.claim(0).await.unwrap()
    };
    let (ours, theirs) = tokio::join!(ours.claim(0), rival);
    assert_eq!(theirs.writer_epoch, 1);
    assert_eq!(ours.unwrap_err().kind(), ErrorKind::Fenced);
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_is_not_a_lost_race() {
    let (store, flaky) = flaky();
    let manifests = manifests(&store);
    flaky.lost.store(1, Ordering::SeqCst);
    assert_eq!(manifests.claim(0).await.unwrap().writer_epoch, 1);
    flaky.lost.store(1, Ordering::SeqCst);
    let committed = manifests.commit(1, flushed).await.unwrap();
    assert_eq!((committed.version, committed.generations.len()), (2, 1));

    // The answer is lost and so is the look at what is stored.
    let fresh = ManifestStore::new(Arc::clone(&store), layout());
    flaky.lost.store(1, Ordering::SeqCst);
    flaky.blind.store(2, Ordering::SeqCst);
    assert_eq!(fresh.claim(0).await.unwrap().writer_epoch, 2);
    flaky.lost.store(1, Ordering::SeqCst);
    flaky.blind.store(2, Ordering::SeqCst);
    let committed = fresh.commit(2, flushed).await.unwrap();
    assert_eq!((committed.version, committed.generations.len()), (4, 2));

    flaky.denied.store(3, Ordering::SeqCst);
    assert_eq!(fresh.commit(2, flushed).await.unwrap().version, 5);
    flaky.denied.store(u32::MAX, Ordering::SeqCst);
    let error = fresh.commit(2, flushed).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
}

#[tokio::test]
async fn the_hint_is_not_trusted() {
    let store = Arc::new(ObjectStore::memory());
    let manifests = manifests(&store);
    manifests.claim(0).await.unwrap();
    for _ in 0..40 {
        manifests.commit(1, flushed).await.unwrap();
    }
    let hint = layout().version_hint();
    for text in [
        "{\"version\":1}",
        "{\"version\":99}",
        "nonsense",
        "{\"version\":0}",
    ] {
        store.inner.put(&hint, text.into()).await.unwrap();
        let latest = manifests.latest().await.unwrap().unwrap();
        assert_eq!(latest.version, 41, "hint {text}");
    }
    // What an interrupted write of a local store leaves behind.
    let staging = Path::from(format!("{}.tmp.0a", layout().manifest(77)));
    store.inner.put(&staging, "half".into()).await.unwrap();
    store.inner.delete(&hint).await.unwrap();
    assert_eq!(manifests.latest().await.unwrap().unwrap().version, 41);
}

/// As Lance's writer stores it: without the number in front and the checksum behind.
fn plain(manifest: &ShardManifest) -> Vec<u8> {
    const NONCE_BYTES: usize = 19;
    const CHECKSUM_BYTES: usize = 6;
    let bytes = manifest.encode(Uuid::nil());
    bytes[NONCE_BYTES..bytes.len() - CHECKSUM_BYTES].to_vec()
}

#[test]
fn every_flipped_bit_and_every_cut_is_seen() {
    let mut manifest = ShardManifest::unclaimed(layout().shard(), 3);
    manifest.version = 1;
    flushed(&mut manifest);
    flushed(&mut manifest);
    let path = layout().manifest(1);
    let decode = |bytes: &[u8]| ShardManifest::decode(&path, layout().shard(), 1, bytes);
    let refused = |bytes: &[u8], damage: String| {
        let error = decode(bytes).expect_err(&damage);
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{damage}: {error}");
        assert!(error.message().contains(path.as_ref()), "{damage}: {error}");
    };
    let good = manifest.encode(Uuid::from_u128(u128::MAX / 3));
    assert_eq!(decode(&good).unwrap(), manifest);
    for bit in 0..good.len() * 8 {
        let mut bytes = good.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        refused(&bytes, format!("bit {bit}"));
    }
    for end in 0..good.len() {
        refused(&good[..end], format!("cut at {end}"));
    }
    // The checksum is the last field, or what follows it would not be covered.
    refused(
        &[good.as_slice(), &plain(&manifest)].concat(),
        "more".to_string(),
    );
    assert_eq!(decode(&plain(&manifest)).unwrap(), manifest);
}

#[tokio::test]
async fn what_cannot_be_understood_is_refused() {
    let store = Arc::new(ObjectStore::memory());
    let manifests = manifests(&store);
    let claimed = manifests.claim(0).await.unwrap();
    let path = layout().manifest(1);
    let shard = layout().shard();
    let refused = |bytes: &[u8]| ShardManifest::decode(&path, shard, 1, bytes).unwrap_err();
    let mut strange = claimed.clone();
    strange.shard_id = Uuid::from_u128(8);
    assert!(
        refused(&strange.encode(Uuid::nil()))
            .message()
            .contains("belongs to")
    );
    let mut strange = claimed.clone();
    flushed(&mut strange);
    strange.current_generation = 1;
    assert!(
        refused(&strange.encode(Uuid::nil()))
            .message()
            .contains("not below")
    );
    // Field 15, varint 9: a status of the future.
    let future = [plain(&claimed).as_slice(), &[0x78, 9]].concat();
    assert_eq!(refused(&future).kind(), ErrorKind::Unsupported);

    let sealed = |manifest: &mut ShardManifest| manifest.status = ShardStatus::Sealed;
    manifests.commit(1, sealed).await.unwrap();
    let error = manifests.claim(0).await.unwrap_err();
    assert!(error.message().contains("sealed"), "{error}");
}

#[tokio::test]
async fn lance_reads_ours_and_we_read_lances() {
    for local in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let (store, table) = match local {
            true => ObjectStore::from_uri(folder.path().to_str().unwrap())
                .await
                .unwrap(),
            false => (Arc::new(ObjectStore::memory()), Path::from("t")),
        };
        let layout = ShardLayout::new(table.clone(), Uuid::from_u128(7));
        let ours = ManifestStore::new(Arc::clone(&store), layout.clone());
        let lance = ShardManifestStore::new(Arc::clone(&store), &table, layout.shard(), 2);
        ours.claim(1).await.unwrap();
        let committed = ours.commit(1, flushed).await.unwrap();
        let read = lance.refresh_latest().await.unwrap().unwrap();
        assert_eq!(
            (read.version, read.writer_epoch, read.shard_spec_id),
            (2, 1, 1)
        );
        assert_eq!(read.sstables[0].path, committed.generations[0].path);
        assert_eq!(read.sstables[0].physical_rows, Some(0));

        let (epoch, _) = lance.claim_epoch(1).await.unwrap();
        assert_eq!(ours.epoch().await.unwrap(), epoch);
        lance
            .commit_update(epoch, |current| {
                let mut next = current.clone();
                next.version += 1;
                next.wal_entry_position_last_seen = 12;
                next
            })
            .await
            .unwrap();
        let latest = ours.latest().await.unwrap().unwrap();
        assert_eq!(
            (latest.version, latest.wal_entry_position_last_seen),
            (4, 12)
        );
        assert_eq!(latest.generations, committed.generations);
        let error = ours.commit(1, flushed).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Fenced);
        assert_eq!(ours.claim(1).await.unwrap().writer_epoch, epoch + 1);
        assert!(lance.check_fenced(epoch).await.is_err());
    }
}

/// Background tasks own these futures.
#[test]
fn manifests_work_in_spawned_tasks() {
    fn is_send(_: impl Send) {}
    let manifests = manifests(&Arc::new(ObjectStore::memory()));
    is_send(manifests.latest());
    is_send(manifests.claim(0));
    is_send(manifests.commit(1, flushed));
    is_send(manifests.epoch());
}
