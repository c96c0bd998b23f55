//! `SELECT * FROM memwal_flush('t')`: freezes the memtable and waits for its generation.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::array::{ArrayRef, RecordBatch, UInt64Array};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::catalog::{TableFunctionArgs, TableFunctionImpl, TableProvider};
use datafusion::error::Result as DataFusionResult;

use super::call::{CallTable, TableCall};
use super::resolve::resolve_table;
use crate::error::Result;
use crate::table::MemWalTable;

/// One row: the generation that was made and its rows; NULL and 0 when there was nothing
/// to flush.
#[derive(Debug)]
pub(crate) struct MemWalFlushFunction;

impl MemWalFlushFunction {
    pub(crate) const NAME: &'static str = "memwal_flush";
}

impl TableFunctionImpl for MemWalFlushFunction {
    fn call_with_args(&self, args: TableFunctionArgs) -> DataFusionResult<Arc<dyn TableProvider>> {
        Ok(Arc::new(CallTable {
            table: resolve_table(Self::NAME, &args)?,
            call: Arc::new(FlushCall),
        }))
    }
}

#[derive(Debug)]
struct FlushCall;

#[async_trait]
impl TableCall for FlushCall {
    fn name(&self) -> &'static str {
        MemWalFlushFunction::NAME
    }

    fn schema(&self) -> SchemaRef {
        Arc::new(Schema::new(vec![
            Field::new("generation", DataType::UInt64, true),
            Field::new("rows", DataType::UInt64, false),
        ]))
    }

    async fn run(&self, table: &MemWalTable) -> Result<RecordBatch> {
        let flushed = table.flush().await?;
        let generation = flushed.as_ref().map(|flushed| flushed.generation);
        let rows = flushed.as_ref().map_or(0, |flushed| flushed.rows);
        let columns: Vec<ArrayRef> = vec![
            Arc::new(UInt64Array::from(vec![generation])),
            Arc::new(UInt64Array::from(vec![rows])),
        ];
        Ok(RecordBatch::try_new(self.schema(), columns)?)
    }
}
