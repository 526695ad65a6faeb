// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pagewire play`: plays or downloads, shows the progress, and reports all faults.
//!
//! Exit status 0 when everything arrived (and HLS play did not stall), 1 when something is missing
//! or wrong or the server refused.

use std::path::PathBuf;
use std::pin::Pin;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use client::hls::{HlsPlay, VariantChoice, ViewerSettings, is_playlist_url, play_hls};
use client::{
    ClientLogin, ClientSetting, DownloadTarget, Error, Play, Scheme, TransportChoice, download,
    play,
};
use indicatif::{ProgressBar, ProgressStyle};

use crate::escape::{Escaped, EscapedLines};
use crate::login::LoginOptions;
use crate::output;

#[derive(Args)]
pub(crate) struct Options {
    /// rtsp://[USER:PASSWORD@]HOST:PORT/PATH of a stream, rtsps:// over TLS,
    /// http://HOST:PORT/PATH.m3u8 of an HLS presentation, or http://HOST:PORT/PATH of a download.
    url: String,
    /// Writes the received bytes to a file: those of the asset when nothing is lost. Tracks of a
    /// presentation go into fragmented MP4 (.mp4) or a transport stream (.ts); segments of HLS
    /// follow each other as they are.
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Starts here instead of at the beginning.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    start: Option<Duration>,
    /// Plays this much instead of all.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    length: Option<Duration>,
    /// Pauses after AT seconds of play for FOR seconds.
    #[arg(long, value_name = "AT,FOR", value_parser = pause)]
    pause: Option<(Duration, Duration)>,
    /// Way in which the server is asked to send: udp, tcp (on the RTSP connection), http (RTSP in a
    /// tunnel of two HTTP connections), multicast, or auto: UDP, then TCP where the server refuses
    /// UDP or no packet comes within 5 s; with rtsps:// only TCP.
    #[arg(long, value_name = "NAME", default_value = "auto")]
    transport: TransportChoice,
    #[command(flatten)]
    login: LoginOptions,
    #[command(flatten)]
    viewer: ViewerOptions,
    /// Fetches HLS without waiting for the clock of play.
    #[arg(long)]
    fast: bool,
    /// Downloads a playlist as a file instead of playing it.
    #[arg(long, conflicts_with_all = ["variant", "prebuffer", "ahead", "fast"])]
    download: bool,
    /// Prints the verdict as JSON.
    #[arg(long)]
    json: bool,
}

/// Settings of an HLS viewer.
#[derive(Args, Clone, Copy)]
pub(crate) struct ViewerOptions {
    /// Variant of an HLS presentation: auto (the first, then the highest that fits the measured
    /// throughput), highest, lowest, or the highest up to so many bits a second [default: auto].
    #[arg(long, value_name = "NAME")]
    variant: Option<VariantChoice>,
    /// Media of HLS that play waits for, at the start and after a stall [default: one segment].
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    prebuffer: Option<Duration>,
    /// Media of HLS that is fetched ahead of play [default: 30].
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    ahead: Option<Duration>,
}

impl ViewerOptions {
    pub(crate) fn settings(self) -> ViewerSettings {
        let usual = ViewerSettings::default();
        ViewerSettings {
            variant: self.variant.unwrap_or_default(),
            prebuffer: self.prebuffer,
            ahead: self.ahead.unwrap_or(usual.ahead),
        }
    }

    /// Returns the name of an option that was given, if any.
    pub(crate) fn given(self) -> Option<&'static str> {
        let all = [
            ("--variant", self.variant.is_some()),
            ("--prebuffer", self.prebuffer.is_some()),
            ("--ahead", self.ahead.is_some()),
        ];
        all.into_iter().find(|(_, given)| *given).map(|(option, _)| option)
    }
}

pub(crate) fn run(mut options: Options) -> ExitCode {
    let login = match options.login.take_off_one(&mut options.url) {
        Ok(login) => login,
        Err(fault) => return crate::wrong(&fault),
    };
    let runtime = match crate::runtime() {
        Ok(runtime) => runtime,
        Err(error) => return crate::wrong(&format!("starting the runtime: {error}")),
    };
    let done = runtime.block_on(async {
        let is_hls = is_playlist_url(&options.url) && !options.download;
        let only_hls = options.viewer.given().or(options.fast.then_some("--fast"));
        if let Some(option) = only_hls.filter(|_| !is_hls) {
            return Ok(crate::wrong(&format!(
                "{option}: {}; it is for HLS; leave it out, or write an http:// address whose \
                 path ends in .m3u8",
                client::without_userinfo(&options.url)
            )));
        }
        match Scheme::of(&options.url)? {
            Scheme::Http if is_hls => present(&options).await,
            Scheme::Rtsp => stream(&options, login).await,
            Scheme::Http => fetch(&options).await,
        }
    });
    runtime.shutdown_background();
    done.unwrap_or_else(|error| failed(&error))
}

/// Prints an error; names a wrong setting by its flag.
pub(crate) fn failed(error: &Error) -> ExitCode {
    match error {
        Error::Setting { setting, found, cure } => {
            crate::wrong(&format!("{}: {found}; {cure}", flag(*setting)))
        }
        error => crate::failed(error, error.is_caller()),
    }
}

/// Returns the flag of a setting.
fn flag(setting: ClientSetting) -> &'static str {
    match setting {
        ClientSetting::Length => "--length",
        ClientSetting::Pause => "--pause",
        ClientSetting::Output => "--output",
        ClientSetting::Description => "--sdp",
        ClientSetting::Sessions => "--sessions",
        ClientSetting::Seconds => "--seconds",
        ClientSetting::Ramp => "--ramp",
        ClientSetting::SourceAddress => "--source",
        ClientSetting::File => "--file",
        ClientSetting::Transport => "--transport",
        ClientSetting::Scenario => "--scenario",
        _ => "URL",
    }
}

