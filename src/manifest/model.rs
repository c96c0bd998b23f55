//! One manifest, and its bytes.
//!
//! The message is Lance's `ShardManifest`. `prost` drops fields that it does not know, so
//! what a later version of the format adds is lost when this version writes the next
//! manifest; values that it can see and does not understand are refused instead.
//! Source: Lance's MemWAL specification and `table.proto`, message `ShardManifest`.

use lance_table::format::pb;
use object_store::path::Path;
use prost::Message;
use uuid::Uuid;

use crate::error::{Error, Result};

/// What our writer adds to the message: its number at the front, the checksum of every
/// byte before it at the end. No field of the format is near theirs, and readers skip them.
///
/// They stand at the two ends so that whatever is cut off or altered, one of them is left
/// to tell that the other is missing or wrong. Lance's writer adds neither.
#[derive(Clone, PartialEq, Message)]
struct Seal {
    #[prost(bytes = "vec", optional, tag = "1000")]
    nonce: Option<Vec<u8>>,
    #[prost(fixed32, optional, tag = "1001")]
    crc32: Option<u32>,
}

impl Seal {
    fn number(nonce: Uuid) -> Vec<u8> {
        let nonce = Some(nonce.as_bytes().to_vec());
        Self { nonce, crc32: None }.encode_to_vec()
    }

    fn checksum(bytes: &[u8]) -> Vec<u8> {
        let crc32 = Some(crc32fast::hash(bytes));
        Self { nonce: None, crc32 }.encode_to_vec()
    }

    /// Whether `bytes` are as our writer left them, or come from one that seals nothing.
    fn check(bytes: &[u8]) -> Result<(), String> {
        let seal = Self::decode(bytes).map_err(|error| error.to_string())?;
        match (seal.nonce, seal.crc32) {
            (None, None) => Ok(()),
            (Some(_), None) => Err("its checksum is missing".to_string()),
            (_, Some(crc32)) => {
                let field = Self {
                    nonce: None,
                    crc32: Some(crc32),
                };
                let body = bytes.strip_suffix(field.encode_to_vec().as_slice());
                match body.is_some_and(|body| crc32fast::hash(body) == crc32) {
                    true => Ok(()),
                    false => Err("its checksum does not match".to_string()),
                }
            }
        }
    }
}

/// Whether a shard can be claimed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ShardStatus {
    Active,
    /// The table is being dropped: no writer may claim the shard.
    Sealed,
}

/// A flushed memtable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GenerationEntry {
    pub generation: u64,
    /// The name of its folder, inside the shard's.
    pub path: String,
    /// The three measures are absent in manifests of older writers, which is not zero.
    pub in_memory_bytes: Option<u64>,
    pub physical_rows: Option<u64>,
    pub primary_key_bytes: Option<u64>,
}

/// The state of a shard at one version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ShardManifest {
    pub version: u64,
    pub shard_id: Uuid,
    pub shard_spec_id: u32,
    /// Values of the sharding spec that the shard stands for, kept as they are.
    pub shard_field_entries: Vec<(String, Vec<u8>)>,
    pub writer_epoch: u64,
    /// The last WAL entry whose rows are all in generations; 0 is before the first.
    pub replay_after_wal_entry_position: u64,
    /// Where the log was seen to end, a hint.
    pub wal_entry_position_last_seen: u64,
    /// The generation of the active memtable.
    pub current_generation: u64,
    pub generations: Vec<GenerationEntry>,
    pub status: ShardStatus,
}

impl ShardManifest {
    /// The state of a shard that nobody has written to or claimed.
    pub(super) fn unclaimed(shard_id: Uuid, shard_spec_id: u32) -> Self {
        Self {
            version: 0,
            shard_id,
            shard_spec_id,
            shard_field_entries: Vec::new(),
            writer_epoch: 0,
            replay_after_wal_entry_position: 0,
            wal_entry_position_last_seen: 0,
            current_generation: 1,
            generations: Vec::new(),
            status: ShardStatus::Active,
        }
    }

