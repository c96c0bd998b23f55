//! Makes a table or opens one that is there.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use datafusion::arrow::array::{RecordBatch, RecordBatchIterator, new_null_array};
use datafusion::arrow::datatypes::{Field, Schema, SchemaRef};
use lance::Dataset;
use lance::dataset::builder::DatasetBuilder;
use lance::dataset::mem_wal::DatasetMemWalExt;
use lance::dataset::{InsertBuilder, WriteMode, WriteParams};
use lance::session::Session;
use lance_io::object_store::ObjectStoreParams;
use lance_table::system_index::mem_wal::MemWalIndexDetails;
use uuid::Uuid;

use crate::clock;
use crate::error::{Error, ErrorKind, Result};
use crate::generation::GenerationTarget;
use crate::layout::{ShardLayout, UNSHARDED_SHARD, mem_wal_root};
use crate::options::TableOptions;
use crate::schema::{TableSchema, declare};
use crate::shard::ShardWriter;
use crate::table::base::BaseTier;
use crate::table::handle::MemWalTable;

/// The transform of a sharding spec that sends every row to one shard.
const UNSHARDED_TRANSFORM: &str = "unsharded";

/// How a table is made or opened. See [`MemWalTable::builder`].
#[derive(Debug, Clone)]
pub struct TableBuilder {
    uri: String,
    name: String,
    changes: Vec<(String, String)>,
    store_params: Option<ObjectStoreParams>,
}

impl TableBuilder {
    pub(crate) fn new(uri: &str) -> Self {
        let uri = uri.trim_end_matches('/').to_string();
        let name = uri.rsplit('/').next().unwrap_or(&uri).to_string();
        Self {
            uri,
            name,
            changes: Vec::new(),
            store_params: None,
        }
    }

    /// Where the table lies or will lie.
    pub fn uri(&self) -> &str {
        &self.uri
    }

    /// The name by which error messages call the table; by default the last part of its URI.
    pub fn with_name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Sets one option of [`TableOptions`] by its name. A new table keeps it; a table that
    /// is opened goes by it for as long as it is open.
    pub fn with_option(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.changes.push((key.into(), value.into()));
        self
    }

    /// Sets every option of `options`; see [`TableBuilder::with_option`].
    pub fn with_options(mut self, options: &HashMap<String, String>) -> Self {
        let mut sorted: Vec<_> = options
            .iter()
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect();
        sorted.sort();
        self.changes.extend(sorted);
        self
    }

    /// How Lance reaches the object store: credentials, options, a wrapper.
    pub fn with_store_params(mut self, params: ObjectStoreParams) -> Self {
        self.store_params = Some(params);
        self
    }

    /// Whether a table or a plain Lance dataset lies at the URI.
    ///
    /// # Errors
    ///
    /// `Unavailable` when the store does not answer, `Invalid` when the location is a file.
    pub async fn exists(&self) -> Result<bool> {
        if let Some(path) = local_path(&self.uri)
            && let Some(file) = path.ancestors().find(|part| part.is_file())
        {
            return Err(Error::invalid(format!(
                "table '{}': the location '{}' cannot hold a table, since '{}' is a file; name a folder",
                self.name,
                self.uri,
                file.display()
            )));
        }
        Ok(self.load().await?.is_some())
    }

    /// The columns of what lies at the URI, read without taking the table from its writer.
    pub(crate) async fn stored_schema(&self) -> Result<Option<TableSchema>> {
        if !self.exists().await? {
            return Ok(None);
        }
        self.load()
            .await?
            .map(|dataset| TableSchema::from_base(&self.name, dataset.schema()))
            .transpose()
    }

