// SPDX-License-Identifier: MIT OR Apache-2.0
//! Changed files while the server runs. Looks are made by hand, at times of the test's choice.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use rustls::pki_types::CertificateDer;

use super::super::reload::Reloader;
use super::super::self_signed::subject_names;
use super::super::{TlsCounters, TlsSource};
use super::{Files, expired, later, pair, pair_with};

/// A reloader and its counters.
struct Subject {
    reloader: Reloader,
    counters: Arc<TlsCounters>,
}

impl Subject {
    fn load(source: &TlsSource) -> Subject {
        let counters = Arc::<TlsCounters>::default();
        let now = SystemTime::now();
        let reloader = Reloader::load(source, None, counters.clone(), now).unwrap();
        Subject { reloader, counters }
    }

    /// The certificate in use after a look, with the counts of reloads and failed ones.
    fn look(&mut self, now: SystemTime) -> (CertificateDer<'static>, u64, u64) {
        self.reloader.look(now);
        let count = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        let served = self.reloader.slot().current().cert[0].clone();
        (served, count(&self.counters.reloads), count(&self.counters.reloads_failed))
    }
}

/// Writes a file so that its time tells: writes within a tick of the clock have one time.
fn rewrite(path: &Path, text: &str) {
    let before = fs::metadata(path).and_then(|metadata| metadata.modified());
    fs::write(path, text).unwrap();
    let after = before.unwrap_or_else(|_| SystemTime::now()) + Duration::from_secs(1);
    fs::File::options().write(true).open(path).unwrap().set_modified(after).unwrap();
}

#[test]
fn pair_is_used_when_both_parts_fit() {
    let (old, new) = (pair(), pair());
    let files = Files::of(&old);
    let mut subject = Subject::load(&files.source());
    assert_eq!(subject.look(later(0)), (old.der.clone(), 0, 0));
    rewrite(&files.cert(), &new.cert);
    assert_eq!(subject.look(later(10)), (old.der.clone(), 0, 1), "half replaced");
    assert_eq!(subject.look(later(11)), (old.der.clone(), 0, 1), "counted and logged once");
    rewrite(&files.key(), &new.key);
    assert_eq!(subject.look(later(20)), (new.der.clone(), 1, 1));
    assert_eq!(subject.look(later(30)), (new.der.clone(), 1, 1));

    // Back to the first pair, by way of a file that is missing and one that is cut short.
    fs::remove_file(files.cert()).unwrap();
    assert_eq!(subject.look(later(40)), (new.der.clone(), 1, 2));
    rewrite(&files.cert(), &old.cert[..100]);
    assert_eq!(subject.look(later(41)), (new.der.clone(), 1, 3));
    rewrite(&files.cert(), &new.cert);
    assert_eq!(subject.look(later(50)), (new.der, 1, 3), "the pair in use is no reload");
    rewrite(&files.cert(), &old.cert);
    rewrite(&files.key(), &old.key);
    assert_eq!(subject.look(later(60)), (old.der, 2, 3));
}

/// A clock of the issuer that is wrong, or a renewal made in advance.
#[test]
fn certificate_that_is_not_valid_yet_waits_while_the_one_before_is_valid() {
    let (old, gone) = (pair(), expired());
    let begins = SystemTime::UNIX_EPOCH + Duration::from_secs(16_725_225_600);
    let early = pair_with(|params| {
        params.not_before = rcgen::date_time_ymd(2500, 1, 1);
        params.not_after = rcgen::date_time_ymd(2501, 1, 1);
    });
    let files = Files::of(&old);
    let mut subject = Subject::load(&files.source());
    rewrite(&files.cert(), &early.cert);
    rewrite(&files.key(), &early.key);
    for seconds in [10, 20] {
        assert_eq!(subject.look(later(seconds)), (old.der.clone(), 0, 0), "{seconds}");
    }
    // The one before has ended by then, and the files are the same.
    assert_eq!(subject.look(begins), (early.der, 1, 0));
    // Of two outside their dates the files' one is used.
    rewrite(&files.cert(), &gone.cert);
    rewrite(&files.key(), &gone.key);
    assert_eq!(subject.look(later(30)), (gone.der, 2, 0));
}

#[test]
fn switched_links_are_followed() {
    let (old, new) = (pair(), pair());
    let place = tempfile::tempdir().unwrap();
    let (live, archive) = (place.path().join("live"), place.path().join("archive"));
    fs::create_dir(&live).unwrap();
    fs::create_dir(&archive).unwrap();
    for (number, made) in [(1, &old), (2, &new)] {
        fs::write(archive.join(format!("fullchain{number}.pem")), &made.cert).unwrap();
        fs::write(archive.join(format!("privkey{number}.pem")), &made.key).unwrap();
    }
    // As certbot does: the old link is removed, and one to the next file made.
    let switch = |name: &str, number: u32| {
        let _ = fs::remove_file(live.join(format!("{name}.pem")));
        let target = format!("../archive/{name}{number}.pem");
        symlink(target, live.join(format!("{name}.pem"))).unwrap();
    };
    switch("fullchain", 1);
    switch("privkey", 1);
    let (cert, key) = (live.join("fullchain.pem"), live.join("privkey.pem"));
    let mut subject = Subject::load(&TlsSource::Files { cert, key });
    assert_eq!(subject.look(later(10)), (old.der.clone(), 0, 0));
    switch("privkey", 2);
    assert_eq!(subject.look(later(20)), (old.der, 0, 1));
    switch("fullchain", 2);
    assert_eq!(subject.look(later(30)), (new.der, 1, 1));
}

#[test]
fn expired_certificate_is_warned_of_once_an_hour_until_a_fresh_one_comes() {
    let files = Files::of(&expired());
    let mut subject = Subject::load(&files.source());
    let first = subject.reloader.warned().expect("a warning at start");
    let hours = |hours: u64| first + Duration::from_secs(3600 * hours);
    subject.look(first + Duration::from_secs(3599));
    assert_eq!(subject.reloader.warned(), Some(first));
    subject.look(hours(1));
    assert_eq!(subject.reloader.warned(), Some(hours(1)));
    let fresh = pair();
    rewrite(&files.cert(), &fresh.cert);
    rewrite(&files.key(), &fresh.key);
    assert_eq!(subject.look(hours(3)), (fresh.der.clone(), 1, 0));
    assert_eq!(subject.reloader.warned(), None);

    // It expires while the server runs.
    let aged = hours(24 * 365 * 4);
    subject.look(aged);
    assert_eq!(subject.reloader.warned(), Some(aged));
}

#[test]
fn self_signed_certificate_is_replaced_while_the_server_runs() {
    let mut subject = Subject::load(&TlsSource::SelfSigned);
    let (first, ..) = subject.look(later(59 * 86_400));
    let (second, reloads, failed) = subject.look(later(61 * 86_400));
    assert_ne!(first, second);
    assert_eq!((reloads, failed), (1, 0));
    assert_eq!(subject_names(&first), subject_names(&second));
}
