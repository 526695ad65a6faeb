// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks trick play of fuzzed files: `media::TrickPlan` and the packets of its chapters; used by
//! the targets `ts`, `mp4`, `mkv` and `frames`.
//!
//! Checked: pictures are in order and a tenth of a second apart; packets have the properties in
//! [`crate::layouts`], those of a transport stream are whole, and due times do not decrease.

use media::payload::Layout;
use media::{PacketPlan, PlayScale, Presentation, TICKS_PER_SECOND, TrickPlan};

use crate::layouts;

/// Chapters checked: later ones are laid out in the same way.
const CHAPTERS_MAX: u32 = 12;
const SCALES: [f64; 3] = [2.0, 16.0, -4.0];

pub(crate) fn check_stream(plan: &PacketPlan, file: &[u8]) {
    for scale in SCALES {
        if let Some(trick) = TrickPlan::of_stream(plan, PlayScale::nearest(scale)) {
            check(&trick, Some(plan), file);
        }
    }
}

pub(crate) fn check_tracks(presentation: &Presentation, file: &[u8]) {
    for scale in SCALES {
        if let Some(trick) = TrickPlan::of_tracks(presentation, PlayScale::nearest(scale)) {
            check(&trick, None, file);
        }
    }
}

/// Checks the same for elementary streams, whose pictures are in the transport stream with this
/// plan.
pub(crate) fn check_elementary(presentation: &Presentation, plan: &PacketPlan, file: &[u8]) {
    for scale in SCALES {
        let Some(trick) = TrickPlan::of_tracks(presentation, PlayScale::nearest(scale)) else {
            continue;
        };
        for chapter in 0..trick.presentation().chapters().min(CHAPTERS_MAX) {
            let layout = trick.lay_out(Some(plan), chapter, file).expect("the file is as it was");
            check_layout(&layout, false, file);
        }
    }
}

fn check(trick: &TrickPlan, plan: Option<&PacketPlan>, file: &[u8]) {
    let presentation = trick.presentation();
    let track = &presentation.tracks()[0];
    let mut earliest = 0;
    for sample in track.samples.samples(0..track.samples.len()) {
        let ticks = track.presented_ticks(&sample).max(0) as u64;
        assert!(ticks >= earliest, "a picture at {ticks}, sooner than {earliest}");
        // Rounded to units of 90 kHz.
        earliest = ticks + TICKS_PER_SECOND / 10 - 300;
    }
    let mut due = 0;
    for chapter in 0..presentation.chapters().min(CHAPTERS_MAX) {
        let layout = trick.lay_out(plan, chapter, file).expect("the file is as it was planned");
        check_layout(&layout, plan.is_some(), file);
        for packet in [0, layout.packets().saturating_sub(1)] {
            if packet < layout.packets() {
                assert!(layout.ticks(packet) >= due, "chapter {chapter} goes back in time");
                due = layout.ticks(packet);
            }
        }
        // After a long gap the clock continues into other chapters: the next packet is due later.
        due = due.min((u64::from(chapter) + 1) * TICKS_PER_SECOND);
    }
}

fn check_layout(layout: &Layout, is_stream: bool, file: &[u8]) {
    layouts::check(layout, file.len() as u64);
    let mut head = Vec::new();
    for packet in (0..layout.packets()).filter(|_| is_stream) {
        head.clear();
        layout.write_head(packet, &layouts::VALUES, &mut head);
        let packets = head[layouts::RTP_BYTES..].chunks(188);
        assert!(packets.map(|packet| (packet.len(), packet[0])).all(|p| p == (188, 0x47)));
    }
}
