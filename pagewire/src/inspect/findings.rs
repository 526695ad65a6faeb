// SPDX-License-Identifier: MIT OR Apache-2.0
//! Findings about a file that a person can act on, each with its cure. No finding prevents the file
//! from being streamed.
//!
//! Sources: RFC 2326 §3.6 (a seek begins at a random-access point); udp(7) and ip(7), bytes of
//! headers; ffmpeg(1) for the cures. Sets no pass or fail beyond the thresholds below.

use media::plan::ElementaryStream;
use media::{AssetPlan, Presentation};
use serde::Serialize;

use super::figures::PlanFigures;
use super::programmes::InspectedProgramme;
use super::rates::Rates;
use super::report::Content;
use super::text::{bitrate, bytes, clock};
use super::tracks::EntryGap;

/// A finding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    /// Its kind, one word for programs.
    pub(super) kind: &'static str,
    pub(super) message: String,
    /// Cure, where there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cure: Option<String>,
}

impl Finding {
    fn new(kind: &'static str, message: String, cure: &str) -> Finding {
        Finding { kind, message, cure: Some(cure.to_owned()) }
    }
}

pub(super) fn index_behind_media() -> Finding {
    let message = "moov lies behind the media: a player that downloads it begins when it has all; \
                   streaming does not mind";
    let cure = "move it (ffmpeg -i IN -map 0 -c copy -movflags +faststart OUT.mp4)";
    Finding::new("moov_behind_media", message.to_owned(), cure)
}

pub(super) fn growing() -> Finding {
    let message = "the file is still being written: figures are those of its beginning";
    Finding::new("growing", message.to_owned(), "inspect it again when its writer has ended")
}

/// Returns the findings about the media.
pub(super) fn of(plan: &AssetPlan, content: &Content) -> Vec<Finding> {
    let mut findings = Vec::new();
    for track in &content.tracks {
        let id = track.summary.id;
        let gap = track.times.gap.filter(|_| track.summary.media == "video");
        findings.extend(gap.and_then(|gap| far_entry(&format!("track {id}: "), &gap)));
    }
    findings.extend(content.gap.and_then(|gap| far_entry("", &gap)));
    findings.extend(peak(&content.bitrate, &content.plan));
    let faults = content.plan.faults;
    if faults > 0 {
        let parts = if faults == 1 { "part of a sample" } else { "parts of samples" };
        let message = format!("{faults} {parts} cannot be laid out, and are not sent");
        let cure = "encode it anew (ffmpeg -i IN -c:v libx264 -c:a aac OUT.mp4)";
        findings.push(Finding::new("not_laid_out", message, cure));
    }
    // Each message already contains its cure.
    let of_file = |message: &String| Finding { kind: "file", message: message.clone(), cure: None };
    findings.extend(content.stream.warnings.iter().map(of_file));
    match plan {
        AssetPlan::TransportStream(plan) => {
            findings.extend(later_streams(plan.streams(), &content.programmes));
            let (losses, lost) = (plan.losses_seen(), plan.lost_bytes());
            if losses > 0 {
                let message = format!(
                    "synchronisation of packets is lost {losses} times: {} are not sent, the \
                     first at byte {}",
                    bytes(lost),
                    plan.losses().first().map_or(0, |loss| loss.offset)
                );
                findings.push(Finding::new("sync_losses", message, REMUX_TS));
            }
            let breaks = plan.discontinuities();
            if breaks > 0 {
                let message = format!("the clock is set anew {breaks} times; time goes on over it");
                findings.push(Finding::new("clock_breaks", message, REMUX_TS));
            }
        }
        AssetPlan::Tracks(presentation) => {
            findings.extend(left_out(presentation));
        }
    }
    findings
}

/// Streams that later program maps add and that the list of programmes lacks.
fn later_streams(
    streams: &[ElementaryStream],
    programmes: &[InspectedProgramme],
) -> Option<Finding> {
    let is_listed = |pid: u16| {
        programmes.iter().flat_map(|programme| &programme.streams).any(|stream| stream.pid == pid)
    };
    let later: Vec<String> = streams
        .iter()
        .filter(|stream| !is_listed(stream.pid))
        .map(|stream| format!("PID {} (stream type {:#04x})", stream.pid, stream.stream_type))
        .collect();
    let message = format!(
        "named by maps behind the beginning alone: {}; the transport stream has them, its tracks \
         (?es) do not",
        later.join(", ")
    );
    (!later.is_empty() && !programmes.is_empty())
        .then(|| Finding::new("later_streams", message, REMUX_WHOLE))
}

/// Reasons of tracks that are not sent; each reason contains its cure.
fn left_out(presentation: &Presentation) -> impl Iterator<Item = Finding> {
    presentation.left_out().iter().map(|track| Finding {
        kind: "left_out",
        message: format!("not sent: {}", track.reason),
        cure: None,
    })
}

