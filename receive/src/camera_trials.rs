// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the recorder's media path under a clock that the tests set: from datagrams to the
//! files of cameras, in one thread.
//!
//! RTP packets are sent to the sockets of cameras at set times. The turns of a camera, of the
//! receiving thread and of the writer follow, as their threads would call them. The set clock shows
//! the year 2001, so the kernel's timestamps lie in its future: a datagram arrives when it is read.
//!
//! Does not test pauses of threads, RTSP, RTCP, or the thread that closes files.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, UNIX_EPOCH};

use client::rtp_receiver::ArrivalClock;
use client::{
    CameraThread, CameraTurn, DescribedOptions, DescribedTracks, RecordedMedia, TrackContainer,
    TrackSockets,
};
use clock::SetClock;
use media::mp4::Mp4Demuxer;
use media::mux::{Rotation, WriterKind};
use media::{Presentation, RtpIdentity};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use wire::mp2t::PAYLOAD_TYPE;
use wire::rtp::Header;

use crate::closer::CloseCommand;
use crate::file_names::FileNames;
use crate::fragment_output::FragmentOutput;
use crate::frame_input::FrameInput;
use crate::path_choice::{choose, wanted};
use crate::receiving_thread::{Pacing, PortCommand, ReceivingThread, Streams, lock};
use crate::recorded_stream::{AnnouncedSession, RecordOutput, RecordedStream};
use crate::write_queue::{BlockPool, WriteCommand};
use crate::writer::{StreamFiles, SyncPolicy, WriteStats, Writer};

/// H.264 with the parameter sets of `track_stream`'s tests, and Opus.
const DESCRIPTION: &[u8] = b"v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns=-\r\nc=IN IP4 127.0.0.1\r\n\
    t=0 0\r\nm=video 5004 RTP/AVP 96\r\na=rtpmap:96 H264/90000\r\n\
    a=fmtp:96 packetization-mode=1;sprop-parameter-sets=Z0IACpZTBYmI,aMljiA==\r\n\
    m=audio 5006 RTP/AVP 97\r\na=rtpmap:97 opus/48000/2\r\n";
const VIDEO: usize = 0;
const SOUND: usize = 1;
/// 25 pictures a second, of which the first is a key frame; 1 Mb/s, as a debug build needs
/// tens of nanoseconds a byte.
const PICTURES_S: u32 = 25;
const PICTURE: Duration = Duration::from_millis(40);
const KEY_BYTES: usize = 11_000;
const PICTURE_BYTES: usize = 4_750;
/// Frames of sound for each picture.
const FRAMES: u32 = 2;
const PAYLOAD_BYTES: usize = 1400;
const FILE_S: u32 = 5;
/// Midnight, 2001-01-01.
const BEGAN: Duration = Duration::from_secs(978_307_200);

/// A camera: its sender, and its receiver without a thread.
struct Camera {
    number: u32,
    sequences: [u16; 2],
    sent: u64,
    to: [SocketAddr; 2],
    tracks: DescribedTracks,
    thread: CameraThread,
}

/// A recorder without threads.
struct Recorder {
    set: SetClock,
    runtime: Runtime,
    folder: TempDir,
    sending: UdpSocket,
    cameras: Vec<Camera>,
    streams: Streams,
    orders: Sender<PortCommand>,
    receiving: ReceivingThread,
    writes: Receiver<WriteCommand>,
    writer: Writer,
    closes: Receiver<CloseCommand>,
    written: Vec<Arc<WriteStats>>,
}

/// A number in eight digits: a NAL unit has no zeros in a row.
fn digits(number: u32) -> [u8; 8] {
    format!("{number:08}").into_bytes().try_into().expect("eight digits")
}

