//! The key index of a tier that no longer changes: keys in order, each with its row.

use std::ops::Bound;

use datafusion::arrow::array::BinaryArray;
use lance_core::utils::bloomfilter::sbbf::Sbbf;

use super::hash::hash_key;
use super::run::{starts_at, stops_at};
use super::{KeyRef, Keys};

/// One in a hundred absent keys costs a search: ten bits a key.
const FALSE_POSITIVES: f64 = 0.01;

/// One entry per key, in key order.
#[derive(Debug)]
pub(crate) struct SortedKeys {
    keys: Keys,
    rows: Vec<u64>,
    /// Tells most absent keys without a search; `None` when the tier is empty.
    filter: Option<Sbbf>,
}

impl SortedKeys {
    /// From `rows[i]` with the key `keys[i]`, in any order; of several rows with one
    /// key the largest is kept.
    pub(crate) fn new(keys: Keys, rows: Vec<u64>) -> Self {
        match keys {
            Keys::Fixed(keys) => {
                let mut pairs: Vec<(u64, u64)> = keys.into_iter().zip(rows).collect();
                pairs.sort_unstable();
                let (keys, rows) = pairs.into_iter().unzip();
                Self::from_sorted(Keys::Fixed(keys), rows)
            }
            Keys::Bytes(keys) => {
                let mut pairs: Vec<(&[u8], u64)> = keys.iter().flatten().zip(rows).collect();
                pairs.sort_unstable();
                let sorted = BinaryArray::from_iter_values(pairs.iter().map(|(key, _)| key));
                let rows = pairs.into_iter().map(|(_, row)| row).collect();
                Self::from_sorted(Keys::Bytes(sorted), rows)
            }
        }
    }

    /// From entries that are sorted by key, then by row.
    pub(crate) fn from_sorted(keys: Keys, rows: Vec<u64>) -> Self {
        let len = keys.len().min(rows.len());
        let is_last = |entry: &usize| entry + 1 == len || keys.get(*entry) != keys.get(entry + 1);
        let kept: Vec<usize> = (0..len).filter(is_last).collect();
        let (keys, rows) = if kept.len() == keys.len() {
            (keys, rows)
        } else {
            let of_kept = kept.iter().map(|&entry| rows[entry]).collect();
            let keys = match keys {
                Keys::Fixed(keys) => Keys::Fixed(kept.iter().map(|&entry| keys[entry]).collect()),
                Keys::Bytes(keys) => Keys::Bytes(BinaryArray::from_iter_values(
                    kept.iter().map(|&entry| keys.value(entry)),
                )),
            };
            (keys, of_kept)
        };
        let mut filter = match rows.len() as u64 {
            0 => None,
            entries => Sbbf::with_ndv_fpp(entries, FALSE_POSITIVES).ok(),
        };
        if let Some(filter) = &mut filter {
            for key in keys.iter() {
                filter.insert_hash(hash_key(key));
            }
        }
        Self { keys, rows, filter }
    }

    /// The row of `key`.
    pub(crate) fn lookup(&self, key: KeyRef<'_>) -> Option<u64> {
        if !self.filter.as_ref()?.check_hash(hash_key(key)) {
            return None;
        }
        let entry = self.first_entry(|own| own >= key);
        (entry < self.len() && self.keys.get(entry) == key).then(|| self.rows[entry])
    }

    /// The rows of the keys within the bounds, in key order.
    pub(crate) fn range(&self, lower: Bound<KeyRef<'_>>, upper: Bound<KeyRef<'_>>) -> &[u64] {
        let start = self.first_entry(|own| starts_at(lower.map(|key| own.cmp(&key))));
        let end = self.first_entry(|own| stops_at(upper.map(|key| own.cmp(&key))));
        self.rows.get(start..end).unwrap_or_default()
    }

    /// How many keys there are.
    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there is no key.
    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The smallest key.
    #[cfg(test)]
    pub(crate) fn min(&self) -> Option<KeyRef<'_>> {
        (!self.is_empty()).then(|| self.keys.get(0))
    }

    /// The largest key.
    #[cfg(test)]
    pub(crate) fn max(&self) -> Option<KeyRef<'_>> {
        let last = self.len().checked_sub(1)?;
        Some(self.keys.get(last))
    }

    /// All keys with their rows, in key order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (KeyRef<'_>, u64)> {
        self.keys.iter().zip(self.rows.iter().copied())
    }

    /// The first entry whose key is `late`; the entries before it are not.
    fn first_entry(&self, late: impl Fn(KeyRef<'_>) -> bool) -> usize {
        let (mut start, mut end) = (0, self.len());
        while start < end {
            let middle = start + (end - start) / 2;
            if late(self.keys.get(middle)) {
                end = middle;
            } else {
                start = middle + 1;
            }
        }
        start
    }
}
