// SPDX-License-Identifier: MIT OR Apache-2.0
//! The receiving thread of a play: reads the packets of one stream ([`Intake`]).
//!
//! It is a separate thread, because a task on a shared executor is delayed while others are busy.
//! Costs two system calls for up to 32 packets.
//!
//! Sources: poll(2).
//! Does not send reports ([`super::rtcp_reporter`] does).

use std::io;
use std::time::Duration;

use clock::Clock;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::sync::oneshot;

use super::packet_intake::{
    AnnouncedSender, Command, Intake, IntakeHandle, IntakeStep, PacketInput, ReceiveResult,
    StreamFormat,
};
use crate::error::Error;
use crate::rtp_receiver::SocketReader;

/// Handle of the thread. Dropping it stops the thread.
pub(super) struct ReceiveThread {
    pub(super) intake: IntakeHandle,
    result: oneshot::Receiver<Result<ReceiveResult, Error>>,
}

impl ReceiveThread {
    /// Starts the thread; packets are held until the first [`Command::Begin`].
    pub(super) fn start(
        input: PacketInput,
        source: AnnouncedSender,
        format: StreamFormat,
    ) -> Result<ReceiveThread, Error> {
        let (handle, intake) = Intake::new(&input, source, format, &Clock::HOST)?;
        let (end, result) = oneshot::channel();
        std::thread::Builder::new()
            .name("receive".to_owned())
            .spawn(move || {
                // The handle is gone where the play was given up.
                let _ = end.send(run(intake, &input));
            })
            .map_err(|source| Error::Host {
                call: "clone",
                object: "thread receive".into(),
                source,
            })?;
        Ok(ReceiveThread { intake: handle, result })
    }

    /// Reads the datagrams left in the socket, closes the file, and ends the thread.
    pub(super) async fn stop(self, is_cut: bool) -> Result<ReceiveResult, Error> {
        self.intake.command(Command::Stop { is_cut });
        self.result.await.unwrap_or_else(|_| {
            let source = io::Error::other("the thread panicked");
            Err(Error::Host { call: "receive", object: "RTP".into(), source })
        })
    }
}

fn run(mut intake: Intake, input: &PacketInput) -> Result<ReceiveResult, Error> {
    let mut reader = SocketReader::new(intake.clock.clone());
    loop {
        let step = match input {
            PacketInput::Frames(frames) => Ok(intake.read_frames(frames, CHECK_EVERY)),
            PacketInput::Socket(socket) => {
                let at_most = if intake.is_stopping() { Duration::ZERO } else { CHECK_EVERY };
                wait(&mut [PollFd::new(socket, PollFlags::IN)], at_most);
                intake.read(&mut reader, socket)
            }
        };
        match step {
            Ok(IntakeStep::More | IntakeStep::Empty) => {}
            Ok(IntakeStep::Ended) => return intake.close(input, None),
            Err(error) => return intake.close(input, Some(error)),
        }
    }
}

/// Waits for a datagram of a socket, for less than a second. The next read returns any error.
pub(super) fn wait(readable: &mut [PollFd<'_>], at_most: Duration) {
    let timeout = Timespec { tv_sec: 0, tv_nsec: at_most.subsec_nanos().into() };
    let _ = poll(readable, Some(&timeout));
}

/// Longest delay of a command when no packet arrives.
pub(super) const CHECK_EVERY: Duration = Duration::from_millis(20);

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr, UdpSocket};
    use std::sync::Arc;
    use std::time::Instant;

    use super::*;

    #[test]
    fn a_receiver_that_is_dropped_leaves_no_thread_behind() {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let host = IpAddr::from(Ipv4Addr::LOCALHOST);
        let source = AnnouncedSender {
            host: Some(host),
            ssrc: None,
            payload_type: 33,
            clock_rate_hz: 90_000,
        };
        let format = StreamFormat::TransportStream(None);
        let input = PacketInput::Socket(socket);
        let receiving = ReceiveThread::start(input, source, format).unwrap();
        let stats = receiving.intake.shared();
        drop(receiving);
        // The thread holds the other end; a minute only guards against a hang.
        let until = Instant::now() + Duration::from_secs(60);
        while Arc::strong_count(&stats) > 1 && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(Arc::strong_count(&stats), 1);
    }
}
