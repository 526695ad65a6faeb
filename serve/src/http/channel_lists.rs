// SPDX-License-Identifier: MIT OR Apache-2.0
//! Documents about all channels, for players and guides: `/channels.m3u` (list, multicast where a
//! channel has it), `/channels-rtsp.m3u` (the same by RTSP alone), `/channels.xml` (XMLTV of the
//! coming day), `/channels.json` (state).
//!
//! A guide of ten channels of short files has megabytes and takes 50 ms: on an event loop, two
//! clients that pipelined requests for it held up all others for seconds. So a document is made on
//! another thread, one at a time, and kept with its compressed form for all who ask the same: until
//! the channels, their plans or their settings change, and a list of states or a guide until its
//! next [`STATE_STEP_S`] or [`GUIDE_STEP_S`]. An answer costs a look-up, and a client holds a copy
//! of only 16 KiB. Clients that may see the same names share a document ([`ListingClass`]).
//!
//! Bounds: a guide ends after [`GUIDE_TIME`] and the bytes of [`crate::channel::xmltv`]; the
//! documents kept have [`KEPT_BYTES_MAX`] together, and go after [`IDLE`] without requests.
//!
//! Sources: RFC 9110 §8.8.3 (entity tags: one for each coding), §12.5.3 (Accept-Encoding).
//! Does not answer for a single channel.

use std::any::Any;
use std::borrow::Cow;
use std::hash::{DefaultHasher, Hasher};
use std::io::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use access::ListingClass;
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use tokio::sync::Mutex;
use wire::http::{Listing, Request, Response, error, listing};

use crate::channel::{M3uLinks, Timeline, m3u, xmltv};
use crate::http::channel_exports::is_visible;
use crate::http::content::Content;
use crate::http::index::Body;
use crate::http::resource::Client;
use crate::server_state::ServerState;

/// A document about all channels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ChannelList {
    M3u(M3uLinks),
    Guide,
    State,
}

/// The documents that clients share.
#[derive(Default)]
pub(crate) struct ChannelLists {
    /// Locked while one is made.
    kept: Arc<Mutex<Vec<Kept>>>,
}

struct Kept {
    key: ListKey,
    made: Arc<MadeList>,
    asked: Instant,
}

/// Inputs of a document.
struct ListKey {
    list: ChannelList,
    class: Option<Arc<ListingClass>>,
    /// Address of the server that occurs in the text; empty where none does.
    address: String,
    /// Settings and plans of the moment.
    sources: Vec<Arc<dyn Any + Send + Sync>>,
    /// Number of the step of time.
    step: u64,
}

impl ListKey {
    /// True for the same document, at any time.
    fn names(&self, other: &ListKey) -> bool {
        (self.list, &self.class, &self.address) == (other.list, &other.class, &other.address)
    }

    fn is_current(&self, asked: &ListKey) -> bool {
        let pairs = || self.sources.iter().zip(&asked.sources);
        self.names(asked)
            && self.step == asked.step
            && self.sources.len() == asked.sources.len()
            && pairs().all(|(one, other)| Arc::ptr_eq(one, other))
    }
}

/// A document, plain and compressed.
struct MadeList {
    content_type: &'static str,
    tag: u64,
    plain: Bytes,
    /// `None` for a short document.
    gzip: Option<Bytes>,
}

impl MadeList {
    fn new(content_type: &'static str, text: Vec<u8>) -> MadeList {
        let mut tag = DefaultHasher::new();
        tag.write(&text);
        let gzip = (text.len() >= PACKED_BYTES_MIN).then(|| {
            let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
            packed.write_all(&text).and_then(|()| packed.finish()).expect("writing to memory")
        });
        let gzip = gzip.map(Bytes::from);
        MadeList { content_type, tag: tag.finish(), plain: text.into(), gzip }
    }

    fn bytes(&self) -> usize {
        self.plain.len() + self.gzip.as_ref().map_or(0, Bytes::len)
    }

