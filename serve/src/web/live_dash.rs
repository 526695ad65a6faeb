// SPDX-License-Identifier: MIT OR Apache-2.0
//! live_dash: a recording as MPEG-DASH while it is written.
//!
//! Its segments are those of HLS, each stream of them by itself, as fragments of MP4
//! ([`media::GrowingFragments`]). What is new is looked at when the description is asked for; the
//! first request looks at all that is listed, which takes a while where hours were recorded: until
//! then players are told to come again. A segment is announced when what its samples lie in is
//! settled: the next unit of each stream has begun, or two more segments are whole.
//!
//! Costs a look: a read of each new segment, 1 ms for 2 s of 5 Mb/s; a fragment 3 ms of a core, for
//! all viewers ([`super::segment_copies`]). Seen with dash.js in Chromium: 7 s behind the source
//! (`pagewire/tests/web/live_dash.rs`).
//!
//! Sources: ISO/IEC 23009-1 §5.4 (updates of a description).
//! Does not write descriptions ([`super::live_manifest`]).

use std::collections::HashSet;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use media::cmaf::SegmentParts;
use media::tracks::LeftOut;
use media::{GrowingFragments, GrowingSegments, RecordedStreams, TS_PACKET_BYTES};
use wire::http::{Entity, Request, Response, error};

use super::address::{WebAddress, WebItem};
use super::answers::{gone, kind, made, of_text, refused};
use super::live::LiveAsset;
use super::live_manifest::{self, Described};
use super::live_playlist::LISTED_MAX;
use super::web_asset::OpenBytes;
use super::web_assets::WebAssets;
use crate::http::open_files::OpenFile;
use crate::library::NoAsset;
use crate::library::asset::Asset;

/// Time for which one request looks at segments.
const LOOK_MAX: Duration = Duration::from_secs(2);

/// Whole segments behind one whose streams have nothing new: it is announced as it is.
const SILENT_SEGMENTS: usize = 2;

/// Time from the last dynamic description on for which the address of the file's own answers with
/// that of the recording: some players do not go on at the address that it names.
const FOLLOWED: Duration = Duration::from_secs(30);

/// Streams of a recording that are named as left out: maps may name new ones for days.
const NAMED_MAX: usize = 64;

/// Longest fragment, which players hold in memory.
const FRAGMENT_BYTES_MAX: u64 = 256 << 20;
const TOO_LONG: &str = "the segment has more than 256 MiB";

/// The fragments of a recording, from the first request for them on.
#[derive(Default)]
pub(super) struct LiveDash {
    streams: OnceLock<Option<RecordedStreams>>,
    /// Held while new segments are looked at: those who wait for it hold no thread.
    looking: Arc<tokio::sync::Mutex<()>>,
    state: Mutex<Option<DashState>>,
}

struct DashState {
    fragments: GrowingFragments,
    text: Option<DashText>,
    /// Streams that were named in the log as left out.
    named: HashSet<u32>,
    /// Time of the last dynamic description.
    followed: Instant,
}

/// A description but its end.
struct DashText {
    segments: usize,
    is_complete: bool,
    text: String,
}

/// A recording and its content as they are now.
#[derive(Clone)]
pub(super) struct RecordingNow {
    pub(super) live: Arc<LiveAsset>,
    pub(super) asset: Arc<Asset>,
    pub(super) file: Arc<OpenFile>,
}

/// Returns the answer with an item of a recording's DASH, and the file that has its bytes.
pub(super) async fn answer(
    request: &Request,
    address: &WebAddress<'_>,
    recording: RecordingNow,
    web: &WebAssets,
    now: SystemTime,
) -> (Response, Arc<OpenFile>) {
    let RecordingNow { live, file, .. } = recording.clone();
    let is_other = address.identity.is_some_and(|asked| asked != live.identity());
    if is_other || !live.is_of(&file) {
        return (gone(request, now), file);
    }
    let item = &address.item;
    let found = match item {
        WebItem::LiveFragment(stream, period, start) => {
            let at = (*stream, *period, *start);
            let copy = fragment(&recording, (address.file, item), at, web).await;
            copy.map(|copy| {
                let copy = copy?;
                let whole = 0..copy.entity().bytes;
                Some((SegmentParts { head: Vec::new(), ranges: vec![whole] }, copy))
            })
        }
        WebItem::LiveInit(stream, period) => {
            let init = |all: &GrowingFragments| Some(all.init(*stream, *period)?.to_vec());
            let init = live.dash.find(&recording, init).await;
            init.map(|init| Some((of_text(init?), file.clone())))
        }
        _ => {
            let alone = live.dash.looking.clone().lock_owned().await;
            let recording = recording.clone();
            let text = blocking(move || {
                let _alone = alone;
                text(&recording, now)
            });
            text.await.map(|text| Some((of_text(text.into_bytes()), file.clone())))
        }
    };
    let (parts, source) = match found {
        Ok(Some(found)) => found,
        Ok(None) => {
            let what = "the recording has no such segment, or none yet";
            return (error(request, 404, what, now), file);
        }
        Err(NoAsset::Changing { .. }) if is_cut_short(&live, &file) => {
            let what = "the recording was cut short; load manifest.mpd again";
            return (error(request, 410, what, now), file);
        }
        Err(reason) => return (refused(request, &reason, now), file),
    };
    let text = crc32fast::hash(&parts.head);
    let etag = format!("\"{}/{item}-{text:x}\"", live.identity());
    let entity =
        Entity { bytes: parts.bytes(), etag: &etag, content_type: kind(item), ..file.entity() };
    (made(request, &entity, parts, item, now), source)
}

