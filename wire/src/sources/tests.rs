// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the sources of a port: probation, contests, gaps, floods.

use super::*;

fn packet(ssrc: u32, sequence: u16) -> Header {
    Header { marker: false, payload_type: 33, sequence, timestamp: 0, ssrc }
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn at(port: u16) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 1], port))
}

/// The sources of a port, each packet with the next number of its source.
struct Trial {
    sources: SourceTable,
    numbers: std::collections::HashMap<(u32, u16), u16>,
}

impl Trial {
    fn new() -> Trial {
        Trial { sources: SourceTable::new(90_000), numbers: Default::default() }
    }

    fn send(&mut self, ssrc: u32, port: u16, now: Duration) -> SourceStatus {
        let number = self.numbers.entry((ssrc, port)).or_insert(100);
        *number = number.wrapping_add(1);
        self.sources.receive(&packet(ssrc, *number), at(port), now)
    }

    fn followed_port(&self) -> Option<u16> {
        Some(self.sources.followed()?.from?.port())
    }
}

#[test]
fn a_source_is_followed_from_its_second_packet_on() {
    let mut sources = SourceTable::new(90_000);
    let mut receive = |ssrc, sequence, now| sources.receive(&packet(ssrc, sequence), at(1), now);
    assert_eq!(receive(1, 10, ms(0)), SourceStatus::Waiting);
    assert_eq!(receive(2, 77, ms(1)), SourceStatus::Waiting);
    assert_eq!(receive(1, 10, ms(1)), SourceStatus::Waiting, "a duplicate");
    let gap = SequenceUpdate::AfterGap { packets: 1 };
    assert_eq!(receive(1, 12, ms(2)), SourceStatus::Chosen(gap));
    assert_eq!(receive(1, 13, ms(3)), SourceStatus::Followed(SequenceUpdate::InOrder));
    // The other is valid too, but late.
    assert_eq!(receive(2, 78, ms(4)), SourceStatus::Waiting);
    assert_eq!(sources.followed().map(|source| source.ssrc), Some(Some(1)));
    assert_eq!((sources.valid().count(), sources.chosen()), (2, 1));
}

#[test]
fn another_is_followed_after_silence_or_bye() {
    let mut trial = Trial::new();
    trial.send(1, 1, ms(0));
    trial.send(1, 1, ms(0));
    trial.send(2, 2, SILENCE / 2);
    assert_eq!(trial.send(2, 2, SILENCE - ms(1)), SourceStatus::Waiting);
    assert_eq!(trial.send(2, 2, SILENCE), SourceStatus::Chosen(SequenceUpdate::InOrder));
    trial.sources.leave(1);
    assert_eq!(trial.send(1, 1, SILENCE + ms(49)), SourceStatus::Waiting, "it is not followed");
    trial.sources.leave(2);
    assert_eq!(trial.send(1, 1, SILENCE + ms(49)), SourceStatus::Waiting, "2 was heard");
    assert_eq!(trial.send(1, 1, SILENCE + ms(50)), SourceStatus::Chosen(SequenceUpdate::InOrder));
}

#[test]
fn a_source_that_goes_on_after_bye_has_not_left() {
    let mut trial = Trial::new();
    for n in 0..10 {
        trial.send(1, 1, ms(n));
        trial.send(1, 2, ms(n));
    }
    trial.sources.leave(1);
    for n in 0..100 {
        let now = ms(10 + 10 * n);
        assert!(matches!(trial.send(1, 1, now), SourceStatus::Followed(_)));
        assert_eq!(trial.send(1, 2, now + ms(9)), SourceStatus::Waiting);
    }
    assert_eq!(trial.sources.refuted_byes(), 1);
    // A pause like any other now.
    assert_eq!(trial.send(1, 2, ms(1100)), SourceStatus::Waiting);
}

