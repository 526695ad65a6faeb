// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests that every packet is found, nothing else is streamed, and losses are reported.

use media::{Damage, Refusal, SyncLoss};

use crate::writer::{Writer, film, film_into};
use crate::{assert_streams, scan};

fn loss(offset: usize, bytes: usize) -> SyncLoss {
    SyncLoss { offset: offset as u64, bytes: bytes as u64 }
}

/// Garbage of all kinds, none of which resembles five consecutive packets.
fn kinds_of_garbage() -> Vec<(&'static str, Vec<u8>)> {
    let every = |step: usize, bytes: usize| {
        let mut garbage = vec![0x11; bytes];
        garbage.iter_mut().skip(1).step_by(step).for_each(|byte| *byte = 0x47);
        garbage
    };
    vec![
        ("one byte", vec![0]),
        ("one sync byte", vec![0x47]),
        ("zeros, less than a packet", vec![0; 100]),
        ("zeros, a packet", vec![0; 188]),
        ("zeros, many packets", vec![0; 10_000]),
        ("sync bytes only", vec![0x47; 5_000]),
        ("a sync byte every 100", every(100, 5_000)),
        ("a sync byte every 187", every(187, 3_000)),
        ("a sync byte every 192", every(192, 192 * 3)),
        ("ones", vec![0xff; 777]),
        ("text", b"not a transport stream: GNU\r\n".repeat(100)),
    ]
}

#[test]
fn plain_file_is_one_extent_without_losses() {
    let film = film(30);
    let plan = scan(&film.file).unwrap();
    assert_eq!((plan.stride(), plan.extents().len()), (188, 1));
    assert_eq!((plan.losses(), plan.losses_seen(), plan.tail_bytes()), (&[][..], 0, 0));
    assert_eq!(plan.ts_packets(), film.count());
    assert_streams(&plan, &film.file, &film.packets);
}

#[test]
fn packets_of_192_bytes_lose_their_arrival_times() {
    let mut writer = Writer::new(true);
    film_into(&mut writer, 0..30);
    let plan = scan(&writer.file).unwrap();
    assert_eq!((plan.stride(), plan.extents()[0].file_offset), (192, 4));
    assert_eq!((plan.losses_seen(), plan.tail_bytes()), (0, 0));
    assert_streams(&plan, &writer.file, &writer.packets);
}

#[test]
fn packets_of_192_bytes_are_found_again_after_garbage() {
    let mut writer = Writer::new(true);
    film_into(&mut writer, 0..10);
    let offset = writer.file.len();
    writer.garbage(&[0x22; 301]);
    film_into(&mut writer, 10..20);
    let plan = scan(&writer.file).unwrap();
    assert_eq!(plan.losses(), [loss(offset, 301)]);
    assert_streams(&plan, &writer.file, &writer.packets);
}

#[test]
fn packets_of_204_bytes_are_refused_by_name() {
    let film = film(10);
    let file: Vec<u8> =
        film.packets.chunks(188).flat_map(|packet| [packet, &[0x99; 16]].concat()).collect();
    assert_eq!(scan(&file), Err(Refusal::PacketBytes { found: 204 }));
}

#[test]
fn garbage_in_front_is_skipped_and_reported() {
    for (kind, garbage) in kinds_of_garbage() {
        let mut writer = Writer::default();
        writer.garbage(&garbage);
        film_into(&mut writer, 0..20);
        let plan = scan(&writer.file).unwrap();
        assert_eq!(plan.losses(), [loss(0, garbage.len())], "{kind}");
        assert_streams(&plan, &writer.file, &writer.packets);
    }
}

#[test]
fn garbage_between_packets_is_skipped_and_reported() {
    for (kind, garbage) in kinds_of_garbage() {
        let mut writer = film(10);
        let offset = writer.file.len();
        writer.garbage(&garbage);
        film_into(&mut writer, 10..20);
        let plan = scan(&writer.file).unwrap();
        assert_eq!(plan.losses(), [loss(offset, garbage.len())], "{kind}");
        assert_eq!(plan.lost_bytes(), garbage.len() as u64, "{kind}");
        assert_streams(&plan, &writer.file, &writer.packets);
        assert_eq!(plan.extents().len(), 2, "{kind}");
    }
}

#[test]
fn garbage_that_begins_like_a_packet_costs_no_more_than_that_packet() {
    let mut writer = film(10);
    let offset = writer.file.len();
    let mut garbage = vec![0x33; 1000];
    garbage[..4].copy_from_slice(&[0x47, 0x1f, 0xff, 0x10]);
    writer.push(&garbage[..188]);
    writer.garbage(&garbage[188..]);
    film_into(&mut writer, 10..20);
    let plan = scan(&writer.file).unwrap();
    assert_eq!(plan.losses(), [loss(offset + 188, 1000 - 188)]);
    assert_streams(&plan, &writer.file, &writer.packets);
}

