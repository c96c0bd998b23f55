//! A table as DataFusion's planner sees it.
//!
//! Ours to do: the snapshot, the choice of access, INSERT. Handed on: DELETE and UPDATE,
//! whose hooks refuse, since DataFusion 54.1 may call them without the WHERE clause
//! (apache/datafusion#24654); an analyzer rule will carry both.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{ScanArgs, ScanResult, Session, TableProvider};
use datafusion::common::{Constraint, Constraints, DFSchema};
use datafusion::datasource::TableType;
use datafusion::datasource::sink::DataSinkExec;
use datafusion::error::Result as DataFusionResult;
use datafusion::logical_expr::dml::InsertOp;
use datafusion::logical_expr::execution_props::ExecutionProps;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown};
use datafusion::physical_plan::ExecutionPlan;

use super::definition::create_statement;
use super::sink::MemWalSink;
use crate::error::Error;
use crate::exec::{KeyCondition, MemWalScanExec, ScanRequest, is_exact, lance_filter, physical};
use crate::session_options::SessionOptions;
use crate::table::MemWalTable;

/// A [`MemWalTable`] for SQL. It stays live: each statement sees what was written before it.
#[derive(Debug)]
pub struct MemWalTableProvider {
    table: MemWalTable,
    name: String,
    constraints: Constraints,
    definition: String,
}

impl MemWalTableProvider {
    /// The provider of `table`, called in messages and in SHOW CREATE TABLE by the last
    /// part of its location.
    pub fn new(table: MemWalTable) -> Self {
        let location = table.uri().trim_end_matches('/');
        let name = location.rsplit('/').next().unwrap_or(location).to_string();
        Self::with_name(table, &name)
    }

    /// The provider of `table`, called `name`.
    pub fn with_name(table: MemWalTable, name: &str) -> Self {
        let constraints = match table.primary_key() {
            [] => Constraints::default(),
            key => Constraints::new_unverified(vec![Constraint::PrimaryKey(key.to_vec())]),
        };
        Self {
            definition: create_statement(name, &table),
            name: name.to_string(),
            constraints,
            table,
        }
    }

    /// The table.
    pub fn table(&self) -> &MemWalTable {
        &self.table
    }

    fn refuse(&self, statement: &str, remedy: &str) -> Error {
        Error::unsupported(format!(
            "{statement} on table '{}' is not part of this version; {remedy}",
            self.name
        ))
    }
}

#[async_trait]
impl TableProvider for MemWalTableProvider {
    fn schema(&self) -> SchemaRef {
        self.table.schema()
    }

    fn constraints(&self) -> Option<&Constraints> {
        Some(&self.constraints)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn get_table_definition(&self) -> Option<&str> {
        Some(&self.definition)
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> DataFusionResult<Arc<dyn ExecutionPlan>> {
        let args = ScanArgs::default()
            .with_projection(projection.map(Vec::as_slice))
            .with_filters(Some(filters))
            .with_limit(limit);
        Ok(self.scan_with_args(state, args).await?.into_inner())
    }

    async fn scan_with_args<'a>(
        &self,
        state: &dyn Session,
        args: ScanArgs<'a>,
    ) -> DataFusionResult<ScanResult> {
        let default = SessionOptions::default();
        let options = state.config_options().extensions.get().unwrap_or(&default);
        let snapshot = self.table.snapshot()?;
        let schema = Arc::clone(snapshot.schema());
        let logical = schema.logical();

        let all: Vec<usize> = (0..logical.fields().len()).collect();
        let projection = args.projection().unwrap_or(&all);
        let filters = args.filters().unwrap_or_default();
        let named = DFSchema::try_from(Arc::clone(logical))?;
        let evaluated = filters
            .iter()
            .map(|filter| physical(filter, &named, state.execution_props()))
            .collect::<Result<Vec<_>, _>>()?;
        let key = match snapshot.codec() {
            Some(codec) if options.key_index => KeyCondition::of(filters, codec)?,
            _ => None,
        };
        let for_lance = match options.lance_pushdown {
            true => lance_filter(filters, logical),
            false => None,
        };
        let request = ScanRequest::try_new(&schema, projection, evaluated, for_lance, key)?;
        let partitions = state.config().target_partitions();
        let scan = MemWalScanExec::plan(snapshot, request, args.limit(), partitions).await?;
        Ok(ScanResult::new(Arc::new(scan)))
    }

    fn supports_filters_pushdown(
        &self,
        filters: &[&Expr],
    ) -> DataFusionResult<Vec<TableProviderFilterPushDown>> {
        let schema = DFSchema::try_from(self.table.schema())?;
        let props = ExecutionProps::new();
        Ok(filters
            .iter()
            .map(|filter| match is_exact(filter, &schema, &props) {
                true => TableProviderFilterPushDown::Exact,
                false => TableProviderFilterPushDown::Unsupported,
            })
            .collect())
    }

    async fn insert_into(
        &self,
        _: &dyn Session,
        input: Arc<dyn ExecutionPlan>,
        insert_op: InsertOp,
    ) -> DataFusionResult<Arc<dyn ExecutionPlan>> {
        match insert_op {
            InsertOp::Append => {
                let sink = MemWalSink::try_new(&self.name, self.table.clone(), &input.schema())?;
                Ok(Arc::new(DataSinkExec::new(input, Arc::new(sink), None)))
            }
            InsertOp::Overwrite => Err(self.refuse("INSERT OVERWRITE", "use INSERT INTO").into()),
            InsertOp::Replace => {
                let remedy = match self.table.primary_key() {
                    [] => "the table has no key, so use INSERT INTO",
                    _ => "use INSERT INTO, which replaces the row of a key that exists",
                };
                Err(self.refuse("REPLACE INTO", remedy).into())
            }
        }
    }

    async fn delete_from(
        &self,
        _: &dyn Session,
        _: Vec<Expr>,
    ) -> DataFusionResult<Arc<dyn ExecutionPlan>> {
        Err(self
            .refuse("DELETE", "rows can be replaced by INSERT INTO")
            .into())
    }

    async fn update(
        &self,
        _: &dyn Session,
        _: Vec<(String, Expr)>,
        _: Vec<Expr>,
    ) -> DataFusionResult<Arc<dyn ExecutionPlan>> {
        let remedy = "INSERT INTO replaces the row of a key that exists";
        Err(self.refuse("UPDATE", remedy).into())
    }

    async fn truncate(&self, _: &dyn Session) -> DataFusionResult<Arc<dyn ExecutionPlan>> {
        let remedy = "create a table at another location";
        Err(self.refuse("TRUNCATE", remedy).into())
    }
}
