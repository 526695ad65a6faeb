// SPDX-License-Identifier: MIT OR Apache-2.0
//! A recording as MPEG-DASH while it is written, and a channel.
//!
//! Its segments are those of HLS, each stream of them by itself, as fragments of MP4
//! ([`media::GrowingFragments`]). New segments are read when the description is requested; the
//! first request reads all listed segments, which takes a while where hours were recorded: until
//! then players are asked to retry. A segment is announced when its samples are final: the next
//! unit of each stream has begun, or two more segments are whole, or another programme begins, as
//! behind each break. Segments that a channel has forgotten are gone (410); where nobody asked for
//! so long that some were never read, a period begins behind them.
//!
//! Memory: 100 bytes a segment and 48 a fragment of it, for as long as the segment exists (7,200
//! and those that left the playlist a minute ago), 2 KB a period; for a channel without requests,
//! the memory that the last request left. Copies are bounded with those of all files
//! ([`super::segment_copies`]).
//!
//! Costs a look: a read of each new segment, 1 ms for 2 s of 5 Mb/s; a fragment 3 ms of a core, for
//! all viewers ([`super::segment_copies`]). Seen with dash.js in Chromium: 7 s behind the source
//! (`pagewire/tests/web/live_dash.rs`).
//!
//! Sources: ISO/IEC 23009-1 §5.4 (updates of a description).
//! Does not write descriptions ([`super::live_manifest`]).

