// SPDX-License-Identifier: MIT OR Apache-2.0
//! Scan of a film: its programmes, and the positions where it and its parts can be cut.
//!
//! Programmes and formats are found in the first packets; then one pass over the film feeds one
//! scanner for the whole stream and one for each part. Costs a read of the film, and for each part
//! a copy of its packets.
//!
//! Does not write anything.

use std::fs::File;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use media::plan::RtpIdentity;
use media::{Programme, Scanner, SegmentPlan, Survey};
use rustix::fs::{Advice, fadvise};

use super::FilmFault;
use super::film_part::{Cut, PartScan, fill};
use super::multivariant::{self, Title};
use super::size_limits::{self, PARTS_MAX};
use crate::error::{Error, FileFault};
use crate::plural::counted;

/// Result of a scan.
pub(super) struct Scanned {
    /// The whole stream first, then its parts.
    pub(super) cuts: Vec<Cut>,
    pub(super) titles: Vec<Title>,
    /// Remarks for the owner.
    pub(super) remarks: Vec<Error>,
}

/// Reads a film once; finds its programmes and the cuts of the film and its parts.
pub(super) fn scan(
    file: &File,
    source: &Path,
    bytes: u64,
    target_s: u64,
    stop: &AtomicBool,
) -> Result<Scanned, Error> {
    // Only a hint: the result is the same without it.
    let _ = fadvise(file, 0, None, Advice::Sequential);
    let mut piece = vec![0; PIECE_BYTES];
    let programmes = survey(file, source, &mut piece)?;
    let (mut titles, parts) = multivariant::titles(&programmes);
    let faulty = |fault: FilmFault| Error::file(source, fault.into());
    if parts.len() > PARTS_MAX {
        return Err(faulty(FilmFault::Parts { programmes: programmes.len() as u64 }));
    }
    let mut parts: Vec<_> = parts.into_iter().map(PartScan::new).collect();
    let (mut scanner, mut made) = (Scanner::new(), Vec::new());
    let mut offset = 0;
    while offset < bytes && !scanner.is_refused() {
        if stop.load(Ordering::Relaxed) {
            return Err(faulty(FilmFault::GivenUp));
        }
        let wanted = (bytes - offset).min(PIECE_BYTES as u64) as usize;
        let read = fill(file, &mut piece[..wanted], offset).map_err(Error::host("read", source))?;
        if read < wanted {
            return Err(Error::file(source, FileFault::Changed));
        }
        scanner.feed(&piece[..read]);
        parts.iter_mut().for_each(|part| part.feed(offset, &piece[..read], &mut made));
        offset += read as u64;
        let more: u64 = parts.iter().map(PartScan::bytes).sum();
        if more > size_limits::limit(bytes) {
            let (parts, source_bytes) = (parts.len() as u64, bytes);
            return Err(faulty(FilmFault::Multiplied { bytes: more, source_bytes, parts }));
        }
    }
    // Placeholder: no packet is sent from this plan.
    let identity = RtpIdentity { ssrc: 0, first_sequence: 0, first_timestamp: 0 };
    let refused = |refusal| faulty(FilmFault::Refused(refusal));
    let (plan, starts) = scanner.finish_with_starts(bytes, identity).map_err(refused)?;
    let segments = SegmentPlan::cut(&plan, starts, target_s).map_err(refused)?;
    let mut remarks: Vec<_> = broken(segments.breaks_inside()).into_iter().collect();
    let mut cuts = vec![Cut::whole(segments, bytes)];
    for part in parts {
        match part.finish(identity, target_s) {
            Ok(cut) => cuts.push(cut),
            Err((part, refusal)) => {
                remarks.push(format!("{} is left out: {refusal}", part.id));
                titles.retain_mut(|title| !title.leave_out(&part.id));
            }
        }
    }
    remarks.extend(titles.iter().flat_map(Title::remarks));
    if programmes.len() > 1 {
        let masters = titles.iter().map(|title| title.masters[0].as_str()).collect::<Vec<_>>();
        let count = programmes.len();
        let masters = match &masters[..] {
            [first, .., last] if count > NAMED_MAX => format!("{first} to {last}"),
            all => all.join(", "),
        };
        remarks.push(format!("{count} programmes, each a title: {masters}"));
    }
    let remark = |text| faulty(FilmFault::Remark(text));
    Ok(Scanned { cuts, titles, remarks: remarks.into_iter().map(remark).collect() })
}

/// Returns a remark on timestamps that jump inside segments.
fn broken(breaks_inside: u64) -> Option<String> {
    (breaks_inside > 0).then(|| {
        let times = counted(breaks_inside, "time");
        format!(
            "timestamps jump {times} more than segments were made for (one a second), and players \
             may stop there; write them anew: ffmpeg -fflags +genpts -i FILE -map 0 -c copy NEW.ts"
        )
    })
}

/// Finds the programmes of a film in its first packets.
fn survey(file: &File, source: &Path, piece: &mut [u8]) -> Result<Vec<Programme>, Error> {
    let mut survey = Survey::default();
    let mut offset = 0;
    while offset < SURVEY_BYTES_MAX && !survey.is_complete() {
        let read = fill(file, piece, offset).map_err(Error::host("read", source))?;
        survey.feed(&piece[..read]);
        offset += read as u64;
        if read < piece.len() {
            break;
        }
    }
    Ok(survey.finish())
}

/// Most titles that a remark names one by one.
const NAMED_MAX: usize = 8;

/// Bytes of a read, about a mebibyte in whole packets: larger was not measurably faster.
const PIECE_BYTES: usize = (1 << 20) / media::TS_PACKET_BYTES * media::TS_PACKET_BYTES;
/// Most bytes read to find programmes and formats: five seconds of a transponder. Most films need
/// only the first piece.
pub(super) const SURVEY_BYTES_MAX: u64 = 32 << 20;
