// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sends the answer to a request.
//!
//! An answer whose bytes are all in memory leaves by one `sendmsg`. A larger file's head is sent
//! with `MSG_MORE`, so that it leaves with the first bytes of the file, which go from page cache to
//! socket in steps ([`RangeSending`]), corked ([`Cork`]). Many small ranges are copied together.
//!
//! Costs: one system call for a head, the boxes before the media included, and those of the steps.
//!
//! Sources: sendmsg(2) (`MSG_MORE`).
//! Does not choose the path ([`crate::path_choice`]).

use std::io::IoSlice;
use std::ops::Range;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::SystemTime;

use paths::{DownloadPath, MappedFile, SendStats};
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};
use tokio::io::Interest;
use tokio::net::TcpStream;
use wire::http::{Part, Request, Response, error};

use crate::config::Timeouts;
use crate::http::body_reader::{BodyReader, NotRead};
use crate::http::content::Content;
use crate::http::cork::Cork;
use crate::http::download_pace::DownloadPace;
use crate::http::download_paths::Downloads;
use crate::http::index::Body;
use crate::http::long_turns::LongTurns;
use crate::http::open_files::{FileContent, OpenFile, PART_BYTES};
use crate::http::range_sending::RangeSending;
use crate::server_state::ServerState;
use crate::write_deadline::Allowance;

/// Connection that accepts plain bytes.
pub(super) struct PlainTarget<'a> {
    pub(super) stream: &'a TcpStream,
    /// Paths for files.
    pub(super) downloads: &'a Downloads,
    /// Paths for many ranges of a file.
    pub(super) ranges: &'a Downloads,
    /// Turns of long answers.
    pub(super) turns: &'a LongTurns,
    /// True where the kernel encrypts. It holds bytes that more are to follow (`MSG_MORE`) until
    /// they do, where TCP alone sends them after 200 ms, so a head would wait for a disk or a pace.
    pub(super) is_encrypted: bool,
}

/// Sends an answer; false when the peer does not accept it, or a file is shorter than promised.
pub(super) async fn transmit(
    target: &PlainTarget<'_>,
    request: &Request,
    response: Response,
    content: Content,
    pace: &mut DownloadPace<'_>,
    server: &ServerState,
) -> bool {
    let (stream, timeouts) = (target.stream, server.config.timeouts);
    let is_text = response.parts.iter().all(|part| matches!(part, Part::Bytes(_)));
    let file = match &content {
        Content::File { file, .. } if !is_text => file,
        Content::Files(_) if !is_text && response.bytes_total() <= GATHERED_BYTES_MAX => {
            return transmit_gathered(stream, response, content, pace, server).await;
        }
        Content::Files(files) if !is_text => files.first_of(0..1).0,
        Content::Rows(body) if !is_text => {
            return transmit_listing(stream, &response, body, timeouts).await;
        }
        _ => return transmit_text(stream, &response, timeouts).await,
    };
    let FileContent::Open(media) = &file.content else {
        return transmit_held(stream, response, file, pace, server).await;
    };
    // One range with boxes or tables in front is two calls either way.
    let ranges = response.parts.iter().filter(|part| matches!(part, Part::File { .. })).count();
    if ranges > 1 && response.bytes_total() <= GATHERED_BYTES_MAX {
        return transmit_gathered(stream, response, content, pace, server).await;
    }
    // Borrowed before the head is sent, which promises the file.
    let Some(mut path) = target.downloads.take() else {
        let what = "nothing to send it by is left";
        let exhausted = error(request, 503, what, SystemTime::now());
        return transmit_text(stream, &exhausted, timeouts).await;
    };
    transmit_file(target, response, ((file, media), &content), path.path(), pace, server).await
}

/// Sends an answer without a file; false when the peer does not accept it.
pub(super) async fn transmit_text(
    stream: &TcpStream,
    response: &Response,
    timeouts: Timeouts,
) -> bool {
    let pieces = response.parts.iter().map(text);
    let mut allowance = Allowance::new(timeouts.write);
    write_pieces(stream, &response.head, pieces, SendFlags::empty(), &mut allowance).await
}

