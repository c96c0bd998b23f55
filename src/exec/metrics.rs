//! What EXPLAIN ANALYZE counts for one partition of one tier.

use datafusion::physical_plan::metrics::{
    BaselineMetrics, Count, ExecutionPlanMetricsSet, MetricBuilder,
};

/// The counters of one partition of a tier's operator.
#[derive(Debug, Clone)]
pub(super) struct TierMetrics {
    pub(super) baseline: BaselineMetrics,
    /// Rows that came out of the tier, dead ones included.
    pub(super) rows_read: Count,
    /// Dead rows that the mask dropped.
    pub(super) rows_masked: Count,
    /// Live rows that the filter dropped.
    pub(super) rows_filtered: Count,
    /// Generations that hold none of the keys that were asked for.
    pub(super) generations_skipped: Count,
    /// Keys that were looked up in the tier's key index.
    pub(super) key_lookups: Count,
}

impl TierMetrics {
    pub(super) fn new(set: &ExecutionPlanMetricsSet, partition: usize) -> Self {
        let counter = |name: &'static str| MetricBuilder::new(set).counter(name, partition);
        Self {
            baseline: BaselineMetrics::new(set, partition),
            rows_read: counter("rows_read"),
            rows_masked: counter("rows_masked"),
            rows_filtered: counter("rows_filtered"),
            generations_skipped: counter("generations_skipped"),
            key_lookups: counter("key_lookups"),
        }
    }
}
