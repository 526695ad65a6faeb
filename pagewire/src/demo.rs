// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pagewire demo`: the whole program in miniature, on an embedded clip.
//!
//! A server on loopback streams the clip and lets it be downloaded, the built-in clients check
//! every byte, and the calibration measures the CPU cost of the paths on this machine.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::ExitCode;

use clap::Args;
use client::{DownloadTarget, Play, Verdict, download, play};
use indicatif::{ProgressBar, ProgressStyle};
use measure::{Rank, Subject};
use serve::{Config, Server};

use crate::output;

/// Error of the server, the client or this host: the caller has no options to get wrong.
type Error = Box<dyn std::error::Error>;

#[derive(Args)]
pub(crate) struct Options {
    /// Serves the clip until Ctrl-C, to be opened in a player or a browser.
    #[arg(long)]
    stay: bool,
}

pub(crate) fn run(options: Options) -> ExitCode {
    let runtime = match crate::runtime() {
        Ok(runtime) => runtime,
        Err(error) => return crate::wrong(&format!("starting the runtime: {error}")),
    };
    let shown = runtime.block_on(show(options.stay));
    runtime.shutdown_background();
    match shown {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => crate::failed(&*error, false),
    }
}

/// Runs the demo; returns true when all checks passed.
async fn show(stay: bool) -> Result<bool, Error> {
    let host = |call: &'static str, object: &Path| {
        let object = object.display().to_string();
        move |error: std::io::Error| format!("{call} {object}: {error}")
    };
    let folder = tempfile::tempdir().map_err(host("mkdtemp", &std::env::temp_dir()))?;
    let served = folder.path().join("served");
    std::fs::create_dir(&served).map_err(host("mkdir", &served))?;
    let clip = served.join(CLIP_NAME);
    std::fs::write(&clip, CLIP).map_err(host("write", &clip))?;
    let server = start(&served, &folder.path().join("cache")).await?;
    let stream_url = format!("rtsp://{}/{CLIP_NAME}", server.rtsp());
    let download_url = format!("http://{}/{CLIP_NAME}", server.http());

    output::offer("1. a download of the clip over HTTP, every byte compared");
    let downloaded = compare_download(&download_url).await?;
    output::offer("2. the same clip as a paced stream over RTSP and RTP, every byte compared");
    let received = folder.path().join("received.ts");
    let verdict = watch(&stream_url, &received).await?;
    let streamed = std::fs::read(&received).map_err(host("read", &received))? == CLIP;
    output::offer(verdict.to_string().trim_end());
    output::offer(format_args!(
        "   {}",
        if streamed { "byte for byte the clip" } else { "NOT the clip" }
    ));
    output::offer(format_args!(
        "3. CPU cost on this machine: RTP packets of 1328 bytes into a null device, seconds per GB"
    ));
    let spinner = ProgressBar::new_spinner().with_message("measuring in a network of its own");
    spinner.enable_steady_tick(std::time::Duration::from_millis(200));
    // No other work runs at the same time: it would disturb the measurement.
    let measured = tokio::task::spawn_blocking(cost_of_paths).await;
    spinner.finish_and_clear();
    match measured {
        Ok(Ok(ranks)) => print_cost(&ranks),
        Ok(Err(error)) => output::offer(format_args!("   not measured: {error}")),
        Err(panic) => output::offer(format_args!("   not measured: {panic}")),
    }
    if stay {
        output::offer(format_args!("\nopen in VLC, ffplay or GStreamer: {stream_url}"));
        output::offer(format_args!("play in a browser:               {download_url}/player.html"));
        output::offer("serving until Ctrl-C");
        match crate::serve::stop_signal() {
            Ok(stop) => stop.await,
            Err(error) => eprintln!("pagewire: signal handlers: {error}"),
        }
    } else {
        output::offer(
            "\nto open it in VLC or a browser: pagewire demo --stay (make demo ARGS=--stay)",
        );
        output::offer("to serve a folder of your own:  pagewire serve DIR");
    }
    server.stop().await;
    Ok(downloaded && streamed && verdict.is_whole())
}

/// Starts the server on the usual ports, or on free ones where those are in use.
async fn start(served: &Path, cache: &Path) -> Result<Server, serve::Error> {
    let mut config = Config::new(served);
    config.cache = Some(cache.to_owned());
    match Server::start(config.clone()).await {
        Err(serve::Error::Listen { .. }) => {
            let any: SocketAddr = (Ipv4Addr::LOCALHOST, 0).into();
            (config.rtsp, config.http) = (any, any);
            Server::start(config).await
        }
        started => started,
    }
}

async fn compare_download(url: &str) -> Result<bool, client::Error> {
    let (mut at, mut equal) = (0, true);
    let mut compare = |bytes: &[u8]| {
        equal &= CLIP.get(at..at + bytes.len()).is_some_and(|expected| expected == bytes);
        at += bytes.len();
    };
    let done = download(url, DownloadTarget::Sink(&mut compare), |_| {}).await?;
    let equal = equal && at == CLIP.len();
    output::offer(format_args!("   {done}"));
    output::offer(format_args!(
        "   {}",
        if equal { "byte for byte the clip" } else { "NOT the clip" }
    ));
    Ok(equal)
}

async fn watch(url: &str, received: &Path) -> Result<Verdict, client::Error> {
    let style = ProgressStyle::with_template("   {elapsed_precise} {wide_bar} {msg}");
    let bar = ProgressBar::new(0).with_style(style.expect("the template is a constant"));
    let mut wanted = Play::new(url);
    wanted.output = Some(received.to_owned());
    let verdict = play(wanted, |seen| {
        if let Some(total) = seen.media_total {
            bar.set_length(total.as_millis() as u64);
        }
        bar.set_position(seen.media.as_millis() as u64);
        bar.set_message(format!("{} packets, {} lost", seen.packets, seen.lost));
    })
    .await;
    bar.finish_and_clear();
    verdict
}

/// Measures the paths now, as for a device without UDP segmentation offload.
fn cost_of_paths() -> Result<Vec<Rank>, measure::Error> {
    Subject::Sending { interface: String::new(), segments: false }.measure()
}

/// Prints a line for each usable RTP path, relative to the reference path.
fn print_cost(ranks: &[Rank]) {
    let cost = |rank: &Rank| rank.cpu_s_per_gb.filter(|_| rank.transport == "rtp");
    let reference = ranks.iter().filter(|rank| rank.member == REFERENCE).find_map(cost);
    for rank in ranks {
        let (Some(cost), Some(reference)) = (cost(rank), reference) else { continue };
        let relative = cost / reference;
        let bar = "█".repeat((relative * BAR_CHARS).round().max(1.0) as usize);
        let what = format!("{}, {} a burst", rank.member, rank.burst_packets);
        output::offer(format_args!("   {what:27} {cost:6.3} s/GB  {relative:5.2}  {bar}"));
    }
}

/// Reference path: reads into a buffer and writes packet by packet.
const REFERENCE: &str = "read_writev";
const BAR_CHARS: f64 = 40.0;
const CLIP_NAME: &str = "clip.ts";
/// Clip made by `scripts/make-clip.sh`.
static CLIP: &[u8] = include_bytes!("../assets/clip.ts");
