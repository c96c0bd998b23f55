//! The text of SHOW CREATE TABLE.

use datafusion::arrow::datatypes::{DataType, Field, TimeUnit};

use datafusion::sql::parser::DFParser;

use crate::table::MemWalTable;

/// The statement that creates `table` again, from what is stored rather than from what
/// once was typed.
///
/// Where SQL cannot spell a type exactly, the statement has no column list: run at the
/// same location it opens the same table, and elsewhere it says that nothing is there.
pub(crate) fn create_statement(name: &str, table: &MemWalTable) -> String {
    let schema = table.schema();
    let columns: Option<Vec<String>> = schema.fields().iter().map(|field| column(field)).collect();
    let key: Vec<String> = table
        .primary_key()
        .iter()
        .filter_map(|&index| schema.fields().get(index))
        .map(|field| identifier(field.name()))
        .collect();
    let mut statement = format!("CREATE EXTERNAL TABLE {}", identifier(name));
    if let Some(mut lines) = columns {
        if !key.is_empty() {
            lines.push(format!("PRIMARY KEY ({})", key.join(", ")));
        }
        statement.push_str(&format!(" (\n  {}\n)", lines.join(",\n  ")));
    }
    statement.push_str(&format!(
        " STORED AS MEMWAL LOCATION {}",
        literal(table.uri())
    ));
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

fn column(field: &Field) -> Option<String> {
    let null = if field.is_nullable() { "" } else { " NOT NULL" };
    let data_type = sql_type(field.data_type())?;
    Some(format!("{} {data_type}{null}", identifier(field.name())))
}

/// Quoted unless SQL reads it as it stands, wherever the statement has names.
fn identifier(name: &str) -> String {
    let is_plain = name
        .chars()
        .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    let statement = format!(
        "CREATE EXTERNAL TABLE {name} ({name} INT, s STRUCT<{name} INT>, PRIMARY KEY ({name})) \
         STORED AS MEMWAL LOCATION ''; SELECT {name} FROM {name}"
    );
    match is_plain && DFParser::parse_sql(&statement).is_ok() {
        true => name.to_string(),
        false => format!("\"{}\"", name.replace('"', "\"\"")),
    }
}

fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// The SQL name of a type, `None` where DataFusion would read another type from it.
fn sql_type(data_type: &DataType) -> Option<String> {
    Some(match data_type {
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
        DataType::Decimal128(precision, scale) => format!("DECIMAL({precision}, {scale})"),
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
        DataType::List(item) => format!("{}[]", item_type(item)?),
        DataType::FixedSizeList(item, size) => format!("{}[{size}]", item_type(item)?),
        DataType::Struct(fields) => {
            let fields = fields
                .iter()
                .map(|field| {
                    let data_type = sql_type(field.data_type())?;
                    let name = identifier(field.name());
                    field.is_nullable().then(|| format!("{name} {data_type}"))
                })
                .collect::<Option<Vec<_>>>()?;
            format!("STRUCT<{}>", fields.join(", "))
        }
        _ => return None,
    })
}

/// Brackets after `>` would bind to the last field of a struct.
fn item_type(item: &Field) -> Option<String> {
    sql_type(item.data_type()).filter(|name| item.is_nullable() && !name.ends_with('>'))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn names_are_quoted_where_sql_would_read_them_otherwise() {
        let quoted: Vec<String> = ["id", "Id", "a b", "check", "a\"b", "日本"]
            .iter()
            .map(|name| identifier(name))
            .collect();
        let expected = [
            "id",
            "\"Id\"",
            "\"a b\"",
            "\"check\"",
            "\"a\"\"b\"",
            "\"日本\"",
        ];
        assert_eq!(quoted, expected);
    }

    #[test]
    fn nested_types_have_sql_names() {
        let item = |data_type| Arc::new(Field::new("item", data_type, true));
        let vector = DataType::FixedSizeList(item(DataType::Float32), 4);
        assert_eq!(sql_type(&vector).as_deref(), Some("FLOAT[4]"));
        let list = DataType::List(item(vector));
        assert_eq!(sql_type(&list).as_deref(), Some("FLOAT[4][]"));
        let fields = vec![Field::new("a", list, true)];
        let list = DataType::List(item(DataType::Struct(fields.into())));
        assert_eq!(sql_type(&list), None);
    }
}
