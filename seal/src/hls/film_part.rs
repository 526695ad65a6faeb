// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parts of a film that have segments of their own: a further sound, a programme among several.
//!
//! A part is an extract of the film's packets ([`media::Extract`]) that is never stored whole: the
//! scan makes and cuts it once, in the same pass as the film, and each segment makes its range
//! again from the last mark before it. Costs a mark of 24 bytes a mebibyte of film; a segment also
//! reads the film's packets between its own.
//!
//! Does not choose the parts (`multivariant` does).

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use media::plan::RtpIdentity;
use media::{
    ContinuityCounters, Extract, Programme, Refusal, Scanner, SegmentPlan, TS_PACKET_BYTES,
};

/// Extracted programme or track, and the name of its files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FilmPart {
    pub(super) id: String,
    pub(super) programme: Arc<Programme>,
    /// The only track extracted; `None` for the whole programme.
    pub(super) only: Option<u16>,
}

impl FilmPart {
    /// True when both extract the same tracks with the same clock, so segments can be shared.
    pub(super) fn is_alike(&self, other: &FilmPart) -> bool {
        self.only == other.only && self.programme.extracts_alike(&other.programme, self.only)
    }
}

/// The whole stream, or a part of it, cut into segments.
#[derive(Debug)]
pub(super) struct Cut {
    /// Empty for the whole stream.
    pub(super) id: String,
    pub(super) segments: SegmentPlan,
    pub(super) bytes: u64,
    /// `None` for the whole stream.
    marks: Option<Arc<(FilmPart, Vec<Mark>)>>,
}

/// Position in the film where an extract can begin.
#[derive(Debug, Clone, Copy)]
struct Mark {
    file: u64,
    /// Bytes of the extract before the mark.
    at: u64,
    counters: ContinuityCounters,
}

/// True when a part can have that name.
pub(super) fn is_part(id: &str) -> bool {
    let parts = id.strip_prefix("program-").map_or(Some(id), |rest| {
        let (number, part) = rest.split_once('-')?;
        is_number(number).then_some(part)
    });
    parts.is_some_and(|part| {
        part.strip_prefix("audio-").is_some_and(is_number) || part == "media" && part != id
    })
}

fn is_number(digits: &str) -> bool {
    digits.parse::<u16>().is_ok_and(|number| number.to_string() == digits)
}

impl Cut {
    /// Makes the cut of the whole stream.
    pub(super) fn whole(segments: SegmentPlan, bytes: u64) -> Self {
        Self { id: String::new(), segments, bytes, marks: None }
    }

    /// Returns the reader of segment `index`.
    pub(super) fn reader(&self, index: usize) -> Reader {
        let range = self.segments.list()[index].file.clone();
        let Some(marks) = &self.marks else {
            return Reader::Whole { at: range.start, end: range.end };
        };
        let (part, marks) = &**marks;
        let mark = marks[marks.partition_point(|mark| mark.at <= range.start) - 1];
        let mut extract = Extract::new(&part.programme, part.only);
        extract.resume(mark.counters);
        Reader::FilmPart(Box::new(PartReader {
            extract,
            file: mark.file,
            skip: range.start - mark.at,
            left: range.end - range.start,
            made: Vec::new(),
            consumed: 0,
        }))
    }
}

/// A part during the scan.
pub(super) struct PartScan {
    part: FilmPart,
    extract: Extract,
    scanner: Scanner,
    marks: Vec<Mark>,
    at: u64,
}

impl PartScan {
    pub(super) fn new(part: FilmPart) -> Self {
        let extract = Extract::new(&part.programme, part.only);
        Self { part, extract, scanner: Scanner::new(), marks: Vec::new(), at: 0 }
    }

    /// Returns the bytes of the part so far.
    pub(super) fn bytes(&self) -> u64 {
        self.at
    }

