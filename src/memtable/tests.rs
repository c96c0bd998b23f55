//! The memtable against the plainest model: a vector of rows.

use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, Int64Array, RecordBatch, StringArray, UInt64Array,
};
use datafusion::arrow::datatypes::{DataType, Field, Int64Type, Schema};
use lance_core::datatypes::Schema as LanceSchema;
use proptest::prelude::*;

use super::{Memtable, MemtableView, PreparedBatch, Segment};
use crate::error::ErrorKind;
use crate::index::key::{KeyCodec, KeyRef, Keys};
use crate::schema::{TableSchema, declare};

/// The table (id, txt), its key an integer, a string, or absent.
struct Table {
    schema: Arc<TableSchema>,
    codec: Option<KeyCodec>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum KeyKind {
    Integer,
    Text,
    None,
}

#[derive(Debug, Clone, PartialEq)]
struct Row {
    id: i64,
    /// `None` for a tombstone.
    value: Option<i64>,
}

impl Table {
    fn new(kind: KeyKind) -> Self {
        let id = match kind {
            KeyKind::Text => DataType::Utf8,
            _ => DataType::Int64,
        };
        let fields = vec![
            Field::new("value", DataType::Int64, true),
            Field::new("id", id, false),
            Field::new("txt", DataType::Utf8, true),
        ];
        let key = match kind {
            KeyKind::None => vec![],
            _ => vec!["id".to_string()],
        };
        let declared = declare("t", &Schema::new(fields), &key).unwrap();
        let mut base = LanceSchema::try_from(declared.as_ref()).unwrap();
        base.set_field_id(None);
        let schema = Arc::new(TableSchema::from_base("t", &base).unwrap());
        let codec = KeyCodec::new(&schema);
        Self { schema, codec }
    }

    fn memtable(&self, global_offset: u64) -> Arc<Memtable> {
        let schema = Arc::clone(&self.schema);
        Arc::new(Memtable::new(schema, self.codec.clone(), 1, global_offset))
    }

    fn ids(&self, ids: &[i64]) -> ArrayRef {
        match self.schema.logical().field(1).data_type() {
            DataType::Utf8 => Arc::new(StringArray::from_iter_values(
                ids.iter().map(|&id| self.text_of(id)),
            )),
            _ => Arc::new(Int64Array::from(ids.to_vec())),
        }
    }

    fn text_of(&self, id: i64) -> String {
        format!("key {id:03}")
    }

