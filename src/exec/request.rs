//! What one scan asks of every tier.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::logical_expr::Expr;
use datafusion::physical_expr::utils::{collect_columns, reassign_expr_columns};
use datafusion::physical_expr::{PhysicalExpr, conjunction};

use super::KeyCondition;
use crate::error::Result;
use crate::schema::TableSchema;

/// A projection and a filter over the logical columns, resolved once for all tiers.
#[derive(Debug)]
pub(crate) struct ScanRequest {
    projected: SchemaRef,
    filters: Vec<Arc<dyn PhysicalExpr>>,
    read: Vec<usize>,
    read_names: Vec<String>,
    read_schema: SchemaRef,
    predicate: Option<Arc<dyn PhysicalExpr>>,
    output: Vec<usize>,
    lance_filter: Option<Expr>,
    key: Option<KeyCondition>,
    keyed: bool,
}

impl ScanRequest {
    /// `projection` are positions in the logical schema, over which `filters` are
    /// built. `lance_filter` may only drop rows that `filters` drop as well, and
    /// `key` must admit every row that they admit.
    pub(crate) fn try_new(
        schema: &TableSchema,
        projection: &[usize],
        filters: Vec<Arc<dyn PhysicalExpr>>,
        lance_filter: Option<Expr>,
        key: Option<KeyCondition>,
    ) -> Result<Self> {
        let logical = schema.logical();
        let mut read: BTreeSet<usize> = projection.iter().copied().collect();
        for filter in &filters {
            read.extend(collect_columns(filter).iter().map(|column| column.index()));
        }
        let read: Vec<usize> = read.into_iter().collect();
        let read_schema = Arc::new(logical.project(&read)?);
        let predicate = match filters.is_empty() {
            true => None,
            false => Some(reassign_expr_columns(
                conjunction(filters.iter().map(Arc::clone)),
                &read_schema,
            )?),
        };
        let output = projection
            .iter()
            .filter_map(|column| read.binary_search(column).ok())
            .collect();
        Ok(Self {
            projected: Arc::new(logical.project(projection)?),
            filters,
            read_names: read_schema
                .fields()
                .iter()
                .map(|field| field.name().clone())
                .collect(),
            read,
            read_schema,
            predicate,
            output,
            lance_filter,
            key,
            keyed: schema.is_keyed(),
        })
    }

    /// The schema of the scan's output.
    pub(crate) fn projected(&self) -> &SchemaRef {
        &self.projected
    }

    /// The columns that a tier must read, as positions in the logical schema: those
    /// of the output and those of the filter.
    pub(super) fn read(&self) -> &[usize] {
        &self.read
    }

    /// Their names.
    pub(super) fn read_names(&self) -> &[String] {
        &self.read_names
    }

    /// Their logical fields.
    pub(super) fn read_schema(&self) -> &SchemaRef {
        &self.read_schema
    }

    /// The whole filter, over [`Self::read`].
    pub(super) fn predicate(&self) -> Option<&Arc<dyn PhysicalExpr>> {
        self.predicate.as_ref()
    }

    /// The positions of the output columns in [`Self::read`].
    pub(super) fn output(&self) -> &[usize] {
        &self.output
    }

    /// What Lance may use to skip rows.
    pub(super) fn lance_filter(&self) -> Option<&Expr> {
        self.lance_filter.as_ref()
    }

    /// The keys that the filter admits, if it says so.
    pub(super) fn key(&self) -> Option<&KeyCondition> {
        self.key.as_ref()
    }

    /// Whether the scan has a filter.
    pub(super) fn is_filtered(&self) -> bool {
        self.predicate.is_some()
    }

    /// Whether the table has a key, so that a tier can hold dead rows.
    pub(super) fn is_keyed(&self) -> bool {
        self.keyed
    }
}

impl fmt::Display for ScanRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self
            .projected
            .fields()
            .iter()
            .map(|field| field.name().as_str())
            .collect();
        write!(f, "projection=[{}]", names.join(", "))?;
        if !self.filters.is_empty() {
            let filters: Vec<String> = self.filters.iter().map(ToString::to_string).collect();
            write!(f, ", filters=[{}]", filters.join(" AND "))?;
        }
        Ok(())
    }
}
