// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pagewire paths`: prints the CPU cost of every send path on this machine, or with `--receive` of
//! every receive path.
//!
//! `serve --path auto` and `receive --path auto` choose by these tables; `pagewire lab paths` and
//! `pagewire lab receive` run longer and measure other sizes, too.

use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr};
use std::process::ExitCode;

use clap::Args;
use indicatif::ProgressBar;
use measure::Rank;

use crate::escape::Escaped;
use crate::output;
use measure::{Calibration, Subject};

#[derive(Args)]
pub(crate) struct Options {
    /// Interface towards the peers [default: that of the default route].
    #[arg(long, value_name = "DEVICE", conflicts_with = "receive")]
    interface: Option<String>,
    /// Measures the receive paths instead of the send paths.
    #[arg(long)]
    receive: bool,
    /// Measures again and replaces the kept table.
    #[arg(long)]
    again: bool,
    /// Prints the table as JSON.
    #[arg(long)]
    json: bool,
    /// Set by the program itself: yes when the device segments.
    #[arg(long, hide = true, value_name = "yes|no")]
    segments: Option<String>,
    /// Set by the program itself in the namespace it made.
    #[arg(long, hide = true)]
    inside: bool,
}

pub(crate) fn run(options: Options) -> ExitCode {
    let shown = if options.inside { measure(&options) } else { show(&options) };
    match shown {
        Ok(text) => {
            output::print(text);
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("pagewire: paths: {}", Escaped(&error));
            ExitCode::from(if matches!(error, measure::Error::Caller { .. }) { 2 } else { 1 })
        }
    }
}

/// Measures in the namespace; returns the ranks as JSON.
fn measure(options: &Options) -> Result<String, measure::Error> {
    let ranks = match options.receive {
        true => measure::calibrate_receiving()?,
        false => measure::calibrate(options.segments.as_deref() == Some("yes"))?,
    };
    Ok(serde_json::to_string(&ranks).expect("plain data"))
}

fn show(options: &Options) -> Result<String, measure::Error> {
    let subject = match &options.interface {
        Some(name) => Subject::named(name)?,
        None if options.receive => Subject::Receiving,
        None => Subject::of(IpAddr::V4(Ipv4Addr::UNSPECIFIED)),
    };
    let waiting = ProgressBar::new_spinner().with_message("measuring, at most two seconds");
    waiting.enable_steady_tick(std::time::Duration::from_millis(100));
    let calibration = Calibration::of(&subject, options.again);
    waiting.finish_and_clear();
    let calibration = calibration?;
    if options.json {
        let mut text = serde_json::to_string_pretty(&calibration).expect("plain data");
        text.push('\n');
        return Ok(text);
    }
    Ok(table(&calibration, &subject))
}

fn table(calibration: &Calibration, subject: &Subject) -> String {
    let when = if calibration.kept { "kept from before; --again measures" } else { "measured now" };
    let mut text = format!("{}; {when}\n", subject.title());
    let mut group = None;
    let mut reference = None;
    for rank in &calibration.ranks {
        let of = (rank.transport.clone(), rank.burst_packets);
        if group.as_ref() != Some(&of) {
            let burst = match rank.burst_packets {
                0 => String::new(),
                1 => ", packets sent one by one".to_owned(),
                packets => format!(", {packets} packets a burst"),
            };
            let _ = writeln!(text, "\n{}{burst}: processor seconds per gigabyte", rank.transport);
            reference = dearest(&calibration.ranks, &of);
            group = Some(of);
        }
        line(&mut text, rank, reference);
    }
    text
}

fn line(text: &mut String, rank: &Rank, reference: Option<f64>) {
    let name = &rank.member;
    let _ = match (rank.cpu_s_per_gb, reference) {
        (Some(cpu_s_per_gb), Some(dearest)) => {
            let bar = "█".repeat((cpu_s_per_gb / dearest * BAR_CHARS).round().max(1.0) as usize);
            writeln!(text, "  {name:16} {cpu_s_per_gb:7.3}  {bar}")
        }
        _ => {
            let reason = Escaped(rank.refused.as_deref().unwrap_or("not measured"));
            writeln!(text, "  {name:16}       –  {reason}")
        }
    };
}

/// Returns the highest CPU cost of a group, which gets the longest bar.
fn dearest(ranks: &[Rank], (transport, burst): &(String, u32)) -> Option<f64> {
    let of_group = ranks.iter().filter(|r| r.transport == *transport && r.burst_packets == *burst);
    of_group.filter_map(|rank| rank.cpu_s_per_gb).reduce(f64::max)
}

const BAR_CHARS: f64 = 40.0;
