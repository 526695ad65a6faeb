// SPDX-License-Identifier: MIT OR Apache-2.0
//! Figures of a recording: one row per stream, redrawn in place, on a terminal; one line for all
//! streams elsewhere; and the final report.
//!
//! Does not scroll: `indicatif` leaves out rows that do not fit the terminal.

use std::fmt::Write as _;

use ::receive::{StreamFigures, StreamOptions, StreamOutputFiles, Summary};
use client::counted;
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use crate::escape::Escaped;

/// Rows in place on a terminal.
pub(super) struct Live {
    rows: Vec<ProgressBar>,
    all: MultiProgress,
}

impl Live {
    pub(super) fn new() -> Live {
        Live { rows: Vec::new(), all: MultiProgress::new() }
    }

    pub(super) fn show(&mut self, before: &Summary, now: &Summary) {
        let style = || ProgressStyle::with_template("{msg}").expect("a constant");
        while self.rows.len() < now.streams.len() + 2 {
            self.rows.push(self.all.add(ProgressBar::new_spinner().with_style(style())));
        }
        self.rows[0].set_message(line(before, now));
        self.rows[1].set_message(HEAD);
        let pairs = before.streams.iter().zip(&now.streams);
        let seconds = now.seconds - before.seconds;
        for (shown, (before, stream)) in self.rows[2..].iter().zip(pairs) {
            shown.set_message(Escaped(row(before, stream, seconds)).to_string());
        }
    }

    pub(super) fn clear(self) {
        // A closed terminal needs no clearing.
        let _ = self.all.clear();
    }
}

/// Formats the figures of all streams as one line.
pub(super) fn line(before: &Summary, now: &Summary) -> String {
    let sum = |of: fn(&StreamFigures) -> u64| now.streams.iter().map(of).sum::<u64>();
    let rate = |of: fn(&Summary) -> u64| {
        of(now).saturating_sub(of(before)) as f64 / (now.seconds - before.seconds).max(1e-3)
    };
    let heard = now.streams.iter().filter(|stream| stream.packets > 0).count();
    format!(
        "{:.0} s by {}: {heard} of {} heard, {:.0} packets/s, {:.1} Mb/s, {} lost, \
         {}, {} dropped by the kernel, {} by the disk, {} units of tracks, {:.1} MB written",
        now.seconds,
        now.path,
        counted(now.streams.len() as u64, "stream", "streams"),
        rate(|summary| summary.packets),
        rate(|summary| summary.bytes) * 8e-6,
        sum(|stream| stream.lost),
        counted(sum(|stream| stream.continuity_errors), "continuity error", "continuity errors"),
        sum(|stream| stream.dropped_by_kernel),
        sum(|stream| stream.dropped_by_disk),
        sum(|stream| stream.dropped_units),
        sum(|stream| stream.written_bytes) as f64 / 1e6,
    )
}

const HEAD: &str = concat!(
    "stream                     ssrc/form    pkt/s    Mb/s    lost  reord    dup  jitter ms",
    "  cc err  pcr ms  dropped  file"
);

fn row(before: &StreamFigures, now: &StreamFigures, seconds: f64) -> String {
    let rate = |of: fn(&StreamFigures) -> u64| {
        of(now).saturating_sub(of(before)) as f64 / seconds.max(1e-3)
    };
    let silent = now.silent_s.map(|seconds| format!("silent for {seconds:.0} s"));
    let trouble = now.trouble.as_deref().filter(|_| now.packets == 0);
    let state = now.ended.as_deref().or(trouble).or(silent.as_deref());
    let file = now.file.as_ref().and_then(|file| file.file_name());
    let file = file.map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    format!(
        "{:<26} {:>9} {:>8.0} {:>7.2} {:>7} {:>6} {:>6} {:>10.2} {:>7} {:>7.2} {:>8}  {}",
        cut(now.camera.as_deref().unwrap_or(&now.url), 26),
        now.ssrc.as_deref().unwrap_or(now.form),
        rate(|stream| stream.packets),
        rate(|stream| stream.payload_bytes) * 8e-6,
        now.lost,
        now.reordered,
        now.duplicates,
        now.jitter_ms,
        now.continuity_errors,
        now.clock_jitter_ms,
        now.dropped_by_kernel + now.dropped_by_disk + now.dropped_by_relay + now.dropped_units,
        state.unwrap_or(&file),
    )
}

/// Cuts a long text to its last characters: addresses differ at their ends.
fn cut(text: &str, chars_max: usize) -> &str {
    let surplus = text.chars().count().saturating_sub(chars_max);
    text.char_indices().nth(surplus).map_or("", |(at, _)| &text[at..])
}

