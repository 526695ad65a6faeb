// SPDX-License-Identifier: MIT OR Apache-2.0
//! Chromium, without a window: it opens a page over HTTPS and gets the index and a film's bytes
//! over HTTP/2.
//!
//! The page reports to a port of the test, on loopback, which browsers allow to a page of HTTPS.

use std::net::TcpListener;
use std::time::Duration;

use crate::harness::Server;
use crate::harness::browser::Browser;
use crate::harness::page_report;
use crate::{TlsServer, noise};

#[test]
fn index_and_film_come_over_http2() {
    let test = "clients::chromium::index_and_film_come_over_http2";
    let film = noise(1_000_003);
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let report = listener.local_addr().expect("it is bound");
    let page = page(&report.to_string());
    let files = [("page.html", page.as_bytes()), ("film.bin", &film)];
    let TlsServer { server, .. } = TlsServer::start(&files);
    let Some(result) = browsed(test, &server, &listener) else { return };
    let sum = film.iter().fold(0_u32, |sum, byte| sum.wrapping_mul(31) + u32::from(*byte));
    assert_eq!(result, format!("200 2 files h2 200 {} {sum} h2", film.len()));
    server.stop();
}

/// Returns a page that fetches the index and the film and reports status, contents and protocol.
fn page(report: &str) -> String {
    format!(
        "<!doctype html><script>
        const tell = (what) => fetch('http://{report}/' + encodeURIComponent(what),
            {{mode: 'no-cors'}});
        const protocol = (name) => performance.getEntriesByType('resource')
            .find((entry) => entry.name.endsWith(name)).nextHopProtocol;
        (async () => {{
            const index = await fetch('/index.json');
            const files = (await index.json()).files.length;
            const film = await fetch('/film.bin');
            const bytes = new Uint8Array(await film.arrayBuffer());
            let sum = 0;
            for (const byte of bytes) sum = (Math.imul(sum, 31) + byte) >>> 0;
            tell(index.status + ' ' + files + ' files ' + protocol('/index.json') + ' ' +
                film.status + ' ' + bytes.length + ' ' + sum + ' ' + protocol('/film.bin'));
        }})().catch((error) => tell('error ' + error));
        </script>"
    )
}

/// Returns the first report of the page; `None`, with the reason printed, where there is no
/// Chromium.
fn browsed(test: &str, server: &Server, listener: &TcpListener) -> Option<String> {
    // A separate profile cannot trust an authority.
    let switches = ["--ignore-certificate-errors"];
    let browser = Browser::open(test, &server.https_url("page.html"), &switches)?;
    let report = page_report::report(listener, LIMIT);
    drop(browser);
    if report.is_none() {
        eprintln!("skip: {test}: chromium opened no page within {LIMIT:?}");
    }
    report
}

const LIMIT: Duration = Duration::from_secs(60);
