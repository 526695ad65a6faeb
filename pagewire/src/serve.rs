// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pagewire serve`: options, the ready line, progress of planning, signals.

mod access;
mod confinement;
mod flags;
mod limits;
mod notify;
mod operation;
mod privileges;
mod reload;
mod thumbnails;
mod upgrade;
mod watching;

use std::io::{ErrorKind, IsTerminal, Write};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use seal::hls::{Compatibility, KeyFolder};
use serve::{
    Config, Error, KeySource, KeyTokens, ListenerName, MediaPorts, PacketPacing, PathCost,
    SegmentCipher, Server, TlsSource,
};
use tokio::signal::unix::{SignalKind, signal};

use self::confinement::NamedFiles;
pub(crate) use self::flags::with_flag;
use self::operation::Operation;
pub(crate) use self::upgrade::LINK as HANDOVER_LINK;
use crate::config::{FileConfig, Loaded, Sources};
use crate::escape::Escaped;
use measure::{Calibration, Subject};
use operation::ServiceSignals;
use reload::Reloads;

#[derive(Args)]
pub(crate) struct Options {
    /// The folder whose files are served. Transport streams, MP4, Matroska, MP3, AAC and WAV files
    /// are streams, too; the index at / lists for each file where it plays, or why not. `?es`
    /// behind the address of a transport stream gives its pictures and sounds as tracks. Hidden
    /// files are not served; links that lead out, or through a hidden name, are refused.
    folder: PathBuf,
    /// Configuration file (TOML): every flag, by its name with _ for -, channels and rules of
    /// access. The command line and the environment (PAGEWIRE_BURST is --burst) win over the file.
    /// SIGHUP reads it again.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Address on which RTSP listens; port 0 picks one.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8554")]
    rtsp: SocketAddr,
    /// Address on which HTTP listens; port 0 picks one.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8080")]
    http: SocketAddr,
    /// Address on which HTTPS listens; port 0 picks one.
    #[arg(long, value_name = "ADDRESS:PORT", requires = "certificate")]
    https: Option<SocketAddr>,
    /// Address on which RTSP over TLS (rtsps://) listens; port 0 picks one.
    #[arg(long, value_name = "ADDRESS:PORT", requires = "certificate")]
    rtsps: Option<SocketAddr>,
    /// Certificate of HTTPS and RTSPS, followed by those of its issuers (PEM). Loaded again when
    /// it changes.
    #[arg(long, value_name = "FILE", group = "certificate", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Private key of the certificate (PEM, not encrypted).
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Makes a certificate that is signed by itself and keeps it in the cache folder; the log shows
    /// its fingerprint.
    #[arg(long, group = "certificate")]
    tls_self_signed: bool,
    /// Encryption of downloads over HTTPS by the kernel: auto uses it where the host has the module
    /// tls (modprobe tls), off never does.
    #[arg(long, value_name = "WHEN", default_value = "auto", value_parser = ["auto", "off"])]
    kernel_tls: String,
    /// Folder of plans and wire images [default: pagewire in the XDG cache folder].
    #[arg(long, value_name = "DIR")]
    cache: Option<PathBuf>,
    /// Disk that wire images may take, such as 500M, 10G or 0 for none.
    #[arg(long, value_name = "BYTES", default_value = "10G", value_parser = bytes)]
    cache_size: u64,
    /// Time by which a packet may leave before it is due. A longer time costs less and adds jitter.
    #[arg(long, value_name = "MS", default_value_t = 20)]
    burst: u64,
    /// Spreading of a burst's packets: user sends them at once; txtime has the kernel hold each
    /// until it is due, where the network device has the queueing discipline fq or etf (tc qdisc
    /// replace dev eth0 root fq limit 100000), else as user; txtime=N lets N packets leave
    /// together.
    #[arg(long, value_name = "PACING", default_value = "user", value_parser = pacing)]
    pacing: PacketPacing,
    /// UDP port all media leaves from (even; RTCP is the next), 0 to pick one, or FIRST-LAST for a
    /// pair per session.
    #[arg(long, value_name = "PORT", default_value = "0", value_parser = media_ports)]
    rtp_port: MediaPorts,
    /// A path by name, at most one for streams and one for downloads; or auto, the cheapest on
    /// this machine: measured for two seconds at the first start, then kept. See `pagewire paths`.
    #[arg(long, value_name = "NAME", default_value = AUTO)]
    path: Vec<String>,
    /// Pacer threads [default: one per core].
    #[arg(long, value_name = "N")]
    pacers: Option<usize>,
    /// Silence of a client, over RTSP and RTCP, after which its session ends.
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = timeout_s())]
    session_timeout: u64,
    /// Gives the keys of sealed films, made from this secret: the one of `seal hls --key-file`.
    #[arg(long, value_name = "FILE", conflicts_with = "keys")]
    hls_key_file: Option<PathBuf>,
    /// Gives the keys of sealed films, from this folder: the one of `seal hls --keys`.
    #[arg(long, value_name = "DIR")]
    keys: Option<PathBuf>,
    /// Enciphers segments that are made of files, with keys made from the secret of --hls-key-file:
    /// aes-128 whole segments of HLS, cbcs samples for HLS and DASH. The files themselves stay as
    /// they are.
    #[arg(long, value_name = "METHOD", value_parser = segment_cipher, requires = "hls_key_file")]
    hls_cipher: Option<SegmentCipher>,
    /// File of tokens, one a line; a client must show one of them to get a key.
    #[arg(long, value_name = "FILE")]
    key_token_file: Option<PathBuf>,
    /// Lets players in web pages of this origin in, such as https://example.org (may be given
    /// several times), * for all, or none [default: all, where no credentials are asked for: they
    /// read media, and neither the index nor lists of channels].
    #[arg(long, value_name = "ORIGIN")]
    allow_origin: Vec<String>,
    #[command(flatten)]
    access: access::AccessOptions,
    #[command(flatten)]
    thumbnails: thumbnails::ThumbnailOptions,
    #[command(flatten)]
    limits: limits::LimitOptions,
    #[command(flatten)]
    watching: watching::WatchOptions,
    #[command(flatten)]
    operation: operation::OperationOptions,
    /// True where the folder is not known, and its titles are not compared with the keys.
    #[arg(skip)]
    leaves_titles_out: bool,
}

