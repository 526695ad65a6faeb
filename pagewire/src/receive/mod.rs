// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pagewire receive`: records incoming streams, shows their figures, and reports losses.
//!
//! Exit status 0 when every stream was received and nothing was lost on this host, otherwise 1;
//! losses of the network are in the figures and do not count.

mod table;

use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ::receive::{
    Error, ReceiveCost, RecordOptions, RecordSetting, Recording, Rotation, StreamOptions,
    StreamOutputFiles, Summary, SyncPolicy,
};
use clap::Args;
use indicatif::ProgressBar;

use crate::escape::EscapedLines;
use crate::login::LoginOptions;
use crate::output;
use crate::play::seconds;
use measure::{Calibration, Subject};

#[derive(Args)]
pub(crate) struct Options {
    /// udp://[SENDER@]ADDRESS:PORT[?interface=NAME] of a port or group, or
    /// rtsp://[USER:PASSWORD@]HOST/PATH, rtsps:// over TLS (write / # ? % in a password as %2F %23
    /// %3F %25). A camera's H.264, H.265, AAC, Opus, MPEG audio, AC-3 and E-AC-3 are recorded as a
    /// transport stream (.ts) or MP4, AV1 and PCM (G.711) in MP4 alone.
    #[arg(required_unless_present_any = ["sdp", "config"], value_name = "URL")]
    urls: Vec<String>,
    /// Records the cameras of a file, for years: each in its own folder, in files that begin by the
    /// clock, of which the oldest are deleted by age, bytes and free space (docs/receiving.md
    /// lists its keys).
    #[arg(long, value_name = "FILE", conflicts_with_all = OF_STREAMS)]
    config: Option<PathBuf>,
    /// Checks the file of --config, lists its cameras, and records nothing.
    #[arg(long, requires = "config")]
    check: bool,
    /// A session description of tracks that somebody sends, as `ffmpeg -sdp_file` writes it; may be
    /// given several times.
    #[arg(long, value_name = "FILE")]
    sdp: Vec<PathBuf>,
    /// Names of the files; {stream}, {index}, {number} and {time} are filled in. A name ending in
    /// .mp4 (.m4v, .m4a) makes fragmented MP4 of a camera's tracks, .ts a transport stream.
    /// Existing files are never overwritten. [default: {stream}-{time}.ts in the current folder; no
    /// file with --relay]
    #[arg(long, short, value_name = "PATTERN")]
    output: Option<String>,
    /// Size that no file exceeds: each ends where play of the next can start, as long as such
    /// places lie closer together than this. Of MP4, one fragment (two seconds) may be larger.
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u64).range(188..))]
    rotate_bytes: Option<u64>,
    /// Time after which another file begins, where play can start; at most ten seconds later, where
    /// no such place comes.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    rotate_seconds: Option<Duration>,
    /// Times at which files are synced: never, rotate (when they are complete), or a number of
    /// seconds while they grow.
    #[arg(long, value_name = "WHEN", default_value = "never", value_parser = sync)]
    sync: SyncPolicy,
    /// Ends after this time; without, at Ctrl-C or when all streams have ended.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    seconds: Option<Duration>,
    /// Receive paths in order of preference, such as xdp,recvmmsg; refused ones are reported. auto
    /// measures the paths by socket for two seconds at the first start, takes the cheapest, and
    /// keeps the result (`pagewire paths --receive` shows it).
    #[arg(long, value_name = "NAMES", default_value = "auto")]
    path: String,
    /// Sends each stream on, to ADDRESS:PORT[?interface=NAME&hops=N]; once for each URL. Without
    /// --output nothing is written, and nothing is copied to user space where the kernel splices.
    #[arg(long, value_name = "TARGET")]
    relay: Vec<String>,
    /// Time that a missing packet is waited for.
    #[arg(long, value_name = "MILLISECONDS", default_value_t = 100)]
    reorder_ms: u64,
    /// Memory for bytes that are not yet written to the disk; packets that do not fit are dropped
    /// and counted.
    #[arg(long, value_name = "MIB", default_value_t = 256)]
    queue_mib: usize,
    /// Receiving threads; one takes some gigabits a second.
    #[arg(long, value_name = "N", default_value_t = 1)]
    threads: usize,
    /// Cache folder in which `pagewire serve` finds the plans, as its own --cache.
    #[arg(long, value_name = "DIR")]
    cache: Option<PathBuf>,
    /// Asks an RTSP server again whenever a session ends and while the source is absent (404),
    /// whatever it announces. Without, a source whose description has an end (a title) is recorded
    /// once, and is complete when its range has arrived; one without an end is live.
    #[arg(long)]
    live: bool,
    /// Way in which RTSP servers are asked to send: udp, tcp (on the RTSP connection), http (RTSP
    /// in a tunnel of two HTTP connections), or auto: UDP, then TCP where the server refuses UDP or
    /// a session by UDP brings no packet; with rtsps:// only TCP.
    #[arg(long, value_name = "NAME", default_value = "auto")]
    transport: client::TransportChoice,
    /// Tracks of a camera that are recorded: all, video (without its sound) or audio. The camera is
    /// not asked for the others. With video or audio, sources that send a transport stream are
    /// refused: nothing of it can be left out.
    #[arg(long, value_name = "MEDIA", default_value = "all")]
    tracks: client::RecordedMedia,
    #[command(flatten)]
    login: LoginOptions,
    /// Sends no RTCP receiver reports.
    #[arg(long)]
    no_reports: bool,
    /// Prints the final figures as JSON.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(options: Options) -> ExitCode {
    let stop = Arc::new(AtomicBool::new(false));
    let asked = stop.clone();
    crate::interrupt::on_interrupt("files are closed", move || {
        asked.store(true, Ordering::Relaxed);
    });
    // A file at its size limit is treated as a full disk; the signal would end the program.
    let _file_size = ignore_file_size_signal();
    let streams = match &options.config {
        Some(path) => match crate::config::read_cameras(path) {
            Ok(streams) => streams,
            Err(faults) => return crate::all_wrong(&faults),
        },
        None => match streams(&options) {
            Ok(streams) => streams,
            Err(fault) => return crate::wrong(&fault),
        },
    };
    if options.check {
        output::print(table::cameras(&streams));
        return ExitCode::SUCCESS;
    }
    let recording = match Recording::start(&wanted(&options, streams)) {
        Ok(recording) => recording,
        Err(error) => return failed(&error),
    };
    let begun = recording.summary();
    let is_by_name = options.path.split(',').any(|name| name.trim() != "auto");
    for refused in &begun.refused {
        // `auto` logs nothing here: the user did not name the paths that it tries.
        match is_by_name {
            true => tracing::warn!(
                "{refused}; received by receive/{} instead: the same is recorded, only the CPU \
                 time that it takes differs",
                begun.path
            ),
            false => tracing::debug!("{refused}; received by receive/{} instead", begun.path),
        }
    }
    let streams = client::counted(begun.streams.len() as u64, "stream", "streams");
    eprintln!("pagewire receiving: {streams} by {}", begun.path);
    let summary = watch(recording, &options, &stop);
    if options.json {
        let text = serde_json::to_string_pretty(&summary).expect("plain data");
        output::line(EscapedLines(text));
    } else {
        output::print(table::verdict(&summary));
    }
    if summary.is_whole() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Returns the streams of the command line.
