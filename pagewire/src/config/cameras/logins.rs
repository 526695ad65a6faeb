// SPDX-License-Identifier: MIT OR Apache-2.0
//! Logins of cameras: those of one server with the same settings share one, so that a password that
//! the server refuses is tried once and not by every camera of it.
//!
//! A fingerprint is for the server of its camera's URL, and so for all cameras of that server; `ca`
//! is for the others over TLS.
//!
//! Costs a reading of the files of credentials and certificates for each group of cameras with
//! other settings of logins.
//!
//! Does not read URLs ([`super::source`] does), nor answer challenges.

use std::collections::HashMap;
use std::ops::Range;
use std::path::PathBuf;

use client::{CertificateFingerprint, ClientLogin, RtspServer, without_userinfo};

use super::super::faults::{FAULTS_MAX, Faults};
use super::camera_key::CameraKey;
use super::camera_settings::{CameraSettings, place_of};
use super::source::{CameraSource, CameraTable};
use crate::login::LoginOptions;
use crate::server_trust::TrustOptions;

/// Table of a camera with its source.
pub(super) struct SourcedCamera {
    pub(super) table: CameraTable,
    pub(super) source: CameraSource,
}

/// Fingerprints of servers.
pub(super) type Pins = HashMap<RtspServer, CertificateFingerprint>;

/// Cameras whose logins have the same settings.
struct LoginGroup {
    credentials: Option<PathBuf>,
    allow_basic: bool,
    ca: Option<PathBuf>,
    /// Indices of the cameras.
    members: Vec<usize>,
}

/// Collects the fingerprints of servers; adds a fault where a server has two, or a file of
/// certificates besides.
pub(super) fn pins(faults: &mut Faults<'_>, cameras: &[SourcedCamera]) -> Pins {
    let mut pins = Pins::new();
    let mut names: HashMap<&RtspServer, &str> = HashMap::new();
    for SourcedCamera { table, source } in cameras {
        let server = source.server.as_ref().filter(|server| server.is_tls);
        let Some((own, server)) = table.own.fingerprint.as_ref().zip(server) else { continue };
        let pinned = *pins.entry(server.clone()).or_insert(own.value);
        let first = *names.entry(server).or_insert(&table.shown);
        if pinned != own.value {
            let fault = format!(
                "{first} has another for the same server, {server}; write that of its certificate \
                 in both, or leave one out"
            );
            table.refuse(faults, (CameraKey::Fingerprint, &own.place), &fault);
        }
    }
    for SourcedCamera { table, source } in cameras {
        let pinned = source.server.as_ref().filter(|server| pins.contains_key(server));
        if let Some((ca, server)) = table.own.ca.as_ref().zip(pinned) {
            let first = names[server];
            let fault = format!(
                "{first} has a fingerprint for the same server, {server}; leave one of the two out"
            );
            table.refuse(faults, (CameraKey::Ca, &ca.place), &fault);
        }
    }
    pins
}

/// Returns the URL without user and password, and the login, of each camera; adds the faults of the
/// files that are read for them.
pub(super) fn logins(
    faults: &mut Faults<'_>,
    cameras: &[SourcedCamera],
    top: &CameraSettings,
    pins: &Pins,
) -> Vec<(String, ClientLogin)> {
    let plain = |camera: &SourcedCamera| (camera.source.url.clone(), ClientLogin::default());
    let mut logins: Vec<_> = cameras.iter().map(plain).collect();
    // A file of credentials that several groups have is reported once.
    let mut found: Vec<(Option<Range<usize>>, String)> = Vec::new();
    for group in groups(cameras, top, pins) {
        match group.take_off(cameras, pins) {
            Ok(of_group) => {
                for (member, login) in group.members.iter().zip(of_group) {
                    logins[*member] = login;
                }
            }
            Err(of_group) => {
                let placed = of_group.iter().map(|fault| group.placed(fault, cameras, top));
                found.extend(placed);
            }
        }
    }
    let mut reported: Vec<&(Option<Range<usize>>, String)> = Vec::new();
    for fault in &found {
        if !reported.contains(&fault) {
            faults.add(fault.0.clone(), fault.1.clone());
            reported.push(fault);
        }
    }
    logins
}

/// Divides the cameras of RTSP servers by the settings of their logins.
fn groups(cameras: &[SourcedCamera], top: &CameraSettings, pins: &Pins) -> Vec<LoginGroup> {
    let mut groups: Vec<LoginGroup> = Vec::new();
    for (index, SourcedCamera { table: CameraTable { own, .. }, source }) in
        cameras.iter().enumerate()
    {
        let Some(server) = &source.server else { continue };
        let credentials = own.credentials.as_ref().or(top.credentials.as_ref());
        let credentials = credentials.map(|credentials| credentials.value.clone());
        let allow_basic = own.allow_basic.as_ref().or(top.allow_basic.as_ref());
        let allow_basic = allow_basic.is_some_and(|allow_basic| allow_basic.value);
        let ca = own.ca.as_ref().or(top.ca.as_ref());
        let ca = ca.filter(|_| server.is_tls && !pins.contains_key(server));
        let ca = ca.map(|ca| ca.value.clone());
        let is_same = |group: &&mut LoginGroup| {
            (&group.credentials, group.allow_basic, &group.ca) == (&credentials, allow_basic, &ca)
        };
        match groups.iter_mut().find(is_same) {
            Some(group) => group.members.push(index),
            None => {
                groups.push(LoginGroup { credentials, allow_basic, ca, members: vec![index] });
            }
        }
    }
    groups
}