impl Options {
    /// Leaves the titles of the folder out of the checks: the configuration is for another one.
    pub(crate) fn leave_titles_out(&mut self) {
        self.leaves_titles_out = true;
    }

    /// Checks that this host has the user of `--user`.
    pub(crate) fn check_user(&self) -> Result<(), Error> {
        self.operation.check_user()
    }

    /// Lists the files that may be read again, or are written, while the server runs.
    fn files(&self, sources: &Sources) -> NamedFiles {
        let named = [&self.tls_cert, &self.tls_key, &self.hls_key_file, &self.key_token_file];
        let mut read = sources.files();
        read.extend(named.into_iter().flatten().cloned());
        read.extend(self.access.files());
        NamedFiles { read, written: self.watching.written() }
    }

    /// Builds the configuration of a server, with the tables of a file; with `measures` also runs
    /// the measurements of `--path auto`.
    pub(crate) fn config(self, file: FileConfig, measures: bool) -> Result<Config, Error> {
        let titles = (!self.leaves_titles_out).then(|| self.folder.clone());
        let titles = titles.as_deref();
        let mut config = Config::new(self.folder);
        config.channels = file.channels;
        config.access = self.access.access(file.access.rules, file.access.groups);
        config.rtsp = self.rtsp;
        config.http = self.http;
        config.https = self.https;
        config.rtsps = self.rtsps;
        config.tls = match (self.tls_cert, self.tls_key) {
            (Some(cert), Some(key)) => Some(TlsSource::Files { cert, key }),
            _ => self.tls_self_signed.then_some(TlsSource::SelfSigned),
        };
        config.kernel_tls = self.kernel_tls == "auto";
        config.cache = self.cache;
        config.cache_bytes_max = self.cache_size;
        (config.thumbnails, config.thumbnail_bytes_max) = self.thumbnails.source();
        config.burst = Duration::from_millis(self.burst);
        config.pacing = self.pacing;
        config.media_ports = self.rtp_port;
        if measures && self.path.iter().any(|name| name == AUTO) {
            config.path_costs = path_costs(self.rtsp.ip());
        }
        config.paths = self.path.into_iter().filter(|name| name != AUTO).collect();
        config.pacers = self.pacers;
        config.session_timeout = Duration::from_secs(self.session_timeout);
        config.keys = match (&self.hls_key_file, self.keys) {
            (Some(path), _) => Some(made_from(path, titles)?),
            (None, Some(folder)) => {
                let keys = seal::hls::SegmentKeySource::Folder(KeyFolder::new(&folder));
                check_keys(("--keys", &folder), titles, &keys)?;
                Some(KeySource::Folder(folder))
            }
            (None, None) => None,
        };
        config.segment_cipher = self.hls_cipher;
        let tokens = self.key_token_file.map(|path| KeyTokens::read("--key-token-file", &path));
        config.key_tokens = tokens.transpose()?;
        config.allow_origins = self.allow_origin;
        config.limits = self.limits.limits();
        self.watching.apply(&mut config);
        Ok(config)
    }
}

