// SPDX-License-Identifier: MIT OR Apache-2.0
//! `sendfile` of a batch of a framed wire image.
//!
//! Frame headers and RTP headers lie in the file between the payloads, so a batch is one range and
//! nothing is copied: the socket refers to the page cache's pages. One call a batch.
//!
//! Sources: RFC 2326 §10.12, `sendfile(2)`.
//!
//! Does not give a session its own channel, SSRC or sequence numbers: these are the image's.

use std::os::fd::AsFd;

use super::{InterleavedOutput, InterleavedPath, count_accepted, read_rest, refusal};
use crate::batch::{Batch, BatchForm};
use crate::error::SendError;
use crate::send_stats::SendStats;
use crate::spec::{Feed, Open, Spec, SystemCalls, Transport};
use crate::sys;

pub(crate) static SPEC: Spec = Spec {
    name: "framed_sendfile",
    transport: Transport::Interleaved,
    summary: "framed wire image, one sendfile of a batch; no copy",
    copies_per_byte: 0,
    header_copies: 0,
    system_calls: SystemCalls::PerBatch(1),
    sources: &["RFC 2326 §10.12", "sendfile(2)"],
    probe: |host| host.needs_kernel(2, 6),
    open: Open::Interleaved { feed: Feed::Image, open: || Ok(Box::new(FramedSendfile)) },
};

struct FramedSendfile;

impl InterleavedPath for FramedSendfile {
    fn send(
        &mut self,
        batch: &Batch<'_>,
        to: &mut InterleavedOutput,
        stats: &mut SendStats,
    ) -> Result<u32, SendError> {
        batch.assert_sound();
        let BatchForm::Image { source, offset } = batch.form else {
            panic!("this path is fed images");
        };
        to.flush(stats)?;
        if batch.packets == 0 {
            return Ok(0);
        }
        let sent = match sys::sendfile(to.as_fd(), source.file(), offset, batch.bytes, stats) {
            Ok(0) => {
                let at = source.size_now(stats).unwrap_or(offset);
                return Err(SendError::Shrunk { at: at.min(offset) });
            }
            Ok(sent) => sent as u64,
            Err(errno) => return Err(refusal("sendfile", errno, to, stats)),
        };
        let (count, cut) = count_accepted(batch, sent, stats);
        if cut > 0 {
            let packet_bytes = batch.run_bytes(count - 1, 1);
            let mut rest = vec![0; (packet_bytes - cut) as usize];
            read_rest(source, &mut rest, offset + sent, stats);
            to.keep(&rest);
        }
        Ok(count)
    }
}
