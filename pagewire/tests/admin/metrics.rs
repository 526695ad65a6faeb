// SPDX-License-Identifier: MIT OR Apache-2.0
//! Metrics: requests from clients add no series, and the dashboard shows only existing series.
//! [`super::clients`] has them read by Prometheus.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::harness::answer::{Line, http};
use crate::harness::rtsp::{Control, Player};
use crate::{ask, serve, short_clip};

/// Returns a file of the packages.
pub(crate) fn packaging(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the repository")
        .join("packaging")
        .join(name)
}

/// Returns names with labels, without values.
fn series(text: &str) -> BTreeSet<String> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| line.rsplit_once(' ').expect("a value").0.to_owned()).collect()
}

#[test]
fn hostile_requests_add_no_series() {
    let server = serve(short_clip(), &[]);
    let before = series(&ask(&server, "GET", "/metrics", &[]).text());
    assert!(before.len() > 80, "{before:#?}");
    let mut line = Line::to(server.http);
    for number in 0..3000 {
        line.send(format!(
            "GET /made-up-{number}/{number}.ts?q={number} HTTP/1.1\r\nHost: host-{number}\r\n\
             User-Agent: agent-{number}\r\nReferer: http://{number}/\r\n\r\n"
        ));
        assert_eq!(line.answer().expect("an answer").status, 404);
    }
    for method in ["BREW", "POST", "OPTIONS", "TRACE"] {
        http(server.http, method, "/film.ts");
    }
    let mut control = Control::to(server.rtsp);
    for number in 0..50 {
        control.ask("DESCRIBE", &format!("made-up-{number}.ts"), &["User-Agent: a\"b\\n"]);
    }
    for number in 0..50 {
        ask(&server, "GET", &format!("/v1/made-up-{number}"), &[]);
    }
    let mut player = Player::set_up(server.rtsp, "film.ts");
    player.play();
    player.hear("media", |heard| heard.packets.len() > 10);
    let text = ask(&server, "GET", "/metrics", &[]).text();
    assert_eq!(series(&text), before);
    assert!(text.contains("pagewire_sessions{protocol=\"rtsp_udp\"} 1\n"), "{text}");
    let answers = text.lines().find_map(|line| {
        line.strip_prefix("pagewire_http_answers_total{status=\"4xx\"} ")?.parse::<u64>().ok()
    });
    assert!(answers >= Some(3000), "{text}");
    assert!(!text.contains("made-up") && !text.contains("film.ts") && !text.contains("127.0.0.1"));
    server.stop();
}

#[test]
fn dashboard_and_rules_name_metrics_that_exist() {
    let server = serve(short_clip(), &[]);
    let text = ask(&server, "GET", "/metrics", &[]).text();
    let known: BTreeSet<String> = series(&text)
        .into_iter()
        .map(|series| series.split('{').next().expect("a name").to_owned())
        .collect();
    let dashboard = std::fs::read_to_string(packaging("grafana/pagewire.json")).expect("a file");
    let parsed: Value = serde_json::from_str(&dashboard).expect("JSON");
    let panels = parsed["panels"].as_array().expect("panels");
    let mut expressions: Vec<String> = Vec::new();
    for panel in panels {
        for target in panel["targets"].as_array().expect("targets") {
            expressions.push(target["expr"].as_str().expect("text").to_owned());
        }
    }
    assert!(expressions.len() > 15, "{expressions:?}");
    let rules =
        std::fs::read_to_string(packaging("prometheus/pagewire.rules.yml")).expect("a file");
    let named = |text: &str| -> BTreeSet<String> {
        let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != ':');
        let is_metric = |word: &&str| {
            let is_ours = word.starts_with("pagewire_") || word.starts_with("process_");
            is_ours && !word.contains(':')
        };
        words.filter(is_metric).map(str::to_owned).collect()
    };
    let shown = expressions.iter().flat_map(|expression| named(expression));
    let missing: Vec<String> =
        shown.chain(named(&rules)).filter(|name| !known.contains(name)).collect();
    assert!(missing.is_empty(), "not among the metrics: {missing:?}");
    server.stop();
}
