// SPDX-License-Identifier: MIT OR Apache-2.0
//! Refuses requests that a web page of a third party makes a browser send.
//!
//! A browser that can reach this address is open to every page that its user visits. A page can
//! send it requests without reading the answers (cross-site request forgery). With a name whose
//! address it changes, it can read them, too (DNS rebinding). So a request must name a host that no
//! foreign name server answers for, must not have another origin, and, if it changes anything, must
//! have a field or type that no form can send.
//!
//! Sources: RFC 6454 §7 (Origin); W3C Fetch Metadata (Sec-Fetch-Site); the Fetch standard §2.2.2
//! (fields and types that need no preflight); RFC 9110 §7.2 (Host).
//! Does not authenticate the user ([`super::login`] does).

use std::net::IpAddr;

use wire::http::{Method, Request, RequestDetails};

/// Checks the origin of a request; `hosts` are the names of this server.
///
/// # Errors
/// Status and reason of the refusal.
pub(super) fn check(request: &Request, hosts: &[String]) -> Result<(), (u16, String)> {
    let none = RequestDetails::default();
    let details = request.details.as_deref().unwrap_or(&none);
    let authority = request.host.as_deref().unwrap_or_default();
    if !is_own_host(authority, hosts) {
        let shown: String = authority.chars().take(80).collect();
        return Err((
            421,
            format!(
                "host {shown:?} is no name of this server; open it by its address, or name \
                     the host with --admin-host"
            ),
        ));
    }
    let changes = !matches!(request.method, Method::Get | Method::Head);
    // Pages and files may be opened from other sites; answers of the API may not.
    if (changes || request.path.starts_with("/v1/")) && is_foreign(details, authority) {
        return Err((403, "a page of another site has made this request".to_owned()));
    }
    let is_json = |kind: &str| {
        let kind = kind.split(';').next().unwrap_or_default().trim();
        kind.eq_ignore_ascii_case("application/json")
    };
    let is_deliberate =
        details.own_fields == 1 || details.content_type.as_deref().is_some_and(is_json);
    if changes && !is_deliberate {
        return Err((
            403,
            "a request that changes something needs Content-Type: application/json or the field \
             X-Pagewire: 1"
                .to_owned(),
        ));
    }
    Ok(())
}

/// True if the fields that browsers add name another origin.
fn is_foreign(details: &RequestDetails, authority: &str) -> bool {
    let site = details.fetch_site.as_deref();
    let is_other_site = site.is_some_and(|site| !matches!(site, "same-origin" | "none"));
    let is_other_origin = details.origin.as_deref().is_some_and(|origin| {
        let own = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
        own.is_none_or(|own| !own.eq_ignore_ascii_case(authority))
    });
    is_other_site || is_other_origin
}

/// True for an IP address, `localhost`, and the names given: a foreign name server can answer for
/// any other.
fn is_own_host(authority: &str, hosts: &[String]) -> bool {
    let host = match authority.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => authority.split(':').next().unwrap_or_default(),
    };
    host.parse::<IpAddr>().is_ok()
        || host.eq_ignore_ascii_case("localhost")
        || hosts.iter().any(|own| own.eq_ignore_ascii_case(host))
}

#[cfg(test)]
mod tests {
    use wire::http::{Limits, RequestReader};

    use super::*;

    fn status(method: &str, path: &str, fields: &[&str]) -> u16 {
        let mut reader = RequestReader::new(Limits::default()).with_content();
        let fields: String = fields.iter().map(|field| format!("{field}\r\n")).collect();
        reader.feed(format!("{method} {path} HTTP/1.1\r\n{fields}\r\n").as_bytes());
        let request = reader.next().unwrap().unwrap();
        check(&request, &["media.example".to_owned()]).err().map_or(200, |refused| refused.0)
    }

    #[test]
    fn names_that_a_stranger_can_point_here_are_refused() {
        for host in
            ["127.0.0.1:9", "[::1]:9", "localhost", "LOCALHOST:1", "media.example:8", "192.0.2.1"]
        {
            assert_eq!(status("GET", "/", &[&format!("Host: {host}")]), 200, "{host}");
        }
        for host in
            ["evil.example", "localhost.evil.example", "127.0.0.1.nip.io", "media.example.", ""]
        {
            assert_eq!(status("GET", "/", &[&format!("Host: {host}")]), 421, "{host}");
        }
    }

    #[test]
    fn requests_of_other_sites_are_refused() {
        let host = "Host: 127.0.0.1:9";
        let json = "Content-Type: application/json";
        for (fields, expected) in [
            (&[host, json][..], 200),
            (&[host, "X-Pagewire: 1"], 200),
            (&[host, "X-Pagewire: 1", "Origin: http://127.0.0.1:9"], 200),
            (&[host, json, "Sec-Fetch-Site: same-origin"], 200),
            (&[host], 403),
            (&[host, "Content-Type: text/plain"], 403),
            (&[host, "Content-Type: text/plain; application/json"], 403),
            (&[host, json, "Origin: http://evil.example"], 403),
            (&[host, json, "Origin: http://127.0.0.1:8080"], 403),
            (&[host, json, "Origin: null"], 403),
            (&[host, json, "Sec-Fetch-Site: cross-site"], 403),
            (&[host, json, "Sec-Fetch-Site: same-site"], 403),
        ] {
            assert_eq!(status("DELETE", "/v1/sessions/rtsp-1", fields), expected, "{fields:?}");
        }
        let foreign = [host, "Sec-Fetch-Site: cross-site"];
        assert_eq!(status("GET", "/v1/status", &foreign), 403);
        assert_eq!(status("GET", "/", &foreign), 200, "a link to the page");
    }
}