/// A NAL unit of a picture, which holds its camera and number.
fn picture(camera: u32, number: u32) -> Vec<u8> {
    let is_key = number.is_multiple_of(PICTURES_S);
    let (kind, bytes) = if is_key { (0x65, KEY_BYTES) } else { (0x41, PICTURE_BYTES) };
    let mut nal = vec![0xaa; bytes];
    nal[..2].copy_from_slice(&[kind, 0x80]);
    nal[2..10].copy_from_slice(&digits(camera));
    nal[bytes - 8..].copy_from_slice(&digits(number));
    nal
}

/// A frame of sound of 20 ms (RFC 6716 §3.1: code 0).
fn frame(camera: u32, number: u32) -> Vec<u8> {
    [&[0x08][..], &digits(camera), &digits(number), &[0x55; 143]].concat()
}

impl Camera {
    fn new(number: u32, set: &SetClock, recorder: &mut (Sender<PortCommand>, Streams)) -> Camera {
        let mut to = Vec::new();
        let bind = |_| {
            let [rtp, rtcp] = [(); 2].map(|()| UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap());
            to.push(rtp.local_addr().unwrap());
            Ok(TrackSockets { rtp, rtcp })
        };
        let time = Some(Duration::from_secs(FILE_S.into()));
        let options = DescribedOptions {
            at: Duration::ZERO,
            container: TrackContainer::FragmentedMp4(Rotation { time, ..Rotation::default() }),
            media: RecordedMedia::All,
            reports: false,
        };
        let opened = DescribedTracks::open(DESCRIPTION, "camera", options, &set.clock(), bind);
        let (tracks, frames, thread) = opened.unwrap();
        let (orders, streams) = recorder;
        lock(&streams[number as usize]).announce(AnnouncedSession {
            host: tracks.address.ip(),
            port: Some(tracks.address.port()),
            payload_type: PAYLOAD_TYPE,
            ssrc: Some(tracks.ssrc()),
            is_resumed: false,
        });
        orders.send(PortCommand::AddFrames { key: number, frames }).unwrap();
        let to = to.try_into().expect("two tracks");
        // One of the sequences wraps soon.
        Camera { number, sequences: [65_000, 7], sent: 0, to, tracks, thread }
    }

    fn send(
        &mut self,
        socket: &UdpSocket,
        track: usize,
        timestamp: u32,
        marker: bool,
        parts: &[&[u8]],
    ) {
        let payload_type = [96, 97][track];
        let ssrc = 2 * self.number + track as u32;
        let sequence = self.sequences[track];
        let header = Header { payload_type, marker, sequence, timestamp, ssrc };
        let packet = [&header.write()[..], &parts.concat()].concat();
        socket.send_to(&packet, self.to[track]).unwrap();
        self.sequences[track] = sequence.wrapping_add(1);
        self.sent += 1;
    }

    /// Sends a picture in fragments (RFC 6184 §5.8).
    fn send_picture(&mut self, socket: &UdpSocket, number: u32) {
        let nal = picture(self.number, number);
        let (indicator, kind) = (nal[0] & 0xe0 | 28, nal[0] & 0x1f);
        let last = (nal.len() - 2) / PAYLOAD_BYTES;
        for (index, part) in nal[1..].chunks(PAYLOAD_BYTES).enumerate() {
            let (first, is_last) = (u8::from(index == 0), index == last);
            let head = [indicator, first << 7 | u8::from(is_last) << 6 | kind];
            self.send(socket, VIDEO, number.wrapping_mul(3600), is_last, &[&head, part]);
        }
    }

    fn send_frame(&mut self, socket: &UdpSocket, number: u32) {
        let bytes = frame(self.number, number);
        self.send(socket, SOUND, number.wrapping_mul(960), false, &[&bytes]);
    }

    /// Turns until all packets that were sent are received.
    fn turn(&mut self) {
        let until = Instant::now() + HANG;
        loop {
            let turn = self.thread.turn();
            if turn == CameraTurn::Empty && self.tracks.news().0.packets == self.sent {
                return;
            }
            assert!(Instant::now() < until, "{turn:?} {:?}", self.tracks.news().0);
        }
    }
}

