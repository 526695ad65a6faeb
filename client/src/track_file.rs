// SPDX-License-Identifier: MIT OR Apache-2.0
//! The output file of played tracks: fragmented MP4 or a transport stream.
//!
//! A thread removes units from the queue of the receiving threads, and writes them. A failure ends
//! the play; its reason is known when the file is finished.
//!
//! Does not wait until the bytes are on the disk (fsync).

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use tokio::sync::oneshot;

use super::file_writer::create;
use super::output_end::OutputEnd;
use super::track_muxer::{MuxCounts, TrackMuxer, TrackOrigin};
use super::track_queue::{Ended, TrackQueue};
use crate::error::Error;

/// A file being written.
pub(super) struct TrackFile {
    origins: Sender<Vec<Option<TrackOrigin>>>,
    rates: Vec<u32>,
    is_broken: Arc<AtomicBool>,
    result: oneshot::Receiver<Result<WrittenTracks, Error>>,
}

/// Result of writing a file.
#[derive(Debug)]
pub(super) struct WrittenTracks {
    pub(super) bytes: u64,
    /// Units left out because the disk was too slow, or because the file format cannot hold them.
    pub(super) left_out_units: u64,
    pub(super) faults: Vec<String>,
}

impl TrackFile {
    /// Creates the file of a muxer, or empties an existing one. `rates` are the RTP clock rates of
    /// the tracks.
    pub(super) fn create(
        path: &Path,
        muxer: TrackMuxer,
        mut queue: TrackQueue,
        rates: Vec<u32>,
        end: &OutputEnd,
    ) -> Result<TrackFile, Error> {
        let file = create(path)?;
        let (origins, inbox) = channel();
        let (done, result) = oneshot::channel();
        let is_broken = Arc::new(AtomicBool::new(false));
        let writing = Writing { path: path.to_owned(), file, muxer, bytes: 0, end: end.clone() };
        let broken = is_broken.clone();
        std::thread::Builder::new()
            .name("output".to_owned())
            .spawn(move || {
                let written = writing.run(&mut queue, &inbox);
                broken.store(written.is_err(), Ordering::Relaxed);
                // The handle is gone where the play was given up.
                let _ = done.send(written);
            })
            .map_err(|source| Error::Host {
                call: "clone",
                object: "thread output".into(),
                source,
            })?;
        Ok(TrackFile { origins, rates, is_broken, result })
    }

    /// Passes on the RTP timestamps at which the tracks start, as far as the server has announced
    /// them.
    pub(super) fn begin_at(&self, timestamps: Vec<Option<u32>>) {
        let origin = |(timestamp, &clock_rate_hz): (Option<u32>, &u32)| {
            Some(TrackOrigin { timestamp: timestamp?, clock_rate_hz })
        };
        let _ = self.origins.send(timestamps.into_iter().zip(&self.rates).map(origin).collect());
    }

    /// True once the file can no longer be written.
    pub(super) fn is_broken(&self) -> bool {
        self.is_broken.load(Ordering::Relaxed)
    }

    /// Waits for the end of the queue and for the last bytes.
    pub(super) async fn finish(self) -> Result<WrittenTracks, Error> {
        drop(self.origins);
        self.result.await.unwrap_or_else(|_| {
            let source = std::io::Error::other("the thread panicked");
            Err(Error::Host { call: "write", object: "output".into(), source })
        })
    }
}

struct Writing {
    path: PathBuf,
    file: File,
    muxer: TrackMuxer,
    bytes: u64,
    end: OutputEnd,
}

impl Writing {
    fn run(
        mut self,
        queue: &mut TrackQueue,
        origins: &Receiver<Vec<Option<TrackOrigin>>>,
    ) -> Result<WrittenTracks, Error> {
        // Packets are held until PLAY is answered, so the answer arrives before them.
        if let Ok(origins) = origins.recv() {
            self.muxer.begin_at(&origins, Duration::ZERO);
        }
        let mut out = Vec::new();
        loop {
            if self.end.is_given_up() {
                queue.control.close();
            }
            match queue.next(CHECK_EVERY) {
                Ok(Some((track, event))) => self.muxer.take(track, event, &mut out),
                Ok(None) => self.muxer.check_time(&mut out),
                Err(Ended) => break,
            }
            self.write(&mut out)?;
        }
        let Writing { path, mut file, muxer, mut bytes, .. } = self;
        let MuxCounts { left_out_units, faults, .. } = muxer.finish(&mut out);
        file.write_all(&out).map_err(|source| Error::on_file("write", &path, source))?;
        bytes += out.len() as u64;
        let left_out_units = left_out_units + queue.control.dropped_units();
        Ok(WrittenTracks { bytes, left_out_units, faults })
    }

    fn write(&mut self, out: &mut Vec<u8>) -> Result<(), Error> {
        if out.is_empty() {
            return Ok(());
        }
        self.file.write_all(out).map_err(|source| Error::on_file("write", &self.path, source))?;
        self.bytes += out.len() as u64;
        out.clear();
        Ok(())
    }
}

const CHECK_EVERY: Duration = Duration::from_millis(250);

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use clock::Clock;
    use media::mux::WriterKind;
    use media::{AccessUnit, Codec};

    use super::*;

    #[tokio::test]
    async fn units_that_wait_are_left_out_and_counted_where_nobody_waits_for_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.ts");
        let (mut sinks, queue) = TrackQueue::new(1, &Clock::HOST);
        sinks[0].announce(Codec::Ac3 { rate_hz: 48_000, channels: 2 });
        for number in 0..100 {
            let (time, bytes) = (number * 1536, vec![0x0b, 0x77, 0, 0, 0x1c]);
            let unit = AccessUnit { time, bytes, is_start: true, is_after_loss: false };
            sinks[0].push(unit, Instant::now());
        }
        let muxer = TrackMuxer::new(WriterKind::TransportStream, 1, &Clock::HOST);
        let end = OutputEnd::default();
        let file = TrackFile::create(&path, muxer, queue, vec![48_000], &end).unwrap();
        // The thread waits for the answer to PLAY.
        end.give_up();
        drop(sinks);
        assert_eq!(file.finish().await.unwrap().left_out_units, 100);
    }
}