///
/// # Errors
/// A fault of a URL or a login.
fn streams(options: &Options) -> Result<Vec<StreamOptions>, String> {
    let described =
        options.sdp.iter().map(|path| format!("{}{}", ::receive::SDP_SCHEME, path.display()));
    let mut urls: Vec<String> = options.urls.iter().cloned().chain(described).collect();
    let logins = options.login.take_off(&mut urls)?;
    let usual = || options.relay.is_empty().then(|| "{stream}-{time}.ts".to_owned());
    let output = options.output.clone().or_else(usual);
    let output = output.map_or(StreamOutputFiles::None, StreamOutputFiles::Pattern);
    let (bytes, time) = (options.rotate_bytes, options.rotate_seconds);
    let stream = |(url, login)| {
        let mut stream = StreamOptions::new(url);
        stream.login = login;
        stream.output = output.clone();
        stream.rotation = Rotation { bytes, time, ..Rotation::default() };
        stream.live = options.live;
        stream.transport = options.transport;
        stream.media = options.tracks;
        stream
    };
    Ok(urls.into_iter().zip(logins).map(stream).collect())
}

fn wanted(options: &Options, streams: Vec<StreamOptions>) -> RecordOptions {
    let writes_files =
        streams.iter().any(|stream| !matches!(stream.output, StreamOutputFiles::None));
    let mut wanted = RecordOptions::new(streams);
    wanted.relay = options.relay.clone();
    wanted.sync = options.sync;
    wanted.cache = options.cache.clone();
    wanted.queue_bytes = options.queue_mib << 20;
    wanted.reorder_wait = Duration::from_millis(options.reorder_ms);
    wanted.path = options.path.clone();
    if writes_files && options.path.split(',').any(|name| name.trim() == "auto") {
        wanted.costs = costs();
    }
    wanted.threads = options.threads;
    wanted.reports = !options.no_reports;
    wanted
}

