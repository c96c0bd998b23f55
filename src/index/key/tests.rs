//! Both key indexes against the plainest model: a vector of keys.

use std::ops::Bound;
use std::sync::atomic::{AtomicBool, Ordering};

use datafusion::arrow::array::BinaryArray;
use proptest::prelude::*;

use super::{Key, KeyMap, KeyRef, Keys, SortedKeys};
use crate::error::ErrorKind;

/// Number `n` as a key of either kind, in the order of the numbers.
fn key(fixed: bool, n: u64) -> Key {
    match fixed {
        true => Key::Fixed(n),
        false => Key::Bytes(
            format!("{n:0width$}", width = 1 + (n % 3 * 7) as usize)
                .into_bytes()
                .into(),
        ),
    }
}

fn keys(fixed: bool, numbers: &[u64]) -> Keys {
    match fixed {
        true => Keys::Fixed(numbers.to_vec()),
        false => {
            let all: Vec<Key> = numbers.iter().map(|&n| key(false, n)).collect();
            Keys::Bytes(BinaryArray::from_iter_values(all.iter().map(|key| {
                let Key::Bytes(bytes) = key else {
                    panic!("not bytes")
                };
                bytes
            })))
        }
    }
}

/// Everything that a map answers about its first `visible` rows.
fn check_map(map: &KeyMap, rows: &[Key], visible: u32, bounds: (Bound<&Key>, Bound<&Key>)) {
    let seen = &rows[..visible as usize];
    let live: Vec<bool> = (0..seen.len())
        .map(|row| !seen[row + 1..].contains(&seen[row]))
        .collect();
    let mask = map.live(0..visible, visible);
    assert_eq!(mask.is_none(), live.iter().all(|live| *live));
    if let Some(mask) = mask {
        assert_eq!(mask.iter().collect::<Vec<_>>(), live);
    }
    for key in rows {
        let expected = seen.iter().rposition(|own| own == key);
        assert_eq!(
            map.newest(key.as_ref(), visible),
            expected.map(|row| row as u32)
        );
    }
    let as_ref = |bound: Bound<&'_ Key>| -> Bound<Key> { bound.cloned() };
    let (lower, upper) = (as_ref(bounds.0), as_ref(bounds.1));
    let within: Vec<u32> = (0..visible)
        .filter(|&row| live[row as usize] && is_within(&rows[row as usize], bounds))
        .collect();
    let found = map.range(by_ref(&lower), by_ref(&upper), visible);
    assert_eq!(found, within);

    let mut expected: Vec<(Key, u64)> = (0..seen.len())
        .filter(|&row| live[row])
        .map(|row| (seen[row].clone(), row as u64))
        .collect();
    expected.sort();
    check_sorted(&map.sorted(visible), &expected, bounds);
}

fn check_sorted(sorted: &SortedKeys, expected: &[(Key, u64)], bounds: (Bound<&Key>, Bound<&Key>)) {
    let entries: Vec<(KeyRef, u64)> = sorted.iter().collect();
    let wanted: Vec<(KeyRef, u64)> = expected
        .iter()
        .map(|(key, row)| (key.as_ref(), *row))
        .collect();
    assert_eq!(entries, wanted);
    assert_eq!(sorted.len(), expected.len());
    assert_eq!(sorted.min(), wanted.first().map(|entry| entry.0));
    assert_eq!(sorted.max(), wanted.last().map(|entry| entry.0));
    for (key, row) in &wanted {
        assert_eq!(sorted.lookup(*key), Some(*row));
    }
    let within: Vec<u64> = expected
        .iter()
        .filter(|(key, _)| is_within(key, bounds))
        .map(|(_, row)| *row)
        .collect();
    let (lower, upper) = (bounds.0.cloned(), bounds.1.cloned());
    assert_eq!(sorted.range(by_ref(&lower), by_ref(&upper)), within);
}

fn by_ref(bound: &Bound<Key>) -> Bound<KeyRef<'_>> {
    bound.as_ref().map(Key::as_ref)
}

fn is_within(key: &Key, (lower, upper): (Bound<&Key>, Bound<&Key>)) -> bool {
    let starts = match lower {
        Bound::Included(lower) => key >= lower,
        Bound::Excluded(lower) => key > lower,
        Bound::Unbounded => true,
    };
    starts
        && match upper {
            Bound::Included(upper) => key <= upper,
            Bound::Excluded(upper) => key < upper,
            Bound::Unbounded => true,
        }
}

