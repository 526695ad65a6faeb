// SPDX-License-Identifier: MIT OR Apache-2.0
//! Prometheus of Debian reads the metrics in both formats, and loads the rules of alerts.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::harness::answer::Line;
use crate::metrics::packaging;
use crate::{WAIT, ask, serve, short_clip};

#[test]
fn promtool_finds_no_fault_in_metrics_and_rules() {
    if !has("promtool") {
        return;
    }
    let server = serve(short_clip(), &[]);
    let metrics = ask(&server, "GET", "/metrics", &[]);
    let kind = metrics.header("Content-Type").expect("a type");
    assert!(kind.starts_with("text/plain; version=0.0.4"), "{kind}");
    let file = server.place.top().join("metrics");
    std::fs::write(&file, metrics.body).expect("a file");
    let input = std::fs::File::open(&file).expect("a file");
    promtool(Command::new("promtool").args(["check", "metrics"]).stdin(input));
    promtool(
        Command::new("promtool")
            .args(["check", "rules"])
            .arg(packaging("prometheus/pagewire.rules.yml")),
    );
    let tests = packaging("prometheus/pagewire.rules.test.yml");
    promtool(Command::new("promtool").args(["test", "rules"]).arg(tests));
    server.stop();
}

#[track_caller]
fn promtool(command: &mut Command) {
    let output = command.output().expect("promtool runs");
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {text}");
}

/// True when a program is installed; prints a line otherwise.
fn has(program: &str) -> bool {
    let mut command = Command::new(program);
    command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
    let is_there = command.status().is_ok();
    if !is_there {
        eprintln!("skip: admin: {program} is not installed");
    }
    is_there
}

#[test]
fn prometheus_scrapes_both_formats_and_loads_the_rules() {
    if !has("prometheus") {
        return;
    }
    let server = serve(short_clip(), &[]);
    let admin = server.admin.expect("it listens");
    let open = ask(&server, "GET", "/metrics", &["Accept: application/openmetrics-text"]);
    assert!(open.header("Content-Type").is_some_and(|kind| kind.contains("openmetrics")));
    assert!(open.text().ends_with("# EOF\n"), "{open:?}");
    let config = server.place.top().join("prometheus.yml");
    let rules = packaging("prometheus/pagewire.rules.yml");
    let text = format!(
        "global: {{scrape_interval: 1s, evaluation_interval: 1s}}\n\
         rule_files: [\"{}\"]\n\
         scrape_configs: [{{job_name: pagewire, static_configs: [{{targets: [\"{admin}\"]}}]}}]\n",
        rules.display()
    );
    std::fs::write(&config, text).expect("a file");
    let mut prometheus = Command::new("prometheus")
        .arg(format!("--config.file={}", config.display()))
        .arg(format!("--storage.tsdb.path={}", server.place.top().join("tsdb").display()))
        .arg("--web.listen-address=127.0.0.1:0")
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("Prometheus starts");
    let log = BufReader::new(prometheus.stderr.take().expect("it is piped"));
    let mut lines = log.lines().map_while(Result::ok);
    let address = lines.find_map(|line| {
        let behind = line.split_once("Listening on\" address=")?.1;
        behind.split_whitespace().next()?.parse::<SocketAddr>().ok()
    });
    let address = address.expect("Prometheus says where it listens");
    // Reads to the end, so that the program never blocks on its output.
    thread::spawn(move || lines.for_each(drop));
    let query = |what: &str| -> Value {
        // Over HTTP/1.0, which has no chunked encoding.
        let mut line = Line::to(address);
        line.send(format!("GET {what} HTTP/1.0\r\nHost: {address}\r\n\r\n"));
        let answer = String::from_utf8(line.rest(WAIT).0).expect("JSON is UTF-8");
        let body = answer.split_once("\r\n\r\n").expect("a head and a body").1;
        serde_json::from_str(body).unwrap_or_default()
    };
    let deadline = Instant::now() + WAIT;
    let value = |name: &str| {
        let found = query(&format!("/api/v1/query?query={name}"));
        found["data"]["result"][0]["value"][1].as_str().map(str::to_owned)
    };
    while value("up").as_deref() != Some("1") {
        assert!(Instant::now() < deadline, "{}", query("/api/v1/targets"));
        thread::sleep(Duration::from_millis(200));
    }
    assert_eq!(value("pagewire_ready").as_deref(), Some("1"));
    let rules = query("/api/v1/rules");
    let groups = rules["data"]["groups"].as_array().expect("groups");
    let all: Vec<&Value> =
        groups.iter().flat_map(|g| g["rules"].as_array().expect("rules")).collect();
    assert!(all.len() > 10, "{rules:#}");
    assert!(all.iter().all(|rule| rule["lastError"].is_null()), "{rules:#}");
    prometheus.kill().expect("it runs");
    prometheus.wait().expect("it ends");
    server.stop();
}
