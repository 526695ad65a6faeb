// SPDX-License-Identifier: MIT OR Apache-2.0
//! The initialization section of a track of TTML, with the sample entry of its file.
//!
//! Boxes with fixed fields use mp4-atom, which has no entry of TTML: the containers around it are
//! written here.
//!
//! Sources: ISO/IEC 14496-30 §5.1 (handler `subt`), ISO/IEC 14496-12 §12.6.2 (`sthd`), §8.8.1 to
//! §8.8.3 (mvex); RFC 8216 §3.3 (order of boxes).
//! Does not write durations or edit lists.

use mp4_atom::{
    Dinf, Dref, DrefEntry, Encode, FixedPoint, FourCC, Ftyp, Hdlr, Mdhd, Mvhd, Sthd, Tkhd, Trex,
    Url,
};

use crate::mux::{SYNC_SAMPLE, put_box};
use crate::text::TtmlTrack;

/// Number of the only track.
pub(super) const TRACK_ID: u32 = 1;

/// `ftyp` and `moov` of a track.
pub(super) fn init_section(track: &TtmlTrack) -> Vec<u8> {
    let timescale = track.samples.timescale();
    let brands: Vec<_> = [b"iso6", b"cmfc", b"mp41"].map(FourCC::new).to_vec();
    let ftyp = Ftyp { major_brand: brands[0], minor_version: 0, compatible_brands: brands };
    let mvhd = Mvhd {
        creation_time: 0,
        modification_time: 0,
        timescale,
        duration: 0,
        rate: FixedPoint::new(1, 0),
        volume: FixedPoint::new(1, 0),
        matrix: Default::default(),
        next_track_id: TRACK_ID + 1,
    };
    let tkhd = Tkhd { track_id: TRACK_ID, enabled: true, in_movie: true, ..Tkhd::default() };
    let language = String::from_utf8_lossy(&track.language.unwrap_or(*b"und")).into_owned();
    let mdhd = Mdhd { timescale, language, ..Mdhd::default() };
    let hdlr = Hdlr { handler: FourCC::new(b"subt"), name: "SubtitleHandler".to_owned() };
    let dinf = Dinf { dref: Dref { entries: vec![DrefEntry::Url(Url::default())] } };
    let trex = Trex {
        track_id: TRACK_ID,
        default_sample_description_index: 1,
        default_sample_flags: SYNC_SAMPLE,
        ..Trex::default()
    };
    // Version, flags, and a count of one; the tables of samples have none.
    let stsd = container(b"stsd", &[&[0, 0, 0, 0, 0, 0, 0, 1], &track.entry.bytes]);
    let [stts, stsc, stco] = [b"stts", b"stsc", b"stco"].map(|kind| container(kind, &[&[0; 8]]));
    let stsz = container(b"stsz", &[&[0; 12]]);
    let stbl = container(b"stbl", &[&stsd, &stts, &stsc, &stsz, &stco]);
    let minf = container(b"minf", &[&atom(&Sthd {}), &atom(&dinf), &stbl]);
    let mdia = container(b"mdia", &[&atom(&mdhd), &atom(&hdlr), &minf]);
    let trak = container(b"trak", &[&atom(&tkhd), &mdia]);
    let mvex = container(b"mvex", &[&atom(&trex)]);
    [atom(&ftyp), container(b"moov", &[&atom(&mvhd), &trak, &mvex])].concat()
}

fn atom(fields: &impl Encode) -> Vec<u8> {
    let mut out = Vec::new();
    put_box(fields, &mut out);
    out
}

/// A box of parts: an entry has at most 16 KiB, and all others less than a kilobyte.
fn container(kind: &[u8; 4], parts: &[&[u8]]) -> Vec<u8> {
    let body = parts.concat();
    [&(8 + body.len() as u32).to_be_bytes(), &kind[..], &body].concat()
}
