//! What a shard consists of at one moment.

use std::sync::Arc;

use crate::generation::Generation;
use crate::memtable::Memtable;

/// The memtables and generations of a shard. A new one replaces the old as a whole, so
/// that a reader never sees a memtable and its generation both, or neither.
#[derive(Debug)]
pub(crate) struct Tiers {
    /// Counts the replacements.
    pub(crate) version: u64,
    /// Takes the writes.
    pub(crate) active: Arc<Memtable>,
    /// Sealed and waiting for their flush, oldest first.
    pub(crate) frozen: Vec<Arc<Memtable>>,
    /// Flushed, oldest first.
    pub(crate) generations: Vec<Arc<Generation>>,
}

impl Tiers {
    /// Every memtable, oldest first.
    pub(crate) fn memtables(&self) -> impl Iterator<Item = &Arc<Memtable>> {
        self.frozen.iter().chain([&self.active])
    }

    /// The state after the active memtable was sealed and `next` took its place.
    pub(crate) fn frozen_with(&self, next: Arc<Memtable>) -> Self {
        let mut frozen = self.frozen.clone();
        frozen.push(Arc::clone(&self.active));
        Self {
            version: self.version + 1,
            active: next,
            frozen,
            generations: self.generations.clone(),
        }
    }

    /// The state after the oldest frozen memtable became `generation`.
    pub(crate) fn published(&self, generation: Arc<Generation>) -> Self {
        let mut generations = self.generations.clone();
        generations.push(generation);
        Self {
            version: self.version + 1,
            active: Arc::clone(&self.active),
            frozen: self.frozen.iter().skip(1).cloned().collect(),
            generations,
        }
    }
}