    /// The bytes of this manifest; `nonce` tells them from the same manifest of anyone else.
    pub(super) fn encode(&self, nonce: Uuid) -> Vec<u8> {
        let message = pb::ShardManifest {
            shard_id: Some(pb::Uuid {
                uuid: self.shard_id.as_bytes().to_vec(),
            }),
            version: self.version,
            shard_spec_id: self.shard_spec_id,
            shard_field_entries: self
                .shard_field_entries
                .iter()
                .map(|(field_id, value)| pb::ShardFieldEntry {
                    field_id: field_id.clone(),
                    value: value.clone(),
                })
                .collect(),
            writer_epoch: self.writer_epoch,
            replay_after_wal_entry_position: self.replay_after_wal_entry_position,
            wal_entry_position_last_seen: self.wal_entry_position_last_seen,
            current_generation: self.current_generation,
            sstables: self
                .generations
                .iter()
                .map(|entry| pb::SsTable {
                    generation: entry.generation,
                    path: entry.path.clone(),
                    in_memory_bytes: entry.in_memory_bytes,
                    physical_rows: entry.physical_rows,
                    primary_key_bytes: entry.primary_key_bytes,
                })
                .collect(),
            status: match self.status {
                ShardStatus::Active => pb::ShardStatus::Active,
                ShardStatus::Sealed => pb::ShardStatus::Sealed,
            }
            .into(),
        };
        let mut bytes = Seal::number(nonce);
        bytes.extend(message.encode_to_vec());
        let checksum = Seal::checksum(&bytes);
        bytes.extend(checksum);
        bytes
    }

    /// The manifest that `bytes`, found at `path`, hold. It must be `version` of `shard`.
    pub(super) fn decode(path: &Path, shard: Uuid, version: u64, bytes: &[u8]) -> Result<Self> {
        let corrupt = |defect: String| {
            Error::corrupt(format!(
                "the shard manifest {path} cannot be used: {defect}; restore the object from a copy"
            ))
        };
        Seal::check(bytes).map_err(corrupt)?;
        let message = pb::ShardManifest::decode(bytes)
            .map_err(|error| corrupt(error.to_string()).with_source(error))?;
        let shard_id = message
            .shard_id
            .and_then(|id| Uuid::from_slice(&id.uuid).ok())
            .ok_or_else(|| corrupt("it names no shard".to_string()))?;
        if shard_id != shard {
            return Err(corrupt(format!("it belongs to the shard {shard_id}")));
        }
        if message.version != version {
            return Err(corrupt(format!("it is version {}", message.version)));
        }
        let status = match pb::ShardStatus::try_from(message.status) {
            Ok(pb::ShardStatus::Active) => ShardStatus::Active,
            Ok(pb::ShardStatus::Sealed) => ShardStatus::Sealed,
            Err(_) => {
                return Err(Error::unsupported(format!(
                    "the shard manifest {path} has the status {}, which a later version of the \
                     format must have added; use a later version of this crate",
                    message.status
                )));
            }
        };
        let manifest = Self {
            version,
            shard_id,
            shard_spec_id: message.shard_spec_id,
            shard_field_entries: message
                .shard_field_entries
                .into_iter()
                .map(|entry| (entry.field_id, entry.value))
                .collect(),
            writer_epoch: message.writer_epoch,
            replay_after_wal_entry_position: message.replay_after_wal_entry_position,
            wal_entry_position_last_seen: message.wal_entry_position_last_seen,
            current_generation: message.current_generation,
            generations: message
                .sstables
                .into_iter()
                .map(|table| GenerationEntry {
                    generation: table.generation,
                    path: table.path,
                    in_memory_bytes: table.in_memory_bytes,
                    physical_rows: table.physical_rows,
                    primary_key_bytes: table.primary_key_bytes,
                })
                .collect(),
            status,
        };
        manifest.check().map_err(corrupt)?;
        Ok(manifest)
    }

    /// What must hold whoever wrote the manifest.
    pub(super) fn check(&self) -> Result<(), String> {
        if self.current_generation == 0 {
            return Err("its current generation is 0".to_string());
        }
        let mut numbers = std::collections::HashSet::new();
        for GenerationEntry {
            generation, path, ..
        } in &self.generations
        {
            if !(1..self.current_generation).contains(generation) {
                return Err(format!(
                    "it lists generation {generation}, which is not below its current generation {}",
                    self.current_generation
                ));
            }
            if !numbers.insert(generation) {
                return Err(format!("it lists generation {generation} twice"));
            }
            if path.is_empty() || path == "." || path == ".." || path.contains(['/', '\\']) {
                return Err(format!(
                    "the folder '{path}' of generation {generation} is not a plain name"
                ));
            }
        }
        Ok(())
    }
}
