// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sends a file as datagrams over loopback by `sendfile` with UDP segmentation, compares the
//! received bytes with the file and prints what the path counted.
//!
//! `cargo run --release --example send_file [FILE]`; without a file it sends itself.

use std::error::Error;
use std::fs::File;
use std::net::UdpSocket;
use std::os::unix::fs::FileExt;
use std::thread;
use std::time::Duration;

use paths::{
    Batch, Destination, Host, MappedFile, Open, SendError, SendStats, Transport, Usage, find,
};

const DATAGRAM_BYTES: u32 = 1316;

/// Datagrams of a batch; the receiver answers each batch, so that its buffer never overflows.
const BATCH_PACKETS: u64 = 48;

fn main() -> Result<(), Box<dyn Error>> {
    let name = match std::env::args_os().nth(1) {
        Some(name) => name,
        None => std::env::current_exe()?.into_os_string(),
    };
    let source = MappedFile::open(File::open(&name)?, name.to_string_lossy())?;
    let spec = find(Transport::Udp, "sendfile_gso").expect("a member of the list");
    (spec.probe)(&Host::here())?;
    let Open::Stream { open, .. } = spec.open else { unreachable!("datagrams are a stream") };
    let mut path = open()?;

    let receiver = UdpSocket::bind("127.0.0.1:0")?;
    receiver.set_read_timeout(Some(Duration::from_secs(5)))?;
    let sender = UdpSocket::bind("127.0.0.1:0")?;
    sender.connect(receiver.local_addr()?)?;
    let mut to = Destination::new(sender, "loopback")?;

    let (mut stats, mut sent) = (SendStats::default(), 0);
    let before = processor_time();
    while sent < source.bytes() {
        let bytes = (source.bytes() - sent).min(BATCH_PACKETS * u64::from(DATAGRAM_BYTES));
        send(&mut *path, &source, sent, bytes, &mut to, &mut stats)?;
        compare(&receiver, source.file(), sent, bytes)?;
        sent += bytes;
    }
    let cpu_time = processor_time() - before;
    if let Some(lowered) = to.take_segment_limit_lowered() {
        println!("segments a call fell from {} to {}", lowered.from, lowered.to);
    }
    println!("{spec}: {} datagrams, {} bytes", stats.packets, stats.bytes);
    println!("{} system calls, {} bytes copied", stats.calls, stats.copied_bytes);
    if let Some(cost) = stats.cpu_s_per_gb(cpu_time) {
        println!("{cost:.2} s/GB, receiver and comparison included");
    }
    Ok(())
}

/// Returns the processor time of this process.
fn processor_time() -> Duration {
    let usage = Usage::now();
    usage.user + usage.system
}

/// Sends `bytes` bytes of the file from `offset` on; waits when the socket is full.
fn send(
    path: &mut dyn paths::StreamPath,
    source: &MappedFile,
    offset: u64,
    bytes: u64,
    to: &mut Destination,
    stats: &mut SendStats,
) -> Result<(), SendError> {
    let each = u64::from(DATAGRAM_BYTES);
    let mut done = 0;
    while done < bytes {
        let left = bytes - done;
        let packets = left.div_ceil(each) as u32;
        let batch = Batch::image(source, packets, DATAGRAM_BYTES, offset + done, left);
        match path.send(&batch, to, stats) {
            Ok(accepted) => done = (done + u64::from(accepted) * each).min(bytes),
            Err(SendError::Blocked) => thread::sleep(Duration::from_millis(1)),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Receives bytes and compares them with the file.
fn compare(
    receiver: &UdpSocket,
    file: &File,
    offset: u64,
    bytes: u64,
) -> Result<(), Box<dyn Error>> {
    let (mut received, mut expected) = ([0; 2048], [0; 2048]);
    let mut at = offset;
    while at < offset + bytes {
        let count = receiver.recv(&mut received)?;
        file.read_exact_at(&mut expected[..count], at)?;
        if received[..count] != expected[..count] {
            return Err(format!("the datagram at byte {at} differs from the file").into());
        }
        at += count as u64;
    }
    Ok(())
}
