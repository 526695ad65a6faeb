// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pagewire config`: exit status and output of each verb, and a server that is configured entirely
//! by its file and environment.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use crate::harness::{PROGRAM, Place};

/// Runs `pagewire config` without the caller's variables.
fn config(arguments: &[&str], environment: &[(&str, &str)]) -> (i32, String, String) {
    let mut command = Command::new(PROGRAM);
    command.env_clear().arg("config").args(arguments).envs(environment.iter().copied());
    let Output { status, stdout, stderr } = command.output().expect("the program runs");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    (status.code().expect("it ended by itself"), text(stdout), text(stderr))
}

/// Writes the file of a place; returns its path.
fn written(place: &Place, text: &str) -> String {
    let path = place.top().join("pagewire.toml");
    fs::write(&path, text).expect("room for a file");
    path.to_str().expect("UTF-8").to_owned()
}

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("the test owns it");
}

#[test]
fn a_right_file_has_status_0_a_host_that_lacks_something_1_and_a_wrong_file_2() {
    let place = Place::new();
    let path = written(&place, "folder = \"media\"\nsession_timeout = 30\n");
    let (status, out, errors) = config(&["check", &path], &[]);
    assert_eq!((status, errors.as_str()), (0, ""), "{errors}");
    assert_eq!(out, format!("{path}: no fault\n"));

    // Two lists of faults: only that of the file is printed.
    let path = written(&place, "folder = \"nowhere\"\nburst = 0\nburts = 1\nsessions = \"many\"\n");
    let (status, _, errors) = config(&["check", &path], &[]);
    assert_eq!(status, 2, "{errors}");
    let expected = [
        format!("pagewire: {path}:3: burts: no such setting; write burst"),
        format!("pagewire: {path}:4: sessions = \"many\": a string; write a whole number"),
    ];
    assert_eq!(errors.lines().collect::<Vec<_>>(), expected);
    let path = written(&place, "folder = \"media\"\nburst = 201\n");
    let (status, _, errors) = config(&["check", &path], &[]);
    assert_eq!(status, 2, "{errors}");
    assert_eq!(errors, format!("pagewire: {path}:2: burst: 201 ms; write 1 to 200\n"));

    // Faults that a start would find before it opens anything.
    for (line, expected) in [
        ("rtp_port = \"5005\"", "rtp_port: 5005; RTP takes an even port"),
        ("rtp_port = \"5001-5002\"", "rtp_port: 5001-5002; a range holds at least one even port"),
        ("path = [\"teleport\"]", "path: teleport; write auto, or one of "),
    ] {
        let path = written(&place, &format!("folder = \"media\"\n{line}\n"));
        let (status, _, errors) = config(&["check", &path], &[]);
        let expected = format!("pagewire: {path}:2: {expected}");
        assert!(status == 2 && errors.starts_with(&expected), "{status}: {errors}");
    }
    let path = written(&place, "folder = \"media\"\nuser = \"no-such-user\"\n");
    let (status, _, errors) = config(&["check", &path], &[]);
    let expected = format!("pagewire: {path}:2: user: no-such-user: no such user in /etc/passwd");
    assert!(status == 1 && errors.starts_with(&expected), "{status}: {errors}");

    fs::write(place.top().join("cert.pem"), "no certificate").expect("room");
    fs::write(place.top().join("key.pem"), "no key").expect("room");
    mode(&place.top().join("key.pem"), 0o644);
    let text = "folder = \"nowhere\"\nhttps = \"127.0.0.1:0\"\ntls_cert = \"cert.pem\"\n\
                tls_key = \"key.pem\"\nkeys = \"cert.pem\"\nkey_token_file = \"media\"\n";
    let path = written(&place, text);
    let (status, _, errors) = config(&["check", &path], &[]);
    assert_eq!(status, 1, "{errors}");
    let at = |line: u32| format!("pagewire: {path}:{line}: ");
    let top = place.top().display();
    for (line, expected) in [
        (1, format!("folder = {top}/nowhere: no such folder; make it (mkdir -p {top}/nowhere)")),
        (4, format!("tls_key = {top}/key.pem: a secret that every user of this host can use")),
        (5, format!("keys = {top}/cert.pem: a file; name the folder that it lies in")),
        (6, format!("key_token_file = {top}/media: a folder; name a file in it")),
    ] {
        let expected = format!("{}{expected}", at(line));
        assert!(errors.lines().any(|line| line.starts_with(&expected)), "{expected}: {errors}");
    }
    assert_eq!(errors.lines().count(), 4, "{errors}");

    mode(&place.top().join("key.pem"), 0o600);
    let path = written(
        &place,
        "folder = \"media\"\nhttps = \"127.0.0.1:0\"\ntls_cert = \"cert.pem\"\n\
         tls_key = \"key.pem\"\n",
    );
    let (status, _, errors) = config(&["check", &path], &[]);
    assert_eq!(status, 1, "{errors}");
    let expected = format!("pagewire: {path}:3: tls_cert: ");
    assert!(errors.starts_with(&expected) && errors.lines().count() == 1, "{errors}");
}