#[test]
fn rfc_3550_8_2_a_stranger_with_the_same_ssrc_is_another_source() {
    let mut trial = Trial::new();
    for n in 0..2000 {
        trial.send(7, 1, ms(n));
        assert_eq!(trial.send(7, 2, ms(n)), SourceStatus::Waiting, "{n}");
        assert_eq!(trial.followed_port(), (n > 0).then_some(1));
    }
    assert_eq!(trial.sources.followed().map(|s| s.reception.received()), Some(2000));
    // It sends on from another port: as after any silence.
    assert_eq!(trial.send(7, 3, ms(2001)), SourceStatus::Waiting);
    assert_eq!(trial.send(7, 3, ms(2000) + SILENCE), SourceStatus::Chosen(SequenceUpdate::InOrder));
}

#[test]
fn one_packet_in_fifty_does_not_hold_the_place() {
    let mut trial = Trial::new();
    trial.send(7, 2, ms(0));
    trial.send(7, 2, ms(0));
    for n in 1..=3000 {
        if n % 100 == 0 {
            trial.send(7, 2, ms(n));
        }
        trial.send(7, 1, ms(n));
        trial.send(7, 1, ms(n));
    }
    assert_eq!((trial.followed_port(), trial.sources.chosen()), (Some(1), 2));
}

/// A displaced source cannot return, however long it was followed.
#[test]
fn a_displaced_trickle_does_not_return_by_its_next_packet() {
    let mut trial = Trial::new();
    for n in 0..300 {
        trial.send(7, 2, ms(n));
    }
    let mut lost = 0;
    for n in 300..8000 {
        if n % 80 == 0 {
            trial.send(7, 2, ms(n));
        }
        trial.send(7, 1, ms(n));
        lost += u32::from(n >= 3300 && trial.followed_port() != Some(1));
    }
    assert_eq!((lost, trial.sources.chosen()), (0, 2));
}

#[test]
fn a_flood_takes_no_place_of_a_stream() {
    let mut trial = Trial::new();
    // 200 packets a second: 2 Mb/s.
    trial.send(1, 1, ms(0));
    for n in 0..5000 {
        if n % 5 == 0 {
            trial.send(1, 1, ms(n));
        }
        for _ in 0..20 {
            trial.send(1, 2, ms(n));
        }
    }
    assert_eq!((trial.followed_port(), trial.sources.chosen()), (Some(1), 1));
}

#[test]
fn a_stream_has_its_place_back_after_a_gap() {
    let mut trial = Trial::new();
    for n in 0..1000 {
        trial.send(1, 1, ms(n));
        if n % 200 == 0 {
            trial.send(1, 2, ms(n));
        }
    }
    // A gap of 9 s, and an unrelated sender with as many packets.
    for n in 1300..10_000 {
        trial.send(1, 2, ms(n));
        trial.send(1, 3, ms(n));
    }
    assert_eq!(trial.followed_port(), Some(2), "in the gap");
    assert!(trial.sources.followed().is_some_and(|s| s.reception.received() > 8000));
    // The source followed before returns at once, and stays followed regardless of the others.
    for n in 10_000..30_000 {
        let status = trial.send(1, 1, ms(n));
        assert!(matches!(status, SourceStatus::Chosen(_) | SourceStatus::Followed(_)), "{n}");
        let is_pause = (15_000..15_400).contains(&n);
        for port in [2, 3].into_iter().filter(|_| !is_pause) {
            assert_eq!(trial.send(1, port, ms(n)), SourceStatus::Waiting, "{n}");
        }
    }
    assert_eq!(trial.sources.chosen(), 3);
    // A pause after a few packets costs it no more than the pause.
    trial.send(1, 2, ms(30_300));
    trial.send(1, 1, ms(30_310));
    trial.send(1, 2, ms(30_600));
    assert_eq!(trial.followed_port(), Some(2));
    assert!(matches!(trial.send(1, 1, ms(30_610)), SourceStatus::Chosen(_)));
}