    /// Makes a new table. `key` names the columns of the primary key in order; without
    /// one the table is append-only.
    ///
    /// # Errors
    ///
    /// `Invalid` when something is there already, for a malformed option, and for columns
    /// or a key that cannot be stored; `Unsupported` for a type that Lance has no encoding for.
    pub async fn create(self, schema: SchemaRef, key: &[String]) -> Result<MemWalTable> {
        let declared = declare(&self.name, &schema, key)?;
        let options = self.changed(TableOptions::default())?;
        if self.exists().await? {
            return Err(Error::invalid(format!(
                "table '{}': a table already lies at '{}'; open it, or choose another location",
                self.name, self.uri
            )));
        }
        self.check_writable()?;
        probe_encoding(&self.name, &declared).await?;
        let params = WriteParams {
            mode: WriteMode::Create,
            store_params: self.store_params.clone(),
            session: Some(Arc::new(Session::default())),
            ..WriteParams::default()
        };
        let empty = RecordBatchIterator::new([], Arc::clone(&declared));
        let mut dataset = InsertBuilder::new(self.uri.as_str())
            .with_params(&params)
            .execute_stream(empty)
            .await
            .map_err(|error| self.context(error))?;
        initialize(&mut dataset, &options)
            .await
            .map_err(|error| error.context(format!("table '{}'", self.name)))?;
        self.start(dataset, options).await
    }

    /// Opens what lies at the URI: a table, or a plain Lance dataset, whose rows become
    /// the base table. The writer that had the table before is fenced.
    ///
    /// # Errors
    ///
    /// `Invalid` when nothing is there; `Unsupported` for a sharded table or columns that
    /// this version cannot write; `Corrupt` names what is damaged, and nothing is changed.
    pub async fn open(self) -> Result<MemWalTable> {
        self.exists().await?;
        let Some(mut dataset) = self.load().await? else {
            return Err(Error::invalid(format!(
                "table '{}': nothing lies at '{}'; create it with a column list",
                self.name, self.uri
            )));
        };
        // Everything that can be refused is refused before the first write.
        TableSchema::from_base(&self.name, dataset.schema())?;
        let stored = dataset.mem_wal_index_details().await?;
        let options = match &stored {
            Some(details) => {
                TableOptions::from_stored(&self.name, &details.writer_config_defaults)?
            }
            None => TableOptions::default(),
        };
        let options = self.changed(options)?;
        if stored.is_none() {
            initialize(&mut dataset, &options)
                .await
                .map_err(|error| error.context(format!("table '{}'", self.name)))?;
        }
        self.start(dataset, options).await
    }

    fn changed(&self, options: TableOptions) -> Result<TableOptions> {
        let pairs = self
            .changes
            .iter()
            .map(|(key, value)| (key.as_str(), value.as_str()));
        options.changed_by(&self.name, pairs)
    }

    fn context(&self, error: lance_core::Error) -> Error {
        Error::from(error).context(format!("table '{}' at '{}'", self.name, self.uri))
    }

    /// The dataset at the URI, `None` when nothing is there.
    async fn load(&self) -> Result<Option<Dataset>> {
        let mut builder =
            DatasetBuilder::from_uri(&self.uri).with_session(Arc::new(Session::default()));
        if let Some(params) = &self.store_params {
            builder = builder.with_store_params(params.clone());
        }
        match builder.load().await {
            Ok(dataset) => Ok(Some(dataset)),
            Err(lance_core::Error::DatasetNotFound { .. } | lance_core::Error::NotFound { .. }) => {
                Ok(None)
            }
            Err(error) => Err(self.context(error)),
        }
    }

    fn check_writable(&self) -> Result<()> {
        let Some(path) = local_path(&self.uri) else {
            return Ok(());
        };
        std::fs::create_dir_all(&path).map_err(|error| {
            Error::invalid(format!(
                "table '{}': the location '{}' cannot be written; choose a folder that this \
                 process may write",
                self.name, self.uri
            ))
            .with_source(error)
        })
    }

    async fn start(self, dataset: Dataset, options: TableOptions) -> Result<MemWalTable> {
        let schema = Arc::new(TableSchema::from_base(&self.name, dataset.schema())?);
        let details = dataset.mem_wal_index_details().await?.unwrap_or_default();
        let spec_id = unsharded_spec(&self.name, &details)?;
        let shard = find_shard(&self.name, &dataset).await?;
        let compacted = details
            .compacted_sstables
            .iter()
            .filter(|mark| mark.shard_id == shard)
            .map(|mark| mark.generation)
            .max()
            .unwrap_or(0);
        let base = Arc::new(dataset);
        let layout = ShardLayout::new(base.branch_location().path, shard);
        let target = GenerationTarget::new(Arc::clone(&base), layout, Arc::clone(&schema)).await?;
        let tier = BaseTier::new(base, target.codec().cloned()).await?;
        let writer = ShardWriter::open(target, options, spec_id, compacted)
            .await
            .map_err(|error| error.context(format!("table '{}'", self.name)))?;
        Ok(MemWalTable::start(self.uri, schema, writer, tier))
    }
}

