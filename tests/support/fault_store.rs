//! An object store that fails, hangs or loses answers by rule, and counts.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use lance_io::object_store::{ObjectStoreParams, WrappingObjectStore};
use object_store::list::PaginatedListStore;
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, RenameOptions, Result,
};
use parking_lot::Mutex;
use tokio::sync::watch;

/// The kinds of request that a rule can match.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Request {
    Put,
    Get,
    List,
}

/// What happens to a matching request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It fails and has no effect.
    Fail,
    /// It takes effect and its answer is lost.
    LoseAnswer,
    /// Without any effect, the store claims that the object exists.
    ClaimExists,
    /// It waits until the gate is opened.
    Block,
}

#[derive(Debug)]
struct Rule {
    request: Request,
    path_part: String,
    fault: Fault,
    remaining: usize,
}

/// The rules and counters of one test.
#[derive(Debug)]
pub struct Faults {
    rules: Mutex<Vec<Rule>>,
    counts: Mutex<BTreeMap<(Request, &'static str), usize>>,
    gate: watch::Sender<bool>,
}

impl Faults {
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            rules: Mutex::default(),
            counts: Mutex::default(),
            gate: watch::Sender::new(false),
        })
    }

    /// Lets the next `times` requests whose path contains `path_part` meet `fault`.
    pub fn add(&self, request: Request, path_part: &str, fault: Fault, times: usize) {
        self.rules.lock().push(Rule {
            request,
            path_part: path_part.to_string(),
            fault,
            remaining: times,
        });
    }

    /// Lets blocked requests go on; the other rules stay.
    pub fn open_gate(&self) {
        self.gate.send_replace(true);
    }

    /// Drops every rule and lets blocked requests go on.
    pub fn heal(&self) {
        self.rules.lock().clear();
        self.gate.send_replace(true);
    }

    /// Requests so far on objects of a kind: `wal`, `manifest`, `generation` or `other`.
    pub fn count(&self, request: Request, kind: &'static str) -> usize {
        self.counts
            .lock()
            .get(&(request, kind))
            .copied()
            .unwrap_or(0)
    }

    /// Store parameters that send every byte through these faults.
    pub fn params(self: &Arc<Self>) -> ObjectStoreParams {
        ObjectStoreParams {
            object_store_wrapper: Some(Arc::new(Wrapper(Arc::clone(self)))),
            ..ObjectStoreParams::default()
        }
    }

    fn meet(&self, request: Request, path: &Path) -> Option<Fault> {
        let path = path.to_string();
        let kind = match () {
            () if path.contains("/wal/") => "wal",
            () if path.contains("/manifest/") => "manifest",
            () if path.contains("_gen_") => "generation",
            () => "other",
        };
        *self.counts.lock().entry((request, kind)).or_default() += 1;
        let mut rules = self.rules.lock();
        let rule = rules.iter_mut().find(|rule| {
            rule.request == request && rule.remaining > 0 && path.contains(&rule.path_part)
        })?;
        rule.remaining -= 1;
        Some(rule.fault)
    }

    async fn pass_gate(&self) {
        let mut gate = self.gate.subscribe();
        // The sender lives as long as `self`.
        let _ = gate.wait_for(|open| *open).await;
    }
}

fn lost(path: &Path) -> object_store::Error {
    object_store::Error::Generic {
        store: "FaultStore",
        source: format!("injected failure at {path}").into(),
    }
}

fn exists(path: &Path) -> object_store::Error {
    object_store::Error::AlreadyExists {
        path: path.to_string(),
        source: "injected".into(),
    }
}

#[derive(Debug)]
struct Wrapper(Arc<Faults>);

impl WrappingObjectStore for Wrapper {
    fn wrap(&self, _prefix: &str, original: Arc<dyn ObjectStore>) -> Arc<dyn ObjectStore> {
        Arc::new(FaultStore {
            faults: Arc::clone(&self.0),
            inner: original,
        })
    }

    /// Listings go through [`FaultStore::list`].
    fn wrap_paginated(
        &self,
        _prefix: &str,
        _lister: Arc<dyn PaginatedListStore>,
    ) -> Option<Arc<dyn PaginatedListStore>> {
        None
    }
}

#[derive(Debug)]
struct FaultStore {
    faults: Arc<Faults>,
    inner: Arc<dyn ObjectStore>,
}

impl fmt::Display for FaultStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FaultStore({})", self.inner)
    }
}

#[async_trait]
impl ObjectStore for FaultStore {
    async fn put_opts(
        &self,
        path: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        match self.faults.meet(Request::Put, path) {
            Some(Fault::Fail) => return Err(lost(path)),
            Some(Fault::ClaimExists) => return Err(exists(path)),
            Some(Fault::LoseAnswer) => {
                self.inner.put_opts(path, payload, options).await?;
                return Err(lost(path));
            }
            Some(Fault::Block) => self.faults.pass_gate().await,
            None => {}
        }
        self.inner.put_opts(path, payload, options).await
    }

    async fn put_multipart_opts(
        &self,
        path: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        match self.faults.meet(Request::Put, path) {
            Some(Fault::Block) => self.faults.pass_gate().await,
            Some(_) => return Err(lost(path)),
            None => {}
        }
        self.inner.put_multipart_opts(path, options).await
    }

    async fn get_opts(&self, path: &Path, options: GetOptions) -> Result<GetResult> {
        match self.faults.meet(Request::Get, path) {
            Some(Fault::Block) => self.faults.pass_gate().await,
            Some(_) => return Err(lost(path)),
            None => {}
        }
        self.inner.get_opts(path, options).await
    }

    fn delete_stream(
        &self,
        paths: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        self.inner.delete_stream(paths)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let path = prefix.cloned().unwrap_or_default();
        match self.faults.meet(Request::List, &path) {
            Some(_) => futures::stream::once(async move { Err(lost(&path)) }.boxed()).boxed(),
            None => self.inner.list(prefix),
        }
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let path = prefix.cloned().unwrap_or_default();
        match self.faults.meet(Request::List, &path) {
            Some(_) => Err(lost(&path)),
            None => self.inner.list_with_delimiter(prefix).await,
        }
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }

    async fn rename_opts(&self, from: &Path, to: &Path, options: RenameOptions) -> Result<()> {
        match self.faults.meet(Request::Put, to) {
            Some(Fault::Fail) => return Err(lost(to)),
            Some(Fault::ClaimExists) => return Err(exists(to)),
            Some(Fault::LoseAnswer) => {
                self.inner.rename_opts(from, to, options).await?;
                return Err(lost(to));
            }
            Some(Fault::Block) => self.faults.pass_gate().await,
            None => {}
        }
        self.inner.rename_opts(from, to, options).await
    }
}