    /// Calls `f` with the key of `id`.
    fn with_key<T>(&self, id: i64, f: impl FnOnce(KeyRef<'_>) -> T) -> T {
        let keys = self
            .codec
            .as_ref()
            .unwrap()
            .encode(&[self.ids(&[id])])
            .unwrap();
        f(keys.get(0))
    }

    fn upserts(&self, rows: &[(i64, i64)]) -> PreparedBatch {
        let ids: Vec<i64> = rows.iter().map(|row| row.0).collect();
        let values = Int64Array::from_iter_values(rows.iter().map(|row| row.1));
        let txt = StringArray::from_iter_values(rows.iter().map(|row| format!("text {}", row.1)));
        let columns: Vec<(&str, ArrayRef)> = vec![
            ("id", self.ids(&ids)),
            ("value", Arc::new(values)),
            ("txt", Arc::new(txt)),
        ];
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        PreparedBatch::upserts(&self.schema, self.codec.as_ref(), &batch).unwrap()
    }

    fn deletes(&self, ids: &[i64]) -> PreparedBatch {
        let codec = self.codec.as_ref().unwrap();
        PreparedBatch::deletes(&self.schema, codec, &[self.ids(ids)]).unwrap()
    }

    /// The batch of rows that are all upserts or all tombstones.
    fn batch(&self, rows: &[Row]) -> PreparedBatch {
        match rows.iter().all(|row| row.value.is_some()) {
            true => {
                let rows: Vec<_> = rows
                    .iter()
                    .map(|row| (row.id, row.value.unwrap()))
                    .collect();
                self.upserts(&rows)
            }
            false => self.deletes(&rows.iter().map(|row| row.id).collect::<Vec<_>>()),
        }
    }
}

/// Everything that a view answers, against the rows that it ought to see.
fn check(table: &Table, view: &MemtableView, seen: &[Row], (low, high): (i64, i64)) {
    let keyed = table.codec.is_some();
    assert_eq!(view.rows() as usize, seen.len());
    let newest: Vec<bool> = (0..seen.len())
        .map(|row| !keyed || !seen[row + 1..].iter().any(|newer| newer.id == seen[row].id))
        .collect();
    let live: Vec<bool> = (0..seen.len())
        .map(|row| newest[row] && seen[row].value.is_some())
        .collect();

    let (mut row, mut found_live) = (0, vec![]);
    for segment in view.segments() {
        assert_eq!(segment.start as usize, row);
        let values = segment.batch.column(0).as_primitive::<Int64Type>();
        let expected = seen[row..row + values.len()].iter().map(|row| row.value);
        assert!(values.iter().eq(expected));
        let mask = view.live(segment);
        assert!(mask.as_ref().is_none_or(|mask| mask.false_count() > 0));
        found_live.extend((0..values.len()).map(|at| mask.as_ref().is_none_or(|m| m.value(at))));
        row += values.len();
    }
    assert_eq!(row, seen.len());
    assert_eq!(found_live, live);
    assert_eq!(
        view.live_rows(),
        live.iter().filter(|live| **live).count() as u64
    );

    let positions = |of: &dyn Fn(usize) -> bool| -> Vec<u32> {
        (0..seen.len())
            .filter(|&row| of(row))
            .map(|row| row as u32)
            .collect()
    };
    let tombstones = positions(&|row| seen[row].value.is_none());
    assert!(view.tombstones().iter().eq(tombstones.iter().copied()));
    assert!(view.replaced().iter().eq(positions(&|row| !newest[row])));
    for row in 0..=view.rows() {
        assert_eq!(view.is_tombstone(row), tombstones.contains(&row));
    }
    let backwards: Vec<u32> = (0..view.rows()).rev().collect();
    let taken = view.take(&backwards, &[0]).unwrap();
    let values = taken.column(0).as_primitive::<Int64Type>();
    assert!(values.iter().eq(seen.iter().rev().map(|row| row.value)));
    assert_eq!(view.take(&backwards, &[]).unwrap().num_rows(), seen.len());
    assert!(view.take(&[view.rows()], &[0]).is_err());
    if !keyed {
        return;
    }

    for id in 0..20 {
        let expected = seen
            .iter()
            .rposition(|row| row.id == id)
            .map(|row| row as u32);
        assert_eq!(table.with_key(id, |key| view.lookup(key)), expected);
    }
    let found = table.with_key(low, |low| {
        table.with_key(high, |high| {
            view.range(Bound::Included(low), Bound::Excluded(high))
        })
    });
    let within = positions(&|row| newest[row] && (low..high).contains(&seen[row].id));
    assert_eq!(found, within);
    let from = view.rows() / 2;
    let mut next = from;
    view.for_each_key(from, |row, key| {
        assert_eq!(row, next);
        table.with_key(seen[row as usize].id, |expected| assert_eq!(key, expected));
        next += 1;
    });
    assert_eq!(next, view.rows());
    let sorted = view.sorted_keys();
    assert_eq!(
        sorted.len(),
        newest.iter().filter(|newest| **newest).count()
    );
    assert!(
        sorted
            .iter()
            .all(|(key, row)| view.lookup(key) == Some(row as u32))
    );
}

fn kind() -> impl Strategy<Value = KeyKind> {
    prop::sample::select(vec![KeyKind::Integer, KeyKind::Text, KeyKind::None])
}

/// Puts of batches of rows with few keys, so that most are replaced.
fn puts() -> impl Strategy<Value = Vec<Vec<Vec<Row>>>> {
    let batch = (
        prop::bool::weighted(0.25),
        prop::collection::vec((0_i64..20, 0_i64..1_000), 0..6),
    )
        .prop_map(|(delete, rows)| {
            rows.into_iter()
                .map(|(id, value)| Row {
                    id,
                    value: (!delete).then_some(value),
                })
                .collect()
        });
    prop::collection::vec(prop::collection::vec(batch, 1..4), 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn every_view_agrees_with_a_vector_of_rows(
        kind in kind(),
        mut puts in puts(),
        bounds in (0_i64..20, 0_i64..20),
    ) {
        let table = Table::new(kind);
        if kind == KeyKind::None {
            for row in puts.iter_mut().flatten().flatten() {
                row.value = Some(row.value.unwrap_or(-1));
            }
        }
        let memtable = table.memtable(0);
        let (mut rows, mut row_ends) = (vec![], vec![0]);
        let mut early = vec![];
        for put in &puts {
            memtable.append(put.iter().map(|batch| table.batch(batch)).collect()).unwrap();
            for batch in put {
                rows.extend(batch.clone());
                row_ends.push(rows.len());
            }
            prop_assert!(memtable.indexed_batches() < memtable.batches());
            memtable.apply_index().unwrap();
            prop_assert_eq!(memtable.indexed_batches(), row_ends.len() as u64 - 1);
            early.push((memtable.view(u64::MAX), rows.len()));
        }
        prop_assert_eq!(memtable.rows(), rows.len() as u64);
        for (batches, &end) in row_ends.iter().enumerate() {
            check(&table, &memtable.view(batches as u64), &rows[..end], bounds);
        }
        // What was taken before later puts and joins has not changed.
        for (view, end) in &early {
            check(&table, view, &rows[..*end], bounds);
        }
    }

    #[test]
    fn the_wal_gets_every_row_once_and_whole_puts_only(
        puts in puts(),
        max_bytes in 0_u64..2_000,
        apply: bool,
    ) {
        let table = Table::new(KeyKind::Integer);
        let memtable = table.memtable(0);
        let (mut rows, mut put_ends, mut batches) = (vec![], vec![], 0);
        for put in &puts {
            memtable.append(put.iter().map(|batch| table.batch(batch)).collect()).unwrap();
            if apply {
                memtable.apply_index().unwrap();
            }
            rows.extend(put.concat());
            batches += put.len() as u64;
            put_ends.push(batches);
        }
        let (mut durable, mut logged) = (0, vec![]);
        while durable < memtable.batches() {
            let pending = memtable.batches_from(durable, max_bytes);
            prop_assert!(put_ends.contains(&pending.end) && pending.end > durable);
            let first_put = put_ends.iter().find(|end| **end > durable).unwrap();
            prop_assert!(pending.bytes <= max_bytes || pending.end <= *first_put
                || memtable.bytes_of(*first_put) == memtable.bytes_of(pending.end));
            let handed: usize = pending.batches.iter().map(|batch| batch.num_rows()).sum();
            prop_assert_eq!(handed as u64, pending.rows);
            for batch in &pending.batches {
                let values = batch.column(0).as_primitive::<Int64Type>();
                let ids = batch.column(1).as_primitive::<Int64Type>();
                logged.extend(ids.values().iter().zip(values).map(|(&id, value)| Row { id, value }));
            }
            durable = pending.end;
        }
        prop_assert_eq!(logged, rows);
        let nothing = memtable.batches_from(durable, max_bytes);
        prop_assert_eq!((nothing.end, nothing.batches.len()), (durable, 0));
    }
}

#[test]
fn views_are_exact_while_another_thread_puts() {
    let table = Table::new(KeyKind::Integer);
    let memtable = table.memtable(0);
    let put = |number: i64| -> Vec<Row> {
        let row = |id: i64| Row {
            id: id % 20,
            value: (number % 7 != 0).then_some(number),
        };
        (0..number % 3 + 1)
            .map(|at| row(number * 3 + at * (number % 2)))
            .collect()
    };
    const PUTS: i64 = 1_500;
    let all: Vec<Row> = (0..PUTS).flat_map(put).collect();
    let done = AtomicBool::new(false);
    let mut kept = vec![];
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..PUTS {
                memtable.append(vec![table.batch(&put(number))]).unwrap();
                memtable.apply_index().unwrap();
            }
            done.store(true, Ordering::Release);
        });
        while !done.load(Ordering::Acquire) {
            let view = memtable.view(memtable.visible_batches(None));
            check(&table, &view, &all[..view.rows() as usize], (3, 11));
            kept.push(view);
        }
    });
    let last = memtable.view(u64::MAX);
    assert_eq!(last.rows() as usize, all.len());
    for view in kept.iter().step_by(kept.len() / 10 + 1).chain([&last]) {
        check(&table, view, &all[..view.rows() as usize], (3, 11));
    }
}

