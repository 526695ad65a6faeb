// SPDX-License-Identifier: MIT OR Apache-2.0
//! Generates the tables of the channel: PAT, PMT and SDT, each at its interval.
//!
//! PAT and PMT are sent every 80 ms, so that a receiver that joins waits at most 100 ms even if the
//! next packet of the stream is late. The SDT is sent every second. A version changes exactly when
//! the content changes, also after a take-over from another server whose tables were observed.
//!
//! Sources: ISO/IEC 13818-1 §2.4.4 (tables); ETSI EN 300 468 §5.2.3 (SDT), §6.2.33 (service
//! descriptor), annex A.2 (text); ETSI TR 101 290 §5.2.1, 1.3 and 1.5 (500 ms; DVB advises 100).
//! Does not generate EIT or NIT.

use super::item::{FIRST_PID, SpliceItem};
use crate::ts::TsPacket;
use crate::ts::extract::{BODY_BYTES_MAX, packets, section};
use crate::ts::psi::Sections;
use crate::ts::tables::PAT_PID;
use crate::{SpliceRefusal, SpliceSettings, TICKS_PER_SECOND};

/// PID of the channel's PMT.
pub(super) const MAP_PID: u16 = 0x1000;

/// PID of the service description table (EN 300 468 table 1).
pub(super) const SDT_PID: u16 = 0x11;

/// Interval of PAT and PMT.
const MAP_TICKS: u64 = TICKS_PER_SECOND * 80 / 1000;

/// Interval of the SDT: the limit is 2 s (TR 101 290, 3.2).
const SDT_TICKS: u64 = TICKS_PER_SECOND;

/// A table of one section.
#[derive(Debug, Clone, Default)]
struct Table {
    pid: u16,
    table_id: u8,
    number: u16,
    body: Vec<u8>,
    /// Version and body that were last sent, or observed from another server.
    sent: Option<(u8, Vec<u8>)>,
    /// Next continuity counter.
    continuity: u8,
}

impl Table {
    fn new(pid: u16, table_id: u8, number: u16, body: Vec<u8>) -> Self {
        Self { pid, table_id, number, body, ..Self::default() }
    }

    fn write(&mut self, out: &mut Vec<u8>) {
        let version = match &self.sent {
            None => 0,
            Some((version, body)) if *body == self.body => *version,
            Some((version, _)) => (version + 1) & 0x1f,
        };
        if self.sent.as_ref().is_none_or(|(sent, _)| *sent != version) {
            self.sent = Some((version, self.body.clone()));
        }
        let section = section(self.table_id, self.number, version, &self.body);
        packets(self.pid, &section, &mut self.continuity, out);
    }
}

/// The tables and their due times.
pub(super) struct Announce {
    /// PAT, PMT, SDT.
    tables: [Table; 3],
    /// Section buffers for another server's tables, by table.
    observed: [Sections; 3],
    map_due: u64,
    sdt_due: u64,
}

impl Announce {
    pub(super) fn new(settings: &SpliceSettings) -> Self {
        let [high, low] = (0xe000 | MAP_PID).to_be_bytes();
        let mut pat = settings.service_id.to_be_bytes().to_vec();
        pat.extend([high, low]);
        let number = settings.transport_stream_id;
        Self {
            tables: [
                Table::new(PAT_PID, 0x00, number, pat),
                Table::new(MAP_PID, 0x02, settings.service_id, empty_map()),
                Table::new(SDT_PID, 0x42, number, services(settings)),
            ],
            observed: Default::default(),
            map_due: 0,
            sdt_due: 0,
        }
    }

    /// Replaces the map; a different map is sent immediately.
    pub(super) fn put_map(&mut self, body: Vec<u8>) {
        if self.tables[1].body != body {
            self.tables[1].body = body;
            self.map_due = 0;
        }
    }

    /// Appends the tables that are due at `now`.
    pub(super) fn write(&mut self, now: u64, out: &mut Vec<u8>) {
        if now >= self.map_due {
            self.tables[0].write(out);
            self.tables[1].write(out);
            self.map_due = now + MAP_TICKS;
            if now >= self.sdt_due {
                self.tables[2].write(out);
                self.sdt_due = now + SDT_TICKS;
            }
        }
    }

    /// Returns the time from which [`write`](Self::write) has something to append.
    pub(super) fn due(&self) -> u64 {
        self.map_due
    }

    /// Adopts counters and versions from a packet of another server; returns false if it carries no
    /// table.
    pub(super) fn observe(&mut self, packet: &TsPacket<'_>) -> bool {
        let pid = packet.header.pid();
        let Some(at) = self.tables.iter().position(|table| table.pid == pid) else { return false };
        let table = &mut self.tables[at];
        if packet.header.has_payload() {
            table.continuity = (packet.header.continuity() + 1) & 0x0f;
        }
        self.observed[at].feed(0, packet, |section, _| {
            let body = section.len().checked_sub(4).and_then(|end| section.get(8..end));
            if let Some(body) = body.filter(|_| section[0] == table.table_id) {
                table.sent = Some((section[5] >> 1 & 0x1f, body.to_vec()));
            }
        });
        true
    }
}

