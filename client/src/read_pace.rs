// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pace of reading an RTSP connection: at once, batched, or at the rate of a slow reader.
//!
//! A slow reader reads the bytes of a twentieth of a second and waits until they would have arrived
//! at its rate; TCP flow control slows the sender meanwhile. The rate may change during a session:
//! the requests that set up and end a session run at full speed, so that their answers are not
//! stuck behind the session's own backlog.
//!
//! Costs one look at the rate for each read, and nothing for each packet.
//!
//! Sources: tcp(7); RFC 9293 §3.8.6 (the window of the receiver).
//! Does not limit the socket's buffer, which the kernel fills beyond the rate.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::sleep;

/// Pace of the reads of a connection.
pub(crate) enum ReadPace {
    /// As soon as bytes arrive.
    Prompt,
    /// With this time between two reads: packets collect in the socket meanwhile.
    Gathered(Duration),
    /// At a rate that another task sets.
    Limited(watch::Receiver<ReadRate>),
}

/// Rate of a slow reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReadRate {
    Full,
    BytesPerSecond(u32),
    /// Reads nothing.
    Stopped,
}

impl ReadPace {
    /// Waits until reading is allowed; returns the size limit of the next read.
    pub(crate) async fn allowed(&mut self, bytes_max: usize) -> usize {
        let ReadPace::Limited(rates) = self else { return bytes_max };
        loop {
            match *rates.borrow_and_update() {
                ReadRate::Full => return bytes_max,
                ReadRate::BytesPerSecond(rate) => return read_bytes(rate).min(bytes_max),
                ReadRate::Stopped => {}
            }
            if rates.changed().await.is_err() {
                // The sender of the rate is gone: the session is over.
                std::future::pending::<()>().await;
            }
        }
    }

    /// Waits after a read of this number of bytes; a change of the rate ends the wait.
    pub(crate) async fn pause(&mut self, bytes: usize) {
        match self {
            ReadPace::Prompt => {}
            ReadPace::Gathered(pause) => sleep(*pause).await,
            ReadPace::Limited(rates) => {
                let rate = *rates.borrow();
                let ReadRate::BytesPerSecond(rate) = rate else { return };
                let pause = Duration::from_secs_f64(bytes as f64 / f64::from(rate.max(1)));
                tokio::select! {
                    () = sleep(pause) => {}
                    Ok(()) = rates.changed() => {}
                }
            }
        }
    }
}

/// Bytes of one read at a rate.
fn read_bytes(rate: u32) -> usize {
    (rate / READS_PER_SECOND).max(1) as usize
}

const READS_PER_SECOND: u32 = 20;

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[tokio::test]
    async fn a_rate_bounds_each_read_and_the_time_of_many() {
        let (_rate, rates) = watch::channel(ReadRate::BytesPerSecond(100_000));
        let mut pace = ReadPace::Limited(rates);
        let (began, mut bytes) = (Instant::now(), 0);
        for _ in 0..6 {
            let most = pace.allowed(1 << 18).await;
            assert_eq!(most, 5000);
            pace.pause(most).await;
            bytes += most;
        }
        assert!(began.elapsed() >= Duration::from_millis(300), "{bytes} bytes");
        let (_rate, rates) = watch::channel(ReadRate::BytesPerSecond(1));
        assert_eq!(ReadPace::Limited(rates).allowed(1 << 18).await, 1);
    }

    #[tokio::test]
    async fn a_stopped_reader_goes_on_when_its_rate_changes() {
        let (rate, rates) = watch::channel(ReadRate::Stopped);
        let mut pace = ReadPace::Limited(rates);
        let waiting = tokio::time::timeout(Duration::from_millis(50), pace.allowed(10)).await;
        assert!(waiting.is_err());
        rate.send_replace(ReadRate::BytesPerSecond(1));
        assert_eq!(pace.allowed(10).await, 1);
        // The wait would last an hour at this rate; the change of the rate ends it.
        let change = async { rate.send_replace(ReadRate::Full) };
        let (_, _) = tokio::join!(pace.pause(3600), change);
        assert_eq!(pace.allowed(10).await, 10);
    }
}