#[test]
fn appends_and_joins_side_by_side_lose_nothing_and_split_no_put() {
    const PUTS: i64 = 5_000;
    let table = Table::new(KeyKind::Integer);
    let memtable = table.memtable(0);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..PUTS {
                let row = |number| table.upserts(&[(number, number)]);
                let put = vec![row(2 * number), row(2 * number + 1)];
                memtable.append(put).unwrap();
            }
            done.store(true, Ordering::Release);
        });
        while !done.load(Ordering::Acquire) {
            assert_eq!(memtable.batches() % 2, 0);
            assert_eq!(memtable.batches_from(0, 500).end % 2, 0);
            memtable.apply_index().unwrap();
            assert_eq!(memtable.indexed_batches() % 2, 0);
            let view = memtable.view(u64::MAX);
            let covered: usize = view.segments().iter().map(|s| s.batch.num_rows()).sum();
            assert_eq!(covered, view.rows() as usize);
        }
    });
    memtable.apply_index().unwrap();
    let view = memtable.view(u64::MAX);
    let values: Vec<i64> = view
        .segments()
        .iter()
        .flat_map(|segment| {
            segment
                .batch
                .column(0)
                .as_primitive::<Int64Type>()
                .values()
                .to_vec()
        })
        .collect();
    assert_eq!(values, (0..2 * PUTS).collect::<Vec<_>>());
}

