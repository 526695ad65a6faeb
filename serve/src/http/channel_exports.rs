// SPDX-License-Identifier: MIT OR Apache-2.0
//! channel_exports: what players and guides read about channels: `/channels.m3u` (list, multicast
//! where a channel has it), `/channels-rtsp.m3u` (the same by RTSP alone), `/channels.xml` (XMLTV
//! of the coming day), `/channels.json` (state), `/channel/NAME.sdp`. HLS of a channel is
//! [`crate::web`]'s.
//!
//! A server without channels has none of these paths; files of these names are served instead.
//!
//! Sources: `serve/src/channel/exports.rs`.
//! Does not stream.

use std::borrow::Cow;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use access::ListingClass;

use crate::channel::{M3uLinks, Timeline, m3u, session_description, xmltv};
use crate::http::resource::Client;
use crate::server_state::ServerState;

/// A document about channels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ChannelExport<'a> {
    List(M3uLinks),
    Guide,
    State,
    /// Description of the first target of a channel.
    Description(&'a str),
}

impl ChannelExport<'_> {
    /// True for a document that names several channels.
    pub(super) fn is_list(self) -> bool {
        !matches!(self, ChannelExport::Description(_))
    }

    /// Returns the document that a path names.
    pub(super) fn named(path: &str) -> Option<ChannelExport<'_>> {
        match path {
            "/channels.m3u" => Some(ChannelExport::List(M3uLinks::Multicast)),
            "/channels-rtsp.m3u" => Some(ChannelExport::List(M3uLinks::Rtsp)),
            "/channels.xml" => Some(ChannelExport::Guide),
            "/channels.json" => Some(ChannelExport::State),
            path => {
                let name = path.strip_prefix("/channel/")?.strip_suffix(".sdp")?;
                Some(ChannelExport::Description(name))
            }
        }
    }

    /// Returns media type and text; names the channels of this class alone.
    ///
    /// # Errors
    /// What is not there, in words.
    pub(super) fn answer(
        self,
        server: &Arc<ServerState>,
        client: &Client,
        class: Option<&ListingClass>,
    ) -> Result<(&'static str, Vec<u8>), String> {
        let (live, local) = (server.live.current(), client.local);
        let is_seen = |name: &str| class.is_none_or(|class| is_visible(class, name));
        let mut configs = Cow::Borrowed(&live.channels[..]);
        if class.is_some() {
            configs.to_mut().retain(|config| is_seen(&config.name));
        }
        let lock = || server.channels.lock().unwrap_or_else(PoisonError::into_inner);
        match self {
            ChannelExport::List(links) => {
                let rtsp = SocketAddr::new(local.ip().to_canonical(), server.rtsp.port());
                let guide = format!("{}://{local}/channels.xml", client.scheme());
                let list = m3u(&configs, links, &rtsp.to_string(), Some(&guide));
                let list = list.ok_or("this server has no address for a list")?;
                Ok(("audio/x-mpegurl", list.into_bytes()))
            }
            ChannelExport::Guide => {
                let plans = lock().plans();
                let seen = plans.iter().filter(|(channel, _)| is_seen(&channel.config.name));
                let channels: Vec<(_, &Timeline)> =
                    seen.map(|(channel, plan)| (&channel.config, &plan.timeline)).collect();
                let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                Ok(("application/xml", xmltv(&channels, now, GUIDE_TIME)))
            }
            ChannelExport::State => {
                let address = format!("{}://{local}", client.scheme());
                let is_clear = server.config.segment_cipher.is_none();
                let mut rows = lock().rows(is_clear.then_some(address.as_str()));
                rows.retain(|row| is_seen(&row.name));
                let json = serde_json::json!({ "channels": rows });
                Ok(("application/json", json.to_string().into_bytes()))
            }
            ChannelExport::Description(name) => {
                let config =
                    live.channel(name).ok_or("no such channel; /channels.json lists them")?;
                let target = config.targets.first().ok_or_else(|| {
                    let rtsp = SocketAddr::new(local.ip().to_canonical(), server.rtsp.port());
                    format!("channel {name} has no RTP group; play rtsp://{rtsp}/channel/{name}")
                })?;
                let origin: IpAddr = local.ip().to_canonical();
                let version = server.started_s;
                let sdp = session_description(config, target, origin, version);
                Ok(("application/sdp", sdp))
            }
        }
    }
}

/// True when clients of a class may see a channel's name.
pub(super) fn is_visible(class: &ListingClass, channel: &str) -> bool {
    class.is_listed(&format!("channel/{channel}"))
}

/// Length of the guide.
const GUIDE_TIME: Duration = Duration::from_secs(86_400);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_name_documents() {
        assert_eq!(
            ChannelExport::named("/channels.m3u"),
            Some(ChannelExport::List(M3uLinks::Multicast))
        );
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
