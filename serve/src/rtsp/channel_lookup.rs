// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds the channel that a request's path names, or the reason why it has no media.
//!
//! Costs a lock and a comparison of names.
//!
//! Sources: RFC 2326 §10.2.
//! Does not look for files.

use std::sync::Arc;

use wire::rtsp::{Request, Response};

use super::{RtspConnection, no_asset};
use crate::channel::name_at;
use crate::library::NoAsset;
use crate::library::asset::Asset;

impl RtspConnection {
    /// Returns the newest part of the channel with this path; `None` if no channel has the path.
    pub(super) fn channel_asset(
        &self,
        request: &Request,
        path: &str,
    ) -> Result<Option<Arc<Asset>>, Response> {
        let (window, stands_by) = {
            let channels = self.server.channels.lock();
            let Some(window) = channels.window(path) else { return Ok(None) };
            (window, channels.stands_by(path))
        };
        match window.assets.newest() {
            Some(newest) => Ok(Some(newest.asset.clone())),
            None if stands_by => {
                let name = name_at(path).unwrap_or_default().to_owned();
                Err(no_asset(request, &NoAsset::OnStandby { name }))
            }
            None => Err(no_asset(request, &NoAsset::NotOnAir)),
        }
    }

    /// Returns the response to a path of a channel that does not exist; `None` for other paths.
    pub(super) fn no_channel(&self, request: &Request, path: &str) -> Option<Response> {
        let name = name_at(path)?;
        if self.server.live.current().channels.is_empty() {
            return None;
        }
        Some(no_asset(request, &NoAsset::NoChannel { name: name.to_owned() }))
    }
}
