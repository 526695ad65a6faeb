// SPDX-License-Identifier: MIT OR Apache-2.0
//! The source of a camera: its address or session description, and the settings that fit it.
//!
//! A default at the top is for the cameras that it fits; a camera's own setting that does not fit
//! is a fault.
//!
//! Does not read passwords ([`super::logins`] does), and does not connect.

use std::ops::Range;

use client::{RecordedMedia, RtspServer, TransportChoice, check_transport};
use receive::{Error, SDP_SCHEME, StreamSource};

use super::super::faults::Faults;
use super::camera_key::CameraKey;
use super::camera_settings::{CameraSettings, Placed, place_of, shown};
use crate::login::{UrlParts, is_rtsp};

/// Table of a camera.
pub(super) struct CameraTable {
    pub(super) name: String,
    /// `camera.NAME` in messages.
    pub(super) shown: String,
    /// Place of the name.
    pub(super) place: Range<usize>,
    pub(super) own: CameraSettings,
}

/// Source of a camera.
pub(super) struct CameraSource {
    /// URL as written, with user and password, or [`SDP_SCHEME`] and a path.
    pub(super) url: String,
    /// Place of the URL or path.
    pub(super) place: Range<usize>,
    /// Server of an `rtsp:` or `rtsps:` URL.
    pub(super) server: Option<RtspServer>,
    pub(super) has_password: bool,
    /// True where a transport stream arrives at a port.
    pub(super) is_udp: bool,
}

impl CameraSource {
    /// True for a server over TLS.
    pub(super) fn is_tls(&self) -> bool {
        self.server.as_ref().is_some_and(|server| server.is_tls)
    }
}

impl CameraTable {
    /// Adds a fault of a setting.
    pub(super) fn refuse(
        &self,
        faults: &mut Faults<'_>,
        (key, place): (CameraKey, &Range<usize>),
        fault: &str,
    ) {
        faults.add(Some(place.clone()), key.fault(&self.shown, fault));
    }

    /// Returns the source; none after a fault.
    pub(super) fn source(&self, faults: &mut Faults<'_>) -> Option<CameraSource> {
        let own = &self.own;
        match (&own.url, &own.sdp) {
            (Some(url), Some(sdp)) => {
                let fault = "beside url; leave one of the two out";
                self.refuse(faults, (CameraKey::Sdp, &sdp.place), fault);
                self.of_url(faults, url)
            }
            (Some(url), None) => self.of_url(faults, url),
            (None, Some(sdp)) => Some(CameraSource {
                url: format!("{SDP_SCHEME}{}", sdp.value.display()),
                place: sdp.place.clone(),
                server: None,
                has_password: false,
                is_udp: false,
            }),
            (None, None) => {
                if !own.may_have(&[CameraKey::Url, CameraKey::Sdp]) {
                    let fault = "missing; write url = \"rtsp://HOST/PATH\", or sdp = \"FILE\"";
                    self.refuse(faults, (CameraKey::Url, &self.place), fault);
                }
                None
            }
        }
    }

    fn of_url(&self, faults: &mut Faults<'_>, url: &Placed<String>) -> Option<CameraSource> {
        let Placed { value, place } = url;
        match parse(value) {
            Ok(source) => Some(CameraSource { place: place.clone(), ..source }),
            Err(fault) => {
                self.refuse(faults, (CameraKey::Url, place), &fault);
                None
            }
        }
    }

    /// Adds faults of settings that do not fit the source.
    pub(super) fn check_fit(
        &self,
        faults: &mut Faults<'_>,
        source: &CameraSource,
        top: &CameraSettings,
    ) {
        let own = &self.own;
        if let Some(form) = own.is_mp4.as_ref().filter(|form| source.is_udp && form.value) {
            let fault = "mp4: it sends a transport stream, which is recorded as it is; write form \
                         = \"ts\", or leave it out";
            self.refuse(faults, (CameraKey::Form, &form.place), fault);
        }
        // Also a default: the sound that it leaves out would be recorded.
        let media = own.media.as_ref().or(top.media.as_ref()).map(|media| media.value);
        if let Some(media) = media.filter(|media| source.is_udp && *media != RecordedMedia::All) {
            let place = place_of(&own.media).unwrap_or(&source.place);
            let fault = format!(
                "{media}: it sends a transport stream, which is recorded as it is, with all that \
                 is in it; write tracks = \"all\" if that is meant"
            );
            self.refuse(faults, (CameraKey::Tracks, place), &fault);
        }
        let of_rtsp = [
            (CameraKey::Transport, place_of(&own.transport)),
            (CameraKey::Credentials, place_of(&own.credentials)),
            (CameraKey::AllowBasic, place_of(&own.allow_basic)),
        ];
        for (key, place) in of_rtsp {
            if let Some(place) = place.filter(|_| source.server.is_none()) {
                let fault = "it is for RTSP; leave it out, or write an rtsp:// address";
                self.refuse(faults, (key, place), fault);
            }
        }
        let of_tls = [
            (CameraKey::Ca, place_of(&own.ca)),
            (CameraKey::Fingerprint, place_of(&own.fingerprint)),
        ];
        for (key, place) in of_tls {
            if let Some(place) = place.filter(|_| !source.is_tls()) {
                let fault = "no server with TLS; leave it out, or write an rtsps:// address";
                self.refuse(faults, (key, place), fault);
            }
        }
        self.check_transport(faults, source, top);
    }

    /// Adds a fault of a transport, also of a default, that would carry media past TLS.
    fn check_transport(
        &self,
        faults: &mut Faults<'_>,
        source: &CameraSource,
        top: &CameraSettings,
    ) {
        let choice = self.transport(source, top);
        let checked = check_transport(&source.url, choice.first(&source.url));
        if let Err(client::Error::Setting { found, cure, .. }) = checked {
            let place = place_of(&self.own.transport).unwrap_or(&source.place);
            self.refuse(faults, (CameraKey::Transport, place), &format!("{found}; {cure}"));
        }
    }

    /// Returns the transport that an RTSP server is asked for.
    pub(super) fn transport(&self, source: &CameraSource, top: &CameraSettings) -> TransportChoice {
        let choice = self.own.transport.as_ref().or(top.transport.as_ref());
        let choice = choice.filter(|_| source.server.is_some());
        choice.map_or(TransportChoice::Auto, |choice| choice.value)
    }
}

/// Parses a URL; a fault repeats no password.
fn parse(url: &str) -> Result<CameraSource, String> {
    if url.starts_with(SDP_SCHEME) {
        return Err(format!("{}; write sdp = \"FILE\" for a session description", shown(url)));
    }
    let mut source = CameraSource {
        url: url.to_owned(),
        place: 0..0,
        server: None,
        has_password: false,
        is_udp: false,
    };
    let mut plain = url.to_owned();
    if is_rtsp(url) {
        let parts = UrlParts::of(url);
        let parts = parts.map_err(|fault| fault.trim_start_matches("URL: ").to_owned())?;
        source.has_password = parts.userinfo.is_some_and(|userinfo| userinfo.password.is_some());
        source.server = Some(parts.server);
        plain = parts.plain;
    }
    match StreamSource::parse(&plain) {
        Ok(parsed) => {
            source.is_udp = matches!(parsed, StreamSource::Udp(_));
            Ok(source)
        }
        Err(Error::Setting { found, cure, .. }) => Err(format!("{found}; {cure}")),
        Err(other) => Err(other.to_string()),
    }
}
