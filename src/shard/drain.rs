//! The last rows of a writer that was dropped and not closed.
//!
//! Without `durable_write` a put returns before the log has it. When the last handle of
//! such a table goes away while the process lives, a task of its own appends what is owed,
//! and the next open of the same shard in this process waits for it.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::clock;
use crate::shard::state::ShardState;

/// A store that does not answer for this long gets no more of it.
const LONGEST_DRAIN: Duration = Duration::from_secs(10);

type Drains = Mutex<HashMap<String, watch::Receiver<bool>>>;

static DRAINS: LazyLock<Drains> = LazyLock::new(Drains::default);

/// Appends what the writer owes and ends it, in the background. Returns whether there was
/// anything to do and a runtime to do it on.
pub(crate) fn drain(state: &Arc<ShardState>, tasks: JoinSet<()>) -> bool {
    let owes = !state.options.durable_write
        && state.cursors.failure().is_none()
        && state.unlogged_bytes() > 0;
    let Ok(runtime) = tokio::runtime::Handle::try_current() else {
        return false;
    };
    if !owes {
        return false;
    }
    let (ended, ends) = watch::channel(false);
    let shard = state.target.uri("");
    DRAINS.lock().insert(shard.clone(), ends);
    let state = Arc::clone(state);
    runtime.spawn(async move {
        append_all(&state, tasks).await;
        state.cursors.fail(state.closed());
        DRAINS.lock().remove(&shard);
        ended.send_replace(true);
    });
    true
}

async fn append_all(state: &ShardState, mut tasks: JoinSet<()>) {
    state.refuse_puts();
    state.wake_append.notify_one();
    let done = state
        .cursors
        .wait_for(|| (state.unlogged_bytes() == 0).then_some(()));
    let limit = || "the log did not take the last rows of a dropped table".to_string();
    // Nobody is left to be told but the log of the process.
    match clock::within(LONGEST_DRAIN, limit, done).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) | Err(error) => tracing::error!(%error, "rows were lost"),
    }
    tasks.shutdown().await;
}

/// Waits for the writer of `shard` that was dropped before, if it still appends.
pub(crate) async fn wait_for_predecessor(shard: &str) {
    let ends = DRAINS.lock().get(shard).cloned();
    if let Some(mut ends) = ends {
        // An error means that the drain is gone, which is as good as its end.
        let _ = ends.wait_for(|ended| *ended).await;
    }
}
