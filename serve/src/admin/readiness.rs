// SPDX-License-Identifier: MIT OR Apache-2.0
//! Readiness of the server: its listeners accept, its folder can be read, its pacers run.
//!
//! Costs reading one name of the folder, on a thread that may block.
//!
//! Names no path, since any client that reaches the listener may ask.
//! Does not check that clients are served in time (metrics do).

use std::sync::Arc;
use std::time::Duration;

use tokio::task::{AbortHandle, spawn_blocking};
use tokio::time::timeout;

use crate::server_state::ServerState;

/// Returns the reasons why the server cannot serve; none if it can.
pub(super) async fn faults(server: &Arc<ServerState>, listeners: &[AbortHandle]) -> Vec<String> {
    let mut faults = Vec::new();
    let ended = listeners.iter().filter(|listener| listener.is_finished()).count();
    if ended > 0 {
        faults.push(format!("{ended} of {} listeners have ended", listeners.len()));
    }
    let (threads, ended) = server.pacers.threads();
    if ended > 0 {
        faults.push(format!("{ended} of {threads} pacer threads have ended"));
    }
    let folder = server.library.folder.path().to_owned();
    let read = spawn_blocking(move || std::fs::read_dir(&folder)?.next().transpose().map(drop));
    match timeout(FOLDER_WAIT, read).await {
        Ok(Ok(Ok(()))) => {}
        Ok(Ok(Err(error))) => faults.push(format!("the served folder: {error}")),
        Ok(Err(error)) => faults.push(format!("the served folder: {error}")),
        Err(_) => faults.push(format!(
            "the served folder: not read within {} s; its disk does not answer",
            FOLDER_WAIT.as_secs()
        )),
    }
    faults
}

const FOLDER_WAIT: Duration = Duration::from_secs(2);
