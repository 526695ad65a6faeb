// SPDX-License-Identifier: MIT OR Apache-2.0
//! The two forms of the index: JSON for programs, HTML for people.
//!
//! The part above the rows has the live counters and is made for each answer; the rows are made
//! once ([`super::text`]). Names are escaped, so a file's name cannot become markup. The HTML
//! template is `web/table.html`.
//!
//! Sources: RFC 8259, HTML §13.

use std::time::UNIX_EPOCH;

use serde::Serialize;
use serde_json::to_string_pretty;
use wire::http::{escape_html, escape_path, shown_path};
use wire::rtsp::ELEMENTARY_QUERY;

use super::Totals;
use super::browse::Found;
use super::pages::Row;
use super::text::{Authority, Text};
use crate::channel::ChannelConfig;
use crate::http::page;
use crate::library::formats::download_only;
use crate::library::{LibraryTitle, State, StreamSummary};
use crate::meter::ServerMetrics;
use crate::web::SegmentCipher;
use crate::web::address::WebItem;

/// A form of the index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum RowFormat {
    Json,
    Html,
}

/// Values shown above the rows.
pub(super) struct LiveCounters<'a> {
    pub(super) report: &'a ServerMetrics,
    pub(super) totals: &'a Totals,
    pub(super) channels: &'a [ChannelConfig],
    /// True where channels are HLS.
    pub(super) has_hls: bool,
    /// Scans in progress.
    pub(super) scans: Vec<Scanned>,
    /// Figures about rows found by a search.
    pub(super) found: Option<&'a Found>,
    pub(super) page: PageFacts,
}

/// Facts that the page needs before it asks for more.
#[derive(Debug, Clone, Copy, Hash)]
pub(super) struct PageFacts {
    /// True where there are channels that the client may see.
    pub(super) has_channels: bool,
    /// True where posters can be made.
    pub(super) has_pictures: bool,
    /// True where there are users, and the request has shown no credentials.
    pub(super) has_login: bool,
}

/// Progress of one scan.
#[derive(Debug, Clone, Serialize, Hash)]
pub(super) struct Scanned {
    pub(super) name: String,
    pub(super) bytes_read: u64,
    pub(super) bytes: u64,
}

impl RowFormat {
    pub(super) fn content_type(self) -> &'static str {
        match self {
            RowFormat::Json => "application/json",
            RowFormat::Html => "text/html; charset=utf-8",
        }
    }

    /// Renders all rows of a page.
    pub(super) fn render<'a>(
        self,
        rows: impl IntoIterator<Item = &'a Row>,
        cipher: Option<SegmentCipher>,
    ) -> Text {
        let separator = match self {
            RowFormat::Json => ",\n",
            RowFormat::Html => "\n",
        };
        let mut text = Text::new(separator);
        for row in rows {
            match self {
                RowFormat::Json => push_json(&mut text, row, cipher),
                RowFormat::Html => push_html(&mut text, row, cipher),
            }
            // Programs continue behind the last name; people look for something to play.
            text.end_row(self == RowFormat::Html && is_title(row));
        }
        text
    }

    /// Renders everything above the rows.
    pub(super) fn above(self, live: &LiveCounters<'_>) -> String {
        match self {
            RowFormat::Json => {
                let nested = |text: String| text.replace('\n', "\n  ");
                let server = nested(to_string_pretty(live.report).expect("plain data"));
                let total = json(live.totals);
                let scans = json(&live.scans);
                let PageFacts { has_channels, has_pictures, has_login } = live.page;
                let found = live.found.map(|found| {
                    format!(
                        "  \"channels\": {has_channels},\n  \"pictures\": {has_pictures},\n  \
                         \"login\": {has_login},\n  \"found\": {},\n",
                        json(found)
                    )
                });
                let found = found.unwrap_or_default();
                format!(
                    "{{\n  \"server\": {server},\n  \"total\": {total},\n  \"scans\": {scans},\n\
                     {found}  \"files\": [\n"
                )
            }
            RowFormat::Html => {
                // The summary last: it has names of files.
                let above = parts().0.replace("{{style}}", &page::address("table.css"));
                let above = above.replace("{{channels}}\n", &channels(live));
                above.replace("{{summary}}", &escape_html(&shown_path(&summary(live))))
            }
        }
    }

    /// Renders everything below the rows; `next` is the query of the following page.
    pub(super) fn below(self, next: Option<&str>) -> String {
        match (self, next) {
            (RowFormat::Json, None) => "\n  ]\n}\n".to_owned(),
            (RowFormat::Json, Some(next)) => {
                format!("\n  ],\n  \"next\": {}\n}}\n", json(&format!("/index.json?{next}")))
            }
            (RowFormat::Html, None) => parts().1.replace("{{next}}", ""),
            (RowFormat::Html, Some(next)) => {
                let query = escape_html(next);
                let link = format!("<p><a rel=\"next\" href=\"/?{query}\">next files</a></p>");
                parts().1.replace("{{next}}", &link)
            }
        }
    }
}

fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("plain data")
}

/// Returns the template's parts above and below the rows.
fn parts() -> (&'static str, &'static str) {
    TEMPLATE.split_once("{{rows}}").expect("the template has a place for rows")
}

/// The line about channels, with the pages that play them.
fn channels(live: &LiveCounters<'_>) -> String {
    let played = live.channels.iter().filter(|channel| live.has_hls && channel.rtsp);
    let page = |channel: &ChannelConfig| {
        let (path, name) = (escape_path(&channel.name), escape_html(&channel.name));
        format!("<a href=\"/channel/{path}/{}\">{name}</a>", WebItem::Player)
    };
    let pages: Vec<String> = played.take(CHANNELS_SHOWN).map(page).collect();
    let pages = if pages.is_empty() { String::new() } else { pages.join(", ") + "; " };
    match live.channels.is_empty() {
        true => String::new(),
        false => format!("<p>Channels: {pages}{CHANNELS}"),
    }
}

fn summary(live: &LiveCounters<'_>) -> String {
    let LiveCounters { report, totals, scans, .. } = live;
    let mut text = counted(totals.films, "film");
    if totals.sealed > 0 {
        text.push_str(&format!(" ({} sealed)", totals.sealed));
    }
    if totals.waiting > 0 {
        text.push_str(&format!(", {} still to be read", totals.waiting));
    }
    if totals.others > 0 {
        text.push_str(&format!(", {}", counted(totals.others, "other file")));
    }
    text.push_str(&format!(", {}. ", readable_bytes(totals.bytes)));
    text.push_str(&format!("{} now", counted(report.sessions as u64, "session")));
    if let Some(cost) = report.cpu_s_per_gb.filter(|_| report.bytes >= COST_BYTES_MIN) {
        text.push_str(&format!("; CPU cost so far {cost:.2} s/GB"));
    }
    for scan in scans {
        let done = scan.bytes_read * 100 / scan.bytes.max(1);
        text.push_str(&format!("; reading {}: {done} %", scan.name));
    }
    text
}

fn counted(count: u64, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// True when the row can be played now or after its scan.
pub(super) fn is_title(row: &Row) -> bool {
    match row.entry.state {
        State::Ready(_) | State::Waiting => true,
        State::Download => row.title.is_some() || row.entry.is_live,
        State::Refused(_) => row.entry.is_live,
    }
}

/// Returns the addresses of HLS and DASH of a file; its segments may be enciphered with `cipher`.
fn web_items(
    summary: &StreamSummary,
    cipher: Option<SegmentCipher>,
) -> &'static [(&'static str, WebItem)] {
    const BOTH: &[(&str, WebItem)] = &[("hls", WebItem::Master), ("dash", WebItem::Manifest)];
    let is_av1 = || summary.codecs.as_ref().is_some_and(|codecs| codecs.contains("av01"));
    match cipher {
        _ if !summary.has_segments => &[],
        Some(SegmentCipher::Aes128) => &BOTH[..1],
        Some(SegmentCipher::Cbcs) if is_av1() => &[],
        _ => BOTH,
    }
}