#[test]
fn single_rows_become_few_segments() {
    let table = Table::new(KeyKind::Integer);
    let memtable = table.memtable(0);
    let single = table.upserts(&[(1, 1)]);
    let mut most = 0;
    for number in 0..100_000_u64 {
        let batch = PreparedBatch {
            rows: single.rows.clone(),
            keys: Some(Keys::Fixed(vec![number])),
            tombstones: 0,
            bytes: single.bytes,
        };
        memtable.append(vec![batch]).unwrap();
        memtable.apply_index().unwrap();
        if number % 997 == 0 {
            most = most.max(memtable.view(u64::MAX).segments().len());
        }
    }
    let view = memtable.view(u64::MAX);
    most = most.max(view.segments().len());
    assert!(most <= 200, "{most}");
    assert_eq!(view.live_rows(), 100_000);
    assert_eq!(memtable.bytes(), 100_000 * single.bytes as u64);
}

#[test]
fn large_batches_are_never_copied() {
    let table = Table::new(KeyKind::Integer);
    let memtable = table.memtable(0);
    let address = |segment: &Segment, column: usize| {
        segment.batch.column(column).to_data().buffers()[0].as_ptr()
    };
    let rows: Vec<(i64, i64)> = (0..4_096).map(|n| (n, n)).collect();
    let values: ArrayRef = Arc::new(Int64Array::from_iter_values(0..4_096));
    let batch =
        RecordBatch::try_from_iter([("id", Arc::clone(&values)), ("value", Arc::clone(&values))])
            .unwrap();
    let large = PreparedBatch::upserts(&table.schema, table.codec.as_ref(), &batch).unwrap();
    memtable.append(vec![large]).unwrap();
    for _ in 0..200 {
        memtable.append(vec![table.upserts(&rows[..3])]).unwrap();
        memtable.apply_index().unwrap();
    }
    let view = memtable.view(u64::MAX);
    let first = &view.segments()[0];
    assert_eq!(first.batch.num_rows(), 4_096);
    assert_eq!(address(first, 0), values.to_data().buffers()[0].as_ptr());
    assert_eq!(address(first, 1), values.to_data().buffers()[0].as_ptr());
    let logged = memtable.batches_from(0, u64::MAX);
    assert!(Arc::ptr_eq(
        logged.batches[0].column(0),
        first.batch.column(0)
    ));
}

#[test]
fn a_small_part_of_a_large_batch_is_copied_out_of_it() {
    let table = Table::new(KeyKind::Text);
    let ids: Vec<i64> = (0..10_000).collect();
    let parent = RecordBatch::try_from_iter([("id", table.ids(&ids))]).unwrap();
    let prepare = |rows: &RecordBatch| {
        PreparedBatch::upserts(&table.schema, table.codec.as_ref(), rows).unwrap()
    };
    let part = prepare(&parent.slice(5_000, 10));
    assert!(part.rows.column(1).get_buffer_memory_size() < 1_000);
    // Offsets and text of ids; nulls, values, offsets of two empty columns; flags.
    assert!(
        (11 * 4 + 10 * 8..1_000).contains(&part.bytes),
        "{}",
        part.bytes
    );
    let text = part.rows.column(1).as_string::<i32>();
    assert_eq!(text.value(9), table.text_of(5_009));
    let whole = prepare(&parent);
    assert!(Arc::ptr_eq(whole.rows.column(1), parent.column(0)));
}

