//! An array that grows at its end while others read it, and never moves an element.
//!
//! Pages grow with the array: four pages per doubling, so that at most a fifth of
//! the memory is held for elements to come, from the first page of 16 elements on.
//!
//! ```text
//! element   0..16 16..32 32..48 48..64  64..96 96..128 ..  192..256 ..
//! page      0     1      2      3       4      5           8
//! ```

use std::fmt;
use std::mem::size_of;
use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A page is found by the leading bits of the position plus this.
const BIAS: u64 = 64;
const BIAS_LOG2: u32 = BIAS.ilog2();

/// Enough for every `u32` position.
const PAGES: usize = ((32 - BIAS_LOG2 as usize) + 1) * 4;

/// See the module. `T` is shared, so it changes through atomics or is set once.
pub(crate) struct Paged<T> {
    pages: Box<[OnceLock<Box<[T]>>]>,
    bytes: AtomicUsize,
}

struct Place {
    page: usize,
    offset: usize,
    page_len: usize,
}

impl Place {
    fn of(position: u32) -> Self {
        let biased = u64::from(position) + BIAS;
        let log2 = biased.ilog2();
        let page_len = 1 << (log2 - 2);
        Self {
            page: (((log2 - BIAS_LOG2) << 2) + ((biased >> (log2 - 2)) & 3) as u32) as usize,
            offset: (biased & (page_len - 1)) as usize,
            page_len: page_len as usize,
        }
    }
}

impl<T: Default> Paged<T> {
    pub(crate) fn new() -> Self {
        Self {
            pages: (0..PAGES).map(|_| OnceLock::new()).collect(),
            bytes: AtomicUsize::new(PAGES * size_of::<OnceLock<Box<[T]>>>()),
        }
    }

    /// The element at `position`, made with its page if it is the first of it.
    pub(crate) fn make(&self, position: u32) -> &T {
        let place = Place::of(position);
        let page = self.pages[place.page].get_or_init(|| {
            self.bytes
                .fetch_add(place.page_len * size_of::<T>(), Ordering::Relaxed);
            (0..place.page_len).map(|_| T::default()).collect()
        });
        &page[place.offset]
    }

    /// The element at `position`, if its page was made.
    pub(crate) fn get(&self, position: u32) -> Option<&T> {
        let place = Place::of(position);
        self.pages[place.page].get()?.get(place.offset)
    }

    /// The elements of `positions`, in order; ends early where no page was made.
    pub(crate) fn iter(&self, positions: Range<u32>) -> impl Iterator<Item = &T> {
        let mut next = positions.start;
        std::iter::from_fn(move || {
            if next >= positions.end {
                return None;
            }
            let place = Place::of(next);
            let rest = self.pages[place.page].get()?.get(place.offset..)?;
            let wanted = (positions.end - next) as usize;
            let run = &rest[..rest.len().min(wanted)];
            next += run.len() as u32;
            Some(run)
        })
        .flatten()
    }

    /// Bytes of memory held, those of elements to come included.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }
}

impl<T> fmt::Debug for Paged<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Paged").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use super::*;

    #[test]
    fn every_position_has_its_own_element() {
        let array = Paged::<AtomicU32>::new();
        for position in 0..10_000 {
            array.make(position).store(position, Ordering::Relaxed);
        }
        let read: Vec<u32> = array
            .iter(5..9_000)
            .map(|element| element.load(Ordering::Relaxed))
            .collect();
        assert_eq!(read, (5..9_000).collect::<Vec<_>>());
        assert!(array.get(1_000_000).is_none());
        let elements = (array.bytes() - Paged::<AtomicU32>::new().bytes()) / 4;
        assert!((10_000..=12_500).contains(&elements), "{elements}");
    }

    #[test]
    fn the_last_position_has_a_page() {
        let place = Place::of(u32::MAX);
        assert!(place.page < PAGES && place.offset < place.page_len);
    }
}
