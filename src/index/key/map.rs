//! The key index of a memtable: one writer, many readers, grows.
//!
//! ```text
//! heads   hash of a key -> its newest row; replaced by a larger table when full
//!   |
//! rows    row 7: key, previous = 4, replaced_by = -
//!         row 4: key, previous = -, replaced_by = 7
//! ```
//!
//! A reader that sees `visible` rows walks from the head to the first row below
//! `visible`. Rows come in order and `replaced_by` is set once, so the answer for
//! a given `visible` never changes, however far the writer has come.
//!
//! Callers pass a `visible` of at most [`KeyMap::len`], which they have read from
//! the map or through another acquiring load that follows the insert.

use std::cmp;
use std::ops::{Bound, Range};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use arc_swap::ArcSwap;
use datafusion::arrow::array::BinaryBuilder;
use datafusion::arrow::buffer::BooleanBuffer;
use parking_lot::Mutex;

#[cfg(test)]
use super::Key;
use super::arena::KeyArena;
use super::hash::hash_key;
use super::run::{RunCell, starts_at, stops_at};
use super::{KeyRef, Keys, SortedKeys};
use crate::error::{Error, Result};
use crate::index::paged::Paged;

/// Positions end here, so that "position + 1" and "no position" fit a `u32` too.
const MAX_ROWS: u64 = u32::MAX as u64 - 1;

/// A sorted index of the keys holds them in one Arrow array of 32-bit offsets.
const MAX_KEY_BYTES: u64 = i32::MAX as u64;

const FIRST_SLOTS: usize = 64;

/// See the module.
#[derive(Debug)]
pub(crate) struct KeyMap {
    fixed: bool,
    rows: Paged<Row>,
    arena: KeyArena,
    heads: ArcSwap<Heads>,
    writer: Mutex<Writer>,
    len: AtomicU32,
    /// The first row that replaced another; below it every row is the only one of its key.
    first_replacer: AtomicU32,
    run: RunCell,
}

/// 0 stands for "none": `previous` holds a position + 1, and position 0 replaces nothing.
#[derive(Debug, Default)]
struct Row {
    /// The key itself, or the upper half of its hash and its place in the arena.
    key: AtomicU64,
    previous: AtomicU32,
    replaced_by: AtomicU32,
}

#[derive(Debug, Default)]
struct Writer {
    keys: usize,
    key_bytes: u64,
    arena_words: u32,
}

/// Open addressing with linear probing; a slot holds a row + 1, or 0.
#[derive(Debug)]
struct Heads(Box<[AtomicU32]>);

impl Heads {
    fn new(slots: usize) -> Self {
        Self((0..slots).map(|_| AtomicU32::new(0)).collect())
    }

    /// The slot of a key and its newest row. `is_row` tells whether a row has the key.
    fn find(&self, hash: u32, is_row: impl Fn(u32) -> bool) -> Option<(&AtomicU32, Option<u32>)> {
        let mask = self.0.len() - 1;
        for probe in 0..self.0.len() {
            let slot = &self.0[(hash as usize + probe) & mask];
            match slot.load(Ordering::Acquire).checked_sub(1) {
                None => return Some((slot, None)),
                Some(row) if is_row(row) => return Some((slot, Some(row))),
                Some(_) => {}
            }
        }
        None
    }

    /// Whether `keys` keys leave too few free slots for short probes.
    fn is_full_with(&self, keys: usize) -> bool {
        keys > self.0.len() / 4 * 3
    }
}

impl KeyMap {
    /// An empty index; `fixed` says which variant of [`Keys`] it holds.
    pub(crate) fn new(fixed: bool) -> Self {
        Self {
            fixed,
            rows: Paged::new(),
            arena: KeyArena::new(),
            heads: ArcSwap::from_pointee(Heads::new(FIRST_SLOTS)),
            writer: Mutex::default(),
            len: AtomicU32::new(0),
            first_replacer: AtomicU32::new(u32::MAX),
            run: RunCell::default(),
        }
    }

    /// Takes the keys of the rows that follow [`Self::len`], all or none.
    ///
    /// # Errors
    ///
    /// `Unsupported` when positions or key bytes would run out.
    pub(crate) fn insert(&self, keys: &Keys) -> Result<()> {
        let mut writer = self.writer.lock();
        let start = self.len.load(Ordering::Relaxed);
        self.check_room(&mut writer, start, keys)?;

        let mut heads = self.heads.load_full();
        let mut row = start;
        for key in keys.iter() {
            let hash = short_hash(key);
            let own = self.rows.make(row);
            let stored = match key {
                KeyRef::Fixed(key) => key,
                KeyRef::Bytes(key) => {
                    let at = writer.arena_words;
                    writer.arena_words = self.arena.push(at, key);
                    u64::from(hash) << 32 | u64::from(at)
                }
            };
            own.key.store(stored, Ordering::Relaxed);
            let Some((slot, older)) = heads.find(hash, |row| self.has_key(row, hash, key)) else {
                return Err(Error::internal("the key index has no free slot"));
            };
            if let Some(older) = older {
                own.previous.store(older + 1, Ordering::Relaxed);
                if let Some(older) = self.rows.get(older) {
                    older.replaced_by.store(row, Ordering::Release);
                }
                self.first_replacer.fetch_min(row, Ordering::Release);
            }
            slot.store(row + 1, Ordering::Release);
            row += 1;
            if older.is_none() {
                writer.keys += 1;
                if heads.is_full_with(writer.keys) {
                    heads = self.grow(&heads)?;
                }
            }
        }
        self.len.store(row, Ordering::Release);
        Ok(())
    }

