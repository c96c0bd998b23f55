//! Options of a table, kept with it.
//!
//! A table option is a pair of strings, as SQL's `OPTIONS` clause gives it. Names
//! that Lance's own writer knows are stored under Lance's names in the
//! `__lance_mem_wal` index, so that both writers start from the same defaults.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::time::Duration;

use crate::error::{Error, Result};

/// A clock can be wound forward by any option without overflow.
const LONGEST_DURATION: Duration = Duration::from_secs(10 * 366 * 24 * 3_600);
const MIB: usize = 1024 * 1024;
/// Lance's writer refuses to open a table whose log has a generation above these.
const LANCE_MAX_MEMTABLE_ROWS: usize = 100_000;
const LANCE_MAX_MEMTABLE_BATCHES: usize = 8_000;

/// The least time between two appends to the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlushInterval {
    /// The first put after a pause is appended at once, later ones wait until this
    /// much time has passed since the last append began.
    AtLeast(Duration),
    /// An append starts as soon as the one before it has ended.
    OnDemand,
}

impl FlushInterval {
    /// The least time between two appends.
    pub fn duration(&self) -> Duration {
        match self {
            Self::AtLeast(interval) => *interval,
            Self::OnDemand => Duration::ZERO,
        }
    }
}

impl fmt::Display for FlushInterval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtLeast(interval) => f.write_str(&format_duration(*interval)),
            Self::OnDemand => f.write_str("on_demand"),
        }
    }
}

/// How a table writes. Every field is an option of `CREATE EXTERNAL TABLE` under
/// the same name, plain or with the prefix `memwal.`; sizes take `KiB`, `MiB` and
/// `GiB`, durations `ms`, `s`, `m` and `h`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableOptions {
    /// Whether a put returns only when its rows are in the log. Default: true.
    pub durable_write: bool,
    /// The least time between two appends to the log, or `on_demand`. Default: 100 ms.
    pub flush_interval: FlushInterval,
    /// Bytes that wait for the log and make it append before its interval is over. Default: 10 MiB.
    pub max_wal_buffer_size: usize,
    /// Retries of a failed append at the same position, before the writer ends. Default: 3.
    pub max_wal_persist_retries: u32,
    /// The wait before the first of them, doubled for each further one. Default: 50 ms.
    pub wal_persist_retry_base_delay: Duration,
    /// Bytes of rows at which a memtable is frozen. Default: 256 MiB.
    pub max_memtable_size: usize,
    /// Rows at which a memtable is frozen. Default: 100,000, the most that Lance's own writer replays.
    pub max_memtable_rows: usize,
    /// Batches in the log at which a memtable is frozen. Default: 8,000, the most that Lance's
    /// own writer replays.
    pub max_memtable_batches: usize,
    /// Log entries at which a memtable is frozen, which bounds the time to reopen. Default: 1,000.
    pub max_memtable_wal_entries: usize,
    /// Age of its oldest row at which a memtable is frozen, so that a trickle of
    /// rows reaches a generation. Default: 10 minutes.
    pub max_memtable_age: Duration,
    /// The limit of memory for log buffer, memtables and their indexes. Default: 1 GiB.
    pub max_unflushed_size: usize,
    /// How long a put waits below that limit before it fails. Default: 60 s.
    pub backpressure_timeout: Duration,
}

impl Default for TableOptions {
    fn default() -> Self {
        Self {
            durable_write: true,
            flush_interval: FlushInterval::AtLeast(Duration::from_millis(100)),
            max_wal_buffer_size: 10 * MIB,
            max_wal_persist_retries: 3,
            wal_persist_retry_base_delay: Duration::from_millis(50),
            max_memtable_size: 256 * MIB,
            max_memtable_rows: LANCE_MAX_MEMTABLE_ROWS,
            max_memtable_batches: LANCE_MAX_MEMTABLE_BATCHES,
            max_memtable_wal_entries: 1_000,
            max_memtable_age: Duration::from_secs(600),
            max_unflushed_size: 1024 * MIB,
            backpressure_timeout: Duration::from_secs(60),
        }
    }
}

impl TableOptions {
    /// The defaults, changed by `pairs`.
    ///
    /// # Errors
    ///
    /// `Invalid` names the option that is unknown or malformed; `Unsupported` one
    /// that this version does not honour.
    pub fn from_pairs<'a>(
        table: &str,
        pairs: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Self> {
        Self::default().changed_by(table, pairs)
    }

