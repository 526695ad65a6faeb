// SPDX-License-Identifier: MIT OR Apache-2.0
//! A certificate for this host's names and addresses, signed by itself.
//!
//! It is kept in the cache folder, so that a user who has accepted it is not asked again at the
//! next start; without a cache folder each start makes one. A kept one is replaced when it expires
//! within [`RENEW`], or lacks a lasting name of the host. IPv6 addresses do not count as lasting:
//! temporary ones (RFC 8981) change daily.
//!
//! The file holds a private key: it has mode 0600, lies in a folder of mode 0700, and is not
//! trusted when it belongs to another user or others may touch it.
//!
//! Sources: RFC 5280; the CA/Browser Forum's limits on validity, which browsers apply.
//! Does not make an authority: no other certificate can be issued with the key.

use std::fs::{self, DirBuilder, File, Metadata};
use std::io::{self, ErrorKind, Write};
use std::net::{IpAddr, Ipv6Addr};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use jiff::tz::TimeZone;
use rcgen::{
    CertificateParams, DnType, ExtendedKeyUsagePurpose, KeyPair, KeyUsagePurpose, date_time_ymd,
};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::CertificateDer;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer;

use super::certificates::Certificate;
use super::validity::{Validity, unix_s};
use crate::error::Error;

/// Creates and stores self-signed certificates.
pub(super) struct SelfSigned {
    /// Folder that it is kept in.
    folder: Option<PathBuf>,
    /// Names of DNS and addresses, the most telling first.
    names: Vec<String>,
}

impl SelfSigned {
    pub(super) fn new(cache: Option<&Path>, names: Vec<String>) -> SelfSigned {
        SelfSigned { folder: cache.map(|cache| cache.join("tls")), names }
    }

    /// Returns the kept certificate if it can be used, otherwise a new one.
    pub(super) fn open(
        &self,
        provider: &CryptoProvider,
        now: SystemTime,
    ) -> Result<Certificate, Error> {
        match self.folder.as_deref().map(|folder| self.kept(folder, provider, now)) {
            Some(Ok(certificate)) => Ok(certificate),
            Some(Err(reason)) => {
                tracing::info!("self-signed certificate: {reason}; making a new one");
                self.make(provider, now)
            }
            None => {
                tracing::warn!(
                    "self-signed certificate: no cache folder; each start makes a new one"
                );
                self.make(provider, now)
            }
        }
    }

    /// Makes a certificate and keeps it; logs a warning if it cannot be kept.
    pub(super) fn make(
        &self,
        provider: &CryptoProvider,
        now: SystemTime,
    ) -> Result<Certificate, Error> {
        let refused = |error: rcgen::Error| Error::Host {
            call: "making",
            object: "a self-signed certificate".to_owned(),
            source: io::Error::other(error),
        };
        // ECDSA on P-256: every client has it, and a signature costs a twentieth of RSA's.
        let key = KeyPair::generate().map_err(refused)?;
        let params = self.params(now).map_err(refused)?;
        let made = params.self_signed(&key).map_err(refused)?;
        if let Some(folder) = &self.folder {
            let text = zeroize::Zeroizing::new(format!("{}{}", made.pem(), key.serialize_pem()));
            if let Err(error) = keep(folder, text.as_bytes()) {
                let folder = folder.display();
                tracing::warn!("{folder}: {error}; the next start makes a new certificate");
            }
        }
        let private = key.serialize_der().try_into().expect("PKCS#8 as rcgen writes it");
        let chain = vec![made.der().clone()];
        Ok(Certificate::new(chain, private, provider).expect("a certificate fits its own key"))
    }

    fn params(&self, now: SystemTime) -> Result<CertificateParams, rcgen::Error> {
        let mut params = CertificateParams::new(self.names.clone())?;
        let common = self.names.first().map_or("localhost", String::as_str);
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, common);
        params.distinguished_name.push(DnType::OrganizationName, "pagewire, self-signed");
        // A day of tolerance for clients whose clocks are behind.
        let (year, month, day) = date(unix_s(now) - DAY_S);
        params.not_before = date_time_ymd(year, month, day);
        let (year, month, day) = date(unix_s(now) + VALID.as_secs().cast_signed());
        params.not_after = date_time_ymd(year, month, day);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        Ok(params)
    }

    /// Reads the kept certificate; the error is the reason why it cannot be used.
    fn kept(
        &self,
        folder: &Path,
        provider: &CryptoProvider,
        now: SystemTime,
    ) -> Result<Certificate, String> {
        let path = folder.join(FILE);
        for part in [folder, &path] {
            // Links are not followed: nobody has a reason to put one here.
            let metadata = fs::symlink_metadata(part).map_err(|error| match error.kind() {
                ErrorKind::NotFound => "none kept yet".to_owned(),
                _ => format!("{}: {error}", part.display()),
            })?;
            if !is_private(&metadata) {
                return Err(format!("{}: others may touch it", part.display()));
            }
        }
        let certificate =
            Certificate::read(&path, &path, provider).map_err(|error| error.to_string())?;
        if is_due(certificate.validity, now) || certificate.validity.fault(now).is_some() {
            return Err("the kept one expires soon".to_owned());
        }
        let kept = subject_names(&certificate.key.cert[0]);
        let missing = self.names.iter().find(|name| is_lasting(name) && !kept.contains(name));
        match missing {
            Some(name) => Err(format!("the kept one lacks the name {name}")),
            None => Ok(certificate),
        }
    }
}

