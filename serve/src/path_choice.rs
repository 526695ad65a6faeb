// SPDX-License-Identifier: MIT OR Apache-2.0
//! Chooses the paths of streams and of downloads, by CPU cost on this machine or by
//! name.
//!
//! The caller that starts a server may pass the CPU cost of paths ([`PathCost`], from a
//! calibration). Then the cheapest usable path is chosen, separately for short and long bursts,
//! since the saving of one call for many packets depends on their number. A download path must be
//! much cheaper than the usual one, and one that copies still more, as a server's memory is not in
//! the processor's caches ([`COPY_WEIGHT`]). Without costs the order is that of a machine measured
//! before ([`GATHERED`] and its like). The choice is logged, with the reason against each cheaper
//! path.
//!
//! Sources: `pagewire lab paths`.
//! Does not measure, and does not observe running sessions.

use paths::{Feed, Host, Open, Spec, Transport, Via};

use crate::error::{Error, Setting};
use crate::pacer::{ByBurst, StreamPaths};

/// CPU cost of a path on this machine.
#[derive(Debug, Clone)]
pub struct PathCost {
    /// Transport: `rtp` or `tcp`.
    pub transport: String,
    /// Name of the path.
    pub path: String,
    /// Packets of the measured burst; 0 for downloads.
    pub burst_packets: u32,
    /// CPU seconds per 10⁹ bytes; `None` when the path could not be used.
    pub cpu_s_per_gb: Option<f64>,
    /// Reason why the path could not be used.
    pub refused: Option<String>,
}

/// Options on which the choice depends.
#[derive(Clone, Copy)]
pub(crate) struct PathSettings<'a> {
    /// Names of paths to use; at most one for streams and one for downloads.
    pub(crate) named: &'a [String],
    pub(crate) costs: &'a [PathCost],
    /// True if the server makes wire images.
    pub(crate) has_images: bool,
}

/// The paths of a running server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chosen {
    pub(crate) streams: StreamPaths,
    pub(crate) download: &'static Spec,
    /// Sends many ranges of a file in a step.
    pub(crate) ranges: &'static Spec,
}

impl Chosen {
    /// Returns the CPU cost of the path that streams are sent by until their wire image is made, by
    /// the calibration; `None` without one.
    pub(crate) fn cpu_s_per_gb(&self, costs: &[PathCost]) -> Option<f64> {
        let name = self.streams.gathered.short.name;
        let is_it = |cost: &&PathCost| cost.path == name && cost.burst_packets == BURSTS[0];
        costs.iter().find(is_it)?.cpu_s_per_gb
    }
}

/// Returns the paths to use: the forced ones, otherwise the cheapest on this host.
pub(crate) fn choose(settings: PathSettings<'_>) -> Result<Chosen, Error> {
    let host = Host::here();
    let search = Search { host: &host, path_costs: settings.costs };
    for cost in settings.costs.iter().filter(|cost| cost.burst_packets != BURSTS[1]) {
        if let Some(reason) = &cost.refused {
            let (transport, path) = (&cost.transport, &cost.path);
            tracing::debug!("path {transport}/{path} cannot be used on this machine: {reason}");
        }
    }
    let image = |path: &Ranked| settings.has_images && path.feed() == Some(Feed::Image);
    let gathered = |path: &Ranked| path.feed() == Some(Feed::Gathered);
    let streams = StreamPaths {
        gathered: search.by_burst(GATHERED, &gathered).expect("the reference has no needs"),
        image: search.by_burst(IMAGED, &image),
        framed: framed(Feed::Gathered).expect("the reference gathers"),
        framed_image: framed(Feed::Image)
            .filter(|spec| settings.has_images && (spec.probe)(&host).is_ok()),
    };
    let download = search.cheapest(Transport::Tcp, 0, DOWNLOADS, &|_| true);
    let download = download.expect("the reference has no needs").spec;
    let ranges = paths::find(Transport::Tcp, RANGES).expect("a member of the list");
    let ranges = if (ranges.probe)(&host).is_ok() { ranges } else { download };
    let mut chosen = Chosen { streams, download, ranges };
    let named = named(settings)?;
    for spec in [named.stream, named.download].into_iter().flatten() {
        (spec.probe)(&host).map_err(|unavailable| Error::Setting {
            setting: Setting::Paths,
            found: spec.name.to_owned(),
            cure: unavailable.to_string(),
        })?;
    }
    if let Some(spec) = named.stream {
        chosen.streams = forced(spec, chosen.streams, settings)?;
    }
    if let Some(spec) = named.download {
        (chosen.download, chosen.ranges) = (spec, spec);
    }
    chosen.log();
    Ok(chosen)
}