    /// These options, changed by `pairs`. The errors are those of [`TableOptions::from_pairs`].
    pub fn changed_by<'a>(
        mut self,
        table: &str,
        pairs: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Self> {
        let mut seen = HashSet::new();
        for (key, value) in pairs {
            let name = option_name(key);
            self.set(key, value)
                .map_err(|error| error.context(format!("table '{table}', option '{name}'")))?;
            if !seen.insert(name.clone()) {
                return Err(Error::invalid(format!(
                    "table '{table}', option '{name}': is given twice; keep one of them"
                )));
            }
        }
        self.validate()
            .map_err(|error| error.context(format!("table '{table}'")))?;
        Ok(self)
    }

    fn set(&mut self, key: &str, value: &str) -> Result<()> {
        let name = option_name(key);
        match name.as_str() {
            "durable_write" => self.durable_write = parse_bool(value)?,
            "flush_interval" => {
                self.flush_interval = match value.trim().to_ascii_lowercase().as_str() {
                    "on_demand" => FlushInterval::OnDemand,
                    other => FlushInterval::AtLeast(parse_duration(other)?),
                }
            }
            "max_wal_buffer_size" => self.max_wal_buffer_size = parse_size(value)?,
            "max_wal_persist_retries" => self.max_wal_persist_retries = parse_number(value)?,
            "wal_persist_retry_base_delay" => {
                self.wal_persist_retry_base_delay = parse_duration(value)?
            }
            "max_memtable_size" => self.max_memtable_size = parse_size(value)?,
            "max_memtable_rows" => self.max_memtable_rows = parse_number(value)?,
            "max_memtable_batches" => self.max_memtable_batches = parse_number(value)?,
            "max_memtable_wal_entries" => self.max_memtable_wal_entries = parse_number(value)?,
            "max_memtable_age" => self.max_memtable_age = parse_duration(value)?,
            "max_unflushed_size" => self.max_unflushed_size = parse_size(value)?,
            "backpressure_timeout" => self.backpressure_timeout = parse_duration(value)?,
            index if index.starts_with("index.") => {
                return Err(Error::unsupported(
                    "secondary indexes are not part of this version; leave the option out, every \
                     query is answered exactly without it",
                ));
            }
            _ => {
                return Err(Error::invalid(format!(
                    "is unknown; the options are {}",
                    OPTION_NAMES.join(", ")
                )));
            }
        }
        Ok(())
    }

    /// Refuses values under which the table could not work.
    pub(crate) fn validate(&self) -> Result<()> {
        let positive = [
            ("max_wal_buffer_size", self.max_wal_buffer_size),
            ("max_memtable_size", self.max_memtable_size),
            ("max_memtable_rows", self.max_memtable_rows),
            ("max_memtable_batches", self.max_memtable_batches),
            ("max_memtable_wal_entries", self.max_memtable_wal_entries),
        ];
        for (name, value) in positive {
            if value == 0 {
                return Err(Error::invalid(format!("option '{name}' must be above 0")));
            }
        }
        if self.flush_interval == FlushInterval::AtLeast(Duration::ZERO) {
            return Err(Error::invalid(
                "option 'flush_interval' must be above 0; use 'on_demand' to append without a pause",
            ));
        }
        if self.max_memtable_age.is_zero() {
            return Err(Error::invalid("option 'max_memtable_age' must be above 0"));
        }
        if self.max_memtable_rows > LANCE_MAX_MEMTABLE_ROWS
            || self.max_memtable_batches > LANCE_MAX_MEMTABLE_BATCHES
        {
            return Err(Error::invalid(format!(
                "options 'max_memtable_rows' and 'max_memtable_batches' may be at most \
                 {LANCE_MAX_MEMTABLE_ROWS} and {LANCE_MAX_MEMTABLE_BATCHES}: Lance's own writer \
                 cannot replay a larger memtable"
            )));
        }
        if self.max_unflushed_size < self.max_memtable_size {
            return Err(Error::invalid(format!(
                "option 'max_unflushed_size' ({}) must be at least 'max_memtable_size' ({})",
                format_size(self.max_unflushed_size),
                format_size(self.max_memtable_size)
            )));
        }
        Ok(())
    }

