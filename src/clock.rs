//! Time, ids and randomness, in one place so that a test can hold them.
//!
//! Waiting goes through [`tokio::time`], which a test pauses and winds forward.

use std::future::Future;
use std::time::Duration;

use uuid::Uuid;

use crate::error::{Error, ErrorKind, Result};

/// A point on the clock that [`sleep_until`] waits for.
pub(crate) type Instant = tokio::time::Instant;

/// Now, on the clock that a test can pause.
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Waits until `deadline`.
pub(crate) async fn sleep_until(deadline: Instant) {
    tokio::time::sleep_until(deadline).await;
}

/// Waits for `duration`.
pub(crate) async fn sleep(duration: Duration) {
    tokio::time::sleep(duration).await;
}

/// The value of `future`, or a [`ErrorKind::Backpressure`] error that says `what` after `limit`.
pub(crate) async fn within<T>(
    limit: Duration,
    what: impl FnOnce() -> String,
    future: impl Future<Output = T>,
) -> Result<T> {
    tokio::time::timeout(limit, future)
        .await
        .map_err(|_| Error::new(ErrorKind::Backpressure, what()))
}

/// The wait before retry number `attempt` (from 0): doubling from `base`, at most 5 s.
pub(crate) fn backoff(base: Duration, attempt: u32) -> Duration {
    const LONGEST: Duration = Duration::from_secs(5);
    base.saturating_mul(1 << attempt.min(10)).min(LONGEST)
}

/// Eight hex digits that no earlier flush of the shard has used: the prefix of a
/// generation's folder.
pub(crate) fn random_folder_prefix() -> String {
    let random = Uuid::new_v4();
    let bytes = random.as_bytes();
    format!(
        "{:02x}{:02x}{:02x}{:02x}",
        bytes[0], bytes[1], bytes[2], bytes[3]
    )
}

/// A number for a file name that nobody else draws.
pub(crate) fn random_u64() -> u64 {
    Uuid::new_v4().as_u64_pair().0
}

/// A fresh identifier.
pub(crate) fn random_uuid() -> Uuid {
    Uuid::new_v4()
}

/// Now, for a reader of a file: nanoseconds since 1970-01-01T00:00:00Z.
pub(crate) fn unix_nanos() -> u128 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |elapsed| elapsed.as_nanos())
}
