// SPDX-License-Identifier: MIT OR Apache-2.0
//! Catalogue: books sealed as Readium LCP in one run; throughput a core and time by stage.
//!
//! Two catalogues have the same sizes, since the content decides the limit: with pictures it is the
//! lanes, hashes and copies; with text, deflated entries stay deflated, but are inflated once to be
//! checked. Bytes are those of the source books. Licences and keys are made as for readers. OpenSSL
//! opens every book, and the result is compared, before any time counts.
//!
//! Sources: crate `seal`, module `epub`.
//! Does not compare with another program; the reference tool seals one book a run.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use seal::engine::{SealOutcome, SealProgress, Settings, Stages};
use seal::epub::catalogue::{self, CataloguePaths, OpenSettings, SealSettings};
use seal::folder::Durability;
use seal::key::Origin;
use seal::key::passphrase::Passphrase;
use seal::lcp::{Algorithm, CertificateNames, Signer, Terms, TestProvider, UserKey};

use super::books::Stock;
use super::library::shares;
use super::{FOLDER, THREADS};
use measure::Error;
use measure::Options;
use measure::results::{Results, Row};
use measure::scratch::{ScratchDir, memory_free_bytes};
use measure::statistics::Figure;

/// Measures both catalogues and adds their rows.
pub(super) fn measure(
    scratch: &mut ScratchDir,
    options: &Options,
    results: &mut Results,
) -> Result<(), Error> {
    let settings = Settings::here(options.threads.first().copied());
    let (rounds, books, bytes) = match options.quick {
        true => (ROUNDS_QUICK, 8, (100_000.0, 2_000_000.0)),
        false => (ROUNDS, 200, (1e6, 50e6)),
    };
    let rounds = options.rounds.unwrap_or(rounds).max(1);
    let sizes = sizes(books, bytes);
    let total: u64 = sizes.iter().sum();
    if total.saturating_mul(3) > memory_free_bytes() {
        results.notes.push(format!("skip: {books} books, {total} bytes: too little memory"));
        return Ok(());
    }
    results.notes.push(format!(
        "catalogues: {rounds} rounds; {books} books of {:.1} to {:.0} MB, {:.2} GB together; of \
         a book of pictures a twelfth is text, of one of text three quarters, deflated",
        bytes.0 / 1e6,
        bytes.1 / 1e6,
        total as f64 / 1e9
    ));
    let how = how(scratch, &settings)?;
    let mut stock = Stock::new();
    for (index, (kind, text_share)) in KINDS.into_iter().enumerate() {
        if options.stopped() {
            break;
        }
        options.progress(index, KINDS.len(), &format!("{books} books of {kind}"));
        let source = scratch.folder("books")?;
        for (index, &size) in sizes.iter().enumerate() {
            let path = source.join(format!("{index:04}.epub"));
            fs::write(&path, stock.book(size, text_share))
                .map_err(Error::host(format!("writing {}", path.display())))?;
        }
        let outcomes = take(&source, &how, &settings, rounds, scratch, options);
        ScratchDir::remove(&source)?;
        add(&format!("{books} books of {kind}"), &settings, outcomes?, results);
    }
    Ok(())
}

/// Returns sizes in a geometric series from the least to the most: most books are small.
fn sizes(books: usize, (least, most): (f64, f64)) -> Vec<u64> {
    let part = |index: usize| index as f64 / (books.max(2) - 1) as f64;
    (0..books).map(|index| (least * (most / least).powf(part(index))) as u64).collect()
}

/// Settings for sealing, with a provider made for this run, and for opening.
struct How {
    sealed: SealSettings,
    opened: OpenSettings,
}

