// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sixty-four cameras under a clock that the test sets: every picture and every sound is in its
//! file, files follow each other, and all that depends on time (arrivals, starts of files, waits)
//! is compared exactly. Twenty seconds take as long as the packets take to process.
//!
//! The cameras are sockets of the test over loopback, at a tenth of 4 Mb/s; the recorder's queue is
//! read by the test.
//!
//! Does not write to a disk, and does not test the pace of the thread ([`CameraThread::run`]);
//! `make lab-cameras` does.

use std::collections::VecDeque;
use std::net::{Ipv4Addr, UdpSocket};
use std::sync::mpsc::channel;
use std::time::UNIX_EPOCH;

use clock::SetClock;
use media::depayload::Depayloader;
use media::mux::{Rotation, WriterKind};
use media::{Demuxer, RtpIdentity};
use wire::rtp::{HEADER_BYTES, Header};

use super::*;
use crate::file_part::FilePart;
use crate::frame_reader::FrameQueue;
use crate::packet_intake::{AnnouncedSender, Command, IntakeHandle, StreamFormat};
use crate::track_muxer::{TrackMuxer, TrackOrigin};
use crate::track_packetizer::MuxedTotals;
use crate::track_receiver::TrackReceiver;

const CAMERAS: usize = 64;
const SECONDS: u64 = 20;
/// A picture and two packets of sound.
const STEP: Duration = Duration::from_millis(40);
/// Steps between two turns of a thread: more than it pauses.
const STEPS_A_TURN: u64 = 3;
const PICTURES_A_GROUP: u64 = 25;
/// Length of a file, which ends at the next key frame.
const FILE: Duration = Duration::from_secs(4);
/// Far from the present, so that the kernel's times of arrival do not count.
const WALL: Duration = Duration::from_secs(1_000_000_000);

const SDP: &[u8] = b"v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns=-\r\nt=0 0\r\n\
    m=video 5004 RTP/AVP 96\r\na=rtpmap:96 H264/90000\r\n\
    a=fmtp:96 packetization-mode=1;sprop-parameter-sets=Z0IAKeKQFAe2AtwEBAaQeJEV,aM48gA==\r\n\
    m=audio 5006 RTP/AVP 8\r\n";

/// A camera, the thread that records it, and the files so far.
struct Camera {
    number: usize,
    thread: CameraThread,
    handles: Vec<IntakeHandle>,
    senders: [UdpSocket; 2],
    sequences: [u16; 2],
    frames: FrameQueue,
    /// Start of each file since the cameras began, and its bytes.
    files: Vec<(Duration, Vec<u8>)>,
    /// Turns at which fragments were passed on.
    passed_on: VecDeque<Duration>,
}

/// The NAL unit of a picture, of two packets.
fn picture(camera: usize, number: u64) -> Vec<u8> {
    let is_key = number.is_multiple_of(PICTURES_A_GROUP);
    // The first macroblock is the slice's first.
    let head = if is_key { [0x65, 0x88] } else { [0x41, 0x9a] };
    let fill = (0..1998_u64).map(|at| ((camera as u64 * 7 + number * 13 + at) % 251) as u8 + 1);
    head.into_iter().chain(fill).collect()
}

/// The payloads of a picture (RFC 6184 §5.8).
fn fragments(unit: &[u8]) -> [Vec<u8>; 2] {
    let (indicator, kind) = (unit[0] & 0xe0 | 28, unit[0] & 0x1f);
    let (first, second) = unit[1..].split_at(1000);
    [[&[indicator, 0x80 | kind], first].concat(), [&[indicator, 0x40 | kind], second].concat()]
}

/// Sounds of a packet of 20 ms, in A-law.
fn sounds(camera: usize, number: u64) -> [u8; 160] {
    std::array::from_fn(|at| (camera as u64 * 3 + number * 5 + at as u64) as u8)
}

