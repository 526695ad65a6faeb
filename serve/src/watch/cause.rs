// SPDX-License-Identifier: MIT OR Apache-2.0
//! The cause of a slow client, from the figures of some seconds.
//!
//! A viewer sees a stuttering picture; the causes look alike and need different cures. The function
//! here is pure: from figures it finds one cause and the figure that shows it. If several apply,
//! the first of [`CAUSES`] after `none` wins: a network that loses packets makes windows small and
//! packets late, a full socket and a slow disk make packets late.
//!
//! Sources: RFC 3550 §6.4.1 (fraction lost); tcp(7) (`TCP_INFO`); RFC 2326 §10.12.
//! Does not measure, and has no information about anything behind the client's socket.

use std::time::Duration;

use serde::Serialize;

/// Cause of a slow client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SlowCause {
    /// Nothing is wrong.
    #[default]
    None,
    /// Packets are lost on the way.
    NetworkLoss,
    /// The client does not read the bytes sent to it.
    WindowClosed,
    /// This host's socket or device accepts no more.
    SocketFull,
    /// The file is not in memory in time.
    Disk,
    /// This server is late.
    PacedLate,
}

/// All causes, in the order in which they are tried.
pub(crate) const CAUSES: [SlowCause; 6] = [
    SlowCause::None,
    SlowCause::NetworkLoss,
    SlowCause::WindowClosed,
    SlowCause::SocketFull,
    SlowCause::Disk,
    SlowCause::PacedLate,
];

impl SlowCause {
    /// Returns the name, as in the API and in metrics.
    pub(crate) fn name(self) -> &'static str {
        match self {
            SlowCause::None => "none",
            SlowCause::NetworkLoss => "network_loss",
            SlowCause::WindowClosed => "window_closed",
            SlowCause::SocketFull => "socket_full",
            SlowCause::Disk => "disk",
            SlowCause::PacedLate => "paced_late",
        }
    }
}

/// Figures of a client over some seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct ClientFigures {
    /// The time that they cover.
    pub(crate) over: Duration,
    /// Percent of the packets lost by the client's last receiver report.
    pub(crate) lost_percent: Option<f64>,
    /// Figures of a client over TCP.
    pub(crate) tcp: Option<TcpChange>,
    /// Sends over UDP that the kernel refused for lack of buffer space.
    pub(crate) refused: u64,
    /// Times its media was due and not in memory.
    pub(crate) stalls: u64,
    /// 99 % of its packets were at most this late.
    pub(crate) late_p99_ms: u64,
}

/// Change of a TCP connection's figures.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct TcpChange {
    pub(crate) segments: u64,
    pub(crate) segments_again: u64,
    /// Time in which the client's window permitted no more data.
    pub(crate) window_limited: Duration,
    pub(crate) unsent_bytes: u32,
    pub(crate) window_bytes: Option<u32>,
}

impl TcpChange {
    /// Percent of the segments that were sent again.
    pub(crate) fn again_percent(&self) -> Option<f64> {
        (self.segments > 0).then(|| 100.0 * self.segments_again as f64 / self.segments as f64)
    }
}

/// Returns the cause for which a client is slow, with the figure that shows it.
pub(crate) fn cause_of(figures: &ClientFigures) -> (SlowCause, String) {
    let tests = [network_loss, window_closed, socket_full, disk, paced_late];
    tests.into_iter().find_map(|test| test(figures)).unwrap_or_default()
}

fn network_loss(figures: &ClientFigures) -> Option<(SlowCause, String)> {
    let cause = |text| Some((SlowCause::NetworkLoss, text));
    if let Some(lost) = figures.lost_percent.filter(|&lost| lost >= LOST_PERCENT) {
        return cause(format!(
            "the network loses packets: the client reports {lost:.1} % of them lost"
        ));
    }
    let tcp = figures.tcp?;
    let again = tcp.again_percent().filter(|&again| again >= LOST_PERCENT)?;
    // Probes of a closed window, and one segment sent again among few, are no loss.
    if tcp.segments_again < SEGMENTS_AGAIN_MIN {
        return None;
    }
    cause(format!("the network loses packets: {again:.1} % of the TCP segments were sent again"))
}

fn window_closed(figures: &ClientFigures) -> Option<(SlowCause, String)> {
    let tcp = figures.tcp?;
    let share = tcp.window_limited.as_secs_f64() / figures.over.as_secs_f64().max(0.001);
    if tcp.unsent_bytes == 0 && share < WINDOW_SHARE {
        return None;
    }
    let is_closed = tcp.window_bytes == Some(0) && tcp.unsent_bytes > 0;
    (is_closed || share >= WINDOW_SHARE).then(|| {
        let text = format!(
            "the client does not read: its receive window was full for {:.0} % of the time, and \
             {} KB wait here",
            100.0 * if is_closed { share.max(WINDOW_SHARE) } else { share }.min(1.0),
            tcp.unsent_bytes / 1000
        );
        (SlowCause::WindowClosed, text)
    })
}