fn bound(kind: u8, key: &Key) -> Bound<&Key> {
    match kind {
        0 => Bound::Included(key),
        1 => Bound::Excluded(key),
        _ => Bound::Unbounded,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn map_and_sorted_agree_with_a_vector_at_every_bound(
        fixed: bool,
        batches in prop::collection::vec(prop::collection::vec(0_u64..30, 0..12), 1..8),
        (low, high) in (0_u64..32, 0_u64..32),
        (low_kind, high_kind) in (0_u8..3, 0_u8..3),
    ) {
        let map = KeyMap::new(fixed);
        for batch in &batches {
            map.insert(&keys(fixed, batch)).unwrap();
        }
        let numbers = batches.concat();
        let rows: Vec<Key> = numbers.iter().map(|&n| key(fixed, n)).collect();
        prop_assert_eq!(map.len() as usize, rows.len());
        let (low, high) = (key(fixed, low), key(fixed, high));
        let bounds = (bound(low_kind, &low), bound(high_kind, &high));
        for visible in 0..=map.len() {
            check_map(&map, &rows, visible, bounds);
        }
        for (row, expected) in rows.iter().enumerate() {
            prop_assert_eq!(map.key(row as u32), Some(expected.clone()));
            let newer = rows[row + 1..].iter().position(|key| key == expected);
            prop_assert_eq!(map.replaced_by(row as u32), newer.map(|at| (row + 1 + at) as u32));
        }
        prop_assert_eq!(map.key(map.len()), None);

        // The same entries in a shuffled order, duplicates included.
        let mut shuffled: Vec<u64> = (0..rows.len() as u64).collect();
        shuffled.sort_by_key(|row| row.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let of_shuffled: Vec<u64> = shuffled.iter().map(|&row| numbers[row as usize]).collect();
        let sorted = SortedKeys::new(keys(fixed, &of_shuffled), shuffled);
        let sealed: Vec<(KeyRef, u64)> = sorted.iter().collect();
        let map_sealed = map.seal();
        prop_assert_eq!(sealed, map_sealed.iter().collect::<Vec<_>>());
    }
}

#[test]
fn ranges_stay_exact_across_merges_of_the_run() {
    for fixed in [true, false] {
        let map = KeyMap::new(fixed);
        let mut numbers: Vec<u64> = vec![];
        for round in 0..20_u64 {
            let batch: Vec<u64> = (0..400).map(|i| (i * 7 + round * 131) % 3_000).collect();
            map.insert(&keys(fixed, &batch)).unwrap();
            numbers.extend(batch);
            let rows: Vec<Key> = numbers.iter().map(|&n| key(fixed, n)).collect();
            let (low, high) = (key(fixed, 700), key(fixed, 900));
            let bounds = (Bound::Included(&low), Bound::Excluded(&high));
            for visible in [map.len(), map.len() - 399] {
                let seen = &rows[..visible as usize];
                let mut newest = std::collections::HashMap::new();
                for (row, key) in seen.iter().enumerate() {
                    newest.insert(key, row as u32);
                }
                let mut expected: Vec<u32> = newest
                    .into_iter()
                    .filter(|(key, _)| is_within(key, bounds))
                    .map(|(_, row)| row)
                    .collect();
                expected.sort_unstable();
                let found = map.range(
                    Bound::Included(low.as_ref()),
                    Bound::Excluded(high.as_ref()),
                    visible,
                );
                assert_eq!(found, expected);
            }
        }
    }
}

#[test]
fn absent_keys_of_a_sorted_index_are_not_found() {
    let sorted = SortedKeys::new(Keys::Fixed(vec![5, 3, 5]), vec![0, 1, 2]);
    assert_eq!(sorted.lookup(KeyRef::Fixed(5)), Some(2));
    for absent in (0..1_000).filter(|key| ![3, 5].contains(key)) {
        assert_eq!(sorted.lookup(KeyRef::Fixed(absent)), None);
    }
    assert_eq!(sorted.lookup(KeyRef::Bytes(b"5")), None);
    let empty = SortedKeys::new(Keys::Fixed(vec![]), vec![]);
    assert_eq!((empty.lookup(KeyRef::Fixed(1)), empty.min()), (None, None));
}

#[test]
fn keys_of_the_other_kind_are_refused_and_change_nothing() {
    let map = KeyMap::new(true);
    map.insert(&keys(true, &[1, 2])).unwrap();
    let error = map.insert(&keys(false, &[3])).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Internal);
    assert_eq!(map.len(), 2);
    assert_eq!(map.newest(KeyRef::Bytes(b"1"), 2), None);
}

#[test]
fn a_reader_beside_the_writer_sees_its_own_bound_only() {
    const KEYS: u64 = 97;
    const ROWS: u32 = 40_000;
    for fixed in [true, false] {
        let map = KeyMap::new(fixed);
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for start in (0..u64::from(ROWS)).step_by(100) {
                    // Every second batch brings keys of its own, so that the table grows.
                    let batch: Vec<u64> = (start..start + 100)
                        .map(|row| {
                            if start % 200 == 0 {
                                row % KEYS
                            } else {
                                row + KEYS
                            }
                        })
                        .collect();
                    map.insert(&keys(fixed, &batch)).unwrap();
                }
                done.store(true, Ordering::Release);
            });
            loop {
                let last = done.load(Ordering::Acquire);
                let visible = map.len();
                let repeated = |row: &u32| (row / 100).is_multiple_of(2);
                for n in 0..KEYS {
                    let expected = (0..visible)
                        .rev()
                        .filter(repeated)
                        .find(|row| u64::from(*row) % KEYS == n);
                    assert_eq!(map.newest(key(fixed, n).as_ref(), visible), expected);
                }
                let live = map
                    .live(0..visible, visible)
                    .map_or(visible as usize, |mask| mask.count_set_bits());
                let fresh = (0..visible).filter(|row| !repeated(row)).count();
                let repeats = (0..visible)
                    .filter(repeated)
                    .map(|row| u64::from(row) % KEYS);
                let distinct = repeats.collect::<std::collections::HashSet<_>>().len();
                assert_eq!(live, fresh + distinct);
                let zero = key(fixed, 0);
                let only_zero = Bound::Included(zero.as_ref());
                assert_eq!(
                    map.range(only_zero, only_zero, visible),
                    map.newest(zero.as_ref(), visible)
                        .into_iter()
                        .collect::<Vec<_>>()
                );
                if last {
                    break;
                }
            }
        });
        assert_eq!(map.len(), ROWS);
    }
}

#[test]
fn memory_is_at_most_thirty_bytes_a_row() {
    const ROWS: u64 = 100_000;
    let map = KeyMap::new(true);
    let empty = map.bytes();
    map.insert(&Keys::Fixed((0..ROWS).collect())).unwrap();
    let per_row = (map.bytes() - empty) as f64 / ROWS as f64;
    assert!(per_row <= 30.0, "{per_row}");
}
