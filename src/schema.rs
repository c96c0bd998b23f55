//! What a table's columns are: as SQL sees them, as a memtable holds them, and as
//! the log and the generations store them.
//!
//! | form | columns | who uses it |
//! | --- | --- | --- |
//! | logical | the declared columns | SQL, `put`, every scan's output |
//! | row | the same, non-key columns nullable, then `_tombstone` | memtable |
//! | stored | row form with Lance field ids in the metadata of every field | WAL entries, generations |
//!
//! A tombstone carries its key and nulls, so the row form admits a null wherever
//! the logical form may not. Source: Lance's MemWAL specification, "WAL entry".

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Fields, Schema, SchemaRef};
use lance_core::datatypes::{
    Field as LanceField, LANCE_FIELD_ID_KEY, LANCE_UNENFORCED_PRIMARY_KEY,
    LANCE_UNENFORCED_PRIMARY_KEY_POSITION, Schema as LanceSchema,
};

use crate::error::{Error, Result};

/// The column that marks a deleted row in the log and in a generation.
pub(crate) const TOMBSTONE: &str = "_tombstone";

/// Names that a scan or a search makes itself, so that no table may store them.
const RESERVED_COLUMNS: [&str; 6] = [
    TOMBSTONE,
    "_distance",
    "_score",
    "_hybrid_score",
    "_relevance_score",
    "_memtable_gen",
];

/// The columns of one table in their three forms, and its primary key.
#[derive(Debug, Clone)]
pub(crate) struct TableSchema {
    table: Arc<str>,
    base: Arc<LanceSchema>,
    logical: SchemaRef,
    rows: SchemaRef,
    stored: SchemaRef,
    key: Arc<[usize]>,
}

impl TableSchema {
    /// Takes over the schema of a base table. `table` names it in error messages.
    pub(crate) fn from_base(table: &str, base: &LanceSchema) -> Result<Self> {
        let arrow = Schema::from(base);
        refuse_reserved_names(table, &arrow)?;
        refuse_narrow_dictionaries(table, &arrow)?;
        refuse_odd_vectors(table, &arrow)?;
        refuse_blobs(table, &base.fields)?;
        let key = base
            .unenforced_primary_key()
            .iter()
            .map(|field| {
                arrow.index_of(&field.name).map_err(|_| {
                    Error::unsupported(format!(
                        "table '{table}': the key column '{}' is nested; a key must be a top-level column",
                        field.name
                    ))
                })
            })
            .collect::<Result<Vec<_>>>()?;
        for &index in &key {
            check_key_column(table, arrow.field(index))?;
        }

        let logical: Vec<FieldRef> = arrow.fields().iter().map(without_lance_metadata).collect();
        let relaxed = |fields: &Fields| -> Vec<FieldRef> {
            fields
                .iter()
                .enumerate()
                .map(|(index, field)| match key.contains(&index) {
                    true => Arc::clone(field),
                    false => Arc::new(field.as_ref().clone().with_nullable(true)),
                })
                .chain([Arc::new(Field::new(TOMBSTONE, DataType::Boolean, false))])
                .collect()
        };
        let stamped: Vec<FieldRef> = arrow
            .fields()
            .iter()
            .map(|field| Arc::new(stamp_field_id(field, &base.fields)))
            .collect();
        let stored =
            Schema::new_with_metadata(relaxed(&Fields::from(stamped)), arrow.metadata().clone());
        let rows = Schema::new(relaxed(&Fields::from(logical.clone())));
        Ok(Self {
            table: Arc::from(table),
            base: Arc::new(base.clone()),
            logical: Arc::new(Schema::new(logical)),
            rows: Arc::new(rows),
            stored: Arc::new(stored),
            key: key.into(),
        })
    }

    /// The name by which error messages call the table.
    pub(crate) fn table(&self) -> &str {
        &self.table
    }

    /// The schema of the base table, with its field ids.
    pub(crate) fn base(&self) -> &Arc<LanceSchema> {
        &self.base
    }

