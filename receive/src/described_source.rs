// SPDX-License-Identifier: MIT OR Apache-2.0
//! Recording of the tracks of a session description (SDP) file.
//!
//! The tracks are received until the recording ends. When the senders send BYE or fall silent, the
//! ports are bound anew: the next sender may be a different one. A description that cannot be used
//! ends the stream; that of a camera that is recorded for long is tried again each minute.
//!
//! Sources: RFC 8866; RFC 3550 §6.6, §8.
//! Does not read media (`client::DescribedTracks` does).

use std::convert::Infallible;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Sender;
use std::time::Duration;

use client::rtp_receiver::ArrivalClock;
use client::{DescribedOptions, DescribedTracks, RecordedMedia, TrackContainer};
use tokio::sync::watch;
use tokio::time::sleep;
use wire::mp2t::PAYLOAD_TYPE;

use crate::receiving_thread::{PortCommand, lock, note_tracks};
use crate::recorded_stream::{AnnouncedSession, RecordedStream};
use crate::recording::StreamState;

/// A session description file, and the stream that its tracks are recorded as.
pub(crate) struct DescribedSource<'a> {
    pub(crate) path: &'a Path,
    pub(crate) key: u32,
    pub(crate) stream: &'a Mutex<RecordedStream>,
    pub(crate) shared: &'a StreamState,
    pub(crate) receiver: Sender<PortCommand>,
    pub(crate) clock: ArrivalClock,
    pub(crate) reports: bool,
    pub(crate) container: TrackContainer,
    pub(crate) media: RecordedMedia,
    /// True if the description is tried again after a fault.
    pub(crate) is_endless: bool,
}

impl DescribedSource<'_> {
    /// Receives until the recording is stopped or the description proves unusable. Drops `listens`
    /// when the ports are bound.
    pub(crate) async fn run(
        &self,
        mut stopped: watch::Receiver<bool>,
        listens: Option<Sender<Infallible>>,
    ) {
        let (mut begun, mut listens) = (None, listens);
        loop {
            // The clock of the source counts from its first start and continues across all senders.
            let now = self.clock.now();
            let at = now - *begun.get_or_insert(now);
            let tracks = match self.start(at) {
                Ok(tracks) => tracks,
                Err(why) if self.is_endless => {
                    drop(listens.take());
                    let seconds = FAULT_WAIT.as_secs();
                    tracing::warn!("{why}; trying again in {seconds} s");
                    *lock(&self.shared.trouble) = Some(why);
                    tokio::select! {
                        () = sleep(FAULT_WAIT) => continue,
                        _ = stopped.changed() => return,
                    }
                }
                Err(why) => {
                    tracing::error!("{why}");
                    *lock(&self.shared.refusal) = Some(why);
                    self.shared.is_over.store(true, Ordering::Relaxed);
                    return;
                }
            };
            drop(listens.take());
            let name = self.path.display().to_string();
            let note = |news| note_tracks((self.stream, &name), news, self.clock.now());
            let counting = async {
                loop {
                    sleep(COUNT_EVERY).await;
                    note(tracks.news());
                }
            };
            let why = tokio::select! {
                () = counting => None,
                why = tracks.ended(SILENCE_MAX) => Some(why),
                // An error means that the recording was dropped.
                _ = stopped.changed() => None,
            };
            note(tracks.finish(why.is_none()).await);
            lock(self.stream).end_tracks();
            // The receiving thread needs time to empty the queue of the last packets.
            sleep(SETTLE).await;
            let _ = self.receiver.send(PortCommand::Remove { key: self.key });
            let Some(why) = why else { return };
            tracing::warn!("{}: {why}; listening for another sender", self.path.display());
            *lock(&self.shared.trouble) = Some(why);
        }
    }

    fn start(&self, at: Duration) -> Result<DescribedTracks, String> {
        let name = self.path.display().to_string();
        let text = read_bounded(self.path).map_err(|error| format!("{name}: {error}"))?;
        let options = DescribedOptions {
            at,
            container: self.container.clone(),
            media: self.media,
            reports: self.reports,
        };
        let started = DescribedTracks::start(&text, &name, options);
        let (tracks, frames) = started.map_err(|error| error.to_string())?;
        for reason in &tracks.left_out {
            tracing::warn!("{name}: left out: {reason}");
        }
        lock(&self.shared.tracks).clone_from(&tracks.recorded);
        lock(self.stream).announce(AnnouncedSession {
            host: tracks.address.ip().to_canonical(),
            port: Some(tracks.address.port()),
            payload_type: PAYLOAD_TYPE,
            ssrc: Some(tracks.ssrc()),
            is_resumed: false,
        });
        self.shared.sessions.fetch_add(1, Ordering::Relaxed);
        let added = self.receiver.send(PortCommand::AddFrames { key: self.key, frames });
        added.map_err(|_| "the receiving thread has ended".to_owned())?;
        let mut stream = lock(self.stream);
        stream.admit_held();
        Ok(tracks)
    }
}

/// Reads at most [`SDP_BYTES_MAX`] bytes of a description.
fn read_bounded(path: &Path) -> std::io::Result<Vec<u8>> {
    use std::io::Read;
    let mut text = Vec::new();
    std::fs::File::open(path)?.take(SDP_BYTES_MAX).read_to_end(&mut text)?;
    Ok(text)
}

/// Silence after which the senders count as ended.
const SILENCE_MAX: Duration = Duration::from_secs(10);
/// Time until a description with a fault is tried again.
const FAULT_WAIT: Duration = Duration::from_secs(60);
const SETTLE: Duration = Duration::from_millis(200);
/// Interval between updates of the displayed track counts.
const COUNT_EVERY: Duration = Duration::from_millis(500);
const SDP_BYTES_MAX: u64 = 64 << 10;
