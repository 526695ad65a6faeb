// SPDX-License-Identifier: MIT OR Apache-2.0
//! State of the administrator's listener.
//!
//! Does not answer requests ([`super::routes`]).

use std::sync::{Arc, OnceLock};

use access::Access;
use serde::Serialize;
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;

use super::login::Logins;
use crate::config::Config;

/// State of the listener.
pub(crate) struct Admin {
    pub(super) hosts: Vec<String>,
    pub(super) logins: Logins,
    /// Tasks that accept connections, for the readiness.
    pub(super) listeners: OnceLock<Vec<AbortHandle>>,
    pub(super) reload: OnceLock<Reload>,
    /// Permits for concurrent traces, each of some megabytes.
    pub(super) traces: Semaphore,
}

/// Reads the configuration again; may block.
type Reload = Box<dyn Fn() -> Result<ReloadOutcome, String> + Send + Sync>;

/// Result of reading the configuration again.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ReloadOutcome {
    /// Keys whose new values are in force.
    pub changed: Vec<String>,
    /// Keys whose new values need a restart.
    pub needs_restart: Vec<String>,
}

impl Admin {
    /// Returns the state for a configuration; `None` if it names no administrator's listener.
    pub(crate) fn new(config: &Config, access: &Arc<Access>) -> Option<Admin> {
        config.admin.map(|_| Admin {
            hosts: config.admin_hosts.clone(),
            logins: Logins::new(access.clone()),
            listeners: OnceLock::new(),
            reload: OnceLock::new(),
            traces: Semaphore::new(TRACES_MAX),
        })
    }

    /// Stores the tasks that accept connections, for the readiness check.
    pub(crate) fn watch_listeners(&self, listeners: Vec<AbortHandle>) {
        let _ = self.listeners.set(listeners);
    }

    /// Sets the function that reads the configuration again; only the first call has an effect.
    pub(crate) fn on_reload(
        &self,
        reload: impl Fn() -> Result<ReloadOutcome, String> + Send + Sync + 'static,
    ) {
        let _ = self.reload.set(Box::new(reload));
    }
}

const TRACES_MAX: usize = 4;