fn far_entry(of: &str, gap: &EntryGap) -> Option<Finding> {
    let EntryGap { seconds, at_s } = *gap;
    let message = format!(
        "{of}no random-access point for {seconds:.1} s from {} on: a seek into it begins there",
        clock(at_s)
    );
    let cure = "encode it with more key frames (ffmpeg -i IN -c:v libx264 -g 50 -c:a copy OUT)";
    (seconds > GAP_S_MAX).then(|| Finding::new("far_random_access", message, cure))
}

/// A one-second peak far above the mean.
fn peak(rates: &Rates, plan: &PlanFigures) -> Option<Finding> {
    let Rates { mean, peak, peak_at_s, .. } = *rates;
    if mean == 0 || peak < PEAK_TIMES.saturating_mul(mean) {
        return None;
    }
    let on_link = link_bits(peak, plan);
    let message = format!(
        "second {peak_at_s} (from {}) has {}, {:.1} times the mean of {}: a link needs {} for it, \
         headers of IP included",
        clock(peak_at_s as f64),
        bitrate(peak),
        peak as f64 / mean as f64,
        bitrate(mean),
        bitrate(on_link)
    );
    let mean_kb = (mean / 1000).max(1);
    let cure = format!(
        "encode it with a bounded rate (ffmpeg -i IN -c:v libx264 -maxrate {}k -bufsize {}k OUT)",
        mean_kb * 2,
        mean_kb * 4
    );
    Some(Finding::new("bitrate_peak", message, &cure))
}

/// Returns the rate on a link including the headers of RTP, UDP and IPv4, in their share of the
/// whole file.
fn link_bits(media_bits: u64, plan: &PlanFigures) -> u64 {
    let carried = plan.wire_bytes.saturating_sub(plan.header_bytes);
    let all = u128::from(plan.wire_bytes) + u128::from(plan.packets) * u128::from(IP_UDP_BYTES);
    let bits = u128::from(media_bits) * all / u128::from(carried.max(1));
    u64::try_from(bits).unwrap_or(u64::MAX).max(media_bits)
}

const REMUX_WHOLE: &str = "remux it (ffmpeg -analyzeduration 1G -probesize 1G -i IN -map 0 -c \
                           copy OUT.ts)";
const REMUX_TS: &str = "remux it (ffmpeg -i IN -map 0 -c copy OUT.ts)";
/// A longer gap is a long wait for a viewer who seeks.
const GAP_S_MAX: f64 = 30.0;
/// A second with this multiple of the mean rate is reported.
const PEAK_TIMES: u64 = 4;
const IP_UDP_BYTES: u64 = 28;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peak_names_its_second_and_its_link() {
        let plan = PlanFigures {
            packets: 1000,
            wire_bytes: 1_140_000,
            header_bytes: 140_000,
            ..PlanFigures::default()
        };
        let rates = |peak| Rates {
            min: 0,
            mean: 1_000_000,
            peak,
            peak_at_s: 75,
            interval_s: 1,
            series: Vec::new(),
        };
        assert_eq!(peak(&rates(3_999_999), &plan), None);
        let found = peak(&rates(5_000_000), &plan).unwrap();
        let expected = "second 75 (from 0:01:15.000) has 5.00 Mb/s, 5.0 times the mean of 1.00 \
                        Mb/s: a link needs 5.84 Mb/s for it, headers of IP included";
        assert_eq!(found.message, expected);
        assert!(found.cure.unwrap().contains("-maxrate 2000k -bufsize 4000k"));
    }

    #[test]
    fn streams_of_later_maps_are_named() {
        let stream = |pid| ElementaryStream { pid, stream_type: 0x0f };
        let track = |pid| super::super::programmes::InspectedStream {
            pid,
            stream_type: 0x0f,
            media: "audio",
            codec: None,
            language: None,
            width: None,
            height: None,
            pictures_per_second: None,
            channels: None,
        };
        let programme =
            InspectedProgramme { number: 1, pcr_pid: 256, streams: vec![track(256), track(257)] };
        let all = [256, 257, 258].map(stream);
        let programmes = [programme];
        assert_eq!(later_streams(&all[..2], &programmes), None);
        assert_eq!(later_streams(&all, &[]), None, "none was looked for");
        let found = later_streams(&all, &programmes).unwrap().message;
        assert!(found.contains("alone: PID 258 (stream type 0x0f); the transport stream has"));
    }

    #[test]
    fn gap_is_found_when_it_is_long() {
        assert_eq!(far_entry("", &EntryGap { seconds: 30.0, at_s: 0.0 }), None);
        let found = far_entry("track 2: ", &EntryGap { seconds: 30.5, at_s: 61.0 }).unwrap();
        let expected = "track 2: no random-access point for 30.5 s from 0:01:01.000 on";
        assert!(found.message.starts_with(expected), "{found:?}");
    }
}
