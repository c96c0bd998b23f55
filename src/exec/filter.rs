//! Which conditions a scan answers itself, and which of them Lance may see too.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Schema};
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::execution::context::ExecutionProps;
use datafusion::logical_expr::expr_rewriter::unnormalize_col;
use datafusion::logical_expr::utils::conjunction;
use datafusion::logical_expr::{BinaryExpr, Expr, Operator};
use datafusion::physical_expr::{PhysicalExpr, create_physical_expr};

use crate::error::Result;

/// `filter` over the logical schema, ready to be evaluated.
pub(crate) fn physical(
    filter: &Expr,
    schema: &DFSchema,
    props: &ExecutionProps,
) -> Result<Arc<dyn PhysicalExpr>> {
    Ok(create_physical_expr(
        &unnormalize_col(filter.clone()),
        schema,
        props,
    )?)
}

/// Whether the scan can answer `filter` alone: it gives the same value for the same
/// row whenever it is asked, and needs nothing but the row.
pub(crate) fn is_exact(filter: &Expr, schema: &DFSchema, props: &ExecutionProps) -> bool {
    !filter.is_volatile()
        && !needs_more_than_a_row(filter)
        && physical(filter, schema, props).is_ok()
}

fn needs_more_than_a_row(filter: &Expr) -> bool {
    let mut found = false;
    let walked = filter.apply(|expr| {
        found = found
            || matches!(
                expr,
                Expr::Exists(_)
                    | Expr::InSubquery(_)
                    | Expr::SetComparison(_)
                    | Expr::ScalarSubquery(_)
                    | Expr::OuterReferenceColumn(_, _)
                    | Expr::AggregateFunction(_)
                    | Expr::WindowFunction(_)
                    | Expr::GroupingSet(_)
                    | Expr::Placeholder(_)
                    | Expr::Unnest(_)
            );
        Ok(match found {
            true => TreeNodeRecursion::Stop,
            false => TreeNodeRecursion::Continue,
        })
    });
    found || walked.is_err()
}

/// The conjuncts of `filters` that Lance understands exactly as DataFusion does.
///
/// Lance uses them only to skip rows: each row that comes out is checked again. Three-valued
/// logic therefore needs no care here: a row for which a condition is unknown may stay.
pub(crate) fn lance_filter(filters: &[Expr], schema: &Schema) -> Option<Expr> {
    let simple: Vec<Expr> = filters
        .iter()
        .map(|filter| unnormalize_col(filter.clone()))
        .filter(|filter| is_simple(filter, schema))
        .collect();
    conjunction(simple)
}

fn is_simple(expr: &Expr, schema: &Schema) -> bool {
    match expr {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => match op {
            Operator::And | Operator::Or => is_simple(left, schema) && is_simple(right, schema),
            Operator::Eq
            | Operator::NotEq
            | Operator::Lt
            | Operator::LtEq
            | Operator::Gt
            | Operator::GtEq => compares(left, right, schema),
            _ => false,
        },
        Expr::Not(inner) => is_simple(inner, schema),
        Expr::IsNull(inner) | Expr::IsNotNull(inner) => column_type(inner, schema).is_some(),
        Expr::InList(list) => {
            !list.list.is_empty()
                && list
                    .list
                    .iter()
                    .all(|value| compares(&list.expr, value, schema))
        }
        _ => false,
    }
}

fn compares(column: &Expr, value: &Expr, schema: &Schema) -> bool {
    let Expr::Literal(value, _) = value else {
        return false;
    };
    !value.is_null() && column_type(column, schema).is_some_and(|own| *own == value.data_type())
}

/// The type of a top-level column that both sides order alike: no floats (`NaN`, `-0.0`), no
/// views, no dictionaries, nothing nested.
fn column_type<'a>(expr: &Expr, schema: &'a Schema) -> Option<&'a DataType> {
    let Expr::Column(column) = expr else {
        return None;
    };
    // Lance parses a name like an SQL identifier in some of its paths.
    if !column
        .name
        .chars()
        .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
    {
        return None;
    }
    let data_type = schema.field_with_name(&column.name).ok()?.data_type();
    let alike = data_type.is_integer()
        || matches!(
            data_type,
            DataType::Boolean
                | DataType::Utf8
                | DataType::LargeUtf8
                | DataType::Date32
                | DataType::Timestamp(_, _)
        );
    alike.then_some(data_type)
}

/// The value that `column` is compared with by `op`, if `expr` is such a comparison.
pub(super) fn comparison<'a>(
    expr: &'a Expr,
    column: &str,
    data_type: &DataType,
) -> Option<(Operator, &'a ScalarValue)> {
    let Expr::BinaryExpr(BinaryExpr { left, op, right }) = expr else {
        return None;
    };
    let (op, value) = match (left.as_ref(), right.as_ref()) {
        (Expr::Column(own), Expr::Literal(value, _)) if own.name == column => (*op, value),
        (Expr::Literal(value, _), Expr::Column(own)) if own.name == column => (op.swap()?, value),
        _ => return None,
    };
    (value.data_type() == *data_type).then_some((op, value))
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::datatypes::Field;
    use datafusion::prelude::{col, lit, random};

    use super::*;

    fn schema() -> Schema {
        Schema::new(vec![
            Field::new("id", DataType::Int64, false),
            Field::new("x", DataType::Float64, true),
        ])
    }

    #[test]
    fn only_row_wise_deterministic_conditions_are_exact() {
        let schema = DFSchema::try_from(schema()).unwrap();
        let props = ExecutionProps::new();
        assert!(is_exact(&col("t.id").eq(lit(1i64)), &schema, &props));
        assert!(!is_exact(&random().gt(col("x")), &schema, &props));
        assert!(!is_exact(&col("nope").eq(lit(1i64)), &schema, &props));
    }

    #[test]
    fn lance_sees_neither_floats_nor_mixed_types() {
        let schema = schema();
        let of = |filter: Expr| lance_filter(&[filter], &schema);
        assert!(of(col("t.id").gt(lit(1i64))).is_some());
        assert!(of(col("id").gt(lit(1i32))).is_none());
        assert!(of(col("x").gt(lit(1.0))).is_none());
        assert!(of(col("id").gt(lit(1i64)).or(col("x").gt(lit(1.0)))).is_none());
        assert!(of(col("id").in_list(vec![lit(ScalarValue::Int64(None))], true)).is_none());
    }
}