/// Reads the name of a cipher of segments.
fn segment_cipher(name: &str) -> Result<SegmentCipher, String> {
    match name {
        "aes-128" => Ok(SegmentCipher::Aes128),
        "cbcs" => Ok(SegmentCipher::Cbcs),
        _ => Err("write aes-128 or cbcs, or leave it out for clear segments".to_owned()),
    }
}

/// Returns a source that derives keys on request from the secret in a file; tests it on the titles
/// of `folder`.
fn made_from(path: &Path, folder: Option<&Path>) -> Result<KeySource, Error> {
    let (secret, exposed) = seal::key::file::key(HLS_KEY_FILE, path).map_err(|error| {
        let is_missing = std::fs::metadata(path).is_err_and(|e| e.kind() == ErrorKind::NotFound);
        let (found, cure) = match error {
            _ if is_missing => (format!("{}: no such file", path.display()), HLS_KEY_CURE.into()),
            seal::Error::Option { found, cure, .. } => (found, cure),
            other => (other.to_string(), HLS_KEY_CURE.into()),
        };
        Error::Option { option: HLS_KEY_FILE, found, cure }
    })?;
    if let Some(exposed) = exposed {
        tracing::warn!("{exposed}");
    }
    let opener = seal::hls::SegmentKeySource::Derived(seal::hls::Keys::new(&secret));
    check_keys((HLS_KEY_FILE, path), folder, &opener)?;
    let keys = seal::hls::Keys::new(&secret);
    Ok(KeySource::Made(Arc::new(move |film, number| *keys.key(film, number))))
}

