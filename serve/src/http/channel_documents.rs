// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writes the documents about all channels that players ask for: an M3U list, a guide in XMLTV, and
//! their state as JSON.
//!
//! Does not keep them ([`super::channel_lists`]).

use std::any::Any;
use std::borrow::Cow;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use access::ListingClass;
use wire::http::{Request, Response, error};

use crate::channel::{M3uLinks, Timeline, m3u, xmltv};
use crate::http::channel_exports::is_visible;
use crate::http::channel_lists::{ChannelList, ChannelLists, ListKey, MadeList};
use crate::http::client::Client;
use crate::http::content::Content;
use crate::server_state::ServerState;

impl ChannelLists {
    /// Answers a request for a document that names the channels of this class alone.
    pub(super) async fn answer(
        &self,
        (list, class): (ChannelList, Option<Arc<ListingClass>>),
        request: &Request,
        (client, server): (&Client, &Arc<ServerState>),
        now: SystemTime,
    ) -> (Response, Content) {
        let time = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut sources: Vec<Arc<dyn Any + Send + Sync>> = vec![server.live.current()];
        let mut address = format!("{}://{}", client.scheme(), client.local);
        let step_s = match list {
            ChannelList::M3u(_) => u64::MAX,
            ChannelList::State => STATE_STEP_S,
            ChannelList::Guide => {
                address.clear();
                for (channel, plan) in server.channels.lock().plans() {
                    sources.push(channel);
                    sources.push(plan);
                }
                GUIDE_STEP_S
            }
        };
        let step = time.as_secs() / step_s;
        let key = ListKey { list, class: class.clone(), address: address.clone(), sources, step };
        let (local, server) = (client.local, server.clone());
        let make = move || {
            let class = class.as_deref();
            let text = match list {
                ChannelList::M3u(links) => written_m3u(links, class, (&server, local, &address))?,
                ChannelList::Guide => {
                    written_guide(class, &server, Duration::from_secs(step * GUIDE_STEP_S))
                }
                ChannelList::State => written_state(class, &server, &address),
            };
            let content_type = match list {
                ChannelList::M3u(_) => "audio/x-mpegurl",
                ChannelList::Guide => "application/xml",
                ChannelList::State => "application/json",
            };
            Ok(MadeList::new(content_type, text))
        };
        let refused = match self.get(key, make).await {
            Ok(Ok(made)) => return made.answer(request, now),
            Ok(Err(missing)) => error(request, 404, missing, now),
            Err(panic) => {
                tracing::error!("http {}: {panic}", request.path);
                error(request, 500, "internal error", now)
            }
        };
        (refused, Content::Text)
    }
}

fn is_seen(class: Option<&ListingClass>, name: &str) -> bool {
    class.is_none_or(|class| is_visible(class, name))
}

fn written_m3u(
    links: M3uLinks,
    class: Option<&ListingClass>,
    (server, local, address): (&ServerState, SocketAddr, &str),
) -> Result<Vec<u8>, &'static str> {
    let live = server.live.current();
    let mut configs = Cow::Borrowed(&live.channels[..]);
    if class.is_some() {
        configs.to_mut().retain(|config| is_seen(class, &config.name));
    }
    let rtsp = SocketAddr::new(local.ip().to_canonical(), server.rtsp.port());
    let guide = format!("{address}/channels.xml");
    let list = m3u(&configs, links, &rtsp.to_string(), Some(&guide));
    list.map(String::into_bytes).ok_or("this server has no address for a list")
}

fn written_guide(class: Option<&ListingClass>, server: &ServerState, from: Duration) -> Vec<u8> {
    let plans = server.channels.lock().plans();
    let seen = plans.iter().filter(|(channel, _)| is_seen(class, &channel.config.name));
    let channels: Vec<(_, &Timeline)> =
        seen.map(|(channel, plan)| (&channel.config, &plan.timeline)).collect();
    xmltv(&channels, from, GUIDE_TIME)
}

fn written_state(class: Option<&ListingClass>, server: &ServerState, address: &str) -> Vec<u8> {
    let is_clear = server.config.segment_cipher.is_none();
    let mut rows = server.channels.lock().rows(is_clear.then_some(address));
    rows.retain(|row| is_seen(class, &row.name));
    serde_json::json!({ "channels": rows }).to_string().into_bytes()
}

/// Length of the guide.
const GUIDE_TIME: Duration = Duration::from_secs(86_400);

/// Steps of time in which the guide moves on; for so long it shows programmes that have ended.
const GUIDE_STEP_S: u64 = 300;

/// Greatest age of a state.
const STATE_STEP_S: u64 = 1;
