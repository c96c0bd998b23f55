//! The database that a file of SQL tests talks to: DataFusion with our tables, in a
//! directory of its own, and three statements that SQL has no words for.
//!
//! | statement | what it does |
//! | --- | --- |
//! | `CONTROL FLUSH t` | the rows of `t` go to a generation |
//! | `CONTROL RESTART` | every table is closed, then opened by a new session |
//! | `CONTROL CRASH` | the session and its writers are dropped without a close, then as above |

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::error::DataFusionError;
use datafusion::execution::session_state::SessionStateBuilder;
use datafusion::physical_plan::{collect, execute_stream};
use datafusion::prelude::{SessionConfig, SessionContext};
use datafusion::sql::TableReference;
use datafusion::sql::parser::{DFParser, Statement};
use datafusion::sql::planner::object_name_to_table_reference;
use datafusion::sql::sqlparser::ast;
use datafusion_memwal::{MemWalSessionExt, MemWalTableProvider};
use datafusion_sqllogictest::{
    DFColumnType, DFOutput, DFSqlLogicTestError, convert_batches, convert_schema_to_types,
};
use sqllogictest::{AsyncDB, DBOutput};
use tempfile::TempDir;

use crate::placement::Variant;

type Result<T, E = DFSqlLogicTestError> = std::result::Result<T, E>;

/// Enough for plans that repartition, whatever the machine has.
const TARGET_PARTITIONS: usize = 4;
const REPOSITORY: &str = env!("CARGO_MANIFEST_DIR");

/// One session, and what is needed to make it again after a restart.
pub struct Engine {
    session: SessionContext,
    work_dir: Arc<TempDir>,
    variant: Variant,
    /// The statements that have made the tables of the session, in order.
    created: Vec<(TableReference, String)>,
    writes: HashMap<TableReference, usize>,
}

impl Engine {
    /// A fresh session over `work_dir`, which the connections of one file share.
    pub async fn open(variant: Variant, work_dir: Arc<TempDir>) -> Result<Self> {
        Ok(Self {
            session: session(variant).await?,
            work_dir,
            variant,
            created: Vec::new(),
            writes: HashMap::new(),
        })
    }

    /// The schema and the rows that `sql` returns; for a write, its count.
    pub async fn execute(&mut self, sql: &str) -> Result<(SchemaRef, Vec<RecordBatch>)> {
        let sql = self.fill_in(sql);
        let frame = self.session.sql(&sql).await?;
        let task = Arc::new(frame.task_ctx());
        let plan = frame.create_physical_plan().await?;
        let stream = execute_stream(Arc::clone(&plan), task)?;
        let schema = stream.schema();
        let batches = datafusion::physical_plan::common::collect(stream).await?;
        self.remember(&sql).await?;
        Ok((schema, batches))
    }

    /// Keeps what a restart has to repeat, and flushes as the placement asks.
    async fn remember(&mut self, sql: &str) -> Result<()> {
        for statement in DFParser::parse_sql(sql)? {
            match statement {
                Statement::CreateExternalTable(create) => {
                    let name = object_name_to_table_reference(create.name, true)?;
                    if self.created.iter().all(|(known, _)| *known != name) {
                        self.created.push((name, sql.to_string()));
                    }
                }
                Statement::Statement(statement) => match *statement {
                    ast::Statement::Drop { names, .. } => {
                        for name in names {
                            let name = object_name_to_table_reference(name, true)?;
                            self.created.retain(|(known, _)| *known != name);
                        }
                    }
                    ast::Statement::Insert(ast::Insert {
                        table: ast::TableObject::TableName(name),
                        ..
                    }) => {
                        let name = object_name_to_table_reference(name, true)?;
                        let writes = self.writes.entry(name.clone()).or_default();
                        *writes += 1;
                        if self.variant.placement.flushes_after(*writes) {
                            self.flush(name).await?;
                        }
                    }
                    _ => {}
                },
                _ => {}
            }
        }
        Ok(())
    }

    async fn control(&mut self, command: &str) -> Result<()> {
        match command.split_whitespace().collect::<Vec<_>>().as_slice() {
            ["FLUSH", table] => self.flush(TableReference::parse_str(table)).await,
            ["RESTART"] => {
                self.close().await?;
                self.start_again().await
            }
            ["CRASH"] => self.start_again().await,
            _ => Err(DFSqlLogicTestError::Other(format!(
                "no such statement: CONTROL {command}; there are FLUSH t, RESTART and CRASH"
            ))),
        }
    }