    /// How many rows were inserted.
    pub(crate) fn len(&self) -> u32 {
        self.len.load(Ordering::Acquire)
    }

    /// Bytes of memory held.
    pub(crate) fn bytes(&self) -> usize {
        let heads = self.heads.load().0.len() * size_of::<AtomicU32>();
        self.rows.bytes() + self.arena.bytes() + heads + self.run.bytes()
    }

    /// The largest row below `visible` that has `key`.
    pub(crate) fn newest(&self, key: KeyRef<'_>, visible: u32) -> Option<u32> {
        let hash = short_hash(key);
        let heads = self.heads.load();
        let (_, head) = heads.find(hash, |row| self.has_key(row, hash, key))?;
        let mut row = head?;
        while row >= visible {
            let previous = self.rows.get(row)?.previous.load(Ordering::Relaxed);
            row = previous.checked_sub(1)?;
        }
        Some(row)
    }

    /// The next newer row of the key of `row`, visible or not.
    pub(crate) fn replaced_by(&self, row: u32) -> Option<u32> {
        let newer = self.rows.get(row)?.replaced_by.load(Ordering::Acquire);
        (newer != 0).then_some(newer)
    }

    /// Whether `row` is the newest of its key among the first `visible` rows.
    pub(crate) fn is_live(&self, row: u32, visible: u32) -> bool {
        row < visible && self.replaced_by(row).is_none_or(|newer| newer >= visible)
    }

    /// The key of `row`, if it was inserted.
    #[cfg(test)]
    pub(crate) fn key(&self, row: u32) -> Option<Key> {
        let mut key = None;
        self.for_each_key(row..row.saturating_add(1), |_, found| {
            key = Some(match found {
                KeyRef::Fixed(found) => Key::Fixed(found),
                KeyRef::Bytes(found) => Key::Bytes(found.into()),
            });
        });
        key
    }