/// Builds the body of a PMT without streams.
fn empty_map() -> Vec<u8> {
    let mut map = (0xe000 | FIRST_PID).to_be_bytes().to_vec();
    map.extend([0xf0, 0]);
    map
}

/// Builds the body of the channel's PMT for an item.
pub(super) fn map(item: &SpliceItem) -> Result<Vec<u8>, SpliceRefusal> {
    let mut map = (0xe000 | FIRST_PID).to_be_bytes().to_vec();
    let mut describe = |head: &[u8], descriptors: &[u8]| {
        map.extend(head);
        map.extend((0xf000 | descriptors.len() as u16 & 0x3ff).to_be_bytes());
        map.extend(descriptors);
    };
    describe(&[], &item.descriptors);
    for stream in &item.streams {
        let [high, low] = (0xe000 | (FIRST_PID + stream.output as u16)).to_be_bytes();
        describe(&[stream.stream_type, high, low], &stream.descriptors);
    }
    if map.len() > BODY_BYTES_MAX {
        return Err(SpliceRefusal::MapTooLong { bytes: map.len(), limit: BODY_BYTES_MAX });
    }
    Ok(map)
}

/// Builds the body of the SDT: one running service.
fn services(settings: &SpliceSettings) -> Vec<u8> {
    const SERVICE_DESCRIPTOR: u8 = 0x48;
    const DIGITAL_TELEVISION: u8 = 0x01;
    /// The service is running and not scrambled, in the four bits above the length.
    const RUNNING: u16 = 0x8000;
    let (provider, name) = (text(&settings.provider), text(&settings.service_name));
    let mut body = settings.original_network_id.to_be_bytes().to_vec();
    body.push(0xff);
    body.extend(settings.service_id.to_be_bytes());
    // No EIT.
    body.push(0xfc);
    let length = 3 + provider.len() + name.len();
    body.extend((RUNNING | (2 + length) as u16).to_be_bytes());
    body.extend([SERVICE_DESCRIPTOR, length as u8, DIGITAL_TELEVISION, provider.len() as u8]);
    body.extend(provider);
    body.push(name.len() as u8);
    body.extend(name);
    body
}

/// Encodes text for a descriptor: ASCII unchanged, other text as UTF-8 with its prefix byte.
fn text(text: &str) -> Vec<u8> {
    const UTF_8: u8 = 0x15;
    let mut bytes = if text.is_ascii() { Vec::new() } else { vec![UTF_8] };
    bytes.extend(text.bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TS_PACKET_BYTES;
    use crate::ts::TsHeader;

    fn versions(stream: &[u8]) -> Vec<(u16, u8)> {
        let packets = stream.as_chunks::<TS_PACKET_BYTES>().0.iter();
        packets.map(|packet| (TsHeader::read(packet).pid(), packet[10] >> 1 & 0x1f)).collect()
    }

    #[test]
    fn tables_come_at_their_intervals() {
        let mut announce = Announce::new(&SpliceSettings::default());
        let mut times = [Vec::new(), Vec::new(), Vec::new()];
        for ms in 0..4000 {
            let mut out = Vec::new();
            announce.write(ms * TICKS_PER_SECOND / 1000, &mut out);
            for (pid, _) in versions(&out) {
                times[announce.tables.iter().position(|t| t.pid == pid).unwrap()].push(ms);
            }
        }
        for (times, limit) in times.iter().zip([100, 100, 2000]) {
            assert!(times.len() > 2 && times.windows(2).all(|pair| pair[1] - pair[0] < limit));
        }
    }

    #[test]
    fn version_changes_with_the_content_alone_and_goes_on_from_another_server() {
        let mut first = Announce::new(&SpliceSettings::default());
        let mut out = Vec::new();
        let mut other = empty_map();
        other.extend([0x1b, 0xe1, 0, 0xf0, 0]);
        first.put_map(other.clone());
        first.write(0, &mut out);
        first.put_map(other.clone());
        first.write(MAP_TICKS, &mut out);
        first.put_map(empty_map());
        first.write(MAP_TICKS + 1, &mut out);
        let maps = |out: &[u8]| {
            let of_map = versions(out).into_iter().filter(|&(pid, _)| pid == MAP_PID);
            of_map.map(|(_, version)| version).collect::<Vec<_>>()
        };
        assert_eq!(maps(&out), [0, 0, 1]);

        let mut second = Announce::new(&SpliceSettings::default());
        for bytes in out.as_chunks::<TS_PACKET_BYTES>().0 {
            let packet = TsPacket { header: TsHeader::read(bytes), bytes };
            assert!(second.observe(&packet));
        }
        let mut after = Vec::new();
        second.write(0, &mut after);
        second.put_map(other);
        second.write(1, &mut after);
        assert_eq!(maps(&after), [1, 2]);
        assert_eq!(after[3] & 0x0f, 3, "the PAT was sent three times");
    }

    #[test]
    fn text_that_is_not_ascii_is_marked_as_utf_8() {
        assert_eq!(text("Kanal"), b"Kanal");
        assert_eq!(text("Ö"), [0x15, 0xc3, 0x96]);
    }
}
