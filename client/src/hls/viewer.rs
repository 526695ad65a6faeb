// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs one viewer: master playlist, choice of a variant, concurrent renditions, and the clock.
//!
//! [`super::play_hls`] runs one that checks every segment, [`super::load_hls`] thousands, most of
//! which check nothing.
//!
//! Sources: RFC 8216 §4.3.4 (master playlists), §6.3 (clients).
//! Does not choose among languages: the default audio of the group is fetched.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::buffer_model::BufferModel;
use super::connection::{
    BodyTarget, FetchCounts, FetchFault, FetchTimeouts, HttpConnections, Route,
};
use super::playlist::{
    FetchedMaster, FetchedMedia, FetchedPlaylist, ListedAudio, ListedResource, ListedVariant,
    PLAYLIST_BYTES_MAX, read_playlist,
};
use super::rendition::{Rendition, RenditionStats};
use super::verdict::{HlsEnd, HlsFault};
use super::{VariantChoice, ViewerSettings};
use crate::error::Error;
use crate::http_url::UrlParts;
use crate::one_line;

/// Plan of a viewer, shared by all viewers of a load.
pub(super) struct WatchPlan {
    pub(super) address: UrlParts,
    pub(super) settings: ViewerSettings,
    pub(super) start: Option<Duration>,
    pub(super) length: Option<Duration>,
    /// Fetches without waiting for the clock.
    pub(super) is_fast: bool,
    pub(super) route: Route,
    pub(super) timeouts: FetchTimeouts,
    pub(super) playlists: PlaylistCache,
    /// Bytes of segments so far, of all viewers.
    pub(super) bytes: AtomicU64,
    /// Viewers whose play has started.
    pub(super) started: AtomicU32,
}

/// Parsed playlists: viewers of a load fetch the same ones repeatedly.
#[derive(Default)]
pub(super) struct PlaylistCache {
    parsed: Mutex<HashMap<UrlParts, (Vec<u8>, FetchedPlaylist)>>,
}

impl PlaylistCache {
    fn read(&self, text: Vec<u8>, address: &UrlParts) -> Result<FetchedPlaylist, String> {
        let lock = || self.parsed.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((known, playlist)) = lock().get(address)
            && *known == text
        {
            return Ok(playlist.clone());
        }
        let playlist = read_playlist(&text, address)?;
        let mut parsed = lock();
        if parsed.len() >= CACHED_MAX {
            parsed.clear();
        }
        parsed.insert(address.clone(), (text, playlist.clone()));
        Ok(playlist)
    }
}

/// State of a viewer, readable by others while it runs.
pub(super) struct Viewer<'a> {
    pub(super) plan: &'a WatchPlan,
    /// Segments are checked; otherwise the kernel discards them.
    pub(super) is_verified: bool,
    pub(super) began: Instant,
    pub(super) counts: Arc<FetchCounts>,
    state: Mutex<ViewerState>,
    output: Mutex<io::Result<Option<OutputFile>>>,
}

/// Figures of a viewer.
#[derive(Default)]
pub(super) struct ViewerState {
    pub(super) model: Option<BufferModel>,
    pub(super) renditions: Vec<RenditionStats>,
    pub(super) variant: Option<ListedVariant>,
    pub(super) variants: usize,
    /// Renditions that are not fetched, each with the reason.
    pub(super) left_out: Vec<String>,
    pub(super) switches: u64,
    pub(super) is_live: bool,
    /// Length of all segments of a playlist with an end.
    pub(super) duration: Option<Duration>,
    pub(super) faults: Vec<HlsFault>,
    pub(super) fault_count: u64,
    pub(super) playlist_loads: u64,
    pub(super) playlist_bytes: u64,
}

/// File that is created with its first bytes: a refusal by the server must not destroy an existing
/// file.
struct OutputFile {
    path: PathBuf,
    file: Option<BufWriter<File>>,
    bytes: u64,
}

/// A media playlist with the time of its request.
pub(super) struct LoadedPlaylist {
    pub(super) media: Arc<FetchedMedia>,
    /// Address after redirections.
    pub(super) address: UrlParts,
    pub(super) asked: Instant,
}

