// SPDX-License-Identifier: MIT OR Apache-2.0
//! Keeps the documents about all channels, for players and guides: `/channels.m3u` (list, multicast
//! where a channel has it), `/channels-rtsp.m3u` (the same by RTSP alone), `/channels.xml` (XMLTV
//! of the coming day), `/channels.json` (state).
//!
//! A guide of ten channels of short files has megabytes and takes 50 ms: on an event loop, two
//! clients that pipelined requests for it held up all others for seconds. So a document is made on
//! another thread, one at a time, and kept with its compressed form for all who ask the same: until
//! the channels, their plans or their settings change, and a list of states or a guide until its
//! next step of time ([`super::channel_documents`]). An answer costs a look-up, and a client holds
//! a copy of only 16 KiB. Clients that may see the same names share a document ([`ListingClass`]).
//!
//! Bounds: a guide ends after a day and the bytes of [`crate::channel::xmltv`]; the documents kept
//! have [`KEPT_BYTES_MAX`] together, and go after [`IDLE`] without requests.
//!
//! Sources: RFC 9110 §8.8.3 (entity tags: one for each coding), §12.5.3 (Accept-Encoding).
//! Does not write documents ([`super::channel_documents`]) or answer for a single channel.

use std::any::Any;
use std::hash::{DefaultHasher, Hasher};
use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use access::ListingClass;
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use tokio::sync::Mutex;
use wire::http::{Listing, Request, Response, listing};

use crate::channel::M3uLinks;
use crate::http::content::Content;
use crate::http::index::Body;

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
pub(super) struct ListKey {
    pub(super) list: ChannelList,
    pub(super) class: Option<Arc<ListingClass>>,
    /// Address of the server that occurs in the text; empty where none does.
    pub(super) address: String,
    /// Settings and plans of the moment.
    pub(super) sources: Vec<Arc<dyn Any + Send + Sync>>,
    /// Number of the step of time.
    pub(super) step: u64,
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
pub(super) struct MadeList {
    content_type: &'static str,
    tag: u64,
    plain: Bytes,
    /// `None` for a short document.
    gzip: Option<Bytes>,
}

impl MadeList {
    pub(super) fn new(content_type: &'static str, text: Vec<u8>) -> MadeList {
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

    pub(super) fn answer(&self, request: &Request, now: SystemTime) -> (Response, Content) {
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
    /// Returns a kept document; makes it on another thread if none with these inputs is kept.
    pub(super) async fn get(
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
