//! What the log and the manifests ask of the object store alike.

use bytes::Bytes;
use futures::TryStreamExt;
use lance_io::object_store::ObjectStore;
use object_store::path::Path;
use object_store::{Error as StoreError, ObjectStoreExt, Result as StoreResult};

/// The object at `path`, or `None` if there is none.
pub(crate) async fn get(store: &ObjectStore, path: &Path) -> StoreResult<Option<Bytes>> {
    match store.inner.get(path).await {
        Ok(object) => object.bytes().await.map(Some),
        Err(StoreError::NotFound { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The largest number among the objects of `dir`, as `number_of` reads it from their names.
pub(crate) async fn last_number(
    store: &ObjectStore,
    dir: &Path,
    number_of: impl Fn(&str) -> Option<u64>,
) -> StoreResult<Option<u64>> {
    let numbers = store.inner.list(Some(dir)).try_fold(None, |last, object| {
        let number = object.location.filename().and_then(&number_of);
        std::future::ready(Ok(number.max(last)))
    });
    match numbers.await {
        Err(StoreError::NotFound { .. }) => Ok(None),
        other => other,
    }
}
