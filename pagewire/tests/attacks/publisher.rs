// SPDX-License-Identifier: MIT OR Apache-2.0
//! A hostile publisher: a user who may put files into the served folder chooses names that forge
//! lines of the log, and links that lead to hidden files.
//!
//! Sources: ECMA-48 §5 (control sequences of a terminal).

use std::os::unix::fs::symlink;

use crate::harness::answer::http;
use crate::harness::rtsp::Control;
use crate::{beside_canary, serve};

/// A file that is not a stream is named in the log, because its extension promises one.
#[test]
fn names_of_files_forge_no_line_of_the_log() {
    let forged = "2026-01-01T00:00:00Z  INFO stopped: 0 sessions served\u{1b}[2K\u{9b}1A";
    let name = format!("a\n{forged}\r\u{202e}.ts");
    let server = serve(&[(&name, b"no transport stream")], &[]);
    // The name reaches the log twice: as a refused file and in a request for it.
    server.await_log("not streamed");
    let encoded: String = name.bytes().map(|byte| format!("%{byte:02x}")).collect();
    assert_eq!(Control::to(server.rtsp).ask("DESCRIBE", &encoded, &[]).status, 415);
    assert_eq!(http(server.http, "GET", &format!("/{encoded}")).status, 200);
    let log = server.stop();
    let is_forged = |line: &str| line.trim_start().starts_with("2026-01-01T00:00:00Z");
    assert!(!log.lines().any(is_forged), "{log}");
    let is_order = |c: char| c != '\n' && (c.is_control() || c == '\u{202e}');
    assert!(!log.chars().any(is_order), "{log:?}");
    assert!(log.contains("a\\n2026-01-01") && log.contains("\\u001b[2K\\u009b1A\\r\\u202e.ts"));
}

/// Directly to a hidden file, through a hidden folder, through another link, and through a hidden
/// folder back to a visible file.
#[test]
fn links_to_hidden_names_are_neither_served_nor_listed() {
    let server = serve(&[("visible.bin", b"visible"), (".secret/key.ts", b"hidden")], &[]);
    let folder = server.folder();
    let links = [
        ("file.ts", ".secret/key.ts"),
        ("folder", ".secret"),
        ("twice.ts", "file.ts"),
        ("deep.ts", "./.secret/../.secret/key.ts"),
        ("around.bin", ".secret/../visible.bin"),
    ];
    for (name, target) in links {
        symlink(target, folder.join(name)).expect("a link");
    }
    // Listed after the links were created, so all listed links are listed by then.
    symlink("visible.bin", folder.join("zz-allowed.bin")).expect("a link");
    let named = |index: &serde_json::Value, name: &str| {
        index["files"].as_array().expect("rows").iter().any(|row| row["name"] == name)
    };
    beside_canary(&server, || {
        let index = server.await_index("the last is listed", |i| named(i, "zz-allowed.bin"));
        for name in ["file.ts", "folder/key.ts", "twice.ts", "deep.ts", "around.bin"] {
            let answer = http(server.http, "GET", &format!("/{name}"));
            assert_eq!(answer.status, 404, "{name}: {answer:?}");
            let described = Control::to(server.rtsp).ask("DESCRIBE", name, &[]);
            assert_eq!(described.status, 404, "{name}: {described:?}");
            assert!(!named(&index, name), "{name} is listed");
        }
        assert_eq!(http(server.http, "GET", "/zz-allowed.bin").text(), "visible");
    });
}