    /// As stored in the `__lance_mem_wal` index: Lance's names where Lance has the option.
    pub(crate) fn to_stored(&self) -> HashMap<String, String> {
        // Lance refuses durable writes without an interval, so `on_demand` is its least one.
        let interval_ms = self.flush_interval.duration().as_millis().max(1);
        [
            ("durable_write", self.durable_write.to_string()),
            ("max_wal_buffer_size", self.max_wal_buffer_size.to_string()),
            ("max_wal_flush_interval_ms", interval_ms.to_string()),
            (
                "max_wal_persist_retries",
                self.max_wal_persist_retries.to_string(),
            ),
            (
                "wal_persist_retry_base_delay_ms",
                self.wal_persist_retry_base_delay.as_millis().to_string(),
            ),
            ("max_memtable_size", self.max_memtable_size.to_string()),
            ("max_memtable_rows", self.max_memtable_rows.to_string()),
            (
                "max_memtable_batches",
                self.max_memtable_batches.to_string(),
            ),
            (
                "max_unflushed_memtable_bytes",
                self.max_unflushed_size.to_string(),
            ),
            ("memwal.flush_interval", self.flush_interval.to_string()),
            (
                "memwal.max_memtable_wal_entries",
                self.max_memtable_wal_entries.to_string(),
            ),
            (
                "memwal.max_memtable_age",
                format_duration(self.max_memtable_age),
            ),
            (
                "memwal.backpressure_timeout",
                format_duration(self.backpressure_timeout),
            ),
        ]
        .into_iter()
        .map(|(key, value)| (key.to_string(), value))
        .collect()
    }

    /// Reads back what [`Self::to_stored`] or Lance's own writer has stored. Keys that
    /// only Lance knows are left alone; values that only Lance takes are brought within
    /// our limits.
    pub(crate) fn from_stored(table: &str, stored: &HashMap<String, String>) -> Result<Self> {
        const RENAMED: [(&str, &str, &str); 3] = [
            ("max_wal_flush_interval_ms", "flush_interval", "ms"),
            (
                "wal_persist_retry_base_delay_ms",
                "wal_persist_retry_base_delay",
                "ms",
            ),
            ("max_unflushed_memtable_bytes", "max_unflushed_size", ""),
        ];
        let mut options = Self::default();
        let mut set = |key: &str, value: &str| {
            options
                .set(key, value)
                .map_err(|error| error.context(format!("table '{table}', stored option '{key}'")))
        };
        for (lance, ours, unit) in RENAMED {
            if let Some(value) = stored.get(lance) {
                set(ours, &format!("{value}{unit}"))?;
            }
        }
        for name in OPTION_NAMES {
            for key in [name.to_string(), format!("memwal.{name}")] {
                if let Some(value) = stored.get(&key) {
                    set(name, value)?;
                }
            }
        }
        options.limit();
        options
            .validate()
            .map_err(|error| error.context(format!("table '{table}', stored options")))?;
        Ok(options)
    }

    /// Lance's own writer takes values that we refuse. Whoever opens the table cannot
    /// correct them, so the nearest value that we take stands for each.
    fn limit(&mut self) {
        if self.flush_interval == FlushInterval::AtLeast(Duration::ZERO) {
            self.flush_interval = FlushInterval::OnDemand;
        }
        self.max_wal_buffer_size = self.max_wal_buffer_size.max(1);
        self.max_memtable_size = self.max_memtable_size.max(1);
        self.max_memtable_rows = self.max_memtable_rows.clamp(1, LANCE_MAX_MEMTABLE_ROWS);
        self.max_memtable_batches = self
            .max_memtable_batches
            .clamp(1, LANCE_MAX_MEMTABLE_BATCHES);
        self.max_unflushed_size = self.max_unflushed_size.max(self.max_memtable_size);
    }

    /// The options that differ from the defaults, as SQL spells them.
    pub(crate) fn changed_pairs(&self) -> Vec<(&'static str, String)> {
        let (changed, default) = (self.pairs(), Self::default().pairs());
        changed
            .into_iter()
            .zip(default)
            .filter(|(ours, default)| ours.1 != default.1)
            .map(|(ours, _)| ours)
            .collect()
    }