impl Recorder {
    fn new(cameras: u32) -> Recorder {
        let set = SetClock::at(UNIX_EPOCH + BEGAN);
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().start_paused(true).build().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let pattern = folder.path().join("{index}-{time}.mp4").display().to_string();
        let (queue, writes) = channel();
        let pool = Arc::new(BlockPool::new(64 << 20));
        let stream = |key: u32| {
            let (pool, queue) = (pool.clone(), queue.clone());
            let output = FragmentOutput::new(key as usize, pool, queue, set.clock());
            let output = Some(RecordOutput::Fragments(output));
            Mutex::new(RecordedStream::new(Vec::new(), Duration::from_millis(100), output))
        };
        let streams: Streams = (0..cameras).map(stream).collect();
        let written: Vec<Arc<WriteStats>> = (0..cameras).map(|_| Arc::default()).collect();
        let lane = |(index, stats): (usize, &Arc<WriteStats>)| {
            let names = FileNames::new(&pattern, "", index);
            Some(StreamFiles::new(names, WriterKind::FragmentedMp4, stats.clone()))
        };
        let lanes = written.iter().enumerate().map(lane).collect();
        let (closer, closes): (SyncSender<CloseCommand>, _) = sync_channel(2 * cameras as usize);
        let (sync, clock) = (SyncPolicy::Never, set.clock());
        let writer = Writer { lanes, pool: pool.clone(), sync, closer, clock };
        let (orders, inbox) = channel();
        let choice = choose(&wanted("recvmmsg", &[]).unwrap(), &[]).unwrap();
        let receiving = ReceivingThread {
            path: choice.path,
            via: choice.spec.via,
            streams: streams.clone(),
            ports: Vec::new(),
            frames: FrameInput::default(),
            copiers: std::collections::HashMap::new(),
            inbox,
            stats: Arc::default(),
            clock: ArrivalClock::start(&set.clock()),
            pace: Pacing::default(),
            check_at: Duration::ZERO,
        };
        let sending = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let entered = runtime.enter();
        let mut ends = (orders.clone(), streams.clone());
        let cameras = (0..cameras).map(|number| Camera::new(number, &set, &mut ends)).collect();
        drop(entered);
        Recorder {
            set,
            runtime,
            folder,
            sending,
            cameras,
            streams,
            orders,
            receiving,
            writes,
            writer,
            closes,
            written,
        }
    }

    /// A turn of the receiving thread, and of the writer; returns the files that are complete.
    fn turn(&mut self) -> Vec<ClosedFile> {
        assert!(self.receiving.turn(Duration::ZERO).expect("it is not stopped").is_ok());
        self.write()
    }

    fn write(&mut self) -> Vec<ClosedFile> {
        let (mut files, at) = (Vec::new(), self.receiving.clock.now());
        for order in self.writes.try_iter() {
            self.writer.handle(order);
            files.extend(self.closes.try_iter().map(|command| closed(command, at)));
        }
        files
    }

    /// All cameras send a picture, and the sound of its time half a picture later.
    fn send(&mut self, number: u32) -> Vec<ClosedFile> {
        for camera in &mut self.cameras {
            camera.send_picture(&self.sending, number);
            camera.turn();
        }
        let mut closed = self.turn();
        self.set.advance(PICTURE / 2);
        for camera in &mut self.cameras {
            for frame in 0..FRAMES {
                camera.send_frame(&self.sending, FRAMES * number + frame);
            }
            camera.turn();
        }
        closed.extend(self.turn());
        self.set.advance(PICTURE / 2);
        closed
    }

