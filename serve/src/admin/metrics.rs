// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writes the figures of the server for Prometheus.
//!
//! Names include their unit. Labels have values of fixed lists only, so clients cannot change the
//! number of series. A scrape merges the pacers' histograms and examines each session: some
//! microseconds each.
//!
//! Sources: Prometheus, "Metric and label naming", "Writing client libraries" (process metrics).
//! Does not write the text ([`super::exposition`] does).

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use paths::{INTERLEAVED_PATHS, PATHS, Transport};

use super::exposition::{Exposition, TextFormat};
use crate::limits::RateLimit;
use crate::meter::{PacerCounters, ServerMetrics};
use crate::server_state::ServerState;
use crate::watch::{CAUSES, PROTOCOLS, SessionRow};

/// Returns the text of all metrics.
pub(super) fn text(server: &ServerState, format: TextFormat, is_ready: bool) -> String {
    let mut out = Exposition::new(format);
    let (report, counters) = (server.report(), server.meters.pacer_counters());
    process(&mut out, server, &report);
    out.gauge("pagewire_ready", "1 while the server can serve.", u8::from(is_ready));
    sessions(&mut out, &server.watch.rows(server));
    clients(&mut out, server, &report);
    sending(&mut out, server, &counters);
    late(&mut out, &counters);
    downloads(&mut out, server, &report);
    stores(&mut out, &report);
    watching(&mut out, server);
    out.finish()
}

fn process(out: &mut Exposition, server: &ServerState, report: &ServerMetrics) {
    let version = [(env!("CARGO_PKG_VERSION"), 1)];
    out.gauges(("pagewire_build_info", "version"), "1; the version is a label.", version);
    out.gauge(
        "process_start_time_seconds",
        "Start of the server, seconds since the Unix epoch.",
        server.started_s,
    );
    out.counter(
        "process_cpu_seconds_total",
        "Processor time, user and system.",
        report.processor_seconds,
    );
    out.gauge(
        "pagewire_anonymous_memory_bytes",
        "Heap and stacks, without the page cache that is mapped.",
        report.memory_bytes,
    );
    let open = std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
    out.gauge("process_open_fds", "Open file descriptors.", open);
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let limit = limit.current.unwrap_or(u64::MAX);
    out.gauge("process_max_fds", "File descriptors that the process may open.", limit);
}

fn sessions(out: &mut Exposition, rows: &[SessionRow]) {
    let of = |holds: &dyn Fn(&SessionRow) -> bool| rows.iter().filter(|row| holds(row)).count();
    let by_protocol = PROTOCOLS.map(|name| (name, of(&|row| row.protocol == name)));
    out.gauges(
        ("pagewire_sessions", "protocol"),
        "Sessions now; of HTTP, connections that moved a megabyte.",
        by_protocol,
    );
    let streams = PATHS.iter().filter(|spec| spec.transport == Transport::Rtp);
    let names = streams.chain(INTERLEAVED_PATHS).map(|spec| spec.name);
    out.gauges(
        ("pagewire_sending_sessions", "path"),
        "RTSP sessions by the path that sends them.",
        names.map(|name| (name, of(&|row| row.path == Some(name)))),
    );
    out.gauges(
        ("pagewire_session_causes", "cause"),
        "Sessions by the cause for which they are slow; none for those that are not.",
        CAUSES.map(|cause| (cause.name(), of(&|row| row.cause == cause))),
    );
    out.gauge(
        "pagewire_session_bytes_per_second",
        "Rate of all sessions over the last seconds.",
        rows.iter().map(|row| row.bits_per_s / 8).sum::<u64>(),
    );
}

fn clients(out: &mut Exposition, server: &ServerState, report: &ServerMetrics) {
    let count = |value: &std::sync::atomic::AtomicU64| value.load(Ordering::Relaxed);
    out.counter("pagewire_sessions_total", "RTSP sessions set up.", report.sessions_total);
    out.counter("pagewire_sessions_refused_total", "Sessions refused.", report.sessions_refused);
    out.gauge("pagewire_connections", "Connections of RTSP and HTTP now.", report.connections);
    out.counter(
        "pagewire_connections_refused_total",
        "Connections refused.",
        report.connections_refused,
    );
    let refusals: BTreeMap<&'static str, u64> = report.refusals.clone();
    out.counters(("pagewire_refusals_total", "limit"), "Refusals at a limit.", refusals);
    out.counter(
        "pagewire_requests_malformed_total",
        "Requests that broke their protocol.",
        report.requests_malformed,
    );
    let answers = [(1, "1xx"), (2, "2xx"), (3, "3xx"), (4, "4xx"), (5, "5xx")];
    out.counters(
        ("pagewire_http_answers_total", "status"),
        "Answers over HTTP by the first digit of their status.",
        answers.map(|(digit, name)| (name, count(&server.meters.http_answers[digit]))),
    );
    let tls = [
        ("completed", report.tls_handshakes),
        ("failed", report.tls_failed),
        ("resumed", report.tls_resumed),
    ];
    out.counters(
        ("pagewire_tls_handshakes_total", "result"),
        "TLS handshakes; resumed ones are completed, too.",
        tls,
    );
    out.counter(
        "pagewire_tls_kernel_connections_total",
        "Connections that the kernel encrypted.",
        report.tls_in_kernel,
    );
}

