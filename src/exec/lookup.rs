//! Rows of one tier found through its key index.

use std::fmt;
use std::sync::Arc;

use datafusion::common::Statistics;
use datafusion::common::stats::Precision;
use datafusion::error::{DataFusionError, Result as DataFusionResult};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::metrics::{ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};
use futures::{StreamExt, TryStreamExt, stream};

use super::key_condition::borrowed;
use super::lance_scan::lance_rows;
use super::mask::RowStep;
use super::memtable_scan::memtable_rows;
use super::metrics::TierMetrics;
use super::properties::{about, plan_properties};
use super::tier::Tier;
use super::{KeyCondition, ScanRequest};
use crate::error::{Error, Result};
use crate::index::key::SortedKeys;
use crate::table::TableSnapshot;

/// A range that holds more rows of a tier than this, and more than a quarter of it, is
/// read by a scan: Lance reads pages, not rows, and a memtable hands out whole buffers.
const MOST_TAKEN_ROWS: u64 = 1_024;

/// Finds the rows of a key condition in one tier.
#[derive(Debug, Clone)]
pub(super) struct IndexLookupExec {
    snapshot: TableSnapshot,
    tier: Tier,
    request: Arc<ScanRequest>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl IndexLookupExec {
    pub(super) fn new(snapshot: &TableSnapshot, tier: Tier, request: &Arc<ScanRequest>) -> Self {
        Self {
            snapshot: snapshot.clone(),
            tier,
            request: Arc::clone(request),
            properties: plan_properties(request.projected(), 1),
            metrics: ExecutionPlanMetricsSet::new(),
        }
    }
}

impl DisplayAs for IndexLookupExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IndexLookupExec: {}, index=key", self.tier)?;
        match self.request.key() {
            Some(key) => write!(f, ", {key}"),
            None => Ok(()),
        }
    }
}

impl ExecutionPlan for IndexLookupExec {
    fn name(&self) -> &str {
        "IndexLookupExec"
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
        partition: usize,
        context: Arc<TaskContext>,
    ) -> DataFusionResult<SendableRecordBatchStream> {
        let metrics = TierMetrics::new(&self.metrics, partition);
        let step = RowStep::new(&self.request, &metrics);
        let (tier, snapshot) = (self.tier.clone(), self.snapshot.clone());
        let request = Arc::clone(&self.request);
        let rows = stream::once(async move {
            let found = find(&tier, &request, &metrics).await?;
            let is_wide = found.len() as u64 > MOST_TAKEN_ROWS.max(tier.rows() / 4);
            if is_wide {
                return Ok(match &tier {
                    Tier::Memtable(memtable, _) => {
                        let (memtable, all) =
                            (Arc::clone(memtable), 0..memtable.view.segments().len());
                        memtable_rows(snapshot, tier, memtable, request, all, step)
                    }
                    _ => lance_rows(snapshot, tier, request, None, step, context),
                });
            }
            let live = without_dead(found, &tier, &snapshot, &metrics).await?;
            let batch_rows = context.session_config().batch_size().max(1);
            let chunks: Vec<Vec<u64>> = live.chunks(batch_rows).map(<[u64]>::to_vec).collect();
            let schema = Arc::clone(request.projected());
            let batches = stream::iter(chunks).then(move |rows| {
                let (tier, request, step) = (tier.clone(), Arc::clone(&request), step.clone());
                async move {
                    let columns = tier.take(&rows, &request).await?;
                    Ok(step.apply(columns, rows.len(), None)?)
                }
            });
            let batches: SendableRecordBatchStream =
                Box::pin(RecordBatchStreamAdapter::new(schema, batches));
            Ok::<_, DataFusionError>(batches)
        })
        .try_flatten()
        .try_filter(|batch| std::future::ready(batch.num_rows() > 0));
        let schema = Arc::clone(self.request.projected());
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, rows)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn partition_statistics(&self, _: Option<usize>) -> DataFusionResult<Arc<Statistics>> {
        let tier = usize::try_from(self.tier.rows()).unwrap_or(usize::MAX);
        let rows = match self.request.key() {
            Some(KeyCondition::Points(points)) => points.len().min(tier),
            _ => tier,
        };
        Ok(Arc::new(about(
            Precision::Inexact(rows),
            self.request.projected().fields().len(),
        )))
    }
}

/// The newest row of each key of the condition, in the order of insertion.
async fn find(tier: &Tier, request: &ScanRequest, metrics: &TierMetrics) -> Result<Vec<u64>> {
    let key = request
        .key()
        .ok_or_else(|| Error::internal("a lookup without a condition on the key"))?;
    metrics.key_lookups.add(match key {
        KeyCondition::Points(points) => points.len(),
        KeyCondition::Range(_, _) => 1,
    });
    let mut rows = match tier {
        Tier::Memtable(tier, _) => {
            let view = &tier.view;
            let rows: Vec<u32> = match key {
                KeyCondition::Points(points) => points
                    .iter()
                    .filter_map(|point| view.lookup(point.key.as_ref()))
                    .collect(),
                KeyCondition::Range(lower, upper) => view.range(borrowed(lower), borrowed(upper)),
            };
            rows.into_iter()
                .filter(|&row| !view.is_tombstone(row))
                .map(u64::from)
                .collect()
        }
        Tier::Generation(tier, _) => {
            let key = match key {
                KeyCondition::Points(points) => {
                    let maybe: Vec<_> = points
                        .iter()
                        .filter(|point| tier.may_contain(&point.values))
                        .cloned()
                        .collect();
                    if maybe.is_empty() {
                        metrics.generations_skipped.add(1);
                        return Ok(Vec::new());
                    }
                    &KeyCondition::Points(maybe)
                }
                range => range,
            };
            let keys = tier.keys().await?;
            find_sorted(&keys, key)
        }
        Tier::Base(tier) => {
            let keys = tier.keys().await?;
            find_sorted(&keys, key)
        }
    };
    rows.sort_unstable();
    rows.dedup();
    Ok(rows)
}

fn find_sorted(keys: &SortedKeys, condition: &KeyCondition) -> Vec<u64> {
    match condition {
        KeyCondition::Points(points) => points
            .iter()
            .filter_map(|point| keys.lookup(point.key.as_ref()))
            .collect(),
        KeyCondition::Range(lower, upper) => keys.range(borrowed(lower), borrowed(upper)).to_vec(),
    }
}

async fn without_dead(
    mut rows: Vec<u64>,
    tier: &Tier,
    snapshot: &TableSnapshot,
    metrics: &TierMetrics,
) -> Result<Vec<u64>> {
    // No row, no mask: a lookup of a missing key reads nothing else.
    if rows.is_empty() {
        return Ok(rows);
    }
    if let Some(dead) = tier.dead(snapshot).await? {
        let found = rows.len();
        rows.retain(|row| !dead.contains(*row));
        metrics.rows_read.add(found - rows.len());
        metrics.rows_masked.add(found - rows.len());
    }
    Ok(rows)
}
