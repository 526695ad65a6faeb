// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pagewire lab sessions`: the installed server with N paced sessions of one 5 Mb/s asset on
//! loopback.
//!
//! Every packet of every session is received, its sequence number and its time checked; what the
//! clients cost runs on the same cores, so the figures are those of a machine that does both jobs.
//! Lateness is given as the server saw it (due time to send call) and as the clients saw it
//! (against each session's earliest packet, the delay of the receiving process included: the
//! strictest reading).
//!
//! Sources: the study's future work (the largest number of clients that is still timely).
//! Does not do: search for the largest N; one N a run.

mod asset;
mod clients;
mod server;

use std::time::Duration;

use crate::Options;
use crate::error::Error;
use crate::results::{Results, Row};
use crate::statistics::Figure;

pub(crate) fn run(options: &Options) -> Result<Results, Error> {
    let folder = tempfile::tempdir().map_err(Error::host("a temporary folder"))?;
    let seconds = if options.quick { 5 } else { options.seconds.unwrap_or(20) };
    let sessions = options.sessions.first().copied().unwrap_or(500);
    // Sessions begin one after the other and must all still run at the end.
    let asset_s = seconds + START_S_MAX + sessions as u64 / 200;
    asset::write(&folder.path().join(asset::NAME), asset_s)
        .map_err(Error::host("writing the asset"))?;
    raise_descriptor_limit();
    let server = server::Server::start(folder.path())?;
    server.wait_for_plan()?;
    let idle = server.facts()?;
    let mut clients = clients::Clients::start(server.stream_url(), sessions)?;
    // The wire image is made while the first seconds are sent.
    std::thread::sleep(SETTLE);
    let before = server.facts()?;
    clients.begin_counting();
    std::thread::sleep(Duration::from_secs(seconds));
    let after = server.facts()?;
    let seen = clients.finish()?;
    let conditions = vec![
        format!(
            "{} sessions of one asset of {:.1} Mb/s for {seconds} s on loopback, every packet \
             received; {} packets counted",
            sessions,
            asset::BITS_PER_SECOND as f64 / 1e6,
            seen.received
        ),
        "bill: processor seconds of the server process per 10⁹ bytes; receiving on loopback runs \
         partly on the sender's account"
            .to_owned(),
    ];
    let bytes = after.bytes - before.bytes;
    let bill = (after.processor_seconds - before.processor_seconds) / (bytes as f64 / 1e9);
    let per_session =
        (after.memory_bytes as f64 - idle.memory_bytes as f64) / sessions.max(1) as f64 / 1024.0;
    let ms = |us: u64| us as f64 / 1e3;
    let lost_on_server = after.sent_before_end(&seen);
    let rows = vec![
        row("server", "bill", "s/GB", bill),
        row("server", "sent, not received", "packets", lost_on_server),
        row("server", "refused sends", "calls", (after.refused - before.refused) as f64),
        row("server", "late, median", "ms", ms(after.late_p50_us)),
        row("server", "late, 99 %", "ms", ms(after.late_p99_us)),
        row("server", "late, 99.9 %", "ms", ms(after.late_p999_us)),
        row("server", "late, most", "ms", ms(after.late_max_us)),
        row("server", "memory a session", "KiB", per_session),
        row("clients", "lost", "packets", seen.lost as f64),
        row("clients", "late, median", "ms", ms(seen.late_us.value_at_quantile(0.5))),
        row("clients", "late, 99 %", "ms", ms(seen.late_us.value_at_quantile(0.99))),
        row("clients", "late, 99.9 %", "ms", ms(seen.late_us.value_at_quantile(0.999))),
        row("clients", "later than 25 ms", "%", seen.share_later_than(LATE_US) * 100.0),
    ];
    let mut results = Results::new("sessions", options.command.clone());
    (results.notes, results.rows, results.complete) = (conditions, rows, true);
    Ok(results)
}

fn row(member: &str, metric: &str, unit: &str, value: f64) -> Row {
    Row::new("sessions", member, metric, unit, Figure::of(vec![value]))
}

/// Two sockets a session; the soft limit is raised as far as it goes. Too low is found out by the
/// first socket that fails.
fn raise_descriptor_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    let _ = setrlimit(Resource::Nofile, limit);
}

const START_S_MAX: u64 = 20;
const SETTLE: Duration = Duration::from_secs(3);
const LATE_US: u64 = 25_000;
