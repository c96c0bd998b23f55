//! `CREATE EXTERNAL TABLE ... STORED AS MEMWAL`.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::datatypes::{DataType, Schema};
use datafusion::catalog::{Session, TableProvider, TableProviderFactory};
use datafusion::common::Constraint;
use datafusion::error::Result as DataFusionResult;
use datafusion::logical_expr::CreateExternalTable;
use futures::FutureExt;

use super::location::clean_location;
use super::open_tables::{OpenTables, Origin};
use super::provider::MemWalTableProvider;
use crate::error::{Error, Result};
use crate::options::TableOptions;
use crate::schema::TableSchema;
use crate::schema::plain_type;
use crate::table::{MemWalTable, TableBuilder};

/// Creates or opens tables for `STORED AS MEMWAL`.
///
/// A column list creates a table, or must match the one that lies at the location; no
/// column list opens what lies there. `OPTIONS` of a table that exists hold for this
/// process. CREATEs of one location in one process share one writer.
#[derive(Debug, Default)]
pub struct MemWalTableFactory;

impl MemWalTableFactory {
    /// The name after `STORED AS`.
    pub(crate) const FILE_TYPE: &'static str = "MEMWAL";

    /// The factory.
    pub fn new() -> Self {
        Self
    }
}

#[async_trait]
impl TableProviderFactory for MemWalTableFactory {
    async fn create(
        &self,
        _: &dyn Session,
        cmd: &CreateExternalTable,
    ) -> DataFusionResult<Arc<dyn TableProvider>> {
        let name = cmd.name.table();
        refuse_clauses(name, cmd)?;
        let location = clean_location(name, &cmd.location)?;
        let declared = Declared::of(name, cmd)?;
        let pairs = || {
            cmd.options
                .iter()
                .map(|(key, value)| (key.as_str(), value.as_str()))
        };
        // Refuses a bad option before anything is opened.
        TableOptions::from_pairs(name, pairs())?;

        let builder = MemWalTable::builder(&location)
            .with_name(name)
            .with_options(&cmd.options);
        let opening = open_or_create(name.to_string(), builder, declared.clone());
        let (table, origin) = OpenTables::of_process()
            .get_or_open(&location, opening.boxed())
            .await?;
        if origin == Origin::Shared {
            if let Some(declared) = &declared {
                declared.check(name, &location, table.table_schema())?;
            }
            let wanted = table.options().clone().changed_by(name, pairs())?;
            if wanted != *table.options() {
                return Err(Error::invalid(format!(
                    "table '{name}': '{location}' is open in this process with other options; leave \
                     OPTIONS out, or drop the other table first"
                ))
                .into());
            }
        }
        Ok(Arc::new(MemWalTableProvider::with_name(table, name)))
    }
}

/// Opens what lies at the builder's location, or makes it when there are columns for it.
async fn open_or_create(
    name: String,
    builder: TableBuilder,
    declared: Option<Declared>,
) -> Result<MemWalTable> {
    let accept = |stored: &TableSchema| match &declared {
        Some(declared) => declared.check(&name, builder.uri(), stored),
        None => Ok(()),
    };
    if let Some(table) = builder.open_if_there(accept).await? {
        return Ok(table);
    }
    match declared {
        Some(declared) => {
            let schema = Arc::new(declared.schema);
            builder.create(schema, &declared.key).await
        }
        None => Err(Error::invalid(format!(
            "table '{name}': nothing lies at '{}'; give the columns to create it",
            builder.uri()
        ))),
    }
}

