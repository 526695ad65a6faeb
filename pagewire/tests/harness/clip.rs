// SPDX-License-Identifier: MIT OR Apache-2.0
//! Transport streams made up byte by byte: no encoder needed, of any length and rate, and no two
//! packets of all streams of different seeds alike, so that a byte out of place is seen.
//!
//! One programme of one video stream of a private coding; a clock reference every 40 ms, and PAT,
//! PMT and a random access point every second.
//!
//! Sources: ISO/IEC 13818-1 §2.4.3 (packets, adaptation field), §2.4.4 (PAT, PMT).

/// Properties of the clip.
#[derive(Clone, Copy)]
pub(crate) struct Clip {
    pub(crate) seed: u64,
    pub(crate) milliseconds: u64,
    pub(crate) bits_per_second: u64,
    /// Without, nothing says how fast to send it.
    pub(crate) with_clock: bool,
}

impl Clip {
    /// Half a megabit a second: 50 RTP packets, which a receiver that is late for a second can
    /// hold.
    pub(crate) fn of_seconds(seed: u64, seconds: u64) -> Clip {
        Clip { seed, milliseconds: seconds * 1000, bits_per_second: 500_000, with_clock: true }
    }

    /// The file.
    pub(crate) fn bytes(self) -> Vec<u8> {
        let rate = self.bits_per_second;
        let packets = (self.milliseconds * rate).div_ceil(1000 * PACKET_BITS);
        // Every so many packets; a clock reference first of all, so that the first RTP packet has
        // one.
        let every = |milliseconds: u64| (milliseconds * rate / (1000 * PACKET_BITS)).max(1);
        let (clocks, entries) = (every(40), every(1000));
        let mut writer = Writer { bytes: Vec::new(), noise: self.seed | 1, counters: [0; 3] };
        for packet in 0..packets {
            let from_entry = packet % entries;
            let pcr = packet * PACKET_BITS * 27_000_000 / rate;
            match from_entry {
                0 => writer.table(0, 0, &[0, 1, 0xe1, 0]),
                1 => writer.table(PMT_PID, 2, &[0xe1, 1, 0xf0, 0, 0x1b, 0xe1, 1, 0xf0, 0]),
                2 => writer.video(true, self.with_clock.then_some(pcr)),
                _ => {
                    let clock = self.with_clock && packet.is_multiple_of(clocks);
                    writer.video(false, clock.then_some(pcr));
                }
            }
        }
        writer.bytes
    }
}

/// The built-in clip with parameter sets at its beginning alone: those that follow are made filler
/// data.
pub(crate) fn with_sets_once() -> Vec<u8> {
    let mut film = include_bytes!("../../assets/clip.ts").to_vec();
    let mut has_sets = false;
    for at in 3..film.len() {
        match film[at - 3..=at] {
            [0, 0, 1, 0x65] => has_sets = true,
            [0, 0, 1, 0x67 | 0x68] if has_sets => film[at] = 12,
            _ => {}
        }
    }
    film
}

/// The payload of the built-in clip's pictures in these packets.
pub(crate) fn pictures(packets: &[u8]) -> Vec<u8> {
    let packets = packets.as_chunks::<188>().0.iter();
    let pictures = packets.filter(|packet| packet[1] & 0x1f == 1 && packet[2] == 0);
    let payload = |packet: &[u8; 188]| {
        let skipped = if packet[3] & 0x20 != 0 { 1 + usize::from(packet[4]) } else { 0 };
        packet[4 + skipped..].to_vec()
    };
    pictures.flat_map(payload).collect()
}

/// RTP payload of 7 packets of the stream.
pub(crate) const PAYLOAD_BYTES: usize = 7 * 188;

const PACKET_BITS: u64 = 188 * 8;
const PMT_PID: u16 = 0x100;
const VIDEO_PID: u16 = 0x101;

struct Writer {
    bytes: Vec<u8>,
    noise: u64,
    /// Continuity counters of PAT, PMT and video.
    counters: [u8; 3],
}

impl Writer {
    /// A table of one section, which its packet holds.
    fn table(&mut self, pid: u16, table_id: u8, content: &[u8]) {
        let length = 5 + content.len() + 4;
        let mut section = vec![table_id, 0xb0, length as u8, 0, 1, 0xc1, 0, 0];
        section.extend_from_slice(content);
        let check = crc32(&section);
        section.extend_from_slice(&check.to_be_bytes());
        let start = self.header(pid, true, 1);
        self.bytes.push(0);
        self.bytes.extend_from_slice(&section);
        self.bytes.resize(start + 188, 0xff);
    }

    fn video(&mut self, entry: bool, pcr: Option<u64>) {
        let start = self.header(VIDEO_PID, entry, if entry || pcr.is_some() { 3 } else { 1 });
        if entry || pcr.is_some() {
            let flags = u8::from(entry) << 6 | u8::from(pcr.is_some()) << 4;
            self.bytes.extend_from_slice(&[if pcr.is_some() { 7 } else { 1 }, flags]);
        }
        if let Some(pcr) = pcr {
            let (base, extension) = (pcr / 300, pcr % 300);
            let field = base << 15 | 0x3f << 9 | extension;
            self.bytes.extend_from_slice(&field.to_be_bytes()[2..]);
        }
        if entry {
            self.bytes.extend_from_slice(&[0, 0, 1, 0xe0, 0, 0, 0x80, 0, 0]);
        }
        while self.bytes.len() < start + 188 {
            // xorshift64: enough that no two packets are alike.
            self.noise ^= self.noise << 13;
            self.noise ^= self.noise >> 7;
            self.noise ^= self.noise << 17;
            // No sync byte and no start code where none is meant.
            self.bytes.push((self.noise >> 32) as u8 | 0x80);
        }
    }

    /// The 4 bytes in front; where in the file they begin.
    fn header(&mut self, pid: u16, starts: bool, control: u8) -> usize {
        let counter = &mut self.counters[usize::from(pid.saturating_sub(0xff))];
        let flags = control << 4 | *counter;
        *counter = (*counter + 1) & 15;
        let start = self.bytes.len();
        let word = pid | u16::from(starts) << 14;
        self.bytes.extend_from_slice(&[0x47, (word >> 8) as u8, word as u8, flags]);
        start
    }
}

/// ISO/IEC 13818-1 annex A, a bit at a time.
fn crc32(bytes: &[u8]) -> u32 {
    bytes.iter().fold(u32::MAX, |mut crc, byte| {
        crc ^= u32::from(*byte) << 24;
        for _ in 0..8 {
            crc = crc << 1 ^ if crc >> 31 == 1 { 0x04c1_1db7 } else { 0 };
        }
        crc
    })
}
