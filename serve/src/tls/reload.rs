// SPDX-License-Identifier: MIT OR Apache-2.0
//! Loads the certificate again when its files change.
//!
//! A thread looks at both files once a second, two statx calls. Links are followed, so a switched
//! link (certbot's `live/`, a secret of Kubernetes) is a change like any other. Alternative:
//! inotify, which has to watch every folder that a link leads through and does not report changes
//! on network file systems. A thread of its own may wait for a disk; handshakes never do.
//!
//! A new pair is used when both parts fit. Until then, as between the writing of the two files, the
//! old pair stays in use; the fault is logged once and the files are read again every second. A new
//! certificate that is not valid yet waits while the old one is valid.
//! Files that are not regular (a pipe) are read at start only.
//!
//! Sources: statx(2); git's "racy" entries (a file written twice within a clock tick).
//! Does not verify a new certificate against roots or names.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, SystemTime};

use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::default_provider;

use super::certificates::Certificate;
use super::self_signed::{self, SelfSigned};
use super::terms::CertificateSlot;
use super::validity::{InvalidDate, Validity, unix_s};
use super::{TlsCounters, TlsSource};
use crate::error::Error;

/// Loader of the certificate in use.
pub(super) struct Reloader {
    origin: Origin,
    provider: CryptoProvider,
    slot: Arc<CertificateSlot>,
    validity: Validity,
    counters: Arc<TlsCounters>,
    /// Certificate of the files that is not valid yet, while the one in use is.
    waiting: Option<Certificate>,
    /// Time of the last warning about the validity.
    warned: Option<SystemTime>,
}

/// Origin of new certificates.
enum Origin {
    Files(WatchedFiles),
    SelfSigned(SelfSigned),
    /// Files that can be read only once.
    Fixed,
}

/// Certificate and key file, in the state of the last read.
struct WatchedFiles {
    cert: PathBuf,
    key: PathBuf,
    seen: [Option<FileState>; 2],
    is_failing: bool,
}

/// State of a file that changes when its contents do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FileState {
    device: u64,
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
    /// Also changes where a copy keeps the time of modification (`cp -p`).
    changed: (i64, i64),
}

impl Reloader {
    /// Loads the first certificate.
    pub(super) fn load(
        source: &TlsSource,
        cache: Option<&Path>,
        counters: Arc<TlsCounters>,
        now: SystemTime,
    ) -> Result<Reloader, Error> {
        let provider = default_provider();
        let (origin, certificate) = match source {
            TlsSource::Files { cert, key } => {
                let files = WatchedFiles::new(cert, key);
                let certificate = Certificate::read(cert, key, &provider)?;
                tracing::info!("certificate {}: {}", cert.display(), certificate.description());
                certificate.exposure(key).inspect(|exposure| tracing::warn!("{exposure}"));
                let is_regular = files.seen.iter().all(Option::is_some);
                (if is_regular { Origin::Files(files) } else { Origin::Fixed }, certificate)
            }
            TlsSource::SelfSigned => {
                let origin = SelfSigned::new(cache, self_signed::host_names());
                let certificate = origin.open(&provider, now)?;
                // At the default level of the log: users compare it with what their players show.
                tracing::warn!("self-signed certificate: {}", certificate.description());
                (Origin::SelfSigned(origin), certificate)
            }
        };
        let slot = Arc::new(CertificateSlot::new(certificate.key));
        let validity = certificate.validity;
        let (waiting, warned) = (None, None);
        let mut loaded = Reloader { origin, provider, slot, validity, counters, waiting, warned };
        loaded.warn_of_dates(now);
        Ok(loaded)
    }

    pub(super) fn slot(&self) -> Arc<CertificateSlot> {
        self.slot.clone()
    }

    /// Starts the thread; it ends when the returned sender is dropped, and continues with each
    /// reloader that the sender sends.
    pub(super) fn start(self) -> Result<Sender<Reloader>, Error> {
        let (stop, stopped) = channel();
        let spawned = std::thread::Builder::new()
            .name("certificates".to_owned())
            .spawn(move || self.run(&stopped));
        match spawned {
            Ok(_) => Ok(stop),
            Err(source) => {
                let object = "thread certificates".to_owned();
                Err(Error::Host { call: "clone", object, source })
            }
        }
    }

