//! Telling damage from an outage: what a damaged file makes of a read by Lance.
//!
//! Lance trusts the offsets and lengths it reads. A damaged one becomes a panic, or a read
//! beyond the end of the object, which no store distinguishes from an answer it could not
//! give. The first is caught here; for the second the objects' sizes are looked at.

use std::any::Any;
use std::error::Error as StdError;
use std::future::Future;
use std::panic::AssertUnwindSafe;

use futures::{FutureExt, TryStreamExt};
use lance::Dataset;
use lance_core::Error as LanceError;
use object_store::ObjectMeta;
use object_store::path::Path;

use super::target::GenerationTarget;
use crate::error::{Error, ErrorKind, Result};

const VERSIONS_DIR: &str = "_versions";
/// A manifest ends with its position, the version of its format and a magic number.
const MANIFEST_FOOTER_BYTES: u64 = 16;

/// The result of `read`, which is `Corrupt` when it panics.
pub(super) async fn caught<T>(read: impl Future<Output = Result<T>>) -> Result<T> {
    match AssertUnwindSafe(read).catch_unwind().await {
        Ok(result) => result,
        Err(panic) => Err(Error::corrupt(format!(
            "Lance's reader panicked: {}",
            message_of(panic.as_ref())
        ))),
    }
}

fn message_of(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("no message")
}

/// The kind of an `error` while a generation was read: `Unavailable` only when the store
/// failed, since a retry may help; `Unsupported` stays; anything else means that the
/// folder is not what the format says.
pub(super) fn kind_of(error: &Error) -> ErrorKind {
    match error.kind() {
        ErrorKind::Unsupported => ErrorKind::Unsupported,
        _ if is_outage(error) => ErrorKind::Unavailable,
        _ => ErrorKind::Corrupt,
    }
}

/// Whether the object store, or the file system, failed. Not when an object was missing,
/// which Lance's readers hide in errors of other kinds, the store's own among them.
fn is_outage(error: &(dyn StdError + 'static)) -> bool {
    let mut found = false;
    let mut next = Some(error);
    while let Some(error) = next {
        next = error.source();
        if let Some(error) = error.downcast_ref() {
            match error {
                object_store::Error::NotFound { .. } => return false,
                object_store::Error::JoinError { source } => found |= !source.is_panic(),
                _ => found = true,
            }
        } else if let Some(error) = error.downcast_ref::<std::io::Error>() {
            found |= is_refusal(error);
            // What it wraps passes for it, so that its source is one step too far.
            next = error.get_ref().map(|wrapped| wrapped as _);
        } else if let Some(error) = error.downcast_ref() {
            match error {
                LanceError::NotFound { .. } | LanceError::DatasetNotFound { .. } => return false,
                LanceError::Shared { source } => next = Some(source.as_ref()),
                _ => {}
            }
        }
    }
    found
}

/// Whether the system refused to read, other than for what is stored.
fn is_refusal(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{
        BrokenPipe, ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted, NotFound,
        TimedOut, WouldBlock,
    };
    match error.kind() {
        NotFound => false,
        Interrupted | TimedOut | WouldBlock | BrokenPipe | ConnectionAborted
        | ConnectionRefused | ConnectionReset => true,
        _ => error.raw_os_error().is_some(),
    }
}

/// The result of `read`, whose error names the folder and has the kind of [`kind_of`]; it
/// is `Corrupt` also when the store is said to have failed and an object turns out not to
/// have the size it was written with. `dataset` is the generation's, once it is open.
pub(super) async fn named<T>(
    target: &GenerationTarget,
    folder: &str,
    dataset: Option<&Dataset>,
    read: impl Future<Output = Result<T>>,
) -> Result<T> {
    let error = match caught(read).await {
        Ok(value) => return Ok(value),
        Err(error) => target.unreadable(folder, error),
    };
    if error.kind() != ErrorKind::Unavailable {
        return Err(error);
    }
    match object_of_wrong_size(target, folder, dataset).await {
        Ok(Some(object)) => {
            let what = format!(
                "has in '{}' {} bytes, which is not what was written",
                object.location, object.size
            );
            Err(target.corrupt(folder, &what).with_source(error))
        }
        Ok(None) | Err(_) => Err(error),
    }
}

async fn object_of_wrong_size(
    target: &GenerationTarget,
    folder: &str,
    dataset: Option<&Dataset>,
) -> object_store::Result<Option<ObjectMeta>> {
    let folder = target.path(folder);
    let sizes = dataset.map(data_file_sizes).unwrap_or_default();
    let mut objects = target.store().inner.list(Some(&folder));
    while let Some(object) = objects.try_next().await? {
        let name = object.location.filename();
        let written = sizes.iter().find(|(path, _)| Some(path.as_str()) == name);
        let is_wrong = match written {
            Some((_, size)) => object.size != *size,
            None => is_manifest(&object.location) && object.size < MANIFEST_FOOTER_BYTES,
        };
        if is_wrong {
            return Ok(Some(object));
        }
    }
    Ok(None)
}

/// The data files whose size the manifest records.
fn data_file_sizes(dataset: &Dataset) -> Vec<(String, u64)> {
    let fragments = dataset.fragments().iter();
    let files = fragments.flat_map(|fragment| &fragment.files);
    files
        .filter_map(|file| Some((file.path.clone(), file.file_size_bytes.get()?.get())))
        .collect()
}

fn is_manifest(object: &Path) -> bool {
    object.extension() == Some("manifest") && object.as_ref().contains(VERSIONS_DIR)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store_failed() -> object_store::Error {
        object_store::Error::Generic {
            store: "S3",
            source: "no answer".into(),
        }
    }

    #[test]
    fn only_a_failure_of_the_store_may_pass() {
        use std::io;
        let missing = object_store::Error::NotFound {
            path: "a".to_string(),
            source: "gone".into(),
        };
        let undecodable = lance_core::Error::io("failed to decode");
        let cut = io::Error::from(io::ErrorKind::UnexpectedEof);
        let hidden = object_store::Error::Generic {
            store: "S3",
            source: Box::new(lance_core::Error::not_found("a")),
        };
        for error in [
            lance_core::Error::from(missing),
            lance_core::Error::from(hidden),
            undecodable,
            lance_core::Error::from(cut),
            lance_core::Error::from(io::Error::other("not a number")),
        ] {
            let error = Error::from(error);
            assert_eq!(kind_of(&error), ErrorKind::Corrupt, "{error}");
        }
        let refused = io::Error::from_raw_os_error(24);
        for error in [
            lance_core::Error::from(store_failed()),
            lance_core::Error::from(io::Error::other(store_failed())),
            lance_core::Error::from(io::Error::from(io::ErrorKind::TimedOut)),
            lance_core::Error::from(refused),
        ] {
            let error = Error::from(error);
            assert_eq!(kind_of(&error), ErrorKind::Unavailable, "{error}");
        }
    }

    #[tokio::test]
    async fn a_panic_is_an_error() {
        let at = 7;
        let error = caught(async { Ok(vec![0_u8][at]) }).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        assert!(error.message().contains("index is 7"), "{error}");
    }
}
