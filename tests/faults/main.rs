//! Faults that a writer of this kind has really had, each by its number: the twelve of the
//! visibility model (`fault_NN`), and lettered cases (`A06`, `B07`, …) of the same kind.

#[path = "../support/mod.rs"]
mod support;

mod damage;
mod lifetime;
mod limits;
mod placement;
mod store;
mod telemetry;
mod visibility;

use std::future::Future;
use std::task::Poll;

/// Lets every task that can run do so, again and again; nothing is waited for.
async fn settle() {
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
}

/// Whether `future` is still waiting after everything that can run has run.
async fn is_waiting<F: Future + Unpin>(future: &mut F) -> bool {
    settle().await;
    std::future::poll_fn(|context| {
        Poll::Ready(std::pin::Pin::new(&mut *future).poll(context).is_pending())
    })
    .await
}
