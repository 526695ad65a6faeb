// SPDX-License-Identifier: MIT OR Apache-2.0
//! Every address of the administrator's listener, in one list.
//!
//! A test compares the list with `docs/openapi.json`, which is served as it stands.
//!
//! Sources: RFC 9110 §15.5.6 (405 names the methods).
//! Does not answer.

use wire::http::Method;

/// Operation of an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operation {
    Page,
    Health,
    Readiness,
    Metrics,
    Description,
    Login,
    Logout,
    Status,
    Sessions,
    EndSession,
    Trace,
    History,
    Channels,
    Assets,
    Reload,
}

/// An address.
pub(super) struct Route {
    pub(super) method: &'static str,
    /// `{id}` matches one part of a path.
    pub(super) path: &'static str,
    pub(super) operation: Operation,
    /// True if an administrator has to be logged in.
    pub(super) is_closed: bool,
    /// One line of description.
    pub(super) summary: &'static str,
}

/// All addresses. Metrics and health are open to all clients that reach the listener: they name no
/// user, address or file.
pub(super) static ROUTES: &[Route] = &[
    open("GET", "/", Operation::Page, "this page"),
    open("GET", "/healthz", Operation::Health, "200 while the process lives"),
    open("GET", "/readyz", Operation::Readiness, "200 while it can serve, else 503 with reasons"),
    open("GET", "/metrics", Operation::Metrics, "metrics for Prometheus"),
    open("GET", "/openapi.json", Operation::Description, "description of this API"),
    open("POST", "/v1/login", Operation::Login, "logs an administrator in"),
    closed("POST", "/v1/logout", Operation::Logout, "ends a login"),
    closed("GET", "/v1/status", Operation::Status, "version, load, capacity left"),
    closed("GET", "/v1/sessions", Operation::Sessions, "sessions, and why one is slow"),
    closed("DELETE", "/v1/sessions/{id}", Operation::EndSession, "ends a session"),
    closed("GET", "/v1/sessions/{id}/trace", Operation::Trace, "due and sent times of its packets"),
    closed("GET", "/v1/history", Operation::History, "the last hour"),
    closed("GET", "/v1/channels", Operation::Channels, "channels and what they play"),
    closed("GET", "/v1/assets", Operation::Assets, "files, as /index.json of the server"),
    closed("POST", "/v1/reload", Operation::Reload, "reads the configuration again"),
];

const fn open(
    method: &'static str,
    path: &'static str,
    operation: Operation,
    summary: &'static str,
) -> Route {
    Route { method, path, operation, is_closed: false, summary }
}

const fn closed(
    method: &'static str,
    path: &'static str,
    operation: Operation,
    summary: &'static str,
) -> Route {
    Route { method, path, operation, is_closed: true, summary }
}

/// Result of a look-up.
pub(super) enum Found<'a> {
    /// The address, and the part that `{id}` matches.
    Route(&'static Route, &'a str),
    /// The address has other methods.
    OtherMethod(String),
    Missing,
}

/// Finds the address that a request names.
pub(super) fn find<'a>(method: &Method, path: &'a str) -> Found<'a> {
    let name = match method {
        Method::Get | Method::Head => "GET",
        Method::Options => "OPTIONS",
        Method::Other(name) => name,
    };
    let mut others = Vec::new();
    for route in ROUTES {
        let Some(id) = matched(route.path, path) else { continue };
        if route.method == name {
            return Found::Route(route, id);
        }
        others.push(if route.method == "GET" { "GET, HEAD" } else { route.method });
    }
    match others.is_empty() {
        true => Found::Missing,
        false => Found::OtherMethod(others.join(", ")),
    }
}

/// Returns the part that `{id}` matches, empty if the pattern has none.
fn matched<'a>(pattern: &str, path: &'a str) -> Option<&'a str> {
    let Some((before, behind)) = pattern.split_once("{id}") else {
        return (pattern == path).then_some("");
    };
    let id = path.strip_prefix(before)?.strip_suffix(behind)?;
    (!id.is_empty() && !id.contains('/')).then_some(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_found_by_method_and_path() {
        let found = |method: Method, path: &'static str| match find(&method, path) {
            Found::Route(route, id) => format!("{:?} {id}", route.operation),
            Found::OtherMethod(allow) => format!("405 {allow}"),
            Found::Missing => "404".to_owned(),
        };
        let delete = || Method::Other("DELETE".to_owned());
        assert_eq!(found(Method::Head, "/v1/status"), "Status ");
        assert_eq!(found(delete(), "/v1/sessions/rtsp-1"), "EndSession rtsp-1");
        assert_eq!(found(Method::Get, "/v1/sessions/rtsp-1/trace"), "Trace rtsp-1");
        assert_eq!(found(Method::Get, "/v1/sessions/rtsp-1"), "405 DELETE");
        assert_eq!(found(delete(), "/v1/sessions"), "405 GET, HEAD");
        for missing in ["/v1/sessions/", "/v1/sessions/a/b", "/v1", "/metrics/", "//"] {
            assert_eq!(found(Method::Get, missing), "404", "{missing}");
        }
    }

    #[test]
    fn description_has_every_address_and_no_other() {
        let text = super::super::DESCRIPTION;
        let api: serde_json::Value = serde_json::from_str(text).expect("JSON");
        assert!(api["openapi"].as_str().is_some_and(|version| version.starts_with("3.1.")));
        let mut described = Vec::new();
        for (path, item) in api["paths"].as_object().expect("paths") {
            for (method, operation) in item.as_object().expect("an object") {
                if method == "parameters" {
                    continue;
                }
                described.push(format!("{} {path}", method.to_uppercase()));
                let answers = operation["responses"].as_object().expect("answers");
                assert!(!answers.is_empty(), "{method} {path}");
                let route =
                    ROUTES.iter().find(|r| r.path == path && r.method == method.to_uppercase());
                let is_closed = route.is_some_and(|route| route.is_closed);
                assert_eq!(answers.contains_key("401"), is_closed || path == "/v1/login", "{path}");
            }
        }
        let mut listed: Vec<_> =
            ROUTES.iter().map(|r| format!("{} {}", r.method, r.path)).collect();
        described.sort();
        listed.sort();
        assert_eq!(described, listed);
    }
}