impl<'a> Viewer<'a> {
    pub(super) fn new(
        plan: &'a WatchPlan,
        is_verified: bool,
        output: Option<PathBuf>,
    ) -> Viewer<'a> {
        let output = output.map(|path| OutputFile { path, file: None, bytes: 0 });
        Viewer {
            plan,
            is_verified,
            began: Instant::now(),
            counts: Arc::default(),
            state: Mutex::default(),
            output: Mutex::new(Ok(output)),
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, ViewerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn new_connections(&self) -> HttpConnections {
        let plan = self.plan;
        HttpConnections::new(plan.route.clone(), plan.timeouts.read, self.counts.clone())
    }

    /// Plays to the end.
    ///
    /// # Errors
    /// No segment could be requested.
    pub(super) async fn watch(&self) -> Result<HlsEnd, Error> {
        let plan = self.plan;
        let mut connections = self.new_connections();
        let began = self.began;
        let first = self.playlist(&mut connections, &plan.address).await;
        let (first, address) = first.map_err(|fault| self.refused(&plan.address, &fault))?;
        let mut master = FetchedMaster::default();
        let mut chosen = 0;
        let main = match first {
            FetchedPlaylist::Media(media) => LoadedPlaylist { media, address, asked: began },
            FetchedPlaylist::Master(read) => {
                master = read;
                chosen = plan.settings.variant.first(&master);
                let address = &master.variants[chosen].address;
                self.media(&mut connections, address).await?
            }
        };
        let variant = master.variants.get(chosen);
        let audio = variant.and_then(|variant| master.audio_of(variant)).cloned();
        let mut audio_connections = self.new_connections();
        let audio = match &audio {
            Some(address) => Some(self.media(&mut audio_connections, address).await?),
            None => None,
        };
        if audio.is_some() && self.has_output() {
            return Err(super::output_refused(&plan.address));
        }
        let is_live = !main.media.has_end;
        {
            let mut state = self.lock();
            state.variant = variant.cloned();
            state.variants = master.variants.len();
            state.left_out = variant.map(|variant| master.left_out(variant)).unwrap_or_default();
            state.is_live = is_live;
            state.duration = (!is_live).then(|| main.media.duration());
        }
        let mut main = Rendition::new(self, 0, connections, main);
        main.set_variants(master, chosen);
        let mut audio = audio.map(|playlist| Rendition::new(self, 1, audio_connections, playlist));
        let starts: Vec<_> = std::iter::once(&main).chain(&audio).map(|it| it.time).collect();
        self.lock().model = Some(BufferModel::new(began, &starts, plan.settings.prebuffer));
        let sound = async {
            match &mut audio {
                Some(audio) => audio.run().await,
                None => Ok(HlsEnd::Complete),
            }
        };
        let end = match tokio::try_join!(main.run(), sound) {
            // The main rendition has the reason; the audio ends for the same reason, or with its
            // playlist.
            Ok((end, _)) => end,
            Err(end) => return Ok(end),
        };
        if !plan.is_fast {
            self.play_out().await;
        }
        Ok(end)
    }

    /// Waits until all media is played.
    async fn play_out(&self) {
        loop {
            let left = self.with_model(|model, now| {
                model.advance(now);
                model.left()
            });
            if left.is_zero() {
                return;
            }
            tokio::time::sleep(left).await;
        }
    }

    /// Fetches and parses a playlist; returns it with its address after redirections.
    pub(super) async fn playlist(
        &self,
        connections: &mut HttpConnections,
        address: &UrlParts,
    ) -> Result<(FetchedPlaylist, UrlParts), FetchFault> {
        let mut text = Vec::new();
        let mut append = |bytes: &[u8]| text.extend_from_slice(bytes);
        let wanted = ListedResource { address: address.clone(), span: None };
        let within = self.plan.timeouts.playlist;
        let mut target = BodyTarget::Sink(&mut append);
        let fetched =
            connections.fetch(&wanted, PLAYLIST_BYTES_MAX as u64, within, &mut target).await?;
        {
            let mut state = self.lock();
            state.playlist_loads += 1;
            state.playlist_bytes += fetched.bytes;
        }
        let read = self.plan.playlists.read(text, &fetched.address);
        let read = read.map_err(|found| FetchFault { found, offset: None })?;
        Ok((read, fetched.address))
    }

    /// Fetches and parses a media playlist.
    async fn media(
        &self,
        connections: &mut HttpConnections,
        address: &UrlParts,
    ) -> Result<LoadedPlaylist, Error> {
        let loaded = self.media_playlist(connections, address).await;
        loaded.map_err(|fault| self.refused(address, &fault))
    }

    pub(super) async fn media_playlist(
        &self,
        connections: &mut HttpConnections,
        address: &UrlParts,
    ) -> Result<LoadedPlaylist, FetchFault> {
        let asked = Instant::now();
        match self.playlist(connections, address).await? {
            (FetchedPlaylist::Media(media), address) => {
                Ok(LoadedPlaylist { media, address, asked })
            }
            (FetchedPlaylist::Master(_), _) => {
                let found = "a master playlist in a master playlist (RFC 8216 §4.3.4.2)".to_owned();
                Err(FetchFault { found, offset: None })
            }
        }
    }

    pub(super) fn refused(&self, address: &UrlParts, fault: &FetchFault) -> Error {
        let path = one_line(&address.path, PATH_CHARS_SHOWN);
        Error::Peer {
            peer: format!("http {}", address.authority()),
            found: format!("GET {path}: {}", fault.found),
        }
    }

    /// Records a fault; the first ones are listed.
    pub(super) fn fault(&self, at: &ListedResource, offset: Option<u64>, found: String) {
        let span_offset = at.span.map_or(0, |span| span.offset);
        let offset = offset.map(|offset| span_offset + offset);
        let address = one_line(&at.address.to_string(), PATH_CHARS_SHOWN);
        let mut state = self.lock();
        state.fault_count += 1;
        if state.faults.len() < FAULTS_LISTED {
            state.faults.push(HlsFault { address, offset, found });
        }
    }

    /// Uses the model, which exists once the playlists are loaded.
    pub(super) fn with_model<T>(&self, act: impl FnOnce(&mut BufferModel, Instant) -> T) -> T {
        let mut state = self.lock();
        act(state.model.as_mut().expect("it is made before the renditions run"), Instant::now())
    }

    pub(super) fn has_output(&self) -> bool {
        matches!(*self.output.lock().unwrap_or_else(PoisonError::into_inner), Ok(Some(_)))
    }

    /// Writes bytes of the main rendition.
    pub(super) fn write(&self, bytes: &[u8]) {
        let mut output = self.output.lock().unwrap_or_else(PoisonError::into_inner);
        if let Ok(Some(file)) = &mut *output
            && let Err(failure) = file.write(bytes)
        {
            *output = Err(failure);
        }
    }

    pub(super) fn output_bytes(&self) -> u64 {
        let output = self.output.lock().unwrap_or_else(PoisonError::into_inner);
        output.as_ref().ok().and_then(Option::as_ref).map_or(0, |output| output.bytes)
    }

    /// Removes the written bytes of an incomplete segment from the output.
    pub(super) fn cut_output(&self, bytes: u64) {
        let mut output = self.output.lock().unwrap_or_else(PoisonError::into_inner);
        if let Ok(Some(file)) = &mut *output
            && let Err(failure) = file.cut(bytes)
        {
            *output = Err(failure);
        }
    }

    /// Closes the output; returns its length.
    pub(super) fn close_output(&self) -> io::Result<Option<u64>> {
        let mut output = self.output.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(mut output) = std::mem::replace(&mut *output, Ok(None))? else { return Ok(None) };
        if let Some(file) = &mut output.file {
            file.flush()?;
        }
        Ok(Some(output.bytes))
    }

    pub(super) fn count_started(&self) {
        self.plan.started.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count_bytes(&self, bytes: u64) {
        self.plan.bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}

impl OutputFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            None => {
                let file = File::create(&self.path)?;
                self.file.insert(BufWriter::with_capacity(OUTPUT_BUFFER_BYTES, file))
            }
        };
        self.bytes += bytes.len() as u64;
        file.write_all(bytes)
    }