fn how(scratch: &ScratchDir, settings: &Settings) -> Result<How, Error> {
    let names =
        CertificateNames { root: "pagewire lab root".into(), provider: "pagewire lab".into() };
    let provider = TestProvider::new(&names, Algorithm::Ecdsa, 1).map_err(failed)?;
    let folder = scratch.folder("provider")?;
    let (certificate, key) = (folder.join("certificate.pem"), folder.join("key.pem"));
    let written = fs::write(&certificate, &provider.certificate)
        .and_then(|()| fs::write(&key, provider.key.as_slice()));
    written.map_err(Error::host("writing a provider's certificate"))?;
    let signer = Signer::from_files(("certificate", &certificate), ("key", &key));
    let origin = Origin::new("a passphrase", "of the laboratory");
    let passphrase = Passphrase::new(b"laboratory".to_vec().into(), origin).map_err(failed)?;
    let user_key = Arc::new(UserKey::new(&passphrase).map_err(failed)?);
    let terms = Terms {
        provider: "https://example.org/".into(),
        hint: "where it was measured".into(),
        hint_url: "https://example.org/hint".into(),
        publication_url: "https://example.org/{name}".into(),
        rights: None,
        user: None,
        signer: signer.map_err(failed)?,
        cbc: settings.cbc,
    };
    let terms = Arc::new(terms);
    Ok(How {
        sealed: SealSettings { terms, user_key: user_key.clone(), licence_beside: false },
        opened: OpenSettings { user_key, roots: None, cbc: settings.cbc },
    })
}

fn take(
    source: &Path,
    how: &How,
    settings: &Settings,
    rounds: usize,
    scratch: &mut ScratchDir,
    options: &Options,
) -> Result<Vec<SealOutcome>, Error> {
    let mut outcomes = Vec::new();
    // The first run is verified and not timed.
    for round in 0..=rounds {
        if options.stopped() {
            break;
        }
        let target = scratch.target();
        let places = CataloguePaths {
            source: source.to_owned(),
            target: target.clone(),
            force: false,
            sync: Durability::End,
        };
        let plan = catalogue::seal(&places, &how.sealed).map_err(failed)?;
        let outcome = whole(plan.run(settings, &SealProgress::default()))?;
        if round == 0 {
            let plan = catalogue::verify(&target, Some(source), &how.opened).map_err(failed)?;
            let verified = whole(plan.run(settings, &SealProgress::default()))?;
            if verified.done != outcome.done {
                let found = format!("{} books of {} opened", verified.done, outcome.done);
                return Err(Error::Wrong { member: MEMBER.to_owned(), found });
            }
        } else {
            outcomes.push(outcome);
        }
        ScratchDir::remove(&target)?;
    }
    Ok(outcomes)
}

fn whole(mut outcome: SealOutcome) -> Result<SealOutcome, Error> {
    match outcome.failed.pop() {
        Some(error) => Err(failed(error)),
        None => Ok(outcome),
    }
}

fn failed(error: seal::Error) -> Error {
    Error::Host { what: "sealing a catalogue".to_owned(), found: error.to_string() }
}

fn add(folder: &str, settings: &Settings, outcomes: Vec<SealOutcome>, results: &mut Results) {
    if outcomes.is_empty() {
        return;
    }
    let of = |value: fn(&SealOutcome) -> f64| Figure::of(outcomes.iter().map(value).collect());
    let row = |metric: &str, unit: &str, figure| {
        let row = Row::new("seal", MEMBER, metric, unit, figure);
        row.with(FOLDER, folder).with(THREADS, settings.threads)
    };
    let rate = |outcome: &SealOutcome| outcome.bytes as f64 / 1e6 / outcome.wall.as_secs_f64();
    let a_core = |outcome: &SealOutcome| 1e3 / outcome.cpu_s_per_gb();
    results.rows.push(row("books sealed", "MB/s", of(rate)));
    results.rows.push(row("books a core seals", "MB/s", of(a_core)));
    let stages: Vec<Stages> = outcomes.iter().map(|outcome| outcome.stages).collect();
    for (stage, samples) in shares(&stages) {
        let figure = Figure::of(samples);
        results.rows.push(row("workers' time", "%", figure).with("stage", stage));
    }
}

const MEMBER: &str = "seal epub";
/// Kinds of books, and the share of their bytes that is text.
const KINDS: [(&str, f64); 2] = [("pictures", 1.0 / 12.0), ("text", 0.75)];
const ROUNDS: usize = 5;
const ROUNDS_QUICK: usize = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn most_books_are_small_and_the_ends_are_as_said() {
        let sizes = sizes(200, (1e6, 50e6));
        assert_eq!((sizes[0], sizes.len()), (1_000_000, 200));
        assert!((49_999_000..=50_000_000).contains(&sizes[199]), "{}", sizes[199]);
        assert!(sizes[100] < 8_000_000, "{}", sizes[100]);
        assert_eq!(super::sizes(1, (5.0, 9.0)), [5]);
    }
}