    /// Ends all cameras and files; checks that nothing was lost.
    fn finish(mut self) -> Vec<ClosedFile> {
        for Camera { tracks, mut thread, sent, .. } in std::mem::take(&mut self.cameras) {
            let turns = async move {
                while thread.turn() != CameraTurn::Ended {
                    tokio::task::yield_now().await;
                }
            };
            let ended = async { tokio::join!(tracks.finish(false), turns).0 };
            let (counts, _) = self.runtime.block_on(ended);
            assert_eq!((counts.packets, counts.lost_packets, counts.late), (sent, 0, 0));
            assert_eq!((counts.dropped_units, counts.dropped_by_kernel), (0, 0));
        }
        let mut closed = self.turn();
        self.orders.send(PortCommand::Stop).unwrap();
        assert!(self.receiving.turn(Duration::ZERO).is_none());
        self.receiving.finish();
        closed.extend(self.write());
        self.writer.finish();
        let at = self.receiving.clock.now();
        closed.extend(self.closes.try_iter().map(|command| self::closed(command, at)));
        for (stream, written) in self.streams.iter().zip(&self.written) {
            let stream = lock(stream);
            assert_eq!((stream.missing(), stream.dropped_bytes()), (0, 0));
            assert_eq!(stream.counts().outages, 0);
            let of = |count: &std::sync::atomic::AtomicU64| {
                count.load(std::sync::atomic::Ordering::Relaxed)
            };
            assert_eq!(of(&written.dropped_bytes), 0);
        }
        assert_eq!(fs::read_dir(self.folder.path()).unwrap().count(), 0, "all files were checked");
        closed
    }
}

fn closed(command: CloseCommand, at: Duration) -> ClosedFile {
    match command {
        CloseCommand::File { stream, path, .. } => {
            ClosedFile::read(stream as u32, &path, at.as_millis())
        }
        CloseCommand::Sync { .. } => panic!("no file is synced"),
    }
}

/// A complete file.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ClosedFile {
    camera: u32,
    /// Time at which it was closed, in milliseconds after the first picture.
    closed_ms: u128,
    name: String,
    /// Numbers of its pictures and frames of sound, and their times in milliseconds.
    pictures: Vec<(u32, i64)>,
    frames: Vec<(u32, i64)>,
    /// Numbers of the pictures with which its fragments begin.
    fragments: Vec<u32>,
}

impl ClosedFile {
    /// Reads a file, checks its units, and removes it.
    fn read(camera: u32, path: &std::path::Path, closed_ms: u128) -> ClosedFile {
        let file = fs::read(path).unwrap();
        fs::remove_file(path).unwrap();
        let found = demux(&file);
        let (mut numbers, mut begins) = ([Vec::new(), Vec::new()], Vec::new());
        let starts = media_starts(&file);
        for (track, numbers) in numbers.iter_mut().enumerate() {
            let of = &found.tracks()[track];
            for sample in of.samples.samples(0..of.samples.len()) {
                let at = sample.file_offset as usize;
                let bytes = &file[at..at + sample.bytes as usize];
                let digits = if track == VIDEO { bytes.len() - 8..bytes.len() } else { 9..17 };
                let number = str::from_utf8(&bytes[digits]).unwrap().parse().unwrap();
                let is_sent = match track {
                    VIDEO => {
                        let nal = picture(camera, number);
                        bytes[..4] == (nal.len() as u32).to_be_bytes() && bytes[4..] == nal
                    }
                    _ => bytes == frame(camera, number),
                };
                assert!(is_sent, "camera {camera}, track {track}: unit {number} differs");
                let is_key = track == SOUND || number.is_multiple_of(PICTURES_S);
                assert_eq!(sample.is_start, is_key, "{number}");
                let ticks = of.presented_ticks(&sample);
                assert_eq!(ticks % 27_000, 0, "a whole millisecond");
                numbers.push((number, ticks / 27_000));
                if track == VIDEO && starts.contains(&at) {
                    begins.push(number);
                }
            }
        }
        assert_eq!(begins.len(), starts.len(), "each fragment begins with a picture");
        let [pictures, frames] = numbers;
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        ClosedFile { camera, closed_ms, name, pictures, frames, fragments: begins }
    }
}