/// Appends a row as an object on one line.
fn push_json(text: &mut Text, row: &Row, cipher: Option<SegmentCipher>) {
    let path = escape_path(&row.name);
    let modified = row.entry.modified.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let (name, bytes) = (json(&row.name), row.entry.bytes);
    text.push(&format!("    {{\"name\":{name},\"bytes\":{bytes},\"modified\":{modified}"));
    if let (false, State::Ready(summary)) = (row.renditions.is_empty(), &row.entry.state) {
        let (duration, files) = (json(&summary.duration_s), json(&row.renditions));
        text.push(&format!(",\"renditions\":{files},\"duration\":{duration}"));
        push_items(text, path.trim_end_matches('/'), (summary, cipher));
        return text.push("}");
    }
    text.push(",\"download\":\"");
    text.push_hole(Authority::Http);
    text.push(&format!("/{path}\""));
    match (&row.entry.state, &row.title) {
        _ if row.entry.is_live => {
            push_rtsp(text, ",\"live\":true", &path);
            if cipher.is_none() {
                push_web(text, "hls", &path, &WebItem::Master);
                push_web(text, "dash", &path, &WebItem::Manifest);
            }
            text.push(",\"stream\":{\"address\":\"");
            text.push_hole(Authority::Rtsp);
            text.push(&format!("/{path}\"}}"));
        }
        (State::Download, Some(title)) => {
            text.push(",\"playlist\":{\"address\":\"");
            text.push_hole(Authority::Http);
            let LibraryTitle { bytes, parts, is_sealed } = title;
            text.push(&format!(
                "/{path}\",\"bytes\":{bytes},\"parts\":{parts},\"sealed\":{is_sealed}}}"
            ));
        }
        (State::Download, None) => {
            if let Some(reason) = download_only(&row.name) {
                push_reason(text, &reason);
            }
        }
        (State::Ready(summary), _) => {
            push_rtsp(text, &format!(",\"duration\":{}", json(&summary.duration_s)), &path);
            push_items(text, &path, (summary, cipher));
            if !summary.tracks.is_empty() {
                text.push(&format!(",\"tracks\":{}", json(&summary.tracks)));
            }
            text.push(",\"stream\":{\"address\":\"");
            text.push_hole(Authority::Rtsp);
            let fields = json(summary.as_ref());
            let fields = fields.strip_prefix('{').expect("a struct is an object");
            text.push(&format!("/{path}\","));
            if summary.may_have_elementary() {
                text.push("\"elementary\":\"");
                text.push_hole(Authority::Rtsp);
                text.push(&format!("/{path}?{ELEMENTARY_QUERY}\","));
            }
            text.push(fields);
        }
        (State::Refused(reason), _) => push_reason(text, reason),
        (State::Waiting, _) => push_reason(text, WAITING),
    }
    text.push("}");
}

/// Appends `before` and the address over RTSP.
fn push_rtsp(text: &mut Text, before: &str, path: &str) {
    text.push(before);
    text.push(",\"rtsp\":\"");
    text.push_hole(Authority::Rtsp);
    text.push(&format!("/{path}\""));
}

/// Appends the addresses of HLS and DASH, and the codecs.
fn push_items(
    text: &mut Text,
    path: &str,
    (summary, cipher): (&StreamSummary, Option<SegmentCipher>),
) {
    for (field, item) in web_items(summary, cipher) {
        push_web(text, field, path, item);
    }
    if let Some(codecs) = &summary.codecs {
        text.push(&format!(",\"codecs\":{}", json(codecs)));
    }
}

/// Appends the address of an item of HLS or DASH.
fn push_web(text: &mut Text, field: &str, path: &str, item: &WebItem) {
    text.push(&format!(",\"{field}\":\""));
    text.push_hole(Authority::Http);
    text.push(&format!("/{path}/{item}\""));
}

/// Appends the reason why a media file is no stream; `not_streamed` is the older name.
fn push_reason(text: &mut Text, reason: &str) {
    let reason = json(&reason);
    text.push(&format!(",\"reason\":{reason},\"not_streamed\":{reason}"));
}

