// SPDX-License-Identifier: MIT OR Apache-2.0
//! The end of a task's turn on its thread.
//!
//! A task that reads a peer's input processes one read of it a turn, and then lets the others run:
//! input that is ready never makes the task wait, so nothing else would end its turn.
//!
//! Costs nothing but the scheduling. Does not look for new events.

use std::future::poll_fn;
use std::task::Poll;

/// Puts the task behind the others that are ready. Unlike tokio's `yield_now` it does not wait for
/// new events, which would cost a system call.
pub(crate) async fn behind_others() {
    let mut is_behind = false;
    poll_fn(|context| match std::mem::replace(&mut is_behind, true) {
        true => Poll::Ready(()),
        false => {
            context.waker().wake_by_ref();
            Poll::Pending
        }
    })
    .await;
}
