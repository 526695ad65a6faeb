// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sends the answer to a request over TLS, encrypted in this process.
//!
//! Up to [`PIECE_BYTES`] are read into the loop's buffer, encrypted into records of 16 KiB and
//! written by one call. Bytes that the socket does not accept stay in the connection's buffer,
//! encrypted, and nothing more is read until they have left: a slow client holds a piece.
//!
//! Costs three copies of each byte (page cache to buffer, buffer to record with the cipher, record
//! to socket) and two system calls a piece.
//!
//! Sources: RFC 8446 §5.1 (records).
//! Does not serve connections that the kernel encrypts ([`crate::http::transmit`] does).

use std::future::poll_fn;
use std::io;
use std::os::fd::AsFd;
use std::pin::Pin;
use std::task::Poll;

use paths::SendStats;
use tokio::io::AsyncWrite;
use tokio::task::coop::unconstrained;
use wire::http::Response;

use crate::http::body_reader::{BodyReader, NotRead};
use crate::http::content::Content;
use crate::http::download_pace::DownloadPace;
use crate::http::event_loops::{SCRATCH_BYTES, with_scratch};
use crate::http::long_turns::LongTurns;
use crate::server_state::ServerState;
use crate::tls::ClientTls;
use crate::write_deadline::Allowance;

/// Sends an answer; false when the peer does not accept it, or a file is shorter than promised.
pub(super) async fn transmit_encrypted(
    stream: &mut ClientTls,
    response: Response,
    content: Content,
    pace: &mut DownloadPace<'_>,
    (server, turns): (&ServerState, &LongTurns),
) -> bool {
    let mut allowance = Allowance::new(server.config.timeouts.write);
    let mut stats = SendStats::default();
    let mut body = BodyReader::new(response.parts, content);
    let mut head = &response.head[..];
    let (mut is_sent, mut in_turn) = (true, 0);
    let mut may_leave = 0;
    while !head.is_empty() || body.left() > 0 {
        if may_leave == 0 {
            let bytes = head.len() as u64 + body.left();
            let (turn, waited) = pace.turn(bytes, Some(stream.get_ref().0.as_fd())).await;
            allowance.pause(waited);
            may_leave = turn;
        }
        match write_piece(stream, &mut head, &mut body, may_leave).await {
            Ok(written) => {
                pace.sent(written as u64);
                may_leave = may_leave.saturating_sub(written as u64);
                stats.bytes += written as u64;
                stats.calls += 2;
                is_sent = flush(stream, &mut allowance).await;
                allowance.handed(written as u64);
                in_turn += written;
            }
            Err(NotRead::NotInMemory) => body.fetch().await,
            Err(NotRead::Failed(error)) => {
                tracing::debug!("https download: {error}");
                is_sent = false;
            }
        }
        if !is_sent {
            break;
        }
        if in_turn >= TURN_BYTES && body.left() > 0 {
            in_turn = 0;
            turns.next().await;
        }
    }
    stats.copied_bytes = 3 * stats.bytes;
    *server.meters.downloads.lock() += stats;
    is_sent
}

/// Encrypts the next piece of at most `bytes_max`; returns its length. The connection's buffer is
/// empty before.
async fn write_piece(
    stream: &mut ClientTls,
    head: &mut &[u8],
    body: &mut BodyReader,
    bytes_max: u64,
) -> Result<usize, NotRead> {
    let bytes_max = usize::try_from(bytes_max).unwrap_or(PIECE_BYTES).min(PIECE_BYTES);
    poll_fn(|context| {
        with_scratch(|scratch| {
            let scratch = &mut scratch[..bytes_max];
            let head_bytes = head.len().min(scratch.len());
            scratch[..head_bytes].copy_from_slice(&head[..head_bytes]);
            let filled = match body.fill(&mut scratch[head_bytes..]) {
                Ok(filled) => head_bytes + filled,
                // The head leaves alone.
                Err(NotRead::NotInMemory) if head_bytes > 0 => head_bytes,
                Err(error) => return Poll::Ready(Err(error)),
            };
            let written = Pin::new(&mut *stream).poll_write(context, &scratch[..filled]);
            written.map(|written| {
                let written = match written {
                    Ok(0) => return Err(NotRead::Failed(io::ErrorKind::WriteZero.into())),
                    written => written.map_err(NotRead::Failed)?,
                };
                let of_head = written.min(head_bytes);
                *head = &head[of_head..];
                body.advance(written - of_head);
                Ok(written)
            })
        })
    })
    .await
}

/// Sends the encrypted bytes; false when the peer is gone or too slow.
async fn flush(stream: &mut ClientTls, allowance: &mut Allowance) -> bool {
    loop {
        // Polled without waiting: the allowance bounds the time of a peer that accepts nothing.
        // Outside of tokio's budget, which would answer "pending" for a socket that is writable,
        // for ever.
        let flushed = unconstrained(poll_fn(|context| {
            Poll::Ready(match Pin::new(&mut *stream).poll_flush(context) {
                Poll::Ready(flushed) => Some(flushed.is_ok()),
                Poll::Pending => None,
            })
        }));
        match flushed.await {
            Some(is_flushed) => return is_flushed,
            None => {
                if !allowance.writable(stream.get_ref().0.tcp()).await {
                    return false;
                }
            }
        }
    }
}

/// Length of a piece: four records.
const PIECE_BYTES: usize = SCRATCH_BYTES;
/// Bytes after which the other connections of the loop get a turn.
const TURN_BYTES: usize = 256 << 10;
