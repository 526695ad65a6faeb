// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs ffmpeg in its sandbox, with pipes to and from it, until a deadline.
//!
//! The program named in [`DecoderCommand`] restricts itself and becomes ffmpeg. It gets coded
//! pictures on its standard input, one after the other, and writes JPEG to its standard output; it
//! receives no file and no address. Only the decoder of the pictures' coding is used: no demuxer
//! reads a byte of a stranger's file except that of IVF, whose headers are ours. All of its process
//! group is killed when the time is over, when it has written more than is wanted, or when the
//! server stops.
//! Costs, for an hour of 1080p in H.264 with a key frame each 2 s: a poster 0.17 s of a processor,
//! half of it the start of ffmpeg 5.1; 400 thumbnails 2.6 s, for 130 MB of the file that are read.
//! ffmpeg itself, with the option to skip all other frames (`-skip_frame nokey`), needs 9.2 s for
//! them and reads all of the 890 MB.
//! reads all of the 890 MB.
//!
//! Sources: ffmpeg(1); the sandbox is [`DecoderCommand::launcher`]'s.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use media::key_pictures::PictureCoding;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process_group};

use super::framing::{ivf_header, ivf_picture_header, jpegs};

/// The way in which ffmpeg is started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecoderCommand {
    /// Program and arguments of a sandbox: `--parent PID --cpu-seconds N --memory-bytes N --`, the
    /// program and its arguments are added.
    pub launcher: Vec<OsString>,
    /// ffmpeg, an absolute path.
    pub program: PathBuf,
}

/// Size of pictures, and limits on making them.
#[derive(Debug, Clone, Copy)]
pub(super) struct DecodeTerms {
    pub(super) width: u32,
    pub(super) height_max: u32,
    /// Quality of JPEG, from 2 (best) to 31.
    pub(super) quality: u32,
    pub(super) cpu_s: u64,
    pub(super) wall: Duration,
}

/// Reason why there are no pictures.
#[derive(Debug, thiserror::Error)]
pub(super) enum DecodeFault {
    /// A verdict on the file.
    #[error("no key frame could be decoded{0}")]
    Nothing(String),
    #[error("decoding took more than its {0} s")]
    TooLong(u64),
    /// Not a verdict on the file: the host may be short of memory, or an administrator has ended
    /// it. Its own limits of processor time and memory look the same.
    #[error("the decoder was ended by a {0}")]
    Killed(ExitStatus),
    #[error("the decoder wrote more than {0} bytes")]
    TooMuch(usize),
    #[error("starting {}: {source}", program.display())]
    Start { program: PathBuf, source: io::Error },
    #[error("reading key frames: {0}")]
    Read(io::Error),
    #[error("the server stops")]
    Stopping,
}

/// Runs ffmpeg.
pub(super) struct Decoder<'a> {
    pub(super) command: &'a DecoderCommand,
    /// Set when the server stops.
    pub(super) is_stopping: &'a AtomicBool,
}

/// Input of ffmpeg.
struct Input<'a> {
    head: Vec<u8>,
    /// Returns the next piece of input, with its header.
    next: &'a mut (dyn FnMut() -> io::Result<Option<Vec<u8>>> + Send),
}