fn push_html(text: &mut Text, row: &Row, cipher: Option<SegmentCipher>) {
    let name = shown_path(&row.name);
    let name = escape_html(&name);
    let path = escape_path(&row.name);
    // The size of a title counts its parts, not only its playlist.
    let size = readable_bytes(row.title.map_or(row.entry.bytes, |title| title.bytes));
    text.push(&format!("<tr><td><a href=\"/{path}\">{name}</a><td class=\"number\">{size}"));
    let push_link = |text: &mut Text, authority: Authority| {
        text.push("<td><a href=\"");
        text.push_hole(authority);
        text.push(&format!("/{path}\"><code>"));
        text.push_hole(authority);
        text.push(&format!("/{path}</code></a>"));
    };
    let reason = match (&row.entry.state, &row.title) {
        _ if row.entry.is_live => {
            text.push("<td class=\"number live\">live<td>");
            return push_link(text, Authority::Rtsp);
        }
        (State::Download, Some(_)) => {
            text.push("<td><td>");
            return push_link(text, Authority::Http);
        }
        (State::Download, None) => match download_only(&row.name) {
            Some(reason) => reason,
            None => return text.push("<td><td><td>"),
        },
        (State::Refused(reason), _) => reason.clone(),
        (State::Waiting, _) => WAITING.to_owned(),
        (State::Ready(summary), _) => {
            let seconds = summary.duration_s as u64;
            let (h, m, s) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
            let rate = summary.bits_per_second as f64 / 1e6;
            text.push(&format!(
                "<td class=\"number\">{h}:{m:02}:{s:02}<td class=\"number rate\">{rate:.2}"
            ));
            match row.renditions.len() {
                0 => push_link(text, Authority::Rtsp),
                files => text.push(&format!("<td>{files} renditions of one title")),
            }
            let items = web_items(summary, cipher);
            if !items.is_empty() {
                let (page, path) = (WebItem::Player, path.trim_end_matches('/'));
                text.push(&format!("<div class=\"web\"><a href=\"/{path}/{page}\">play</a>"));
                for (name, item) in items {
                    let name = name.to_uppercase();
                    text.push(&format!(" <a href=\"/{path}/{item}\">{name}</a>"));
                }
                text.push("</div>");
            }
            if !row.renditions.is_empty() {
                return;
            }
            let not_sent = Some(summary.left_out.join("; ")).filter(|reasons| !reasons.is_empty());
            let not_sent = not_sent.map(|reasons| format!("not sent: {reasons}"));
            for note in not_sent.iter().chain(&summary.warnings) {
                text.push(&format!("<div class=\"why\">{}</div>", escape_html(note)));
            }
            return;
        }
    };
    text.push(&format!("<td><td><td class=\"why\">{}", escape_html(&reason)));
}

fn readable_bytes(bytes: u64) -> String {
    match bytes {
        0..1_000 => format!("{bytes} B"),
        1_000..1_000_000 => format!("{:.1} kB", bytes as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} MB", bytes as f64 / 1e6),
        _ => format!("{:.2} GB", bytes as f64 / 1e9),
    }
}

/// Least bytes to show a CPU cost for: with fewer, the server's start is most of it.
const COST_BYTES_MIN: u64 = 1_000_000_000;
/// Channels whose pages are named above the rows.
const CHANNELS_SHOWN: usize = 100;
/// Links to the lists of all channels.
const CHANNELS: &str = "<a href=\"/channels.m3u\">channels.m3u</a> (groups), \
    <a href=\"/channels-rtsp.m3u\">channels-rtsp.m3u</a> (RTSP), \
    <a href=\"/channels.xml\">channels.xml</a> (guide), \
    <a href=\"/channels.json\">channels.json</a> (state).</p>\n";
/// Text for a file without a plan; the scan's progress is shown above the rows.
const WAITING: &str = "waiting to be read";
static TEMPLATE: &str = include_str!("../../../../web/table.html");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_template_has_its_places() {
        let (above, below) = parts();
        assert!(above.contains("{{summary}}") && above.contains("{{channels}}\n"));
        assert!(below.contains("{{next}}"));
    }
}
