//! Options of a session: what `SET memwal.*` changes for its queries.

use std::any::Any;

use datafusion::common::config::{ConfigEntry, ConfigExtension, ExtensionOptions};
use datafusion::error::Result as DataFusionResult;

use crate::error::Error;

/// How the queries of one session read. Neither option changes an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SessionOptions {
    /// Whether a condition on the key is answered from the key index of each tier; off,
    /// every tier is scanned. Default: true.
    pub key_index: bool,
    /// Whether simple conditions are also given to Lance, which can skip pages by its
    /// statistics and indexes; off, Lance reads all rows. Default: true.
    pub lance_pushdown: bool,
}

const KEY_INDEX: &str = "key_index";
const LANCE_PUSHDOWN: &str = "lance_pushdown";

impl Default for SessionOptions {
    fn default() -> Self {
        Self {
            key_index: true,
            lance_pushdown: true,
        }
    }
}

impl ConfigExtension for SessionOptions {
    const PREFIX: &'static str = "memwal";
}

impl ExtensionOptions for SessionOptions {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }

    fn cloned(&self) -> Box<dyn ExtensionOptions> {
        Box::new(self.clone())
    }

    fn set(&mut self, key: &str, value: &str) -> DataFusionResult<()> {
        let option = match key {
            KEY_INDEX => &mut self.key_index,
            LANCE_PUSHDOWN => &mut self.lance_pushdown,
            _ => {
                return Err(Error::invalid(format!(
                    "session option 'memwal.{key}' is unknown; the options are \
                     memwal.{KEY_INDEX}, memwal.{LANCE_PUSHDOWN}"
                ))
                .into());
            }
        };
        *option = value.trim().to_ascii_lowercase().parse().map_err(|_| {
            Error::invalid(format!(
                "session option 'memwal.{key}': '{value}' is not 'true' or 'false'"
            ))
        })?;
        Ok(())
    }

    /// With the prefix, by which `SHOW memwal.key_index` looks them up.
    fn entries(&self) -> Vec<ConfigEntry> {
        let entry = |key: &str, value: bool, description| ConfigEntry {
            key: format!("{}.{key}", Self::PREFIX),
            value: Some(value.to_string()),
            description,
        };
        vec![
            entry(
                KEY_INDEX,
                self.key_index,
                "Answer conditions on the key from the key index of each tier",
            ),
            entry(
                LANCE_PUSHDOWN,
                self.lance_pushdown,
                "Give simple conditions to Lance as well",
            ),
        ]
    }
}
