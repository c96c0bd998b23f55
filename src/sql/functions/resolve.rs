//! From the argument of a table function to a table.

use std::sync::Arc;

use datafusion::catalog::{TableFunctionArgs, TableProvider};
use datafusion::execution::SessionState;
use datafusion::logical_expr::Expr;
use datafusion::sql::TableReference;
use futures::FutureExt;

use crate::error::{Error, Result};
use crate::sql::provider::MemWalTableProvider;
use crate::table::MemWalTable;

/// The table that the only argument of `function` names.
///
/// The call is synchronous while catalogs are not, so the table must be known to a
/// catalog that answers at once, as DataFusion's own does.
pub(super) fn resolve_table(
    function: &str,
    args: &TableFunctionArgs<'_, '_>,
) -> Result<MemWalTable> {
    let name = match args.exprs() {
        [Expr::Literal(value, _)] => value.try_as_str().flatten(),
        _ => None,
    }
    .ok_or_else(|| {
        Error::invalid(format!(
            "{function} takes the name of a table as a string: {function}('t')"
        ))
    })?;
    let reference = TableReference::from(name);
    let state = args
        .session()
        .as_any()
        .downcast_ref::<SessionState>()
        .ok_or_else(|| {
            Error::unsupported(format!("{function} needs a session of DataFusion itself"))
        })?;
    let schema = state.schema_for_ref(reference.clone())?;
    let found = schema
        .table(reference.table())
        .now_or_never()
        .ok_or_else(|| {
            Error::unsupported(format!(
                "{function}: the catalog of table '{name}' does not answer at once"
            ))
        })??;
    let provider: Arc<dyn TableProvider> =
        found.ok_or_else(|| Error::invalid(format!("{function}: there is no table '{name}'")))?;
    provider
        .downcast_ref::<MemWalTableProvider>()
        .map(|provider| provider.table().clone())
        .ok_or_else(|| {
            Error::invalid(format!(
                "{function}: table '{name}' is not stored as MEMWAL"
            ))
        })
}