    fn pairs(&self) -> [(&'static str, String); OPTION_NAMES.len()] {
        [
            ("durable_write", self.durable_write.to_string()),
            ("flush_interval", self.flush_interval.to_string()),
            ("max_wal_buffer_size", format_size(self.max_wal_buffer_size)),
            (
                "max_wal_persist_retries",
                self.max_wal_persist_retries.to_string(),
            ),
            (
                "wal_persist_retry_base_delay",
                format_duration(self.wal_persist_retry_base_delay),
            ),
            ("max_memtable_size", format_size(self.max_memtable_size)),
            ("max_memtable_rows", self.max_memtable_rows.to_string()),
            (
                "max_memtable_batches",
                self.max_memtable_batches.to_string(),
            ),
            (
                "max_memtable_wal_entries",
                self.max_memtable_wal_entries.to_string(),
            ),
            ("max_memtable_age", format_duration(self.max_memtable_age)),
            ("max_unflushed_size", format_size(self.max_unflushed_size)),
            (
                "backpressure_timeout",
                format_duration(self.backpressure_timeout),
            ),
        ]
    }
}

const OPTION_NAMES: [&str; 12] = [
    "durable_write",
    "flush_interval",
    "max_wal_buffer_size",
    "max_wal_persist_retries",
    "wal_persist_retry_base_delay",
    "max_memtable_size",
    "max_memtable_rows",
    "max_memtable_batches",
    "max_memtable_wal_entries",
    "max_memtable_age",
    "max_unflushed_size",
    "backpressure_timeout",
];

/// The name of an option without the prefix that SQL or the user put before it.
fn option_name(key: &str) -> String {
    let key = key.trim().to_ascii_lowercase();
    let key = key.strip_prefix("format.").unwrap_or(&key);
    key.strip_prefix("memwal.").unwrap_or(key).to_string()
}

fn parse_bool(value: &str) -> Result<bool> {
    match value.trim().to_ascii_lowercase().as_str() {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err(Error::invalid(format!(
            "'{value}' is not 'true' or 'false'"
        ))),
    }
}

fn parse_number<T: std::str::FromStr>(value: &str) -> Result<T> {
    value
        .trim()
        .parse()
        .map_err(|_| Error::invalid(format!("'{value}' is not a whole number in range")))
}

fn split_unit(value: &str) -> (&str, &str) {
    let value = value.trim();
    let digits = value
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(value.len());
    (&value[..digits], value[digits..].trim())
}

fn parse_duration(value: &str) -> Result<Duration> {
    let malformed = || {
        Error::invalid(format!(
            "'{value}' is not a duration such as '100ms' or '5s'"
        ))
    };
    let (number, unit) = split_unit(value);
    let number: u64 = number.parse().map_err(|_| malformed())?;
    let millis_per_unit = match unit.to_ascii_lowercase().as_str() {
        "ms" => 1,
        "s" => 1_000,
        "m" | "min" => 60_000,
        "h" => 3_600_000,
        _ => return Err(malformed()),
    };
    number
        .checked_mul(millis_per_unit)
        .map(Duration::from_millis)
        .filter(|duration| *duration <= LONGEST_DURATION)
        .ok_or_else(|| Error::invalid(format!("'{value}' is longer than ten years")))
}

fn parse_size(value: &str) -> Result<usize> {
    let malformed = || {
        Error::invalid(format!(
            "'{value}' is not a size such as '65536' or '64MiB'"
        ))
    };
    let (number, unit) = split_unit(value);
    let number: usize = number.parse().map_err(|_| malformed())?;
    let bytes_per_unit = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "kib" => 1 << 10,
        "mib" => 1 << 20,
        "gib" => 1 << 30,
        _ => return Err(malformed()),
    };
    number.checked_mul(bytes_per_unit).ok_or_else(malformed)
}

fn format_duration(duration: Duration) -> String {
    let millis = duration.as_millis();
    for (unit, size) in [("h", 3_600_000), ("m", 60_000), ("s", 1_000)] {
        if millis > 0 && millis.is_multiple_of(size) {
            return format!("{}{unit}", millis / size);
        }
    }
    format!("{millis}ms")
}

fn format_size(bytes: usize) -> String {
    for (unit, size) in [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)] {
        if bytes > 0 && bytes.is_multiple_of(size) {
            return format!("{}{unit}", bytes / size);
        }
    }
    bytes.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_options_come_back() {
        let options = TableOptions::from_pairs(
            "t",
            [
                ("format.durable_write", "false"),
                ("memwal.flush_interval", "on_demand"),
                ("max_memtable_size", "1MiB"),
                ("max_memtable_age", "90s"),
            ],
        )
        .unwrap();
        let stored = options.to_stored();
        assert_eq!(stored["max_wal_flush_interval_ms"], "1");
        assert_eq!(TableOptions::from_stored("t", &stored).unwrap(), options);
        let again = options.changed_pairs();
        let pairs = again.iter().map(|(key, value)| (*key, value.as_str()));
        assert_eq!(TableOptions::from_pairs("t", pairs).unwrap(), options);
    }

    #[test]
    fn bad_options_are_named() {
        for (key, value, expected) in [
            ("durabel_write", "true", "is unknown"),
            ("durable_write", "yes", "'true' or 'false'"),
            ("flush_interval", "100", "not a duration"),
            ("flush_interval", "0ms", "on_demand"),
            ("max_memtable_age", "999999999h", "ten years"),
            ("max_memtable_size", "9999999999999GiB", "not a size"),
            ("max_memtable_rows", "0", "above 0"),
            ("max_memtable_rows", "100001", "Lance's own writer"),
            ("max_unflushed_size", "1KiB", "at least 'max_memtable_size'"),
            ("index.v", "hnsw", "not part of this version"),
        ] {
            let error = TableOptions::from_pairs("t", [(key, value)]).unwrap_err();
            assert!(error.to_string().contains(expected), "{error}");
            assert!(error.to_string().contains("table 't'"), "{error}");
        }
    }
}