use std::collections::{HashSet, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use media::tracks::LeftOut;
use media::{
    FragmentSource, GrowingFragments, GrowingSegment, PartLimit, RecordedPart, RecordedStreams,
};
use parking_lot::Mutex;
use wire::http::{Entity, Request, Response, error};

use super::address::{WebAddress, WebItem};
use super::item_parts::ItemParts;
use super::item_response::{kind, made, refused};
use super::live_manifest::{self, Described};
use super::live_media::LiveMedia;
use super::live_state::LiveState;
use super::mpd_elements;
use super::web_assets::WebAssets;
use crate::http::open_files::OpenFile;
use crate::library::NoAsset;

/// Time for which one request looks at segments.
const LOOK_MAX: Duration = Duration::from_secs(2);

/// Whole segments behind one whose streams have nothing new: it is announced as it is.
const SILENT_SEGMENTS: usize = 2;

/// Time after the last dynamic description during which the address of the file's own description
/// returns that of the recording: some players do not continue at the address that it names.
pub(super) const FOLLOWED: Duration = Duration::from_secs(30);

/// Streams of a recording that are named as left out: maps may name new ones for days.
const NAMED_MAX: usize = 64;

/// Longest fragment, which players hold in memory.
const FRAGMENT_BYTES_MAX: u64 = 256 << 20;
const TOO_LONG: &str = "the segment has more than 256 MiB";

/// The fragments of a recording or channel, from the first request for them on.
#[derive(Default)]
pub(crate) struct LiveDash {
    /// Held while new segments are read: tasks that wait for it hold no thread.
    looking: Arc<tokio::sync::Mutex<()>>,
    state: Mutex<Option<DashState>>,
}

struct DashState {
    /// Wall time of the time zero: the start of availability, which stays.
    began: SystemTime,
    programmes: VecDeque<DashProgramme>,
    /// Number of the segment that is read next; true when it begins a programme.
    next: usize,
    begins: bool,
    text: Option<DashText>,
    /// Streams that were named in the log as left out.
    named: HashSet<u32>,
    /// Time of the last dynamic description.
    followed: Instant,
}

/// A programme extends from one break of a recording or channel to the next: its streams may differ
/// from those before.
struct DashProgramme {
    /// Number of its first segment.
    first: usize,
    /// `None` where DASH does not carry them.
    streams: Option<Arc<RecordedStreams>>,
    fragments: GrowingFragments,
}

/// A description but its end.
struct DashText {
    /// First segment, next segment to be read, and true when no more follow.
    listed: (usize, usize, bool),
    text: String,
}

/// Outcome of a look-up.
enum Found<T> {
    There(T),
    /// Its segment was forgotten.
    Gone,
    /// There is none, or none yet.
    Missing,
}

impl<T> Found<T> {
    fn of(found: Option<T>) -> Found<T> {
        found.map_or(Found::Missing, Found::There)
    }
}

/// A text or copy as an answer.
type DashAnswer = (ItemParts, Option<Arc<OpenFile>>);

/// Returns the answer with a DASH item of the media that has the address' identity, and the file
/// that has its bytes; a text has none.
pub(super) async fn answer<M: LiveMedia>(
    request: &Request,
    address: &WebAddress<'_>,
    media: &M,
    (web, peer): (&WebAssets, IpAddr),
    now: SystemTime,
) -> (Response, Option<Arc<OpenFile>>) {
    let item = &address.item;
    let found = match item {
        WebItem::LiveFragment(stream, period, start) => {
            let at = (*stream, *period, *start);
            fragment(media, (address.file, item), at, (web, peer)).await
        }
        WebItem::LiveInit(stream, period) => {
            let init = |state: &DashState| state.init(*stream, *period);
            media.dash().find(media, init).await.map(|init| match init {
                Found::There(init) => Found::There((ItemParts::of_text(init), None)),
                Found::Gone => Found::Gone,
                Found::Missing => Found::Missing,
            })
        }
        _ => {
            let alone = media.dash().looking.clone().lock_owned().await;
            let media = media.clone();
            let text = blocking(move || {
                let _alone = alone;
                text(&media, now)
            });
            text.await.map(|text| Found::There((ItemParts::of_text(text), None)))
        }
    };
    let word = M::WORD;
    let (parts, copy) = match found {
        Ok(Found::There(found)) => found,
        Ok(Found::Missing) => {
            let what = format!("the {word} has no such segment, or none yet");
            return (error(request, 404, &what, now), None);
        }
        Ok(Found::Gone) => {
            let what = format!("the {word} has this segment no more; load manifest.mpd again");
            return (error(request, 410, &what, now), None);
        }
        Err(NoAsset::Changing { .. }) if media.is_cut_short() => {
            let what = "the recording was cut short; load manifest.mpd again";
            return (error(request, 410, what, now), None);
        }
        Err(reason) => return (refused(request, &reason, now), None),
    };
    let text = crc32fast::hash(&parts.head);
    let etag = format!("\"{}/{item}-{text:x}\"", media.identity());
    let written = copy.as_ref().map(|copy| copy.entity().modified);
    let modified = media.modified().or(written).unwrap_or(now);
    let entity = Entity { bytes: parts.bytes(), etag: &etag, content_type: kind(item), modified };
    (made(request, &entity, parts, item, now), copy)
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, NoAsset> + Send + 'static,
) -> Result<T, NoAsset> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|panic| Err(NoAsset::Unreadable(panic.to_string())))
}

/// Returns the description. May read and wait.
fn text<M: LiveMedia>(media: &M, now: SystemTime) -> Result<String, NoAsset> {
    let is_complete = media.dash().look(media)?;
    // One guard at a time: it is the lock of all that ask.
    let live = |live: &LiveState| (live.first(), live.segments.target_s(), live.listed_s());
    let (first, target_s, listed_s) = media.with(live).ok_or(M::NOT_YET)?;
    let mut state = media.dash().state.lock();
    let state = state.as_mut().ok_or(M::NOT_YET)?;
    if !is_complete {
        state.followed = Instant::now();
    }
    let listed = (first, state.next, is_complete);
    if state.text.as_ref().is_none_or(|text| text.listed != listed) {
        let has_streams = |one: &DashProgramme| one.streams.is_some();
        if !state.programmes.is_empty() && !state.programmes.iter().any(has_streams) {
            return Err(NoAsset::Refused(no_streams::<M>()));
        }
        let programmes: Vec<_> = state.programmes.iter().map(|one| &one.fragments).collect();
        let described = Described {
            programmes: &programmes,
            listed: first..state.next,
            listed_s,
            began: state.began,
            target_s,
            is_complete,
            identity: media.identity(),
        };
        let text = live_manifest::text(&described, now).ok_or(M::NOT_YET)?;
        state.text = Some(DashText { listed, text });
    }
    let text = state.text.as_ref().map_or("", |text| &text.text);
    Ok([text, &mpd_elements::end(now)].concat())
}