#[test]
fn garbage_behind_is_left_out_and_reported() {
    for (kind, garbage) in kinds_of_garbage() {
        let mut writer = film(10);
        let offset = writer.file.len();
        writer.garbage(&garbage);
        let plan = scan(&writer.file).unwrap();
        assert_streams(&plan, &writer.file, &writer.packets);
        let is_tail = garbage.len() < 4;
        assert_eq!(plan.tail_bytes(), if is_tail { garbage.len() as u64 } else { 0 }, "{kind}");
        let losses = [loss(offset, garbage.len())];
        assert_eq!(plan.losses(), if is_tail { &[][..] } else { &losses }, "{kind}");
    }
}

#[test]
fn a_packet_cut_short_is_left_out_and_the_next_is_not() {
    let film = film(20);
    for missing in [1, 4, 50, 100, 184, 187] {
        let mut file = film.file.clone();
        // Packet 100 loses its last bytes.
        file.drain(101 * 188 - missing..101 * 188);
        let plan = scan(&file).unwrap();
        assert_eq!(plan.losses(), [loss(100 * 188, 188 - missing)], "{missing}");
        let mut expected = film.packets.clone();
        expected.drain(100 * 188..101 * 188);
        assert_streams(&plan, &file, &expected);
    }
}

#[test]
fn a_damaged_sync_byte_costs_its_packet_alone() {
    let mut film = film(20);
    film.file[100 * 188] = 0x46;
    let plan = scan(&film.file).unwrap();
    assert_eq!(plan.losses(), [loss(100 * 188, 188)]);
    let mut expected = film.packets.clone();
    expected.drain(100 * 188..101 * 188);
    assert_streams(&plan, &film.file, &expected);
}

#[test]
fn a_cut_off_last_packet_is_left_out_and_counted() {
    let film = film(10);
    for cut in [1, 50, 184, 187] {
        let file = &film.file[..film.file.len() - cut];
        let plan = scan(file).unwrap();
        assert_eq!(plan.tail_bytes(), 188 - cut as u64);
        assert_eq!(plan.losses_seen(), 0);
        assert_eq!(plan.ts_packets(), film.count() - 1);
        assert_streams(&plan, file, &film.packets[..film.packets.len() - 188]);
    }
}

#[test]
fn a_distance_found_in_garbage_is_given_up_for_the_right_one() {
    let mut writer = Writer::new(true);
    let mut garbage = vec![0; 188 * 6];
    garbage.chunks_mut(188).for_each(|chunk| chunk[..4].copy_from_slice(&[0x47, 1, 0, 0x10]));
    garbage.extend([0x55; 30]);
    writer.garbage(&garbage);
    film_into(&mut writer, 0..20);
    let plan = scan(&writer.file).unwrap();
    assert_eq!(plan.stride(), 192);
    assert_streams(&plan, &writer.file, &writer.packets);
    assert_eq!(plan.losses()[0].offset, 0);
}

#[test]
fn losses_are_all_counted_though_not_all_kept() {
    let mut writer = Writer::default();
    for round in 0..400 {
        film_into(&mut writer, round..round + 1);
        writer.garbage(&[0; 3]);
    }
    let plan = scan(&writer.file).unwrap();
    assert_eq!((plan.losses().len(), plan.losses_seen()), (256, 399));
    assert_eq!((plan.lost_bytes(), plan.tail_bytes()), (399 * 3, 3));
    assert_streams(&plan, &writer.file, &writer.packets);
}

#[test]
fn a_file_with_too_many_losses_is_refused() {
    let mut writer = film(2);
    for _ in 0..70_000 {
        writer.garbage(&[0]);
        for _ in 0..5 {
            writer.null();
        }
    }
    let refusal = scan(&writer.file).unwrap_err();
    assert_eq!(refusal, Refusal::TooDamaged { damage: Damage::SyncLosses, limit: 65_536 });
}

#[test]
fn files_without_packets_are_refused() {
    assert_eq!(scan(&[]), Err(Refusal::Empty));
    assert_eq!(scan(&[0x47; 100]), Err(Refusal::TooShort { bytes: 100 }));
    assert_eq!(scan(&[7; 5000]), Err(Refusal::NotTransportStream { searched_bytes: 5000 }));
    assert_eq!(scan(&[0x47; 5000]), Err(Refusal::NotTransportStream { searched_bytes: 5000 }));
    let searched_bytes = 1 << 20;
    let large = vec![3; 3 << 20];
    assert_eq!(scan(&large), Err(Refusal::NotTransportStream { searched_bytes }));
    let mut scanner = media::Scanner::new();
    scanner.feed(&large);
    assert!(scanner.is_refused());
}

#[test]
fn a_file_of_another_size_than_was_read_is_refused() {
    let film = film(5);
    let mut scanner = media::Scanner::new();
    scanner.feed(&film.file);
    let fed_bytes = film.file.len() as u64;
    let refusal = scanner.finish(fed_bytes + 1, crate::IDENTITY).unwrap_err();
    assert_eq!(refusal, Refusal::Changed { fed_bytes, file_bytes: fed_bytes + 1 });
}
