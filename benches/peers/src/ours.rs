//! Our side: tables and sessions.

use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::datasource::MemTable;
use datafusion::execution::SessionStateBuilder;
use datafusion::prelude::{SessionConfig, SessionContext};
use datafusion_memwal::{MemWalSessionExt, MemWalTable, MemWalTableProvider, TableBuilder};
use lance_io::object_store::ObjectStoreParams;

use crate::harness::Result;
use crate::rows::schema;

/// As many as the runtime has workers.
const PARTITIONS: usize = 2;

/// A row need not be durable to be acknowledged.
pub const NOT_DURABLE: (&str, &str) = ("durable_write", "false");

fn builder(uri: &str, options: &[(&str, &str)], params: Option<ObjectStoreParams>) -> TableBuilder {
    let mut builder = MemWalTable::builder(uri);
    for (key, value) in options {
        builder = builder.with_option(*key, *value);
    }
    match params {
        Some(params) => builder.with_store_params(params),
        None => builder,
    }
}

/// A new table of [`schema`], with `id` as its key or with none.
pub async fn create(
    uri: &str,
    keyed: bool,
    options: &[(&str, &str)],
    params: Option<ObjectStoreParams>,
) -> Result<MemWalTable> {
    let key: &[String] = if keyed { &["id".to_string()] } else { &[] };
    let table = builder(uri, options, params).create(schema(), key).await?;
    Ok(table)
}

pub async fn open(
    uri: &str,
    options: &[(&str, &str)],
    params: Option<ObjectStoreParams>,
) -> Result<MemWalTable> {
    Ok(builder(uri, options, params).open().await?)
}

pub async fn put_all(table: &MemWalTable, batches: &[RecordBatch]) -> Result<()> {
    for batch in batches {
        table.put(vec![batch.clone()]).await?;
    }
    Ok(())
}

fn empty_session() -> SessionContext {
    let state = SessionStateBuilder::new()
        .with_config(SessionConfig::new().with_target_partitions(PARTITIONS))
        .with_default_features()
        .with_memwal()
        .build();
    SessionContext::new_with_state(state)
}

/// A session in which `t` is our table.
pub fn session(table: &MemWalTable) -> Result<SessionContext> {
    let session = empty_session();
    session.register_table("t", Arc::new(MemWalTableProvider::new(table.clone())))?;
    Ok(session)
}

/// A session in which `t` is DataFusion's MemTable of the same rows, dealt out to as many
/// partitions as there are workers.
pub fn memtable_session(batches: &[RecordBatch]) -> Result<SessionContext> {
    let mut partitions = vec![Vec::new(); PARTITIONS];
    for (index, batch) in batches.iter().enumerate() {
        partitions[index % PARTITIONS].push(batch.clone());
    }
    let session = empty_session();
    let table = MemTable::try_new(schema(), partitions)?;
    session.register_table("t", Arc::new(table))?;
    Ok(session)
}