/// Returns a fragment.
async fn fragment<M: LiveMedia>(
    media: &M,
    (name, item): (&str, &WebItem),
    (stream, period, start): (usize, usize, u64),
    (web, peer): (&WebAssets, IpAddr),
) -> Result<Found<DashAnswer>, NoAsset> {
    let find = |state: &DashState| state.fragment(stream, period, start);
    let (source, streams) = match media.dash().find(media, find).await? {
        Found::There(found) => found,
        Found::Gone => return Ok(Found::Gone),
        Found::Missing => return Ok(Found::Missing),
    };
    let number = source.fragment().segment;
    let segment = media.with(|live| live.segments.segment(number).cloned()).flatten();
    let Some(segment) = segment.filter(|segment| media.has(segment)) else {
        return Ok(Found::Gone);
    };
    let bytes = source.fragment().bytes;
    if bytes > FRAGMENT_BYTES_MAX {
        return Err(NoAsset::Refused(TOO_LONG.to_owned()));
    }
    let address = format!("{name}/~{}/{item}", media.identity());
    let (from, asked) = (media.clone(), segment.clone());
    let make = move || {
        let made = source.make(&streams, from.places(), &asked, &from)?;
        Ok(vec![made.head, made.media])
    };
    match web.copies.get((address, bytes), peer, make).await {
        Ok(copy) => {
            let parts = ItemParts::of_file(copy.entity().bytes);
            Ok(Found::There((parts, Some(copy))))
        }
        // The segment was forgotten while it was read.
        Err(_) if !media.has(&segment) => Ok(Found::Gone),
        Err(reason) => Err(reason),
    }
}

impl DashState {
    fn new(first: usize, began: SystemTime) -> DashState {
        DashState {
            began,
            programmes: VecDeque::new(),
            next: first,
            begins: true,
            text: None,
            named: HashSet::new(),
            followed: Instant::now(),
        }
    }

    /// Names streams of a recording or channel of this name that are left out, each once; returns
    /// those that were not named before.
    fn name<'a>(&mut self, name: &str, left_out: &'a [LeftOut]) -> Vec<&'a LeftOut> {
        let new = |one: &&LeftOut| self.named.len() < NAMED_MAX && self.named.insert(one.id);
        let new: Vec<&LeftOut> = left_out.iter().filter(new).collect();
        for LeftOut { reason, .. } in &new {
            tracing::warn!("{name}: left out of manifest.mpd: {reason}");
        }
        new
    }

    /// Begins a programme with the next segment.
    fn begin(&mut self, name: &str, streams: Option<RecordedStreams>, reason: String) {
        match &streams {
            Some(streams) => drop(self.name(name, streams.left_out())),
            None => drop(self.name(name, &[LeftOut { id: NO_STREAM, reason }])),
        }
        let count = streams.as_ref().map_or(0, RecordedStreams::len);
        let fragments = match self.programmes.back() {
            Some(before) => before.fragments.followed_by(count, self.next),
            None => GrowingFragments::new(count, self.next),
        };
        let (first, streams) = (self.next, streams.map(Arc::new));
        self.programmes.push_back(DashProgramme { first, streams, fragments });
        self.begins = false;
    }

    /// Forgets the segments before `kept`; continues with `first` where some of them were not read.
    fn forget_before(&mut self, kept: usize, first: usize) {
        if self.next < kept {
            (self.next, self.begins) = (first, true);
        }
        while self.programmes.get(1).is_some_and(|second| second.first <= kept) {
            self.programmes.pop_front();
        }
        // All others begin behind it.
        if let Some(first) = self.programmes.front_mut() {
            first.fragments.forget_before(kept);
        }
    }

    /// The programme with the period that begins with this segment.
    fn programme(&self, period: usize) -> Option<&DashProgramme> {
        self.programmes.iter().rfind(|one| one.first <= period).or(self.programmes.front())
    }

    fn init(&self, stream: usize, period: usize) -> Found<Vec<u8>> {
        let Some(programme) = self.programme(period) else { return Found::Missing };
        match programme.fragments.init(stream, period) {
            Some(init) => Found::There(init.to_vec()),
            None if programme.is_forgotten(stream, period, u64::MAX) => Found::Gone,
            None => Found::Missing,
        }
    }

    fn fragment(
        &self,
        stream: usize,
        period: usize,
        start: u64,
    ) -> Found<(FragmentSource, Arc<RecordedStreams>)> {
        let Some(programme) = self.programme(period) else { return Found::Missing };
        let source = programme.fragments.find(stream, period, start);
        match source.zip(programme.streams.clone()) {
            None if programme.is_forgotten(stream, period, start) => Found::Gone,
            found => Found::of(found),
        }
    }
}

