// SPDX-License-Identifier: MIT OR Apache-2.0
//! Encodes the packet plan of a transport stream as bytes for the cache folder, and decodes it.
//!
//! Tables are stored as differences, so a clock point needs about five bytes.
//!
//! Does not know the envelope ([`crate::stored`]).

use std::time::{Duration, SystemTime};

use super::identity::RtpIdentity;
use super::rows::{ClockPoint, ElementaryStream, EntryPoint, SyncLoss};
use super::{PacketPlan, PlanParts};
use crate::stored::{Envelope, PlanReader, PlanWriter, contradiction};
use crate::ts::ParameterSets;
use crate::{Aspect, PlanFault};

/// Number of the format.
pub const FORMAT: u32 = 6;

pub(crate) const ENVELOPE: Envelope = Envelope { magic: *b"pwplan\r\n", format: FORMAT };

/// Identity of a file's state: a stored plan is used only for the same state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanKey {
    /// The file's path, in whatever form the caller always uses.
    pub path: Vec<u8>,
    /// Its size.
    pub bytes: u64,
    /// Its time of last modification, since 1970.
    pub modified_ns: i128,
    /// Its inode number.
    pub inode: u64,
}

impl PlanKey {
    /// Returns the time of last modification; `None` beyond what the machine's clock can hold.
    pub fn modified(&self) -> Option<SystemTime> {
        let distance = Duration::from_nanos(u64::try_from(self.modified_ns.unsigned_abs()).ok()?);
        match self.modified_ns < 0 {
            true => SystemTime::UNIX_EPOCH.checked_sub(distance),
            false => SystemTime::UNIX_EPOCH.checked_add(distance),
        }
    }

    pub(crate) fn differs(&self, other: &Self) -> Option<Aspect> {
        [
            (self.path != other.path, Aspect::Path),
            (self.bytes != other.bytes, Aspect::Bytes),
            (self.modified_ns != other.modified_ns, Aspect::Modified),
            (self.inode != other.inode, Aspect::Inode),
        ]
        .into_iter()
        .find_map(|(differs, aspect)| differs.then_some(aspect))
    }
}

impl PacketPlan {
    /// The plan as bytes, valid for the file with this key only.
    pub fn encode(&self, key: &PlanKey) -> Vec<u8> {
        ENVELOPE.seal(key, |out| self.write(out))
    }

    fn write(&self, out: &mut PlanWriter) {
        self.identity.write(out);
        for number in [
            self.stride,
            self.file_bytes,
            self.discontinuities,
            self.losses_seen,
            self.lost_bytes,
            self.tail_bytes,
            self.bad_tables,
        ] {
            out.number(number);
        }
        out.pairs(&self.extents, |extent| (extent.file_offset, extent.ts_packets));
        let mut last = ClockPoint { ts_packet: 0, ticks: 0 };
        out.pairs(&self.clock, |&point| {
            let before = std::mem::replace(&mut last, point);
            (point.ts_packet - before.ts_packet, point.ticks - before.ticks)
        });
        let mut last = 0;
        out.pairs(&self.entries, |entry| {
            let before = std::mem::replace(&mut last, entry.ts_packet);
            (entry.ts_packet - before, entry.access_unit - entry.ts_packet)
        });
        let mut last = 0;
        for entry in &self.entries {
            out.number(entry.presented_ticks - last);
            last = entry.presented_ticks;
        }
        out.number(self.parameters.len() as u64);
        for sets in &self.parameters {
            out.number(sets.pid.into());
            out.bytes(&sets.bytes);
        }
        let mut last = 0;
        out.pairs(&self.key_units.lacking, |&(access_unit, number)| {
            let before = std::mem::replace(&mut last, access_unit);
            (access_unit - before, number.into())
        });
        let mut last = 0;
        out.pairs(&self.key_units.packets, |&(access_unit, packets)| {
            let before = std::mem::replace(&mut last, access_unit);
            (access_unit - before, packets)
        });
        out.pairs(&self.streams, |stream| (stream.pid.into(), stream.stream_type.into()));
        out.pairs(&self.losses, |loss| (loss.offset, loss.bytes));
        out.bytes(self.codecs.as_deref().unwrap_or_default().as_bytes());
        out.number(self.unsent.len() as u64);
        self.unsent.iter().for_each(|reason| out.bytes(reason.as_bytes()));
    }

