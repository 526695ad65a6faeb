// SPDX-License-Identifier: MIT OR Apache-2.0
//! The settings that connections read, parted into those that stay as they were at the start and
//! those that a reload replaces.
//!
//! A running server keeps no [`Config`]: a setting that connections read is a field of one of the
//! two structs, so that none is read from a configuration that is no longer in force. Limits, keys,
//! tokens, channels and certificates are replaced where they live ([`crate::reload`]).
//!
//! Does not check: [`Config::check`] has.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::channel::ChannelConfig;
use crate::config::{Config, Timeouts};
use crate::web::SegmentCipher;

/// Settings that stay as they were at the start.
pub(crate) struct FixedSettings {
    pub(crate) http: SocketAddr,
    pub(crate) timeouts: Timeouts,
    pub(crate) segment_cipher: Option<SegmentCipher>,
    pub(crate) burst: Duration,
    /// Cache folder, as configured.
    pub(crate) cache: Option<PathBuf>,
}

/// Settings that a reload replaces.
pub(crate) struct LiveSettings {
    /// Of sessions that begin from now on: others were told theirs in the answer to SETUP.
    pub(crate) session_timeout: Duration,
    pub(crate) allow_origins: Vec<String>,
    pub(crate) channels: Vec<ChannelConfig>,
}

impl FixedSettings {
    pub(crate) fn of(config: &Config) -> FixedSettings {
        FixedSettings {
            http: config.http,
            timeouts: config.timeouts,
            segment_cipher: config.segment_cipher,
            burst: config.burst,
            cache: config.cache.clone(),
        }
    }
}

impl LiveSettings {
    pub(crate) fn of(config: &Config) -> LiveSettings {
        LiveSettings {
            session_timeout: config.session_timeout,
            allow_origins: config.allow_origins.clone(),
            channels: config.channels.clone(),
        }
    }

    /// Returns the settings of a channel.
    pub(crate) fn channel(&self, name: &str) -> Option<&ChannelConfig> {
        self.channels.iter().find(|channel| channel.name == name)
    }
}
