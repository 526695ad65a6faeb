// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writes transport streams for the tests, packet by packet.
//!
//! Sources: ISO/IEC 13818-1 §2.4.3 and §2.4.4; the CRC is computed bit by bit from annex A.

use std::collections::HashMap;

pub(crate) const PMT_PID: u16 = 0x1000;
pub(crate) const VIDEO_PID: u16 = 0x100;
pub(crate) const AUDIO_PID: u16 = 0x101;
pub(crate) const H264: u8 = 0x1b;
pub(crate) const AAC: u8 = 0x0f;

/// Ticks of a frame at 25 per second.
pub(crate) const FRAME_TICKS: u64 = 27_000_000 / 25;

/// Packets of a frame as [`Writer::frame`] writes it.
pub(crate) const FRAME_PACKETS: u64 = 20;

/// The adaptation field of a packet.
#[derive(Clone, Copy, Default)]
pub(crate) struct Adaptation {
    pub(crate) discontinuity: bool,
    pub(crate) random_access: bool,
    pub(crate) pcr: Option<u64>,
}

/// A stream in the making.
#[derive(Default)]
pub(crate) struct Writer {
    /// The file.
    pub(crate) file: Vec<u8>,
    /// Its packets alone.
    pub(crate) packets: Vec<u8>,
    /// Each packet has an arrival time in front.
    has_arrival: bool,
    counters: HashMap<u16, u8>,
}

impl Writer {
    /// A stream of packets of 192 bytes, or of 188.
    pub(crate) fn new(has_arrival: bool) -> Self {
        Self { has_arrival, ..Self::default() }
    }

    /// Packets so far.
    pub(crate) fn count(&self) -> u64 {
        self.packets.len() as u64 / 188
    }

    /// A packet with as much of `payload` as fits, filled up by its adaptation field; what is
    /// left.
    pub(crate) fn packet<'a>(
        &mut self,
        pid: u16,
        starts_unit: bool,
        adaptation: Option<Adaptation>,
        payload: &'a [u8],
    ) -> &'a [u8] {
        let mut field = adaptation.map(field_of);
        let room = 184 - field.as_ref().map_or(0, |field| field.len() + 1);
        let (sent, left) = payload.split_at(room.min(payload.len()));
        if sent.len() < room {
            let mut filled = field.unwrap_or_default();
            if 183 - sent.len() > 0 && filled.is_empty() {
                filled.push(0);
            }
            filled.resize(183 - sent.len(), 0xff);
            field = Some(filled);
        }
        let counter = self.counters.entry(pid).or_insert(15);
        if !sent.is_empty() {
            *counter = (*counter + 1) & 15;
        }
        let mut packet = vec![0x47, (u8::from(starts_unit) << 6) | (pid >> 8) as u8, pid as u8];
        let control = u8::from(field.is_some()) << 5 | u8::from(!sent.is_empty()) << 4;
        packet.push(control | *counter);
        if let Some(field) = field {
            packet.push(field.len() as u8);
            packet.extend(field);
        }
        packet.extend(sent);
        self.push(&packet);
        left
    }

    /// Writes a packet unchanged.
    pub(crate) fn push(&mut self, packet: &[u8]) {
        assert_eq!(packet.len(), 188);
        if self.has_arrival {
            self.file.extend((self.count() as u32 * 1000).to_be_bytes());
        }
        self.file.extend(packet);
        self.packets.extend(packet);
    }

    /// Bytes that are no packet.
    pub(crate) fn garbage(&mut self, bytes: &[u8]) {
        self.file.extend(bytes);
    }

    /// A null packet.
    pub(crate) fn null(&mut self) {
        self.packet(0x1fff, false, None, &[0xff; 184]);
    }

    /// A payload that is not the start of anything.
    pub(crate) fn middle(&mut self, pid: u16) {
        let filling = self.count() as u8 & 0x3f;
        self.packet(pid, false, None, &[filling; 184]);
    }

    /// A packet with a clock reference and no payload.
    pub(crate) fn pcr(&mut self, pid: u16, ticks: u64) {
        let pcr = Some(ticks % ((1 << 33) * 300));
        self.packet(pid, false, Some(Adaptation { pcr, ..Adaptation::default() }), &[]);
    }

    /// Writes a section, in packets of its own.
    pub(crate) fn section(&mut self, pid: u16, section: &[u8]) {
        let mut payload = vec![0];
        payload.extend(section);
        payload.resize(payload.len().div_ceil(184) * 184, 0xff);
        let mut starts = true;
        for chunk in payload.chunks(184) {
            self.packet(pid, starts, None, chunk);
            starts = false;
        }
    }

    /// The association table, in one section.
    pub(crate) fn pat(&mut self, programmes: &[(u16, u16)]) {
        self.section(0, &pat_section(0, programmes));
    }

    /// The map of programme 1 on [`PMT_PID`].
    pub(crate) fn pmt(&mut self, pcr_pid: u16, streams: &[(u16, u8)]) {
        self.section(PMT_PID, &pmt_section(1, pcr_pid, streams, &[]));
    }

    /// Both tables of a stream with video, sound and the clock on the video.
    pub(crate) fn tables(&mut self) {
        self.pat(&[(1, PMT_PID)]);
        self.pmt(VIDEO_PID, &[(VIDEO_PID, H264), (AUDIO_PID, AAC)]);
    }

    /// A video frame of [`FRAME_PACKETS`] packets, due at `ticks` by its clock reference, which
    /// begins with this NAL unit. Sound and null packets are among them.
    pub(crate) fn frame(&mut self, ticks: u64, nal_unit: u8) {
        let adaptation =
            Adaptation { pcr: Some(ticks % ((1 << 33) * 300)), ..Adaptation::default() };
        self.packet(VIDEO_PID, true, Some(adaptation), &pes(&[0, 0, 0, 1, nal_unit, 0x88, 0x84]));
        for index in 1..FRAME_PACKETS {
            match index % 5 {
                3 => self.middle(AUDIO_PID),
                4 => self.null(),
                _ => self.middle(VIDEO_PID),
            }
        }
    }
}