#[test]
fn what_is_visible_is_derived_and_saturates() {
    let table = Table::new(KeyKind::Integer);
    let memtable = table.memtable(10);
    for id in 0..3 {
        memtable.append(vec![table.upserts(&[(id, id)])]).unwrap();
    }
    assert_eq!(memtable.visible_batches(None), 0);
    assert_eq!(memtable.visible_batches(Some(13)), 0);
    memtable.apply_index().unwrap();
    assert_eq!(memtable.visible_batches(None), 3);
    for (durable, local) in [(0, 0), (10, 0), (11, 1), (13, 3), (14, 3), (u64::MAX, 3)] {
        assert_eq!(memtable.local(durable), local);
        assert_eq!(memtable.visible_batches(Some(durable)), local);
    }
}

#[test]
fn an_index_that_failed_fails_for_ever() {
    let table = Table::new(KeyKind::Integer);
    let memtable = table.memtable(0);
    memtable.append(vec![table.upserts(&[(1, 1)])]).unwrap();
    memtable.apply_index().unwrap();
    let mut broken = table.upserts(&[(2, 2)]);
    broken.keys = Some(Keys::Bytes([Some(b"2")].into_iter().collect()));
    memtable.append(vec![broken]).unwrap();
    let first = memtable.apply_index().unwrap_err();
    memtable.append(vec![table.upserts(&[(3, 3)])]).unwrap();
    let second = memtable.apply_index().unwrap_err();
    assert_eq!(first.kind(), ErrorKind::Internal);
    assert_eq!(first.message(), second.message());
    assert_eq!(memtable.indexed_batches(), 1);
    assert_eq!(memtable.view(u64::MAX).rows(), 1);
}

#[test]
fn a_batch_that_does_not_fit_the_table_is_refused_with_its_column() {
    let table = Table::new(KeyKind::Integer);
    let refuse = |columns: Vec<(&str, ArrayRef)>| {
        let batch = RecordBatch::try_from_iter_with_nullable(
            columns
                .into_iter()
                .map(|(name, column)| (name, column, true)),
        )
        .unwrap();
        let error =
            PreparedBatch::upserts(&table.schema, table.codec.as_ref(), &batch).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        error.to_string()
    };
    let one: ArrayRef = Arc::new(Int64Array::from(vec![1]));
    let huge: ArrayRef = Arc::new(UInt64Array::from(vec![u64::MAX]));
    let null: ArrayRef = Arc::new(Int64Array::from(vec![None]));
    assert!(refuse(vec![("value", Arc::clone(&one))]).contains("'id' is NOT NULL"));
    assert!(refuse(vec![("id", null)]).contains("'id' is NOT NULL"));
    assert!(refuse(vec![("id", Arc::clone(&one)), ("no", one)]).contains("no column 'no'"));
    assert!(refuse(vec![("id", huge)]).contains("'id' is of type Int64"));
}

#[test]
fn a_logged_batch_comes_back_as_it_was() {
    let table = Table::new(KeyKind::Integer);
    for batch in [table.upserts(&[(1, 1), (2, 2)]), table.deletes(&[7])] {
        let columns = batch.rows.columns().to_vec();
        let stored = RecordBatch::try_new(Arc::clone(table.schema.stored()), columns).unwrap();
        let again = PreparedBatch::replayed(&table.schema, table.codec.as_ref(), &stored).unwrap();
        assert_eq!(again.rows, batch.rows);
        assert_eq!(again.tombstones, batch.tombstones);
        assert!(again.keys.unwrap().iter().eq(batch.keys.unwrap().iter()));
        let short = stored.project(&[0, 1]).unwrap();
        let error =
            PreparedBatch::replayed(&table.schema, table.codec.as_ref(), &short).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt);
    }
}