impl DashProgramme {
    /// True for a fragment that was in it, or in a programme before it.
    fn is_forgotten(&self, stream: usize, period: usize, start: u64) -> bool {
        period < self.first || self.fragments.is_forgotten(stream, period, start)
    }
}

impl LiveDash {
    /// True when a player may have a dynamic description and ask for the next.
    pub(super) fn is_followed(&self) -> bool {
        self.state.lock().as_ref().is_some_and(|state| state.followed.elapsed() < FOLLOWED)
    }

    /// Returns the result of `find` among the fragments so far; reads the segments first if that
    /// was never done.
    async fn find<M: LiveMedia, T>(
        &self,
        media: &M,
        find: impl Fn(&DashState) -> Found<T>,
    ) -> Result<Found<T>, NoAsset> {
        if self.state.lock().is_none() {
            let alone = self.looking.clone().lock_owned().await;
            let media = media.clone();
            let look = move || {
                let _alone = alone;
                media.dash().look(&media)
            };
            blocking(look).await?;
        }
        Ok(self.state.lock().as_ref().map_or(Found::Missing, find))
    }

    /// Reads new segments; returns true when no more will follow. Only one caller at a time does:
    /// it holds `looking`. May read and wait.
    fn look<M: LiveMedia>(&self, media: &M) -> Result<bool, NoAsset> {
        let (began, settled) = (Instant::now(), media.settled());
        while let Some(ahead) = self.ahead(media) {
            let Some(segment) = ahead.segment else {
                return Ok(settled.is_over && ahead.is_complete);
            };
            // The plan is older than that of which it was cut, or the file was cut short.
            if segment.file.end > settled.bytes {
                return Ok(false);
            }
            if began.elapsed() > LOOK_MAX {
                return Err(M::NOT_YET);
            }
            if ahead.begins {
                let streams = media.streams(&segment).map_err(|error| media.fault(&error))?;
                self.state.lock().as_mut().ok_or(M::NOT_YET)?.begin(
                    media.name(),
                    streams,
                    no_streams::<M>(),
                );
                continue;
            }
            let part = match &ahead.streams {
                None => None,
                Some((streams, pids)) => {
                    let limit = match ahead.is_last {
                        true => PartLimit::Part,
                        false => PartLimit::Packet(settled.packets),
                    };
                    let of = (&segment, &pids[..]);
                    let part = streams.part(media.places(), of, limit, media);
                    let part = part.map_err(|error| media.fault(&error))?;
                    if !part.is_settled && !settled.is_over && !ahead.is_silent {
                        return Ok(false);
                    }
                    Some(part)
                }
            };
            self.add(media, part, &segment);
        }
        Ok(false)
    }

