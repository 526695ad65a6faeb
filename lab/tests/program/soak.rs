// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs `lab soak` through the real programs: a minute of viewers of all transports that join,
//! leave, seek and vanish causes no lost packet, no refused session and no lost descriptor.
//!
//! Does not judge memory: a minute is too short for it.

use crate::hls::has_ffmpeg;
use crate::pacing::has_server;
use crate::{folder, has_network, lab, read, stderr};

#[test]
fn viewers_who_come_and_go_lose_no_packet_and_leave_no_descriptor() {
    if !has_network() || !has_server() || !has_ffmpeg() {
        return;
    }
    let folder = folder();
    let file = folder.path().join("soak.json");
    let output = lab(&["soak", "--quick", "--json", file.to_str().unwrap()]);
    let table = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}{table}", stderr(&output));
    let results = read(&file);
    assert_eq!(results["complete"], true, "{}{table}", results["notes"]);
    let rows = results["rows"].as_array().unwrap();
    let figure = |metric: &str| -> f64 {
        let row = rows.iter().find(|row| row["metric"] == metric);
        row.and_then(|row| row["median"].as_f64()).unwrap_or_else(|| panic!("no {metric}: {table}"))
    };
    for none in [
        "packets lost",
        "sessions refused",
        "sessions ended by the server",
        "downloads that failed or differed",
    ] {
        assert_eq!(figure(none), 0.0, "{none}: {table}");
    }
    for some in ["packets received", "seeks", "segments of HLS", "downloads", "resident memory"] {
        assert!(figure(some) > 0.0, "{some}: {table}");
    }
    // Viewers that leave return.
    assert!(figure("sessions begun") > figure("viewers"), "{table}");
    let (start, end) = (figure("descriptors at the start"), figure("descriptors at the end"));
    // The server keeps paths of downloads, three descriptors each; each session had sockets.
    let kept = 3.0 * 4.0;
    assert!(end <= start + kept && kept < figure("sessions begun") / 4.0, "{table}");
    assert!(figure("descriptors, the most") > start + kept, "{table}");
}
