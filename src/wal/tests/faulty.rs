//! A store that fails by plan.

use super::*;

/// What the next conditional puts do instead of what they should.
#[derive(Debug, Clone, Copy)]
pub(super) enum Fault {
    /// Nothing is stored.
    Denied,
    /// It is stored, and the answer is an error.
    LostAnswer,
    /// Nothing is stored, and the answer is that it exists.
    FalseConflict,
}

#[derive(Debug)]
pub(super) struct Faulty {
    pub(super) inner: Arc<dyn Store>,
    pub(super) faults: Mutex<Vec<Fault>>,
}

impl fmt::Display for Faulty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("faulty")
    }
}

#[async_trait]
impl Store for Faulty {
    async fn put_opts(
        &self,
        to: &Path,
        put: PutPayload,
        how: PutOptions,
    ) -> StoreResult<PutResult> {
        let fault = match how.mode {
            PutMode::Create => self.faults.lock().pop(),
            _ => None,
        };
        let outage = || object_store::Error::Generic {
            store: "faulty",
            source: "no answer".into(),
        };
        match fault {
            None => self.inner.put_opts(to, put, how).await,
            Some(Fault::Denied) => Err(outage()),
            Some(Fault::LostAnswer) => {
                self.inner.put_opts(to, put, how).await?;
                Err(outage())
            }
            Some(Fault::FalseConflict) => Err(object_store::Error::AlreadyExists {
                path: to.to_string(),
                source: "409".into(),
            }),
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
        self.inner.get_opts(from, how).await
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

pub(super) fn faulty() -> (Arc<ObjectStore>, Arc<Faulty>) {
    let mut store = ObjectStore::memory();
    let faulty = Arc::new(Faulty {
        inner: Arc::clone(&store.inner),
        faults: Mutex::default(),
    });
    store.inner = Arc::clone(&faulty) as Arc<dyn Store>;
    (Arc::new(store), faulty)
}

pub(super) fn appender(store: &Arc<ObjectStore>, epoch: u64, next: u64) -> WalAppender {
    WalAppender::new(Arc::clone(store), layout(), epoch, next, 2, DELAY)
}

pub(super) async fn replay(store: &Arc<ObjectStore>, first: u64, end: u64) -> Result<Vec<i64>> {
    let entries = read_entries(Arc::clone(store), layout(), table(), first, end);
    let entries: Vec<_> = entries.try_collect().await?;
    Ok(entries
        .iter()
        .flat_map(|(_, entry)| ids(&entry.batches))
        .collect())
}