/// Checks the names of paths, without asking this host whether it has them.
///
/// # Errors
/// As of [`choose`].
pub(crate) fn check(settings: PathSettings<'_>) -> Result<(), Error> {
    let named = named(settings)?;
    named.stream.map_or(Ok(()), |spec| has_images(spec, settings))
}

/// Paths that the configuration names.
struct Named {
    stream: Option<&'static Spec>,
    download: Option<&'static Spec>,
}

fn named(settings: PathSettings<'_>) -> Result<Named, Error> {
    let mut named = Named { stream: None, download: None };
    for name in settings.named {
        let served = [Transport::Rtp, Transport::Tcp];
        let spec = served.iter().find_map(|&transport| paths::find(transport, name));
        let spec = spec.ok_or_else(|| unknown(name))?;
        let slot = match spec.open {
            Open::Stream { .. } => &mut named.stream,
            Open::Download(_) => &mut named.download,
            Open::Interleaved { .. } => unreachable!("not found by these transports"),
        };
        if slot.replace(spec).is_some_and(|other: &Spec| other.name != spec.name) {
            return Err(Error::Setting {
                setting: Setting::Paths,
                found: settings.named.join(", "),
                cure: "force one path for streams and one for downloads at most".to_owned(),
            });
        }
    }
    Ok(named)
}

/// Checks that a named path has the wire images that it sends.
fn has_images(spec: &Spec, settings: PathSettings<'_>) -> Result<(), Error> {
    match spec.open {
        Open::Stream { feed: Feed::Image, .. } if !settings.has_images => {
            Err(Error::NoImages { path: spec.name })
        }
        _ => Ok(()),
    }
}

fn forced(
    spec: &'static Spec,
    default: StreamPaths,
    settings: PathSettings<'_>,
) -> Result<StreamPaths, Error> {
    has_images(spec, settings)?;
    match spec.open {
        Open::Stream { feed: Feed::Image, .. } => {
            Ok(StreamPaths { image: Some(ByBurst::always(spec)), ..default })
        }
        _ => {
            let gathered = ByBurst::always(spec);
            Ok(StreamPaths { gathered, image: None, framed_image: None, ..default })
        }
    }
}

impl Chosen {
    fn log(&self) {
        let pair = |pair: ByBurst| match pair.short.name == pair.long.name {
            true => pair.short.name.to_owned(),
            false => format!("{} (long bursts: {})", pair.short.name, pair.long.name),
        };
        let gathered = pair(self.streams.gathered);
        let images = self.streams.image.map_or("none".to_owned(), pair);
        tracing::info!("streams by {gathered}; from wire images: {images}");
        let framed = self.streams.framed.name;
        let framed_images = self.streams.framed_image.map_or("none", |spec| spec.name);
        tracing::info!("frames over TCP by {framed}; from wire images: {framed_images}");
        let (whole, ranges) = (self.download.name, self.ranges.name);
        tracing::info!("downloads by {whole}; of many ranges: {ranges}");
    }
}

/// A path with its CPU cost here, if known.
struct Ranked {
    spec: &'static Spec,
    cost: Option<f64>,
}

impl Ranked {
    fn feed(&self) -> Option<Feed> {
        match self.spec.open {
            Open::Stream { feed, .. } => Some(feed),
            Open::Download(_) | Open::Interleaved { .. } => None,
        }
    }

    /// The cost by which it is compared.
    fn weighed(&self) -> f64 {
        let weight = match (self.spec.transport, self.spec.copies_per_byte) {
            (Transport::Tcp, 1..) => COPY_WEIGHT,
            (Transport::Tcp, 0) if self.spec.name != DOWNLOADS[0] => OTHER_WEIGHT,
            _ => 1.0,
        };
        self.cost.map_or(f64::MAX, |cost| weight * cost)
    }

    /// Returns why the path is not chosen automatically, though it may be named.
    fn refusal(&self, host: &Host) -> Option<String> {
        if let Open::Stream { via: Via::Device, .. } = self.spec.open {
            return Some(
                "puts frames past routing and firewall; only a path named by the caller may"
                    .to_owned(),
            );
        }
        (self.spec.probe)(host).err().map(|unavailable| unavailable.to_string())
    }
}