/// Formats the cameras of a configuration, a line each.
pub(super) fn cameras(streams: &[StreamOptions]) -> String {
    let mut text = String::new();
    for stream in streams {
        let StreamOutputFiles::Camera(files) = &stream.output else { continue };
        let form = if files.is_mp4 { "mp4" } else { "ts" };
        let login = if stream.login.credentials.is_some() { " with a password" } else { "" };
        let (camera, url) = (Escaped(&files.camera), Escaped(&stream.url));
        let folder = files.folder.display();
        let _ = writeln!(text, "{camera}: {url}{login}, {form} in {}", Escaped(folder));
    }
    let count = counted(streams.len() as u64, "camera", "cameras");
    let _ = writeln!(text, "{count}, nothing is wrong");
    text
}

/// Formats the final report for people; leaves out counts of zero.
pub(super) fn verdict(summary: &Summary) -> String {
    let mut text = line(&Summary::default(), summary);
    text.push('\n');
    for stream in &summary.streams {
        let sender = stream.sender.as_deref().unwrap_or("nobody");
        if let Some(camera) = &stream.camera {
            let _ = write!(text, "camera {}: ", Escaped(camera));
        }
        let _ = write!(text, "{} from {}", Escaped(&stream.url), Escaped(sender));
        if stream.sources_followed > 1 {
            let changes = counted(stream.sources_followed - 1, "change", "changes");
            let _ = write!(text, ", after {changes} of sender");
        }
        if let Some(file) = &stream.file {
            let mb = stream.written_bytes as f64 / 1e6;
            let _ = write!(text, ": {mb:.1} MB to {}", Escaped(file.display()));
            if stream.files > 1 {
                let _ = write!(text, " and {} before it", stream.files - 1);
            }
            if !stream.tracks.is_empty() {
                let _ = write!(text, " ({})", Escaped(stream.tracks.join(", ")));
            }
        }
        for (count, one, many) in [
            (stream.lost, "lost", "lost"),
            (stream.late, "too late", "too late"),
            (stream.reordered, "reordered", "reordered"),
            (stream.duplicates, "duplicate", "duplicates"),
            (stream.restarts, "restart", "restarts"),
            (stream.refused.ssrc, "refused for its SSRC", "refused for their SSRC"),
            (stream.refused.sender, "refused for its sender", "refused for their sender"),
            (stream.refused.size, BAD_SIZE, BAD_SIZE),
            (stream.refused.malformed, NEITHER, NEITHER),
            (stream.sources_forgotten, "source forgotten", "sources forgotten"),
            (stream.continuity_errors, "continuity error", "continuity errors"),
            (stream.sync_byte_errors, "wrong sync byte", "wrong sync bytes"),
            (stream.transport_errors, "transport error", "transport errors"),
            (stream.clock_jumps, "jump of a track's clock", "jumps of a track's clock"),
            (stream.outages, "outage", "outages"),
            (stream.dropped_by_kernel, "dropped by the kernel", "dropped by the kernel"),
            (stream.dropped_by_disk, "TS packet dropped by the disk", DROPPED_BY_DISK),
            (stream.bytes_dropped_by_disk, BYTE_DROPPED, BYTES_DROPPED),
            (stream.dropped_units, DROPPED_UNIT, DROPPED_UNITS),
            (stream.files_deleted, "old file deleted", "old files deleted"),
            (stream.on_file_failed, "file that on_file failed with", ON_FILE_FAILED),
            (stream.dropped_by_relay, "dropped by the relay", "dropped by the relay"),
            (stream.dropped_too_early, TOO_EARLY, TOO_EARLY),
        ] {
            if count > 0 {
                let _ = write!(text, ", {}", counted(count, one, many));
            }
        }
        if let Some(found) = stream.refused.last_payload_type {
            let count = stream.refused.payload_type;
            let recorded = match stream.tracks.is_empty() {
                true => "recorded is MPEG-TS, 33",
                false => "its track has another",
            };
            let _ = write!(text, ", {count} refused for the payload type ({found}; {recorded})");
        }
        if stream.byes_refused > 0 {
            let _ = write!(text, ", {} BYE refused", stream.byes_refused);
        }
        for refused in &stream.refused_senders {
            let _ = write!(
                text,
                "; refused {} of {}: {}",
                refused.datagrams, refused.address, refused.why
            );
        }
        if stream.repeated_s > 0.0 {
            let _ = write!(text, "; {:.2} s is in the file twice", stream.repeated_s);
        }
        if let (None, Some(end)) = (&stream.ended, stream.title_s) {
            let reached = stream.reached_s.unwrap_or_default();
            let _ = write!(text, "; the title is not complete: {reached:.1} of {end:.1} s came");
        }
        if let Some(why) = stream.ended.as_ref().or(stream.trouble.as_ref()) {
            let _ = write!(text, "; {}", Escaped(why));
        }
        text.push('\n');
    }
    let is_whole = if summary.is_whole() { "nothing was lost on this host" } else { "NOT whole" };
    let _ = writeln!(text, "{is_whole}");
    text
}