    /// Other tables than ours have nothing to flush.
    async fn flush(&self, name: TableReference) -> Result<()> {
        let provider = self.session.table_provider(name).await?;
        if let Some(ours) = provider.downcast_ref::<MemWalTableProvider>() {
            ours.table().flush().await.map_err(DataFusionError::from)?;
        }
        Ok(())
    }

    async fn close(&self) -> Result<()> {
        for (name, _) in &self.created {
            let provider = self.session.table_provider(name.clone()).await?;
            if let Some(ours) = provider.downcast_ref::<MemWalTableProvider>() {
                ours.table().close().await.map_err(DataFusionError::from)?;
            }
        }
        Ok(())
    }

    /// The session that is there is dropped BEFORE the new one opens the tables.
    async fn start_again(&mut self) -> Result<()> {
        self.session = session(self.variant).await?;
        for (_, sql) in &self.created {
            run(&self.session, sql).await?;
        }
        Ok(())
    }

    fn places(&self) -> [(&'static str, String); 3] {
        let path = self.work_dir.path();
        let name = path.file_name().map(Path::new).unwrap_or(path);
        [
            ("${WORK_DIR}", path.display().to_string()),
            ("${WORK_NAME}", name.display().to_string()),
            ("${REPOSITORY}", REPOSITORY.to_string()),
        ]
    }

    /// `sql` with the directories of this run in the places that are kept for them.
    fn fill_in(&self, sql: &str) -> String {
        let fill = |sql: String, (place, value): (&str, String)| sql.replace(place, &value);
        self.places().into_iter().fold(sql.to_string(), fill)
    }

    /// `text` with the places instead of directories, so that it is the same in every run.
    fn blank(&self, text: &str) -> String {
        let blank = |text: String, (place, value): (&str, String)| {
            // An object path has no slash before it.
            text.replace(&value, place)
                .replace(value.trim_start_matches('/'), place)
        };
        self.places().into_iter().fold(text.to_string(), blank)
    }
}

#[async_trait]
impl AsyncDB for Engine {
    type Error = DFSqlLogicTestError;
    type ColumnType = DFColumnType;

    async fn run(&mut self, sql: &str) -> Result<DFOutput> {
        if let Some(command) = sql.trim().strip_prefix("CONTROL ") {
            self.control(command).await?;
            return Ok(DBOutput::StatementComplete(0));
        }
        let (schema, batches) = self
            .execute(sql)
            .await
            .map_err(|error| DFSqlLogicTestError::Other(self.blank(&error.to_string())))?;
        let types = convert_schema_to_types(schema.fields());
        let rows = convert_batches(&schema, batches, false)?;
        if rows.is_empty() && types.is_empty() {
            return Ok(DBOutput::StatementComplete(0));
        }
        let blank = |row: Vec<String>| row.iter().map(|cell| self.blank(cell)).collect();
        let rows = rows.into_iter().map(blank).collect();
        Ok(DBOutput::Rows { types, rows })
    }

    /// A file may leave a table that cannot be closed, so that an error is no failure here.
    async fn shutdown(&mut self) {
        self.close().await.ok();
    }

    fn engine_name(&self) -> &str {
        "memwal"
    }
}

/// Set up as a user would, but for a fixed number of partitions.
async fn session(variant: Variant) -> Result<SessionContext> {
    let config = SessionConfig::new()
        .with_target_partitions(TARGET_PARTITIONS)
        .with_information_schema(true);
    let state = SessionStateBuilder::new()
        .with_default_features()
        .with_config(config)
        .with_memwal()
        .build();
    let session = SessionContext::new_with_state(state);
    if !variant.short_cuts {
        run(&session, "SET memwal.key_index = false").await?;
        run(&session, "SET memwal.lance_pushdown = false").await?;
    }
    Ok(session)
}

async fn run(session: &SessionContext, sql: &str) -> Result<()> {
    let frame = session.sql(sql).await?;
    let task = Arc::new(frame.task_ctx());
    collect(frame.create_physical_plan().await?, task).await?;
    Ok(())
}
