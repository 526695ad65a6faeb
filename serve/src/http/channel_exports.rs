// SPDX-License-Identifier: MIT OR Apache-2.0
//! Addresses of documents about channels: those of all together ([`crate::http::channel_lists`])
//! and `/channel/NAME.sdp`. HLS of a channel is [`crate::web`]'s.
//!
//! A server without channels has none of these paths; files of these names are served instead.
//!
//! Sources: `serve/src/channel/exports.rs`.
//! Does not stream.

use std::net::{IpAddr, SocketAddr};

use access::ListingClass;

use crate::channel::{M3uLinks, session_description};
use crate::http::channel_lists::ChannelList;
use crate::http::client::Client;
use crate::server_state::ServerState;

/// A document about channels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ChannelExport<'a> {
    List(ChannelList),
    /// Description of the first target of a channel.
    Description(&'a str),
}

impl ChannelExport<'_> {
    /// Returns the document that a path names.
    pub(super) fn named(path: &str) -> Option<ChannelExport<'_>> {
        let list = match path {
            "/channels.m3u" => ChannelList::M3u(M3uLinks::Multicast),
            "/channels-rtsp.m3u" => ChannelList::M3u(M3uLinks::Rtsp),
            "/channels.xml" => ChannelList::Guide,
            "/channels.json" => ChannelList::State,
            path => {
                let name = path.strip_prefix("/channel/")?.strip_suffix(".sdp")?;
                return Some(ChannelExport::Description(name));
            }
        };
        Some(ChannelExport::List(list))
    }
}

/// Returns the description of the first target of a channel.
///
/// # Errors
/// The missing thing, in words.
pub(super) fn description(
    name: &str,
    server: &ServerState,
    client: &Client,
) -> Result<Vec<u8>, String> {
    let (live, local) = (server.live.current(), client.local);
    let config = live.channel(name).ok_or("no such channel; /channels.json lists them")?;
    let target = config.targets.first().ok_or_else(|| {
        let rtsp = SocketAddr::new(local.ip().to_canonical(), server.rtsp.port());
        format!("channel {name} has no RTP group; play rtsp://{rtsp}/channel/{name}")
    })?;
    let origin: IpAddr = local.ip().to_canonical();
    Ok(session_description(config, target, origin, server.started_s))
}

/// True when clients of a class may see a channel's name.
pub(super) fn is_visible(class: &ListingClass, channel: &str) -> bool {
    class.is_listed(&format!("channel/{channel}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_name_documents() {
        let list = ChannelExport::List(ChannelList::M3u(M3uLinks::Multicast));
        assert_eq!(ChannelExport::named("/channels.m3u"), Some(list));
        let description = ChannelExport::named("/channel/news.sdp");
        assert_eq!(description, Some(ChannelExport::Description("news")));
        for other in [
            "/channel/news/master.m3u8",
            "/channel/",
            "/channels",
            "/channel/news",
            "/a/channels.m3u",
            "/news.sdp",
        ] {
            assert_eq!(ChannelExport::named(other), None, "{other}");
        }
    }
}
