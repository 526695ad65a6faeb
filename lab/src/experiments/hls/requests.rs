// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lists of requests with the bytes of each answer.
//!
//! Names of segments and byte ranges are those of the playlist that the server returns. The bytes
//! of a segment of MP4 follow from a plan of the film that is made here: a head and ranges of the
//! film. A plain range request has as many bytes of the film as the segment, from its first sample
//! on.
//!
//! Sources: RFC 8216 §4.3.2 (tags of segments); [`media::cmaf`].
//! Does not time requests.

use std::io::{Read, Write};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use media::cmaf::{SegmentParts, TARGET_S, TrackSegments};
use media::plan::RtpIdentity;
use media::{Demuxer, Presentation};

use super::packager::Packaged;
use super::parts::{Media, Part};
use crate::experiments::http::client::ClientRequest;
use crate::experiments::http::response::{Wanted, read};
use crate::experiments::peers::downloads::connect;
use measure::Error;
use measure::scratch::failed;

/// A request and the bytes of its answer.
#[derive(Clone)]
pub(super) struct KnownRequest {
    pub(super) request: ClientRequest,
    head: Arc<[u8]>,
    /// Ranges of the file.
    ranges: Vec<Range<usize>>,
    file: Arc<[u8]>,
}

impl KnownRequest {
    fn new(path: &str, asked: Option<Range<usize>>, parts: SegmentParts, file: &Arc<[u8]>) -> Self {
        let bytes = parts.bytes();
        let (range, wanted) = match asked {
            Some(asked) => {
                let range = format!("Range: bytes={}-{}\r\n", asked.start, asked.end - 1);
                (range, Wanted::part(bytes))
            }
            None => (String::new(), Wanted::file(bytes)),
        };
        let text = format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{range}\r\n");
        let ranges = parts.ranges.iter().map(|range| range.start as usize..range.end as usize);
        let (head, ranges) = (parts.head.into(), ranges.collect());
        KnownRequest { request: ClientRequest { text, wanted }, head, ranges, file: file.clone() }
    }

    /// Returns a request for a whole file.
    fn of_file(path: &str, file: Vec<u8>) -> KnownRequest {
        let whole = 0..file.len() as u64;
        let parts = SegmentParts { head: Vec::new(), ranges: vec![whole] };
        KnownRequest::new(path, None, parts, &file.into())
    }

    /// Returns a request for a range of a file.
    fn of_range(path: &str, range: Range<usize>, file: &Arc<[u8]>) -> KnownRequest {
        let whole = range.start as u64..range.end as u64;
        let ranges = vec![whole];
        KnownRequest::new(path, Some(range), SegmentParts { head: Vec::new(), ranges }, file)
    }

    /// Sends the request and compares the answer.
    fn verify(&self, port: u16) -> Result<(), String> {
        let mut connection = connect(port).map_err(|error| error.to_string())?;
        let sent = connection.write_all(self.request.text.as_bytes());
        sent.map_err(|error| format!("sending a request: {error}"))?;
        let is_right = |place: u64, bytes: &[u8]| self.has(place as usize, bytes);
        read(&mut connection, self.request.wanted, &mut vec![0; 1 << 20], is_right)
    }

    /// True when the answer has these bytes at that place.
    fn has(&self, mut place: usize, mut bytes: &[u8]) -> bool {
        let ranges = self.ranges.iter().map(|range| &self.file[range.clone()]);
        let mut before = 0;
        for piece in std::iter::once(&self.head[..]).chain(ranges) {
            let end = before + piece.len();
            if place < end && !bytes.is_empty() {
                let length = bytes.len().min(end - place);
                if !piece[place - before..].starts_with(&bytes[..length]) {
                    return false;
                }
                (place, bytes) = (place + length, &bytes[length..]);
            }
            before = end;
        }
        bytes.is_empty()
    }
}

/// Requests of one part to one server.
pub(super) struct RequestList {
    pub(super) requests: Vec<KnownRequest>,
}

impl RequestList {
    /// Compares every answer with its bytes.
    pub(super) fn verify(&self, port: u16) -> Result<(), String> {
        self.requests.iter().try_for_each(|request| {
            let first = || request.request.text.lines().next().unwrap_or_default().to_owned();
            request.verify(port).map_err(|found| format!("{}: {found}", first()))
        })
    }