/// A clause that is ignored is the worst surprise: each one is honoured or refused.
fn refuse_clauses(name: &str, cmd: &CreateExternalTable) -> Result<()> {
    let clauses = [
        (
            !cmd.table_partition_cols.is_empty(),
            "PARTITIONED BY",
            "leave it out",
        ),
        (
            !cmd.order_exprs.is_empty(),
            "WITH ORDER",
            "leave it out and use ORDER BY in queries",
        ),
        (
            cmd.unbounded,
            "UNBOUNDED",
            "leave it out, a table is read as of one snapshot",
        ),
        (
            cmd.temporary,
            "TEMPORARY",
            "leave it out, the table is kept at its location",
        ),
        (
            cmd.or_replace,
            "OR REPLACE",
            "use DROP TABLE and CREATE; if a table of this name was there, the session has \
             dropped it, and its data is where it was",
        ),
    ];
    for (given, clause, remedy) in clauses {
        if given {
            return Err(Error::unsupported(format!(
                "table '{name}': {clause} is not supported; {remedy}"
            )));
        }
    }
    let mut defaults: Vec<&String> = cmd.column_defaults.keys().collect();
    defaults.sort();
    if let Some(column) = defaults.first() {
        return Err(Error::unsupported(format!(
            "table '{name}': DEFAULT of the column '{column}' is not part of this version; give the \
             value in INSERT"
        )));
    }
    Ok(())
}

/// What a column list says.
#[derive(Clone)]
struct Declared {
    schema: Schema,
    key: Vec<String>,
}

impl Declared {
    fn of(name: &str, cmd: &CreateExternalTable) -> Result<Option<Self>> {
        let schema = cmd.schema.as_arrow().clone();
        if schema.fields().is_empty() {
            return Ok(None);
        }
        let mut key = Vec::new();
        for constraint in cmd.constraints.iter() {
            match constraint {
                Constraint::PrimaryKey(columns) => key.extend(
                    columns
                        .iter()
                        .filter_map(|&column| schema.fields().get(column))
                        .map(|field| field.name().clone()),
                ),
                Constraint::Unique(_) => {
                    return Err(Error::unsupported(format!(
                        "table '{name}': UNIQUE is not supported; PRIMARY KEY is"
                    )));
                }
            }
        }
        Ok(Some(Self { schema, key }))
    }

    /// An error that shows both, unless this is what `table` has.
    fn check(&self, name: &str, location: &str, table: &TableSchema) -> Result<()> {
        let stored = table.logical();
        let stored_key: Vec<String> = table
            .key()
            .iter()
            .filter_map(|&column| stored.fields().get(column))
            .map(|field| field.name().clone())
            .collect();
        let is_same = self.schema.fields().len() == stored.fields().len()
            && self.key == stored_key
            && self
                .schema
                .fields()
                .iter()
                .zip(stored.fields())
                .all(|(ours, theirs)| {
                    ours.name() == theirs.name()
                        && ours.is_nullable() == theirs.is_nullable()
                        && alike(&plain_type(ours.data_type()), theirs.data_type())
                });
        if is_same {
            return Ok(());
        }
        Err(Error::invalid(format!(
            "table '{name}': the columns differ from those at '{}': declared ({}), stored ({}); leave \
             the column list out to open what is there",
            location,
            listed(&self.schema, &self.key),
            listed(stored, &stored_key)
        )))
    }
}

/// Equal but for the name of a list's element and metadata.
fn alike(ours: &DataType, theirs: &DataType) -> bool {
    match (ours, theirs) {
        (DataType::List(a), DataType::List(b))
        | (DataType::LargeList(a), DataType::LargeList(b)) => alike(a.data_type(), b.data_type()),
        (DataType::FixedSizeList(a, m), DataType::FixedSizeList(b, n)) => {
            m == n && alike(a.data_type(), b.data_type())
        }
        (DataType::Struct(a), DataType::Struct(b)) => {
            a.len() == b.len()
                && a.iter()
                    .zip(b)
                    .all(|(a, b)| a.name() == b.name() && alike(a.data_type(), b.data_type()))
        }
        (DataType::Map(a, m), DataType::Map(b, n)) => m == n && alike(a.data_type(), b.data_type()),
        (ours, theirs) => ours == theirs,
    }
}

fn listed(schema: &Schema, key: &[String]) -> String {
    let mut parts: Vec<String> = schema
        .fields()
        .iter()
        .map(|field| {
            let null = if field.is_nullable() { "" } else { " NOT NULL" };
            format!("{} {}{null}", field.name(), plain_type(field.data_type()))
        })
        .collect();
    if !key.is_empty() {
        parts.push(format!("PRIMARY KEY ({})", key.join(", ")));
    }
    parts.join(", ")
}