    fn answer(&self, request: &Request, now: SystemTime) -> (Response, Content) {
        let packed = self.gzip.as_ref().filter(|_| request.accepts_gzip);
        let (bytes, coding) = match packed {
            Some(packed) => (packed, Some("gzip")),
            None => (&self.plain, None),
        };
        let answer = Listing {
            etag: &format!("\"{:016x}{}\"", self.tag, coding.map_or("", |_| "-gzip")),
            content_type: self.content_type,
            cache_control: "no-cache",
            coding,
            before: Vec::new(),
            held_bytes: bytes.len() as u64,
            after: Vec::new(),
        };
        (listing(request, answer, now), Content::Rows(Body::of(bytes.clone())))
    }
}

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

    /// Returns a kept document; makes it on another thread if none with these inputs is kept.
    async fn get(
        &self,
        key: ListKey,
        make: impl FnOnce() -> Result<MadeList, &'static str> + Send + 'static,
    ) -> Result<Result<Arc<MadeList>, &'static str>, tokio::task::JoinError> {
        let mut kept = self.kept.clone().lock_owned().await;
        if let Some(known) = kept.iter_mut().find(|kept| kept.key.is_current(&key)) {
            known.asked = Instant::now();
            return Ok(Ok(known.made.clone()));
        }
        // The work owns the lock: if its client leaves, it is still the only one.
        let made = tokio::task::spawn_blocking(move || {
            kept.retain(|kept| !kept.key.names(&key));
            let made = Arc::new(make()?);
            let bytes = |kept: &[Kept]| kept.iter().map(|kept| kept.made.bytes()).sum::<usize>();
            while bytes(&kept) + made.bytes() > KEPT_BYTES_MAX
                && let Some(at) = (0..kept.len()).min_by_key(|&at| kept[at].asked)
            {
                kept.swap_remove(at);
            }
            kept.push(Kept { key, made: made.clone(), asked: Instant::now() });
            Ok(made)
        });
        made.await
    }

    /// Drops the documents that were not requested for [`IDLE`].
    pub(crate) fn drop_idle(&self) {
        // Locked ones are in use.
        if let Ok(mut kept) = self.kept.try_lock() {
            kept.retain(|kept| kept.asked.elapsed() <= IDLE);
        }
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
/// Three guides of the longest, with their compressed forms.
const KEPT_BYTES_MAX: usize = 16 << 20;
/// Least bytes to compress: fewer fit a packet or two.
const PACKED_BYTES_MIN: usize = 2048;
/// Time without requests after which a document is dropped.
const IDLE: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    fn key(list: ChannelList, source: &Arc<u8>, step: u64) -> ListKey {
        let sources: Vec<Arc<dyn Any + Send + Sync>> = vec![source.clone()];
        ListKey { list, class: None, address: String::new(), sources, step }
    }

    #[tokio::test]
    async fn a_document_is_made_once_until_its_sources_or_its_time_change() {
        let (lists, made) = (ChannelLists::default(), Arc::<AtomicU32>::default());
        let (old, new) = (Arc::new(1), Arc::new(1));
        let mut makes = Vec::new();
        for (source, step) in [(&old, 1), (&old, 1), (&old, 1), (&new, 1), (&new, 1), (&new, 2)] {
            for list in [ChannelList::Guide, ChannelList::State] {
                let counter = made.clone();
                let make = move || {
                    counter.fetch_add(1, Ordering::Relaxed);
                    Ok(MadeList::new("text/plain", vec![b'a'; 10]))
                };
                lists.get(key(list, source, step), make).await.unwrap().unwrap();
            }
            makes.push(made.load(Ordering::Relaxed));
        }
        assert_eq!(makes, [2, 2, 2, 4, 4, 6]);
        assert_eq!(lists.kept.lock().await.len(), 2, "an older one is replaced");
    }

    #[tokio::test]
    async fn the_oldest_make_room_for_a_new_one() {
        let (lists, source) = (ChannelLists::default(), Arc::new(1));
        let kept_bytes = || async {
            let kept = lists.kept.lock().await;
            (kept.len(), kept.iter().map(|kept| kept.made.bytes()).sum::<usize>())
        };
        for number in 0..12 {
            let key =
                ListKey { address: number.to_string(), ..key(ChannelList::State, &source, 1) };
            let text = vec![b'a'; KEPT_BYTES_MAX / 8];
            lists.get(key, || Ok(MadeList::new("text/plain", text))).await.unwrap().unwrap();
        }
        let (kept, bytes) = kept_bytes().await;
        assert!(kept == 7 && bytes <= KEPT_BYTES_MAX, "{kept} documents, {bytes} bytes");
        let key = key(ChannelList::Guide, &source, 1);
        assert_eq!(lists.get(key, || Err("none")).await.unwrap().err(), Some("none"));
        assert_eq!(kept_bytes().await.0, 7, "nothing is kept of a failure");
    }

    #[test]
    fn a_long_document_has_a_compressed_form() {
        let text = "a line like all others\n".repeat(1000).into_bytes();
        let made = MadeList::new("text/plain", text.clone());
        let mut read = Vec::new();
        let packed = made.gzip.as_ref().unwrap();
        flate2::read::GzDecoder::new(&packed[..]).read_to_end(&mut read).unwrap();
        assert!(read == text && packed.len() * 20 < text.len(), "{}", packed.len());
        assert!(MadeList::new("text/plain", text[..100].to_vec()).gzip.is_none());
    }
}