    /// Compares the first answer with its bytes.
    pub(super) fn verify_first(&self, port: u16) -> Result<(), String> {
        self.requests[0].verify(port)
    }

    pub(super) fn to_client(&self) -> Vec<ClientRequest> {
        self.requests.iter().map(|known| known.request.clone()).collect()
    }

    /// Returns the mean length of an answer.
    pub(super) fn mean_bytes(&self) -> f64 {
        let bytes = self.requests.iter().map(|known| known.request.wanted.bytes).sum::<u64>();
        bytes as f64 / self.requests.len() as f64
    }

    /// Returns the mean number of ranges of a file that an answer has.
    pub(super) fn mean_ranges(&self) -> f64 {
        let ranges = self.requests.iter().map(|known| known.ranges.len()).sum::<usize>();
        ranges as f64 / self.requests.len() as f64
    }
}

/// Requests to pagewire, and requests for plain ranges of the same film.
pub(super) struct PagewireRequests {
    pub(super) items: RequestList,
    /// None for a playlist.
    pub(super) plain: Option<RequestList>,
    /// The playlist.
    pub(super) playlist: String,
}

/// Makes the requests for a part by the playlists of a running server.
pub(super) fn of_pagewire(port: u16, part: &Part, film: &Path) -> Result<PagewireRequests, Error> {
    let wrong = |found: String| Error::Wrong { member: "pagewire".to_owned(), found };
    let base = format!("/{}", part.film.name());
    let identity = identity(port, &base).map_err(wrong)?;
    let path = format!("{base}/{identity}/{}", part.playlist);
    let text = get(port, &path).map_err(wrong)?;
    let listed = listed(&text);
    let bytes: Arc<[u8]> = std::fs::read(film).map_err(failed("reading", film))?.into();
    let url = |name: &str| format!("{base}/{identity}/{name}");
    let made = |items: Vec<KnownRequest>, plain: Vec<KnownRequest>| PagewireRequests {
        items: RequestList { requests: items },
        plain: (!plain.is_empty()).then_some(RequestList { requests: plain }),
        playlist: text.clone(),
    };
    if part.media == Media::Playlist {
        let item = KnownRequest::of_file(&path, text.clone().into_bytes());
        return Ok(made(vec![item], Vec::new()));
    }
    let Some(tracks) = part.media.tracks() else {
        let ranges = listed.iter().map(|(name, range)| {
            let range = range.clone().ok_or("a segment without a byte range")?;
            let item = KnownRequest::of_range(&url(name), range.clone(), &bytes);
            Ok((item, KnownRequest::of_range(&base, range, &bytes)))
        });
        let both: Result<Vec<_>, &str> = ranges.collect();
        let (items, plain) = both.map_err(|found| wrong(found.to_owned()))?.into_iter().unzip();
        return Ok(made(items, plain));
    };
    let segments = segments(&bytes, tracks).map_err(Error::host("a plan of the film"))?;
    if segments.len() != listed.len() {
        let found = format!("{} segments in the playlist of {}", listed.len(), segments.len());
        return Err(wrong(found));
    }
    let plain = segments.iter().map(|parts| {
        let length = parts.bytes() as usize;
        let first = parts.ranges.first().map_or(0, |range| range.start as usize);
        let first = first.min(bytes.len().saturating_sub(length));
        KnownRequest::of_range(&base, first..first + length, &bytes)
    });
    let plain: Vec<_> = plain.collect();
    let names = listed.iter().map(|(name, _)| url(name));
    let items =
        names.zip(segments).map(|(url, parts)| KnownRequest::new(&url, None, parts, &bytes));
    Ok(made(items.collect(), plain))
}

/// Makes the requests for prepared files below the served folder.
pub(super) fn of_files(packaged: &Packaged) -> Result<RequestList, Error> {
    let requests = packaged.files.iter().map(|path| {
        let bytes = std::fs::read(path).map_err(failed("reading", path))?;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        Ok(KnownRequest::of_file(&format!("/{name}"), bytes))
    });
    Ok(RequestList { requests: requests.collect::<Result<_, Error>>()? })
}

/// Returns the identity of a film's content in addresses, from its first playlist.
fn identity(port: u16, base: &str) -> Result<String, String> {
    let master = get(port, &format!("{base}/master.m3u8"))?;
    let named = master.lines().find_map(|line| line.strip_prefix('~')?.split_once('/'));
    named.map(|(identity, _)| format!("~{identity}")).ok_or_else(|| format!("master: {master}"))
}

