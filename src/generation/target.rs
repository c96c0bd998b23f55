//! Where the generations of one shard lie, and what they must look like.

use std::sync::Arc;

use lance::Dataset;
use lance_io::object_store::{ObjectStore, ObjectStoreParams};
use object_store::path::Path;

use super::damage;
use crate::error::{Error, Result};
use crate::index::key::KeyCodec;
use crate::layout::ShardLayout;
use crate::schema::TableSchema;

/// What writing and opening the generations of one shard needs. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct GenerationTarget {
    base: Arc<Dataset>,
    store: Arc<ObjectStore>,
    layout: ShardLayout,
    schema: Arc<TableSchema>,
    codec: Option<KeyCodec>,
}

impl GenerationTarget {
    /// The generations of the shard at `layout`, written in the file format of `base`
    /// and through its object store. `layout` must lie under the path of `base`.
    pub(crate) async fn new(
        base: Arc<Dataset>,
        layout: ShardLayout,
        schema: Arc<TableSchema>,
    ) -> Result<Self> {
        Ok(Self {
            store: base.object_store(None).await?,
            codec: KeyCodec::new(&schema),
            base,
            layout,
            schema,
        })
    }

    /// The base table, in the version that the target was made with.
    pub(crate) fn base(&self) -> &Arc<Dataset> {
        &self.base
    }

    pub(crate) fn store(&self) -> &Arc<ObjectStore> {
        &self.store
    }

    pub(crate) fn layout(&self) -> &ShardLayout {
        &self.layout
    }

    pub(crate) fn schema(&self) -> &Arc<TableSchema> {
        &self.schema
    }

    /// `None` for a table without a key.
    pub(crate) fn codec(&self) -> Option<&KeyCodec> {
        self.codec.as_ref()
    }

    /// The path of a generation's folder in [`Self::store`].
    pub(crate) fn path(&self, folder: &str) -> Path {
        self.layout.generation(folder)
    }

    /// The URI under which Lance opens a generation, made as its own readers make it.
    pub(crate) fn uri(&self, folder: &str) -> String {
        format!(
            "{}/{}",
            self.base.uri().trim_end_matches('/'),
            self.layout.generation_suffix(folder)
        )
    }

    /// The base table's store parameters without a store that is bound to its path.
    pub(crate) fn store_params(&self) -> Option<ObjectStoreParams> {
        self.base.store_params().map(|params| {
            let mut params = params.clone();
            #[allow(deprecated)]
            {
                params.object_store = None;
            }
            params
        })
    }

    /// `error` while a generation was read, with the kind that [`damage::kind_of`] finds.
    pub(crate) fn unreadable(&self, folder: &str, error: impl Into<Error>) -> Error {
        let error = error.into();
        let message = format!(
            "table '{}': the generation at '{}' cannot be read: {}",
            self.schema.table(),
            self.path(folder),
            error.message()
        );
        Error::new(damage::kind_of(&error), message).with_source(error)
    }

    /// The folder contradicts the format in the way that `what` says.
    pub(crate) fn corrupt(&self, folder: &str, what: &str) -> Error {
        Error::corrupt(format!(
            "table '{}': the generation at '{}' {what}; restore its folder",
            self.schema.table(),
            self.path(folder)
        ))
    }
}
