// SPDX-License-Identifier: MIT OR Apache-2.0
//! http_runtime: a tokio runtime for HTTP alone, so that downloads, however many and however slow
//! their disks, do not delay RTSP, RTCP and time-outs.
//!
//! On one shared runtime a DESCRIBE beside 1,000 cold downloads took 6.9 s: opening its file waited
//! behind them for a thread that may block on a disk. Costs two threads, and up to [`WAITING_MAX`]
//! more while downloads wait.

use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;

use crate::error::Error;

/// The runtime. Dropping it stops it without waiting for threads that wait for a disk.
pub(crate) struct HttpRuntime(Option<Runtime>);

impl HttpRuntime {
    pub(crate) fn start() -> Result<HttpRuntime, Error> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(WORKERS)
            .max_blocking_threads(WAITING_MAX)
            .thread_name("http")
            .enable_all()
            .build();
        let runtime = runtime.map_err(|source| Error::Host {
            call: "clone",
            object: "threads for HTTP".to_owned(),
            source,
        })?;
        Ok(HttpRuntime(Some(runtime)))
    }

    /// Starts a task on the runtime. Sockets that it opens and tasks that it starts stay there.
    pub(crate) fn spawn<T: Send + 'static>(
        &self,
        task: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        self.0.as_ref().expect("it is there until it is dropped").spawn(task)
    }
}

impl Drop for HttpRuntime {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// As many as control has; a step of a download is a system call and a wait.
const WORKERS: usize = 2;
/// Enough concurrent requests for a disk; further threads would only wait for each other.
const WAITING_MAX: usize = 64;
