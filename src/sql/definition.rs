//! The text of SHOW CREATE TABLE.

use datafusion::arrow::datatypes::{DataType, Field, TimeUnit};

use crate::table::MemWalTable;

/// The statement that creates `table` again, from what is stored rather than from what
/// once was typed.
///
/// A type for which DataFusion's SQL has no name is given by Arrow's.
pub(crate) fn create_statement(name: &str, table: &MemWalTable) -> String {
    let schema = table.schema();
    let mut lines: Vec<String> = schema.fields().iter().map(|field| column(field)).collect();
    let key: Vec<String> = table
        .primary_key()
        .iter()
        .filter_map(|&index| schema.fields().get(index))
        .map(|field| identifier(field.name()))
        .collect();
    if !key.is_empty() {
        lines.push(format!("PRIMARY KEY ({})", key.join(", ")));
    }
    let mut statement = format!(
        "CREATE EXTERNAL TABLE {} (\n  {}\n) STORED AS MEMWAL LOCATION {}",
        identifier(name),
        lines.join(",\n  "),
        literal(table.uri())
    );
    let options: Vec<String> = table
        .options()
        .changed_pairs()
        .iter()
        .map(|(key, value)| format!("  {} {}", literal(key), literal(value)))
        .collect();
    if !options.is_empty() {
        statement.push_str(&format!("\nOPTIONS (\n{}\n)", options.join(",\n")));
    }
    statement
}

fn column(field: &Field) -> String {
    let null = if field.is_nullable() { "" } else { " NOT NULL" };
    format!(
        "{} {}{null}",
        identifier(field.name()),
        sql_type(field.data_type())
    )
}

/// Quoted unless SQL reads it as it stands.
fn identifier(name: &str) -> String {
    const RESERVED: [&str; 24] = [
        "all", "and", "as", "by", "case", "create", "from", "group", "having", "in", "join", "key",
        "limit", "not", "null", "on", "or", "order", "primary", "select", "table", "union",
        "unique", "where",
    ];
    let mut characters = name.chars();
    let is_plain = characters
        .next()
        .is_some_and(|first| first.is_ascii_lowercase() || first == '_')
        && characters.all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
        && !RESERVED.contains(&name);
    match is_plain {
        true => name.to_string(),
        false => format!("\"{}\"", name.replace('"', "\"\"")),
    }
}

fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

fn sql_type(data_type: &DataType) -> String {
    match data_type {
        DataType::Boolean => "BOOLEAN".into(),
        DataType::Int8 => "TINYINT".into(),
        DataType::Int16 => "SMALLINT".into(),
        DataType::Int32 => "INT".into(),
        DataType::Int64 => "BIGINT".into(),
        DataType::UInt8 => "TINYINT UNSIGNED".into(),
        DataType::UInt16 => "SMALLINT UNSIGNED".into(),
        DataType::UInt32 => "INT UNSIGNED".into(),
        DataType::UInt64 => "BIGINT UNSIGNED".into(),
        DataType::Float32 => "FLOAT".into(),
        DataType::Float64 => "DOUBLE".into(),
        DataType::Decimal128(precision, scale) | DataType::Decimal256(precision, scale) => {
            format!("DECIMAL({precision}, {scale})")
        }
        DataType::Utf8 => "VARCHAR".into(),
        DataType::Binary => "BYTEA".into(),
        DataType::Date32 => "DATE".into(),
        DataType::Time64(TimeUnit::Nanosecond) => "TIME".into(),
        DataType::Timestamp(unit, None) => match unit {
            TimeUnit::Second => "TIMESTAMP(0)".into(),
            TimeUnit::Millisecond => "TIMESTAMP(3)".into(),
            TimeUnit::Microsecond => "TIMESTAMP(6)".into(),
            TimeUnit::Nanosecond => "TIMESTAMP".into(),
        },
        DataType::List(item) => format!("{}[]", sql_type(item.data_type())),
        DataType::FixedSizeList(item, size) => format!("{}[{size}]", sql_type(item.data_type())),
        DataType::Struct(fields) => {
            let fields: Vec<String> = fields
                .iter()
                .map(|field| {
                    format!(
                        "{} {}",
                        identifier(field.name()),
                        sql_type(field.data_type())
                    )
                })
                .collect();
            format!("STRUCT<{}>", fields.join(", "))
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn names_are_quoted_where_sql_would_read_them_otherwise() {
        let quoted: Vec<String> = ["id", "Id", "a b", "select", "a\"b", "日本"]
            .iter()
            .map(|name| identifier(name))
            .collect();
        let expected = [
            "id",
            "\"Id\"",
            "\"a b\"",
            "\"select\"",
            "\"a\"\"b\"",
            "\"日本\"",
        ];
        assert_eq!(quoted, expected);
    }

    #[test]
    fn nested_types_have_sql_names() {
        let item = |data_type| Arc::new(Field::new("item", data_type, true));
        let vector = DataType::FixedSizeList(item(DataType::Float32), 4);
        assert_eq!(sql_type(&vector), "FLOAT[4]");
        assert_eq!(sql_type(&DataType::List(item(vector))), "FLOAT[4][]");
    }
}