fn demux(file: &[u8]) -> Presentation {
    let mut demuxer = Mp4Demuxer::new(file.len() as u64);
    while !demuxer.advance(file, 1000).expect("a good file") {}
    let identity = || RtpIdentity { ssrc: 1, first_sequence: 2, first_timestamp: 3 };
    demuxer.finish(identity).expect("a track can be streamed")
}

/// Offsets of the media of each fragment.
fn media_starts(file: &[u8]) -> Vec<usize> {
    let (mut at, mut starts, mut kinds) = (0, Vec::new(), Vec::new());
    while at < file.len() {
        kinds.push(&file[at + 4..at + 8]);
        if kinds.last() == Some(&&b"mdat"[..]) {
            starts.push(at + 8);
        }
        at += u32::from_be_bytes(file[at..at + 4].try_into().unwrap()) as usize;
    }
    assert_eq!((at, &kinds[..2]), (file.len(), &[&b"ftyp"[..], b"moov"][..]));
    assert!(kinds[2..].chunks(2).all(|pair| pair == [&b"moof"[..], b"mdat"]), "{kinds:?}");
    starts
}

/// Time of a file's first unit, in milliseconds after the first frame of sound arrived. A picture
/// is whole when the next one begins, 20 ms behind its first frame of sound: that is the offset
/// of the tracks, since the sender sends no reports. Later files begin with a key frame.
fn file_ms(file: u32) -> i64 {
    i64::from(file * FILE_S) * 1000 + if file == 0 { 0 } else { 20 }
}

/// The file with this number of a camera, of `files`.
fn expected(camera: u32, file: u32, files: u32) -> ClosedFile {
    let first = file * FILE_S * PICTURES_S;
    let pictures = first..first + FILE_S * PICTURES_S;
    let frames = 0..files * FILE_S * PICTURES_S * FRAMES;
    let frames = frames.map(|number| (number, i64::from(number) * 20));
    let is_in = |&(_, ms): &(u32, i64)| (file_ms(file)..file_ms(file + 1)).contains(&ms);
    let in_file = |(number, ms): (u32, i64)| (number, ms - file_ms(file));
    ClosedFile {
        camera,
        // The first fragment of the next file is whole with the key frame behind it.
        closed_ms: match file + 1 < files {
            true => u128::from((file + 1) * FILE_S * 1000 + 1000 + 40),
            false => u128::from(files * FILE_S * 1000),
        },
        name: format!("{camera}-20010101T0000{:02}Z.mp4", file * FILE_S),
        fragments: pictures.clone().step_by(PICTURES_S as usize).collect(),
        pictures: pictures.map(|n| in_file((n, i64::from(n) * 40 + 20))).collect(),
        frames: frames.filter(is_in).map(in_file).collect(),
    }
}

#[test]
fn sixty_four_cameras_with_sound_are_recorded_whole_for_20_seconds() {
    const CAMERAS: u32 = 64;
    const FILES: u32 = 4;
    let mut recorder = Recorder::new(CAMERAS);
    let pictures = 0..FILES * FILE_S * PICTURES_S;
    let mut closed: Vec<_> = pictures.flat_map(|number| recorder.send(number)).collect();
    closed.extend(recorder.finish());
    closed.sort_by(|a, b| (a.camera, &a.name).cmp(&(b.camera, &b.name)));
    let files = |camera| (0..FILES).map(move |file| expected(camera, file, FILES));
    let files = (0..CAMERAS).flat_map(files);
    for (found, expected) in closed.iter().zip(files) {
        assert_eq!(*found, expected);
    }
    assert_eq!(closed.len(), (CAMERAS * FILES) as usize);
}

/// Limit against hanging.
const HANG: Duration = Duration::from_secs(60);
