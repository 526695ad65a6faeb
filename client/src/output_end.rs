// SPDX-License-Identifier: MIT OR Apache-2.0
//! The end of a play's file: a slow or stalled disk must not block the client for ever.
//!
//! The queue bounds the blocks that remain when a play ends; they are written, however long that
//! takes. Where the caller stops the play, before its end or during this wait, the file has
//! [`FINISH_WAIT`] to finish; then the writing thread drops the rest and counts it.
//!
//! Does not write.

use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::{sleep, timeout};

use super::stop::{Stop, stopped};
use crate::error::Error;

/// Signals the writing thread of a file to drop the rest.
#[derive(Debug, Clone, Default)]
pub(super) struct OutputEnd(Arc<AtomicBool>);

impl OutputEnd {
    /// True once the rest is to be dropped.
    pub(super) fn is_given_up(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    pub(super) fn give_up(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Waits until the file at `path` is `finished`. The caller has stopped the play
    /// (`is_stopped`), or may `stop` it now.
    pub(super) async fn wait<T>(
        &self,
        path: &Path,
        finished: impl Future<Output = Result<T, Error>>,
        stop: &mut Stop,
        is_stopped: bool,
    ) -> Result<T, Error> {
        let mut finished = pin!(finished);
        let deadline = async {
            if !is_stopped {
                stopped(stop).await;
            }
            sleep(FINISH_WAIT).await;
        };
        tokio::select! {
            finished = &mut finished => return finished,
            () = deadline => {}
        }
        self.give_up();
        timeout(FINISH_WAIT, finished).await.unwrap_or_else(|_| {
            let words = "it takes no more bytes; what it took is in it";
            Err(Error::on_file("write", path, std::io::Error::other(words)))
        })
    }
}

const FINISH_WAIT: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use std::future::pending;

    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_stop_is_heard_while_a_file_is_finished() {
        let end = OutputEnd::default();
        let (ask, asked) = oneshot::channel::<()>();
        let mut stop: Stop = Box::pin(async move { drop(asked.await) });
        let stuck = pending::<Result<(), Error>>();
        {
            let mut waiting = pin!(end.wait(Path::new("out.ts"), stuck, &mut stop, false));
            // The wait has no limit.
            assert!(timeout(60 * FINISH_WAIT, &mut waiting).await.is_err() && !end.is_given_up());
            ask.send(()).unwrap();
            let error = waiting.await.unwrap_err().to_string();
            assert!(error.starts_with("write out.ts: it takes no more bytes"), "{error}");
            assert!(end.is_given_up());
        }
        // The stop can be awaited again.
        stopped(&mut stop).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_writer_that_is_given_up_gives_its_counts() {
        let end = OutputEnd::default();
        let leaves_out = async {
            while !end.is_given_up() {
                sleep(FINISH_WAIT / 10).await;
            }
            Ok(7)
        };
        let mut stop: Stop = Box::pin(pending());
        assert_eq!(end.wait(Path::new("out.ts"), leaves_out, &mut stop, true).await.unwrap(), 7);
    }
}
