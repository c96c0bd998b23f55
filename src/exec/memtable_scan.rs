//! The scan of a memtable: the writer's own Arrow buffers, masked and filtered.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::common::Statistics;
use datafusion::common::stats::Precision;
use datafusion::error::{DataFusionError, Result as DataFusionResult};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::metrics::{ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};
use futures::{StreamExt, TryStreamExt, stream};
use roaring::RoaringTreemap;

use super::ScanRequest;
use super::mask::{RowStep, without_dead};
use super::metrics::TierMetrics;
use super::properties::{about, plan_properties};
use super::tier::Tier;
use crate::error::{Error, Result};
use crate::memtable::{MemtableView, Segment};
use crate::table::{MemtableTier, TableSnapshot};

/// Rows that are worth a partition of their own.
const PARTITION_ROWS: u64 = 32_768;

/// Reads one memtable of a snapshot. Each partition is a run of its segments.
#[derive(Debug, Clone)]
pub(super) struct MemtableScanExec {
    snapshot: TableSnapshot,
    memtable: Arc<MemtableTier>,
    tier: Tier,
    request: Arc<ScanRequest>,
    parts: Vec<Range<usize>>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl MemtableScanExec {
    pub(super) fn new(
        snapshot: &TableSnapshot,
        memtable: &Arc<MemtableTier>,
        index: usize,
        request: &Arc<ScanRequest>,
    ) -> Self {
        let parts = parts(memtable.view.segments());
        Self {
            snapshot: snapshot.clone(),
            memtable: Arc::clone(memtable),
            tier: Tier::Memtable(Arc::clone(memtable), index),
            request: Arc::clone(request),
            properties: plan_properties(request.projected(), parts.len()),
            parts,
            metrics: ExecutionPlanMetricsSet::new(),
        }
    }
}

/// Cuts the segments into runs of at least [`PARTITION_ROWS`]; at least one run.
fn parts(segments: &[Arc<Segment>]) -> Vec<Range<usize>> {
    let mut parts = Vec::new();
    let (mut start, mut rows) = (0, 0);
    for (index, segment) in segments.iter().enumerate() {
        rows += segment.batch.num_rows() as u64;
        if rows >= PARTITION_ROWS {
            parts.push(start..index + 1);
            (start, rows) = (index + 1, 0);
        }
    }
    if start < segments.len() || parts.is_empty() {
        parts.push(start..segments.len());
    }
    parts
}

impl DisplayAs for MemtableScanExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MemtableScanExec: {}", self.tier)
    }
}

impl ExecutionPlan for MemtableScanExec {
    fn name(&self) -> &str {
        "MemtableScanExec"
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
        _: Arc<TaskContext>,
    ) -> DataFusionResult<SendableRecordBatchStream> {
        let part =
            self.parts.get(partition).cloned().ok_or_else(|| {
                Error::internal(format!("{}: no partition {partition}", self.name()))
            })?;
        let step = RowStep::new(&self.request, &TierMetrics::new(&self.metrics, partition));
        Ok(memtable_rows(
            self.snapshot.clone(),
            self.tier.clone(),
            Arc::clone(&self.memtable),
            Arc::clone(&self.request),
            part,
            step,
        ))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn partition_statistics(&self, partition: Option<usize>) -> DataFusionResult<Arc<Statistics>> {
        let segments = self.memtable.view.segments();
        let part = match partition {
            None => 0..segments.len(),
            Some(partition) => self.parts.get(partition).cloned().unwrap_or(0..0),
        };
        let rows = segments
            .get(part)
            .unwrap_or_default()
            .iter()
            .map(|segment| segment.batch.num_rows())
            .sum();
        Ok(Arc::new(about(
            Precision::Inexact(rows),
            self.request.projected().fields().len(),
        )))
    }
}

/// The live rows of a run of segments, in the order of insertion.
pub(super) fn memtable_rows(
    snapshot: TableSnapshot,
    tier: Tier,
    memtable: Arc<MemtableTier>,
    request: Arc<ScanRequest>,
    part: Range<usize>,
    step: RowStep,
) -> SendableRecordBatchStream {
    let schema = Arc::clone(request.projected());
    let rows = stream::once(async move {
        let dead = tier.dead(&snapshot).await?;
        Ok::<_, DataFusionError>(stream::iter(part).map(move |index| {
            read(&memtable.view, index, &request, dead.as_deref(), &step)
                .map_err(DataFusionError::from)
        }))
    })
    .try_flatten()
    .try_filter(|batch| std::future::ready(batch.num_rows() > 0));
    Box::pin(RecordBatchStreamAdapter::new(schema, rows))
}

fn read(
    view: &MemtableView,
    index: usize,
    request: &ScanRequest,
    dead: Option<&RoaringTreemap>,
    step: &RowStep,
) -> Result<RecordBatch> {
    let segment = view
        .segments()
        .get(index)
        .ok_or_else(|| Error::internal(format!("a memtable has no segment {index}")))?;
    let own = view.live(segment);
    let live = match dead {
        None => own,
        Some(dead) => without_dead(
            own,
            u64::from(segment.start),
            segment.batch.num_rows(),
            dead,
        ),
    };
    // Row form and logical form have the same columns at the same positions.
    let columns = request
        .read()
        .iter()
        .map(|&column| Arc::clone(segment.batch.column(column)))
        .collect();
    step.apply(columns, segment.batch.num_rows(), live.as_ref())
}
