// SPDX-License-Identifier: MIT OR Apache-2.0
//! The index: every file with its download address, every asset with its stream, for people (HTML)
//! and for programs (JSON).
//!
//! Made anew for each request from the library's names; nothing of a file is read.
//! The HTML's shape lies in `web/index.html`; names are escaped, so a file's name cannot become
//! markup.
//!
//! Does not do: pages, search. A folder of a hundred thousand files makes a page of some 30 MB.

use std::fmt::Write;
use std::time::UNIX_EPOCH;

use serde::Serialize;
use wire::http::{escape_html, escape_path};

use crate::library::{Entry, Library, State, Summary};
use crate::meter::Report;

/// `/index.json`.
#[derive(Serialize)]
pub(crate) struct Index<'a> {
    server: &'a Report,
    files: Vec<FileRow>,
}

/// One file.
#[derive(Serialize)]
struct FileRow {
    name: String,
    bytes: u64,
    /// Seconds since 1970.
    modified: u64,
    download: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    stream: Option<StreamRow>,
    /// Why there is no stream, where one would be expected.
    #[serde(skip_serializing_if = "Option::is_none")]
    not_streamed: Option<String>,
}

#[derive(Serialize)]
struct StreamRow {
    address: String,
    #[serde(flatten)]
    summary: Summary,
}

/// The index as JSON. `http` and `rtsp` are the authorities a client of this request would use.
pub(crate) fn json(library: &Library, report: &Report, http: &str, rtsp: &str) -> Vec<u8> {
    let rows =
        library.entries().into_iter().map(|(name, entry)| row(library, name, entry, http, rtsp));
    let index = Index { server: report, files: rows.collect() };
    serde_json::to_vec_pretty(&index).expect("plain data")
}

/// The index as HTML.
pub(crate) fn html(library: &Library, report: &Report, http: &str, rtsp: &str) -> Vec<u8> {
    let mut rows = String::new();
    let (mut files, mut streams, mut bytes) = (0, 0, 0);
    for (name, entry) in library.entries() {
        let row = row(library, name, entry, http, rtsp);
        files += 1;
        streams += u32::from(row.stream.is_some());
        bytes += row.bytes;
        write_row(&mut rows, &row);
    }
    let bill = report.bill.map_or("not known yet".to_owned(), |bill| format!("{bill:.2} s/GB"));
    let summary = format!(
        "{files} files, {streams} of them streams, {}. {} sessions now; bill so far: {bill}",
        readable_bytes(bytes),
        report.sessions
    );
    TEMPLATE.replace("{{summary}}", &summary).replace("{{rows}}", &rows).into_bytes()
}

fn row(library: &Library, name: String, entry: Entry, http: &str, rtsp: &str) -> FileRow {
    let path = escape_path(&name);
    let modified = entry.modified.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let (stream, not_streamed) = match entry.state {
        State::Download => (None, None),
        State::Ready(summary) => {
            let address = format!("rtsp://{rtsp}/{path}");
            (Some(StreamRow { address, summary: (*summary).clone() }), None)
        }
        State::Refused(reason) => (None, Some(reason)),
        State::Waiting => (None, Some(waiting(library, &name))),
    };
    let download = format!("http://{http}/{path}");
    FileRow { name, bytes: entry.bytes, modified, download, stream, not_streamed }
}

fn waiting(library: &Library, name: &str) -> String {
    let scans = library.scans();
    let scan = scans.iter().find(|(scan, _)| scan.name == name);
    scan.map_or("waiting to be read".to_owned(), |(scan, done)| {
        format!("being read: {} %", done * 100 / scan.bytes.max(1))
    })
}

fn write_row(rows: &mut String, row: &FileRow) {
    let name = escape_html(&row.name);
    let href = escape_path(&row.name);
    let size = readable_bytes(row.bytes);
    let _ = write!(rows, "<tr><td><a href=\"/{href}\">{name}</a><td class=\"number\">{size}");
    match (&row.stream, &row.not_streamed) {
        (Some(stream), _) => {
            let seconds = stream.summary.duration_s as u64;
            let (h, m, s) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
            let rate = stream.summary.bits_per_second as f64 / 1e6;
            let address = escape_html(&stream.address);
            let _ = writeln!(
                rows,
                "<td class=\"number\">{h}:{m:02}:{s:02}<td class=\"number\">{rate:.2}\
                 <td><a href=\"{address}\"><code>{address}</code></a>"
            );
        }
        (None, Some(reason)) => {
            let reason = escape_html(reason);
            let _ = writeln!(rows, "<td><td><td class=\"why\">{reason}");
        }
        (None, None) => rows.push_str("<td><td><td>\n"),
    }
}

fn readable_bytes(bytes: u64) -> String {
    match bytes {
        0..1_000 => format!("{bytes} B"),
        1_000..1_000_000 => format!("{:.1} kB", bytes as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} MB", bytes as f64 / 1e6),
        _ => format!("{:.2} GB", bytes as f64 / 1e9),
    }
}

static TEMPLATE: &str = include_str!("../../web/index.html");
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_template_has_its_places() {
        assert!(TEMPLATE.contains("{{summary}}") && TEMPLATE.contains("{{rows}}"));
    }
}