    /// Decodes the plan of the file with this key, as written by [`encode`](Self::encode).
    pub fn decode(bytes: &[u8], key: &PlanKey) -> Result<Self, PlanFault> {
        let parts = ENVELOPE.open(bytes, key, read_parts)?;
        if parts.file_bytes != key.bytes {
            return Err(contradiction("file size"));
        }
        Self::assemble(parts).map_err(contradiction)
    }
}

impl RtpIdentity {
    pub(crate) fn write(self, out: &mut PlanWriter) {
        out.0.extend(self.ssrc.to_le_bytes());
        out.0.extend(self.first_sequence.to_le_bytes());
        out.0.extend(self.first_timestamp.to_le_bytes());
    }

    pub(crate) fn read(body: &mut PlanReader<'_>) -> Option<RtpIdentity> {
        Some(RtpIdentity {
            ssrc: u32::from_le_bytes(body.array()?),
            first_sequence: u16::from_le_bytes(body.array()?),
            first_timestamp: u32::from_le_bytes(body.array()?),
        })
    }
}

fn read_parts(body: &mut PlanReader<'_>) -> Option<PlanParts> {
    let identity = RtpIdentity::read(body)?;
    let stride = body.number()?;
    let file_bytes = body.number()?;
    let discontinuities = body.number()?;
    let losses_seen = body.number()?;
    let lost_bytes = body.number()?;
    let tail_bytes = body.number()?;
    let bad_tables = body.number()?;
    let extents = body.pairs(|offset, packets| Some((offset, packets)))?;
    let mut last = ClockPoint { ts_packet: 0, ticks: 0 };
    let clock = body.pairs(|packets, ticks| {
        last.ts_packet = last.ts_packet.checked_add(packets)?;
        last.ticks = last.ticks.checked_add(ticks)?;
        Some(last)
    })?;
    let mut ts_packet = 0_u64;
    let mut entries = body.pairs(|packets, lead| {
        ts_packet = ts_packet.checked_add(packets)?;
        let access_unit = ts_packet.checked_add(lead)?;
        Some(EntryPoint { ts_packet, access_unit, presented_ticks: 0 })
    })?;
    let mut last = 0_u64;
    for entry in &mut entries {
        last = last.checked_add(body.number()?)?;
        entry.presented_ticks = last;
    }
    let parameters = body.items(2, |body| {
        let pid = u16::try_from(body.number()?).ok()?;
        Some(ParameterSets { pid, bytes: body.bytes()?.into() })
    })?;
    let mut last = 0_u64;
    let lacking = body.pairs(|packets, number| {
        last = last.checked_add(packets)?;
        Some((last, u16::try_from(number).ok()?))
    })?;
    let mut last = 0_u64;
    let units = body.pairs(|packets_on, packets| {
        last = last.checked_add(packets_on)?;
        Some((last, packets))
    })?;
    let streams = body.pairs(|pid, stream_type| {
        let pid = u16::try_from(pid).ok()?;
        Some(ElementaryStream { pid, stream_type: u8::try_from(stream_type).ok()? })
    })?;
    let losses = body.pairs(|offset, bytes| Some(SyncLoss { offset, bytes }))?;
    let codecs = str::from_utf8(body.bytes()?).ok()?;
    let codecs = (!codecs.is_empty()).then(|| codecs.to_owned());
    let unsent = body.items(1, |body| Some(str::from_utf8(body.bytes()?).ok()?.to_owned()))?;
    Some(PlanParts {
        identity,
        stride,
        file_bytes,
        extents,
        clock,
        discontinuities,
        entries,
        parameters,
        lacking,
        units,
        streams,
        losses,
        losses_seen,
        lost_bytes,
        tail_bytes,
        bad_tables,
        codecs,
        unsent,
    })
}
