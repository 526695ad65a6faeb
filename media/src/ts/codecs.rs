// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the streams of a programme are called in a playlist: `avc1.64001f,mp4a.40.2`.
//!
//! A player reads it before it has a byte of media, to know whether it can play at all. A name
//! needs the profile, which only the stream itself tells: its first parameter sets and frame
//! headers are looked at. Where one stream has no name, the whole list is left out, as a list that
//! is not whole is worse than none.
//!
//! Sources: RFC 6381 §3.3 (names); ISO/IEC 14496-10 §7.3.2.1.1 (sequence parameter set), 14496-3
//! §1.A.2.2 (ADTS), 11172-3 §2.4.1.3 (MPEG sound), ETSI TS 102 366 annex F (Dolby).
//! Does not do: H.265, whose name takes ten fields, and which belongs into MP4 segments.

use super::{Header, Packet};
use crate::TS_PACKET_BYTES;
use crate::plan::Stream;

/// Bytes of a PES packet that are looked at.
const UNIT_BYTES_MAX: usize = 8192;

/// A stream whose name is looked for.
struct Wanted {
    stream: Stream,
    name: Option<String>,
    unit: Vec<u8>,
}

/// The names of `streams`, found in these `packets` of 188 bytes; else why there are none.
///
/// # Errors
/// A sentence: a stream of a type without a name here, or whose headers are not in the packets.
pub fn codecs(streams: &[Stream], packets: &[u8]) -> Result<String, String> {
    let mut wanted: Vec<Wanted> = streams
        .iter()
        .filter(|stream| !METADATA.contains(&stream.stream_type))
        .map(|&stream| Wanted { stream, name: None, unit: Vec::new() })
        .collect();
    if let Some(nameless) = wanted.iter().find(|wanted| !has_name(wanted.stream.stream_type)) {
        let Stream { pid, stream_type } = nameless.stream;
        return Err(format!("stream type 0x{stream_type:02x} of PID {pid} has no name here"));
    }
    for bytes in packets.chunks_exact(TS_PACKET_BYTES) {
        let bytes: &[u8; TS_PACKET_BYTES] = bytes.try_into().expect("chunks of a packet");
        let packet = Packet { header: Header::read(bytes), bytes };
        let pid = packet.header.pid();
        if let Some(wanted) = wanted.iter_mut().find(|wanted| wanted.stream.pid == pid) {
            wanted.feed(&packet);
        }
    }
    let mut names: Vec<String> = Vec::new();
    for wanted in &mut wanted {
        wanted.look();
        let pid = wanted.stream.pid;
        let name = wanted.name.take();
        let name = name.ok_or_else(|| format!("PID {pid} does not tell its profile early on"))?;
        if !names.contains(&name) {
            names.push(name);
        }
    }
    match names.is_empty() {
        true => Err("no picture and no sound".to_owned()),
        false => Ok(names.join(",")),
    }
}

/// Timed metadata and splice points: nothing that is played.
const METADATA: [u8; 2] = [0x15, 0x86];

fn has_name(stream_type: u8) -> bool {
    matches!(stream_type, 0x03 | 0x04 | 0x0f | 0x1b | 0x81 | 0x87)
}

impl Wanted {
    fn feed(&mut self, packet: &Packet<'_>) {
        if self.name.is_some() || packet.header.is_scrambled() {
            return;
        }
        let mut payload = packet.payload();
        if packet.header.starts_unit() {
            self.look();
            self.unit.clear();
            let [0, 0, 1, _, _, _, _, _, header_bytes, ..] = *payload else { return };
            payload = payload.get(9 + usize::from(header_bytes)..).unwrap_or(&[]);
        } else if self.unit.is_empty() {
            return;
        }
        let room = UNIT_BYTES_MAX - self.unit.len();
        self.unit.extend_from_slice(&payload[..payload.len().min(room)]);
    }

    /// Looks for the name in what has been gathered of a PES packet.
    fn look(&mut self) {
        if self.name.is_none() && !self.unit.is_empty() {
            self.name = name(self.stream.stream_type, &self.unit);
        }
    }
}

fn name(stream_type: u8, unit: &[u8]) -> Option<String> {
    match stream_type {
        0x1b => unit.windows(7).find_map(|bytes| match *bytes {
            [0, 0, 1, nal, profile, constraints, level] if nal & 0x1f == 7 => {
                Some(format!("avc1.{profile:02x}{constraints:02x}{level:02x}"))
            }
            _ => None,
        }),
        0x0f => match *unit {
            [0xff, second, third, ..] if second & 0xf6 == 0xf0 => {
                Some(format!("mp4a.40.{}", (third >> 6) + 1))
            }
            _ => None,
        },
        0x03 | 0x04 => match *unit {
            // Layer 3 is 01, 2 is 10, 1 is 11.
            [0xff, second, ..] if second & 0xe0 == 0xe0 && second & 6 != 0 => {
                Some(format!("mp4a.40.{}", 35 - (second >> 1 & 3)))
            }
            _ => None,
        },
        0x81 => Some("ac-3".to_owned()),
        0x87 => Some("ec-3".to_owned()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(pid: u16, starts: bool, unit: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0x47, u8::from(starts) << 6 | (pid >> 8) as u8, pid as u8, 0x10];
        if starts {
            bytes.extend([0, 0, 1, 0xe0, 0, 0, 0x80, 0, 0]);
        }
        bytes.extend(unit);
        bytes.resize(TS_PACKET_BYTES, 0xee);
        bytes
    }

    const PICTURE: Stream = Stream { pid: 0x100, stream_type: 0x1b };
    const SOUND: Stream = Stream { pid: 0x101, stream_type: 0x0f };

    #[test]
    fn names_are_read_from_parameter_sets_and_frame_headers() {
        let sps = [0, 0, 0, 1, 9, 0xf0, 0, 0, 0, 1, 0x67, 0x64, 0x00, 0x1f, 0xac];
        let adts = [0xff, 0xf1, 0x50, 0x80];
        let file = [packet(0x100, true, &[0, 0, 1, 0x41]), packet(0x101, true, &adts)].concat();
        let file = [file, packet(0x100, true, &sps)].concat();
        assert_eq!(codecs(&[PICTURE, SOUND], &file).as_deref(), Ok("avc1.64001f,mp4a.40.2"));
        let id3 = Stream { pid: 0x102, stream_type: 0x15 };
        assert_eq!(codecs(&[PICTURE, id3], &file).as_deref(), Ok("avc1.64001f"));
        assert_eq!(name(0x03, &[0xff, 0xfb, 0x90]).as_deref(), Some("mp4a.40.34"));
        assert_eq!(name(0x04, &[0xff, 0xfd, 0x90]).as_deref(), Some("mp4a.40.33"));
    }

    #[test]
    fn one_stream_without_a_name_leaves_out_the_list() {
        let hevc = Stream { pid: 0x100, stream_type: 0x24 };
        assert!(codecs(&[hevc], &[]).unwrap_err().contains("0x24"));
        let early = packet(0x100, true, &[0, 0, 1, 0x41]);
        assert!(codecs(&[PICTURE], &early).unwrap_err().contains("PID 256"));
        assert!(codecs(&[], &early).is_err());
        for end in 0..early.len() {
            assert!(codecs(&[PICTURE, SOUND], &early[..end]).is_err());
        }
    }
}
