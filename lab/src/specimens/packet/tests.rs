// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of every variant of reading frames against the oracle, and of the oracle against frames
//! with known fields: made here, stamped by [`simd::stamp`], and one sent by the kernel.
//!
//! Frames end at the end of a page, before an inaccessible one: a byte read too far is a fault.
//!
//! Does not fuzz.

use core::net::{Ipv4Addr, SocketAddrV4};

use super::*;
use crate::specimens::trials::noise;
use simd::stamp;

/// Parts of a frame.
#[derive(Clone)]
struct Frame {
    /// Ethernet kinds and controls of tags.
    tags: Vec<(u16, u16)>,
    is_v6: bool,
    /// Words of IPv4 options, or extension headers of IPv6.
    options: usize,
    sources: u8,
    /// Words of the RTP extension.
    extension: Option<u16>,
    padding: u8,
    payload: Vec<u8>,
    /// Bytes behind the IP packet.
    trailer: usize,
}

const USUAL_FRAME: Frame = Frame {
    tags: Vec::new(),
    is_v6: false,
    options: 0,
    sources: 0,
    extension: None,
    padding: 0,
    payload: Vec::new(),
    trailer: 0,
};

impl Frame {
    fn bytes(&self) -> Vec<u8> {
        let mut rtp = vec![0x80 | self.sources, 0xa1];
        rtp[0] |= if self.padding > 0 { 0x20 } else { 0 };
        rtp[0] |= if self.extension.is_some() { 0x10 } else { 0 };
        rtp.extend(0x1234_u16.to_be_bytes());
        rtp.extend(0x89ab_cdef_u32.to_be_bytes());
        rtp.extend(0xfeed_beef_u32.to_be_bytes());
        rtp.extend(vec![0x77; 4 * usize::from(self.sources)]);
        if let Some(words) = self.extension {
            rtp.extend([0xbe, 0xde]);
            rtp.extend(words.to_be_bytes());
            rtp.extend(vec![0x66; 4 * usize::from(words)]);
        }
        rtp.extend(&self.payload);
        if let Some(zeroes) = usize::from(self.padding).checked_sub(1) {
            rtp.extend(vec![0; zeroes]);
            rtp.push(self.padding);
        }
        let udp_bytes = 8 + rtp.len();
        let mut frame = vec![2; 12];
        for (kind, control) in &self.tags {
            frame.extend(kind.to_be_bytes());
            frame.extend(control.to_be_bytes());
        }
        if self.is_v6 {
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
            frame.extend(((8 * self.options + udp_bytes) as u16).to_be_bytes());
            frame.extend([if self.options > 0 { 60 } else { 17 }, 64]);
            frame.extend([0x20; 32]);
            for option in 1..=self.options {
                let next = if option == self.options { 17 } else { 60 };
                frame.extend([next, 0, 1, 4, 0, 0, 0, 0]);
            }
        } else {
            let total = 20 + 4 * self.options + udp_bytes;
            frame.extend([0x08, 0x00, 0x45 + self.options as u8, 0xb8]);
            frame.extend((total as u16).to_be_bytes());
            frame.extend([0xab, 0xcd, 0x40, 0x00, 64, 17, 0, 0, 10, 0, 0, 1, 239, 1, 2, 3]);
            frame.extend(vec![1; 4 * self.options]);
        }
        frame.extend(5004_u16.to_be_bytes());
        frame.extend(6004_u16.to_be_bytes());
        frame.extend((udp_bytes as u16).to_be_bytes());
        frame.extend([0xc5, 0xc5]);
        frame.extend(rtp);
        frame.extend(vec![0; self.trailer]);
        frame
    }

    fn fields(&self) -> Fields {
        let ip_at = 14 + 4 * self.tags.len();
        let options = self.options * if self.is_v6 { 8 } else { 4 };
        let udp_at = ip_at + if self.is_v6 { 40 } else { 20 } + options + 8;
        let extension = self.extension.map_or(0, |words| 4 + 4 * usize::from(words));
        let head = 12 + 4 * usize::from(self.sources) + extension;
        let tag = |index: usize| self.tags.get(index).map_or(0, |(_, control)| *control);
        Fields {
            source_port: 5004,
            target_port: 6004,
            sequence: 0x1234,
            timestamp: 0x89ab_cdef,
            ssrc: 0xfeed_beef,
            marker_and_type: 0xa1,
            ip_at: ip_at as u8,
            udp_at: udp_at as u16,
            udp_bytes: (head + self.payload.len() + usize::from(self.padding)) as u16,
            payload_at: (udp_at + head) as u16,
            payload_bytes: self.payload.len() as u16,
            vlan: tag(0),
            second_vlan: tag(1),
            found: ParseFlags::UDP.with(ParseFlags::RTP),
        }
    }
}