async fn initialize(dataset: &mut Dataset, options: &TableOptions) -> Result<()> {
    let no_indexes: [String; 0] = [];
    let mut builder = dataset
        .initialize_mem_wal()
        .unsharded()
        .maintained_indexes(no_indexes);
    for (key, value) in options.to_stored() {
        builder = builder.add_writer_config_default(key, value);
    }
    Ok(builder.execute().await?)
}

/// The id of the table's sharding spec, if it sends every row to one shard.
fn unsharded_spec(table: &str, details: &MemWalIndexDetails) -> Result<u32> {
    match details.sharding_specs.as_slice() {
        [] => Ok(0),
        [spec]
            if spec
                .fields
                .iter()
                .all(|field| field.transform.as_deref() == Some(UNSHARDED_TRANSFORM)) =>
        {
            Ok(spec.spec_id)
        }
        _ => Err(Error::unsupported(format!(
            "table '{table}' is divided into shards, which this version cannot write"
        ))),
    }
}

/// The one shard of a table: the folder that is there, or the one that we make.
async fn find_shard(table: &str, dataset: &Dataset) -> Result<Uuid> {
    let store = dataset.object_store(None).await?;
    let root = mem_wal_root(&dataset.branch_location().path);
    let listing = store.inner.list_with_delimiter(Some(&root)).await?;
    let shards: Vec<Uuid> = listing
        .common_prefixes
        .iter()
        .filter_map(|prefix| prefix.filename().and_then(|name| name.parse().ok()))
        .collect();
    match shards.as_slice() {
        [] => Ok(UNSHARDED_SHARD),
        [only] => Ok(*only),
        many => Err(Error::unsupported(format!(
            "table '{table}' has {} shards, and this version writes one; compact it with the \
             writer that made them first",
            many.len()
        ))),
    }
}

/// Writes one row of NULLs in memory, so that a type without an encoding is refused when
/// the table is made and not at the first flush.
async fn probe_encoding(table: &str, schema: &SchemaRef) -> Result<()> {
    if write_nulls(Arc::clone(schema)).await.is_ok() {
        return Ok(());
    }
    for field in schema.fields() {
        let alone = Arc::new(Schema::new(vec![Arc::clone(field)]));
        if let Err(error) = write_nulls(alone).await {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!(
                    "table '{table}': Lance cannot store the column '{}' of type {}; choose \
                     another type ({})",
                    field.name(),
                    field.data_type(),
                    error.message()
                ),
            ));
        }
    }
    Ok(())
}

async fn write_nulls(schema: SchemaRef) -> Result<()> {
    let fields: Vec<Field> = schema
        .fields()
        .iter()
        .map(|field| Field::new(field.name(), field.data_type().clone(), true))
        .collect();
    let columns = fields
        .iter()
        .map(|field| new_null_array(field.data_type(), 1))
        .collect();
    let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)?;
    // On a task of its own: some encoders panic on a type that they do not know.
    let written = tokio::spawn(async move {
        let uri = format!("memory://probe-{}", clock::random_uuid());
        let dataset = InsertBuilder::new(uri.as_str())
            .execute(vec![batch])
            .await?;
        dataset.scan().try_into_batch().await
    })
    .await;
    match written {
        Ok(result) => Ok(result.map(|_| ())?),
        Err(panic) => Err(Error::unsupported(format!("the encoder failed: {panic}"))),
    }
}

/// The path of a location on local disk, `None` for another store.
fn local_path(uri: &str) -> Option<PathBuf> {
    match uri.split_once("://") {
        Some(("file", path)) => Some(PathBuf::from(path)),
        Some(_) => None,
        None => Some(Path::new(uri).to_path_buf()),
    }
}