/// Unrelated senders that alternate in a gap do not use up the stream's right to return.
#[test]
fn strangers_who_take_turns_keep_no_stream_out() {
    let mut trial = Trial::new();
    for n in 0..5000 {
        trial.send(1, 1, ms(n));
    }
    for n in 5300..9000 {
        // Half a second each, by turns.
        let port = if n / 500 % 2 == 0 { 2 } else { 3 };
        trial.send(1, port, ms(n));
        // And a flood of new sources drops none that may return.
        trial.send(1000 + n as u32, 1000 + n as u16, ms(n));
    }
    assert!(trial.sources.chosen() > 4, "{}", trial.sources.chosen());
    assert!(matches!(trial.send(1, 1, ms(9000)), SourceStatus::Chosen(_)));
    assert_eq!(trial.send(1, 2, ms(9001)), SourceStatus::Waiting);
}

#[test]
fn a_stream_that_has_just_begun_has_its_place_back_and_stray_packets_have_not() {
    for (packets, is_back) in [(20, true), (10, false)] {
        let mut trial = Trial::new();
        for n in 0..packets {
            trial.send(1, 1, ms(n));
        }
        for n in 300..2000 {
            trial.send(1, 2, ms(n));
        }
        let is_chosen = matches!(trial.send(1, 1, ms(2000)), SourceStatus::Chosen(_));
        assert_eq!(is_chosen, is_back, "{packets} packets");
    }
}

/// As the attack that fed 5 packets a second to a port for 200 a second.
#[test]
fn a_trickle_gives_way_to_ten_times_its_rate() {
    let mut trial = Trial::new();
    for n in 0..5000 {
        if n % 200 == 0 {
            trial.send(7, 2, ms(n));
        }
        if n > 1000 && n % 5 == 0 {
            trial.send(7, 1, ms(n));
        }
    }
    assert_eq!((trial.followed_port(), trial.sources.chosen()), (Some(1), 2));
}

#[test]
fn the_right_to_come_back_ends() {
    let mut trial = Trial::new();
    for n in 0..1000 {
        trial.send(1, 1, ms(n));
    }
    for n in 1300..12_000 {
        trial.send(1, 2, ms(n));
    }
    assert_eq!(trial.send(1, 1, ms(12_000)), SourceStatus::Waiting);
    assert_eq!(trial.followed_port(), Some(2));
}

#[test]
fn an_address_that_was_named_goes_first() {
    let mut trial = Trial::new();
    trial.sources.expect(Some(at(1)));
    for n in 0..3 {
        assert_eq!(trial.send(7, 2, ms(n)), SourceStatus::Waiting);
    }
    trial.send(7, 1, ms(3));
    assert!(matches!(trial.send(7, 1, ms(4)), SourceStatus::Chosen(_)));
    // A sender at another address is followed after a while, until the named one sends.
    let mut trial = Trial::new();
    trial.sources.expect(Some(at(1)));
    trial.sources.announce(7, None);
    assert_eq!(trial.send(7, 2, ms(0)), SourceStatus::Waiting);
    assert_eq!(trial.send(7, 2, ms(0)), SourceStatus::Waiting);
    assert_eq!(trial.send(7, 2, GRACE - ms(1)), SourceStatus::Waiting);
    assert!(matches!(trial.send(7, 2, GRACE), SourceStatus::Chosen(_)));
    assert!(matches!(trial.send(7, 1, GRACE + ms(1)), SourceStatus::Chosen(_)));
    assert_eq!(trial.send(7, 2, GRACE + ms(2)), SourceStatus::Waiting);
}

/// Packets after the end of a stream are no part of it: the session, which has named the sender,
/// announces the next one.
#[test]
fn a_silence_and_a_bye_of_a_named_sender_let_no_stranger_in() {
    let mut trial = Trial::new();
    trial.sources.expect(Some(at(1)));
    for n in 0..100 {
        trial.send(7, 1, ms(n));
    }
    trial.sources.leave(7);
    for n in 100..20_000 {
        assert_eq!(trial.send(7, 2, ms(n)), SourceStatus::Waiting);
    }
    assert!(matches!(trial.send(7, 1, ms(20_000)), SourceStatus::Followed(_)));
    // Another SSRC of the named address is followed after a silence.
    assert_eq!(trial.send(8, 1, ms(20_001)), SourceStatus::Waiting);
    assert_eq!(trial.send(8, 1, ms(20_002)), SourceStatus::Waiting);
    assert!(matches!(trial.send(8, 1, ms(20_000) + SILENCE), SourceStatus::Chosen(_)));
    trial.sources.expect(None);
    assert!(matches!(trial.send(7, 2, ms(21_000) + SILENCE), SourceStatus::Chosen(_)));
}

