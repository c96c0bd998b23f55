//! One error type, whose kind says what the caller does next.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

use datafusion::arrow::error::ArrowError;
use datafusion::error::DataFusionError;

/// The result of everything this crate does.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What a caller can do about an [`Error`].
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// Another writer has taken the shard. Drop this handle; reopen only if this
    /// process is meant to be the writer.
    Fenced,
    /// Someone else changed the same thing first. Read again and retry.
    Conflict,
    /// The object store did not answer, or refused for now. Retry later; a put of
    /// keyed rows that was not acknowledged may be repeated safely.
    Unavailable,
    /// An earlier failure ended this writer. Drop the handle and open the table
    /// again: what was acknowledged is replayed from the log.
    Poisoned,
    /// What is stored contradicts the format. Nothing was changed; restore the
    /// object that the message names.
    Corrupt,
    /// The request is wrong. Nothing was written; correct it as the message says.
    Invalid,
    /// The request is sound and this version cannot serve it.
    Unsupported,
    /// The memory limit held for the whole of `backpressure_timeout`. Nothing was
    /// written; retry when the store has caught up.
    Backpressure,
    /// The table was closed by this process. Open it again.
    Closed,
    /// A fault of this crate. Please report it.
    Internal,
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Fenced => "fenced",
            Self::Conflict => "conflict",
            Self::Unavailable => "unavailable",
            Self::Poisoned => "poisoned",
            Self::Corrupt => "corrupt",
            Self::Invalid => "invalid",
            Self::Unsupported => "unsupported",
            Self::Backpressure => "backpressure",
            Self::Closed => "closed",
            Self::Internal => "internal",
        })
    }
}

/// An error of the table, cheap to clone so that every waiter gets the same one.
#[derive(Debug, Clone)]
pub struct Error {
    kind: ErrorKind,
    message: Arc<str>,
    source: Option<Arc<dyn StdError + Send + Sync>>,
}

impl Error {
    /// An error of `kind`; `message` names the table, the column and the remedy
    /// as far as they are known.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: Arc::from(message.into()),
            source: None,
        }
    }

    /// The same error with the one that caused it.
    pub fn with_source(mut self, source: impl StdError + Send + Sync + 'static) -> Self {
        self.source = Some(Arc::new(source));
        self
    }

    /// The same error, its message preceded by `context` and a colon.
    pub fn context(mut self, context: impl fmt::Display) -> Self {
        self.message = Arc::from(format!("{context}: {}", self.message));
        self
    }

    /// What the caller can do about it.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The message without the kind.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Whether the same request may succeed later without any change.
    pub fn is_retryable(&self) -> bool {
        matches!(
            self.kind,
            ErrorKind::Conflict | ErrorKind::Unavailable | ErrorKind::Backpressure
        )
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Invalid, message)
    }

    pub(crate) fn unsupported(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Unsupported, message)
    }

    pub(crate) fn corrupt(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Corrupt, message)
    }

    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Internal, message)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind, self.message)
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source
            .as_deref()
            .map(|source| source as &(dyn StdError + 'static))
    }
}

impl From<Error> for DataFusionError {
    fn from(error: Error) -> Self {
        Self::External(Box::new(error))
    }
}

impl From<DataFusionError> for Error {
    /// Takes our own error back out of DataFusion's wrapping; the rest is the
    /// request's fault unless DataFusion says otherwise.
    fn from(error: DataFusionError) -> Self {
        if let DataFusionError::External(inner) = error.find_root()
            && let Some(own) = inner.downcast_ref::<Self>()
        {
            return own.clone();
        }
        let kind = match error.find_root() {
            DataFusionError::Internal(_) => ErrorKind::Internal,
            DataFusionError::NotImplemented(_) => ErrorKind::Unsupported,
            DataFusionError::ResourcesExhausted(_) => ErrorKind::Unavailable,
            _ => ErrorKind::Invalid,
        };
        Self::new(kind, error.strip_backtrace())
    }
}

impl From<ArrowError> for Error {
    fn from(error: ArrowError) -> Self {
        Self::new(ErrorKind::Internal, error.to_string()).with_source(error)
    }
}

impl From<object_store::Error> for Error {
    fn from(error: object_store::Error) -> Self {
        Self::new(ErrorKind::Unavailable, error.to_string()).with_source(error)
    }
}

impl From<lance_core::Error> for Error {
    fn from(error: lance_core::Error) -> Self {
        let kind = match &error {
            lance_core::Error::InvalidInput { .. }
            | lance_core::Error::SchemaMismatch { .. }
            | lance_core::Error::Schema { .. }
            | lance_core::Error::DatasetNotFound { .. } => ErrorKind::Invalid,
            lance_core::Error::NotSupported { .. } => ErrorKind::Unsupported,
            lance_core::Error::CorruptFile { .. } | lance_core::Error::NotFound { .. } => {
                ErrorKind::Corrupt
            }
            lance_core::Error::CommitConflict { .. }
            | lance_core::Error::RetryableCommitConflict { .. } => ErrorKind::Conflict,
            lance_core::Error::Internal { .. } => ErrorKind::Internal,
            _ => ErrorKind::Unavailable,
        };
        Self::new(kind, without_code_location(&error.to_string())).with_source(error)
    }
}

/// Lance ends its messages with the line of its source that raised them, which tells a
/// user nothing.
fn without_code_location(message: &str) -> &str {
    let Some((text, location)) = message.rsplit_once(", ") else {
        return message;
    };
    match location.contains(".rs:") && !location.contains(' ') {
        true => text,
        false => message,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_in_lances_source_is_left_out() {
        let lance = lance_core::Error::io("disk, full");
        let error = Error::from(lance);
        assert!(error.message().ends_with("disk, full"), "{error}");
        assert_eq!(without_code_location("a, b"), "a, b");
    }

    #[test]
    fn an_error_survives_the_way_through_datafusion() {
        let own = Error::new(ErrorKind::Fenced, "shard is gone");
        let wrapped = DataFusionError::from(own).context("while inserting");
        let back = Error::from(wrapped);
        assert_eq!(back.kind(), ErrorKind::Fenced);
        assert_eq!(back.message(), "shard is gone");
    }
}
