// SPDX-License-Identifier: MIT OR Apache-2.0
//! Options for the trust in servers of `rtsps:`, and the trust in each.
//!
//! A fingerprint without a server is for the only one: with several a camera could answer in the
//! place of another.
//!
//! Does not verify certificates (`client::ServerTrust` does).

use std::fs::File;
use std::io::Read;
use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;
use client::{CertificateFingerprint, RtspServer, ServerTrust, rtsp_server};

/// Sources of trust in servers of `rtsps:`.
#[derive(Args, Clone, Default)]
pub(crate) struct TrustOptions {
    /// Trusts RTSP servers over TLS by a file of certificates (PEM or DER), their own or those of
    /// authorities, instead of the authorities of the system. The names and times in a certificate
    /// must be right.
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// Trusts an RTSP server over TLS for one certificate, by its SHA-256 fingerprint, whatever
    /// name and time it has: cameras sign themselves. With several servers write one for each as
    /// HOST[:PORT]=SHA256, and give the option several times.
    #[arg(long, value_name = "[HOST=]SHA256")]
    fingerprint: Vec<PinnedServer>,
}

/// A fingerprint, and the server that it is for.
#[derive(Debug, Clone, PartialEq, Eq)]
struct PinnedServer {
    server: Option<RtspServer>,
    fingerprint: CertificateFingerprint,
}

/// Trust in servers.
#[derive(Default)]
pub(crate) struct ServerTrusts {
    pinned: Vec<(RtspServer, ServerTrust)>,
    /// Trust in the others; `None` if all are without TLS.
    others: Option<ServerTrust>,
}

impl FromStr for PinnedServer {
    type Err = String;

    fn from_str(text: &str) -> Result<PinnedServer, String> {
        let named = text.rsplit_once('=');
        // Programs write words in front of a fingerprint.
        let is_host = |host: &str| !host.contains(' ') && !host.eq_ignore_ascii_case("sha256");
        let Some((host, fingerprint)) = named.filter(|(host, _)| is_host(host)) else {
            return Ok(PinnedServer { server: None, fingerprint: text.parse()? });
        };
        let server = match host.contains(['/', '?', '#', '@']) {
            true => None,
            false => rtsp_server(&format!("rtsps://{host}")),
        };
        let form = "write HOST=SHA256 or HOST:PORT=SHA256, with the host and port of an address";
        let server = Some(server.ok_or(form)?);
        Ok(PinnedServer { server, fingerprint: fingerprint.parse()? })
    }
}

/// Parses a fingerprint without a server.
///
/// # Errors
/// The fault, and what to write.
pub(crate) fn fingerprint_alone(text: &str) -> Result<CertificateFingerprint, String> {
    match text.parse()? {
        PinnedServer { server: None, fingerprint } => Ok(fingerprint),
        PinnedServer { server: Some(_), .. } => {
            Err(format!("{text}: with a host; write the fingerprint alone"))
        }
    }
}

impl TrustOptions {
    /// Options of a configuration file: a file of certificates, and fingerprints of servers.
    pub(crate) fn new(
        ca: Option<PathBuf>,
        pinned: Vec<(RtspServer, CertificateFingerprint)>,
    ) -> TrustOptions {
        let pin = |(server, fingerprint)| PinnedServer { server: Some(server), fingerprint };
        TrustOptions { ca, fingerprint: pinned.into_iter().map(pin).collect() }
    }

    /// Name of an option that was given, if any.
    pub(crate) fn given(&self) -> Option<&'static str> {
        let ca = self.ca.as_ref().map(|_| "--ca");
        ca.or((!self.fingerprint.is_empty()).then_some("--fingerprint"))
    }

    /// Reads the certificates that servers need.
    ///
    /// # Errors
    /// The fault, and what to do.
    pub(crate) fn read(&self, mut servers: Vec<RtspServer>) -> Result<ServerTrusts, String> {
        servers.retain(|server| server.is_tls);
        servers.sort_by(|a, b| (&a.host, a.port).cmp(&(&b.host, b.port)));
        servers.dedup();
        if let Some(option) = self.given().filter(|_| servers.is_empty()) {
            return Err(format!(
                "{option}: no server with TLS; leave it out, or write an rtsps:// address"
            ));
        }
        let mut trusts = ServerTrusts::default();
        for PinnedServer { server, fingerprint } in &self.fingerprint {
            let server = match (server, &servers[..]) {
                (Some(server), _) if servers.contains(server) => server,
                (Some(server), _) => {
                    return Err(format!(
                        "--fingerprint {server}={fingerprint}: no rtsps:// address has this host \
                         and port; write HOST:PORT=SHA256 as in the address"
                    ));
                }
                (None, [only]) => only,
                (None, _) => {
                    return Err(format!(
                        "--fingerprint {fingerprint}: there are {} servers with TLS; write \
                         HOST[:PORT]=SHA256 for each",
                        servers.len()
                    ));
                }
            };
            if trusts.pinned.iter().any(|(of, _)| of == server) {
                return Err(format!(
                    "--fingerprint {fingerprint}: {server} has one already; leave one out"
                ));
            }
            trusts.pinned.push((server.clone(), ServerTrust::pinned(*fingerprint)));
        }
        let is_pinned = |server: &RtspServer| trusts.pinned.iter().any(|(of, _)| of == server);
        if servers.iter().all(is_pinned) {
            return match self.ca {
                None => Ok(trusts),
                Some(_) => Err("--ca: each server with TLS has a --fingerprint; leave one of the \
                                two out"
                    .to_owned()),
            };
        }
        trusts.others = Some(match &self.ca {
            None => ServerTrust::of_system().map_err(|fault| format!("rtsps://: {fault}"))?,
            Some(path) => {
                let wrong = |fault: String| format!("--ca {}: {fault}", path.display());
                let unread = |error| wrong(format!("{error}; name a file that can be read"));
                let mut bytes = Vec::new();
                let file = File::open(path).map_err(unread)?;
                file.take(BYTES_MAX + 1).read_to_end(&mut bytes).map_err(unread)?;
                if bytes.len() as u64 > BYTES_MAX {
                    let fault = format!("more than {BYTES_MAX} bytes; name a file of certificates");
                    return Err(wrong(fault));
                }
                ServerTrust::of_file(&bytes).map_err(|fault| wrong(fault.to_string()))?
            }
        });
        Ok(trusts)
    }
}

