//! The scan of a tier that Lance stores: a generation or the base table.
//!
//! ```text
//! GenerationScanExec: generation=3     mask, full filter, projection
//!   LanceRead: ...                     Lance's own plan: columns, `_rowaddr`
//! ```

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use datafusion::common::Statistics;
use datafusion::common::stats::Precision;
use datafusion::error::{DataFusionError, Result as DataFusionResult};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::metrics::{ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PlanProperties,
};
use futures::{StreamExt, TryStreamExt, stream};

use super::ScanRequest;
use super::mask::RowStep;
use super::metrics::TierMetrics;
use super::properties::{about, plan_properties};
use super::tier::Tier;
use crate::error::Error;
use crate::table::TableSnapshot;

/// A plan of Lance, which gives its rows once: a second run would silently find fewer.
#[derive(Debug, Clone)]
pub(super) struct LancePlan {
    plan: Arc<dyn ExecutionPlan>,
    was_run: Arc<AtomicBool>,
}

impl LancePlan {
    pub(super) fn new(plan: Arc<dyn ExecutionPlan>) -> Self {
        Self {
            plan,
            was_run: Arc::default(),
        }
    }

    /// The plan for the first caller; the others must plan again.
    fn take(&self) -> Option<Arc<dyn ExecutionPlan>> {
        let is_first = !self.was_run.swap(true, Ordering::AcqRel);
        is_first.then(|| Arc::clone(&self.plan))
    }
}

/// Reads one tier that Lance stores. Shown as `GenerationScanExec` or `BaseScanExec`.
#[derive(Debug, Clone)]
pub(super) struct LanceScanExec {
    snapshot: TableSnapshot,
    tier: Tier,
    request: Arc<ScanRequest>,
    /// Lance's plan; made when the scan runs if it was not made before.
    lance: Option<LancePlan>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl LanceScanExec {
    pub(super) fn new(
        snapshot: &TableSnapshot,
        tier: Tier,
        request: &Arc<ScanRequest>,
        lance: Option<LancePlan>,
    ) -> Self {
        Self {
            snapshot: snapshot.clone(),
            tier,
            request: Arc::clone(request),
            lance,
            properties: plan_properties(request.projected(), 1),
            metrics: ExecutionPlanMetricsSet::new(),
        }
    }

    pub(super) fn tier(&self) -> &Tier {
        &self.tier
    }

    pub(super) fn lance(&self) -> Option<&LancePlan> {
        self.lance.as_ref()
    }
}

/// The live rows of a tier that Lance stores, read from front to back.
pub(super) fn lance_rows(
    snapshot: TableSnapshot,
    tier: Tier,
    request: Arc<ScanRequest>,
    lance: Option<Arc<dyn ExecutionPlan>>,
    step: RowStep,
    context: Arc<TaskContext>,
) -> SendableRecordBatchStream {
    let schema = Arc::clone(request.projected());
    let rows = stream::once(async move {
        let lance = match lance {
            Some(lance) => Some(lance),
            None => tier.lance_plan(&request).await?,
        }
        .ok_or_else(|| Error::internal(format!("{tier} is not stored by Lance")))?;
        let dead = tier.dead(&snapshot).await?;
        let partitions = lance.output_partitioning().partition_count();
        let batches = stream::iter(0..partitions)
            .map(move |partition| lance.execute(partition, Arc::clone(&context)))
            .try_flatten();
        Ok::<_, DataFusionError>(
            batches.map(move |batch| Ok(step.apply_lance(&batch?, &tier, dead.as_deref())?)),
        )
    })
    .try_flatten()
    .try_filter(|batch| std::future::ready(batch.num_rows() > 0));
    Box::pin(RecordBatchStreamAdapter::new(schema, rows))
}

impl DisplayAs for LanceScanExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.tier {
            Tier::Base(_) => write!(f, "BaseScanExec: {}", self.tier)?,
            _ => write!(f, "GenerationScanExec: {}", self.tier)?,
        }
        if let Some(filter) = self.request.lance_filter() {
            write!(f, ", lance_filter={filter}")?;
        }
        Ok(())
    }
}

impl ExecutionPlan for LanceScanExec {
    fn name(&self) -> &str {
        match self.tier {
            Tier::Base(_) => "BaseScanExec",
            _ => "GenerationScanExec",
        }
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        self.lance.iter().map(|lance| &lance.plan).collect()
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false; self.children().len()]
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true; self.children().len()]
    }

    fn with_new_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> DataFusionResult<Arc<dyn ExecutionPlan>> {
        let mut changed = self.as_ref().clone();
        // A rule may have wrapped the same leaf: it still runs once only.
        changed.lance = match (children.pop(), &self.lance) {
            (Some(plan), Some(lance)) => Some(LancePlan {
                plan,
                was_run: Arc::clone(&lance.was_run),
            }),
            _ => None,
        };
        changed.metrics = ExecutionPlanMetricsSet::new();
        Ok(Arc::new(changed))
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> DataFusionResult<SendableRecordBatchStream> {
        let step = RowStep::new(&self.request, &TierMetrics::new(&self.metrics, partition));
        Ok(lance_rows(
            self.snapshot.clone(),
            self.tier.clone(),
            Arc::clone(&self.request),
            self.lance.as_ref().and_then(LancePlan::take),
            step,
            context,
        ))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn partition_statistics(&self, _: Option<usize>) -> DataFusionResult<Arc<Statistics>> {
        let rows = usize::try_from(self.tier.rows()).unwrap_or(usize::MAX);
        Ok(Arc::new(about(
            Precision::Inexact(rows),
            self.request.projected().fields().len(),
        )))
    }
}
