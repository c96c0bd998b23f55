//! An object store with seeded delays and counters, and a way to hold a flush up.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures::stream::BoxStream;
use lance_io::object_store::{ObjectStoreParams, WrappingObjectStore};
use object_store::list::PaginatedListStore;
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, RenameOptions, Result,
};
use parking_lot::Mutex;

use crate::random::Random;

/// The delays of a store, which may change at any time, and what it was asked.
#[derive(Debug)]
pub struct Weather {
    random: Mutex<Random>,
    put_micros: AtomicU64,
    get_micros: AtomicU64,
    holds_flushes: AtomicBool,
    puts: AtomicU64,
    gets: AtomicU64,
}

impl Weather {
    pub fn calm(seed: u64) -> Arc<Self> {
        Arc::new(Self {
            random: Mutex::new(Random::seeded(seed)),
            put_micros: AtomicU64::new(0),
            get_micros: AtomicU64::new(0),
            holds_flushes: AtomicBool::new(false),
            puts: AtomicU64::new(0),
            gets: AtomicU64::new(0),
        })
    }

    /// From now on a PUT and a GET take this long at the median; zero is no delay.
    pub fn set_delays(&self, put: Duration, get: Duration) {
        self.put_micros
            .store(put.as_micros() as u64, Ordering::Relaxed);
        self.get_micros
            .store(get.as_micros() as u64, Ordering::Relaxed);
    }

    /// Begins the series of delays again, so that two sides can meet the same ones.
    pub fn reseed(&self, seed: u64) {
        *self.random.lock() = Random::seeded(seed);
    }

    /// From now on no object of a generation is ever written, so that frozen memtables
    /// stay in memory.
    pub fn hold_flushes(&self) {
        self.holds_flushes.store(true, Ordering::Relaxed);
    }

    /// PUTs and GETs so far.
    pub fn requests(&self) -> (u64, u64) {
        (
            self.puts.load(Ordering::Relaxed),
            self.gets.load(Ordering::Relaxed),
        )
    }

    /// Store parameters that send every request through this weather.
    pub fn params(self: &Arc<Self>) -> ObjectStoreParams {
        ObjectStoreParams {
            object_store_wrapper: Some(Arc::new(Wrapper(Arc::clone(self)))),
            ..ObjectStoreParams::default()
        }
    }

    async fn put(&self, path: &Path) {
        self.puts.fetch_add(1, Ordering::Relaxed);
        if self.holds_flushes.load(Ordering::Relaxed) && path.as_ref().contains("_gen_") {
            std::future::pending::<()>().await;
        }
        self.delay(&self.put_micros).await;
    }

    async fn get(&self) {
        self.gets.fetch_add(1, Ordering::Relaxed);
        self.delay(&self.get_micros).await;
    }

    async fn delay(&self, median_micros: &AtomicU64) {
        let median = median_micros.load(Ordering::Relaxed);
        if median > 0 {
            let factor = self.random.lock().log_normal();
            tokio::time::sleep(Duration::from_micros((median as f64 * factor) as u64)).await;
        }
    }
}

/// A store in memory that nothing else uses and that outlives the tables in it.
pub fn shared_uri() -> String {
    format!("shared-memory://{}/t", uuid::Uuid::new_v4())
}

#[derive(Debug)]
struct Wrapper(Arc<Weather>);

impl WrappingObjectStore for Wrapper {
    fn wrap(&self, _prefix: &str, original: Arc<dyn ObjectStore>) -> Arc<dyn ObjectStore> {
        Arc::new(SlowStore {
            weather: Arc::clone(&self.0),
            inner: original,
        })
    }

    /// Listings go through the wrapper as well.
    fn wrap_paginated(
        &self,
        _prefix: &str,
        _original: Arc<dyn PaginatedListStore>,
    ) -> Option<Arc<dyn PaginatedListStore>> {
        None
    }
}

#[derive(Debug)]
struct SlowStore {
    weather: Arc<Weather>,
    inner: Arc<dyn ObjectStore>,
}

impl fmt::Display for SlowStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SlowStore({})", self.inner)
    }
}

#[async_trait]
impl ObjectStore for SlowStore {
    async fn put_opts(
        &self,
        path: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        self.weather.put(path).await;
        self.inner.put_opts(path, payload, options).await
    }

    async fn put_multipart_opts(
        &self,
        path: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.weather.put(path).await;
        self.inner.put_multipart_opts(path, options).await
    }

    async fn get_opts(&self, path: &Path, options: GetOptions) -> Result<GetResult> {
        self.weather.get().await;
        self.inner.get_opts(path, options).await
    }

    fn delete_stream(
        &self,
        paths: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        self.inner.delete_stream(paths)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.weather.get().await;
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }

    async fn rename_opts(&self, from: &Path, to: &Path, options: RenameOptions) -> Result<()> {
        self.weather.put(to).await;
        self.inner.rename_opts(from, to, options).await
    }
}
