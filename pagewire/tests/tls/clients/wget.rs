// SPDX-License-Identifier: MIT OR Apache-2.0
//! wget over HTTPS: it downloads a file, and requests only the missing part when it resumes.
//!
//! Sources: RFC 9110 §14 (ranges).

use std::fs;
use std::process::Command;

use crate::{TlsServer, assert_bytes, noise, run};

#[test]
fn wget_downloads_and_resumes() {
    let test = "clients::wget::wget_downloads_and_resumes";
    let bytes = noise(BYTES);
    let TlsServer { server, authority } = TlsServer::start(&[("a.bin", &bytes)]);
    let copy = server.place.top().join("copy.bin");
    fs::write(&copy, &bytes[..1_000_001]).expect("room for a file");
    let wget = |options: &[&str]| {
        let mut command = Command::new("wget");
        command.args(["-nv", "--tries=1", "--timeout=60"]).args(options);
        command.arg("--ca-certificate").arg(authority.root());
        command.arg("-O").arg(&copy).arg(server.https_url("a.bin"));
        run(test, &mut command).map(|outcome| outcome.succeeded())
    };
    // With -c it requests only the missing part.
    if wget(&["-c"]).is_none() {
        return;
    }
    assert_bytes(&fs::read(&copy).expect("wget wrote it"), &bytes);
    let sent = server.index()["server"]["bytes"].as_u64();
    assert!(sent < Some(BYTES as u64), "{sent:?} bytes sent");
    wget(&[]).expect("wget was there");
    assert_bytes(&fs::read(&copy).expect("wget wrote it"), &bytes);
    server.stop();
}

/// A size that is no multiple of any buffer.
const BYTES: usize = 3_000_017;