/// A stream with tables before every tenth frame, which is an IDR picture.
pub(crate) fn film(frames: u64) -> Writer {
    let mut writer = Writer::default();
    film_into(&mut writer, 0..frames);
    writer
}

/// Frames of such a stream.
pub(crate) fn film_into(writer: &mut Writer, frames: std::ops::Range<u64>) {
    for frame in frames {
        if frame % 10 == 0 {
            writer.tables();
        }
        writer.frame(frame * FRAME_TICKS, if frame % 10 == 0 { 0x65 } else { 0x41 });
    }
}

/// The start of a video PES packet with this elementary stream data.
pub(crate) fn pes(data: &[u8]) -> Vec<u8> {
    pes_at(0, data)
}

/// Writes the same, presented at `time`, in units of 90 kHz.
pub(crate) fn pes_at(time: u64, data: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0, 0, 1, 0xe0, 0, 0, 0x80, 0x80, 5];
    bytes.push(0x21 | (time >> 29 & 0x0e) as u8);
    bytes.extend(((time >> 14 & 0xfffe) as u16 | 1).to_be_bytes());
    bytes.extend(((time << 1 & 0xfffe) as u16 | 1).to_be_bytes());
    bytes.extend(data);
    bytes
}

pub(crate) fn pat_section(version: u8, programmes: &[(u16, u16)]) -> Vec<u8> {
    let mut body = vec![0, 1, 0xc1 | version << 1, 0, 0];
    for &(number, pid) in programmes {
        body.extend(number.to_be_bytes());
        body.extend((0xe000 | pid).to_be_bytes());
    }
    close(0, body)
}

/// `descriptors` belong to the programme.
pub(crate) fn pmt_section(
    number: u16,
    pcr_pid: u16,
    streams: &[(u16, u8)],
    descriptors: &[u8],
) -> Vec<u8> {
    let mut body = number.to_be_bytes().to_vec();
    body.extend([0xc1, 0, 0]);
    body.extend((0xe000 | pcr_pid).to_be_bytes());
    body.extend((0xf000 | descriptors.len() as u16).to_be_bytes());
    body.extend(descriptors);
    for &(pid, stream_type) in streams {
        body.push(stream_type);
        body.extend((0xe000 | pid).to_be_bytes());
        body.extend([0xf0, 0]);
    }
    close(2, body)
}

fn close(table_id: u8, body: Vec<u8>) -> Vec<u8> {
    let mut section = vec![table_id];
    section.extend((0xb000 | (body.len() as u16 + 4)).to_be_bytes());
    section.extend(body);
    section.extend(crc(&section).to_be_bytes());
    section
}

fn crc(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for bit in bytes.iter().flat_map(|byte| (0..8).rev().map(move |bit| byte >> bit & 1)) {
        let carry = crc >> 31 ^ u32::from(bit);
        crc = (crc << 1) ^ (carry * 0x04c1_1db7);
    }
    crc
}

fn field_of(adaptation: Adaptation) -> Vec<u8> {
    let flags = u8::from(adaptation.discontinuity) << 7
        | u8::from(adaptation.random_access) << 6
        | u8::from(adaptation.pcr.is_some()) << 4;
    let mut field = vec![flags];
    if let Some(pcr) = adaptation.pcr {
        let (base, extension) = (pcr / 300, pcr % 300);
        let bits = base << 15 | 0x3f << 9 | extension;
        field.extend(&bits.to_be_bytes()[2..]);
    }
    field
}
