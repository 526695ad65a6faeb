// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pagewire load`: plays one asset in many sessions; reports the number of timely sessions and the
//! bottleneck.
//!
//! Exit status 0 when all requested sessions were played and all verified ones were timely, 1 when
//! not, 2 for a wrong option. With `--scenario` groups of sessions behave differently, and the
//! status is 1 where a session that reads as it should was harmed. For an HLS presentation it is 0
//! when no viewer would have stalled.
//!
//! `--json` writes one JSON object a line for each event; `event` holds its kind:
//! `starting` (the asset was described), `playing` (all play, measuring begins now), `measured`
//! (measuring has ended; the sessions still play and are about to leave), `result` (the table). A
//! calling program reads the server's counters at `playing` and at `measured`.

use std::fs::File;
use std::io::{self, Write};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use client::hls::{HlsLoad, is_playlist_url, load_hls};
use client::load::{Bottleneck, Load, LoadEvent, LoadProgress, LoadStage, Scenario, load};
use client::{ClientLogin, Error, StreamTransport};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use serde_json::Value;

use crate::escape::{Escaped, EscapedLines};
use crate::login::LoginOptions;
use crate::play::ViewerOptions;

#[derive(Args)]
pub(crate) struct Options {
    /// rtsp://[USER:PASSWORD@]HOST:PORT/PATH of a stream, rtsps:// over TLS, or
    /// http://HOST:PORT/PATH.m3u8 of an HLS presentation.
    url: String,
    /// Plays HLS also where the path of the address does not end in .m3u8.
    #[arg(long)]
    hls: bool,
    #[command(flatten)]
    login: LoginOptions,
    #[command(flatten)]
    viewer: ViewerOptions,
    /// Number of sessions that play at once; of HLS, viewers.
    #[arg(long, value_name = "N")]
    sessions: u32,
    /// Way in which the server is asked to send: udp, tcp (on the RTSP connections) or http (RTSP
    /// in tunnels of two HTTP connections) [default: udp; tcp with rtsps://, which has no other].
    #[arg(long, value_name = "NAME")]
    transport: Option<StreamTransport>,
    /// Groups of sessions that behave differently, a TOML file: each [[group]] has a name, a share
    /// of the sessions, a transport and a behaviour: steady, seek, pause, leave, vanish, slow or
    /// stall. The report has figures of each group; docs/load.md has all settings.
    #[arg(long, value_name = "FILE")]
    scenario: Option<PathBuf>,
    /// Length of the measured time, in which all play [default: that of the scenario, else 10].
    #[arg(long, value_name = "SECONDS", value_parser = crate::play::seconds)]
    seconds: Option<Duration>,
    /// Time over which the starts are spread [default: 2 ms a session, a second at least].
    #[arg(long, value_name = "SECONDS", value_parser = crate::play::seconds)]
    ramp: Option<Duration>,
    /// Verifies every Nth session, with a scenario of each group; the kernel counts and drops the
    /// packets of the others. 0 for none [default: about 40 sessions in all, or of each group].
    #[arg(long, value_name = "N")]
    sample: Option<u32>,
    /// Allowed lateness of a packet; 999 in 1000 must not be later [default: 25; 65 where pictures
    /// have packets of their own, which are sent over a picture's time].
    #[arg(long, value_name = "MS")]
    within: Option<u32>,
    /// An address of this machine to connect from and to receive at.
    #[arg(long, value_name = "ADDRESS")]
    source: Option<IpAddr>,
    /// The asset, a transport stream: payloads of verified sessions are compared with it. Those of
    /// other files are verified without.
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Writes events as lines of JSON to a file, - for standard output: starting,
    /// playing (measuring begins), measured, result.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

pub(crate) fn run(mut options: Options) -> ExitCode {
    let login = match options.login.take_off_one(&mut options.url) {
        Ok(login) => login,
        Err(fault) => return crate::wrong(&fault),
    };
    let scenario = match options.scenario.as_deref().map(crate::config::read_scenario).transpose() {
        Ok(scenario) => scenario,
        Err(faults) => return crate::all_wrong(&faults),
    };
    let mut lines = match Lines::open(options.json.as_deref()) {
        Ok(lines) => lines,
        Err(error) => {
            let path = options.json.unwrap_or_default();
            return crate::wrong(&format!(
                "--json {}: {error}; name a file that can be written, or -",
                path.display()
            ));
        }
    };
    let runtime = match crate::runtime() {
        Ok(runtime) => runtime,
        Err(error) => return crate::wrong(&format!("starting the runtime: {error}")),
    };
    let is_hls = options.hls || is_playlist_url(&options.url);
    let done = runtime.block_on(async {
        match is_hls {
            true => view(options, &mut lines).await,
            false => play((options, login), scenario, &mut lines).await,
        }
    });
    runtime.shutdown_background();
    let status = done.unwrap_or_else(|error| crate::play::failed(&error));
    match lines.failure {
        None => status,
        Some((name, error)) => {
            eprintln!("pagewire: --json {}: {error}", Escaped(name.display()));
            ExitCode::FAILURE
        }
    }
}

/// Plays an HLS presentation.
async fn view(options: Options, lines: &mut Lines) -> Result<ExitCode, Error> {
    let only_rtsp = [
        ("--transport", options.transport.is_some()),
        ("--scenario", options.scenario.is_some()),
        ("--within", options.within.is_some()),
        ("--file", options.file.is_some()),
    ];
    if let Some((option, _)) = only_rtsp.into_iter().find(|(_, given)| *given) {
        return Ok(crate::wrong(&format!("{option}: HLS; it is for RTSP; leave it out")));
    }
    let mut wanted = HlsLoad::new(options.url.as_str(), options.sessions);
    wanted.settings = options.viewer.settings();
    wanted.length = options.seconds.unwrap_or(wanted.length);
    wanted.ramp = options.ramp;
    wanted.sample = options.sample;
    wanted.source = options.source;
    wanted.stop = Some(Box::pin(stop_signal()?));
    let bar = bar();
    let outcome = load_hls(wanted, |event| match event {
        LoadEvent::Progress(progress) => show(&bar, progress, options.sessions),
        event => lines.write(serde_json::to_value(event)),
    })
    .await;
    bar.finish_and_clear();
    let outcome = outcome?;
    lines.write_result(&outcome);
    if !lines.is_standard_output() {
        // Ignores a reader that has closed standard output.
        let _ = write!(io::stdout(), "{}", EscapedLines(&outcome));
    }
    Ok(if outcome.is_smooth() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn bar() -> ProgressBar {
    let style = ProgressStyle::with_template("{elapsed_precise} {wide_bar} {msg}");
    ProgressBar::new(0).with_style(style.expect("the template is a constant"))
}

fn stop_signal() -> Result<impl Future<Output = ()> + Send, Error> {
    crate::serve::stop_signal().map_err(|source| Error::Host {
        call: "sigaction",
        object: "SIGINT".to_owned(),
        source,
    })
}

async fn play(
    (options, login): (Options, ClientLogin),
    scenario: Option<Scenario>,
    lines: &mut Lines,
) -> Result<ExitCode, Error> {
    if let Some(option) = options.viewer.given() {
        return Ok(crate::wrong(&format!(
            "{option}: {}; it is for HLS; leave it out, or write an http:// address whose path \
             ends in .m3u8",
            client::without_userinfo(&options.url)
        )));
    }
    let mut wanted = Load::new(options.url.as_str(), options.sessions);
    wanted.login = login;
    wanted.transport = options.transport.unwrap_or(wanted.transport);
    let length = scenario.as_ref().and_then(|scenario| scenario.length);
    wanted.length = options.seconds.or(length).unwrap_or(wanted.length);
    wanted.scenario = scenario;
    wanted.ramp = options.ramp;
    wanted.sample = options.sample;
    wanted.within = options.within.map(|ms| Duration::from_millis(ms.into()));
    wanted.source = options.source;
    wanted.file = options.file;
    wanted.stop = Some(Box::pin(stop_signal()?));
    let bar = bar();
    let outcome = load(wanted, |event| match event {
        LoadEvent::Progress(progress) => show(&bar, progress, options.sessions),
        event => lines.write(serde_json::to_value(event)),
    })
    .await;
    bar.finish_and_clear();
    let outcome = outcome?;
    lines.write_result(&outcome);
    if !lines.is_standard_output() {
        // Ignores a reader that has closed standard output.
        let _ = write!(io::stdout(), "{}", EscapedLines(&outcome));
        if outcome.bottleneck == Bottleneck::NotVerified {
            let _ = writeln!(io::stdout(), "              --sample N verifies every Nth");
        }
    }
    // Counts a run ended by Ctrl-C as successful when it was timely until then.
    Ok(if outcome.is_timely_so_far() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn show(bar: &ProgressBar, progress: &LoadProgress, sessions: u32) {
    let LoadProgress { played, failed, ended, left, .. } = progress;
    let (what, done, of) = match progress.stage {
        LoadStage::Starting => ("starting", u64::from(played + failed), u64::from(sessions)),
        LoadStage::Leaving => ("leaving", u64::from(*left), u64::from(*played)),
        LoadStage::Settling => ("settling", ms(progress.elapsed_seconds), stage_ms(progress)),
        LoadStage::Measuring => ("measuring", ms(progress.elapsed_seconds), stage_ms(progress)),
    };
    bar.set_length(of);
    bar.set_position(done.min(of));
    bar.set_message(format!("{what}: {played} played, {failed} not, {ended} ended"));
}

fn stage_ms(progress: &LoadProgress) -> u64 {
    ms(progress.stage_seconds.unwrap_or_default())
}

fn ms(seconds: f64) -> u64 {
    (seconds * 1e3) as u64
}

/// Target of the lines of JSON, if any.
struct Lines {
    target: Option<(PathBuf, Box<dyn Write>)>,
    /// The first failure; no line is written after it.
    failure: Option<(PathBuf, io::Error)>,
}

impl Lines {
    fn open(path: Option<&Path>) -> io::Result<Lines> {
        let open = |path: &Path| -> io::Result<(PathBuf, Box<dyn Write>)> {
            let target: Box<dyn Write> = if path.as_os_str() == STANDARD_OUTPUT {
                Box::new(io::stdout())
            } else {
                Box::new(File::create(path)?)
            };
            Ok((path.to_owned(), target))
        };
        Ok(Lines { target: path.map(open).transpose()?, failure: None })
    }

    fn is_standard_output(&self) -> bool {
        self.target.as_ref().is_some_and(|(path, _)| path.as_os_str() == STANDARD_OUTPUT)
            || self.failure.as_ref().is_some_and(|(path, _)| path.as_os_str() == STANDARD_OUTPUT)
    }

    fn write_result(&mut self, outcome: &impl Serialize) {
        self.write(serde_json::to_value(outcome).map(|mut result| {
            result["event"] = Value::from("result");
            result
        }));
    }

    fn write(&mut self, line: serde_json::Result<Value>) {
        let Some((path, target)) = &mut self.target else { return };
        let line = line.expect("plain data");
        if let Err(error) = writeln!(target, "{}", EscapedLines(line)).and_then(|()| target.flush())
        {
            self.failure = Some((path.clone(), error));
            self.target = None;
        }
    }
}

const STANDARD_OUTPUT: &str = "-";
