// SPDX-License-Identifier: MIT OR Apache-2.0
//! A trace of packets as a file: for Perfetto, or for a spreadsheet.
//!
//! Times are microseconds since the trace began. In Perfetto each packet has an event at its due
//! time and one at its sending time, on separate rows, and its lateness is a curve; below 0 the
//! packet was sent ahead, as in a burst.
//!
//! Sources: "Trace Event Format" (Chromium project): instant events, counters, metadata.
//! Does not trace ([`crate::watch`] does).

use std::fmt::Write;
use std::time::Instant;

use serde_json::{Value, json};

use crate::play::{PacketRecord, TracedPackets};

/// Format of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TraceFormat {
    /// JSON that Perfetto and chrome://tracing open.
    Perfetto,
    Csv,
}

impl TraceFormat {
    pub(super) fn parse(name: &str) -> Option<TraceFormat> {
        match name {
            "perfetto" => Some(TraceFormat::Perfetto),
            "csv" => Some(TraceFormat::Csv),
            _ => None,
        }
    }

    pub(super) fn content_type(self) -> &'static str {
        match self {
            TraceFormat::Perfetto => "application/json",
            TraceFormat::Csv => "text/csv; charset=utf-8",
        }
    }

    /// Returns the file of a trace of session `name`.
    pub(super) fn file(self, name: &str, traced: &TracedPackets) -> Vec<u8> {
        match self {
            TraceFormat::Perfetto => perfetto(name, traced),
            TraceFormat::Csv => csv(traced),
        }
    }
}

/// Microseconds from `began`; below 0 for a moment before.
fn us(began: Instant, moment: Instant) -> f64 {
    match moment.checked_duration_since(began) {
        Some(behind) => behind.as_nanos() as f64 / 1e3,
        None => -(began.duration_since(moment).as_nanos() as f64 / 1e3),
    }
}

fn csv(traced: &TracedPackets) -> Vec<u8> {
    let mut text = "track,sequence,due_us,sent_us,late_us,packets_of_call,path\n".to_owned();
    for packet in &traced.packets {
        let (due, sent) = (us(traced.began, packet.due), us(traced.began, packet.sent));
        let PacketRecord { track, sequence, of_call, path, .. } = packet;
        // Writing to a string has no error. No field has a comma.
        let _ = writeln!(
            text,
            "{track},{sequence},{due:.1},{sent:.1},{:.1},{of_call},{path}",
            sent - due
        );
    }
    text.into_bytes()
}

fn perfetto(name: &str, traced: &TracedPackets) -> Vec<u8> {
    let named = |what: &str, tid: usize, name: &str| {
        let args = json!({"name": name});
        json!({"ph": "M", "name": what, "pid": 1, "tid": tid, "args": args})
    };
    let mut events = vec![named("process_name", 0, name)];
    let mut tracks: Vec<usize> = traced.packets.iter().map(|packet| packet.track).collect();
    tracks.sort_unstable();
    tracks.dedup();
    for track in tracks {
        events.push(named("thread_name", due_row(track), &format!("track {track}: due")));
        events.push(named("thread_name", due_row(track) + 1, &format!("track {track}: sent")));
    }
    for packet in &traced.packets {
        events.extend(packet_events(traced.began, packet));
    }
    let file = json!({
        "displayTimeUnit": "ms",
        "otherData": {"packets_left_out": traced.left_out},
        "traceEvents": events,
    });
    file.to_string().into_bytes()
}

fn packet_events(began: Instant, packet: &PacketRecord) -> [Value; 3] {
    let (due, sent) = (us(began, packet.due), us(began, packet.sent));
    let row = due_row(packet.track);
    let args = json!({
        "sequence": packet.sequence,
        "late_us": sent - due,
        "packets_of_call": packet.of_call,
        "path": packet.path,
    });
    let event = |name: &str, ts: f64, tid: usize| {
        let mut event = json!({"ph": "i", "s": "t", "cat": "rtp", "pid": 1, "tid": tid});
        (event["name"], event["ts"], event["args"]) = (name.into(), ts.into(), args.clone());
        event
    };
    let late = json!({"late": (sent - due) / 1e3});
    [
        event("due", due, row),
        event("sent", sent, row + 1),
        json!({"ph": "C", "name": "lateness (ms)", "ts": sent, "pid": 1, "args": late}),
    ]
}

/// Rows begin at 1 and each track has two.
fn due_row(track: usize) -> usize {
    2 * track + 1
}

/// Returns the value of a parameter of a query.
pub(super) fn parameter<'a>(query: Option<&'a str>, name: &str) -> Option<&'a str> {
    let pairs = query?.split('&').filter_map(|pair| pair.split_once('='));
    pairs.filter(|(found, _)| *found == name).map(|(_, value)| value).next()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn traced() -> TracedPackets {
        let began = Instant::now();
        let packet = PacketRecord {
            track: 1,
            sequence: 7,
            due: began + Duration::from_micros(1500),
            sent: began + Duration::from_micros(500),
            of_call: 2,
            path: "mmap_gso",
        };
        TracedPackets { began, packets: vec![packet], left_out: 3 }
    }

    #[test]
    fn spreadsheet_has_a_row_a_packet() {
        let text = String::from_utf8(TraceFormat::Csv.file("rtsp-1", &traced())).unwrap();
        let rows: Vec<_> = text.lines().collect();
        assert_eq!(rows[1..], ["1,7,1500.0,500.0,-1000.0,2,mmap_gso"]);
        assert_eq!(rows[0].split(',').count(), rows[1].split(',').count());
    }

    #[test]
    fn perfetto_has_due_and_sent_events_on_rows_of_their_own() {
        let file = TraceFormat::Perfetto.file("rtsp-1", &traced());
        let file: Value = serde_json::from_slice(&file).unwrap();
        assert_eq!(file["otherData"]["packets_left_out"], 3);
        let events = file["traceEvents"].as_array().unwrap();
        let of = |name: &str| events.iter().find(|event| event["name"] == name).unwrap();
        assert_eq!((&of("due")["ts"], &of("due")["tid"]), (&json!(1500.0), &json!(3)));
        assert_eq!((&of("sent")["ts"], &of("sent")["tid"]), (&json!(500.0), &json!(4)));
        assert_eq!(of("lateness (ms)")["args"]["late"], -1.0);
        assert_eq!(of("process_name")["args"]["name"], "rtsp-1");
    }

    #[test]
    fn parameters_are_found_in_queries() {
        let query = Some("seconds=5&format=csv");
        assert_eq!((parameter(query, "format"), parameter(query, "form")), (Some("csv"), None));
        assert_eq!(parameter(None, "a"), None);
    }
}