#[test]
fn an_announced_source_needs_no_probation_and_suffers_no_other() {
    let mut sources = SourceTable::new(90_000);
    sources.announce(9, Some(100));
    let receive = |sources: &mut SourceTable, ssrc, sequence, now| {
        sources.receive(&packet(ssrc, sequence), at(1), now)
    };
    for n in 0..3 {
        assert_eq!(receive(&mut sources, 1, n, ms(0)), SourceStatus::Foreign);
    }
    let gap = SequenceUpdate::AfterGap { packets: 1 };
    assert_eq!(receive(&mut sources, 9, 101, ms(900)), SourceStatus::Followed(gap));
    sources.leave(9);
    let in_order = SourceStatus::Followed(SequenceUpdate::InOrder);
    assert_eq!(receive(&mut sources, 9, 102, ms(901)), in_order);
    sources.renounce();
    let chosen = SourceStatus::Chosen(SequenceUpdate::InOrder);
    assert_eq!(receive(&mut sources, 1, 3, ms(902)), chosen);
}

#[test]
fn a_bare_stream_is_a_source_of_its_own() {
    let mut sources = SourceTable::new(90_000);
    assert_eq!(sources.receive_bare(at(1), ms(0)), SourceStatus::Waiting);
    assert_eq!(sources.receive_bare(at(2), ms(1)), SourceStatus::Waiting);
    assert_eq!(sources.receive_bare(at(1), ms(2)), SourceStatus::Chosen(SequenceUpdate::InOrder));
    assert_eq!(sources.receive_bare(at(2), ms(3)), SourceStatus::Waiting);
    for n in 0..3 {
        assert_eq!(sources.receive(&packet(1, n), at(1), ms(4)), SourceStatus::Waiting, "as RTP");
    }
    assert_eq!(sources.followed().map(|source| source.ssrc), Some(None));
}

#[test]
fn a_flood_is_bounded_and_counted_and_does_not_touch_the_followed() {
    let mut trial = Trial::new();
    for n in 0..2 {
        trial.send(1, 1, ms(n));
        trial.send(2, 2, ms(n));
    }
    // From an address for each, and from one.
    for n in 0..10_000 {
        let port = 10_000 + n as u16;
        assert_eq!(trial.send(1000 + n, port, ms(2)), SourceStatus::Waiting);
    }
    assert_eq!(trial.sources.forgotten(), 10_000 - (SOURCES_MAX as u64 - 2));
    for n in 0..10_000 {
        assert_eq!(trial.send(50_000 + n, 3, ms(3)), SourceStatus::Waiting);
    }
    let known = |n: &u16| trial.sources.knows(Some(1000 + u32::from(*n)), at(10_000 + n));
    let others = (0..10_000).filter(known).count();
    assert_eq!(others, SOURCES_MAX - 2 - SOURCES_AN_ADDRESS_MAX, "the second took few");
    let valid: Vec<_> = trial.sources.valid().map(|source| source.ssrc).collect();
    assert_eq!(valid, [Some(1), Some(2)]);
    assert!(matches!(trial.send(1, 1, ms(4)), SourceStatus::Followed(_)));
}

#[test]
fn another_ssrc_of_the_named_address_takes_the_place_of_the_announced_one() {
    let mut trial = Trial::new();
    trial.sources.expect(Some(at(1)));
    trial.sources.announce(7, None);
    assert_eq!(trial.send(8, 2, ms(0)), SourceStatus::Foreign, "another address");
    assert_eq!(trial.send(8, 1, ms(1)), SourceStatus::Waiting);
    assert!(matches!(trial.send(8, 1, ms(2)), SourceStatus::Chosen(_)));
    assert_eq!(trial.send(7, 2, ms(3)), SourceStatus::Waiting, "the SSRC alone names nobody");
}
