//! Which keys a filter admits.

use std::fmt;
use std::ops::Bound;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use datafusion::logical_expr::{BinaryExpr, Expr, Operator};

use super::filter::comparison;
use crate::error::Result;
use crate::index::key::{Key, KeyCodec, KeyRef};

/// More keys than this are looked up slower than the table is scanned.
const MOST_POINTS: usize = 10_000;

/// A superset of the keys for which a filter holds.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum KeyCondition {
    /// One of these.
    Points(Vec<KeyPoint>),
    /// The keys between two bounds, of a key of one column.
    Range(Bound<Key>, Bound<Key>),
}

/// One key, and the values of its columns, by which Bloom filters know it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct KeyPoint {
    pub(crate) key: Key,
    pub(crate) values: Vec<ScalarValue>,
}

impl KeyCondition {
    /// What the conjuncts `filters` say about the key; `None` when they leave it open.
    pub(crate) fn of(filters: &[Expr], codec: &KeyCodec) -> Result<Option<Self>> {
        let names = codec.names();
        let types = codec.types();
        if let ([name], [data_type]) = (names.as_slice(), types.as_slice()) {
            let points = filters
                .iter()
                .filter_map(|filter| points_of(filter, name, data_type))
                .min_by_key(Vec::len);
            return match points {
                Some(values) if values.len() <= MOST_POINTS => {
                    let tuples = values.into_iter().map(|value| vec![value]).collect();
                    Self::points(tuples, codec).map(Some)
                }
                Some(_) => Ok(None),
                None => Self::range_of(filters, name, data_type, codec),
            };
        }
        let tuple: Option<Vec<ScalarValue>> = names
            .iter()
            .zip(types)
            .map(|(name, data_type)| {
                filters
                    .iter()
                    .find_map(|filter| match comparison(filter, name, data_type)? {
                        (Operator::Eq, value) => Some(value.clone()),
                        _ => None,
                    })
            })
            .collect();
        tuple
            .map(|tuple| Self::points(vec![tuple], codec))
            .transpose()
    }

    fn points(tuples: Vec<Vec<ScalarValue>>, codec: &KeyCodec) -> Result<Self> {
        let mut points = Vec::with_capacity(tuples.len());
        for values in tuples {
            if let Some(key) = codec.encode_values(&values)? {
                points.push(KeyPoint { key, values });
            }
        }
        Ok(Self::Points(points))
    }

    fn range_of(
        filters: &[Expr],
        name: &str,
        data_type: &DataType,
        codec: &KeyCodec,
    ) -> Result<Option<Self>> {
        let (mut lower, mut upper) = (Bound::Unbounded, Bound::Unbounded);
        for filter in filters {
            let Some((op, value)) = comparison(filter, name, data_type) else {
                continue;
            };
            let Some(key) = codec.encode_values(std::slice::from_ref(value))? else {
                continue;
            };
            // The loosest bound that is given last would be right too: the full filter
            // follows. The tightest reads least.
            match op {
                Operator::Gt if is_above(&key, &lower) => lower = Bound::Excluded(key),
                Operator::GtEq if is_above(&key, &lower) => lower = Bound::Included(key),
                Operator::Lt if is_below(&key, &upper) => upper = Bound::Excluded(key),
                Operator::LtEq if is_below(&key, &upper) => upper = Bound::Included(key),
                _ => {}
            }
        }
        Ok(match (&lower, &upper) {
            (Bound::Unbounded, Bound::Unbounded) => None,
            _ if is_empty(&lower, &upper) => Some(Self::Points(Vec::new())),
            _ => Some(Self::Range(lower, upper)),
        })
    }
}

/// A range index may rely on bounds that do not cross.
fn is_empty(lower: &Bound<Key>, upper: &Bound<Key>) -> bool {
    match (lower, upper) {
        (Bound::Included(low), Bound::Included(high)) => low > high,
        (
            Bound::Included(low) | Bound::Excluded(low),
            Bound::Included(high) | Bound::Excluded(high),
        ) => low >= high,
        _ => false,
    }
}

fn is_above(key: &Key, bound: &Bound<Key>) -> bool {
    match bound {
        Bound::Unbounded => true,
        Bound::Included(own) | Bound::Excluded(own) => key > own,
    }
}

fn is_below(key: &Key, bound: &Bound<Key>) -> bool {
    match bound {
        Bound::Unbounded => true,
        Bound::Included(own) | Bound::Excluded(own) => key < own,
    }
}