    fn cut(&mut self, bytes: u64) -> io::Result<()> {
        let Some(file) = self.file.as_mut().filter(|_| bytes < self.bytes) else { return Ok(()) };
        file.seek(SeekFrom::Start(bytes))?;
        file.get_ref().set_len(bytes)?;
        self.bytes = bytes;
        Ok(())
    }
}

impl FetchedMaster {
    /// Address of the audio that is fetched separately from a variant's own segments.
    pub(super) fn audio_of(&self, variant: &ListedVariant) -> Option<&UrlParts> {
        let group = variant.audio_group.as_ref()?;
        let mut of_group = self.audio.iter().filter(|audio| audio.group == *group);
        let first = of_group.clone().next()?;
        let chosen = of_group.find(|audio| audio.is_default).unwrap_or(first);
        // For an audio-only variant this is the variant itself, which is not fetched twice.
        chosen.address.as_ref().filter(|address| **address != variant.address)
    }

    /// Renditions that are not fetched with a variant, each once, with the reason.
    fn left_out(&self, variant: &ListedVariant) -> Vec<String> {
        let chosen = self.audio_of(variant);
        let is_played = |audio: &&ListedAudio| {
            audio.address.as_ref().is_none_or(|own| Some(own) == chosen || *own == variant.address)
        };
        let played: Vec<&String> =
            self.audio.iter().filter(is_played).map(|audio| &audio.label).collect();
        let others = self.audio.iter().map(|audio| &audio.label);
        let others = others.filter(|label| !played.contains(label));
        let others = others.map(|label| (label, "another audio rendition is played"));
        let beside = self.beside.iter();
        let beside = beside.map(|label| (label, "only a variant and its audio are fetched"));
        let mut named = HashSet::new();
        let left_out = others.chain(beside).filter(|one| named.insert(*one));
        left_out.map(|(label, why)| format!("{label}: {why}")).collect()
    }
}

