//! The scan of a table: the union of its tiers.

use std::fmt;
use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::common::Statistics;
use datafusion::common::stats::Precision;
use datafusion::config::ConfigOptions;
use datafusion::error::{DataFusionError, Result as DataFusionResult};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::execution_plan::CardinalityEffect;
use datafusion::physical_plan::metrics::{
    BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet, RecordOutput,
};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PlanProperties,
};
use futures::{Stream, StreamExt, TryStreamExt, stream};

use super::ScanRequest;
use super::lance_scan::{LancePlan, LanceScanExec};
use super::lookup::IndexLookupExec;
use super::memtable_scan::MemtableScanExec;
use super::properties::{about, plan_properties};
use super::tier::Tier;
use crate::error::{Error, Result};
use crate::table::TableSnapshot;

/// Rows below which a partition of its own costs more than it brings. A table smaller
/// than this is read by one partition, in the order of insertion.
const LEAST_PARTITION_ROWS: usize = 32_768;

/// Reads one snapshot of a table: the union of its tiers, oldest first.
///
/// `fetch` counts the rows of each partition, after masks and filters.
#[derive(Debug, Clone)]
pub(crate) struct MemWalScanExec {
    snapshot: TableSnapshot,
    request: Arc<ScanRequest>,
    fetch: Option<usize>,
    target_partitions: usize,
    inputs: Vec<Arc<dyn ExecutionPlan>>,
    /// For each partition the (input, partition of the input) pairs that it chains.
    groups: Vec<Vec<(usize, usize)>>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl MemWalScanExec {
    /// Plans the scan, with Lance's plan for each tier that Lance stores.
    pub(crate) async fn plan(
        snapshot: TableSnapshot,
        request: ScanRequest,
        fetch: Option<usize>,
        target_partitions: usize,
    ) -> Result<Self> {
        let mut lance = Vec::new();
        if request.key().is_none() {
            for tier in Tier::oldest_first(&snapshot) {
                if let Some(plan) = tier.lance_plan(&request).await? {
                    lance.push((tier, LancePlan::new(plan)));
                }
            }
        }
        Ok(Self::build(
            snapshot,
            Arc::new(request),
            fetch,
            target_partitions,
            &lance,
        ))
    }

    fn build(
        snapshot: TableSnapshot,
        request: Arc<ScanRequest>,
        fetch: Option<usize>,
        target_partitions: usize,
        lance: &[(Tier, LancePlan)],
    ) -> Self {
        let inputs: Vec<Arc<dyn ExecutionPlan>> = Tier::oldest_first(&snapshot)
            .into_iter()
            .map(|tier| -> Arc<dyn ExecutionPlan> {
                match tier {
                    tier if request.key().is_some() => {
                        Arc::new(IndexLookupExec::new(&snapshot, tier, &request))
                    }
                    Tier::Memtable(memtable, index) => {
                        Arc::new(MemtableScanExec::new(&snapshot, &memtable, index, &request))
                    }
                    tier => {
                        let plan = lance
                            .iter()
                            .find(|(planned, _)| planned.is_same_dataset(&tier))
                            .map(|(_, plan)| plan.clone());
                        Arc::new(LanceScanExec::new(&snapshot, tier, &request, plan))
                    }
                }
            })
            .collect();
        let groups = groups(&inputs, target_partitions);
        Self {
            properties: plan_properties(request.projected(), groups.len()),
            snapshot,
            request,
            fetch,
            target_partitions,
            inputs,
            groups,
            metrics: ExecutionPlanMetricsSet::new(),
        }
    }

    /// The state of the table that this scan reads.
    pub(crate) fn snapshot(&self) -> &TableSnapshot {
        &self.snapshot
    }

    /// The same scan of another snapshot of the same table. Lance's plans are kept for
    /// tiers that both snapshots have; the rest is planned when the scan runs.
    pub(crate) fn with_snapshot(&self, snapshot: TableSnapshot) -> Arc<Self> {
        let lance: Vec<_> = self
            .inputs
            .iter()
            .filter_map(|input| input.downcast_ref::<LanceScanExec>())
            .filter_map(|scan| Some((scan.tier().clone(), scan.lance()?.clone())))
            .collect();
        Arc::new(Self::build(
            snapshot,
            Arc::clone(&self.request),
            self.fetch,
            self.target_partitions,
            &lance,
        ))
    }

    /// Rows of all tiers, dead ones included.
    fn rows(&self) -> usize {
        let tiers = Tier::oldest_first(&self.snapshot);
        usize::try_from(tiers.iter().map(Tier::rows).sum::<u64>()).unwrap_or(usize::MAX)
    }
}

/// Deals the partitions of all inputs, in order, to at most `target` runs of about as
/// many rows each; at least one run.
fn groups(inputs: &[Arc<dyn ExecutionPlan>], target: usize) -> Vec<Vec<(usize, usize)>> {
    let mut units = Vec::new();
    for (index, input) in inputs.iter().enumerate() {
        for partition in 0..input.output_partitioning().partition_count() {
            let rows = input
                .partition_statistics(Some(partition))
                .ok()
                .and_then(|statistics| statistics.num_rows.get_value().copied())
                .unwrap_or(0);
            units.push(((index, partition), rows));
        }
    }
    let total: usize = units.iter().map(|(_, rows)| rows).sum();
    let count = (total / LEAST_PARTITION_ROWS).clamp(1, target.max(1));
    let share = total.div_ceil(count).max(1);
    let mut groups = vec![Vec::new()];
    let mut rows_so_far = 0;
    for (unit, rows) in units {
        if rows_so_far >= share * groups.len() && groups.len() < count {
            groups.push(Vec::new());
        }
        rows_so_far += rows;
        if let Some(last) = groups.last_mut() {
            last.push(unit);
        }
    }
    groups
}

/// The first `fetch` rows of `rows`; it is not polled again once they are there.
fn first_rows<S>(rows: S, fetch: usize) -> impl Stream<Item = DataFusionResult<RecordBatch>> + Send
where
    S: Stream<Item = DataFusionResult<RecordBatch>> + Send + Unpin,
{
    stream::try_unfold((rows, fetch), |(mut rows, left)| async move {
        if left == 0 {
            return Ok(None);
        }
        Ok(rows.try_next().await?.map(|batch| {
            let batch = match batch.num_rows() > left {
                true => batch.slice(0, left),
                false => batch,
            };
            let left = left - batch.num_rows();
            (batch, (rows, left))
        }))
    })
}

impl DisplayAs for MemWalScanExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "MemWalScanExec: table={}, {}",
            self.snapshot.schema().table(),
            self.request
        )?;
        if self.request.key().is_some() {
            f.write_str(", index=key")?;
        }
        match self.fetch {
            Some(fetch) => write!(f, ", fetch={fetch}"),
            None => Ok(()),
        }
    }
}

