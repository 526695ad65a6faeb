// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors of a server in the words of its command line.
//!
//! Does not print them.

use serve::{Error, Setting};

/// Returns the flag of a setting.
fn flag(setting: Setting) -> &'static str {
    match setting {
        Setting::Rtsp => "--rtsp",
        Setting::Http => "--http",
        Setting::Https => "--https",
        Setting::Rtsps => "--rtsps",
        Setting::TlsCert => "--tls-cert",
        Setting::TlsKey => "--tls-key",
        Setting::TlsSelfSigned => "--tls-self-signed",
        Setting::MediaPorts => "--rtp-port",
        Setting::Burst => "--burst",
        Setting::Pacing => "--pacing",
        Setting::Paths => "--path",
        Setting::Admin => "--admin",
        Setting::AccessLog => "--access-log",
        Setting::Pacers => "--pacers",
        Setting::Keys => "--keys",
        Setting::KeyTokens => "--key-token-file",
        Setting::AllowOrigins => "--allow-origin",
        Setting::Channels => "--config",
        Setting::HttpPace => "--http-pace",
        Setting::HttpRatePerConnection => "--http-rate-per-connection",
        Setting::HttpRatePerAddress => "--http-rate-per-address",
        Setting::HttpRate => "--http-rate",
        Setting::Rate => "--rate",
        Setting::RatePerUser => "--rate-per-user",
        Setting::AdmitLoad => "--admit-load",
        _ => "an option",
    }
}

/// Returns the text of an error with the flags that cure it.
pub(crate) fn with_flag(error: &Error) -> String {
    match error {
        Error::Setting { setting: Setting::Keys, found, cure }
            if cure.ends_with("sealing wrote") =>
        {
            format!("--keys: {found}; name the folder that seal hls --keys wrote")
        }
        Error::Setting { setting, found, cure } => format!("{}: {found}; {cure}", flag(*setting)),
        Error::NoImages { path } => {
            format!(
                "--path: {path}; it sends wire images, which --cache-size 0 forbids; write a size"
            )
        }
        Error::Listen { setting: Setting::MediaPorts, .. } => {
            format!("{error}; write --rtp-port with a free even port, or 0 to have one picked")
        }
        Error::Listen { setting, address, source } => format!(
            "{} {address}: {source}; stop what listens there, or write another address (port 0 \
             picks a free one)",
            flag(*setting)
        ),
        error => error.to_string(),
    }
}
