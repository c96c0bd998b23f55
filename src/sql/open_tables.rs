//! The tables that this process has open by SQL, one writer for each location.
//!
//! A second writer would fence the first, so that two sessions, or two CREATEs of one
//! session, would take the table from each other. They share one handle instead. The
//! registry holds it weakly: the table ends with its last provider.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use futures::future::BoxFuture;
use parking_lot::Mutex;

use crate::error::Result;
use crate::table::{MemWalTable, WeakTable};

type Slot = Arc<tokio::sync::Mutex<Option<WeakTable>>>;

/// Open tables by location.
#[derive(Debug, Default)]
pub(crate) struct OpenTables {
    slots: Mutex<HashMap<String, Slot>>,
}

impl OpenTables {
    /// The registry of this process.
    pub(crate) fn of_process() -> &'static Self {
        static OPEN: LazyLock<OpenTables> = LazyLock::new(OpenTables::default);
        &OPEN
    }

    /// The handle for `location`: the one that is open and still works, else what `open`
    /// yields, which is polled only then. Two callers with one location wait for each other.
    pub(crate) async fn get_or_open(
        &self,
        location: &str,
        open: BoxFuture<'_, Result<MemWalTable>>,
    ) -> Result<(MemWalTable, Origin)> {
        let slot = Arc::clone(self.slots.lock().entry(location.to_string()).or_default());
        let mut held = slot.lock().await;
        if let Some(table) = held.as_ref().and_then(WeakTable::upgrade)
            && table.is_open()
        {
            return Ok((table, Origin::Shared));
        }
        let opened = open.await;
        *held = opened.as_ref().ok().map(MemWalTable::downgrade);
        drop(held);
        drop(slot);
        self.forget_ended();
        Ok((opened?, Origin::Opened))
    }

    /// Drops the slots of tables that have ended and that nobody waits for.
    fn forget_ended(&self) {
        self.slots.lock().retain(|_, slot| {
            Arc::strong_count(slot) > 1
                || slot.try_lock().map_or(true, |held| {
                    held.as_ref().is_some_and(|table| table.upgrade().is_some())
                })
        });
    }
}

/// Where a handle came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// It was open already.
    Shared,
    /// It was opened for this caller.
    Opened,
}
