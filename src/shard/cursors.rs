//! How far the writer has come, and whether it still lives.
//!
//! `durable` counts batches over the whole life of the writer; each memtable counts
//! what its indexes have taken. What a reader may see is derived from both at every
//! read and stored nowhere: two tasks that each keep a stored minimum up to date can
//! read each other's old value and put a waiter to sleep for ever.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Notify;

use crate::error::{Error, ErrorKind, Result};

/// The writer-wide cursor, the writer's fate, and the bell that wakes who waits for either.
#[derive(Debug, Default)]
pub(crate) struct Cursors {
    durable: AtomicU64,
    fate: OnceLock<Error>,
    bell: Notify,
}

impl Cursors {
    /// Cursors of a writer whose first `durable` batches came from the log.
    pub(crate) fn starting_at(durable: u64) -> Self {
        Self {
            durable: AtomicU64::new(durable),
            ..Self::default()
        }
    }

    /// How many batches of this writer are in the log.
    pub(crate) fn durable(&self) -> u64 {
        self.durable.load(Ordering::Acquire)
    }

    /// Moves the durable cursor forwards; a late completion cannot pull it back.
    pub(crate) fn advance_durable(&self, count: u64) {
        self.durable.fetch_max(count, Ordering::AcqRel);
        self.ring();
    }

    /// Wakes every waiter; each looks again for itself.
    pub(crate) fn ring(&self) {
        self.bell.notify_waiters();
    }

    /// Ends the writer. The first reason stays.
    pub(crate) fn fail(&self, error: Error) {
        // A later failure is a consequence of the first, so it is dropped.
        let _ = self.fate.set(error);
        self.ring();
    }

    /// The reason for which the writer ended, if it did.
    pub(crate) fn failure(&self) -> Option<&Error> {
        self.fate.get()
    }

    /// Fails with the reason for which the writer ended.
    pub(crate) fn check(&self) -> Result<()> {
        match self.fate.get() {
            None => Ok(()),
            Some(error) => Err(dead_writer(error)),
        }
    }

    /// Waits until `done` yields a value. A value that is there wins over the
    /// writer's end; without one, the end is the answer.
    pub(crate) async fn wait_for<T>(&self, mut done: impl FnMut() -> Option<T>) -> Result<T> {
        loop {
            let bell = self.bell.notified();
            tokio::pin!(bell);
            // Registered before the look, so that a ring in between is not missed.
            bell.as_mut().enable();
            if let Some(value) = done() {
                return Ok(value);
            }
            self.check()?;
            bell.await;
        }
    }
}

/// What a call on a dead writer is told. A fence keeps its kind, so that the caller
/// can tell "someone else is the writer now" from "this writer broke".
fn dead_writer(error: &Error) -> Error {
    match error.kind() {
        ErrorKind::Fenced | ErrorKind::Closed => error.clone(),
        _ => Error::new(
            ErrorKind::Poisoned,
            format!(
                "the writer ended after a failure, drop it and open the table again: {}",
                error.message()
            ),
        )
        .with_source(error.clone()),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn a_late_completion_does_not_pull_the_cursor_back() {
        let cursors = Cursors::default();
        cursors.advance_durable(5);
        cursors.advance_durable(3);
        assert_eq!(cursors.durable(), 5);
    }

    #[tokio::test]
    async fn every_waiter_learns_of_the_end_and_the_first_reason_stays() {
        let cursors = Arc::new(Cursors::default());
        let waiters: Vec<_> = (0..8)
            .map(|_| {
                let cursors = Arc::clone(&cursors);
                tokio::spawn(async move { cursors.wait_for(|| None::<()>).await })
            })
            .collect();
        tokio::task::yield_now().await;
        cursors.fail(Error::new(ErrorKind::Fenced, "first"));
        cursors.fail(Error::new(ErrorKind::Internal, "second"));
        for waiter in waiters {
            let error = waiter.await.unwrap().unwrap_err();
            assert_eq!(
                (error.kind(), error.message()),
                (ErrorKind::Fenced, "first")
            );
        }
        let late = cursors.wait_for(|| None::<()>).await.unwrap_err();
        assert_eq!(late.kind(), ErrorKind::Fenced);
    }
}
