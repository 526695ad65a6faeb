// SPDX-License-Identifier: MIT OR Apache-2.0
//! The report for people: a few lines per file, and a line of blocks for each bit rate.
//!
//! Every text that may come from an untrusted file (names, codecs, reasons) is escaped where it is
//! written, so that it cannot forge a line of the report.

use std::fmt::Write;

use super::figures::PlanFigures;
use super::programmes::{InspectedProgramme, InspectedStream};
use super::rates::{Rates, plot};
use super::report::{Content, Inspected};
use super::tracks::{EntryGap, InspectedTrack};
use crate::escape::Escaped;

/// Returns the report of a file; plots fit `columns`.
pub(super) fn of(inspected: &Inspected, columns: Option<u16>) -> String {
    let columns = usize::from(columns.unwrap_or(COLUMNS)).max(COLUMNS_MIN);
    let mut text = String::new();
    let Inspected { name, container, content, reason, .. } = inspected;
    let _ = writeln!(text, "{}", Escaped(name));
    let _ =
        write!(text, "  {}, {}", container.unwrap_or("unknown container"), bytes(inspected.bytes));
    if let Some(content) = content {
        let rate = bitrate(content.stream.bits_per_second);
        let _ = write!(text, ", {}, {rate}", clock(content.duration));
    }
    let _ = writeln!(text, "{}", if inspected.live { ", live" } else { "" });
    match (reason, content) {
        (Some(reason), _) => {
            let _ = writeln!(text, "  not streamed: {}; download is served", Escaped(reason));
        }
        (None, Some(content)) => write_content(&mut text, content, columns),
        (None, None) => {}
    }
    for finding in &inspected.findings {
        let _ = write!(text, "  warning: {}", Escaped(&finding.message));
        let cure = finding.cure.as_ref().map(|cure| format!("; {}", Escaped(cure)));
        let _ = writeln!(text, "{}", cure.unwrap_or_default());
    }
    text.push('\n');
    text
}

fn write_content(text: &mut String, content: &Content, columns: usize) {
    let streams = content.tracks.len().max(1);
    let plural = if streams == 1 { "" } else { "s" };
    let _ = writeln!(text, "  streamed as {streams} RTP stream{plural}");
    if let Some(origin_s) = content.file_origin_s {
        let _ = writeln!(text, "  its start is the time {origin_s:.3} s of the file");
    }
    for track in &content.tracks {
        write_track(text, track);
    }
    for programme in &content.programmes {
        write_programme(text, programme);
    }
    for reason in &content.stream.elementary_left_out {
        let _ = writeln!(text, "  not among its tracks (?es): {}", Escaped(reason));
    }
    if let Some(gap) = content.gap {
        let entries_all = content.stream.entries;
        let _ = writeln!(text, "  {}", entries(entries_all, Some(gap)));
        if let Some(lacking) = content.entries_without_parameter_sets {
            let _ = writeln!(
                text,
                "  parameter sets: {lacking} of {entries_all} random-access points lack them; HLS \
                 and DASH put them in front"
            );
        }
    }
    let _ = writeln!(text, "  plan: {}", plan(&content.plan));
    for track in content.tracks.iter().filter(|_| content.tracks.len() > 1) {
        let of = format!("track {}", track.summary.id);
        write_rates(text, &of, &track.bitrate, columns);
    }
    write_rates(text, "all", &content.bitrate, columns);
}

fn write_track(text: &mut String, track: &InspectedTrack) {
    let InspectedTrack { summary, times, .. } = track;
    let (id, codec) = (summary.id, Escaped(&summary.codec));
    let _ = write!(text, "  track {id}: {}, {codec}", summary.media);
    if let Some(language) = &summary.language {
        let _ = write!(text, ", {}", Escaped(language));
    }
    let rate = bitrate(summary.bits_per_second);
    let _ = write!(text, ", {} samples, {rate}, time scale {}", summary.samples, times.timescale);
    if let Some(shift_s) = times.shift_s.filter(|&shift_s| shift_s != 0.0) {
        let _ = write!(text, ", moved by {shift_s:.3} s");
    }
    if times.start_s != 0.0 {
        let _ = write!(text, ", begins at {:.3} s", times.start_s);
    }
    text.push('\n');
    if summary.media == "video" {
        let order = match times.reordered {
            0 => "presented as decoded".to_owned(),
            count => format!("{count} presented out of order (B-frames)"),
        };
        let _ = writeln!(text, "    {order}; {}", entries(times.entries, times.gap));
    }
}