/// True when the file has less than what was cut of it.
fn is_cut_short(live: &LiveAsset, file: &OpenFile) -> bool {
    live.state().segments.next_byte() > file.entity().bytes
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, NoAsset> + Send + 'static,
) -> Result<T, NoAsset> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|panic| Err(NoAsset::Unreadable(panic.to_string())))
}

/// Returns the description. May read and wait.
fn text(recording: &RecordingNow, now: SystemTime) -> Result<String, NoAsset> {
    let live = &*recording.live;
    let is_complete = live.dash.look(recording)?;
    let mut state = live.dash.lock();
    let DashState { fragments, text, followed, .. } = state.as_mut().expect("it was looked at");
    if !is_complete {
        *followed = Instant::now();
    }
    let segments = fragments.next();
    let is_newest = |text: &DashText| (text.segments, text.is_complete) == (segments, is_complete);
    if !text.as_ref().is_some_and(is_newest) {
        // One guard at a time: it is the lock of all that ask for the recording.
        let (began, target_s) = {
            let state = live.state();
            (state.began(), state.segments.target_s())
        };
        let described = Described {
            fragments,
            listed: segments.saturating_sub(LISTED_MAX)..segments,
            began,
            target_s,
            is_complete,
            identity: live.identity(),
        };
        let made = live_manifest::text(&described, now).ok_or(NoAsset::CHANGING)?;
        *text = Some(DashText { segments, is_complete, text: made });
    }
    let text = text.as_ref().map_or("", |text| &text.text);
    Ok([text, &live_manifest::end(now)].concat())
}

/// Returns a fragment; `None` where there is none, or none yet.
async fn fragment(
    recording: &RecordingNow,
    (name, item): (&str, &WebItem),
    (stream, period, start): (usize, usize, u64),
    web: &WebAssets,
) -> Result<Option<Arc<OpenFile>>, NoAsset> {
    let RecordingNow { live, file, .. } = recording;
    let found = live.dash.find(recording, |all| all.find(stream, period, start)).await?;
    let Some(source) = found else { return Ok(None) };
    let Some(segment) = live.segment(source.fragment().segment) else { return Ok(None) };
    if segment.file.end > file.entity().bytes {
        return Err(NoAsset::CHANGING);
    }
    let bytes = source.fragment().bytes;
    if bytes > FRAGMENT_BYTES_MAX {
        return Err(NoAsset::Refused(TOO_LONG.to_owned()));
    }
    let address = format!("{name}/~{}/{item}", live.identity());
    let from = recording.clone();
    let make = move || {
        let RecordingNow { live, asset, file } = &from;
        let streams = live.dash.streams().expect("they have fragments");
        let made = source.make(streams, &asset.plan, &segment, &OpenBytes(file))?;
        Ok(vec![made.head, made.media])
    };
    web.copies.get((address, bytes), make).await.map(Some)
}

impl DashState {
    /// Names streams of a recording of this name that are left out, each once; returns those that
    /// were not named before.
    fn name<'a>(&mut self, recording: &str, left_out: &'a [LeftOut]) -> Vec<&'a LeftOut> {
        let new = |one: &&LeftOut| self.named.len() < NAMED_MAX && self.named.insert(one.id);
        let new: Vec<&LeftOut> = left_out.iter().filter(new).collect();
        for LeftOut { reason, .. } in &new {
            tracing::warn!("{recording}: left out of manifest.mpd: {reason}");
        }
        new
    }
}

