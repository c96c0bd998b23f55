//! Makes a table or opens one that is there.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::arrow::array::RecordBatchIterator;
use datafusion::arrow::datatypes::SchemaRef;
use lance::Dataset;
use lance::dataset::builder::DatasetBuilder;
use lance::dataset::mem_wal::DatasetMemWalExt;
use lance::dataset::{InsertBuilder, WriteMode, WriteParams};
use lance::session::Session;
use lance_core::datatypes::Schema as LanceSchema;
use lance_file::version::{ConcreteFileVersion, LanceFileVersion};
use lance_io::object_store::ObjectStoreParams;
use lance_table::system_index::mem_wal::MemWalIndexDetails;
use uuid::Uuid;

use crate::error::{Error, Result};
use crate::generation::GenerationTarget;
use crate::layout::{ShardLayout, UNSHARDED_SHARD, local_path, mem_wal_root};
use crate::options::TableOptions;
use crate::schema::{TableSchema, declare};
use crate::shard::ShardWriter;
use crate::table::base::BaseTier;
use crate::table::handle::MemWalTable;
use crate::table::probe::probe_encoding;

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
    /// `Unavailable` when the store does not answer, `Invalid` when the location is a file,
    /// `Unsupported` when its store was not built in.
    pub async fn exists(&self) -> Result<bool> {
        Ok(self.load().await?.is_some())
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
        if let Some(mut found) = self.load().await? {
            if is_unfinished(&found, &declared).await? {
                self.initialize(&mut found, &options).await?;
                return self.start(found, options).await;
            }
            return Err(Error::invalid(format!(
                "table '{}': a table already lies at '{}'; open it, or choose another location",
                self.name, self.uri
            )));
        }
        self.check_writable()?;
        probe_encoding(&self.name, &declared, None).await?;
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
        self.initialize(&mut dataset, &options).await?;
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
        self.open_if_there(|_| Ok(())).await?.ok_or_else(|| {
            Error::invalid(format!(
                "table '{}': nothing lies at '{}'; create it with a column list",
                self.name, self.uri
            ))
        })
    }

    /// As [`Self::open`], `None` when nothing is there. `accept` may refuse the stored
    /// columns before the table is taken from the writer that has it.
    pub(crate) async fn open_if_there(
        &self,
        accept: impl FnOnce(&TableSchema) -> Result<()> + Send,
    ) -> Result<Option<MemWalTable>> {
        let Some(mut dataset) = self.load().await? else {
            return Ok(None);
        };
        // Everything that can be refused is refused before the first write.
        let schema = TableSchema::from_base(&self.name, dataset.schema())?;
        accept(&schema)?;
        let format = dataset.manifest().data_storage_format.lance_file_format();
        let version = exact(format);
        if version == LanceFileVersion::Legacy {
            return Err(Error::unsupported(format!(
                "table '{}': the dataset at '{}' is of Lance's legacy file format, in which this \
                 version cannot write; rewrite it with a newer one",
                self.name, self.uri
            )));
        }
        probe_encoding(&self.name, schema.rows(), Some(version)).await?;
        let stored = dataset.mem_wal_index_details().await?;
        let options = match &stored {
            Some(details) => {
                TableOptions::from_stored(&self.name, &details.writer_config_defaults)?
            }
            None => TableOptions::default(),
        };
        let options = self.changed(options)?;
        if stored.is_none() {
            self.initialize(&mut dataset, &options).await?;
        }
        self.start(dataset, options).await.map(Some)
    }

    async fn initialize(&self, dataset: &mut Dataset, options: &TableOptions) -> Result<()> {
        let no_indexes: [String; 0] = [];
        let mut builder = dataset
            .initialize_mem_wal()
            .unsharded()
            .maintained_indexes(no_indexes);
        for (key, value) in options.to_stored() {
            builder = builder.add_writer_config_default(key, value);
        }
        builder.execute().await.map_err(|error| self.context(error))
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

    /// Refuses a location that cannot hold a table in this build.
    fn check_location(&self) -> Result<()> {
        if let Some(feature) = missing_feature(&self.uri) {
            return Err(Error::unsupported(format!(
                "table '{}': the location '{}' needs the cargo feature '{feature}', without which \
                 this program was built",
                self.name, self.uri
            )));
        }
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
        Ok(())
    }

    /// The dataset at the URI, `None` when nothing is there.
    async fn load(&self) -> Result<Option<Dataset>> {
        self.check_location()?;
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

    async fn start(&self, dataset: Dataset, options: TableOptions) -> Result<MemWalTable> {
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
        Ok(MemWalTable::start(self.uri.clone(), schema, writer, tier))
    }
}

/// Whether `found` is what a `create` of the same columns has left that was cut short between
/// its two commits: an empty dataset in its first version, without a log.
async fn is_unfinished(found: &Dataset, declared: &SchemaRef) -> Result<bool> {
    let mut wanted = LanceSchema::try_from(declared.as_ref())?;
    wanted.set_field_id(None);
    Ok(found.manifest().version == 1
        && *found.schema() == wanted
        && found.mem_wal_index_details().await?.is_none()
        && found.count_rows(None).await? == 0)
}

/// The cargo feature that a location needs and this build lacks.
fn missing_feature(uri: &str) -> Option<&'static str> {
    let (scheme, _) = uri.split_once("://")?;
    match scheme {
        "s3" | "s3+ddb" if !cfg!(feature = "aws") => Some("aws"),
        "gs" if !cfg!(feature = "gcp") => Some("gcp"),
        "az" | "abfss" if !cfg!(feature = "azure") => Some("azure"),
        _ => None,
    }
}

/// A stored file version as a writer asks for it.
fn exact(stored: ConcreteFileVersion) -> LanceFileVersion {
    match stored {
        ConcreteFileVersion::V1 => LanceFileVersion::Legacy,
        ConcreteFileVersion::V2_0 => LanceFileVersion::V2_0,
        ConcreteFileVersion::V2_1 => LanceFileVersion::V2_1,
        ConcreteFileVersion::V2_2 => LanceFileVersion::V2_2,
        ConcreteFileVersion::V2_3 => LanceFileVersion::V2_3,
    }
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