/// Logs the titles of `folder`, if it is given, that these keys do not open.
///
/// # Errors
/// The keys open none of the titles, and there is at least one: no player could play a segment.
fn check_keys(
    (option, named): (&'static str, &Path),
    folder: Option<&Path>,
    keys: &seal::hls::SegmentKeySource,
) -> Result<(), Error> {
    let Some(folder) = folder else { return Ok(()) };
    let Compatibility { opened, refused } = seal::hls::fit(folder, keys, TITLES_CHECKED_MAX);
    // Fails only when every title was checked: an unchecked one may open.
    let are_all = refused.len() < TITLES_CHECKED_MAX;
    if let (true, 0, Some(first)) = (are_all, opened, refused.first()) {
        let (named, folder) = (named.display(), folder.display());
        // Leaves out the fault "another key", which has its cure below; other faults are shown.
        let first = match first {
            seal::Error::File { path, fault } if fault.is_other_key() => path.display().to_string(),
            first => first.to_string(),
        };
        return Err(Error::Option {
            option,
            found: match &refused[..] {
                [_] => format!("{named} does not open the sealed title {first}"),
                titles => format!(
                    "{named} opens none of the {} sealed titles of {folder}, such as {first}",
                    titles.len()
                ),
            },
            cure: "give the one that seal hls was given".to_owned(),
        });
    }
    for title in refused.iter().take(TITLES_NAMED_MAX) {
        tracing::warn!("{title}");
    }
    if refused.len() > TITLES_NAMED_MAX {
        tracing::warn!("{} titles more do not open", refused.len() - TITLES_NAMED_MAX);
    }
    Ok(())
}

const HLS_KEY_FILE: &str = "--hls-key-file";
const HLS_KEY_CURE: &str = "name the file that seal hls --key-file was given";
/// Limit on the titles checked before the server is ready: 50 µs each in the page cache, a seek or
/// two on a disk.
const TITLES_CHECKED_MAX: usize = 1000;
/// Limit on the titles that are logged as not opening, one line each.
const TITLES_NAMED_MAX: usize = 20;

pub(crate) fn run(loaded: Loaded, sources: Sources) -> ExitCode {
    loaded.notes.iter().for_each(|note| tracing::warn!("{note}"));
    let options = &loaded.options;
    let listen = [
        (ListenerName::Rtsp, Some(options.rtsp)),
        (ListenerName::Http, Some(options.http)),
        (ListenerName::Https, options.https),
        (ListenerName::Rtsps, options.rtsps),
        (ListenerName::Admin, options.watching.admin()),
    ];
    let mut operation = match Operation::begin(&options.operation, &listen) {
        Ok(operation) => operation,
        Err(error) => return failed(&error),
    };
    operation.warn_of_unreadable(&sources.files());
    let files = options.files(&sources);
    let reloads = Reloads::new(sources, &loaded);
    let mut config = match loaded.options.config(loaded.file, true) {
        Ok(config) => config,
        Err(error) => return failed(&error),
    };
    if let Err(error) = operation.equip(&mut config, &files) {
        return failed(&error);
    }
    let runtime = match crate::runtime() {
        Ok(runtime) => runtime,
        Err(error) => return crate::wrong(&format!("starting the runtime: {error}")),
    };
    let status = runtime.block_on(serve(config, operation, reloads));
    // A thread that waits for a dead disk must not keep the process alive.
    runtime.shutdown_background();
    status
}

/// Serves until a signal ends it.
async fn serve(config: Config, operation: Operation, reloads: Reloads) -> ExitCode {
    // Installs the handlers before the ready line: its reader may send a signal at once.
    let stop = match stop_signal() {
        Ok(stop) => stop,
        Err(error) => return crate::wrong(&format!("signal handlers: {error}")),
    };
    let signals = match ServiceSignals::install() {
        Ok(signals) => signals,
        Err(error) => return crate::wrong(&format!("signal handlers: {error}")),
    };
    let server = match Server::start(config).await {
        Ok(server) => server,
        Err(error) => return failed(&error),
    };
    if let Some(unavailable) = server.cache_unavailable() {
        tracing::warn!("{unavailable}; write --cache and a folder that can be written to");
    }
    // Subscribes before the ready line as well: an administrator may request a reload at once.
    let asked = reload::requests(&server);
    announce(&server);
    let metrics = operation.run(server, reloads, (signals, asked), stop).await;
    tracing::info!(
        "stopped: {} sessions served, {} packets{}",
        metrics.sessions_total,
        metrics.packets,
        metrics
            .cpu_s_per_gb
            .map_or_else(String::new, |cost| format!(", {cost:.3} CPU seconds per GB"))
    );
    ExitCode::SUCCESS
}

/// Prints an error; exit status 2 when the caller is at fault, otherwise 1.
fn failed(error: &Error) -> ExitCode {
    eprintln!("pagewire: {}", Escaped(crate::process_title::masked(&with_flag(error))));
    ExitCode::from(if error.is_caller() { 2 } else { 1 })
}

/// Measures the CPU costs of the paths on this machine; returns none, and logs a warning, where
/// measuring fails.
fn path_costs(address: IpAddr) -> Vec<PathCost> {
    let subject = Subject::of(address);
    let waiting = ProgressBar::new_spinner();
    waiting.set_message("measuring this machine's paths, two seconds, once");
    waiting.enable_steady_tick(Duration::from_millis(100));
    let calibration = Calibration::of(&subject, false);
    waiting.finish_and_clear();
    match calibration {
        Ok(calibration) => {
            let when = if calibration.kept { "kept" } else { "measured" };
            tracing::info!("calibration for {}: {when}", subject.title());
            let ranks = calibration.ranks.into_iter();
            ranks
                .map(|rank| PathCost {
                    transport: rank.transport,
                    path: rank.member,
                    burst_packets: rank.burst_packets,
                    cpu_s_per_gb: rank.cpu_s_per_gb,
                    refused: rank.refused,
                })
                .collect()
        }
        Err(error) => {
            tracing::warn!("--path auto: {error}; the usual order of paths is used");
            Vec::new()
        }
    }
}

const AUTO: &str = "auto";

/// Prints the ready line; when only this machine can connect, also how to open the server.
fn announce(server: &Server) {
    let (rtsp, http) = (server.rtsp(), server.http());
    let found = server.addresses();
    let mut out = std::io::stdout().lock();
    let plain = (("rtsp", &found.rtsp), ("http", &found.http));
    let encrypted = (("rtsps", &found.rtsps), ("https", &found.https));
    let mut words = "pagewire ready:";
    for ((first, firsts), (second, seconds)) in [plain, encrypted] {
        for line in 0..firsts.len().max(seconds.len()).min(ADDRESSES_MAX) {
            let text = |scheme: &str, list: &Vec<SocketAddr>| {
                list.get(line).map_or(String::new(), |address| format!(" {scheme}://{address}"))
            };
            // Ignores a closed standard output.
            let _ = writeln!(out, "{words}{}{}", text(first, firsts), text(second, seconds));
            words = "           also:";
        }
    }
    if let Some(admin) = server.admin() {
        let _ = writeln!(out, "          admin: http://{admin}");
    }
    if rtsp.ip().is_loopback() && http.ip().is_loopback() {
        let _ = writeln!(
            out,
            "only this machine can connect; to open it to the network: --rtsp 0.0.0.0:{} --http \
             0.0.0.0:{}",
            rtsp.port(),
            http.port()
        );
    }
    let _ = out.flush();
}

/// Limit on the addresses printed: a host with containers has dozens.
const ADDRESSES_MAX: usize = 8;

/// Completes at SIGTERM or SIGINT.
pub(crate) fn stop_signal() -> std::io::Result<impl Future<Output = ()>> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}