fn sending(out: &mut Exposition, server: &ServerState, counters: &PacerCounters) {
    let sent = [("http", server.watch.viewers.bytes()), ("rtp", counters.stats.bytes)];
    out.counters(
        ("pagewire_sent_bytes_total", "protocol"),
        "Bytes handed to the kernel: RTP with its headers, content of HTTP.",
        sent,
    );
    out.counter("pagewire_rtp_packets_total", "RTP packets sent.", counters.stats.packets);
    out.counter(
        "pagewire_rtp_copied_bytes_total",
        "Bytes of RTP that the processor copied on the way to the socket.",
        counters.stats.copied_bytes,
    );
    out.counter("pagewire_rtp_calls_total", "System calls for RTP.", counters.stats.calls);
    out.counter(
        "pagewire_rtp_sends_refused_total",
        "Sends that the kernel refused for want of room, which were made again.",
        counters.stats.refused,
    );
    out.counter(
        "pagewire_cold_stalls_total",
        "Times that due media was not in memory.",
        counters.cold_stalls,
    );
    out.counter(
        "pagewire_clock_moves_total",
        "Times that a session's clock was moved, since it was over a second behind.",
        counters.clock_moves,
    );
    out.counter(
        "pagewire_departures_missed_total",
        "Packets that a device's queue dropped as late.",
        counters.departures_missed,
    );
    let reports = [("ignored", counters.icmp_ignored), ("verified", counters.icmp_verified)];
    out.counters(
        ("pagewire_icmp_reports_total", "verdict"),
        "ICMP reports to media sockets.",
        reports,
    );
    out.counter(
        "pagewire_reader_skips_total",
        "Times that a slow reader over TCP skipped media.",
        counters.reader_skips,
    );
    out.counter(
        "pagewire_reader_packets_skipped_total",
        "RTP packets that slow readers missed.",
        counters.packets_skipped,
    );
    let (expected, lost) = server.watch.reports();
    out.counter(
        "pagewire_receiver_packets_expected_total",
        "RTP packets expected by receivers that report.",
        expected,
    );
    out.counter(
        "pagewire_receiver_packets_lost_total",
        "RTP packets of these that were lost on the way.",
        lost,
    );
}

fn late(out: &mut Exposition, counters: &PacerCounters) {
    let help = "Time from the moment at which a packet was due to its send call.";
    out.histogram("pagewire_packet_lateness_seconds", help, (&counters.late_us, &LATE_US));
}

fn downloads(out: &mut Exposition, server: &ServerState, report: &ServerMetrics) {
    out.counter(
        "pagewire_downloads_paced_total",
        "Downloads held to a multiple of their media's rate.",
        report.downloads_paced,
    );
    out.counter(
        "pagewire_paced_bytes_total",
        "Bytes of them behind their start bursts.",
        report.bytes_paced,
    );
    let pace = &server.meters.download_pace;
    let limits = [
        ("address", pace.limited(RateLimit::Address)),
        ("connection", pace.limited(RateLimit::Connection)),
        ("total", pace.limited(RateLimit::Total)),
    ];
    out.counters(
        ("pagewire_downloads_limited_total", "limit"),
        "Downloads slowed to a limit.",
        limits,
    );
}

fn stores(out: &mut Exposition, report: &ServerMetrics) {
    out.counter(
        "pagewire_plans_invalid_total",
        "Plans in the cache that were damaged or outdated.",
        report.plans_invalid,
    );
    out.counter(
        "pagewire_images_invalid_total",
        "Wire images in the cache that were damaged or outdated.",
        report.images_invalid,
    );
    out.counter(
        "pagewire_images_dropped_total",
        "Wire images dropped because a block had changed.",
        report.images_dropped,
    );
}

fn watching(out: &mut Exposition, server: &ServerState) {
    out.gauge(
        "pagewire_channels",
        "Channels that are configured.",
        server.live.current().channels.len(),
    );
    let dropped = server.access_log.as_ref().map_or(0, |log| log.dropped());
    out.counter(
        "pagewire_access_log_lines_lost_total",
        "Lines of the access log that were not written.",
        dropped,
    );
}

/// A burst is 20 ms; receivers keep 50 ms and more.
const LATE_US: [u64; 12] = [
    500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000, 1_000_000,
    5_000_000,
];
