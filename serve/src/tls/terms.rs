// SPDX-License-Identifier: MIT OR Apache-2.0
//! Versions, protocols, tickets and the certificate of handshakes.
//!
//! A `rustls::ServerConfig` for each use exists as long as the server; a new certificate is swapped
//! in beneath both. So a handshake costs a read lock and two reference counts more than with a
//! fixed certificate, connections keep the certificate of their handshake, and tickets stay valid
//! over a reload. That is safe: a ticket is sealed with a key of its own that changes every six
//! hours and is unrelated to the certificate's key, and a resumed session relies on the client's
//! verification at its first handshake (RFC 8446 §2.2). The uses have tickets of their own, so that
//! a session of one protocol is not resumed by the other.
//!
//! Cipher suites: the client's order decides. Clients without AES instructions put
//! ChaCha20-Poly1305 first and the others AES-GCM; the server has both at full speed, and the
//! kernel, too.
//!
//! Sources: rustls 0.23 `ServerConfig`; RFC 5077 §4 (tickets); the IANA registry of ALPN names.
//! Does not read files ([`super::certificates`]) or look for changed ones ([`super::reload`]).

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::Sender;
use std::time::SystemTime;

use parking_lot::{Mutex, RwLock};
use paths::{RecordCipher, TlsVersion};
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs::{Ticketer, default_provider};
use rustls::server::{ClientHello, ResolvesServerCert, ServerSessionMemoryCache};
use rustls::sign::CertifiedKey;
use rustls::time_provider::TimeProvider;
use rustls::version::{TLS12, TLS13};

use super::clock::{TimedTickets, WallClock};
use super::kernel::KernelTls;
use super::record_socket::ClientTls;
use super::reload::Reloader;
use super::{TlsCounters, TlsSource};
use crate::error::Error;

/// Use of TLS, which decides the protocols that ALPN offers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TlsUse {
    Https,
    Rtsps,
}

impl TlsUse {
    /// Scheme of URLs.
    pub(super) fn scheme(self) -> &'static str {
        match self {
            TlsUse::Https => "https",
            TlsUse::Rtsps => "rtsps",
        }
    }

    /// Names for ALPN, preferred ones first; none switches ALPN off. IANA has no name for RTSP.
    /// HTTP/1.0 is in the list for old clients that name nothing else: without it they are refused.
    fn protocols(self) -> &'static [&'static [u8]] {
        match self {
            TlsUse::Https => &[b"h2", b"http/1.1", b"http/1.0"],
            TlsUse::Rtsps => &[],
        }
    }
}

/// Terms of handshakes of a server.
pub(crate) struct TlsTerms {
    https: Arc<ServerConfig>,
    rtsps: Arc<ServerConfig>,
    /// Encryption by the kernel, if the host supports it and the configuration permits it.
    pub(super) kernel: Option<KernelTls>,
    pub(crate) counters: Arc<TlsCounters>,
    pub(super) clock: Arc<dyn TimeProvider>,
    /// True while there is no time, which is logged already.
    pub(super) is_without_time: AtomicBool,
    slot: Arc<CertificateSlot>,
    /// Source of the certificate in use.
    source: Mutex<TlsSource>,
    /// Folder of a self-signed certificate.
    cache: Option<PathBuf>,
    /// Sends the thread that looks for changed files other files to watch; ends the thread when
    /// dropped.
    reloaders: Sender<Reloader>,
}

/// A certificate that was loaded and is not in use yet.
pub(crate) struct LoadedCertificate {
    source: TlsSource,
    reloader: Reloader,
}

impl TlsTerms {
    /// Loads the certificate and starts the thread that loads changed ones. `cache` is the folder
    /// in which a self-signed certificate is kept. With `kernel_tls` the kernel encrypts where it
    /// can.
    ///
    /// # Errors
    /// [`Error::Setting`]: the files cannot be used; [`Error::Host`]: no random numbers, no thread,
    /// a clock before 1970.
    pub(crate) fn start(
        source: &TlsSource,
        cache: Option<&Path>,
        kernel_tls: bool,
        counters: Arc<TlsCounters>,
    ) -> Result<TlsTerms, Error> {
        TlsTerms::start_by(Arc::new(WallClock), source, cache, kernel_tls, counters)
    }

