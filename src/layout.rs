//! Every object path of a table, made and parsed here only.
//!
//! Source: Lance's MemWAL specification, section "Directory layout"
//! (`docs/src/format/table/mem_wal.md` of `lance-format/lance`).
//!
//! ```text
//! {table}/_mem_wal/{shard}/manifest/{version}.binpb      version_hint.json
//!                         /wal/{position}.arrow
//!                         /{8 hex}_gen_{generation}/     a small Lance dataset
//!                                                 /_pk_index/  bloom_filter.bin
//! ```
//!
//! A version or position is written as its 64 bits in reverse order, so that
//! neighbouring numbers fall into different partitions of an object store.

use std::path::PathBuf;

use object_store::path::Path;
use percent_encoding::percent_decode_str;
use uuid::Uuid;

/// The folder beside a table's data that holds its shards.
pub(crate) const MEM_WAL_DIR: &str = "_mem_wal";
/// The key index of a generation, inside its folder.
pub(crate) const KEY_INDEX_DIR: &str = "_pk_index";
/// The Bloom filter of a generation, inside its folder.
pub(crate) const BLOOM_FILTER_FILE: &str = "bloom_filter.bin";

const MANIFEST_DIR: &str = "manifest";
const MANIFEST_EXTENSION: &str = "binpb";
const VERSION_HINT_FILE: &str = "version_hint.json";
const WAL_DIR: &str = "wal";
const WAL_EXTENSION: &str = "arrow";
const NAME_BITS: usize = 64;

/// The one shard of an unsharded table. A constant, so that two processes that
/// open a new table at once meet at the same shard and one fences the other.
pub(crate) const UNSHARDED_SHARD: Uuid = Uuid::from_u128(0x6d65_6d77_616c_4000_8000_0000_0000_0001);

/// The paths of one shard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ShardLayout {
    table: Path,
    shard: Uuid,
}

impl ShardLayout {
    /// The paths of `shard` of the table whose data lies at `table`.
    pub(crate) fn new(table: Path, shard: Uuid) -> Self {
        Self { table, shard }
    }

    pub(crate) fn shard(&self) -> Uuid {
        self.shard
    }

    /// `{table}/_mem_wal/{shard}`
    pub(crate) fn root(&self) -> Path {
        mem_wal_root(&self.table).join(self.shard.hyphenated().to_string())
    }

    pub(crate) fn manifest_dir(&self) -> Path {
        self.root().join(MANIFEST_DIR)
    }

    pub(crate) fn manifest(&self, version: u64) -> Path {
        self.manifest_dir()
            .join(reversed_name(version, MANIFEST_EXTENSION))
    }

    /// The version that the name of a manifest stands for.
    pub(crate) fn manifest_version(name: &str) -> Option<u64> {
        parse_reversed_name(name, MANIFEST_EXTENSION)
    }

    pub(crate) fn version_hint(&self) -> Path {
        self.manifest_dir().join(VERSION_HINT_FILE)
    }

    pub(crate) fn wal_dir(&self) -> Path {
        self.root().join(WAL_DIR)
    }

    pub(crate) fn wal_entry(&self, position: u64) -> Path {
        self.wal_dir().join(reversed_name(position, WAL_EXTENSION))
    }

    /// The position that the name of a log entry stands for.
    pub(crate) fn wal_position(name: &str) -> Option<u64> {
        parse_reversed_name(name, WAL_EXTENSION)
    }

    /// The folder of a generation, by the name that the manifest gives it.
    pub(crate) fn generation(&self, folder: &str) -> Path {
        self.root().join(folder)
    }

    /// The same folder as a suffix of the table's URI, as readers resolve it.
    pub(crate) fn generation_suffix(&self, folder: &str) -> String {
        format!("{MEM_WAL_DIR}/{}/{folder}", self.shard.hyphenated())
    }
}

/// The path of a location on local disk, `None` for another store. A `file://` URL has
/// its percent signs decoded, a plain path is taken as it is.
pub(crate) fn local_path(location: &str) -> Option<PathBuf> {
    match location.split_once("://") {
        Some(("file", path)) => {
            let decoded = percent_decode_str(path).decode_utf8().ok()?;
            Some(PathBuf::from(decoded.as_ref()))
        }
        Some(_) => None,
        None => Some(PathBuf::from(location)),
    }
}

/// `{table}/_mem_wal`
pub(crate) fn mem_wal_root(table: &Path) -> Path {
    table.clone().join(MEM_WAL_DIR)
}

/// The folder name of a generation: `{8 hex}_gen_{generation}`.
pub(crate) fn generation_folder(random_prefix: &str, generation: u64) -> String {
    format!("{random_prefix}_gen_{generation}")
}

/// The name of an object that is numbered: 64 reversed bits, a dot, the extension.
fn reversed_name(number: u64, extension: &str) -> String {
    format!("{:064b}.{extension}", number.reverse_bits())
}

/// The number that a name stands for, or `None` for a name that is not of this kind. What a
/// local store leaves behind of an interrupted write, `{name}.tmp.{id}`, is not.
fn parse_reversed_name(name: &str, extension: &str) -> Option<u64> {
    let (digits, found) = name.split_once('.')?;
    if found != extension
        || digits.len() != NAME_BITS
        || !digits.bytes().all(|digit| matches!(digit, b'0' | b'1'))
    {
        return None;
    }
    u64::from_str_radix(digits, 2).ok().map(u64::reverse_bits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_agree_with_lance_and_parse_back() {
        use lance::dataset::mem_wal::util::{manifest_filename, wal_entry_filename};
        for number in [1, 2, 5, 4096, u64::MAX] {
            let name = reversed_name(number, WAL_EXTENSION);
            assert_eq!(name, wal_entry_filename(number));
            assert_eq!(
                reversed_name(number, MANIFEST_EXTENSION),
                manifest_filename(number)
            );
            assert_eq!(parse_reversed_name(&name, WAL_EXTENSION), Some(number));
            let staged = format!("{name}.tmp.1");
            assert_eq!(parse_reversed_name(&staged, WAL_EXTENSION), None);
            assert_eq!(parse_reversed_name(&name, MANIFEST_EXTENSION), None);
        }
    }

    #[test]
    fn names_of_other_files_are_not_numbers() {
        for name in ["version_hint.json", "", "0101.arrow", "x.tmp.1"] {
            assert_eq!(parse_reversed_name(name, WAL_EXTENSION), None, "{name}");
        }
    }
}