    /// The declared columns, without Lance's own metadata.
    pub(crate) fn logical(&self) -> &SchemaRef {
        &self.logical
    }

    /// What a memtable holds: the logical columns, then `_tombstone`.
    pub(crate) fn rows(&self) -> &SchemaRef {
        &self.rows
    }

    /// What the log and a generation store: the row form with field ids.
    pub(crate) fn stored(&self) -> &SchemaRef {
        &self.stored
    }

    /// The key columns, as positions in the logical (and row) form, in key order.
    pub(crate) fn key(&self) -> &[usize] {
        &self.key
    }

    /// Whether the table has a primary key.
    pub(crate) fn is_keyed(&self) -> bool {
        !self.key.is_empty()
    }

    /// The position of `_tombstone` in the row form.
    pub(crate) fn tombstone(&self) -> usize {
        self.logical.fields().len()
    }

    /// The Lance schema of a generation: base ids, and for `_tombstone` the next free one.
    pub(crate) fn generation_schema(&self) -> Result<LanceSchema> {
        let mut schema = LanceSchema::try_from(self.stored.as_ref())?;
        let next = self.base.max_field_id().unwrap_or(-1) + 1;
        if let Some(field) = schema.fields.last_mut() {
            field.id = next;
        }
        Ok(schema)
    }
}

/// The Arrow schema under which a new table is stored: view types become their
/// plain counterparts, and the key columns are marked as Lance marks them.
pub(crate) fn declare(table: &str, schema: &Schema, key: &[String]) -> Result<SchemaRef> {
    if schema.fields().is_empty() {
        return Err(Error::invalid(format!(
            "table '{table}' needs at least one column"
        )));
    }
    refuse_reserved_names(table, schema)?;
    refuse_odd_vectors(table, schema)?;
    let mut seen = HashSet::new();
    for field in schema.fields() {
        if !seen.insert(field.name()) {
            return Err(Error::invalid(format!(
                "table '{table}' declares the column '{}' twice; rename one of them",
                field.name()
            )));
        }
        if field.name().is_empty() || field.name().contains('.') {
            return Err(Error::invalid(format!(
                "table '{table}': the column name '{}' cannot be stored, since Lance reads a dot as a \
                 path into a struct; choose a name that is not empty and has no dot",
                field.name()
            )));
        }
    }
    let mut positions = HashMap::new();
    for (index, name) in key.iter().enumerate() {
        let field = schema.field_with_name(name).map_err(|_| {
            Error::invalid(format!(
                "table '{table}': the key column '{name}' is not among its columns ({})",
                column_names(schema)
            ))
        })?;
        check_key_column(table, &plain_field(field))?;
        if positions.insert(name.as_str(), index + 1).is_some() {
            return Err(Error::invalid(format!(
                "table '{table}': the key names the column '{name}' twice"
            )));
        }
    }
    let fields: Vec<Field> = schema
        .fields()
        .iter()
        .map(|field| {
            let mut plain = plain_field(field);
            let mut metadata = without_lance_metadata(field).metadata().clone();
            if let Some(position) = positions.get(field.name().as_str()) {
                metadata.insert(LANCE_UNENFORCED_PRIMARY_KEY.to_string(), "true".to_string());
                metadata.insert(
                    LANCE_UNENFORCED_PRIMARY_KEY_POSITION.to_string(),
                    position.to_string(),
                );
            }
            plain.set_metadata(metadata);
            plain
        })
        .collect();
    Ok(Arc::new(Schema::new(fields)))
}

/// The names of the columns, for an error message.
pub(crate) fn column_names(schema: &Schema) -> String {
    let names: Vec<&str> = schema
        .fields()
        .iter()
        .map(|field| field.name().as_str())
        .collect();
    names.join(", ")
}

