//! A column of a put under the table's type, if it holds the same values.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef};
use datafusion::arrow::compute::{CastOptions, cast_with_options};
use datafusion::arrow::datatypes::{DataType, Field};

use crate::error::{Error, Result};
use crate::schema::plain_type;

/// `column` under the type of `field`. Another encoding of the same values (a view, a
/// dictionary, a wider string) is brought to it; another type is refused, since a cast
/// that rounds or cuts must be the caller's decision.
pub(super) fn conform(table: &str, field: &Field, column: &ArrayRef) -> Result<ArrayRef> {
    let (given, wanted) = (column.data_type(), field.data_type());
    if given == wanted {
        return Ok(Arc::clone(column));
    }
    if *given == DataType::Null || same_values(given, wanted) {
        let options = CastOptions {
            safe: false,
            ..CastOptions::default()
        };
        return cast_with_options(column, wanted, &options).map_err(|error| {
            Error::invalid(format!(
                "table '{table}', column '{}': {error}",
                field.name()
            ))
            .with_source(error)
        });
    }
    let problem = match (given, wanted) {
        (DataType::FixedSizeList(_, given), DataType::FixedSizeList(_, wanted)) => {
            format!("takes vectors of {wanted} elements and was given {given}")
        }
        _ => format!("is of type {wanted} and was given {given}; cast it"),
    };
    Err(Error::invalid(format!(
        "table '{table}': the column '{}' {problem}",
        field.name()
    )))
}

/// Whether two types hold the same values in different encodings.
fn same_values(given: &DataType, wanted: &DataType) -> bool {
    use DataType::*;
    match (given, wanted) {
        (Dictionary(_, given), Dictionary(_, wanted)) => same_values(given, wanted),
        (Dictionary(_, given), wanted) => same_values(given, wanted),
        (given, Dictionary(_, wanted)) => same_values(given, wanted),
        (Utf8 | LargeUtf8 | Utf8View, Utf8 | LargeUtf8 | Utf8View) => true,
        (Binary | LargeBinary | BinaryView, Binary | LargeBinary | BinaryView) => true,
        (
            List(given) | LargeList(given) | ListView(given) | LargeListView(given),
            List(wanted) | LargeList(wanted),
        ) => same_values(given.data_type(), wanted.data_type()),
        (FixedSizeList(given, n), FixedSizeList(wanted, m)) => {
            n == m && same_values(given.data_type(), wanted.data_type())
        }
        (Struct(given), Struct(wanted)) => {
            given.len() == wanted.len()
                && given.iter().zip(wanted).all(|(given, wanted)| {
                    given.name() == wanted.name()
                        && same_values(given.data_type(), wanted.data_type())
                })
        }
        (Map(given, a), Map(wanted, b)) => {
            a == b && same_values(given.data_type(), wanted.data_type())
        }
        (given, wanted) => plain_type(given) == plain_type(wanted),
    }
}
