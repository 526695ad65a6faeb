// SPDX-License-Identifier: MIT OR Apache-2.0
//! Every member of `paths::PATHS` sends 4,000 packets over the loopback interface, and each
//! received byte is compared.
//!
//! The first packet begins at an odd offset of the file, the last packet is short, and sequence
//! numbers wrap on the way. The lengths of batches vary, so that segment runs begin and end
//! anywhere in a page. Each member prints a line `guest: ok`; the first wrong or missing packet
//! ends the run.
//!
//! Members that make frames themselves need a device other than loopback; they and members that the
//! machine cannot use are left out with their reason: `guest: skip MEMBER: REASON`.
//!
//! Settings: `members=` (all), `packets=` (4,000).
//!
//! Sources: RFC 3550 §5.1.

use std::io::{ErrorKind, Read};
use std::net::{Ipv4Addr, UdpSocket};
use std::thread::{sleep, spawn};
use std::time::{Duration, Instant};

use paths::{Open, Spec};
use rustix::net::sockopt::{set_socket_recv_buffer_size, set_socket_recv_buffer_size_force};

use crate::error::{Error, same, same_bytes};
use crate::fixture::{Fixture, FixtureShape};
use crate::guest_job::GuestJob;
use crate::paths::{DATAGRAM_BYTES, DownloadSender, Failure, StreamSender, settle, wanted};
use crate::protocol::ConsoleLine;
use crate::settings::GuestSettings;

/// The job.
pub(crate) static JOB: GuestJob = GuestJob { name: "verify", run };

const PACKETS: u64 = 4000;
const PACKETS_MAX: u64 = 60_000;
const LAST_BYTES: u32 = 701;
const START_BYTES: u32 = 77;
/// First sequence number; wraps within the first few hundred packets.
const FIRST_SEQUENCE: u16 = 65_300;
/// Receive buffer for the longest batch: the kernel charges more than the bytes of a datagram.
const RECEIVE_BUFFER_BYTES: usize = 4 << 20;
/// Lengths of successive batches. The host may grant a normal user no more than 200 KiB.
const BATCHES: [u32; 6] = [1, 7, 64, 3, 50, 31];
/// Bytes of a download's step, not a multiple of a page.
const STEP_BYTES: u64 = 77_777;
const TIMEOUT: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_micros(200);

fn run(settings: &GuestSettings) -> Result<(), Error> {
    let packets = settings.number("packets").unwrap_or(PACKETS).min(PACKETS_MAX) as u32;
    let fixture = Fixture::make(FixtureShape {
        packets,
        datagram_bytes: DATAGRAM_BYTES,
        last_bytes: LAST_BYTES,
        start_bytes: START_BYTES,
        first_sequence: FIRST_SEQUENCE,
    })?;
    for spec in wanted(settings)? {
        let outcome = match spec.open {
            Open::Stream { .. } => stream(spec, &fixture),
            Open::Download(_) => download(spec, &fixture).map_err(Failure::Other),
            Open::Interleaved { .. } => unreachable!("not a member of PATHS"),
        };
        settle(spec, outcome)?;
    }
    Ok(())
}

/// Sends all packets and compares each with the expected bytes.
fn stream(spec: &'static Spec, fixture: &Fixture) -> Result<(), Failure> {
    let packets = fixture.shape.packets;
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).map_err(Error::host("bind", "lo"))?;
    if set_socket_recv_buffer_size_force(&socket, RECEIVE_BUFFER_BYTES).is_err() {
        set_socket_recv_buffer_size(&socket, RECEIVE_BUFFER_BYTES)
            .map_err(Error::host("setsockopt", "SO_RCVBUF"))?;
    }
    socket.set_nonblocking(true).map_err(Error::host("ioctl FIONBIO", "lo"))?;
    let to = socket.local_addr().map_err(Error::host("getsockname", "lo"))?;
    let mut sender = StreamSender::open(spec, fixture, Ipv4Addr::LOCALHOST, to)?;
    let (mut sent, mut arrived) = (0, 0);
    let mut lengths = BATCHES.iter().cycle();
    let mut buffer = vec![0; 65_536];
    while sent < packets {
        let most = lengths.next().expect("a cycle does not end").min(&(packets - sent)).to_owned();
        sent += sender.step(most)?;
        while arrived < sent {
            let bytes = receive(&socket, &mut buffer)
                .map_err(Error::host("recv", format!("packet {arrived} by {spec}")))?;
            let what = format!("{spec}: packet {arrived}");
            same_bytes(&what, fixture.datagram(arrived), &buffer[..bytes])?;
            arrived += 1;
        }
    }
    match socket.recv(&mut buffer) {
        Err(error) if error.kind() == ErrorKind::WouldBlock => {}
        Err(error) => return Err(Error::host("recv", "lo")(error).into()),
        Ok(_) => {
            return Err(same(&spec.to_string(), packets.into(), u64::from(packets) + 1)
                .expect_err("one is too many")
                .into());
        }
    }
    same(&format!("{spec}: packets in its stats"), packets.into(), sender.stats.packets)?;
    ConsoleLine::Ok(&format!("verify {spec}: {packets} packets, none bad")).say();
    Ok(())
}

/// Receives the next datagram; waits, as some paths send later from elsewhere in the kernel.
fn receive(socket: &UdpSocket, buffer: &mut [u8]) -> std::io::Result<usize> {
    let began = Instant::now();
    loop {
        match socket.recv(buffer) {
            Err(error) if error.kind() == ErrorKind::WouldBlock && began.elapsed() < TIMEOUT => {
                sleep(LOOK);
            }
            received => return received,
        }
    }
}

/// Downloads the image and compares all bytes.
fn download(spec: &'static Spec, fixture: &Fixture) -> Result<(), Error> {
    let bytes = fixture.image().bytes();
    let wrong = |error| crate::paths::failed(spec, error);
    let (mut source, mut accepted) = DownloadSender::connect(spec, fixture, STEP_BYTES)?;
    let sink = spawn(move || {
        let mut all = Vec::new();
        accepted.read_to_end(&mut all).map(|_| all)
    });
    source.send(bytes).map_err(wrong)?;
    drop(source);
    let received = sink.join().expect("the sink does not panic");
    let received = received.map_err(Error::host("recv", "loopback"))?;
    same(&format!("{spec}: bytes"), bytes, received.len() as u64)?;
    let (_, packets) = received.split_at(START_BYTES as usize);
    for (packet, found) in packets.chunks(DATAGRAM_BYTES as usize).enumerate() {
        let what = format!("{spec}: part {packet}");
        same_bytes(&what, fixture.datagram(packet as u32), found)?;
    }
    ConsoleLine::Ok(&format!("verify {spec}: {bytes} bytes, none bad")).say();
    Ok(())
}