/// Returns the names of a playlist's segments with their byte ranges.
fn listed(playlist: &str) -> Vec<(String, Option<Range<usize>>)> {
    let (mut segments, mut range) = (Vec::new(), None);
    for line in playlist.lines() {
        if let Some(value) = line.strip_prefix("#EXT-X-BYTERANGE:") {
            let number = |text: &str| text.parse::<usize>().ok();
            let pair = value.split_once('@').map(|(bytes, from)| (number(bytes), number(from)));
            if let Some((Some(bytes), Some(from))) = pair {
                range = Some(from..from + bytes);
            }
        } else if !line.is_empty() && !line.starts_with('#') {
            segments.push((line.to_owned(), range.take()));
        }
    }
    segments
}

/// Returns the segments of these tracks as a plan of the film has them.
fn segments(film: &[u8], tracks: &[usize]) -> std::io::Result<Vec<SegmentParts>> {
    let presentation = presentation(film)?;
    let plan = TrackSegments::of(&presentation, TARGET_S).map_err(std::io::Error::other)?;
    let rendition = plan.rendition(tracks);
    let rendition = rendition.ok_or_else(|| std::io::Error::other("no such tracks"))?;
    let numbers = 0..rendition.segments().len();
    Ok(numbers.filter_map(|number| rendition.parts(&presentation, &plan, number)).collect())
}

fn presentation(film: &[u8]) -> std::io::Result<Presentation> {
    let mut demuxer = Demuxer::of(film, film.len() as u64)
        .ok_or_else(|| std::io::Error::other("not a file with tracks"))?;
    while !demuxer.advance(film, SAMPLES_A_STEP).map_err(std::io::Error::other)? {}
    let identity = || RtpIdentity { ssrc: 1, first_sequence: 0, first_timestamp: 0 };
    demuxer.finish(identity).map_err(std::io::Error::other)
}

/// Returns the text of an answer 200.
pub(super) fn get(port: u16, path: &str) -> Result<String, String> {
    let mut connection = connect(port).map_err(|error| error.to_string())?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n");
    let sent = connection.write_all(request.as_bytes());
    sent.map_err(|error| format!("{path}: sending a request: {error}"))?;
    let mut answer = String::new();
    let received = connection.read_to_string(&mut answer);
    received.map_err(|error| format!("{path}: {error}"))?;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    match head.starts_with("HTTP/1.1 200 ") {
        true => Ok(body.to_owned()),
        false => Err(format!("{path}: {}", head.lines().next().unwrap_or_default())),
    }
}

const SAMPLES_A_STEP: usize = 100_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_of_a_playlist_have_their_names_and_ranges() {
        let text = "#EXTM3U\n#EXTINF:6.0,\n#EXT-X-BYTERANGE:100@20\nmedia.ts\n#EXTINF:1.0,\n\
                    1-2/0.m4s\n#EXT-X-ENDLIST\n";
        let expected = [("media.ts".to_owned(), Some(20..120)), ("1-2/0.m4s".to_owned(), None)];
        assert_eq!(listed(text), expected);
    }

    #[test]
    fn an_answer_is_compared_in_parts_of_any_size() {
        let file: Arc<[u8]> = (0..100).collect::<Vec<u8>>().into();
        let parts = SegmentParts { head: b"head".to_vec(), ranges: vec![10..15, 50..60] };
        let known = KnownRequest::new("/x", None, parts, &file);
        let whole = [b"head", &file[10..15], &file[50..60]].concat();
        assert_eq!(known.request.wanted, Wanted::file(whole.len() as u64));
        for from in 0..whole.len() {
            for end in from..=whole.len() {
                assert!(known.has(from, &whole[from..end]), "{from}..{end}");
            }
            let mut damaged = whole.clone();
            damaged[from] ^= 1;
            assert!(!known.has(0, &damaged), "{from}");
        }
        assert!(!known.has(0, &[&whole[..], b"!"].concat()));
        let range = KnownRequest::of_range("/x", 3..9, &file);
        assert!(range.request.text.contains("Range: bytes=3-8\r\n") && range.has(0, &file[3..9]));
    }
}
