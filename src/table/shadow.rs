//! Which rows of an older tier a newer one replaces or deletes.
//!
//! Rows of a memtable keep their positions when it becomes a generation, so a shadow is
//! known by two generation numbers and outlives the flush. It grows with the newer tier:
//! each of its rows is looked up in the older tier once and the hit is kept with the row
//! that casts it, so that a snapshot takes exactly the part below its own row count. The
//! reader that needs a shadow does the work; a put never waits for a generation or the base.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex as SyncMutex;
use roaring::RoaringTreemap;
use tokio::sync::Mutex;

use crate::error::Result;
use crate::generation::Generation;
use crate::index::key::{KeyRef, SortedKeys};
use crate::memtable::MemtableView;
use crate::table::base::BaseTier;

/// What casts or catches a shadow. A memtable and the generation that it becomes are one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum TierId {
    /// A memtable or generation, by number.
    Generation(u64),
    /// The base table, by version.
    Base(u64),
}

/// A tier as a snapshot sees it.
#[derive(Debug, Clone, Copy)]
pub(crate) enum TierRef<'a> {
    Memtable(&'a MemtableView),
    Generation(&'a Generation),
    Base(&'a BaseTier),
}

impl TierRef<'_> {
    fn id(&self) -> TierId {
        match self {
            Self::Memtable(view) => TierId::Generation(view.generation()),
            Self::Generation(generation) => TierId::Generation(generation.number()),
            Self::Base(base) => TierId::Base(base.version()),
        }
    }

    /// Whether no row can be dead here, or none can cast a shadow.
    fn is_empty(&self) -> bool {
        match self {
            Self::Memtable(view) => view.rows() == 0,
            Self::Generation(_) => false,
            Self::Base(base) => base.rows() == 0,
        }
    }
}

type SharedShadow = Arc<Mutex<Shadow>>;

/// All shadows of one table.
#[derive(Debug, Default)]
pub(crate) struct Shadows {
    /// What the generations cast on each older tier together, up to one of them: with many
    /// generations a read must not visit every pair of them again.
    sealed: SyncMutex<HashMap<TierId, Sealed>>,
    /// By (older, newer) tier.
    pairs: SyncMutex<HashMap<(TierId, TierId), SharedShadow>>,
}

/// The rows of one older tier that the generations up to `newest` replace.
#[derive(Debug, Clone)]
struct Sealed {
    newest: u64,
    dead: Arc<RoaringTreemap>,
}

/// The rows of one older tier that one newer tier replaces.
#[derive(Debug, Default)]
struct Shadow {
    /// How many rows of the newer tier were looked up one by one.
    examined: u32,
    /// (row of the newer tier, row of the older tier that it replaces), in order of the former.
    casts: Vec<(u32, u64)>,
    /// All rows known to be replaced.
    all: RoaringTreemap,
    /// Whether `all` was also computed from the newer tier's sealed keys, and is final.
    is_final: bool,
}

impl Shadows {
    /// The rows of `older` that the `newer` generations, newest first, replace or delete.
    pub(crate) async fn collect_sealed(
        &self,
        older: TierRef<'_>,
        newer: &[Arc<Generation>],
    ) -> Result<Arc<RoaringTreemap>> {
        let Some(newest) = newer.first().map(|generation| generation.number()) else {
            return Ok(Arc::default());
        };
        if older.is_empty() {
            return Ok(Arc::default());
        }
        let known = self
            .sealed
            .lock()
            .get(&older.id())
            .filter(|known| known.newest <= newest)
            .cloned();
        let (from, mut dead) = match known {
            Some(known) if known.newest == newest => return Ok(known.dead),
            Some(known) => (known.newest, known.dead.as_ref().clone()),
            None => (0, RoaringTreemap::new()),
        };
        for generation in newer.iter().take_while(|newer| newer.number() > from) {
            let newer = TierRef::Generation(generation);
            self.collect(older, newer, &mut dead).await?;
            // From here on it is part of the whole, and the pair would only take memory.
            self.pairs.lock().remove(&(older.id(), newer.id()));
        }
        let sealed = Sealed {
            newest,
            dead: Arc::new(dead),
        };
        let dead = Arc::clone(&sealed.dead);
        let mut all = self.sealed.lock();
        // A read of an older state must not put a newer one's shadow aside.
        if all
            .get(&older.id())
            .is_none_or(|known| known.newest < newest)
        {
            all.insert(older.id(), sealed);
        }
        Ok(dead)
    }

    /// Adds to `dead` the rows of `older` that `newer` replaces or deletes.
    pub(crate) async fn collect(
        &self,
        older: TierRef<'_>,
        newer: TierRef<'_>,
        dead: &mut RoaringTreemap,
    ) -> Result<()> {
        if older.is_empty() || newer.is_empty() {
            return Ok(());
        }
        let pair = Arc::clone(
            self.pairs
                .lock()
                .entry((older.id(), newer.id()))
                .or_default(),
        );
        let mut shadow = pair.lock().await;
        match newer {
            TierRef::Memtable(view) => {
                if shadow.examined < view.rows() {
                    let lookup = Lookup::of(older).await?;
                    shadow.extend(view, &lookup);
                }
                shadow.below(view.rows(), dead);
            }
            TierRef::Generation(generation) => {
                let rows = generation.physical_rows();
                if !shadow.is_final && u64::from(shadow.examined) < rows {
                    let lookup = Lookup::of(older).await?;
                    let keys = generation.keys().await?;
                    shadow
                        .all
                        .extend(keys.iter().filter_map(|(key, _)| lookup.find(key)));
                    shadow.is_final = true;
                }
                *dead |= &shadow.all;
            }
            // Nothing is older than the base table.
            TierRef::Base(_) => {}
        }
        Ok(())
    }

    /// Forgets the base versions other than `version`.
    pub(crate) fn keep_base(&self, version: u64) {
        let is_kept = |older: &TierId| match older {
            TierId::Base(known) => *known == version,
            TierId::Generation(_) => true,
        };
        self.pairs.lock().retain(|(older, _), _| is_kept(older));
        self.sealed.lock().retain(|older, _| is_kept(older));
    }
}

impl Shadow {
    fn extend(&mut self, view: &MemtableView, lookup: &Lookup<'_>) {
        view.for_each_key(self.examined, |row, key| {
            if let Some(dead) = lookup.find(key) {
                self.casts.push((row, dead));
                self.all.insert(dead);
            }
        });
        self.examined = view.rows();
    }

    /// Adds the part of the shadow that the first `rows` rows of the newer tier cast.
    fn below(&self, rows: u32, dead: &mut RoaringTreemap) {
        if rows == self.examined && !self.is_final {
            *dead |= &self.all;
            return;
        }
        let end = self.casts.partition_point(|(row, _)| *row < rows);
        dead.extend(self.casts[..end].iter().map(|(_, row)| *row));
    }
}

/// Finds the newest row of a key in the older tier.
enum Lookup<'a> {
    Memtable(&'a MemtableView),
    Sealed(Arc<SortedKeys>),
}

impl<'a> Lookup<'a> {
    async fn of(tier: TierRef<'a>) -> Result<Self> {
        Ok(match tier {
            TierRef::Memtable(view) => Self::Memtable(view),
            TierRef::Generation(generation) => Self::Sealed(generation.keys().await?),
            TierRef::Base(base) => Self::Sealed(base.keys().await?),
        })
    }

    fn find(&self, key: KeyRef<'_>) -> Option<u64> {
        match self {
            Self::Memtable(view) => view.lookup(key).map(u64::from),
            Self::Sealed(keys) => keys.lookup(key),
        }
    }
}
