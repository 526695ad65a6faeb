// SPDX-License-Identifier: MIT OR Apache-2.0
//! The report of a file: all shown properties, collected from its plan.
//!
//! Field names of JSON are those of the index (docs/index-json.md) where the index has the field.

use std::fs::File;
use std::path::Path;
use std::time::{Duration, Instant, UNIX_EPOCH};

use media::{AssetPlan, Demuxer, PacketPlan, Presentation, TICKS_PER_SECOND};
use serde::Serialize;
use serve::{FilePlan, NoFilePlan, StreamSummary, download_only, plan_file};

use super::figures::{self, PlanFigures};
use super::findings::{self, Finding};
use super::programmes::{self, InspectedProgramme};
use super::rates::{self, Rates};
use super::tracks::{EntryGap, InspectedTrack, gap_of_transport_stream, times_of};
use super::{Effort, Waiting};

/// All reported properties of a file.
#[derive(Serialize)]
pub(super) struct Inspected {
    /// Its name as given.
    pub(super) name: String,
    pub(super) bytes: u64,
    /// Time of last modification, seconds since 1970.
    modified: u64,
    /// True while `pagewire receive` writes it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) live: bool,
    /// True where pagewire can stream it. It can be downloaded in any case.
    pub(super) streamable: bool,
    /// Reason why it cannot be streamed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) container: Option<&'static str>,
    #[serde(flatten)]
    pub(super) content: Option<Content>,
    #[serde(rename = "warnings")]
    pub(super) findings: Vec<Finding>,
}

/// Content of a file that can be streamed.
#[derive(Serialize)]
pub(super) struct Content {
    pub(super) duration: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) codecs: Option<String>,
    /// Time in the file that is the start of the title, where its tracks begin later than at zero.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) file_origin_s: Option<f64>,
    /// Tracks that are RTP streams of their own.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) tracks: Vec<InspectedTrack>,
    /// Programmes of a transport stream, which is one RTP stream.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) programmes: Vec<InspectedProgramme>,
    pub(super) stream: StreamSummary,
    /// The longest time without a random-access point of a transport stream.
    #[serde(flatten)]
    pub(super) gap: Option<EntryGap>,
    /// Number of random-access points of a transport stream whose pictures lack their parameter
    /// sets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) entries_without_parameter_sets: Option<usize>,
    pub(super) plan: PlanFigures,
    pub(super) bitrate: Rates,
}

/// A file that cannot be read at all.
#[derive(Serialize)]
pub(super) struct Unread {
    pub(super) name: String,
    pub(super) error: String,
}

/// # Errors
/// The file cannot be read, with the reason.
pub(super) fn of(
    path: &Path,
    resolved: &Path,
    file: &File,
    effort: Effort,
) -> Result<Inspected, String> {
    let metadata = file.metadata().map_err(|error| error.to_string())?;
    let modified = metadata.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    let bytes = metadata.len();
    let waiting = Waiting::new(file, "reading");
    let planned = plan_file(resolved, file, |done| waiting.at(done, bytes));
    drop(waiting);
    let mut inspected = Inspected {
        name: path.to_string_lossy().into_owned(),
        bytes,
        modified: modified.map_or(0, |since| since.as_secs()),
        live: false,
        streamable: planned.is_ok(),
        reason: None,
        container: container(file, bytes),
        content: None,
        findings: Vec::new(),
    };
    let is_behind = matches!(Demuxer::of(file, bytes), Some(Demuxer::Mp4(_)))
        && media::mp4::is_index_behind_media(file, bytes).unwrap_or(false);
    inspected.findings.extend(is_behind.then(findings::index_behind_media));
    match planned {
        Ok(FilePlan { plan, is_growing }) => {
            inspected.live = is_growing;
            inspected.findings.extend(is_growing.then(findings::growing));
            inspected.container = Some(match &plan {
                AssetPlan::TransportStream(_) => TRANSPORT_STREAM,
                AssetPlan::Tracks(presentation) => presentation.container().name(),
            });
            let content = Content::of(&plan, file, effort)
                .map_err(|error| format!("laying it out: {error}"))?;
            inspected.findings.extend(findings::of(&plan, &content));
            inspected.content = Some(content);
        }
        Err(NoFilePlan::Refused(reason)) => {
            let is_known = inspected.container.is_some();
            let by_name = download_only(&inspected.name).filter(|_| !is_known);
            inspected.reason = Some(by_name.unwrap_or(reason));
        }
        Err(changing @ NoFilePlan::Changing) => {
            inspected.reason = Some(changing.to_string());
            inspected.findings.push(findings::growing());
        }
        Err(unreadable) => return Err(unreadable.to_string()),
    }
    Ok(inspected)
}

impl Content {
    fn of(plan: &AssetPlan, file: &File, effort: Effort) -> std::io::Result<Content> {
        match plan {
            AssetPlan::TransportStream(plan) => Content::of_transport_stream(plan, file),
            AssetPlan::Tracks(presentation) => Content::of_tracks(plan, presentation, file, effort),
        }
    }

    fn of_transport_stream(plan: &PacketPlan, file: &File) -> std::io::Result<Content> {
        let stream = StreamSummary::of_plan(&plan.clone().into());
        Ok(Content {
            duration: stream.duration_s,
            codecs: stream.codecs.clone(),
            file_origin_s: None,
            tracks: Vec::new(),
            programmes: programmes::of(plan, file)?,
            stream,
            gap: Some(gap_of_transport_stream(plan)),
            entries_without_parameter_sets: Some(plan.entries_lacking()).filter(|&count| count > 0),
            plan: figures::of_transport_stream(plan),
            bitrate: rates::of_transport_stream(plan),
        })
    }

    fn of_tracks(
        plan: &AssetPlan,
        presentation: &Presentation,
        file: &File,
        effort: Effort,
    ) -> std::io::Result<Content> {
        let stream = StreamSummary::of_plan(plan);
        let (bitrate, rates) = rates::of_tracks(presentation);
        let waiting = Waiting::new(file, "laying out");
        let begun = Instant::now();
        let mut whole = PlanFigures::default();
        let mut tracks = Vec::new();
        let of = presentation.tracks().len() as u64;
        for ((index, summary), bitrate) in stream.tracks.iter().cloned().enumerate().zip(rates) {
            // Later tracks inherit the time that a track has not used.
            let share = |time: Duration| time.mul_f64((index + 1) as f64 / of as f64);
            let until = effort.time.map(|time| begun + share(time));
            let limits = (effort.chapters, until);
            let plan = figures::of_track(presentation, index, file, limits, |done, all| {
                waiting.at(index as u64 * all + done, of * all);
            })?;
            let times = times_of(presentation, &presentation.tracks()[index]);
            whole = whole.and(&plan);
            tracks.push(InspectedTrack { summary, times, plan, bitrate });
        }
        let origin_ticks = presentation.file_origin_ticks();
        let seconds = |ticks: u64| ticks as f64 / TICKS_PER_SECOND as f64;
        Ok(Content {
            duration: stream.duration_s,
            codecs: stream.codecs.clone(),
            file_origin_s: (origin_ticks > 0).then(|| seconds(origin_ticks)),
            tracks,
            programmes: Vec::new(),
            stream,
            gap: None,
            entries_without_parameter_sets: None,
            plan: whole,
            bitrate,
        })
    }
}

/// Returns the container that the first bytes announce, among those with tracks.
fn container(file: &File, bytes: u64) -> Option<&'static str> {
    Demuxer::of(file, bytes).map(|demuxer| demuxer.name())
}

const TRANSPORT_STREAM: &str = "MPEG transport stream";