    /// Extracts from the film's packets that begin at `offset`; `made` is a buffer that all parts
    /// share.
    pub(super) fn feed(&mut self, offset: u64, packets: &[u8], made: &mut Vec<u8>) {
        self.marks.push(Mark { file: offset, at: self.at, counters: self.extract.counters() });
        made.clear();
        for packet in packets.chunks_exact(TS_PACKET_BYTES) {
            self.extract.feed(packet.try_into().expect("chunks of a packet"), made);
        }
        self.scanner.feed(made);
        self.at += made.len() as u64;
    }

    /// Cuts the part into segments; on failure returns the part with the reason.
    pub(super) fn finish(
        self,
        identity: RtpIdentity,
        target_s: u64,
    ) -> Result<Cut, (FilmPart, Refusal)> {
        let Self { part, scanner, marks, at: bytes, .. } = self;
        let cut = scanner
            .finish_with_starts(bytes, identity)
            .and_then(|(plan, starts)| SegmentPlan::cut(&plan, starts, target_s));
        match cut {
            Ok(segments) => {
                let id = part.id.clone();
                Ok(Cut { id, segments, bytes, marks: Some(Arc::new((part, marks))) })
            }
            Err(refusal) => Err((part, refusal)),
        }
    }
}

/// Reader of a segment's bytes of the film.
pub(super) enum Reader {
    Whole { at: u64, end: u64 },
    FilmPart(Box<PartReader>),
}

/// Reader that makes a range of an extract.
pub(super) struct PartReader {
    extract: Extract,
    /// Offset in the film of the next read.
    file: u64,
    /// Bytes of the extract before the range.
    skip: u64,
    /// Bytes of the range that are still to be returned.
    left: u64,
    made: Vec<u8>,
    /// Bytes of `made` that were returned or skipped.
    consumed: usize,
}

impl Reader {
    pub(super) fn is_exhausted(&self) -> bool {
        match self {
            Reader::Whole { at, end } => at == end,
            Reader::FilmPart(part) => part.left == 0,
        }
    }

    /// Reads some bytes; 0 when the film has become shorter.
    pub(super) fn read(&mut self, file: &File, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Reader::Whole { at, end } => {
                let wanted = (buffer.len() as u64).min(*end - *at) as usize;
                let read = file.read_at(&mut buffer[..wanted], *at)?;
                *at += read as u64;
                Ok(read)
            }
            Reader::FilmPart(part) => part.read(file, buffer),
        }
    }
}

impl PartReader {
    fn read(&mut self, file: &File, buffer: &mut [u8]) -> io::Result<usize> {
        while self.consumed == self.made.len() {
            self.made.clear();
            self.consumed = 0;
            let mut packets = vec![0; READ_PACKETS * TS_PACKET_BYTES];
            let read = fill(file, &mut packets, self.file)?;
            if read < TS_PACKET_BYTES {
                return Ok(0);
            }
            for packet in packets[..read].chunks_exact(TS_PACKET_BYTES) {
                self.extract.feed(packet.try_into().expect("chunks of a packet"), &mut self.made);
            }
            self.file += (read / TS_PACKET_BYTES * TS_PACKET_BYTES) as u64;
            let skipped = self.skip.min(self.made.len() as u64);
            self.skip -= skipped;
            self.consumed = skipped as usize;
        }
        let made = &self.made[self.consumed..];
        let bytes = (made.len().min(buffer.len()) as u64).min(self.left) as usize;
        buffer[..bytes].copy_from_slice(&made[..bytes]);
        self.consumed += bytes;
        self.left -= bytes as u64;
        Ok(bytes)
    }
}

/// Reads until `buffer` is full or the file ends.
pub(super) fn fill(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read_at(&mut buffer[filled..], offset + filled as u64) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// Packets of a read, about 64 KiB.
const READ_PACKETS: usize = 348;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_parts_are_told_from_those_of_other_playlists() {
        for id in ["audio-257", "program-1-media", "program-65535-audio-0"] {
            assert!(is_part(id), "{id}");
        }
        for id in ["media", "master", "program-1", "audio-", "audio-0257", "program-x-media", ""] {
            assert!(!is_part(id), "{id}");
        }
    }
}
