// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rate at which a file is consumed when it is played.
//!
//! The rate of a playable asset is its length over its duration; that of a segment is its length
//! over the durations that its playlist gives, so that a quiet scene has its own rate. A recording
//! that is still written has a rate once a summary is known. Other files have none.
//!
//! Costs a look-up in the names' tree, and one in the playlists' table for a file without summary.
//!
//! Sources: RFC 8216 §4.3.2.1 (EXTINF).

use super::{Library, LibraryEntry, State};

impl Library {
    /// Returns the rate, bytes a second, of the file of this name, which has `bytes`, or as many as
    /// the library has noted; `None` when it is not played, or its rate is unknown.
    pub(crate) fn media_rate(&self, name: &str, bytes: Option<u64>) -> Option<u64> {
        {
            let entries = self.entries.read();
            let entry = entries.get(name)?;
            if let LibraryEntry { state: State::Ready(summary), is_live, .. } = entry {
                let mean = bytes.unwrap_or(entry.bytes) as f64 / summary.duration_s;
                // The duration of a recording is older than its length.
                let is_known = !is_live && summary.duration_s > 0.0;
                let rate = if is_known { mean as u64 } else { summary.bits_per_second / 8 };
                return Some(rate).filter(|&rate| rate > 0);
            }
        }
        let bytes = bytes?;
        let milliseconds = self.playlists.read().milliseconds(name)?;
        Some(u64::try_from(u128::from(bytes) * 1000 / u128::from(milliseconds)).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::sync::Arc;
    use std::time::SystemTime;

    use media::PlanStore;

    use super::*;
    use crate::library::served_folder::Folder;
    use crate::library::summary::StreamSummary;

    fn summary(duration_s: f64) -> State {
        State::Ready(Arc::new(StreamSummary {
            duration_s,
            bits_per_second: 8000,
            packets: None,
            entries: 1,
            codecs: None,
            streams: Vec::new(),
            tracks: Vec::new(),
            left_out: Vec::new(),
            elementary_left_out: Vec::new(),
            warnings: Vec::new(),
            sync_losses: 0,
            has_segments: true,
        }))
    }

    #[test]
    fn rates_are_those_of_assets_and_of_segments() {
        let place = tempfile::tempdir().unwrap();
        let folder = Arc::new(Folder::open(place.path()).unwrap());
        let library = Library::new(folder, PlanStore::open(Some(place.path().join("cache"))));
        let list = place.path().join("m.m3u8");
        fs::write(&list, "#EXTM3U\n#EXTINF:4,\n0.ts\n#EXT-X-MAP:URI=\"init.mp4\"\n").unwrap();
        library.look_at_playlist("m.m3u8", &File::open(list).unwrap());
        let files = [
            ("film.mp4", summary(10.0), false),
            ("live.ts", summary(10.0), true),
            ("still.mp4", summary(0.0), false),
            ("0.ts", State::Download, false),
            ("init.mp4", State::Download, false),
            ("poster.jpg", State::Download, false),
            ("unread.ts", State::Waiting, false),
        ];
        for (name, state, is_live) in files {
            let modified = SystemTime::UNIX_EPOCH;
            let entry = LibraryEntry { bytes: 1, modified, state, is_live };
            library.entries.write().insert(name.to_owned(), entry);
        }
        let rates = [
            ("film.mp4", Some(200_000)),
            ("live.ts", Some(1000)),
            ("still.mp4", Some(1000)),
            ("0.ts", Some(500_000)),
            ("init.mp4", None),
            ("poster.jpg", None),
            ("unread.ts", None),
            ("absent.ts", None),
        ];
        for (name, rate) in rates {
            assert_eq!(library.media_rate(name, Some(2_000_000)), rate, "{name}");
        }
        assert_eq!(library.media_rate("film.mp4", Some(3)), None, "less than a byte a second");
        let noted = LibraryEntry { bytes: 5000, ..library.entries.read()["film.mp4"].clone() };
        library.entries.write().insert("film.mp4".to_owned(), noted);
        assert_eq!(library.media_rate("film.mp4", None), Some(500), "a part of the file");
        assert_eq!(library.media_rate("0.ts", None), None);
    }
}
