//! Checksums of a generation's small files, and of what its manifest says of the large
//! ones, kept in the configuration of its dataset.
//!
//! None of the formats has one of its own. Lance keeps configuration that it does not know
//! as it is; a generation of another writer has none of these keys.

use std::collections::HashMap;

use lance_core::datatypes::Schema;
use lance_table::format::Fragment;
use lance_table::io::deletion::relative_deletion_file_path;

/// The keys, each with the file that it stands for.
pub(super) const BLOOM_FILTER: &str = "memwal.bloom_filter.crc32";
pub(super) const KEY_INDEX: &str = "memwal.pk_index.page_data.crc32";
pub(super) const DELETIONS: &str = "memwal.deletions.crc32";
/// Of [`contents`].
pub(super) const CONTENTS: &str = "memwal.contents.crc32";

/// What the configuration says of the bytes that were found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Same,
    Different,
    /// Another writer made the file.
    NotRecorded,
}

/// The value to record for a file of these bytes: the CRC-32 in hex, and the length.
pub(super) fn of(bytes: &[u8]) -> String {
    format!("{:08x}/{}", crc32fast::hash(bytes), bytes.len())
}

/// What the columns are and where the rows lie, in words of our own: Lance may encode the
/// same in other ways.
pub(super) fn contents(schema: &Schema, fragment: &Fragment) -> String {
    let mut text = format!("{} {:?}", fragment.id, fragment.physical_rows);
    for field in schema.fields_pre_order() {
        text += &format!(
            " {} {} {:?} {} {}",
            field.id, field.parent_id, field.name, field.logical_type, field.nullable
        );
    }
    for file in &fragment.files {
        text += &format!(
            " {} {:?} {:?} {}.{} {:?}",
            file.path,
            file.fields,
            file.column_indices,
            file.file_major_version,
            file.file_minor_version,
            file.file_size_bytes.get(),
        );
    }
    if let Some(deletions) = &fragment.deletion_file {
        let path = relative_deletion_file_path(fragment.id, deletions);
        text += &format!(" {path} {:?}", deletions.num_deleted_rows);
    }
    text
}

/// Compares `bytes` with what `config` has recorded under `key`.
pub(super) fn verify(config: &HashMap<String, String>, key: &str, bytes: &[u8]) -> Verdict {
    match config.get(key) {
        None => Verdict::NotRecorded,
        Some(recorded) if *recorded == of(bytes) => Verdict::Same,
        Some(_) => Verdict::Different,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_bit_or_one_byte_more_is_different() {
        let config = HashMap::from([(KEY_INDEX.to_string(), of(b"abc"))]);
        let verify = |key, bytes| super::verify(&config, key, bytes);
        assert_eq!(verify(KEY_INDEX, b"abc"), Verdict::Same);
        assert_eq!(verify(KEY_INDEX, b"abb"), Verdict::Different);
        assert_eq!(verify(KEY_INDEX, b""), Verdict::Different);
        assert_eq!(verify(BLOOM_FILTER, b"abc"), Verdict::NotRecorded);
    }
}