impl ExecutionPlan for MemWalScanExec {
    fn name(&self) -> &str {
        "MemWalScanExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        self.inputs.iter().collect()
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false; self.inputs.len()]
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![false; self.inputs.len()]
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> DataFusionResult<Arc<dyn ExecutionPlan>> {
        let count = |input: &Arc<dyn ExecutionPlan>| input.output_partitioning().partition_count();
        let mut changed = self.as_ref().clone();
        if children.len() != self.inputs.len()
            || children.iter().map(count).ne(self.inputs.iter().map(count))
        {
            changed.groups = groups(&children, self.target_partitions);
            changed.properties = plan_properties(self.request.projected(), changed.groups.len());
        }
        changed.inputs = children;
        changed.metrics = ExecutionPlanMetricsSet::new();
        Ok(Arc::new(changed))
    }

    fn repartitioned(
        &self,
        _: usize,
        _: &ConfigOptions,
    ) -> DataFusionResult<Option<Arc<dyn ExecutionPlan>>> {
        Ok(None)
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> DataFusionResult<SendableRecordBatchStream> {
        let group =
            self.groups.get(partition).cloned().ok_or_else(|| {
                Error::internal(format!("{}: no partition {partition}", self.name()))
            })?;
        let baseline = BaselineMetrics::new(&self.metrics, partition);
        let inputs = self.inputs.clone();
        let rows = stream::iter(group)
            .map(move |(input, partition)| match inputs.get(input) {
                Some(input) => input.execute(partition, Arc::clone(&context)),
                None => Err(DataFusionError::from(Error::internal(
                    "a scan lost an input",
                ))),
            })
            .try_flatten()
            .map_ok(move |batch| batch.record_output(&baseline));
        let schema = Arc::clone(self.request.projected());
        Ok(match self.fetch {
            None => Box::pin(RecordBatchStreamAdapter::new(schema, rows)),
            Some(fetch) => {
                let rows = first_rows(Box::pin(rows), fetch);
                Box::pin(RecordBatchStreamAdapter::new(schema, rows))
            }
        })
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    /// The rows of a table without a key are counted exactly; with a key, newer tiers
    /// may have replaced some of them.
    fn partition_statistics(&self, partition: Option<usize>) -> DataFusionResult<Arc<Statistics>> {
        let rows = match self.request.key() {
            None => self.rows(),
            Some(_) => self
                .inputs
                .iter()
                .filter_map(|input| input.partition_statistics(None).ok())
                .filter_map(|statistics| statistics.num_rows.get_value().copied())
                .sum(),
        };
        let is_exact = !self.request.is_keyed() && !self.request.is_filtered();
        let num_rows = match (partition, self.fetch) {
            (Some(_), _) if self.groups.len() > 1 => Precision::Absent,
            (_, None) if is_exact => Precision::Exact(rows),
            (_, None) => Precision::Inexact(rows),
            (_, Some(fetch)) => {
                Precision::Inexact(rows.min(fetch.saturating_mul(self.groups.len())))
            }
        };
        let columns = self.request.projected().fields().len();
        Ok(Arc::new(about(num_rows, columns)))
    }

    /// A limit ends here: below the masks it would count dead rows.
    fn supports_limit_pushdown(&self) -> bool {
        false
    }

    fn with_fetch(&self, limit: Option<usize>) -> Option<Arc<dyn ExecutionPlan>> {
        let mut changed = self.clone();
        changed.fetch = limit;
        changed.metrics = ExecutionPlanMetricsSet::new();
        Some(Arc::new(changed))
    }

    fn fetch(&self) -> Option<usize> {
        self.fetch
    }

    fn cardinality_effect(&self) -> CardinalityEffect {
        match self.fetch {
            Some(_) => CardinalityEffect::LowerEqual,
            None => CardinalityEffect::Unknown,
        }
    }
}