/// The stored counterpart of a type: `Utf8View` and `BinaryView` have no encoding in Lance.
pub(crate) fn plain_type(data_type: &DataType) -> DataType {
    let child = |field: &FieldRef| Arc::new(plain_field(field));
    match data_type {
        DataType::Utf8View => DataType::Utf8,
        DataType::BinaryView => DataType::Binary,
        DataType::List(field) | DataType::ListView(field) => DataType::List(child(field)),
        DataType::LargeList(field) | DataType::LargeListView(field) => {
            DataType::LargeList(child(field))
        }
        DataType::FixedSizeList(field, size) => DataType::FixedSizeList(child(field), *size),
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(child).collect()),
        DataType::Map(entries, sorted) => DataType::Map(child(entries), *sorted),
        DataType::Dictionary(index, value) => {
            // Rows of many puts share one dictionary when they are joined and stored, which
            // a narrow index cannot number.
            let index = match index.as_ref() {
                narrow if is_narrow(narrow) => &DataType::Int32,
                wide => wide,
            };
            DataType::Dictionary(Box::new(index.clone()), Box::new(plain_type(value)))
        }
        other => other.clone(),
    }
}

fn is_narrow(index: &DataType) -> bool {
    matches!(
        index,
        DataType::Int8 | DataType::UInt8 | DataType::Int16 | DataType::UInt16
    )
}

fn plain_field(field: &Field) -> Field {
    field.clone().with_data_type(plain_type(field.data_type()))
}

/// The types of which Lance can hash a key exactly.
fn is_key_type(data_type: &DataType) -> bool {
    data_type.is_integer()
        || matches!(
            data_type,
            DataType::Boolean
                | DataType::Utf8
                | DataType::LargeUtf8
                | DataType::Binary
                | DataType::LargeBinary
        )
}

fn check_key_column(table: &str, field: &Field) -> Result<()> {
    if field.is_nullable() {
        return Err(Error::invalid(format!(
            "table '{table}': the key column '{}' is nullable; declare it NOT NULL",
            field.name()
        )));
    }
    if !is_key_type(field.data_type()) {
        return Err(Error::unsupported(format!(
            "table '{table}': the key column '{}' is of type {}; a key is an integer, a boolean, \
             a string or a binary column",
            field.name(),
            field.data_type()
        )));
    }
    Ok(())
}

fn refuse_reserved_names(table: &str, schema: &Schema) -> Result<()> {
    for field in schema.fields() {
        let name = field.name().as_str();
        if RESERVED_COLUMNS.contains(&name) || lance_core::is_system_column(name) {
            return Err(Error::invalid(format!(
                "table '{table}': the column name '{name}' is reserved; rename the column"
            )));
        }
    }
    Ok(())
}

/// Lance stores vectors of numbers. Others it takes, and cannot read them back.
fn refuse_odd_vectors(table: &str, schema: &Schema) -> Result<()> {
    fn is_stored(item: &DataType) -> bool {
        match item {
            DataType::FixedSizeList(item, _) => is_stored(item.data_type()),
            item => item.is_primitive() || *item == DataType::Boolean,
        }
    }
    for field in schema.flattened_fields() {
        if !matches!(field.data_type(), DataType::FixedSizeList(..)) || is_stored(field.data_type())
        {
            continue;
        }
        return Err(Error::unsupported(format!(
            "table '{table}': the column '{}' is of type {}; a vector holds numbers, use a list \
             for anything else",
            field.name(),
            field.data_type()
        )));
    }
    Ok(())
}

/// A dataset that somebody else wrote may have dictionaries that our memtables cannot join.
fn refuse_narrow_dictionaries(table: &str, schema: &Schema) -> Result<()> {
    for field in schema.flattened_fields() {
        if let DataType::Dictionary(index, _) = field.data_type()
            && is_narrow(index)
        {
            return Err(Error::unsupported(format!(
                "table '{table}': the column '{}' is of type {}, whose index is too narrow for \
                 rows of many puts; rewrite the dataset with an index of 32 bits",
                field.name(),
                field.data_type()
            )));
        }
    }
    Ok(())
}

fn refuse_blobs(table: &str, fields: &[LanceField]) -> Result<()> {
    for field in fields {
        if field.is_blob() || field.is_blob_v2() {
            return Err(Error::unsupported(format!(
                "table '{table}': the column '{}' holds blobs, which this version cannot write; \
                 store it as a binary column",
                field.name
            )));
        }
        refuse_blobs(table, &field.children)?;
    }
    Ok(())
}