/// Shows a bar for each file that is being scanned, when standard error is a terminal.
async fn show_progress(server: &Server) {
    if !std::io::stderr().is_terminal() {
        return std::future::pending().await;
    }
    let style = ProgressStyle::with_template("{msg:30!} {wide_bar} {bytes_per_sec} {eta}")
        .expect("the template is a constant");
    let all = MultiProgress::new();
    let mut bars: Vec<(String, ProgressBar)> = Vec::new();
    let mut ticks = tokio::time::interval(Duration::from_millis(100));
    loop {
        ticks.tick().await;
        let scans = server.scans();
        bars.retain(|(name, bar)| {
            let runs = scans.iter().any(|(scanned, ..)| scanned == name);
            if !runs {
                bar.finish_and_clear();
                all.remove(bar);
            }
            runs
        });
        for (name, done, bytes) in scans {
            match bars.iter().find(|(shown, _)| *shown == name) {
                Some((_, bar)) => bar.set_position(done),
                None => {
                    let bar = all.add(ProgressBar::new(bytes).with_style(style.clone()));
                    bar.set_message(format!("reading {}", Escaped(&name)));
                    bars.push((name, bar));
                }
            }
        }
    }
}

/// Parses a time from a second to a day.
fn timeout_s() -> clap::builder::RangedU64ValueParser<u64> {
    clap::value_parser!(u64).range(1..=86_400)
}