/// Returns whole frames of every kind.
fn whole() -> Vec<Frame> {
    let tags = [vec![], vec![(0x8100, 0x2064)], vec![(0x88a8, 0x0003), (0x8100, 0xe004)]];
    let mut frames = Vec::new();
    for tags in tags {
        for (is_v6, options) in
            [(false, 0), (false, 1), (false, 10), (true, 0), (true, 1), (true, 3)]
        {
            for (sources, extension, padding) in
                [(0, None, 0), (15, None, 0), (0, Some(0), 0), (2, Some(3), 0), (0, None, 4)]
            {
                for (payload, trailer) in [(0, 0), (5, 0), (5, 9), (1316, 0), (1316, 4)] {
                    let (tags, payload) = (tags.clone(), vec![0x47; payload]);
                    frames.push(Frame {
                        tags,
                        is_v6,
                        options,
                        sources,
                        extension,
                        padding,
                        payload,
                        trailer,
                    });
                }
            }
        }
    }
    frames
}

/// Asserts that every variant reads the same fields as the oracle, and writes no other record.
fn agrees(frames: &[&[u8]]) -> Vec<Fields> {
    let before = Fields { ssrc: 0x5a5a_5a5a, ..Fields::default() };
    let mut expected = vec![before; frames.len() + 2];
    oracle(frames, &mut expected[1..][..frames.len()]);
    for packet in Packet::all() {
        let mut fields = vec![before; frames.len() + 2];
        packet.fields(frames, &mut fields[1..][..frames.len()]);
        let wrong = fields.iter().zip(&expected).position(|(found, wanted)| found != wanted);
        let about = wrong.map(|at| (at, fields[at], expected[at]));
        assert!(about.is_none(), "{packet:?} of {} frames: {about:x?}", frames.len());
    }
    expected[1..][..frames.len()].to_vec()
}

/// Mapped pages with an inaccessible page behind them.
struct Pages {
    start: *mut u8,
    bytes: usize,
}

impl Pages {
    const PAGE_BYTES: usize = 4096;

