// SPDX-License-Identifier: MIT OR Apache-2.0
//! Servers that are compared, and the options with which each offers files, HTTPS and pacing.
//!
//! nginx has one worker and the settings of its documentation for files. `nginx_open_file_cache`
//! keeps files open, as pagewire does, and is the fair peer for small files.
//!
//! Sources: nginx.org/en/docs/http/ngx_http_core_module.html (sendfile, open_file_cache,
//! limit_rate), ngx_http_ssl_module.html.
//! Does not measure.

use std::path::Path;
use std::process::Command;

use crate::experiments::peers::clip::BITS_PER_SECOND;
use crate::experiments::peers::nginx::{self, Directives};
use crate::experiments::peers::pagewire;
use crate::experiments::peers::peer::{Peer, Running, Setting};
use crate::installed;
use measure::Error;

/// Service that a server is started for.
#[derive(Clone, Copy)]
pub(super) enum Service<'a> {
    /// Files over HTTP.
    Plain,
    /// The same over TLS 1.3 on [`HTTPS_PORT`], with `certificate.pem` and `key.pem` of a folder.
    Https(&'a Path),
    /// The clip, each connection at the clip's bit rate.
    Paced,
}

/// A server of the comparison.
pub(super) struct Server {
    pub(super) name: &'static str,
    /// The way in which it differs from the others.
    pub(super) differs: &'static str,
    /// The peer whose program it runs.
    pub(super) peer: &'static Peer,
    pub(super) start: fn(&Setting<'_>, Service<'_>) -> Result<Running, Error>,
    /// Reason why it is not measured for a service.
    pub(super) lacks: fn(Service<'_>) -> Option<String>,
}

/// All servers; ratios are to [`REFERENCE`].
pub(super) static SERVERS: &[Server] = &[
    Server {
        name: "pagewire",
        differs: "the installed server, downloads by its default path",
        peer: &pagewire::PEER,
        start: start_pagewire,
        lacks: |service| {
            let option = pagewire_option(service)?;
            let help = help_of_serve().unwrap_or_else(|error| error.to_string());
            let has = help.split_whitespace().any(|word| word == option);
            (!has).then(|| format!("pagewire serve --help has no {option}"))
        },
    },
    Server {
        name: REFERENCE,
        differs: nginx::PEER.differs,
        peer: &nginx::PEER,
        start: |setting, service| nginx::start(setting, &directives(service, "")),
        lacks: |_| None,
    },
    Server {
        name: "nginx_open_file_cache",
        differs: "the same with open_file_cache of 1000 files, looked at again after a second",
        peer: &nginx::PEER,
        start: |setting, service| nginx::start(setting, &directives(service, OPEN_FILE_CACHE)),
        lacks: |service| match service {
            Service::Plain => None,
            _ => Some("it differs from nginx in many short requests alone".to_owned()),
        },
    },
];

fn start_pagewire(setting: &Setting<'_>, service: Service<'_>) -> Result<Running, Error> {
    let mut more = Vec::new();
    match service {
        Service::Plain => {}
        Service::Https(folder) => {
            more.extend([HTTPS.to_owned(), format!("127.0.0.1:{HTTPS_PORT}")]);
            for (option, file) in [("--tls-cert", CERTIFICATE), ("--tls-key", KEY)] {
                more.extend([option.to_owned(), folder.join(file).display().to_string()]);
            }
        }
        Service::Paced => more.extend([HTTP_PACE.to_owned(), "1".to_owned()]),
    }
    await_https(pagewire::start(setting, &more)?, service)
}

/// Returns nginx's directives for a service.
fn directives(service: Service<'_>, http: &str) -> Directives {
    let server = match service {
        Service::Plain => String::new(),
        Service::Https(folder) => {
            let folder = folder.display();
            format!(
                "listen 127.0.0.1:{HTTPS_PORT} ssl; ssl_protocols TLSv1.3; \
                 ssl_certificate {folder}/{CERTIFICATE}; ssl_certificate_key {folder}/{KEY};"
            )
        }
        // A number without a unit is bytes a second.
        Service::Paced => format!("limit_rate {};", BITS_PER_SECOND / 8),
    };
    Directives { http: http.to_owned(), server }
}

fn await_https(mut running: Running, service: Service<'_>) -> Result<Running, Error> {
    if matches!(service, Service::Https(_)) {
        running.processes.await_port(&[HTTPS_PORT])?;
    }
    Ok(running)
}

/// Returns the option that pagewire must have for a service.
fn pagewire_option(service: Service<'_>) -> Option<&'static str> {
    match service {
        Service::Plain => None,
        Service::Https(_) => Some(HTTPS),
        Service::Paced => Some(HTTP_PACE),
    }
}

fn help_of_serve() -> Result<String, Error> {
    let output = Command::new(installed::pagewire()?).args(["serve", "--help"]).output();
    let output = output.map_err(Error::host("pagewire serve --help"))?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

pub(super) const REFERENCE: &str = "nginx";
pub(super) const HTTPS_PORT: u16 = 8443;
pub(super) const CERTIFICATE: &str = "certificate.pem";
pub(super) const KEY: &str = "key.pem";
const HTTPS: &str = "--https";
const HTTP_PACE: &str = "--http-pace";
const OPEN_FILE_CACHE: &str = "open_file_cache max=1000 inactive=60s; open_file_cache_valid 1s;";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_adds_its_directives_and_names_the_option_it_needs() {
        let of = |service| directives(service, OPEN_FILE_CACHE);
        assert_eq!(of(Service::Plain).server, "");
        assert!(of(Service::Plain).http.contains("open_file_cache"));
        assert_eq!(of(Service::Paced).server, "limit_rate 625000;");
        let https = of(Service::Https(Path::new("/made"))).server;
        assert!(https.contains("127.0.0.1:8443 ssl") && https.contains("/made/key.pem"), "{https}");
        assert_eq!(pagewire_option(Service::Plain), None);
        assert_eq!(pagewire_option(Service::Paced), Some("--http-pace"));
        assert!(SERVERS.iter().all(|server| (server.lacks)(Service::Plain).is_none()));
    }
}
