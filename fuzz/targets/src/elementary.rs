// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks elementary streams of fuzzed transport streams (`media::ElementaryDemuxer` and the
//! packets of its tracks' chapters); used by the target `ts`.
//!
//! Checked: the tracks do not depend on the number of packets that a call reads; every sample
//! begins in a packet of the file; tracks stored and read again are the same; layouts have no
//! ranges of the file, packets of allowed sizes, due times that do not decrease, and of sound every
//! byte of every sample.

use media::payload::{Layout, PACKET_BYTES_MAX, RtpValues};
use media::{
    Codec, DemuxError, ElementaryDemuxer, PacketPlan, PlanKey, Presentation, RtpIdentity,
    TS_PACKET_BYTES, lay_out_elementary,
};

/// Chapters checked: later ones are laid out in the same way.
const CHAPTERS_MAX: u32 = 12;

const IDENTITY: RtpIdentity = RtpIdentity { ssrc: 5, first_sequence: 6, first_timestamp: 7 };

pub(crate) fn check(plan: &PacketPlan, file: &[u8]) {
    let whole = demux(plan, file, u64::MAX);
    let same = match (&whole, &demux(plan, file, 3)) {
        (Ok(one), Ok(other)) => one == other,
        (Err(one), Err(other)) => one.to_string() == other.to_string(),
        _ => false,
    };
    assert!(same, "the number of packets a call matters");
    let whole = match whole {
        Ok(whole) => whole,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    let bytes = file.len() as u64;
    let key = PlanKey { path: b"/a.ts".to_vec(), bytes, modified_ns: 1, inode: 2 };
    let stored = whole.encode(&key);
    assert_eq!(Presentation::decode_elementary(&stored, &key).as_ref(), Ok(&whole));
    for (index, track) in whole.tracks().iter().enumerate() {
        for sample in track.samples.samples(0..track.samples.len()) {
            let is_in_packet = plan.extents().iter().any(|extent| {
                let within = sample.file_offset.checked_sub(extent.file_offset);
                within.is_some_and(|within| {
                    let (packet, at) = (within / plan.stride(), within % plan.stride());
                    packet < extent.ts_packets && (4..TS_PACKET_BYTES as u64).contains(&at)
                })
            });
            assert!(is_in_packet, "{sample:?}");
        }
        for chapter in 0..whole.chapters().min(CHAPTERS_MAX) {
            let layout = lay_out_elementary(plan, &whole, (index, chapter), file);
            let layout = layout.expect("the file is as it was");
            let carried = check_layout(&layout, &track.codec);
            let numbers = whole.chapter_samples(index, chapter);
            let sizes = track.samples.samples(numbers).map(|sample| u64::from(sample.bytes));
            if let Some(carried) = carried {
                let expected: u64 = sizes.sum();
                assert_eq!((layout.faults(), carried), (0, expected), "chapter {chapter}");
            }
        }
    }
    crate::trick::check_elementary(&whole, plan, file);
}

fn demux(plan: &PacketPlan, file: &[u8], packets: u64) -> Result<Presentation, DemuxError> {
    let mut demuxer = ElementaryDemuxer::new(plan);
    let mut before = 0;
    while !demuxer.advance(plan, file, packets)? {
        let position = demuxer.position(plan);
        assert!(before <= position && position <= plan.file_bytes());
        before = position;
    }
    Ok(demuxer.finish(|| IDENTITY)?)
}

/// Returns the bytes of sound that the packets carry; `None` for pictures, which are not sent in
/// their stored form.
fn check_layout(layout: &Layout, codec: &Codec) -> Option<u64> {
    let values = RtpValues { payload_type: 96, ssrc: 1, sequence: 0, timestamp: 0 };
    let (mut head, mut carried, mut due) = (Vec::new(), 0, 0);
    for packet in 0..layout.packets() {
        head.clear();
        layout.write_head(packet, &values, &mut head);
        layout.write_pieces(packet..packet + 1, |piece| panic!("of the file: {piece:?}"));
        assert!((13..=PACKET_BYTES_MAX).contains(&head.len()), "packet {packet}: {}", head.len());
        assert_eq!(layout.head_bytes(packet), head.len());
        assert!(layout.ticks(packet) >= due, "packet {packet} goes back in time");
        due = layout.ticks(packet);
        let payload = &head[12..];
        carried += payload.len() as u64;
        carried -= match codec {
            Codec::H264(_) | Codec::H265(_) => 0,
            Codec::Aac(_) => 2 + u64::from(u16::from_be_bytes([payload[0], payload[1]])) / 8,
            Codec::MpegAudio => 4,
            _ => 2,
        };
    }
    (!matches!(codec, Codec::H264(_) | Codec::H265(_))).then_some(carried)
}