fn socket_full(figures: &ClientFigures) -> Option<(SlowCause, String)> {
    let refused = Some(figures.refused).filter(|&refused| refused > 0)?;
    let text = format!(
        "this host's socket was full: {refused} sends were refused in {:.0} s and made again",
        figures.over.as_secs_f64()
    );
    Some((SlowCause::SocketFull, text))
}

fn disk(figures: &ClientFigures) -> Option<(SlowCause, String)> {
    let stalls = Some(figures.stalls).filter(|&stalls| stalls > 0)?;
    let text = format!(
        "the disk is slow: the media was due and not in memory {stalls} times in {:.0} s",
        figures.over.as_secs_f64()
    );
    Some((SlowCause::Disk, text))
}

fn paced_late(figures: &ClientFigures) -> Option<(SlowCause, String)> {
    let late = Some(figures.late_p99_ms).filter(|&late| late >= LATE_MS)?;
    let text = format!("this server is late: one packet in a hundred by {late} ms or more");
    Some((SlowCause::PacedLate, text))
}

/// Loss that a viewer sees: a picture of 5 Mb/s has some 20 packets.
const LOST_PERCENT: f64 = 0.5;
const SEGMENTS_AGAIN_MIN: u64 = 3;
/// Share of the time in which a client's window may hold the sender back. A player that pauses for
/// a full buffer is held back, too: it does not read, and the text reports exactly that.
const WINDOW_SHARE: f64 = 0.2;
/// Receivers of RTP keep 50 ms of media and more; a burst is 20.
const LATE_MS: u64 = 32;

#[cfg(test)]
mod tests {
    use super::*;

    fn figures() -> ClientFigures {
        ClientFigures { over: Duration::from_secs(2), ..ClientFigures::default() }
    }

    fn tcp(change: TcpChange) -> ClientFigures {
        ClientFigures { tcp: Some(change), ..figures() }
    }

    #[track_caller]
    fn assert_cause(figures: &ClientFigures, cause: SlowCause, words: &str) {
        let found = cause_of(figures);
        assert_eq!(found.0, cause, "{found:?}");
        assert!(found.1.contains(words), "{found:?}");
    }

    #[test]
    fn loss_is_told_by_reports_and_by_segments_sent_again() {
        let lossy = ClientFigures { lost_percent: Some(5.04), ..figures() };
        assert_cause(&lossy, SlowCause::NetworkLoss, "5.0 % of them lost");
        let change = TcpChange { segments: 400, segments_again: 20, ..TcpChange::default() };
        assert_cause(&tcp(change), SlowCause::NetworkLoss, "5.0 % of the TCP segments");
    }

    #[test]
    fn one_segment_sent_again_is_no_loss() {
        let change = TcpChange { segments: 4, segments_again: 1, ..TcpChange::default() };
        assert_cause(&tcp(change), SlowCause::None, "");
        let little = ClientFigures { lost_percent: Some(0.4), ..figures() };
        assert_cause(&little, SlowCause::None, "");
    }

    #[test]
    fn reader_that_does_not_read_closes_its_window() {
        let limited = TcpChange {
            window_limited: Duration::from_millis(1800),
            unsent_bytes: 200_000,
            window_bytes: Some(300),
            ..TcpChange::default()
        };
        assert_cause(&tcp(limited), SlowCause::WindowClosed, "90 % of the time, and 200 KB");
        let closed =
            TcpChange { window_bytes: Some(0), unsent_bytes: 5000, ..TcpChange::default() };
        assert_cause(&tcp(closed), SlowCause::WindowClosed, "does not read");
        let idle = TcpChange { window_bytes: Some(0), ..TcpChange::default() };
        assert_cause(&tcp(idle), SlowCause::None, "");
    }

    #[test]
    fn loss_comes_before_its_consequences() {
        let all = ClientFigures {
            lost_percent: Some(2.0),
            refused: 3,
            stalls: 2,
            late_p99_ms: 512,
            ..figures()
        };
        assert_cause(&all, SlowCause::NetworkLoss, "2.0 %");
        let all = ClientFigures { lost_percent: Some(0.0), ..all };
        assert_cause(&all, SlowCause::SocketFull, "3 sends");
        let all = ClientFigures { refused: 0, ..all };
        assert_cause(&all, SlowCause::Disk, "2 times in 2 s");
        let all = ClientFigures { stalls: 0, ..all };
        assert_cause(&all, SlowCause::PacedLate, "512 ms");
        let all = ClientFigures { late_p99_ms: 16, ..all };
        assert_cause(&all, SlowCause::None, "");
    }

    #[test]
    fn each_cause_has_its_own_name() {
        let mut names: Vec<_> = CAUSES.iter().map(|cause| cause.name()).collect();
        for cause in CAUSES {
            assert_eq!(serde_json::json!(cause), cause.name());
        }
        names.dedup();
        assert_eq!(names.len(), CAUSES.len());
    }
}