/// The field and its children without ids and key marks, which SQL must not see.
fn without_lance_metadata(field: &FieldRef) -> FieldRef {
    let mut metadata = field.metadata().clone();
    metadata.remove(LANCE_FIELD_ID_KEY);
    metadata.remove(LANCE_UNENFORCED_PRIMARY_KEY);
    metadata.remove(LANCE_UNENFORCED_PRIMARY_KEY_POSITION);
    let data_type = map_children(field.data_type(), &without_lance_metadata);
    Arc::new(
        field
            .as_ref()
            .clone()
            .with_data_type(data_type)
            .with_metadata(metadata),
    )
}

/// `field` and its children, each with the id that it has among `lance` fields.
fn stamp_field_id(field: &Field, lance: &[LanceField]) -> Field {
    let Some(source) = lance.iter().find(|source| source.name == *field.name()) else {
        return field.clone();
    };
    let data_type = map_children(field.data_type(), &|child| {
        Arc::new(stamp_field_id(child, &source.children))
    });
    let mut stamped = field.clone().with_data_type(data_type);
    if source.id >= 0 {
        let mut metadata = field.metadata().clone();
        metadata.insert(LANCE_FIELD_ID_KEY.to_string(), source.id.to_string());
        stamped.set_metadata(metadata);
    }
    stamped
}

fn map_children(data_type: &DataType, change: &dyn Fn(&FieldRef) -> FieldRef) -> DataType {
    match data_type {
        DataType::List(field) => DataType::List(change(field)),
        DataType::LargeList(field) => DataType::LargeList(change(field)),
        DataType::FixedSizeList(field, size) => DataType::FixedSizeList(change(field), *size),
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(change).collect()),
        DataType::Map(entries, sorted) => DataType::Map(change(entries), *sorted),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> Schema {
        let element = Arc::new(Field::new("item", DataType::Float32, true));
        Schema::new(vec![
            Field::new("id", DataType::Int64, false),
            Field::new("txt", DataType::Utf8View, false),
            Field::new("v", DataType::FixedSizeList(element, 4), true),
        ])
    }

    #[test]
    fn stored_form_agrees_with_lance() {
        use lance::dataset::mem_wal::{
            arrow_schema_with_field_ids, relax_non_pk_nullability, schema_with_tombstone,
        };
        let declared = declare("t", &example(), &["id".to_string()]).unwrap();
        let mut base = LanceSchema::try_from(declared.as_ref()).unwrap();
        base.set_field_id(None);
        let schema = TableSchema::from_base("t", &base).unwrap();
        let expected = relax_non_pk_nullability(
            &schema_with_tombstone(&arrow_schema_with_field_ids(&base)),
            &["id".to_string()],
        );
        assert_eq!(schema.stored(), &expected);
        assert_eq!(schema.key(), &[0]);
        assert!(schema.logical().field(0).metadata().is_empty());
        let generation = schema.generation_schema().unwrap();
        assert_eq!(generation.fields.last().map(|field| field.id), Some(3));
    }

    #[test]
    fn bad_declarations_name_table_column_and_remedy() {
        let key = |name: &str| vec![name.to_string()];
        let message =
            |schema: &Schema, key: &[String]| declare("t", schema, key).unwrap_err().to_string();
        assert!(message(&example(), &key("nope")).contains("'nope' is not among its columns"));
        assert!(message(&example(), &key("v")).contains("declare it NOT NULL"));
        let reserved = Schema::new(vec![Field::new("_tombstone", DataType::Boolean, true)]);
        assert!(message(&reserved, &[]).contains("reserved"));
        let float = Schema::new(vec![Field::new("x", DataType::Float64, false)]);
        assert!(message(&float, &key("x")).contains("a key is an integer"));
        let dotted = Schema::new(vec![Field::new("a.b", DataType::Int64, false)]);
        assert!(message(&dotted, &[]).contains("no dot"));
    }
}