    fn new(pages: usize) -> Self {
        let bytes = pages * Self::PAGE_BYTES;
        let (protection, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: the mapping is new; only its last page is made inaccessible.
        let start = unsafe {
            let all = bytes + Self::PAGE_BYTES;
            let start = libc::mmap(std::ptr::null_mut(), all, protection, flags, -1, 0);
            assert!(start != libc::MAP_FAILED, "mmap: {}", std::io::Error::last_os_error());
            let guard = start.byte_add(bytes);
            assert_eq!(libc::mprotect(guard, Self::PAGE_BYTES, libc::PROT_NONE), 0);
            start
        };
        Self { start: start.cast(), bytes }
    }

    /// Lends a copy of `frame` that ends at the end of the page.
    fn at_end<R>(&mut self, frame: &[u8], work: impl FnOnce(&[u8]) -> R) -> R {
        // SAFETY: the mapping has that many bytes, and no other reference to it exists.
        let all = unsafe { std::slice::from_raw_parts_mut(self.start, self.bytes) };
        let (_, end) = all.split_at_mut(self.bytes - frame.len());
        end.copy_from_slice(frame);
        work(end)
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the mapping that `new` made; no reference outlives `at_end`.
        unsafe { libc::munmap(self.start.cast(), self.bytes + Self::PAGE_BYTES) };
    }
}

#[test]
fn frames_of_every_kind_have_the_fields_they_were_made_of() {
    let frames = whole();
    let bytes: Vec<Vec<u8>> = frames.iter().map(Frame::bytes).collect();
    let bytes: Vec<&[u8]> = bytes.iter().map(Vec::as_slice).collect();
    for (frame, (found, bytes)) in frames.iter().zip(agrees(&bytes).iter().zip(&bytes)) {
        assert_eq!(*found, frame.fields());
        let payload = &bytes[usize::from(found.payload_at)..][..usize::from(found.payload_bytes)];
        assert_eq!(payload, frame.payload);
        assert!(found.marker() && found.payload_type() == 0x21);
    }
}

#[test]
fn every_variant_is_right_for_every_number_of_frames() {
    let kinds = whole();
    let usual = Frame { payload: vec![1; 100], ..USUAL_FRAME }.bytes();
    for count in 0..=4 * STEP + 1 {
        agrees(&vec![&usual[..]; count]);
        for unusual in 0..count {
            let other = kinds[(unusual * 31 + count) % kinds.len()].bytes();
            let mut frames = vec![&usual[..]; count];
            frames[unusual] = &other;
            agrees(&frames);
        }
    }
}

#[test]
fn no_byte_behind_a_frame_is_read_wherever_it_ends() {
    let mut pages = Pages::new(1);
    let usual = Frame { payload: vec![1; 30], ..USUAL_FRAME }.bytes();
    for frame in whole() {
        let bytes = frame.bytes();
        for end in (0..=bytes.len().min(160)).chain([bytes.len()]) {
            pages.at_end(&bytes[..end], |cut| {
                let found = agrees(&[&usual, cut, cut])[2].found;
                let ip_end = bytes.len() - frame.trailer;
                assert_eq!(found.contains(ParseFlags::RTP), end >= ip_end, "{end} of {ip_end}");
                assert_eq!(found == ParseFlags::TRUNCATED, end < ip_end, "{end} of {ip_end}");
            });
        }
    }
}

#[test]
fn every_variant_is_right_with_any_bit_of_the_headers_turned() {
    let mut pages = Pages::new(1);
    let usual = Frame { payload: vec![1; 30], ..USUAL_FRAME }.bytes();
    for frame in [usual.clone(), Frame { trailer: 18, ..USUAL_FRAME }.bytes()] {
        for first in 0..54 * 8 {
            for second in first..54 * 8 {
                // Turns single bits, pairs at most 24 apart, and pairs that end in bytes 8 to 25.
                let apart = second - first;
                if apart != 0 && !(8..26).contains(&(second / 8)) && apart > 24 {
                    continue;
                }
                let mut bytes = frame.clone();
                bytes[first / 8] ^= 1 << (first % 8);
                bytes[second / 8] ^= if apart == 0 { 0 } else { 1 << (second % 8) };
                pages.at_end(&bytes, |bytes| agrees(&[bytes, &usual]));
            }
        }
    }
}

#[test]
fn every_variant_is_right_on_noise() {
    let noise = noise(1 << 16);
    let usual = Frame { payload: vec![1; 200], ..USUAL_FRAME }.bytes();
    for (index, from) in (0..60_000).step_by(97).enumerate() {
        let bytes = &noise[from..][..index % 300];
        // Has noise behind headers that are right up to some byte.
        let right = index % 60;
        let half = [&usual[..right], &bytes[..bytes.len().min(200)]].concat();
        agrees(&[bytes, &half, &usual, bytes, &half, bytes, bytes, &half, &half]);
    }
}

#[test]
fn what_is_wrong_has_its_reason() {
    let usual = Frame { payload: vec![1; 30], ..USUAL_FRAME };
    let with = |at: usize, bytes: &[u8]| {
        let mut frame = usual.bytes();
        frame[at..at + bytes.len()].copy_from_slice(bytes);
        frame
    };
    let of_v6 = |at: usize, bytes: &[u8]| {
        let mut frame = Frame { is_v6: true, options: 1, ..usual.clone() }.bytes();
        frame[at..at + bytes.len()].copy_from_slice(bytes);
        frame
    };
    let tag = (0x8100, 1);
    let long = Frame { payload: vec![0; 65_400], trailer: 200, ..usual.clone() }.bytes();
    let udp = |reason| ParseFlags::UDP.with(reason);
    let cases = [
        (long, ParseFlags::OVERSIZE, "65,654 bytes"),
        (with(12, &[0x08, 0x06]), ParseFlags::NOT_IP, "ARP"),
        (Frame { tags: vec![tag; 3], ..usual.clone() }.bytes(), ParseFlags::NOT_IP, "three tags"),
        (with(14, &[0x65]), ParseFlags::BAD_IP, "version 6 in an IPv4 frame"),
        (with(14, &[0x44]), ParseFlags::BAD_IP, "a header of 16 bytes"),
        (with(16, &[0, 19]), ParseFlags::BAD_IP, "a total length below the header's"),
        (with(16, &[0xff, 0xff]), ParseFlags::TRUNCATED, "a total length past the frame"),
        (with(20, &[0x20, 0x00]), ParseFlags::FRAGMENT, "the first fragment"),
        (with(20, &[0x00, 0x01]), ParseFlags::FRAGMENT, "the last fragment"),
        (with(23, &[6]), ParseFlags::NOT_UDP, "TCP"),
        (with(38, &[0, 7]), ParseFlags::BAD_LENGTH, "a datagram shorter than its header"),
        (with(38, &[0, 51]), ParseFlags::BAD_LENGTH, "a datagram longer than IP's"),
        (with(16, &[0, 27]), ParseFlags::BAD_LENGTH, "no room for UDP's header"),
        (with(38, &[0, 8]), udp(ParseFlags::NOT_RTP), "an empty datagram"),
        (with(42, &[0x47]), udp(ParseFlags::NOT_RTP), "a transport stream without RTP"),
        (with(43, &[200]), udp(ParseFlags::RTCP), "a sender report"),
        (with(42, &[0x8f]), udp(ParseFlags::BAD_RTP), "more sources than bytes"),
        (with(42, &[0x90]), udp(ParseFlags::BAD_RTP), "an extension past the end"),
        (with(42, &[0xa0]), ParseFlags::UDP.with(ParseFlags::RTP), "padding of 1"),
        (with(83, &[43]), ParseFlags::UDP.with(ParseFlags::RTP), "a last byte that is no padding"),
        (of_v6(14, &[0x40]), ParseFlags::BAD_IP, "version 4 in an IPv6 frame"),
        (of_v6(18, &[0, 0]), ParseFlags::BAD_IP, "a jumbogram"),
        (of_v6(20, &[6]), ParseFlags::NOT_UDP, "TCP over IPv6"),
        (of_v6(20, &[44]), ParseFlags::FRAGMENT, "a fragment of IPv6"),
        (of_v6(55, &[0xff]), ParseFlags::BAD_IP, "options past the end"),
    ];
    for (bytes, expected, what) in cases {
        assert_eq!(agrees(&[&bytes])[0].found, expected, "{what}");
    }
    let mut padded = with(42, &[0xa0]);
    for (padding, expected) in [(30, true), (31, false), (0, false)] {
        *padded.last_mut().unwrap() = padding;
        assert_eq!(agrees(&[&padded])[0].found.contains(ParseFlags::RTP), expected, "{padding}");
    }
    // A whole packet with a fragment header (RFC 6946): reserved bits are ignored.
    let mut atomic = of_v6(20, &[44]);
    atomic[54..62].copy_from_slice(&[17, 0, 0x00, 0x06, 1, 2, 3, 4]);
    assert_eq!(agrees(&[&atomic])[0].found, ParseFlags::UDP.with(ParseFlags::RTP));
}

/// Reads with this kernel the headers that the kernel `stamp` writes.
#[test]
fn stamped_frames_are_read_back() {
    let addresses = stamp::Addresses {
        source_mac: [2, 0, 0, 0, 0, 1],
        target_mac: [2, 0, 0, 0, 0, 2],
        source: SocketAddrV4::new(Ipv4Addr::new(10, 99, 0, 1), 5004),
        target: SocketAddrV4::new(Ipv4Addr::new(239, 1, 2, 3), 6004),
    };
    let template = stamp::Template::new(&addresses, 64, 0);
    let heads: Vec<u8> = (0..9_u8)
        .flat_map(|n| [0x80, 0x80 | 33, 0xff, 0xf8 + n % 8, 0, 0, 1, n, 0xde, 0xad, 0, n])
        .collect();
    let mut slots = vec![0; 9 * 2048];
    let (stride, at, identification) = (2048, 0, 1);
    let frames = stamp::Frames {
        slots: &mut slots,
        stride,
        at,
        heads: &heads,
        datagram_bytes: 1328,
        last_bytes: 200,
        identification,
    };
    simd::Kernels::here().stamp.frames(&template, frames, &[0; 9]);
    let frames: Vec<&[u8]> = slots
        .chunks(2048)
        .enumerate()
        .map(|(n, slot)| &slot[..42 + if n == 8 { 200 } else { 1328 }])
        .collect();
    for (n, fields) in agrees(&frames).iter().enumerate() {
        assert_eq!(fields.found, ParseFlags::UDP.with(ParseFlags::RTP));
        assert_eq!((fields.source_port, fields.target_port), (5004, 6004));
        assert_eq!(fields.sequence, 0xfff8 + n as u16 % 8);
        assert_eq!((fields.timestamp, fields.ssrc), (256 + n as u32, 0xdead_0000 + n as u32));
        assert_eq!(usize::from(fields.payload_bytes), if n == 8 { 188 } else { 1316 });
        assert_eq!((fields.payload_type(), fields.marker()), (33, true));
    }
}

/// Reads the frame of Linux with which [`simd::stamp`] is tested: five bytes that are not RTP.
#[test]
fn a_frame_of_linux_itself() {
    let golden = [
        0x02, 0x00, 0x00, 0x00, 0x00, 0x02, 0x02, 0x00, 0x00, 0x00, 0x00, 0x01, 0x08, 0x00, 0x45,
        0x00, 0x00, 0x21, 0x2e, 0x98, 0x40, 0x00, 0x40, 0x11, 0xf7, 0x6b, 0x0a, 0x63, 0x00, 0x01,
        0x0a, 0x63, 0x00, 0x02, 0x13, 0x8c, 0x17, 0x74, 0x00, 0x0d, 0x96, 0x44, b'a', b'b', b'c',
        b'd', b'e',
    ];
    let fields = agrees(&[&golden])[0];
    assert_eq!(fields.found, ParseFlags::UDP.with(ParseFlags::NOT_RTP));
    assert_eq!((fields.source_port, fields.target_port), (5004, 6004));
    assert_eq!((fields.udp_at, fields.udp_bytes), (42, 5));
}