impl Camera {
    fn new(number: usize, clock: &Clock) -> Camera {
        let offer = wire::sdp::parse_tracks(SDP).unwrap();
        let (sinks, queue) = TrackQueue::new(offer.tracks.len(), clock);
        let (mut tracks, mut handles, mut senders) = (Vec::new(), Vec::new(), Vec::new());
        for (offer, sink) in offer.tracks.iter().zip(sinks) {
            let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            let sending = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            sending.connect(socket.local_addr().unwrap()).unwrap();
            socket.set_nonblocking(true).unwrap();
            let depayloader = Depayloader::new(offer).unwrap();
            let source = AnnouncedSender {
                host: None,
                ssrc: None,
                payload_type: offer.payload_type,
                clock_rate_hz: offer.clock_rate_hz,
            };
            let track = TrackReceiver::of_recorder(depayloader, sink);
            let (input, format) =
                (PacketInput::Socket(socket), StreamFormat::Track(Box::new(track)));
            let (handle, intake) = Intake::new(&input, source, format, clock).unwrap();
            handle.command(Command::Begin { sequence: Some(1) });
            tracks.push(TrackIntake { input, intake: Some(intake), start: StartCheck::default() });
            handles.push(handle);
            senders.push(sending);
        }
        let mut muxer = TrackMuxer::new(WriterKind::FragmentedMp4, 2);
        muxer.wait_by(clock);
        muxer.rotate(Rotation { time: Some(FILE), ..Rotation::default() });
        let (sink, frames) = FrameQueue::of_fragments((Ipv4Addr::LOCALHOST, 554).into());
        let (origins, inbox) = channel();
        let origin = |clock_rate_hz| Some(TrackOrigin { timestamp: 0, clock_rate_hz });
        origins.send((vec![origin(90_000), origin(8000)], Duration::ZERO)).unwrap();
        let header = Header { payload_type: 33, marker: false, sequence: 1, timestamp: 0, ssrc: 1 };
        let name: Arc<str> = format!("camera-{number}").into();
        let totals = Arc::<MuxedTotals>::default();
        let packetizer = Packetizer::new(name.clone(), muxer, sink, header, inbox, totals, clock);
        let thread = CameraThread { name, tracks, queue, packetizer, clock: clock.clone() };
        Camera {
            number,
            thread,
            handles,
            senders: senders.try_into().unwrap(),
            sequences: [1; 2],
            frames,
            files: Vec::new(),
            passed_on: VecDeque::new(),
        }
    }

    fn send(&mut self, track: usize, timestamp: u32, marker: bool, payload: &[u8]) {
        let (payload_type, sequence) = ([96, 8][track], self.sequences[track]);
        let header = Header { payload_type, marker, sequence, timestamp, ssrc: track as u32 + 5 };
        self.senders[track].send(&[&header.write()[..], payload].concat()).unwrap();
        self.sequences[track] = sequence.wrapping_add(1);
    }

    /// Sends the media of a step.
    fn send_step(&mut self, step: u64) {
        let parts = fragments(&picture(self.number, step));
        for (part, payload) in parts.iter().enumerate() {
            self.send(0, 3600 * step as u32, part == 1, payload);
        }
        for number in [2 * step, 2 * step + 1] {
            self.send(1, 160 * number as u32, number == 0, &sounds(self.number, number));
        }
    }

    /// Runs turns until all packets are read, and takes over the fragments that are whole.
    fn turn(&mut self, now: Duration, packets: u64) {
        let received = |camera: &Camera| -> u64 {
            camera.handles.iter().map(|handle| handle.stats().reception().received()).sum()
        };
        // Packets are there as soon as they are sent, but for a kernel that is busy.
        let limit = Instant::now() + Duration::from_secs(60);
        loop {
            self.thread.turn().expect("its tracks go on");
            if received(self) == packets {
                break;
            }
            assert!(Instant::now() < limit, "{} of {packets} packets", received(self));
            std::thread::yield_now();
        }
        self.take_over(now);
    }

