// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of refusals, reports and lengths of runs.

use super::*;

/// Returns a destination whose runs have 1,000-byte packets.
fn destination() -> Destination {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect("127.0.0.1:9").unwrap();
    let mut destination = Destination::new(socket, "127.0.0.1:9").unwrap();
    assert_eq!(destination.ready(1000, true, &mut SendStats::default()), Ok(SEGMENTS_MAX));
    destination
}

fn judge(to: &mut Destination, errno: i32, packets: u32) -> Option<SendError> {
    match to.judge("writev", Errno::new(errno), packets, &mut SendStats::default()) {
        RefusalAction::Retry => None,
        RefusalAction::Stop(error) => Some(error),
    }
}

#[test]
fn an_unconnected_socket_is_refused() {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let refusal = Destination::new(socket, "10.0.0.7:5004").unwrap_err();
    assert_eq!(refusal.to_string(), "getpeername on 10.0.0.7:5004: ENOTCONN");
}

#[test]
fn a_device_without_checksums_makes_segments_fall_to_one_and_the_option_off() {
    let mut to = destination();
    let mut stats = SendStats::default();
    assert_eq!(judge(&mut to, libc::EIO, 48), None);
    assert_eq!(to.segments(), 1);
    let lowered = SegmentLimitLowered { from: 64, to: 1, errno: Some(Errno::new(libc::EIO)) };
    assert_eq!(
        (to.take_segment_limit_lowered(), to.take_segment_limit_lowered()),
        (Some(lowered), None)
    );
    assert_eq!(to.ready(1000, true, &mut stats), Ok(1));
    assert_eq!((to.segment_bytes, stats.calls), (0, 1));
    let error = judge(&mut to, libc::EIO, 1);
    assert_eq!(error, Some(to.host("writev", Errno::new(libc::EIO))));
    assert_eq!(to.take_segment_limit_lowered(), None);
}

#[test]
fn other_refusals_halve_what_was_tried_down_to_one() {
    let mut to = destination();
    let mut seen = Vec::new();
    // ICMP may have caused the first refusal.
    assert_eq!(judge(&mut to, libc::EMSGSIZE, 48), None);
    assert_eq!(to.segments(), SEGMENTS_MAX);
    for errno in [libc::EINVAL, libc::EMSGSIZE, libc::EINVAL, libc::EINVAL, libc::EINVAL] {
        let packets = to.ready(1000, true, &mut SendStats::default()).unwrap().min(48);
        assert_eq!(judge(&mut to, errno, packets), None);
        seen.push(to.segments());
    }
    assert_eq!(seen, [24, 12, 6, 3, 1]);
    let lowered = SegmentLimitLowered { from: 64, to: 1, errno: Some(Errno::new(libc::EINVAL)) };
    assert_eq!(to.take_segment_limit_lowered(), Some(lowered));
}

#[test]
fn a_run_taken_in_pieces_is_made_shorter_and_a_packet_waits() {
    let mut to = destination();
    let mut stats = SendStats::default();
    assert!(matches!(to.judge_in_pieces(9, &mut stats), RefusalAction::Retry));
    assert_eq!(
        to.take_segment_limit_lowered(),
        Some(SegmentLimitLowered { from: 64, to: 4, errno: None })
    );
    let action = to.judge_in_pieces(1, &mut stats);
    assert!(matches!(action, RefusalAction::Stop(SendError::Blocked)));
    assert_eq!((to.segments(), to.take_segment_limit_lowered(), stats.refused), (4, None, 1));
}

#[test]
fn no_report_ends_a_stream_or_shortens_its_runs() {
    let mut to = destination();
    let reported = [
        libc::ECONNREFUSED,
        libc::EHOSTUNREACH,
        libc::ENETUNREACH,
        libc::EMSGSIZE,
        libc::ENOPROTOOPT,
        libc::EACCES,
        libc::EPROTO,
    ];
    for _ in 0..1000 {
        for errno in reported {
            assert_eq!(judge(&mut to, errno, 48), None, "{}", Errno::new(errno));
            to.accepted();
        }
    }
    assert_eq!((to.segments(), to.take_segment_limit_lowered()), (SEGMENTS_MAX, None));
    assert_eq!(to.take_reports().len(), REPORTS_MAX);
}

#[test]
fn a_flood_of_reports_leaves_the_batch_for_later() {
    let mut to = destination();
    for errno in [libc::ECONNREFUSED, libc::ENETUNREACH] {
        for _ in 1..REPEATS_MAX {
            assert_eq!(judge(&mut to, errno, 1), None);
        }
        assert_eq!(judge(&mut to, errno, 1), Some(SendError::Blocked));
    }
}

/// A flood may hit all sends of a batch, and does not do so to all batches.
#[test]
fn errors_of_this_host_or_of_icmp_end_a_stream_when_they_last() {
    let mut to = destination();
    let leave = |to: &mut Destination| {
        for _ in 1..REPEATS_MAX {
            assert_eq!(judge(to, libc::EACCES, 1), None);
        }
        judge(to, libc::EACCES, 1)
    };
    for _ in 0..3 {
        for _ in 1..LEFT_MAX {
            assert_eq!(leave(&mut to), Some(SendError::Blocked));
        }
        to.accepted();
    }
    for _ in 1..LEFT_MAX {
        assert_eq!(leave(&mut to), Some(SendError::Blocked));
    }
    let own = leave(&mut to);
    assert!(matches!(own, Some(SendError::Host { .. })), "no ICMP lasts: {own:?}");
    to.accepted();
    let own = to.judge("mmap", Errno::new(libc::EACCES), 1, &mut SendStats::default());
    assert!(matches!(own, RefusalAction::Stop(SendError::Host { .. })), "{own:?}");
}

#[test]
fn passing_refusals_wait_and_lasting_ones_end() {
    let mut to = destination();
    assert_eq!(judge(&mut to, libc::EINTR, 1), None);
    assert_eq!(judge(&mut to, libc::EAGAIN, 1), Some(SendError::Blocked));
    assert_eq!(judge(&mut to, libc::ENOBUFS, 1), Some(SendError::Blocked));
    assert!(matches!(judge(&mut to, libc::EPIPE, 1), Some(SendError::Gone { .. })));
    assert!(matches!(judge(&mut to, libc::EPERM, 1), Some(SendError::Host { .. })));
}
