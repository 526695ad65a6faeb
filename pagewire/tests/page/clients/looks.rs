// SPDX-License-Identifier: MIT OR Apache-2.0
//! Appearance: every view in light and dark, on a phone and at 320 pixels, checked by axe; and
//! names of files that attack the page.
//!
//! Sources: WCAG 2.2 level AA, as far as axe tests it; §1.4.10 (reflow at 320 CSS pixels).

use std::process::Command;

use serde_json::json;

use super::clips::{film, library};
use super::scripts::{report, texts};
use crate::harness::{PROGRAM, Place, Server};

#[test]
fn axe_finds_nothing_serious_and_no_view_overflows() {
    let test = "clients::looks::axe_finds_nothing_serious_and_no_view_overflows";
    let Some(server) = library(test) else { return };
    let Some(report) = report(test, "audit.mjs", &format!("http://{}", server.http)) else {
        return;
    };
    let pages = report["pages"].as_array().expect("a list");
    assert_eq!(pages.len(), 32);
    for page in pages {
        let name = &page["name"];
        assert_eq!(page["serious"], json!([]), "{name}");
        assert_eq!(page["faults"], json!([]), "{name}");
        assert_eq!((&page["overflow"], &page["clipped"]), (&json!(0), &json!([])), "{name}");
        assert!(!page["heading"].as_str().expect("a text").is_empty(), "{name}");
    }
    server.stop();
}

#[test]
fn names_of_files_are_text_whatever_they_hold() {
    let test = "clients::looks::names_of_files_are_text_whatever_they_hold";
    let Some(film) = film(test) else { return };
    let bytes = std::fs::read(film).expect("it was made");
    let place = Place::new();
    let long = "ä".repeat(125) + ".mp4";
    let films = [
        "<img src=x onerror=alert(1)>.mp4",
        "\"'><b onmouseover=alert(2)>quotes.mp4",
        "javascript:alert(3).mp4",
        "\u{202e}4pm.gnp\u{202c} right to left.mp4",
        "%3Cscript%3Ealert(4)%3C%2Fscript%3E?x=1#y.mp4",
        "{{assets}} {{root}}.mp4",
        "player.html",
        &long,
    ];
    for name in films {
        let target = place.folder().join(name);
        std::fs::write(target, &bytes).expect("room for a film");
    }
    for name in ["<script>alert(5)<", "a folder\" onclick=\"alert(6)", "\u{202e}redlof"] {
        place.put(&format!("{name}/<svg onload=alert(7)>.mp4"), &bytes);
        place.put(&format!("{name}/<iframe srcdoc=x>.txt"), b"text");
    }
    let server = Server::at(&place, Command::new(PROGRAM), &[]);
    // A film named player.html is not served as the page.
    server.await_index("all are read", |index| index["total"]["streams"] == films.len() + 2);
    let Some(report) = report(test, "hostile.mjs", &format!("http://{}", server.http)) else {
        return;
    };
    let pages = report["pages"].as_array().expect("a list");
    assert_eq!(report["films"], films.len() - 1);
    let mut shown = Vec::new();
    for page in pages {
        let name = &page["name"];
        assert_eq!(page["planted"], json!([]), "{name}");
        assert_eq!(page["faults"], json!([]), "{name}");
        assert_eq!(page["overflow"], 0, "{name}");
        shown.extend(texts(&page["texts"]));
    }
    for part in ["<img src=x onerror=alert(1)>", "javascript:alert(3)", "{{assets}}", "\u{202e}"] {
        assert!(shown.iter().any(|text| text.contains(part)), "{part}: {shown:?}");
    }
    server.stop();
}