fn write_programme(text: &mut String, programme: &InspectedProgramme) {
    let InspectedProgramme { number, pcr_pid, streams } = programme;
    let _ = writeln!(text, "  programme {number}: clock on PID {pcr_pid}");
    for stream in streams {
        let InspectedStream { pid, stream_type, media, .. } = stream;
        let _ = write!(text, "    PID {pid}: {media}, ");
        let _ = match &stream.codec {
            Some(codec) => write!(text, "{}", Escaped(codec)),
            None => write!(text, "stream type 0x{stream_type:02x}"),
        };
        if let Some(language) = &stream.language {
            let _ = write!(text, ", {}", Escaped(language));
        }
        if let (Some(width), Some(height)) = (stream.width, stream.height) {
            let _ = write!(text, ", {width} x {height}");
        }
        if let Some(rate) = stream.pictures_per_second {
            let _ = write!(text, ", {rate} pictures a second");
        }
        if let Some(channels) = stream.channels {
            let plural = if channels == 1 { "" } else { "s" };
            let _ = write!(text, ", {channels} channel{plural}");
        }
        text.push('\n');
    }
}

fn entries(count: usize, gap: Option<EntryGap>) -> String {
    let plural = if count == 1 { "" } else { "s" };
    let gap = gap.map(|EntryGap { seconds, at_s }| {
        format!(", the longest time without one {seconds:.1} s from {} on", clock(at_s))
    });
    format!("{count} random-access point{plural}{}", gap.unwrap_or_default())
}

fn plan(plan: &PlanFigures) -> String {
    let mut text = format!(
        "{} packets in {} segment runs ({:.1} a run), {} on the wire, {:.1} % of it headers",
        plan.packets,
        plan.segment_runs,
        plan.packets_per_run,
        bytes(plan.wire_bytes),
        plan.header_share * 100.0
    );
    if plan.estimated {
        let _ = write!(text, "; estimated from {} s laid out (--seconds all)", plan.chapters);
    }
    text
}

fn write_rates(text: &mut String, of: &str, rates: &Rates, columns: usize) {
    let [min, mean, peak] = [rates.min, rates.mean, rates.peak].map(bitrate);
    let at = clock(rates.peak_at_s as f64);
    let _ = writeln!(text, "  rate of {of}: min {min}, mean {mean}, peak {peak} at {at}");
    let _ = writeln!(text, "  {}", plot(&rates.series, columns - INDENT));
}

/// Formats seconds as hours, minutes, seconds and milliseconds.
pub(super) fn clock(seconds: f64) -> String {
    let milliseconds = (seconds.max(0.0) * 1000.0).round() as u64;
    let (whole, rest) = (milliseconds / 1000, milliseconds % 1000);
    format!("{}:{:02}:{:02}.{rest:03}", whole / 3600, whole / 60 % 60, whole % 60)
}

pub(super) fn bitrate(bits_per_second: u64) -> String {
    match bits_per_second {
        0..1_000 => format!("{bits_per_second} b/s"),
        1_000..1_000_000 => format!("{:.1} kb/s", bits_per_second as f64 / 1e3),
        _ => format!("{:.2} Mb/s", bits_per_second as f64 / 1e6),
    }
}

pub(super) fn bytes(bytes: u64) -> String {
    match bytes {
        0..1_000 => format!("{bytes} B"),
        1_000..1_000_000 => format!("{:.1} kB", bytes as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} MB", bytes as f64 / 1e6),
        _ => format!("{:.1} GB", bytes as f64 / 1e9),
    }
}

/// Columns of a plot where standard output is not a terminal.
const COLUMNS: u16 = 60;
const COLUMNS_MIN: usize = 20;
const INDENT: usize = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_short() {
        assert_eq!(clock(3723.0405), "1:02:03.041");
        assert_eq!(clock(-1.0), "0:00:00.000");
        assert_eq!([999, 1_500, 2_345_678].map(bitrate), ["999 b/s", "1.5 kb/s", "2.35 Mb/s"]);
        assert_eq!([999, 1_500, 2_345_678].map(bytes), ["999 B", "1.5 kB", "2.3 MB"]);
    }
}