impl Decoder<'_> {
    /// Decodes pictures, given one by one, to JPEG files: as many, or fewer where the last cannot
    /// be decoded. In place of any other undecodable picture the one before is repeated.
    pub(super) fn decode(
        &self,
        coding: PictureCoding,
        mut next: impl FnMut() -> io::Result<Option<Vec<u8>>> + Send,
        terms: DecodeTerms,
    ) -> Result<Vec<Vec<u8>>, DecodeFault> {
        let mut number = 0;
        let mut framed = || {
            Ok(next()?.map(|picture| {
                let header = ivf_picture_header(number, picture.len());
                number += 1;
                [&header[..], &picture].concat()
            }))
        };
        let DecodeTerms { width, height_max, quality, .. } = terms;
        let mut arguments = vec!["-f", "ivf"];
        // The IVF code of AV1 matches several decoders; ffmpeg chooses the best itself.
        arguments.extend(match coding {
            PictureCoding::H264 => &["-c:v", "h264"][..],
            PictureCoding::H265 => &["-c:v", "hevc"],
            PictureCoding::Mpeg2 => &["-c:v", "mpeg2video"],
            _ => &[],
        });
        let filter = format!(
            "scale=w={width}:h='2*max(1,trunc(min({width}/dar,{height_max})/2))':flags=area,\
             setsar=1,format=yuvj420p"
        );
        let quality = quality.to_string();
        arguments.extend(["-i", "pipe:0", "-vf", &filter, "-q:v", &quality, "-r", "1"]);
        let input = Input { head: ivf_header(coding), next: &mut framed };
        let out = self.run(&arguments, input, terms)?;
        Ok(jpegs(&out))
    }

    /// Decodes a test picture.
    pub(super) fn check(&self) -> Result<(), DecodeFault> {
        let arguments =
            ["-f", "rawvideo", "-pixel_format", "gray", "-video_size", "16x16", "-i", "pipe:0"];
        let mut picture = Some(vec![128; 256]);
        let mut next = || Ok(picture.take());
        let input = Input { head: Vec::new(), next: &mut next };
        let out = self.run(&[&arguments[..], &["-pix_fmt", "yuvj420p"]].concat(), input, CHECK)?;
        let nothing = || DecodeFault::Nothing(" of a test".to_owned());
        jpegs(&out).pop().map(drop).ok_or_else(nothing)
    }

    /// Puts JPEG files of one size side by side in rows of `columns`.
    pub(super) fn join(
        &self,
        files: &[Vec<u8>],
        columns: usize,
        terms: DecodeTerms,
    ) -> Result<Vec<u8>, DecodeFault> {
        let rows = files.len().div_ceil(columns);
        let filter = format!("tile={columns}x{rows},format=yuvj420p");
        let quality = terms.quality.to_string();
        let mut rest = files.iter();
        let mut next = || Ok(rest.next().cloned());
        let arguments = [
            "-f",
            "mjpeg",
            "-framerate",
            "1",
            "-i",
            "pipe:0",
            "-vf",
            &filter,
            "-q:v",
            &quality,
            "-frames:v",
            "1",
        ];
        let out = self.run(&arguments, Input { head: Vec::new(), next: &mut next }, terms)?;
        jpegs(&out).pop().ok_or_else(|| DecodeFault::Nothing(": no sheet of them".to_owned()))
    }

    /// Runs ffmpeg with these arguments between those that all runs have; returns its output.
    fn run(
        &self,
        arguments: &[&str],
        input: Input<'_>,
        terms: DecodeTerms,
    ) -> Result<Vec<u8>, DecodeFault> {
        let mut running = Running::start(self.command, arguments, terms.cpu_s)?;
        let stdin = running.0.stdin.take().expect("it is piped");
        let deadline = Instant::now() + terms.wall;
        std::thread::scope(|scope| {
            let writer = scope.spawn(move || write(stdin, input));
            let read = self.read(&mut running.0, (deadline, terms));
            // Also after success: no process is left, and the writer ends.
            let status = running.end(if read.is_ok() { deadline } else { Instant::now() });
            let written = writer.join().unwrap_or_else(|_| Err(io::Error::other("a panic")));
            let (out, complaint) = read?;
            written.map_err(DecodeFault::Read)?;
            match (status, out.is_empty()) {
                (_, false) => Ok(out),
                (Some(status), true) if status.signal().is_some() => {
                    Err(DecodeFault::Killed(status))
                }
                (Some(status), true) => {
                    let complaint = first_line(&complaint);
                    Err(DecodeFault::Nothing(format!(" (ffmpeg: {status}{complaint})")))
                }
                (None, true) => Err(DecodeFault::TooLong(terms.wall.as_secs())),
            }
        })
    }

    /// Reads both outputs to their ends.
    fn read(
        &self,
        child: &mut Child,
        (deadline, terms): (Instant, DecodeTerms),
    ) -> Result<(Vec<u8>, Vec<u8>), DecodeFault> {
        let (mut stdout, mut stderr) = (child.stdout.take(), child.stderr.take());
        let (mut out, mut complaint) = (Vec::new(), Vec::new());
        let mut piece = vec![0; PIECE_BYTES];
        while stdout.is_some() || stderr.is_some() {
            if self.is_stopping.load(Ordering::Relaxed) {
                return Err(DecodeFault::Stopping);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(DecodeFault::TooLong(terms.wall.as_secs()));
            }
            let wait = Timespec::try_from(left.min(LOOK_EVERY)).expect("it is short");
            let mut polled = Vec::with_capacity(2);
            polled.extend(stdout.as_ref().map(|pipe| PollFd::new(pipe, PollFlags::IN)));
            polled.extend(stderr.as_ref().map(|pipe| PollFd::new(pipe, PollFlags::IN)));
            let ready = poll(&mut polled, Some(&wait)).map_err(|errno| start_fault(self, errno))?;
            let is_ready: Vec<bool> = polled.iter().map(|one| !one.revents().is_empty()).collect();
            if ready == 0 {
                continue;
            }
            let has_out = stdout.is_some();
            if has_out && is_ready[0] {
                let bytes = stdout.as_mut().map_or(Ok(0), |pipe| pipe.read(&mut piece));
                match bytes.map_err(|error| start_fault(self, error))? {
                    0 => stdout = None,
                    bytes => out.extend_from_slice(&piece[..bytes]),
                }
                if out.len() > OUTPUT_BYTES_MAX {
                    return Err(DecodeFault::TooMuch(OUTPUT_BYTES_MAX));
                }
            }
            if stderr.is_some() && is_ready[usize::from(has_out)] {
                let bytes = stderr.as_mut().map_or(Ok(0), |pipe| pipe.read(&mut piece));
                match bytes.map_err(|error| start_fault(self, error))? {
                    0 => stderr = None,
                    bytes if complaint.len() < COMPLAINT_BYTES => {
                        complaint.extend_from_slice(&piece[..bytes]);
                    }
                    _ => {}
                }
            }
        }
        Ok((out, complaint))
    }
}