    fn take_over(&mut self, now: Duration) {
        while let Some(batch) = self.frames.next() {
            for packet in batch.packets() {
                let part = FilePart::parse(&packet[HEADER_BYTES..]).expect("a part of a file");
                if let Some(began) = part.file_began {
                    let since = began.duration_since(UNIX_EPOCH + WALL).expect("not before");
                    self.files.push((since, Vec::new()));
                }
                if part.ends_fragment {
                    self.passed_on.push_back(now);
                }
                self.files.last_mut().expect("a file has begun").1.extend_from_slice(part.bytes);
            }
        }
    }

    /// Ends the tracks and the file.
    fn end(&mut self, now: Duration) {
        for handle in &self.handles {
            handle.command(Command::Stop { is_cut: false });
        }
        while self.thread.turn().is_ok() {}
        self.thread.packetizer.end();
        assert!(self.thread.packetizer.flush());
        self.take_over(now);
    }
}

/// Media of a file: each picture with its time, and the number of sounds.
fn media_of(file: &[u8]) -> (Vec<(u64, Vec<u8>)>, u64) {
    let bytes = file.len() as u64;
    let mut demuxer = Demuxer::of(file, bytes).expect("it is MP4");
    while !demuxer.advance(file, 1000).expect("it is whole") {}
    let identity = || RtpIdentity { ssrc: 1, first_sequence: 0, first_timestamp: 0 };
    let presentation = demuxer.finish(identity).expect("it is whole");
    let [pictures, sounds] = presentation.tracks() else { panic!("two tracks") };
    let table = &pictures.samples;
    let pictures = table.samples(0..table.len()).map(|sample| {
        let from = sample.file_offset as usize;
        (sample.decode, file[from..from + sample.bytes as usize].to_vec())
    });
    (pictures.collect(), sounds.samples.end())
}

#[test]
fn sixty_four_cameras_are_recorded_without_a_loss() {
    let set = SetClock::at(UNIX_EPOCH + WALL);
    let mut cameras: Vec<_> =
        (0..CAMERAS).map(|number| Camera::new(number, &set.clock())).collect();
    let steps = SECONDS * 1000 / STEP.as_millis() as u64;
    let mut now = Duration::ZERO;
    for step in 0..steps {
        for camera in &mut cameras {
            camera.send_step(step);
            if step % STEPS_A_TURN == STEPS_A_TURN - 1 || step == steps - 1 {
                camera.turn(now, 4 * (step + 1));
            }
        }
        set.advance(STEP);
        now += STEP;
    }
    for camera in &mut cameras {
        camera.end(now);
        let (mut pictures, mut sounds) = (0, 0);
        for (number, (began, file)) in camera.files.iter().enumerate() {
            let (found, heard) = media_of(file);
            // A file begins at the first key frame of its age; its time is that of its arrival.
            let first = pictures * STEP.as_millis() as u64;
            assert_eq!(found.first().map(|(_, unit)| unit[4]), Some(0x65), "file {number}");
            let wanted = Duration::from_millis(first);
            assert!(began.abs_diff(wanted) <= STEP * STEPS_A_TURN as u32, "{began:?} {wanted:?}");
            for (place, (decode, unit)) in found.iter().enumerate() {
                let own = picture(camera.number, pictures);
                assert!(unit[4..] == own && unit[..4] == (own.len() as u32).to_be_bytes());
                // Sound that was cut off by the file before may begin earlier.
                let begins = found[0].0;
                assert_eq!(*decode - begins, place as u64 * 3600, "picture {place} of {number}");
                assert!(begins <= 90_000 / 10, "file {number} begins at {begins}");
                pictures += 1;
            }
            sounds += heard;
        }
        assert_eq!((pictures, sounds), (steps, steps * 320), "camera {}", camera.number);
        assert_eq!(camera.files.len() as u64, SECONDS / FILE.as_secs());
        assert_eq!(camera.thread.queue.control.dropped_units(), 0);
        // No fragment is longer than two seconds, and none waits for longer than a turn.
        let passed_on: Vec<_> = camera.passed_on.iter().copied().collect();
        for pair in passed_on.windows(2) {
            assert!(pair[1] - pair[0] <= Duration::from_secs(2) + STEP * STEPS_A_TURN as u32);
        }
        assert!(passed_on.len() as u64 >= SECONDS / 2);
    }
}