impl LiveDash {
    fn lock(&self) -> MutexGuard<'_, Option<DashState>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn streams(&self) -> Option<&RecordedStreams> {
        self.streams.get()?.as_ref()
    }

    /// True when a player may have a dynamic description and ask for the next.
    pub(super) fn is_followed(&self) -> bool {
        self.lock().as_ref().is_some_and(|state| state.followed.elapsed() < FOLLOWED)
    }

    /// Returns what `find` finds among the fragments so far; those of a recording that was not
    /// asked for yet are looked for.
    async fn find<T>(
        &self,
        recording: &RecordingNow,
        find: impl Fn(&GrowingFragments) -> Option<T>,
    ) -> Result<Option<T>, NoAsset> {
        if self.lock().is_none() {
            let alone = self.looking.clone().lock_owned().await;
            let recording = recording.clone();
            let look = move || {
                let _alone = alone;
                recording.live.dash.look(&recording)
            };
            blocking(look).await?;
        }
        Ok(self.lock().as_ref().and_then(|state| find(&state.fragments)))
    }

    /// Looks at new segments; returns true when no more will come. One at a time does: the caller
    /// holds `looking`. May read and wait.
    fn look(&self, recording: &RecordingNow) -> Result<bool, NoAsset> {
        let RecordingNow { live, asset, file } = recording;
        let unreadable = |error: io::Error| NoAsset::Unreadable(error.to_string());
        let began = Instant::now();
        let plan = &asset.plan;
        if self.streams.get().is_none() {
            let found = RecordedStreams::find(plan, &OpenBytes(file)).map_err(unreadable)?;
            let _ = self.streams.set(found);
        }
        let no_streams = || NoAsset::Refused(NO_STREAMS.to_owned());
        let streams = self.streams().ok_or_else(no_streams)?;
        let is_over = !asset.is_growing();
        let limit = GrowingSegments::settled_packets(plan, is_over);
        let reads_to = plan.byte_of(limit).min(file.entity().bytes);
        // Packets that the file has whole.
        let last = (reads_to + 1).saturating_sub(TS_PACKET_BYTES as u64);
        let limit = limit.min(plan.ts_packets_before_byte(last));
        loop {
            let (number, pids) = {
                let mut state = self.lock();
                let state = state.get_or_insert_with(|| {
                    let first = live.segments().saturating_sub(LISTED_MAX);
                    let fragments = GrowingFragments::new(streams.len(), first);
                    let named = HashSet::new();
                    let mut state = DashState { fragments, text: None, named, followed: began };
                    state.name(&asset.name, streams.left_out());
                    state
                });
                (state.fragments.next(), state.fragments.pids(streams))
            };
            let Some(segment) = live.segment(number) else {
                return Ok(is_over && live.state().segments.is_complete());
            };
            // The plan is older than that of which it was cut, or the file was cut short.
            if segment.file.end > reads_to {
                return Ok(false);
            }
            if began.elapsed() > LOOK_MAX {
                return Err(NoAsset::CHANGING);
            }
            let part = streams.part(plan, (&segment, &pids), limit, &OpenBytes(file));
            let part = part.map_err(unreadable)?;
            if !part.is_settled && !is_over && live.segments() <= number + SILENT_SEGMENTS {
                return Ok(false);
            }
            let late = live.state().late_ticks(number, segment.is_break);
            let mut state = self.lock();
            let state = state.as_mut().expect("it was made above");
            state.name(&asset.name, &part.left_out);
            state.fragments.push(streams, part, &segment, late);
        }
    }
}

/// Reason for recordings of other codecs.
const NO_STREAMS: &str = "pictures and sound of the recording are none that DASH carries here \
    (H.264, H.265, AAC, MPEG audio, AC-3): play its master.m3u8";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_that_is_left_out_is_named_once() {
        let (fragments, named) = (GrowingFragments::new(1, 0), HashSet::new());
        let mut state = DashState { fragments, text: None, named, followed: Instant::now() };
        let left_out = |id| LeftOut { id, reason: format!("PID {id}: scrambled") };
        let ids = |new: Vec<&LeftOut>| new.iter().map(|one| one.id).collect::<Vec<_>>();
        assert_eq!(ids(state.name("a.ts", &[left_out(5), left_out(6), left_out(5)])), [5, 6]);
        assert_eq!(ids(state.name("a.ts", &[left_out(6), left_out(7)])), [7]);
        let many: Vec<LeftOut> = (100..1000).map(left_out).collect();
        assert_eq!(state.name("a.ts", &many).len(), NAMED_MAX - 3);
    }
}
