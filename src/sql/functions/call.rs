//! A table function whose rows are made by one asynchronous call when the plan runs.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{Session, TableProvider};
use datafusion::datasource::TableType;
use datafusion::error::{DataFusionError, Result as DataFusionResult};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::Expr;
use datafusion::physical_expr::EquivalenceProperties;
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties,
};
use futures::stream;
use tokio::sync::OnceCell;

use crate::error::Result;
use crate::table::MemWalTable;

/// What a function does with its table.
#[async_trait]
pub(super) trait TableCall: fmt::Debug + Send + Sync + 'static {
    /// The function's name in SQL.
    fn name(&self) -> &'static str;
    /// The columns of its rows.
    fn schema(&self) -> SchemaRef;
    /// Does the work and makes the rows.
    async fn run(&self, table: &MemWalTable) -> Result<RecordBatch>;
}

/// A call, as a table that is read.
#[derive(Debug)]
pub(super) struct CallTable {
    pub(super) table: MemWalTable,
    pub(super) call: Arc<dyn TableCall>,
}

#[async_trait]
impl TableProvider for CallTable {
    fn schema(&self) -> SchemaRef {
        self.call.schema()
    }

    fn table_type(&self) -> TableType {
        TableType::Temporary
    }

    async fn scan(
        &self,
        _: &dyn Session,
        projection: Option<&Vec<usize>>,
        _: &[Expr],
        _: Option<usize>,
    ) -> DataFusionResult<Arc<dyn ExecutionPlan>> {
        let schema = match projection {
            Some(columns) => Arc::new(self.call.schema().project(columns)?),
            None => self.call.schema(),
        };
        Ok(Arc::new(CallExec {
            table: self.table.clone(),
            call: Arc::clone(&self.call),
            projection: projection.cloned(),
            result: Arc::default(),
            properties: Arc::new(PlanProperties::new(
                EquivalenceProperties::new(schema),
                Partitioning::UnknownPartitioning(1),
                EmissionType::Final,
                Boundedness::Bounded,
            )),
        }))
    }
}

/// Runs a call, once however often the plan is executed.
#[derive(Debug)]
struct CallExec {
    table: MemWalTable,
    call: Arc<dyn TableCall>,
    projection: Option<Vec<usize>>,
    result: Arc<OnceCell<RecordBatch>>,
    properties: Arc<PlanProperties>,
}

impl DisplayAs for CallExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "CallExec: {}, table={}",
            self.call.name(),
            self.table.uri()
        )
    }
}

impl ExecutionPlan for CallExec {
    fn name(&self) -> &str {
        "CallExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }

    fn with_new_children(
        self: Arc<Self>,
        _: Vec<Arc<dyn ExecutionPlan>>,
    ) -> DataFusionResult<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn execute(
        &self,
        _: usize,
        _: Arc<TaskContext>,
    ) -> DataFusionResult<SendableRecordBatchStream> {
        let (table, call) = (self.table.clone(), Arc::clone(&self.call));
        let (result, projection) = (Arc::clone(&self.result), self.projection.clone());
        let rows = stream::once(async move {
            let batch = result.get_or_try_init(|| call.run(&table)).await?;
            Ok::<_, DataFusionError>(match projection {
                Some(columns) => batch.project(&columns)?,
                None => batch.clone(),
            })
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), rows)))
    }
}