/// Measures the CPU costs of the receive paths on this machine. Returns none, and logs a warning,
/// where measuring fails.
fn costs() -> Vec<ReceiveCost> {
    let waiting = ProgressBar::new_spinner();
    waiting.set_message("measuring this machine's receive paths, two seconds, once");
    waiting.enable_steady_tick(Duration::from_millis(100));
    let calibration = Calibration::of(&Subject::Receiving, false);
    waiting.finish_and_clear();
    let ranks = match calibration {
        Ok(calibration) => calibration.ranks,
        Err(error) => {
            tracing::warn!("--path auto: {error}; the default order of paths is used");
            return Vec::new();
        }
    };
    let mut costs: Vec<ReceiveCost> = Vec::new();
    for rank in ranks {
        let at = costs.iter().position(|cost| cost.path == rank.member).unwrap_or_else(|| {
            costs.push(ReceiveCost { path: rank.member.clone(), seconds_per_gb: Vec::new() });
            costs.len() - 1
        });
        costs[at].seconds_per_gb.extend(rank.cpu_s_per_gb);
    }
    let measured = costs.iter().map(|cost| cost.seconds_per_gb.len()).max().unwrap_or(0);
    // Drops a path whose measurement failed for one transport: its sum of costs is not comparable.
    costs.retain(|cost| cost.seconds_per_gb.len() == measured);
    costs
}

/// Shows the figures until the recording is over; then finishes it.
fn watch(recording: Recording, options: &Options, stop: &AtomicBool) -> Summary {
    let end = options.seconds.map(|seconds| Instant::now() + seconds);
    let is_terminal = std::io::stderr().is_terminal();
    let tell_every = if options.config.is_some() { TELL_SERVICE_EVERY } else { TELL_EVERY };
    let every = if is_terminal { SHOW_EVERY } else { tell_every };
    let mut live = is_terminal.then(table::Live::new);
    let mut before = recording.summary();
    let mut show_at = Instant::now() + every;
    loop {
        std::thread::sleep(LOOK_EVERY);
        let now = Instant::now();
        let is_enough = stop.load(Ordering::Relaxed) || end.is_some_and(|end| now >= end);
        if is_enough || recording.is_over() {
            break;
        }
        if now >= show_at {
            show_at = now + every;
            let summary = recording.summary();
            match &mut live {
                Some(live) => live.show(&before, &summary),
                None => eprintln!("{}", table::line(&before, &summary)),
            }
            before = summary;
        }
    }
    if let Some(live) = live {
        live.clear();
    }
    recording.stop()
}

/// Ignores SIGXFSZ until the result is dropped, so that write(2) fails with EFBIG.
fn ignore_file_size_signal() -> Option<(tokio::runtime::Runtime, tokio::signal::unix::Signal)> {
    let runtime = crate::runtime().ok()?;
    let guard = runtime.enter();
    let kind = tokio::signal::unix::SignalKind::from_raw(SIGXFSZ);
    let signal = tokio::signal::unix::signal(kind).ok()?;
    drop(guard);
    Some((runtime, signal))
}

fn failed(error: &Error) -> ExitCode {
    match error {
        Error::Setting { setting, found, cure } => {
            crate::wrong(&format!("{}: {found}; {cure}", flag(*setting)))
        }
        error => crate::failed(error, error.is_caller()),
    }
}

/// Returns the name of a setting on the command line.
fn flag(setting: RecordSetting) -> &'static str {
    match setting {
        RecordSetting::Output => "--output",
        RecordSetting::Path => "--path",
        RecordSetting::Relay => "--relay",
        RecordSetting::Transport => "--transport",
        RecordSetting::Tracks => "--tracks",
        RecordSetting::FreeSpace => "keep_free_gb",
        _ => "URL",
    }
}

fn sync(text: &str) -> Result<SyncPolicy, String> {
    match text {
        "never" => Ok(SyncPolicy::Never),
        "rotate" => Ok(SyncPolicy::Rotate),
        _ => seconds(text)
            .map(SyncPolicy::Every)
            .map_err(|_| format!("{text}: write never, rotate or seconds, such as 5")),
    }
}

/// Options of streams that the file of `--config` has for each camera.
const OF_STREAMS: [&str; 13] = [
    "urls",
    "sdp",
    "output",
    "rotate_bytes",
    "rotate_seconds",
    "relay",
    "live",
    "transport",
    "tracks",
    "credentials",
    "allow_basic",
    "ca",
    "fingerprint",
];
const LOOK_EVERY: Duration = Duration::from_millis(50);
const SHOW_EVERY: Duration = Duration::from_secs(1);
const TELL_EVERY: Duration = Duration::from_secs(10);
/// Interval in the log of a service.
const TELL_SERVICE_EVERY: Duration = Duration::from_secs(600);
/// Signal number by signal(7); MIPS differs.
const SIGXFSZ: i32 = 25;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sync_is_a_word_or_a_time() {
        assert_eq!(sync("never"), Ok(SyncPolicy::Never));
        assert_eq!(sync("rotate"), Ok(SyncPolicy::Rotate));
        assert_eq!(sync("2.5"), Ok(SyncPolicy::Every(Duration::from_millis(2500))));
        assert!(sync("often").unwrap_err().contains("write never, rotate or seconds"));
    }
}