struct Search<'a> {
    host: &'a Host,
    path_costs: &'a [PathCost],
}

impl Search<'_> {
    fn by_burst(&self, usual: &[&str], fits: &dyn Fn(&Ranked) -> bool) -> Option<ByBurst> {
        let [short, long] = BURSTS;
        let short = self.cheapest(Transport::Rtp, short, usual, fits)?;
        let long = self.cheapest(Transport::Rtp, long, usual, fits)?;
        Some(ByBurst { short: short.spec, long: long.spec })
    }

    /// Returns the cheapest usable path that fits; without costs the first of `usual`.
    fn cheapest(
        &self,
        transport: Transport,
        burst_packets: u32,
        usual: &[&str],
        fits: &dyn Fn(&Ranked) -> bool,
    ) -> Option<Ranked> {
        let ranked = self.ranked(transport, burst_packets, usual);
        let mut refused = Vec::new();
        for path in ranked.into_iter().filter(|path| fits(path)) {
            let Some(reason) = path.refusal(self.host) else {
                let cost = path.cost.map_or(String::new(), |cost| format!(" ({cost:.3} s/GB)"));
                let burst = match burst_packets {
                    0 => String::new(),
                    packets => format!(", {packets} packets a burst"),
                };
                let name = path.spec.name;
                tracing::info!("path for {transport}{burst}: {name}{cost}");
                for line in refused {
                    tracing::info!("better ranked but not used: {line}");
                }
                return Some(path);
            };
            refused.push(format!("{}: {reason}", path.spec));
        }
        None
    }

    /// Lists paths by cost, the cheapest first; then those of `usual` without a cost.
    fn ranked(&self, transport: Transport, burst_packets: u32, usual: &[&str]) -> Vec<Ranked> {
        let of_burst = self.path_costs.iter().filter(|cost| {
            cost.transport == transport.name() && cost.burst_packets == burst_packets
        });
        let mut ranked: Vec<Ranked> = of_burst
            .filter_map(|cost| {
                let spec = paths::find(transport, &cost.path)?;
                Some(Ranked { spec, cost: Some(cost.cpu_s_per_gb?) })
            })
            .collect();
        ranked.sort_by(|a, b| a.weighed().total_cmp(&b.weighed()));
        for name in usual {
            let spec = paths::find(transport, name).expect("a member of the list");
            if !ranked.iter().any(|path| std::ptr::eq(path.spec, spec)) {
                ranked.push(Ranked { spec, cost: None });
            }
        }
        ranked
    }
}

/// Returns the path of frames on RTSP connections that is fed so.
fn framed(wanted: Feed) -> Option<&'static Spec> {
    let is_fed_so =
        |spec: &&&Spec| matches!(spec.open, Open::Interleaved { feed, .. } if feed == wanted);
    paths::INTERLEAVED_PATHS.iter().find(is_fed_so).copied()
}

fn unknown(name: &str) -> Error {
    let known = paths::PATHS.iter().filter(|spec| spec.transport != Transport::Udp);
    let mut known: Vec<_> = known.map(|spec| spec.name).collect();
    known.dedup();
    Error::Setting {
        setting: Setting::Paths,
        found: name.to_owned(),
        cure: format!("write auto, or one of {}", known.join(", ")),
    }
}

/// Weight of the cost of downloads that copy. A calibration has one connection, whose buffers stay
/// in the processor's caches; a server fills those of thousands, and each holds a copy until its
/// peer has acknowledged it. Calibrated 0.160 s/GB beside 0.176 of `sendfile`, `uring_send` took
/// 0.25 to 0.29 for 1,500 viewers of HLS, and `sendfile` 0.17 to 0.19 (Zen 4, Linux 6.18).
const COPY_WEIGHT: f64 = 1.5;

/// Weight of the cost of other downloads than the usual one: an answer in progress holds its path,
/// and a pipe is three descriptors; and a calibration is kind to pipes, as its socket refuses
/// nothing. Calibrated 1.1 to 1.65 times cheaper than `sendfile` on one machine, `vmsplice` took as
/// much as it for files in ext4 and connections that take everything, and 1.5 times as much for 300
/// that read slowly (390 and 580 µs for 4 MB; Xeon 2.5 GHz, Linux 6.18).
const OTHER_WEIGHT: f64 = 2.0;

