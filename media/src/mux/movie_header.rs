// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writes `ftyp` and `moov` of a fragmented movie: descriptions of its tracks, without samples.
//!
//! The writer of recordings and the initialization sections of segments share it.
//!
//! Sources: ISO/IEC 14496-12 §4.3 (brands), §6.2.2 (matrices), §8.2 to §8.4 (moov), §8.8.1 to
//! §8.8.3 (mvex); RFC 8216 §3.3 (order of boxes).
//! Does not write durations: a growing movie has none.

use mp4_atom::{
    Codec, Dinf, Dref, DrefEntry, Encode, FixedPoint, FourCC, Ftyp, Hdlr, Matrix, Mdhd, Mdia, Minf,
    Moov, Mvex, Mvhd, Pasp, Smhd, Stbl, Stco, Stsd, Tkhd, Trak, Trex, Url, Vmhd,
};

use crate::tracks::{Display, PixelAspect, Turn};

/// Sample flags (§8.8.3.1): depends on no other sample; or depends on others and is not a sync
/// sample.
pub(crate) const SYNC_SAMPLE: u32 = 0x0200_0000;
pub(crate) const OTHER_SAMPLE: u32 = 0x0101_0000;

/// Time units per second of the movie header: each track has its own timescale.
const MOVIE_TIMESCALE: u32 = 1000;

/// A track of the movie.
#[derive(Debug)]
pub(crate) struct TrackHeader {
    pub(crate) id: u32,
    pub(crate) is_video: bool,
    /// Units of media time per second.
    pub(crate) timescale: u32,
    pub(crate) language: Option<[u8; 3]>,
    /// Width and height; zeros for sound.
    pub(crate) size: (u32, u32),
    pub(crate) display: Display,
    pub(crate) entry: Codec,
}

/// Appends `ftyp` with these brands, of which the first is the major brand, and `moov`.
pub(crate) fn write_movie_header(brands: &[[u8; 4]], tracks: Vec<TrackHeader>, out: &mut Vec<u8>) {
    let brands: Vec<_> = brands.iter().map(FourCC::new).collect();
    let ftyp = Ftyp { major_brand: brands[0], minor_version: 0, compatible_brands: brands };
    let trex = |track: &TrackHeader| Trex {
        track_id: track.id,
        default_sample_description_index: 1,
        default_sample_flags: SYNC_SAMPLE,
        ..Trex::default()
    };
    let next_track_id = tracks.iter().map(|track| track.id).max().map_or(1, |id| id + 1);
    let mvhd = Mvhd {
        creation_time: 0,
        modification_time: 0,
        timescale: MOVIE_TIMESCALE,
        duration: 0,
        rate: FixedPoint::new(1, 0),
        volume: FixedPoint::new(1, 0),
        matrix: Default::default(),
        next_track_id,
    };
    let mvex = Mvex { mehd: None, trex: tracks.iter().map(trex).collect() };
    let trak = tracks.into_iter().map(trak).collect();
    put(&ftyp, out);
    let moov_at = out.len();
    put(&Moov { mvhd, trak, ..Moov::default() }, out);
    // mvex must follow the tracks (RFC 8216 §3.3); the encoder would put it elsewhere.
    put(&mvex, out);
    let bytes = u32::try_from(out.len() - moov_at).expect("a description is small");
    out[moov_at..moov_at + 4].copy_from_slice(&bytes.to_be_bytes());
}

/// Appends a box. Encoding cannot fail: the fields are set here, within the ranges that it checks.
pub(crate) fn put(atom: &impl Encode, out: &mut Vec<u8>) {
    atom.encode(out).expect("the box is within its limits");
}

/// Creates the description of a track, without samples.
fn trak(mut track: TrackHeader) -> Trak {
    let is_video = track.is_video;
    let short = |length: u32| FixedPoint::new(u16::try_from(length).unwrap_or(u16::MAX), 0);
    let mut size = track.size;
    if let Some(aspect) = track.display.pixel_aspect {
        size.0 = aspect.square_pixels(size.0);
        name_pixels(&mut track.entry, aspect);
    }
    let tkhd = Tkhd {
        track_id: track.id,
        // Audio tracks are alternatives to each other (§8.3.2.3).
        alternate_group: u16::from(!is_video),
        enabled: true,
        in_movie: true,
        volume: FixedPoint::new(u8::from(!is_video), 0),
        matrix: matrix(track.display.turn, size),
        width: short(size.0),
        height: short(size.1),
        ..Tkhd::default()
    };
    let mdhd = Mdhd {
        timescale: track.timescale.max(1),
        language: String::from_utf8_lossy(&track.language.unwrap_or(*b"und")).into_owned(),
        ..Mdhd::default()
    };
    let (handler, name) =
        if is_video { (b"vide", "VideoHandler") } else { (b"soun", "SoundHandler") };
    let hdlr = Hdlr { handler: FourCC::new(handler), name: name.to_owned() };
    // An empty location means that the samples are in this file.
    let dref = Dref { entries: vec![DrefEntry::Url(Url::default())] };
    let minf = Minf {
        vmhd: is_video.then(Vmhd::default),
        smhd: (!is_video).then(Smhd::default),
        dinf: Dinf { dref },
        stbl: Stbl {
            stsd: Stsd { codecs: vec![track.entry] },
            stco: Some(Stco::default()),
            ..Stbl::default()
        },
        ..Minf::default()
    };
    Trak { tkhd, mdia: Mdia { mdhd, hdlr, minf }, ..Trak::default() }
}

/// Writes the pixel aspect ratio into the entry of pictures.
fn name_pixels(entry: &mut Codec, aspect: PixelAspect) {
    let place = match entry {
        Codec::Avc1(entry) => &mut entry.pasp,
        Codec::Hvc1(entry) => &mut entry.pasp,
        Codec::Av01(entry) => &mut entry.pasp,
        _ => return,
    };
    let (h_spacing, v_spacing) = aspect.numbers();
    *place = Some(Pasp { h_spacing, v_spacing });
}

/// Returns the matrix that rotates pictures of this size and moves their corner to zero (§6.2.2).
fn matrix(turn: Turn, size: (u32, u32)) -> Matrix {
    /// 1.0 in 16.16 fixed point.
    const ONE: i32 = 1 << 16;
    let [a, b, c, d] = turn.signs().map(|sign| i32::from(sign) * ONE);
    let short = |length: u32| i32::try_from(length).unwrap_or(0).saturating_mul(ONE);
    let (x, y) = turn.corner(size);
    Matrix { a, b, c, d, x: short(x), y: short(y), ..Matrix::default() }
}