    /// Hands out the key of each of `rows` that was inserted, in order.
    pub(crate) fn for_each_key(&self, rows: Range<u32>, mut f: impl FnMut(u32, KeyRef<'_>)) {
        let rows = rows.start..rows.end.min(self.len());
        let mut bytes = Vec::new();
        for (row, own) in rows.clone().zip(self.rows.iter(rows)) {
            let stored = own.key.load(Ordering::Relaxed);
            if self.fixed {
                f(row, KeyRef::Fixed(stored));
            } else {
                self.arena.read(stored as u32, &mut bytes);
                f(row, KeyRef::Bytes(&bytes));
            }
        }
    }

    /// For each of `rows`, whether it is the newest of its key among the first
    /// `visible` rows; `None` when all are.
    pub(crate) fn live(&self, rows: Range<u32>, visible: u32) -> Option<BooleanBuffer> {
        if rows.end <= visible && !self.any_replaced(visible) {
            return None;
        }
        let mut cells = self.rows.iter(rows.start..rows.end.min(visible));
        let mask = BooleanBuffer::collect_bool(rows.len(), |_| {
            cells.next().is_some_and(|row| {
                let newer = row.replaced_by.load(Ordering::Relaxed);
                newer == 0 || newer >= visible
            })
        });
        (mask.count_set_bits() < rows.len()).then_some(mask)
    }

    /// Whether any of the first `visible` rows is replaced by another of them.
    pub(crate) fn any_replaced(&self, visible: u32) -> bool {
        self.first_replacer.load(Ordering::Acquire) < visible
    }

    /// The newest row of each key within the bounds, among the first `visible`
    /// rows, in ascending order of rows.
    pub(crate) fn range(
        &self,
        lower: Bound<KeyRef<'_>>,
        upper: Bound<KeyRef<'_>>,
        visible: u32,
    ) -> Vec<u32> {
        let visible = visible.min(self.len());
        let run = self.run.up_to_date(self.len(), |a, b| self.compare(a, b));
        let sorted = &run.rows;
        let start = sorted.partition_point(|&row| !starts_at(self.compare_key(row, &lower)));
        let end = sorted.partition_point(|&row| !stops_at(self.compare_key(row, &upper)));
        let within = sorted.get(start..end).unwrap_or_default();
        let tail = (run.len()..visible).filter(|&row| {
            starts_at(self.compare_key(row, &lower)) && !stops_at(self.compare_key(row, &upper))
        });
        let mut rows: Vec<u32> = within
            .iter()
            .copied()
            .chain(tail)
            .filter(|&row| self.is_live(row, visible))
            .collect();
        rows.sort_unstable();
        rows
    }

    /// The newest row of each key over all rows.
    #[cfg(test)]
    pub(crate) fn seal(&self) -> SortedKeys {
        self.sorted(self.len())
    }

    /// The newest row of each key among the first `visible` rows.
    pub(crate) fn sorted(&self, visible: u32) -> SortedKeys {
        let visible = visible.min(self.len());
        let live = (0..visible).filter(|&row| self.is_live(row, visible));
        if self.fixed {
            let mut pairs: Vec<(u64, u32)> = live.map(|row| (self.stored_key(row), row)).collect();
            pairs.sort_unstable();
            let (keys, rows) = pairs
                .into_iter()
                .map(|(key, row)| (key, u64::from(row)))
                .unzip();
            return SortedKeys::from_sorted(Keys::Fixed(keys), rows);
        }
        let mut rows: Vec<u32> = live.collect();
        rows.sort_unstable_by(|&a, &b| self.compare(a, b));
        let mut keys = BinaryBuilder::with_capacity(rows.len(), 0);
        let mut key = Vec::new();
        for &row in &rows {
            self.arena.read(self.stored_key(row) as u32, &mut key);
            keys.append_value(&key);
        }
        let rows = rows.into_iter().map(u64::from).collect();
        SortedKeys::from_sorted(Keys::Bytes(keys.finish()), rows)
    }

    /// Refuses before anything is written, so that an insert is whole or nothing.
    fn check_room(&self, writer: &mut Writer, start: u32, keys: &Keys) -> Result<()> {
        if matches!(keys, Keys::Fixed(_)) != self.fixed {
            return Err(Error::internal(
                "the key index got keys of another kind than it holds",
            ));
        }
        if u64::from(start) + keys.len() as u64 > MAX_ROWS {
            return Err(Error::unsupported(format!(
                "a memtable holds at most {MAX_ROWS} rows; lower 'max_memtable_rows'"
            )));
        }
        if let Keys::Bytes(keys) = keys {
            let lengths = || keys.offsets().lengths();
            let bytes = writer.key_bytes + lengths().map(|len| len as u64).sum::<u64>();
            let words = lengths().map(KeyArena::words_of).sum::<u64>();
            if bytes > MAX_KEY_BYTES || u64::from(writer.arena_words) + words > u64::from(u32::MAX)
            {
                return Err(Error::unsupported(format!(
                    "a memtable holds at most {MAX_KEY_BYTES} bytes of keys; lower 'max_memtable_size'"
                )));
            }
            writer.key_bytes = bytes;
        }
        Ok(())
    }

    /// Publishes a table twice as large with the same heads.
    fn grow(&self, old: &Heads) -> Result<Arc<Heads>> {
        let new = Arc::new(Heads::new(old.0.len() * 2));
        for slot in &old.0 {
            let head = slot.load(Ordering::Relaxed);
            let Some(row) = head.checked_sub(1) else {
                continue;
            };
            // Every key has one head: the next free slot is its own.
            match new.find(self.short_hash_of(row), |_| false) {
                Some((slot, _)) => slot.store(head, Ordering::Relaxed),
                None => return Err(Error::internal("the key index has no free slot")),
            }
        }
        self.heads.store(Arc::clone(&new));
        Ok(new)
    }

    fn stored_key(&self, row: u32) -> u64 {
        self.rows
            .get(row)
            .map_or(0, |row| row.key.load(Ordering::Relaxed))
    }

    fn short_hash_of(&self, row: u32) -> u32 {
        let stored = self.stored_key(row);
        match self.fixed {
            true => short_hash(KeyRef::Fixed(stored)),
            false => (stored >> 32) as u32,
        }
    }

    fn has_key(&self, row: u32, hash: u32, key: KeyRef<'_>) -> bool {
        let stored = self.stored_key(row);
        match key {
            KeyRef::Fixed(key) => self.fixed && stored == key,
            KeyRef::Bytes(key) => {
                !self.fixed
                    && (stored >> 32) as u32 == hash
                    && self.arena.equals(stored as u32, key)
            }
        }
    }

    /// The order of a sorted run: by key, then by row.
    fn compare(&self, a: u32, b: u32) -> cmp::Ordering {
        let (one, other) = (self.stored_key(a), self.stored_key(b));
        let keys = match self.fixed {
            true => one.cmp(&other),
            false => self.arena.compare_two(one as u32, other as u32),
        };
        keys.then(a.cmp(&b))
    }

    /// The key of `row` against the key of a bound.
    fn compare_key<'a>(&self, row: u32, bound: &Bound<KeyRef<'a>>) -> Bound<cmp::Ordering> {
        bound.map(|key: KeyRef<'a>| {
            let stored = self.stored_key(row);
            match key {
                KeyRef::Bytes(key) if !self.fixed => self.arena.compare(stored as u32, key),
                KeyRef::Fixed(_) if !self.fixed => cmp::Ordering::Greater,
                _ => KeyRef::Fixed(stored).cmp(&key),
            }
        })
    }
}

/// The upper half of the hash: a slot is chosen by it, and a byte-string key tagged.
fn short_hash(key: KeyRef<'_>) -> u32 {
    (hash_key(key) >> 32) as u32
}