const BAD_SIZE: &str = "refused for the size (not whole packets of 188 bytes)";
const NEITHER: &str = "refused as neither RTP nor a transport stream";
const TOO_EARLY: &str = "dropped before the server answered PLAY";
const BYTE_DROPPED: &str = "byte dropped by the disk";
const BYTES_DROPPED: &str = "bytes dropped by the disk";
const DROPPED_UNIT: &str = "unit of its tracks dropped: this host was too slow";
const DROPPED_UNITS: &str = "units of its tracks dropped: this host was too slow";
const ON_FILE_FAILED: &str = "files that on_file failed with";
const DROPPED_BY_DISK: &str = "TS packets dropped by the disk";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_stand_below_their_heads() {
        let mut now = StreamFigures::default();
        now.url = "udp://239.255.255.255:50044?interface=eth0".into();
        now.ssrc = Some("0123abcd".into());
        (now.packets, now.payload_bytes, now.continuity_errors) = (2000, 2_500_000, 7);
        let row = row(&StreamFigures::default(), &now, 1.0);
        for (word, value) in [("pkt/s", "2000"), ("Mb/s", "20.00"), ("cc err", "7")] {
            let end = HEAD.find(word).unwrap() + word.len();
            assert!(row[..end].ends_with(value), "{word}: {row}");
        }
        assert!(row.starts_with("5.255:50044?interface=eth0  0123abcd "), "{row}");
    }

    #[test]
    fn one_of_a_kind_is_in_the_singular() {
        let mut stream = StreamFigures::default();
        stream.url = "udp://127.0.0.1:5004".into();
        (stream.packets, stream.outages, stream.sources_followed) = (10, 1, 2);
        (stream.refused.sender, stream.duplicates, stream.continuity_errors) = (1, 2, 1);
        let mut summary = Summary::default();
        summary.streams.push(stream);
        let text = verdict(&summary);
        for words in [
            ": 1 of 1 stream heard, ",
            ", 1 continuity error, 0 dropped",
            ", after 1 change of sender",
            ", 2 duplicates, 1 refused for its sender, 1 continuity error, 1 outage\n",
        ] {
            assert!(text.contains(words), "{words}: {text}");
        }
    }

    #[test]
    fn the_verdict_names_the_tracks_and_the_form_of_pcm() {
        let mut stream = StreamFigures::default();
        stream.url = "rtsp://camera/1".into();
        stream.file = Some("a.mp4".into());
        stream.tracks = vec!["video H264/90000".into(), "audio PCMA/8000 as PCM of 16 bits".into()];
        (stream.packets, stream.files, stream.written_bytes) = (10, 1, 2_000_000);
        let mut summary = Summary::default();
        summary.streams.push(stream);
        let words = ": 2.0 MB to a.mp4 (video H264/90000, audio PCMA/8000 as PCM of 16 bits)";
        assert!(verdict(&summary).contains(words), "{}", verdict(&summary));
    }

    #[test]
    fn the_verdict_names_what_is_there_twice() {
        let mut stream = StreamFigures::default();
        (stream.url, stream.packets, stream.repeated_s) = ("rtsp://h/t".into(), 10, 0.966);
        let mut summary = Summary::default();
        summary.streams.push(stream);
        let text = verdict(&summary);
        assert!(text.contains("; 0.97 s is in the file twice\n"), "{text}");

        let stream = &mut summary.streams[0];
        (stream.title_s, stream.reached_s) = (Some(60.0), Some(4.96));
        let words = "; the title is not complete: 5.0 of 60.0 s came\n";
        assert!(verdict(&summary).contains(words), "{}", verdict(&summary));
        summary.streams[0].ended = Some("complete".to_owned());
        assert!(!verdict(&summary).contains("not complete"));
    }

    #[test]
    fn the_verdict_names_what_was_lost_and_by_whom() {
        let mut stream = StreamFigures::default();
        stream.url = "udp://127.0.0.1:5004".into();
        (stream.packets, stream.lost, stream.dropped_by_disk) = (10, 3, 7);
        let mut summary = Summary::default();
        summary.streams.push(stream);
        let text = verdict(&summary);
        assert!(text.contains(", 3 lost, 7 TS packets dropped by the disk\n"), "{text}");
        assert!(text.ends_with("NOT whole\n"));
        summary.streams[0].dropped_by_disk = 0;
        summary.streams[0].dropped_units = 2;
        let text = verdict(&summary);
        let words = ", 3 lost, 2 units of its tracks dropped: this host was too slow\n";
        assert!(text.contains(words) && text.ends_with("NOT whole\n"), "{text}");
        assert!(text.contains(", 0 by the disk, 2 units of tracks, "), "{text}");
        summary.streams[0].dropped_units = 0;
        let refused = &mut summary.streams[0].refused;
        (refused.payload_type, refused.last_payload_type, refused.size) = (40, Some(96), 2);
        let text = verdict(&summary);
        assert!(text.contains(", 2 refused for the size (not whole packets of 188 bytes)"));
        assert!(text.contains(", 40 refused for the payload type (96; recorded is MPEG-TS, 33)"));
        assert!(verdict(&summary).ends_with("nothing was lost on this host\n"));
    }
}
