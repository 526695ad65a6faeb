// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pagewire play`: plays or downloads, shows the progress, and reports all faults.
//!
//! Exit status 0 when everything arrived, 1 when something is missing or the server refused.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use client::{ClientSetting, DownloadTarget, Error, Play, Scheme, TransportChoice, download, play};
use indicatif::{ProgressBar, ProgressStyle};

use crate::escape::{Escaped, EscapedLines};
use crate::output;

#[derive(Args)]
pub(crate) struct Options {
    /// rtsp://HOST:PORT/PATH of a stream, or http://HOST:PORT/PATH of a download.
    url: String,
    /// Writes the received bytes to a file: those of the asset when nothing is lost. Tracks of a
    /// presentation go into fragmented MP4 (.mp4) or a transport stream (.ts).
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
    /// UDP or no packet comes within 5 s.
    #[arg(long, value_name = "NAME", default_value = "auto")]
    transport: TransportChoice,
    /// Prints the verdict as JSON.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(options: Options) -> ExitCode {
    let runtime = match crate::runtime() {
        Ok(runtime) => runtime,
        Err(error) => return crate::wrong(&format!("starting the runtime: {error}")),
    };
    let done = runtime.block_on(async {
        match Scheme::of(&options.url)? {
            Scheme::Rtsp => stream(&options).await,
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

async fn stream(options: &Options) -> Result<ExitCode, Error> {
    let mut wanted = Play::new(options.url.as_str());
    wanted.output = options.output.clone();
    wanted.start = options.start;
    wanted.length = options.length;
    wanted.pause = options.pause;
    wanted.transport = options.transport;
    let (ask, mut asked) = tokio::sync::watch::channel(false);
    crate::interrupt::on_interrupt("the verdict follows", move || {
        ask.send_replace(true);
    });
    wanted.stop = Some(Box::pin(async move {
        // An error means that there are no signals to wait for.
        if asked.wait_for(|is_asked| *is_asked).await.is_err() {
            std::future::pending::<()>().await;
        }
    }));
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