impl LoginGroup {
    /// Returns the URL without user and password, and the login, of each member.
    ///
    /// # Errors
    /// The faults, in the words of the command line. Of URLs without a password all are returned.
    fn take_off(
        &self,
        cameras: &[SourcedCamera],
        pins: &Pins,
    ) -> Result<Vec<(String, ClientLogin)>, Vec<String>> {
        let mut urls: Vec<&str> =
            self.members.iter().map(|member| cameras[*member].source.url.as_str()).collect();
        let mut pinned: Vec<(RtspServer, CertificateFingerprint)> = Vec::new();
        for server in self.members.iter().filter_map(|at| cameras[*at].source.server.as_ref()) {
            if let Some(fingerprint) = pins.get(server)
                && !pinned.iter().any(|(of, _)| of == server)
            {
                pinned.push((server.clone(), *fingerprint));
            }
        }
        let mut faults: Vec<String> = Vec::new();
        while faults.len() < FAULTS_MAX {
            let servers: Vec<_> = urls.iter().filter_map(|url| client::rtsp_server(url)).collect();
            pinned.retain(|(server, _)| servers.contains(server));
            let trust = TrustOptions::new(self.ca.clone(), pinned.clone());
            let options = LoginOptions::new(self.credentials.clone(), self.allow_basic, trust);
            let mut plain: Vec<String> = urls.iter().map(|url| (*url).to_owned()).collect();
            let fault = match options.take_off(&mut plain) {
                Ok(logins) if faults.is_empty() => {
                    return Ok(plain.into_iter().zip(logins).collect());
                }
                Ok(_) => break,
                Err(fault) => fault,
            };
            // The next URL without a password is found without this one.
            let before = urls.len();
            if !fault.contains(OF_ENVIRONMENT) {
                urls.retain(|url| !is_of(&fault, url));
            }
            faults.push(fault);
            if urls.len() == before || urls.is_empty() {
                break;
            }
        }
        Err(faults)
    }

    /// Returns place and text of a fault, with keys in place of flags.
    fn placed(
        &self,
        fault: &str,
        cameras: &[SourcedCamera],
        top: &CameraSettings,
    ) -> (Option<Range<usize>>, String) {
        let fault = fault.replace(" of --credentials", " of credentials");
        let tables = self.members.iter().map(|member| &cameras[*member].table);
        for (flag, key, of) in FLAGS {
            let Some(rest) = fault.strip_prefix(flag) else { continue };
            let own = tables.clone().find_map(|table| Some((table, of(&table.own)?)));
            return match own {
                Some((table, place)) => (Some(place.clone()), key.fault(&table.shown, rest)),
                None => (of(top).cloned(), key.fault("", rest)),
            };
        }
        let mut members = self.members.iter().map(|member| &cameras[*member]);
        let of_url = members.clone().find(|camera| is_of(&fault, &camera.source.url));
        let camera = of_url.or_else(|| members.find(|camera| camera.source.is_tls()));
        match (camera, fault.strip_prefix(URL)) {
            (Some(camera), Some(rest)) => {
                let text = CameraKey::Url.fault(&camera.table.shown, rest);
                (Some(camera.source.place.clone()), text)
            }
            (Some(camera), None) => {
                (Some(camera.source.place.clone()), format!("{}: {fault}", camera.table.shown))
            }
            (None, _) => (None, fault),
        }
    }
}

/// True for a fault of this URL.
fn is_of(fault: &str, url: &str) -> bool {
    let rest = fault.strip_prefix(URL).and_then(|rest| rest.strip_prefix(&*without_userinfo(url)));
    rest.is_some_and(|rest| rest.starts_with("; "))
}

/// Returns the place of a setting.
type PlaceOf = fn(&CameraSettings) -> Option<&Range<usize>>;

/// Flags that a fault may begin with, and their keys.
const FLAGS: [(&str, CameraKey, PlaceOf); 2] = [
    ("--credentials ", CameraKey::Credentials, |settings| place_of(&settings.credentials)),
    ("--ca ", CameraKey::Ca, |settings| place_of(&settings.ca)),
];
/// Beginning of a fault of a URL.
const URL: &str = "URL: ";
/// Mark of a fault that all URLs without a user share.
const OF_ENVIRONMENT: &str = "; $";