    /// Returns the next segment to be read; `None` where the segments are gone.
    fn ahead<M: LiveMedia>(&self, media: &M) -> Option<Ahead> {
        let of = |live: &LiveState| (live.segments.first_number(), live.first(), live.began());
        let (kept, first, began) = media.with(of)?;
        let (number, begins) = {
            let mut state = self.state.lock();
            let state = state.get_or_insert_with(|| DashState::new(first, began));
            state.forget_before(kept, first);
            (state.next, state.begins)
        };
        let mut ahead = media.with(|live| {
            let (segments, next) = (&live.segments, live.segments.next_number());
            let is_break = match number + 1 {
                following if following == next => segments.is_next_break(),
                following => segments.segment(following).is_some_and(|one| one.is_break),
            };
            Ahead {
                segment: segments.segment(number).cloned(),
                is_complete: segments.is_complete(),
                is_last: is_break,
                is_silent: next > number + SILENT_SEGMENTS,
                begins,
                streams: None,
            }
        })?;
        let state = self.state.lock();
        let programme = state.as_ref()?.programmes.back();
        let is_break = ahead.segment.as_ref().is_some_and(|segment| segment.is_break);
        let is_begun = programme.is_some_and(|one| one.first == number);
        ahead.begins |= is_break && !is_begun;
        ahead.streams = programme.and_then(|one| {
            let streams = one.streams.clone()?;
            let pids = one.fragments.pids(&streams);
            Some((streams, pids))
        });
        Some(ahead)
    }

    /// Adds the segment that was read, in which `part` was found.
    fn add<M: LiveMedia>(&self, media: &M, part: Option<RecordedPart>, segment: &GrowingSegment) {
        let Some((began, number)) =
            self.state.lock().as_ref().map(|state| (state.began, state.next))
        else {
            return;
        };
        let late = media.with(|live| live.late_ticks(began, number, segment.is_break));
        let mut state = self.state.lock();
        let Some(state) = state.as_mut() else { return };
        state.next += 1;
        let Some(part) = part else { return };
        state.name(media.name(), &part.left_out);
        if let Some(DashProgramme { streams: Some(streams), fragments, .. }) =
            state.programmes.back_mut()
        {
            fragments.push(streams, part, segment, late.unwrap_or(0));
        }
    }
}

/// The segment that is read next.
struct Ahead {
    segment: Option<GrowingSegment>,
    /// True when the media has no more segments than the present ones.
    is_complete: bool,
    /// True when its programme ends with it.
    is_last: bool,
    /// True when it is announced as it is: enough segments are behind it.
    is_silent: bool,
    /// True when its programme has no streams yet.
    begins: bool,
    /// The streams of its programme, and their PIDs before it; `None` where DASH carries none.
    streams: Option<(Arc<RecordedStreams>, Box<[u16]>)>,
}

/// Number in the log of a programme that is left out.
const NO_STREAM: u32 = u32::MAX;

/// Reason for media of other codecs.
fn no_streams<M: LiveMedia>() -> String {
    format!(
        "pictures and sound of the {} are none that DASH carries here (H.264, H.265, AAC, MPEG \
         audio, AC-3): play its master.m3u8",
        M::WORD
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_that_is_left_out_is_named_once() {
        let mut state = DashState::new(0, SystemTime::UNIX_EPOCH);
        let left_out = |id| LeftOut { id, reason: format!("PID {id}: scrambled") };
        let ids = |new: Vec<&LeftOut>| new.iter().map(|one| one.id).collect::<Vec<_>>();
        assert_eq!(ids(state.name("a.ts", &[left_out(5), left_out(6), left_out(5)])), [5, 6]);
        assert_eq!(ids(state.name("a.ts", &[left_out(6), left_out(7)])), [7]);
        let many: Vec<LeftOut> = (100..1000).map(left_out).collect();
        assert_eq!(state.name("a.ts", &many).len(), NAMED_MAX - 3);
    }
}