fn start_fault(decoder: &Decoder<'_>, source: impl Into<io::Error>) -> DecodeFault {
    DecodeFault::Start { program: decoder.command.program.clone(), source: source.into() }
}

/// Writes everything; a decoder that stops reading is no error.
fn write(mut to: ChildStdin, input: Input<'_>) -> io::Result<()> {
    let is_gone = |error: &io::Error| error.kind() == io::ErrorKind::BrokenPipe;
    if let Err(error) = to.write_all(&input.head) {
        return if is_gone(&error) { Ok(()) } else { Err(error) };
    }
    while let Some(bytes) = (input.next)()? {
        match to.write_all(&bytes) {
            Ok(()) => {}
            Err(error) if is_gone(&error) => return Ok(()),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// A decoder that runs; killed and waited for when dropped.
struct Running(Child);

impl Running {
    fn start(
        command: &DecoderCommand,
        arguments: &[&str],
        cpu_s: u64,
    ) -> Result<Running, DecodeFault> {
        let fault = |source| DecodeFault::Start { program: command.program.clone(), source };
        let (launcher, own) = command.launcher.split_first().ok_or_else(|| {
            fault(io::Error::new(io::ErrorKind::NotFound, "no program is named that restricts it"))
        })?;
        let child = Command::new(launcher)
            .args(own)
            .args(["--parent", &std::process::id().to_string()])
            .args(["--cpu-seconds", &cpu_s.to_string()])
            .args(["--memory-bytes", &MEMORY_BYTES.to_string(), "--"])
            .arg(&command.program)
            .args(["-hide_banner", "-nostdin", "-loglevel", "error", "-protocol_whitelist", "pipe"])
            .args(["-max_pixels", PIXELS_MAX, "-threads", "1", "-filter_threads", "1"])
            .args(["-flags", "+low_delay+output_corrupt", "-flags2", "+showall"])
            .args(arguments)
            .args(["-an", "-sn", "-dn", "-map_metadata", "-1", "-threads", "1", "-f", "mjpeg"])
            .args(["-c:v", "mjpeg", "pipe:1"])
            .env_clear()
            .current_dir("/")
            // It stays in the same session, so its nice value alone yields the processor to the
            // server.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        child.map(Running).map_err(fault)
    }

    /// Waits for its end until `deadline`, and kills its group. `None`: it did not end by itself.
    fn end(&mut self, deadline: Instant) -> Option<ExitStatus> {
        while Instant::now() < deadline {
            match self.0.try_wait() {
                Ok(None) => std::thread::sleep(Duration::from_millis(2)),
                Ok(Some(status)) => return Some(status),
                Err(_) => break,
            }
        }
        self.kill();
        None
    }

    fn kill(&mut self) {
        // The leader is not waited for yet, so its number is not reused.
        if let Ok(None) = self.0.try_wait() {
            let _ = kill_process_group(Pid::from_child(&self.0), Signal::KILL);
            let _ = self.0.wait();
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
    }
}

fn first_line(complaint: &[u8]) -> String {
    let text = String::from_utf8_lossy(complaint);
    let line = text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
    let shown: String = line.chars().filter(|one| !one.is_control()).take(200).collect();
    if shown.is_empty() { shown } else { format!(": {shown}") }
}

/// Time for a picture of 16 × 16.
const CHECK: DecodeTerms =
    DecodeTerms { width: 16, height_max: 16, quality: 4, cpu_s: 10, wall: Duration::from_secs(60) };
const PIECE_BYTES: usize = 64 << 10;
/// Beyond 400 thumbnails of any picture (12 KB each at most), and a sheet of a hundred.
const OUTPUT_BYTES_MAX: usize = 16 << 20;
const COMPLAINT_BYTES: usize = 4 << 10;
/// 8192 × 8192: no film has more.
const PIXELS_MAX: &str = "67108864";
/// Address space: ffmpeg with its libraries maps 400 MB; a decoder of 8192 × 4320 has 50 MB for
/// each of its pictures.
const MEMORY_BYTES: u64 = 2 << 30;
const LOOK_EVERY: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    const TERMS: DecodeTerms = DecodeTerms {
        width: 32,
        height_max: 32,
        quality: 4,
        cpu_s: 1,
        // Against hanging.
        wall: Duration::from_secs(60),
    };

    /// A shell in the place of the sandbox.
    fn shell(script: &str) -> DecoderCommand {
        let launcher = ["/bin/sh", "-c", script].map(OsString::from).to_vec();
        DecoderCommand { launcher, program: "/ffmpeg".into() }
    }

    fn decoded(script: &str, is_stopping: bool) -> Result<Vec<Vec<u8>>, DecodeFault> {
        decoded_within(TERMS, script, is_stopping)
    }

    fn decoded_within(
        terms: DecodeTerms,
        script: &str,
        is_stopping: bool,
    ) -> Result<Vec<Vec<u8>>, DecodeFault> {
        let (command, is_stopping) = (shell(script), AtomicBool::new(is_stopping));
        let decoder = Decoder { command: &command, is_stopping: &is_stopping };
        // More than a pipe holds: a program that does not read makes the writer wait.
        let mut left = 40;
        let next = || {
            left -= 1;
            Ok((left > 0).then(|| vec![7; 10_000]))
        };
        decoder.decode(PictureCoding::H264, next, terms)
    }

    /// True while a process runs; false for one that has ended and was not waited for.
    fn runs(process: &str) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        // The state stands behind the name, which is in brackets.
        stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
    }

    #[test]
    fn decoder_that_does_not_end_is_killed_with_its_children() {
        let folder = tempfile::tempdir().unwrap();
        let child = folder.path().join("child");
        let script = format!("sleep 600 & echo $! >{}; exec sleep 600", child.display());
        let terms = DecodeTerms { wall: Duration::from_millis(300), ..TERMS };
        let outcome = decoded_within(terms, &script, false);
        assert!(matches!(outcome, Err(DecodeFault::TooLong(_))), "{outcome:?}");
        // Without a number it was killed before it had a child.
        let child = std::fs::read_to_string(child).unwrap_or_default();
        let deadline = Instant::now() + Duration::from_secs(60);
        while !child.trim().is_empty() && runs(child.trim()) {
            assert!(Instant::now() < deadline, "the child {child} goes on");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    #[test]
    fn decoder_that_writes_without_end_is_stopped() {
        let command = shell("exec cat /dev/zero");
        let is_stopping = AtomicBool::new(false);
        let decoder = Decoder { command: &command, is_stopping: &is_stopping };
        let outcome = decoder.decode(PictureCoding::Av1, || Ok(None), TERMS);
        assert!(matches!(outcome, Err(DecodeFault::TooMuch(_))), "{outcome:?}");
    }

    #[test]
    fn decoder_ends_with_the_server() {
        let outcome = decoded("exec sleep 600", true);
        assert!(matches!(outcome, Err(DecodeFault::Stopping)), "{outcome:?}");
    }

    #[test]
    fn reason_is_what_the_decoder_says_first_without_orders_to_terminals() {
        let outcome = decoded("printf '\\n\\033[31mbad\\n' >&2; cat >/dev/null; exit 3", false);
        let reason = outcome.unwrap_err().to_string();
        assert_eq!(reason, "no key frame could be decoded (ffmpeg: exit status: 3: [31mbad)");
    }

    #[test]
    fn decoder_that_is_killed_is_no_verdict() {
        let outcome = decoded("kill -KILL $$", false);
        let fault = outcome.unwrap_err();
        assert!(matches!(fault, DecodeFault::Killed(_)), "{fault:?}");
        assert_eq!(fault.to_string(), "the decoder was ended by a signal: 9 (SIGKILL)");
    }

    #[test]
    fn failed_read_of_the_file_is_no_verdict() {
        let command = shell("exec cat >/dev/null");
        let is_stopping = AtomicBool::new(false);
        let decoder = Decoder { command: &command, is_stopping: &is_stopping };
        let next = || Err(io::Error::other("the disk"));
        let outcome = decoder.decode(PictureCoding::H265, next, TERMS);
        assert!(matches!(outcome, Err(DecodeFault::Read(_))), "{outcome:?}");
    }
}