/// Sends an answer with ranges of a held body.
async fn transmit_held(
    stream: &TcpStream,
    response: Response,
    file: &OpenFile,
    pace: &mut DownloadPace<'_>,
    server: &ServerState,
) -> bool {
    if pace.has_rate() {
        pace.whole(response.bytes_total(), stream.as_fd()).await;
    }
    let mut stats = SendStats::default();
    let piece = |part| match part {
        &Part::File { offset, bytes } => {
            stats.bytes += bytes;
            file.held(offset, bytes).unwrap_or_default()
        }
        part => text(part),
    };
    let pieces: Vec<&[u8]> = response.parts.iter().map(piece).collect();
    let mut allowance = Allowance::new(server.config.timeouts.write);
    let is_joined = response.bytes_total() <= JOINED_BYTES_MAX;
    let sent = if is_joined {
        let mut whole = response.head;
        pieces.into_iter().for_each(|piece| whole.extend_from_slice(piece));
        allowance.write(stream, &whole).await
    } else {
        let pieces = pieces.into_iter();
        write_pieces(stream, &response.head, pieces, SendFlags::empty(), &mut allowance).await
    };
    (stats.copied_bytes, stats.calls) = (stats.bytes, 1);
    *server.meters.downloads.lock() += stats;
    sent
}

/// Sends an answer of many small ranges: they are copied together and leave by one call, as a
/// hundred calls would keep the other connections waiting.
async fn transmit_gathered(
    stream: &TcpStream,
    response: Response,
    content: Content,
    pace: &mut DownloadPace<'_>,
    server: &ServerState,
) -> bool {
    pace.whole(response.bytes_total(), stream.as_fd()).await;
    let mut body = BodyReader::new(response.parts, content);
    let mut whole = response.head;
    let mut stats = SendStats::default();
    while body.left() > 0 {
        let filled_before = whole.len();
        whole.resize(filled_before + body.left() as usize, 0);
        let filled = match body.fill(&mut whole[filled_before..]) {
            Ok(filled) => filled,
            Err(NotRead::NotInMemory) => 0,
            Err(NotRead::Failed(error)) => {
                tracing::debug!("http download: {error}");
                return false;
            }
        };
        whole.truncate(filled_before + filled);
        body.advance(filled);
        stats.bytes += filled as u64;
        if body.left() > 0 {
            body.fetch().await;
        }
    }
    let sent = Allowance::new(server.config.timeouts.write).write(stream, &whole).await;
    (stats.copied_bytes, stats.calls) = (2 * stats.bytes, 1);
    *server.meters.downloads.lock() += stats;
    sent
}

/// Writes a head and pieces by as few calls as the socket's buffer allows.
async fn write_pieces<'a>(
    stream: &TcpStream,
    head: &'a [u8],
    pieces: impl Iterator<Item = &'a [u8]>,
    flags: SendFlags,
    allowance: &mut Allowance,
) -> bool {
    let flags = flags | SendFlags::NOSIGNAL;
    let mut slices: Vec<IoSlice<'_>> = Vec::with_capacity(4);
    slices.push(IoSlice::new(head));
    slices.extend(pieces.map(IoSlice::new));
    let mut rest = &mut slices[..];
    while !rest.is_empty() {
        let some = &rest[..rest.len().min(SLICES_MAX)];
        let written = stream.try_io(Interest::WRITABLE, || {
            Ok(sendmsg(stream, some, &mut SendAncillaryBuffer::default(), flags)?)
        });
        match written {
            Ok(0) => return false,
            Ok(written) => {
                allowance.handed(written as u64);
                IoSlice::advance_slices(&mut rest, written);
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                if !allowance.writable(stream).await {
                    return false;
                }
            }
            Err(_) => return false,
        }
    }
    true
}