/// In order of cost on the machine measured first (`pagewire lab paths`), the reference last.
const GATHERED: &[&str] = &["mmap_gso", "mmap_writev", "read_writev"];
const IMAGED: &[&str] = &["wire_sendfile"];
const DOWNLOADS: &[&str] = &["sendfile", "read_write"];
/// Path for many ranges of a file, the one that sends them in a step.
const RANGES: &str = "vmsplice";
/// Packets of a short burst and of a long one, for which costs are measured.
const BURSTS: [u32; 2] = [10, 44];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    fn cost(path: &str, burst_packets: u32, cpu_s_per_gb: Option<f64>) -> PathCost {
        let transport = if burst_packets == 0 { "tcp" } else { "rtp" }.to_owned();
        PathCost { transport, path: path.to_owned(), burst_packets, cpu_s_per_gb, refused: None }
    }

    fn with(path_costs: Vec<PathCost>) -> Config {
        let mut config = Config::new("/");
        config.path_costs = path_costs;
        config
    }

    fn chosen_by(path_costs: Vec<PathCost>) -> Chosen {
        choose(with(path_costs).path_settings()).unwrap()
    }

    #[test]
    fn without_costs_the_order_is_the_usual_one() {
        let chosen = chosen_by(Vec::new());
        assert_eq!(chosen.streams.gathered.short.name, "mmap_gso");
        assert_eq!((chosen.download.name, chosen.ranges.name), ("sendfile", "vmsplice"));
        let framed = (chosen.streams.framed.name, chosen.streams.framed_image.unwrap().name);
        assert_eq!(framed, ("framed_writev", "framed_sendfile"));
    }

    #[test]
    fn without_room_for_images_none_is_sent() {
        let mut config = with(Vec::new());
        config.cache_bytes_max = 0;
        let chosen = choose(config.path_settings()).unwrap().streams;
        assert!(chosen.image.is_none() && chosen.framed_image.is_none());
    }

    #[test]
    fn the_cheapest_is_taken_for_each_length_of_burst() {
        let chosen = chosen_by(vec![
            cost("mmap_gso", 10, Some(0.5)),
            cost("mmap_writev", 10, Some(0.4)),
            cost("mmap_gso", 44, Some(0.2)),
            cost("mmap_writev", 44, Some(0.4)),
            cost("read_write", 0, Some(0.1)),
            cost("sendfile", 0, Some(0.2)),
        ]);
        let gathered = chosen.streams.gathered;
        assert_eq!((gathered.short.name, gathered.long.name), ("mmap_writev", "mmap_gso"));
        assert_eq!(chosen.download.name, "read_write");
        let close = vec![cost("uring_send", 0, Some(0.16)), cost("sendfile", 0, Some(0.2))];
        assert_eq!(chosen_by(close).download.name, "sendfile", "a copy is dearer");
        let equal = vec![cost("splice", 0, Some(0.19)), cost("sendfile", 0, Some(0.2))];
        assert_eq!(chosen_by(equal).download.name, "sendfile", "the usual one");
        let kind = vec![cost("vmsplice", 0, Some(0.096)), cost("sendfile", 0, Some(0.158))];
        assert_eq!(chosen_by(kind).download.name, "sendfile", "by the calibration");
        let cheap = vec![cost("splice", 0, Some(0.09)), cost("sendfile", 0, Some(0.2))];
        assert_eq!(chosen_by(cheap).download.name, "splice");
    }

    #[test]
    fn what_cannot_be_used_or_is_unknown_is_passed_over() {
        let chosen = choose(
            with(vec![
                cost("teleport", 10, Some(0.01)),
                cost("mmap_writev", 10, None),
                cost("read_writev", 10, Some(0.9)),
            ])
            .path_settings(),
        );
        assert_eq!(chosen.unwrap().streams.gathered.short.name, "read_writev");
    }

    #[test]
    fn a_named_path_wins_over_every_cost() {
        let mut config = with(vec![cost("mmap_gso", 10, Some(0.1))]);
        config.paths = vec!["mmap_writev".to_owned()];
        let chosen = choose(config.path_settings()).unwrap();
        assert_eq!(chosen.streams.gathered.long.name, "mmap_writev");
        assert!(chosen.streams.image.is_none(), "an image would be sent another way");
        assert!(chosen.streams.framed_image.is_none());
        assert_eq!((chosen.download.name, chosen.ranges.name), ("sendfile", "vmsplice"));
        config.paths = vec!["read_write".to_owned()];
        let chosen = choose(config.path_settings()).unwrap();
        assert_eq!((chosen.download.name, chosen.ranges.name), ("read_write", "read_write"));
    }
}
