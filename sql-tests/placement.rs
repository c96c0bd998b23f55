//! Where the rows of a file lie while its queries run, and how they are read.

use std::path::Path;

/// When the engine flushes a table that a statement has written to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placement {
    /// Never: every row stays in the memtable.
    Memtable,
    /// After every write: every row lies in a generation.
    Flushed,
    /// After every second write to a table: old rows in generations, new ones in the memtable.
    Half,
}

impl Placement {
    const ALL: [Self; 3] = [Self::Memtable, Self::Flushed, Self::Half];

    /// Whether the table is flushed after its `writes`-th write, counted from 1.
    pub fn flushes_after(self, writes: usize) -> bool {
        match self {
            Self::Memtable => false,
            Self::Flushed => true,
            Self::Half => writes.is_multiple_of(2),
        }
    }

    /// The name in a trial, and the label that a file may skip by.
    pub fn name(self) -> &'static str {
        match self {
            Self::Memtable => "memtable",
            Self::Flushed => "flushed",
            Self::Half => "half",
        }
    }
}

/// One way to run one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Variant {
    pub placement: Placement,
    /// Whether key conditions use the key index and simple ones Lance's own pruning.
    /// Off, every row is read and judged: the answer must be the same.
    pub short_cuts: bool,
}

impl Variant {
    /// The one that `--complete` writes the expected output with.
    pub const PLAIN: Self = Self {
        placement: Placement::Memtable,
        short_cuts: true,
    };

    /// All ways to run the file at `relative`, by the folder that it lies in.
    pub fn of(relative: &Path) -> Vec<Self> {
        let folder = relative.iter().next().and_then(|name| name.to_str());
        let switches: &[bool] = match folder {
            Some("query" | "types") => &[true, false],
            Some("insert" | "names") => &[true],
            // These flush, restart and look into tiers themselves.
            _ => return vec![Self::PLAIN],
        };
        let with = |short_cuts: bool| {
            Placement::ALL.map(|placement| Self {
                placement,
                short_cuts,
            })
        };
        switches.iter().flat_map(|&on| with(on)).collect()
    }

    /// The name of the trial that runs the file at `relative` this way.
    pub fn trial_name(self, relative: &Path) -> String {
        let file = relative.display();
        if Self::of(relative).len() == 1 {
            return format!("sql::{file}");
        }
        let paths = if self.short_cuts { "" } else { "::paths-off" };
        format!("sql::{}{paths}::{file}", self.placement.name())
    }
}