impl VariantChoice {
    /// Initial variant.
    pub(super) fn first(self, master: &FetchedMaster) -> usize {
        match self {
            // RFC 8216 §6.2.4 does not specify it; players begin with the first, as Apple advises.
            VariantChoice::Auto => 0,
            other => other.best(master, u64::MAX, |_| true),
        }
    }

    /// Index of the variant with the highest bandwidth that fits, otherwise of the lowest one.
    pub(super) fn best(
        self,
        master: &FetchedMaster,
        bits_per_second: u64,
        is_allowed: impl Fn(&ListedVariant) -> bool,
    ) -> usize {
        let limit = match self {
            VariantChoice::Auto => bits_per_second,
            VariantChoice::Highest => u64::MAX,
            VariantChoice::Lowest => 0,
            VariantChoice::UpTo(bits) => bits,
        };
        let all = || {
            let variants = master.variants.iter().enumerate();
            variants.filter(|(_, variant)| is_allowed(variant))
        };
        let fitting = all().filter(|(_, variant)| variant.bandwidth <= limit);
        let best = fitting.rev().max_by_key(|(_, variant)| variant.bandwidth);
        let lowest = || all().min_by_key(|(_, variant)| variant.bandwidth);
        best.or_else(lowest).map_or(0, |(index, _)| index)
    }
}

const CACHED_MAX: usize = 16;
const FAULTS_LISTED: usize = 20;
const PATH_CHARS_SHOWN: usize = 200;
const OUTPUT_BUFFER_BYTES: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_variant_that_fits_is_chosen() {
        let variant = |bandwidth, group: &str| ListedVariant {
            address: UrlParts::parse("http://h/v.m3u8").unwrap(),
            bandwidth,
            average_bandwidth: None,
            codecs: None,
            resolution: None,
            audio_group: Some(group.to_owned()),
        };
        let variants = vec![variant(500, "a"), variant(3000, "a"), variant(9000, "b")];
        let master = FetchedMaster { variants, ..FetchedMaster::default() };
        let first = |choice: VariantChoice| choice.first(&master);
        assert_eq!(first(VariantChoice::Auto), 0);
        assert_eq!(first(VariantChoice::Highest), 2);
        assert_eq!(first(VariantChoice::Lowest), 0);
        assert_eq!(first(VariantChoice::UpTo(3000)), 1);
        assert_eq!(first(VariantChoice::UpTo(1)), 0);
        let auto = |bits| {
            let is_allowed = |variant: &ListedVariant| variant.audio_group.as_deref() == Some("a");
            VariantChoice::Auto.best(&master, bits, is_allowed)
        };
        assert_eq!([100, 2999, 3000, 10_000].map(auto), [0, 0, 1, 1]);
    }
}
