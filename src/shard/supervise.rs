//! A task of the writer that ends before its time ends the writer, so that nobody waits
//! for a task that is gone.

use std::future::Future;
use std::sync::Arc;

use crate::error::Error;
use crate::shard::state::ShardState;

/// Runs `task`. If it panics, or its runtime is shut down, the writer fails with a reason
/// that names it.
pub(crate) async fn supervised(
    state: Arc<ShardState>,
    name: &'static str,
    task: impl Future<Output = ()> + Send,
) {
    let watch = Watch {
        state,
        name,
        is_running: true,
    };
    task.await;
    watch.end();
}

struct Watch {
    state: Arc<ShardState>,
    name: &'static str,
    is_running: bool,
}

impl Watch {
    fn end(mut self) {
        self.is_running = false;
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // A writer that was dropped has its reason already.
        if self.is_running && self.state.cursors.failure().is_none() {
            self.state.fail(Error::internal(format!(
                "table '{}': the {} task ended early, by a panic or with its runtime",
                self.state.schema().table(),
                self.name
            )));
        }
    }
}