    fn run(mut self, others: &Receiver<Reloader>) {
        loop {
            match others.recv_timeout(LOOK_EVERY) {
                Ok(other) => self = other,
                Err(RecvTimeoutError::Timeout) => self.look(SystemTime::now()),
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// Shows its certificate in all handshakes that use `slot`, from now on.
    pub(super) fn take_over(&mut self, slot: Arc<CertificateSlot>) {
        slot.swap(self.slot.current());
        self.slot = slot;
        TlsCounters::count(&self.counters.reloads);
    }

    /// Loads a changed certificate and warns of its dates.
    pub(super) fn look(&mut self, now: SystemTime) {
        match &mut self.origin {
            Origin::Files(files) => {
                let was_failing = files.is_failing;
                let name = files.cert.display().to_string();
                match files.read_changed(&self.provider, now) {
                    Some((Ok(certificate), _)) => {
                        let key = files.key.clone();
                        if self.replace(&certificate, &name, now) {
                            let exposure = certificate.exposure(&key);
                            exposure.inspect(|exposure| tracing::warn!("{exposure}"));
                        } else if was_failing {
                            tracing::info!("certificate {name}: the files fit again");
                        }
                    }
                    Some((Err(error), true)) => {
                        self.waiting = None;
                        TlsCounters::count(&self.counters.reloads_failed);
                        tracing::warn!("{error}; the certificate before it stays in use");
                    }
                    Some((Err(_), false)) => {}
                    None => {
                        if let Some(waiting) = self.waiting.clone() {
                            self.replace(&waiting, &name, now);
                        }
                    }
                }
            }
            Origin::SelfSigned(origin) if self_signed::is_due(self.validity, now) => {
                match origin.make(&self.provider, now) {
                    Ok(certificate) => {
                        tracing::warn!("self-signed certificate: {}", certificate.description());
                        self.replace(&certificate, "self-signed", now);
                    }
                    Err(error) => tracing::debug!("{error}"),
                }
            }
            Origin::SelfSigned(_) | Origin::Fixed => {}
        }
        self.warn_of_dates(now);
    }

    /// Puts a certificate into use; false when it is in use already, or has to wait.
    fn replace(&mut self, certificate: &Certificate, name: &str, now: SystemTime) -> bool {
        // The key fits the certificate, so equal chains have equal keys.
        if certificate.key.cert == self.slot.current().cert {
            self.waiting = None;
            return false;
        }
        if let Some(fault @ InvalidDate::NotYetValid(_)) = certificate.validity.fault(now)
            && self.validity.fault(now).is_none()
        {
            let known = self.waiting.as_ref().map(|waiting| &waiting.key.cert);
            if known != Some(&certificate.key.cert) {
                tracing::warn!("certificate {name}: {fault}; the valid one before it stays in use");
                self.waiting = Some(certificate.clone());
            }
            return false;
        }
        self.waiting = None;
        self.slot.swap(certificate.key.clone());
        self.validity = certificate.validity;
        self.warned = None;
        TlsCounters::count(&self.counters.reloads);
        tracing::info!("certificate {name}: loaded again, {}", certificate.description());
        true
    }

    /// Warns of a certificate outside its dates, at most once an hour.
    fn warn_of_dates(&mut self, now: SystemTime) {
        let Some(fault) = self.validity.fault(now) else { return };
        let is_due = self.warned.is_none_or(|warned| {
            // A clock that was set back must not suppress the warning.
            now.duration_since(warned).is_ok_and(|since| since >= WARN_EVERY) || now < warned
        });
        if is_due {
            self.warned = Some(now);
            tracing::warn!("certificate: {fault}");
        }
    }

    #[cfg(test)]
    pub(super) fn warned(&self) -> Option<SystemTime> {
        self.warned
    }
}

impl WatchedFiles {
    fn new(cert: &Path, key: &Path) -> WatchedFiles {
        let seen = [FileState::of(cert), FileState::of(key)];
        WatchedFiles { cert: cert.to_owned(), key: key.to_owned(), seen, is_failing: false }
    }

    /// Reads the files if they may have changed; also returns true for a result that is news: the
    /// files differ from the last ones read, or those had no fault. The state is taken before the
    /// contents, so that a change in between is seen next time.
    fn read_changed(
        &mut self,
        provider: &CryptoProvider,
        now: SystemTime,
    ) -> Option<(Result<Certificate, Error>, bool)> {
        let found = [FileState::of(&self.cert), FileState::of(&self.key)];
        let is_new = found != self.seen;
        // Times have the grain of a clock tick: a second write within it leaves no trace.
        let is_racy = found.iter().flatten().any(|state| state.is_younger(now, RACY));
        if !is_new && !self.is_failing && !is_racy {
            return None;
        }
        self.seen = found;
        let read = Certificate::read(&self.cert, &self.key, provider);
        let is_new_fault = is_new || !self.is_failing;
        self.is_failing = read.is_err();
        Some((read, is_new_fault))
    }
}

impl FileState {
    /// Returns the state of a regular file; `None` for others and without one.
    fn of(path: &Path) -> Option<FileState> {
        let metadata = fs::metadata(path).ok().filter(fs::Metadata::is_file)?;
        Some(FileState {
            device: metadata.dev(),
            inode: metadata.ino(),
            bytes: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        })
    }

    fn is_younger(&self, now: SystemTime, age: Duration) -> bool {
        unix_s(now).saturating_sub(self.changed.0) < age.as_secs().cast_signed()
    }
}

/// Longest delay until a change is noticed.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Least time between two warnings of the dates.
const WARN_EVERY: Duration = Duration::from_secs(3600);
/// Age up to which a file is read again though its state is the same.
const RACY: Duration = Duration::from_secs(3);

#[cfg(test)]
mod tests {
    use super::super::tests::{Files, pair};
    use super::*;

    #[test]
    fn young_files_are_read_again_without_a_visible_change() {
        let files = Files::of(&pair());
        let mut watched = WatchedFiles::new(&files.cert(), &files.key());
        // Ages count from the files' times, however long it takes to come here.
        let written = watched.seen.iter().flatten().map(|state| state.changed.0).max().unwrap();
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(written.cast_unsigned());
        let provider = default_provider();
        assert!(watched.read_changed(&provider, now).is_some());
        assert!(watched.read_changed(&provider, now + Duration::from_secs(2)).is_some());
        assert!(watched.read_changed(&provider, now + Duration::from_secs(10)).is_none());
    }
}