/// A bound whose key is borrowed.
pub(super) fn borrowed(bound: &Bound<Key>) -> Bound<KeyRef<'_>> {
    match bound {
        Bound::Unbounded => Bound::Unbounded,
        Bound::Included(key) => Bound::Included(key.as_ref()),
        Bound::Excluded(key) => Bound::Excluded(key.as_ref()),
    }
}

/// The only values of `column` for which `filter` holds.
fn points_of(filter: &Expr, column: &str, data_type: &DataType) -> Option<Vec<ScalarValue>> {
    match filter {
        Expr::BinaryExpr(BinaryExpr {
            left,
            op: Operator::Or,
            right,
        }) => {
            let mut values = points_of(left, column, data_type)?;
            values.extend(points_of(right, column, data_type)?);
            Some(values)
        }
        Expr::BinaryExpr(_) => match comparison(filter, column, data_type)? {
            (Operator::Eq, value) => Some(vec![value.clone()]),
            _ => None,
        },
        Expr::InList(list) if !list.negated => {
            let Expr::Column(own) = list.expr.as_ref() else {
                return None;
            };
            if own.name != column {
                return None;
            }
            list.list
                .iter()
                .map(|value| match value {
                    Expr::Literal(value, _) if value.data_type() == *data_type => {
                        Some(value.clone())
                    }
                    Expr::Literal(value, _) if value.is_null() => Some(ScalarValue::Null),
                    _ => None,
                })
                .collect()
        }
        _ => None,
    }
}

impl fmt::Display for KeyCondition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Points(points) => write!(f, "keys={}", points.len()),
            Self::Range(_, _) => f.write_str("range"),
        }
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::datatypes::{Field, Schema};
    use datafusion::prelude::{col, lit};

    use super::*;
    use crate::schema::{TableSchema, declare};

    fn codec(key: &[&str]) -> KeyCodec {
        let schema = Schema::new(vec![
            Field::new("id", DataType::Int64, false),
            Field::new("name", DataType::Utf8, false),
        ]);
        let key: Vec<String> = key.iter().map(ToString::to_string).collect();
        let declared = declare("t", &schema, &key).unwrap();
        let mut base = lance_core::datatypes::Schema::try_from(declared.as_ref()).unwrap();
        base.set_field_id(None);
        KeyCodec::new(&TableSchema::from_base("t", &base).unwrap()).unwrap()
    }

    fn points(filters: &[Expr], key: &[&str]) -> Option<usize> {
        match KeyCondition::of(filters, &codec(key)).unwrap()? {
            KeyCondition::Points(points) => Some(points.len()),
            KeyCondition::Range(_, _) => None,
        }
    }

    #[test]
    fn equalities_become_points() {
        let id = || col("id");
        assert_eq!(points(&[lit(1i64).eq(id())], &["id"]), Some(1));
        let either = id().eq(lit(1i64)).or(id().eq(lit(2i64)));
        assert_eq!(points(&[either], &["id"]), Some(2));
        assert_eq!(
            points(&[id().eq(lit(1i64)).or(col("name").eq(lit("a")))], &["id"]),
            None
        );
        let with_null = vec![lit(1i64), lit(ScalarValue::Int64(None))];
        assert_eq!(
            points(&[id().in_list(with_null.clone(), false)], &["id"]),
            Some(1)
        );
        assert_eq!(points(&[id().in_list(with_null, true)], &["id"]), None);
        let both = [id().eq(lit(1i64)), col("name").eq(lit("a"))];
        assert_eq!(points(&both, &["id", "name"]), Some(1));
        assert_eq!(points(&both[..1], &["id", "name"]), None);
    }

    #[test]
    fn comparisons_become_the_tightest_range() {
        let filters = [
            col("id").gt(lit(1i64)),
            col("id").gt_eq(lit(5i64)),
            lit(9i64).gt_eq(col("id")),
        ];
        let key = |value: i64| {
            codec(&["id"])
                .encode_values(&[ScalarValue::Int64(Some(value))])
                .unwrap()
                .unwrap()
        };
        assert_eq!(
            KeyCondition::of(&filters, &codec(&["id"])).unwrap(),
            Some(KeyCondition::Range(
                Bound::Included(key(5)),
                Bound::Included(key(9))
            ))
        );
        let crossed = [col("id").gt(lit(5i64)), col("id").lt(lit(5i64))];
        assert_eq!(points(&crossed, &["id"]), Some(0));
    }
}