/// Returns true when a certificate should be replaced.
pub(super) fn is_due(validity: Validity, now: SystemTime) -> bool {
    unix_s(now) + RENEW.as_secs().cast_signed() > validity.not_after_s
}

/// Returns names by which clients reach this host: its host name, the same in mDNS, localhost, and
/// its addresses.
pub(super) fn host_names() -> Vec<String> {
    let mut names = Vec::new();
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = host.trim().to_ascii_lowercase();
    if is_dns_name(&host) && host != "localhost" {
        if !host.contains('.') {
            names.push(format!("{host}.local"));
        }
        names.insert(0, host);
    }
    names.push("localhost".to_owned());
    let mut addresses = paths::host_addresses();
    // A link-local address needs its device, which URLs cannot name.
    addresses.retain(|ip| match ip {
        IpAddr::V4(ip) => !ip.is_link_local(),
        IpAddr::V6(ip) => !ip.is_unicast_link_local(),
    });
    addresses.extend([IpAddr::from([127, 0, 0, 1]), Ipv6Addr::LOCALHOST.into()]);
    addresses.sort_by_key(|ip| (!ip.is_loopback(), ip.is_ipv6(), *ip));
    addresses.dedup();
    addresses.truncate(ADDRESSES_MAX);
    names.extend(addresses.iter().map(IpAddr::to_string));
    names
}

/// Returns false for addresses that come and go.
fn is_lasting(name: &str) -> bool {
    name.parse().map_or(true, |ip: IpAddr| ip.is_ipv4() || ip.is_loopback())
}

fn is_dns_name(text: &str) -> bool {
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    text.len() <= 253 && text.split('.').all(is_label)
}

/// Returns the names and addresses that a certificate is for.
pub(super) fn subject_names(certificate: &CertificateDer<'_>) -> Vec<String> {
    let Ok((_, parsed)) = X509Certificate::from_der(certificate) else { return Vec::new() };
    let Ok(Some(names)) = parsed.subject_alternative_name() else { return Vec::new() };
    let shown = |name: &GeneralName<'_>| match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        GeneralName::IPAddress(bytes) => {
            let four = <[u8; 4]>::try_from(*bytes).map(IpAddr::from);
            let address = four.or_else(|_| <[u8; 16]>::try_from(*bytes).map(IpAddr::from));
            address.ok().map(|ip| ip.to_string())
        }
        _ => None,
    };
    names.value.general_names.iter().filter_map(shown).collect()
}

/// Writes the file with a key under a temporary name that no other user can open, then renames it.
fn keep(folder: &Path, text: &[u8]) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    if !is_private(&fs::symlink_metadata(folder)?) {
        return Err(io::Error::other("others may touch this folder (chmod 700)"));
    }
    let temporary = folder.join(format!("{FILE}.{}.tmp", std::process::id()));
    // Left behind by a process that had this number and was killed.
    let _ = fs::remove_file(&temporary);
    let written = || -> io::Result<()> {
        let mut file = File::options().write(true).create_new(true).mode(0o600).open(&temporary)?;
        file.write_all(text)?;
        file.sync_data()?;
        fs::rename(&temporary, folder.join(FILE))
    };
    written().inspect_err(|_| {
        let _ = fs::remove_file(&temporary);
    })
}

/// Returns true for a file or folder of this user that nobody else may touch.
fn is_private(metadata: &Metadata) -> bool {
    let is_own = metadata.uid() == rustix::process::geteuid().as_raw();
    // A link has mode 0777.
    is_own && metadata.mode() & 0o077 == 0
}

/// Returns year, month and day of a time in UTC.
fn date(unix_s: i64) -> (i32, u8, u8) {
    let at = Timestamp::from_second(unix_s).unwrap_or(Timestamp::UNIX_EPOCH);
    let date = at.to_zoned(TimeZone::UTC).date();
    (date.year().into(), date.month().cast_unsigned(), date.day().cast_unsigned())
}

/// Name of the file in the cache.
const FILE: &str = "self-signed.pem";
const DAY_S: i64 = 86_400;
/// Validity: as short as that of public certificates, so that a lost key ends soon.
const VALID: Duration = Duration::from_secs(90 * 86_400);
/// Remaining validity at which a new one is made.
const RENEW: Duration = Duration::from_secs(30 * 86_400);
/// Most addresses in a certificate: a host with containers has dozens.
const ADDRESSES_MAX: usize = 64;