async fn stream(options: &Options, login: ClientLogin) -> Result<ExitCode, Error> {
    let mut wanted = Play::new(options.url.as_str());
    wanted.login = login;
    wanted.output = options.output.clone();
    wanted.start = options.start;
    wanted.length = options.length;
    wanted.pause = options.pause;
    wanted.transport = options.transport;
    wanted.stop = Some(interrupted());
    let bar = bar("{elapsed_precise} {wide_bar} {msg}");
    let verdict = play(wanted, |seen| {
        if let Some(total) = seen.media_total {
            bar.set_length(total.as_millis() as u64);
        }
        bar.set_position(seen.media.as_millis() as u64);
        let late_ms = seen.lateness.as_secs_f64() * 1e3;
        let paused = if seen.is_paused { ", paused" } else { "" };
        bar.set_message(format!(
            "{} packets, {} lost, {late_ms:.1} ms late{paused}",
            seen.packets, seen.lost
        ));
    })
    .await;
    bar.finish_and_clear();
    let verdict = verdict?;
    if options.json {
        let text = serde_json::to_string_pretty(&verdict).expect("plain data");
        output::line(EscapedLines(text));
    } else {
        output::print(EscapedLines(&verdict));
    }
    Ok(if verdict.is_whole() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Plays an HLS presentation.
async fn present(options: &Options) -> Result<ExitCode, Error> {
    let only_rtsp = [
        ("--pause", options.pause.is_some()),
        ("--transport", options.transport != TransportChoice::Auto),
    ];
    if let Some((option, _)) = only_rtsp.into_iter().find(|(_, given)| *given) {
        return Ok(crate::wrong(&format!(
            "{option}: {}; it is for RTSP; leave it out, or write an rtsp:// address",
            options.url
        )));
    }
    let mut wanted = HlsPlay::new(options.url.as_str());
    wanted.settings = options.viewer.settings();
    wanted.output = options.output.clone();
    (wanted.start, wanted.length) = (options.start, options.length);
    wanted.is_fast = options.fast;
    wanted.stop = Some(interrupted());
    let bar = bar("{elapsed_precise} {wide_bar} {msg}");
    let verdict = play_hls(wanted, |seen| {
        if let Some(duration) = seen.duration {
            bar.set_length(duration.as_millis() as u64);
        }
        bar.set_position(seen.position.as_millis() as u64);
        let stalled = if seen.is_stalled { ", stalled" } else { "" };
        bar.set_message(format!(
            "{} segments, {:.1} s ahead, {} faults{stalled}",
            seen.segments,
            seen.ahead.as_secs_f64(),
            seen.faults
        ));
    })
    .await;
    bar.finish_and_clear();
    let verdict = verdict?;
    if options.json {
        let text = serde_json::to_string_pretty(&verdict).expect("plain data");
        output::line(EscapedLines(text));
    } else {
        output::print(EscapedLines(&verdict));
    }
    Ok(if verdict.is_whole() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// A future that is ready at the first Ctrl-C.
fn interrupted() -> Pin<Box<dyn Future<Output = ()> + Send>> {
    let (ask, mut asked) = tokio::sync::watch::channel(false);
    crate::interrupt::on_interrupt("the verdict follows", move || {
        ask.send_replace(true);
    });
    Box::pin(async move {
        // An error means that no signals can be received.
        if asked.wait_for(|is_asked| *is_asked).await.is_err() {
            std::future::pending::<()>().await;
        }
    })
}

async fn fetch(options: &Options) -> Result<ExitCode, Error> {
    let only_streams = [
        ("--start", options.start.is_some()),
        ("--length", options.length.is_some()),
        ("--pause", options.pause.is_some()),
        ("--transport", options.transport != TransportChoice::Auto),
    ];
    if let Some((option, _)) = only_streams.into_iter().find(|(_, given)| *given) {
        return Ok(crate::wrong(&format!(
            "{option}: {}; it is for streams; leave it out, or write an rtsp:// address",
            options.url
        )));
    }
    let bar = bar("{elapsed_precise} {wide_bar} {bytes} {bytes_per_sec} {eta}");
    let target = options.output.as_deref().map_or(DownloadTarget::Nowhere, DownloadTarget::File);
    let done = download(&options.url, target, |seen| {
        if let Some(total) = seen.bytes_total {
            bar.set_length(total);
        }
        bar.set_position(seen.bytes);
    })
    .await;
    bar.finish_and_clear();
    let done = done?;
    if options.json {
        let text = serde_json::to_string_pretty(&done).expect("plain data");
        output::line(EscapedLines(text));
    } else {
        output::line(Escaped(done));
    }
    Ok(ExitCode::SUCCESS)
}

fn bar(template: &str) -> ProgressBar {
    let style = ProgressStyle::with_template(template).expect("the template is a constant");
    ProgressBar::new(0).with_style(style)
}

pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().ok().and_then(|s| Duration::try_from_secs_f64(s).ok());
    seconds.ok_or_else(|| format!("{text}: write seconds, such as 30 or 2.5"))
}

fn pause(text: &str) -> Result<(Duration, Duration), String> {
    let (at, long) = text.split_once(',').ok_or("write AT,FOR in seconds, such as 5,3")?;
    Ok((seconds(at)?, seconds(long)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_seconds_and_a_pause_has_two() {
        assert_eq!(seconds("2.5"), Ok(Duration::from_millis(2500)));
        assert!(seconds("-1").is_err());
        assert!(seconds("soon").is_err());
        assert_eq!(pause("5,3"), Ok((Duration::from_secs(5), Duration::from_secs(3))));
        assert!(pause("5").is_err());
    }
}
