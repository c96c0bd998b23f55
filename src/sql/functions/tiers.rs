//! `SELECT * FROM memwal_tiers('t')`: what lies where.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::array::{ArrayRef, RecordBatch, StringArray, UInt64Array};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::catalog::{TableFunctionArgs, TableFunctionImpl, TableProvider};
use datafusion::error::Result as DataFusionResult;

use super::call::{CallTable, TableCall};
use super::resolve::resolve_table;
use crate::error::Result;
use crate::table::{MemWalTable, TierStats};

/// One row for each tier, newest first.
#[derive(Debug)]
pub(crate) struct MemWalTiersFunction;

impl MemWalTiersFunction {
    pub(crate) const NAME: &'static str = "memwal_tiers";
}

impl TableFunctionImpl for MemWalTiersFunction {
    fn call_with_args(&self, args: TableFunctionArgs) -> DataFusionResult<Arc<dyn TableProvider>> {
        Ok(Arc::new(CallTable {
            table: resolve_table(Self::NAME, &args)?,
            call: Arc::new(TiersCall),
        }))
    }
}

#[derive(Debug)]
struct TiersCall;

#[async_trait]
impl TableCall for TiersCall {
    fn name(&self) -> &'static str {
        MemWalTiersFunction::NAME
    }

    fn schema(&self) -> SchemaRef {
        let count = |name: &str, nullable| Field::new(name, DataType::UInt64, nullable);
        Arc::new(Schema::new(vec![
            Field::new("tier", DataType::Utf8, false),
            count("generation", true),
            count("rows", false),
            count("visible_rows", true),
            count("bytes", false),
            count("wal_first", true),
            count("wal_last", true),
            count("lag_batches", false),
        ]))
    }

    async fn run(&self, table: &MemWalTable) -> Result<RecordBatch> {
        let tiers = table.tiers().await?;
        let count = |of: fn(&TierStats) -> Option<u64>| -> ArrayRef {
            Arc::new(tiers.iter().map(of).collect::<UInt64Array>())
        };
        let columns: Vec<ArrayRef> = vec![
            Arc::new(StringArray::from_iter_values(
                tiers.iter().map(|tier| tier.tier),
            )),
            count(|tier| tier.generation),
            count(|tier| Some(tier.rows)),
            count(|tier| tier.visible_rows),
            count(|tier| Some(tier.bytes)),
            count(|tier| tier.wal_first),
            count(|tier| tier.wal_last),
            count(|tier| Some(tier.lag_batches)),
        ];
        Ok(RecordBatch::try_new(self.schema(), columns)?)
    }
}