/// Sends an answer with ranges of an open file, or of several.
async fn transmit_file(
    target: &PlainTarget<'_>,
    response: Response,
    ((file, media), content): ((&Arc<OpenFile>, &MappedFile), &Content),
    path: &mut dyn DownloadPath,
    pace: &mut DownloadPace<'_>,
    server: &ServerState,
) -> bool {
    let mut allowance = Allowance::new(server.config.timeouts.write);
    let stream = target.stream;
    // A head that may have to wait for its body leaves at once.
    let more = match target.is_encrypted || pace.may_wait() {
        true => SendFlags::empty(),
        false => SendFlags::MORE,
    };
    let mut parts = response.parts.iter().peekable();
    // Boxes before the media leave with the head, by the same call.
    let boxes = std::iter::from_fn(|| parts.next_if(|part| matches!(part, Part::Bytes(_))));
    if !write_pieces(stream, &response.head, boxes.map(text), more, &mut allowance).await {
        return false;
    }
    let left = parts.clone().map(Part::bytes).sum::<u64>();
    let cork = Cork::of_answer(stream, parts.len(), left);
    let timeouts = server.config.timeouts;
    let mut sending = RangeSending::new(target, (file, media), path, timeouts);
    let mut turn_bytes = 0;
    let mut is_whole = true;
    let mut run = Vec::with_capacity(parts.len());
    while is_whole && let Some(part) = parts.next() {
        if turn_bytes >= PART_BYTES {
            turn_bytes = 0;
            target.turns.next().await;
        }
        turn_bytes += part.bytes() + CALL_BYTES;
        is_whole = match part {
            Part::File { .. } => {
                run.clear();
                run.extend(range(part));
                while let Some(next) = parts.peek().and_then(|part| range(part)) {
                    run.push(next);
                    parts.next();
                }
                match content {
                    Content::Files(files) => sending.send_split(files, &run, pace).await,
                    _ => sending.send(&mut run, pace).await,
                }
            }
            part => {
                let flags = if parts.peek().is_none() { SendFlags::empty() } else { more };
                write_pieces(stream, text(part), std::iter::empty(), flags, &mut allowance).await
            }
        };
    }
    *server.meters.downloads.lock() += sending.stats;
    drop(cork);
    is_whole
}

/// Returns the range of a part that lies in a file.
fn range(part: &Part) -> Option<Range<u64>> {
    match part {
        Part::File { offset, bytes } => Some(*offset..offset + bytes),
        _ => None,
    }
}

/// Sends a listing through a buffer; false when the peer does not accept it.
async fn transmit_listing(
    stream: &TcpStream,
    response: &Response,
    body: &Body,
    timeouts: Timeouts,
) -> bool {
    let mut allowance = Allowance::new(timeouts.write);
    // Head and pieces are sent in as few writes as the buffer allows.
    let mut filled = response.head.clone();
    filled.reserve_exact(ROWS_BYTES);
    for part in &response.parts {
        let pieces = match part {
            Part::Held { .. } => body.pieces(),
            part => Box::new(std::iter::once(text(part))),
        };
        for piece in pieces {
            if filled.len() + piece.len() > ROWS_BYTES {
                if !allowance.write(stream, &filled).await {
                    return false;
                }
                filled.clear();
            }
            // Long pieces are compressed rows: they are written without a copy.
            if piece.len() > ROWS_BYTES {
                if !allowance.write(stream, piece).await {
                    return false;
                }
            } else {
                filled.extend_from_slice(piece);
            }
        }
    }
    allowance.write(stream, &filled).await
}

/// Returns the bytes of a part that is not a file.
pub(super) fn text(part: &Part) -> &[u8] {
    match part {
        Part::Bytes(bytes) => bytes,
        Part::File { .. } => unreachable!("file parts come from an open file"),
        Part::Held { .. } => unreachable!("rows come from the index"),
    }
}

/// Longest answer whose body is copied behind its head: one buffer costs 5 % less than two at a
/// kilobyte.
const JOINED_BYTES_MAX: u64 = 4 << 10;
/// Longest answer of several ranges that is copied together.
const GATHERED_BYTES_MAX: u64 = 64 << 10;
/// Bytes whose copy costs as much as the call that sends them.
const CALL_BYTES: u64 = 16 << 10;
/// Buffer of a listing: rows with addresses filled in, until they are written.
const ROWS_BYTES: usize = 16 << 10;
/// Slices of one call; an answer of a hundred ranges has two hundred.
const SLICES_MAX: usize = 64;
