// SPDX-License-Identifier: MIT OR Apache-2.0
//! Surveys the first bytes of a plan's file: tracks of the programme that is followed, names of
//! their codecs, and streams that are not sent as tracks.
//!
//! The maps of a programme may name streams that no client receives as a track, and only the
//! headers of a stream contain the parameters of its codec, so a plan has neither by itself.
//!
//! Does not read the file: the bytes are an argument.

use super::PacketPlan;
use crate::TS_PACKET_BYTES;
use crate::tracks::LeftOut;
use crate::ts::{ElementaryDemuxer, Programme, Survey, Track, codecs};

impl PacketPlan {
    /// Searches for the names of the streams' codecs, and for streams without a track, in some
    /// bytes of the file from the first extent on.
    pub fn name_codecs(&mut self, beginning: &[u8]) {
        let programmes = self.programmes(beginning);
        self.unsent = LeftOut::summary(&ElementaryDemuxer::unsent(self, &programmes));
        self.codecs = codecs(&self.followed(programmes)).ok();
    }

    /// Returns the tracks of the programme that is followed, as the bytes of the file from the
    /// first extent on, some of them, show them.
    pub fn surveyed(&self, beginning: &[u8]) -> Vec<Track> {
        self.followed(self.programmes(beginning))
    }

    fn programmes(&self, beginning: &[u8]) -> Vec<Programme> {
        let mut survey = Survey::default();
        for bytes in beginning.chunks(self.stride as usize) {
            bytes.get(..TS_PACKET_BYTES).into_iter().for_each(|packet| survey.feed(packet));
        }
        survey.finish()
    }

    /// Tracks of the one of several programmes that is followed.
    fn followed(&self, programmes: Vec<Programme>) -> Vec<Track> {
        let is_followed = |track: &Track| self.streams.iter().any(|one| one.pid == track.pid);
        let tracks = programmes.into_iter().flat_map(|programme| programme.tracks);
        tracks.filter(is_followed).collect()
    }
}
