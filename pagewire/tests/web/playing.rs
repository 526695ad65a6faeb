// SPDX-License-Identifier: MIT OR Apache-2.0
//! An address played in Chromium by one player, step by step, and the reported states of the media
//! element.
//!
//! Sources: `player.js`, which follows the steps. Does not compare pictures: frames are counted.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::harness::browser::Browser;
use crate::page_server::{PageServer, Served};
use crate::tool;

/// A web player.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) enum Player {
    /// The browser's own player, which plays HLS from Chromium 142 on.
    #[serde(rename = "native")]
    Native,
    #[serde(rename = "hls.js")]
    HlsJs,
    #[serde(rename = "dash.js")]
    DashJs,
    #[serde(rename = "shaka")]
    Shaka,
}

impl Player {
    /// Returns its library: the name in the page and the path below out/test-tools.
    fn library(self) -> Option<(&'static str, &'static str)> {
        match self {
            Player::Native => None,
            Player::HlsJs => Some(("hls.js", "node_modules/hls.js/dist/hls.min.js")),
            Player::DashJs => {
                Some(("dash.js", "node_modules/dashjs/dist/modern/umd/dash.all.min.js"))
            }
            Player::Shaka => {
                Some(("shaka.js", "node_modules/shaka-player/dist/shaka-player.compiled.js"))
            }
        }
    }
}

/// An action of the page.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(tag = "do", rename_all = "lowercase")]
pub(crate) enum Step {
    /// Plays for so long.
    Play { seconds: f64 },
    /// Seeks, and waits for a frame.
    Seek { seconds: f64 },
    /// Chooses another sound.
    Sound { index: usize },
    /// Chooses pictures of a size (as `640x360`), and waits for them.
    Picture { size: &'static str },
    /// Chooses the first subtitles, and waits for a cue.
    Text {},
    /// Plays until the element reports its end.
    End,
}

/// The media element at one moment.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct State {
    /// Time since the page was opened.
    pub(crate) wall_s: f64,
    pub(crate) time_s: f64,
    pub(crate) duration_s: Option<f64>,
    /// Time of the frame that was last composed, since the last seek.
    pub(crate) shown_s: Option<f64>,
    pub(crate) frames: u32,
    /// Loudest pitch of the audible sound.
    pub(crate) pitch_hz: Option<f64>,
    pub(crate) sound_bytes: u64,
    pub(crate) width: u32,
    pub(crate) height: u32,
    pub(crate) buffered: Vec<(f64, f64)>,
    pub(crate) ended: bool,
}

impl State {
    /// True where the buffer has the whole of a time span, except the gaps that players skip
    /// between segments.
    pub(crate) fn has(&self, from_s: f64, until_s: f64) -> bool {
        self.buffered.iter().any(|&(start, end)| start <= from_s + GAP_S && until_s <= end + GAP_S)
    }
}

/// States before and after a step.
#[derive(Debug, Deserialize)]
pub(crate) struct StepReport {
    pub(crate) before: State,
    pub(crate) after: State,
}

/// Report of the page.
#[derive(Debug, Deserialize)]
pub(crate) struct Report {
    /// False where the browser has no such player.
    able: bool,
    pub(crate) steps: Vec<StepReport>,
    /// Sounds to choose from.
    pub(crate) sounds: Vec<String>,
    /// Pictures to choose from.
    pub(crate) pictures: Vec<String>,
    pub(crate) errors: Vec<String>,
    /// Start, end and text of cues.
    pub(crate) cues: Vec<(f64, f64, String)>,
    /// Wall-clock time, media time, frames; ten times a second.
    pub(crate) samples: Vec<(f64, f64, u32)>,
}

impl Report {
    /// Returns the longest time for which media time stood still while a step played.
    pub(crate) fn stalled_s(&self, step: &StepReport) -> f64 {
        let playing = step.before.wall_s..step.after.wall_s;
        let samples = self.samples.iter().filter(|(wall, ..)| playing.contains(wall));
        let (mut since, mut last, mut longest) = (step.before.wall_s, step.before.time_s, 0.0);
        for &(wall, time, _) in samples {
            if time > last {
                (since, last) = (wall, time);
            }
            longest = f64::max(longest, wall - since);
        }
        longest
    }
}

/// A play of an address.
#[derive(Clone, Default)]
pub(crate) struct Play<'a> {
    /// Address; for a packager's file, its name.
    pub(crate) url: &'a str,
    pub(crate) steps: &'a [Step],
    /// Folder of a packager's files, served beside the page.
    pub(crate) folder: Option<PathBuf>,
    /// Identifier and key of the enciphered content, in base64url.
    pub(crate) clear_key: Option<[&'a str; 2]>,
    /// Address of a licence for it, for a player that has no other source of the address.
    pub(crate) licence: Option<String>,
}

/// Instructions for the page.
#[derive(Serialize)]
struct Plan<'a> {
    player: Player,
    url: &'a str,
    steps: &'a [Step],
    #[serde(skip_serializing_if = "Option::is_none")]
    clear_keys: Option<BTreeMap<&'a str, &'a str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    clear_key_url: Option<String>,
}

/// Plays an address; returns `None`, with the reason printed, where the player or the browser is
/// missing.
///
/// # Panics
/// When the player reports an error, or a step does not end in time.
#[track_caller]
pub(crate) fn played(test: &str, player: Player, play: &Play<'_>) -> Option<Report> {
    let library = match player.library() {
        Some((name, path)) => Some((name, tool(test, path)?)),
        None => None,
    };
    let licence = play.clear_key.map(|[id, key]| {
        let key = serde_json::json!({"kty": "oct", "kid": id, "k": key});
        serde_json::json!({"keys": [key], "type": "temporary"}).to_string()
    });
    let licence = licence.unwrap_or_default();
    let folder = play.folder.clone();
    let is_beside = folder.is_some();
    let server = PageServer::start(Served { library, folder, licence });
    let beside = server.url(play.url);
    let (url, steps) = (if is_beside { &beside } else { play.url }, play.steps);
    let clear_keys = play.clear_key.map(|[id, key]| BTreeMap::from([(id, key)]));
    let made = play.clear_key.map(|_| server.url("licence"));
    let clear_key_url = play.licence.clone().or(made);
    let plan = Plan { player, url, steps, clear_keys, clear_key_url };
    let plan = serde_json::to_string(&plan).expect("JSON");
    let page = format!("{}#{}", server.url("page.html"), escaped(&plan));
    let browser = Browser::open(test, &page, &[])?;
    let report = server.report(LIMIT);
    drop(browser);
    let report = report.unwrap_or_else(|| panic!("{player:?} {url}: no report in {LIMIT:?}"));
    let report: Report = serde_json::from_slice(&report).expect("a report in JSON");
    if !report.able {
        eprintln!("skip: {test}: chromium has no player of HLS");
        return None;
    }
    let is_fatal = |error: &String| error.starts_with("fatal");
    assert!(!report.errors.iter().any(is_fatal), "{player:?} {url}: {:#?}", report.errors);
    assert_eq!(report.steps.len(), steps.len(), "{player:?} {url}: {report:#?}");
    Some(report)
}

/// Percent-encodes everything except letters and digits.
fn escaped(text: &str) -> String {
    let escape = |byte: u8| match byte.is_ascii_alphanumeric() {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    };
    text.bytes().map(escape).collect()
}

/// Gap between segments that players skip; and six frames, the amount by which Chromium's own
/// player under-reports a transport stream.
const GAP_S: f64 = 0.3;
const LIMIT: Duration = Duration::from_secs(120);