impl ServerTrusts {
    /// Trust in a server; `None` without TLS.
    pub(crate) fn of(&self, server: &RtspServer) -> Option<ServerTrust> {
        let pinned = self.pinned.iter().find(|(of, _)| of == server);
        let trust = pinned.map(|(_, trust)| trust).or(self.others.as_ref());
        trust.filter(|_| server.is_tls).cloned()
    }
}

/// The authorities of a system are a quarter of a megabyte.
const BYTES_MAX: u64 = 4 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    const PRINT: &str = "BA:78:16:BF:8F:01:CF:EA:41:41:40:DE:5D:AE:22:23:B0:03:61:A3:96:17:7A:9C:\
                         B4:10:FF:61:F2:00:15:AD";

    fn read(options: &TrustOptions, urls: &[&str]) -> Result<ServerTrusts, String> {
        options.read(urls.iter().filter_map(|url| rtsp_server(url)).collect())
    }

    fn pinned(texts: &[&str]) -> TrustOptions {
        let fingerprint = texts.iter().map(|text| text.parse().unwrap()).collect();
        TrustOptions { ca: None, fingerprint }
    }

    #[test]
    fn a_fingerprint_is_for_one_server() {
        let of_host = |text: &str| text.parse::<PinnedServer>().unwrap().server;
        assert_eq!(of_host(PRINT), None);
        assert_eq!(of_host(&format!("sha256 Fingerprint={PRINT}")), None);
        assert_eq!(of_host(&format!("SHA256={PRINT}")), None);
        assert_eq!(of_host(&format!("Cam={PRINT}")), rtsp_server("rtsps://cam"));
        assert_eq!(of_host(&format!("[::1]:99={PRINT}")), rtsp_server("rtsps://[::1]:99"));
        for host in ["", "cam/a", "anna:secret@cam", "cam:x", "rtsps://cam"] {
            let fault = format!("{host}={PRINT}").parse::<PinnedServer>().unwrap_err();
            assert!(fault.starts_with("write HOST=SHA256 or"), "{fault}");
        }
        for wrong in ["cam=AA", "cam"] {
            wrong.parse::<PinnedServer>().unwrap_err();
        }
        let one = read(&pinned(&[PRINT]), &["rtsps://a/1", "rtsps://A:322/2", "rtsp://b"]).unwrap();
        assert!(one.of(&rtsp_server("rtsps://a").unwrap()).is_some());
        assert!(one.of(&rtsp_server("rtsp://a:322").unwrap()).is_none());
        let both = [format!("a={PRINT}"), format!("b:99={PRINT}")];
        let both = pinned(&[&both[0], &both[1]]);
        assert!(read(&both, &["rtsps://a", "rtsps://b:99"]).is_ok());
        for (options, urls, found) in [
            (&pinned(&[PRINT]), &["rtsps://a", "rtsps://b"][..], "there are 2 servers with TLS"),
            (&pinned(&[PRINT]), &["rtsp://a"], "--fingerprint: no server with TLS; leave it out"),
            (&pinned(&[PRINT, PRINT]), &["rtsps://a"], "a:322 has one already; leave one out"),
            (&both, &["rtsps://a"], "--fingerprint b:99=BA:78"),
        ] {
            let fault = read(options, urls).map(drop).unwrap_err();
            assert!(fault.contains(found), "{fault}");
        }
    }

    #[test]
    fn a_file_of_certificates_is_refused_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ca.pem");
        let options = TrustOptions { ca: Some(path.clone()), fingerprint: Vec::new() };
        for (text, found) in [
            (None, "; name a file that can be read"),
            (Some("nothing"), "certificate 1 cannot be read; "),
            (Some(" \n"), "no certificate in it; "),
            // One that may be a key is not repeated.
            (Some("-----BEGIN PRIVATE KEY-----c2VjcmV0"), ".pem: a BEGIN has no line of its own"),
            (Some("-----BEGIN CERTIFICATE-----\nA"), "name a file of certificates in PEM or DER"),
            (Some("-----BEGIN PRIVATE KEY-----\n-----END PRIVATE KEY-----\n"), "no certificate"),
        ] {
            if let Some(text) = text {
                std::fs::write(&path, text).unwrap();
            }
            let fault = read(&options, &["rtsps://a"]).map(drop).unwrap_err();
            assert!(fault.starts_with("--ca /") && fault.contains(found), "{fault}");
            assert!(!fault.contains("c2Vj") && !fault.contains('['), "{fault}");
        }
        let fingerprint = vec![PRINT.parse().unwrap()];
        let both = TrustOptions { fingerprint, ..options.clone() };
        let fault = read(&both, &["rtsps://a"]).map(drop).unwrap_err();
        assert!(fault.starts_with("--ca: each server with TLS has a --fingerprint"), "{fault}");
        let fault = read(&options, &["rtsp://a"]).map(drop).unwrap_err();
        assert_eq!(fault, "--ca: no server with TLS; leave it out, or write an rtsps:// address");
    }
}