/// Parses `500M`, `10G` or `1234`; units are powers of 1000, as disks are sold.
pub(crate) fn bytes(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let factor: u64 = match text[digits.len()..].to_ascii_uppercase().as_str() {
        "" | "B" => 1,
        "K" | "KB" => 1_000,
        "M" | "MB" => 1_000_000,
        "G" | "GB" => 1_000_000_000,
        "T" | "TB" => 1_000_000_000_000,
        unit => return Err(format!("unit {unit}: write K, M, G or T")),
    };
    let count: u64 = digits.parse().map_err(|_| format!("{text}: write a number such as 10G"))?;
    count.checked_mul(factor).ok_or_else(|| format!("{text}: too large"))
}

fn pacing(text: &str) -> Result<PacketPacing, String> {
    let packets = match text.split_once('=') {
        None if text == "user" => return Ok(PacketPacing::User),
        None if text == "txtime" => PacketPacing::PACKETS,
        Some(("txtime", packets)) => packets
            .parse()
            .map_err(|_| format!("{packets} packets: write a number such as txtime=2"))?,
        _ => return Err("write user, txtime or txtime=N".to_owned()),
    };
    Ok(PacketPacing::Txtime { packets })
}

fn media_ports(text: &str) -> Result<MediaPorts, String> {
    let port = |text: &str| {
        text.trim().parse::<u16>().map_err(|_| format!("{text}: write a port, or FIRST-LAST"))
    };
    match text.split_once('-') {
        Some((first, last)) => Ok(MediaPorts::Range(port(first)?, port(last)?)),
        None => Ok(MediaPorts::One(port(text)?)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_with_their_units() {
        assert_eq!(bytes("0"), Ok(0));
        assert_eq!(bytes("500M"), Ok(500_000_000));
        assert_eq!(bytes("10g"), Ok(10_000_000_000));
        assert!(bytes("ten").is_err());
        assert!(bytes("10Q").is_err());
        assert!(bytes("99999999999T").is_err());
    }

    #[test]
    fn pacing_is_a_name_and_a_number_of_packets() {
        let txtime = |packets| Ok(PacketPacing::Txtime { packets });
        assert_eq!(pacing("user"), Ok(PacketPacing::User));
        assert_eq!(pacing("txtime"), txtime(PacketPacing::PACKETS));
        assert_eq!(pacing("txtime=3"), txtime(3));
        for wrong in ["", "fq", "user=2", "txtime=", "txtime=x", "txtime=-1", "Txtime"] {
            assert!(pacing(wrong).is_err(), "{wrong}");
        }
        let text = "--pacing: 49 packets a departure; write 1 to 48";
        let mut config = Config::new(".");
        config.pacing = PacketPacing::Txtime { packets: 49 };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let error = runtime.block_on(Server::start(config)).err().expect("it is refused");
        assert_eq!(with_flag(&error), text);
    }

    #[test]
    fn ports_are_one_or_a_range() {
        assert_eq!(media_ports("5004"), Ok(MediaPorts::One(5004)));
        assert_eq!(media_ports("20000-29999"), Ok(MediaPorts::Range(20000, 29999)));
        assert!(media_ports("70000").is_err());
    }
}