#[test]
fn settings_are_shown_with_their_origin_and_read_back() {
    let place = Place::new();
    let path = written(
        &place,
        "folder = \"media\"\nburst = 9\n[channel.news]\nplaylist = [\"a.ts\"]\nrtsp = true\n",
    );
    let environment = [("PAGEWIRE_HTTP", "127.0.0.1:99"), ("PAGEWIRE_CONFIG", path.as_str())];
    let (status, shown, errors) = config(&["show", "--pacers", "2"], &environment);
    assert_eq!(status, 0, "{errors}");
    for line in [
        format!("burst = 9  # {path}:2"),
        "http = \"127.0.0.1:99\"  # environment PAGEWIRE_HTTP".to_owned(),
        "pacers = 2  # command line".to_owned(),
        "rtsp = \"127.0.0.1:8554\"  # default".to_owned(),
        "# https is not set".to_owned(),
        "[channel.news]".to_owned(),
    ] {
        assert!(shown.lines().any(|found| found == line), "{line}: {shown}");
    }
    let again = place.top().join("again.toml");
    fs::write(&again, &shown).expect("room for a file");
    let (status, second, errors) = config(&["show", "--config", again.to_str().unwrap()], &[]);
    assert_eq!(status, 0, "{errors}");
    let plain = |text: &str| -> Vec<String> {
        text.lines().map(|line| line.split("  # ").next().unwrap().to_owned()).collect()
    };
    assert_eq!(plain(&second), plain(&shown));

    let (status, json, errors) = config(&["show", "--json", "--burst", "3", "."], &environment);
    assert_eq!(status, 0, "{errors}");
    let json: Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(json["settings"]["burst"], serde_json::json!({"value": 3, "from": "command line"}));
    assert_eq!(json["settings"]["http"]["variable"], "PAGEWIRE_HTTP");
    assert_eq!(json["settings"]["sessions"]["value"], Value::Null);
    assert_eq!(json["channels"], serde_json::json!(["news"]));
    let address = "https://auth.example/may?token=abc";
    let (status, shown, errors) = config(&["show", "--auth-url", address], &[]);
    assert_eq!(status, 0, "{errors}");
    let hidden = "# auth_url = a secret  # command line";
    assert!(shown.lines().any(|line| line == hidden) && !shown.contains("abc"), "{shown}");
    let (status, _, errors) = config(&["show", "--brst", "3"], &[]);
    assert_eq!(status, 2, "{errors}");
}

#[test]
fn schema_and_example_are_printed() {
    let (status, schema, _) = config(&["schema"], &[]);
    assert_eq!(status, 0);
    let schema: Value = serde_json::from_str(&schema).expect("JSON");
    assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
    let (status, example, _) = config(&["example"], &[]);
    assert_eq!(status, 0);
    let place = Place::new();
    let path = written(&place, &example.replace("/srv/media", "media"));
    let (status, _, errors) = config(&["check", &path], &[]);
    assert_eq!(status, 0, "{errors}");
}