    /// Does the same with the given clock.
    pub(super) fn start_by(
        clock: Arc<dyn TimeProvider>,
        source: &TlsSource,
        cache: Option<&Path>,
        kernel_tls: bool,
        counters: Arc<TlsCounters>,
    ) -> Result<TlsTerms, Error> {
        if clock.current_time().is_none() {
            return Err(Error::Host {
                call: "clock_gettime",
                object: "CLOCK_REALTIME".to_owned(),
                source: std::io::Error::other(
                    "a time before 1970, at which TLS has no tickets; set this host's clock",
                ),
            });
        }
        let reloader = Reloader::load(source, cache, counters.clone(), SystemTime::now())?;
        let slot = reloader.slot();
        let https = server_config(TlsUse::Https, slot.clone(), &clock)?;
        let rtsps = server_config(TlsUse::Rtsps, slot.clone(), &clock)?;
        let reloaders = reloader.start()?;
        let kernel = if kernel_tls { KernelTls::probe() } else { None };
        let (source, cache) = (Mutex::new(source.clone()), cache.map(Path::to_owned));
        let is_without_time = AtomicBool::new(false);
        Ok(TlsTerms {
            https,
            rtsps,
            kernel,
            counters,
            clock,
            is_without_time,
            slot,
            source,
            cache,
            reloaders,
        })
    }

    /// Loads the certificate of another source; `None` where it is the one in use, whose changed
    /// files are loaded anyway.
    ///
    /// # Errors
    /// As for [`TlsTerms::start`]; nothing has changed.
    pub(crate) fn load(&self, source: &TlsSource) -> Result<Option<LoadedCertificate>, Error> {
        if *self.source.lock() == *source {
            return Ok(None);
        }
        let (cache, counters) = (self.cache.as_deref(), self.counters.clone());
        let reloader = Reloader::load(source, cache, counters, SystemTime::now())?;
        Ok(Some(LoadedCertificate { source: source.clone(), reloader }))
    }

    /// Shows a loaded certificate from the next handshake on, and looks for changes of its files.
    pub(crate) fn replace(&self, loaded: LoadedCertificate) {
        let LoadedCertificate { source, mut reloader } = loaded;
        reloader.take_over(self.slot.clone());
        *self.source.lock() = source;
        // The thread runs as long as the sender lives, unless it panicked, which it has logged.
        let _ = self.reloaders.send(reloader);
    }

    /// Prepares a connection for [`super::kernel`] if the kernel can encrypt it; returns its
    /// version and cipher. Otherwise the connection is read freely from now on.
    pub(crate) fn in_kernel(&self, stream: &mut ClientTls) -> Option<(TlsVersion, RecordCipher)> {
        let suits = self.kernel.as_ref().and_then(|kernel| kernel.suits(stream));
        if suits.is_none() {
            stream.get_mut().0.read_freely();
        }
        suits
    }

    /// Returns the terms of a use; valid as long as the server, also over reloads.
    pub(crate) fn config(&self, usage: TlsUse) -> &Arc<ServerConfig> {
        match usage {
            TlsUse::Https => &self.https,
            TlsUse::Rtsps => &self.rtsps,
        }
    }
}

/// Makes the terms of a use.
pub(super) fn server_config(
    usage: TlsUse,
    slot: Arc<CertificateSlot>,
    clock: &Arc<dyn TimeProvider>,
) -> Result<Arc<ServerConfig>, Error> {
    let provider = Arc::new(default_provider());
    let mut config = ServerConfig::builder_with_details(provider, clock.clone())
        .with_protocol_versions(&[&TLS13, &TLS12])
        .expect("the provider has suites of both versions")
        .with_no_client_auth()
        .with_cert_resolver(slot);
    config.alpn_protocols = usage.protocols().iter().map(|name| name.to_vec()).collect();
    let tickets = Ticketer::new().map_err(|error| Error::Host {
        call: "getrandom",
        object: "keys of TLS tickets".to_owned(),
        source: std::io::Error::other(error),
    })?;
    config.ticketer = Arc::new(TimedTickets { tickets, clock: clock.clone() });
    // For clients of TLS 1.2 without tickets; the oldest session is forgotten.
    config.session_storage = ServerSessionMemoryCache::new(SESSIONS_MAX);
    // The kernel can encrypt a connection (kernel TLS) if it gets the keys after the handshake.
    config.enable_secret_extraction = true;
    config.ignore_client_order = false;
    config.max_early_data_size = 0;
    Ok(Arc::new(config))
}

/// The certificate in use, shown to every client whatever name it asks for.
#[derive(Debug)]
pub(super) struct CertificateSlot(RwLock<Arc<CertifiedKey>>);

impl CertificateSlot {
    pub(super) fn new(key: Arc<CertifiedKey>) -> CertificateSlot {
        CertificateSlot(RwLock::new(key))
    }

    pub(super) fn current(&self) -> Arc<CertifiedKey> {
        self.0.read().clone()
    }

    pub(super) fn swap(&self, key: Arc<CertifiedKey>) {
        *self.0.write() = key;
    }
}

impl ResolvesServerCert for CertificateSlot {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.current())
    }
}

/// Most sessions kept by number, of some hundred bytes each.
const SESSIONS_MAX: usize = 4096;
