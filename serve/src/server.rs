// SPDX-License-Identifier: MIT OR Apache-2.0
//! Starts all parts in order and stops them in reverse.
//!
//! Threads: one pacer a core, one event loop a core for HTTP, four readers, one each for images and
//! names, five for plans; tasks on the caller's runtime for everything else. Ports are opened
//! before any other part starts.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use access::{Access, Policy};
use clock::Clock;
use parking_lot::Mutex;
use tokio::task::JoinHandle;

use crate::access_log::AccessLog;
use crate::admin::{Admin, ReloadOutcome};
use crate::admission::Admission;
use crate::channel::playout::{ChannelHost, Channels};
use crate::config::Config;
use crate::drain::Drain;
use crate::error::Error;
use crate::http::channel_lists::ChannelLists;
use crate::http::cors::warn_of_any_origin;
use crate::http::download_paths::Downloads;
use crate::http::event_loops::EventLoops;
use crate::http::film_keys::{FilmKeys, KeySource};
use crate::http::index::Index;
use crate::http::open_files::OpenFiles;
use crate::library::served_folder::Folder;
use crate::library::{FolderWatch, Library};
use crate::limits::Limiter;
use crate::limits::capacity::Capacity;
use crate::listeners::{BoundAddresses, Listeners};
use crate::live_settings::{FixedSettings, LiveSettings};
use crate::meter::{Meters, ServerMetrics};
use crate::pacer::{PacerHost, Pacers, PacingChoice, allowed_cores};
use crate::path_choice::choose;
use crate::posters::Posters;
use crate::prefetch::{Fetch, Readers, fetch};
use crate::rtsp::control;
use crate::rtsp::media_ports::MediaPortPool;
use crate::rtsp::stream_session::StreamSessions;
use crate::server_state::ServerState;
use crate::sockets::ListeningSockets;
use crate::swapped::Swapped;
use crate::tls::TlsTerms;
use crate::watch::{Watch, keep_watch};
use crate::web::{Protection, WebAssets};
use crate::wire_image::WireImages;
use media::{PlanStore, StoreUnavailable};

/// A running server.
pub struct Server {
    pub(crate) state: Arc<ServerState>,
    /// Held while a reload is under way.
    pub(crate) reloading: tokio::sync::Mutex<()>,
    bound: BoundAddresses,
    pub(crate) tasks: Vec<JoinHandle<()>>,
    /// Task that reads the shared port of RTCP.
    pub(crate) rtcp: Option<JoinHandle<()>>,
    /// Duplicates of the listening sockets, for a successor.
    pub(crate) sockets: ListeningSockets,
    watch: FolderWatch,
    readers: Readers,
    event_loops: EventLoops,
}

/// ServerAddresses of a server that clients can open, by protocol; none where it has no listener.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerAddresses {
    /// ServerAddresses of RTSP.
    pub rtsp: Vec<SocketAddr>,
    /// ServerAddresses of HTTP.
    pub http: Vec<SocketAddr>,
    /// ServerAddresses of RTSP over TLS.
    pub rtsps: Vec<SocketAddr>,
    /// ServerAddresses of HTTP over TLS.
    pub https: Vec<SocketAddr>,
}

impl Server {
    /// Starts a server on the current tokio runtime.
    ///
    /// # Errors
    /// See [`Error`]; nothing stays open after an error.
    pub async fn start(config: Config) -> Result<Server, Error> {
        Server::start_with(config, fetch, Clock::HOST).await
    }

    pub(crate) async fn start_with(
        mut config: Config,
        fetch: Fetch,
        clock: Clock,
    ) -> Result<Server, Error> {
        config.check()?;
        let mut sockets = std::mem::take(&mut config.sockets);
        let predecessor = config.predecessor.take();
        let chosen = choose(config.path_settings())?;
        let cost = chosen.cpu_s_per_gb(&config.path_costs);
        paths::dropped_kernels().iter().for_each(|dropped| tracing::error!("{dropped}"));
        let access = Arc::new(Access::new(Policy::load(&config.access)?));
        let descriptors = paths::raise_descriptor_limit().unwrap_or_else(|error| {
            tracing::warn!("setrlimit RLIMIT_NOFILE: {error}; serving fewer sessions");
            paths::descriptor_limit()
        });
        let limits = Arc::new(Limiter::new(config.limits.clone(), descriptors));
        let folder = Arc::new(Folder::open(&config.folder)?);
        let keys = config.keys.as_ref().map(|source| FilmKeys::open(source, folder.path()));
        let keys = keys.transpose()?;
        let files = |loops| OpenFiles::new(loops, descriptors);
        let event_loops = EventLoops::start(allowed_cores().len(), files)?;
        sockets.open_missing(config.listeners())?;
        let listeners = Listeners::register(&sockets, &event_loops)?;
        let bound = listeners.addresses()?;
        let rtsp = bound.rtsp;
        let ports = MediaPortPool::open(config.media_ports, rtsp.ip(), sockets.media.take())?;
        let cache = PlanStore::open(config.cache.clone());
        let pacer_count = config.pacers.unwrap_or_else(|| allowed_cores().len());
        let meters = Arc::new(Meters::new(pacer_count));
        let counts = (meters.images_dropped.clone(), meters.images_invalid.clone());
        let _ = meters.plans.set(cache.clone());
        let terms =
            |source| TlsTerms::start(source, cache.folder(), config.kernel_tls, meters.tls.clone());
        let tls = config.tls.as_ref().map(terms).transpose()?.map(Arc::new);
        let images = WireImages::start(&cache, folder.clone(), config.cache_bytes_max, counts)?;
        let index = Index::new(config.segment_cipher);
        let protection = match (config.segment_cipher, &config.keys) {
            (Some(cipher), Some(KeySource::Made(make))) => {
                Some(Protection::new(cipher, make.clone()))
            }
            _ => None,
        };
        let web = WebAssets::new(cache.folder().map(std::path::Path::to_owned), protection);
        let library = Arc::new(Library::new(folder, cache.clone()));
        let posters =
            Posters::start(&config.thumbnails, &cache, config.thumbnail_bytes_max, &library)?;
        let readers = Readers::start(fetch)?;
        let (event_sender, events) = tokio::sync::mpsc::unbounded_channel();
        let host = PacerHost {
            burst: config.burst,
            pacing: PacingChoice::new(config.pacing, meters.sessions_txtime.clone()),
            readers: &readers.prefetch_handle(),
            clock: &clock,
        };
        let pacers = Pacers::start(&meters.pacers, chosen.streams, host, &event_sender)?;
        let watch = FolderWatch::start(&library)?;
        let (cache, is_successor) = (config.cache.as_deref(), predecessor.is_some());
        let host = ChannelHost { burst: config.burst, cache, clock: &clock };
        let channels = Channels::start(&config.channels, host, &library, is_successor)?;
        let access_log = config.access_log.as_ref().map(AccessLog::start).transpose()?;
        let admin = Admin::new(&config, &access);
        let old_sessions = predecessor.map(|old| old.link()).transpose()?;
        let now = clock.moment();
        let state = Arc::new(ServerState {
            drain: Drain::new(),
            old_sessions,
            admission: Admission::new(access, config.key_tokens.clone()),
            keys: Swapped::new(keys),
            config: FixedSettings::of(&config),
            live: Swapped::new(LiveSettings::of(&config)),
            key_source: Swapped::new(config.keys),
            rtsp,
            http: bound.http,
            rtsps: bound.rtsps,
            library,
            sessions: StreamSessions::new(),
            meters,
            ports,
            pacers,
            images,
            index,
            channel_lists: ChannelLists::default(),
            web,
            posters,
            downloads: Downloads::new(chosen.download),
            range_downloads: Downloads::new(chosen.ranges),
            kernel_tls_downloads: Downloads::sendfile(),
            began: now.at,
            started_s: now.since_epoch().unwrap_or_default().as_secs(),
            clock,
            limits,
            capacity: Capacity::new(cost),
            next_connection: AtomicU64::new(1),
            tunnels: Arc::default(),
            channels: Mutex::new(channels),
            watch: Watch::new(),
            access_log,
            admin,
            tls,
        });
        warn_of_any_origin(&state);
        let mut tasks = listeners.serve(&state, &event_loops);
        if let Some(admin) = &state.admin {
            admin.watch_listeners(tasks.iter().map(JoinHandle::abort_handle).collect());
            tasks.push(tokio::spawn(keep_watch(state.clone())));
        }
        tasks.push(tokio::spawn(control::housekeeping(state.clone(), events)));
        let rtcp = match &state.ports {
            MediaPortPool::Shared { rtcp, .. } => {
                let weak = Arc::downgrade(&state);
                Some(tokio::spawn(control::receive_rtcp(rtcp.clone(), weak)))
            }
            MediaPortPool::Range { .. } => None,
        };
        let reloading = tokio::sync::Mutex::default();
        let server =
            Server { state, reloading, bound, tasks, rtcp, sockets, watch, readers, event_loops };
        if let Err(error) = server.state.limits.check_room() {
            server.stop().await;
            return Err(error);
        }
        if let Some(old) = &server.state.old_sessions {
            old.follow().await;
            server.state.channels.lock().take_over();
        }
        Ok(server)
    }

    /// Returns the address of the RTSP listener.
    pub fn rtsp(&self) -> SocketAddr {
        self.bound.rtsp
    }

    /// Returns the address of the HTTP listener.
    pub fn http(&self) -> SocketAddr {
        self.bound.http
    }

    /// Returns the address of the HTTPS listener, if there is one.
    pub fn https(&self) -> Option<SocketAddr> {
        self.bound.https
    }

    /// Returns the address of the RTSPS listener, if there is one.
    pub fn rtsps(&self) -> Option<SocketAddr> {
        self.bound.rtsps
    }

    /// Returns the address of the administrator's listener, if there is one.
    pub fn admin(&self) -> Option<SocketAddr> {
        self.bound.admin
    }

    /// Has `POST /v1/reload` of the administrator's listener call `reload`, which may block.
    ///
    /// Its error is shown as it stands: the faults of the configuration.
    pub fn on_reload(
        &self,
        reload: impl Fn() -> Result<ReloadOutcome, String> + Send + Sync + 'static,
    ) {
        if let Some(admin) = &self.state.admin {
            admin.on_reload(reload);
        }
    }

    /// Opens the access log's file again, behind a rename by logrotate.
    pub fn reopen_logs(&self) {
        if let Some(log) = &self.state.access_log {
            log.reopen();
        }
    }

    /// Returns addresses that clients can open: for a listener on all addresses those of this host,
    /// with IPv4 and global ones first.
    pub fn addresses(&self) -> ServerAddresses {
        let host = paths::host_addresses();
        let open =
            |bound: Option<SocketAddr>| bound.map_or(Vec::new(), |bound| openable(bound, &host));
        ServerAddresses {
            rtsp: openable(self.bound.rtsp, &host),
            http: openable(self.bound.http, &host),
            rtsps: open(self.bound.rtsps),
            https: open(self.bound.https),
        }
    }

    /// Returns the rules and credentials of this server: who may do what.
    pub fn access(&self) -> Arc<Access> {
        self.state.admission.access().clone()
    }

    /// Returns the server's statistics so far.
    pub fn report(&self) -> ServerMetrics {
        self.state.report()
    }

    /// Returns why this server keeps neither plans nor wire images, if so.
    pub fn cache_unavailable(&self) -> Option<&StoreUnavailable> {
        self.state.library.cache.unavailable()
    }

    /// Lists the scans in progress: name, bytes read, bytes in total.
    pub fn scans(&self) -> Vec<(String, u64, u64)> {
        let scans = self.state.library.scans();
        scans.into_iter().map(|(scan, done)| (scan.name.clone(), done, scan.bytes)).collect()
    }

    /// Ends every stream with BYE, then all threads. Unfinished writes to the cache are discarded.
    pub async fn stop(self) -> ServerMetrics {
        for session in self.state.sessions.all() {
            control::end(&self.state, &session, "the server stops");
        }
        let state = self.state.clone();
        // Their threads end within a burst.
        let stop = move || state.channels.lock().stop();
        let _ = tokio::task::spawn_blocking(stop).await;
        let tasks = || self.tasks.iter().chain(&self.rtcp);
        tasks().for_each(JoinHandle::abort);
        for task in self.tasks.into_iter().chain(self.rtcp) {
            // The error only reports the abort.
            let _ = task.await;
        }
        let meters = self.state.meters.clone();
        let connections = self.state.limits.connections();
        let refusals = self.state.limits.refusals.counts();
        // Connections release the state when their tasks are dropped, for which abort does not
        // wait.
        let mut state = self.state;
        let deadline = Instant::now() + STOP_WAIT;
        let parts = loop {
            match Arc::try_unwrap(state) {
                Ok(parts) => break Some(parts),
                Err(shared) if Instant::now() < deadline => {
                    state = shared;
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                Err(_) => break None,
            }
        };
        drop(self.event_loops);
        let (watch, readers) = (self.watch, self.readers);
        let stopping = tokio::task::spawn_blocking(move || {
            watch.stop();
            if let Some(state) = parts {
                state.pacers.stop();
                state.images.stop();
                state.posters.stop();
            }
            readers.stop();
        });
        if tokio::time::timeout(STOP_WAIT, stopping).await.is_err() {
            tracing::warn!("a thread still waits for a disk; leaving it");
        }
        // The pacers have published their final counters.
        meters.report((0, 0), connections, refusals)
    }
}

const STOP_WAIT: Duration = Duration::from_secs(2);

/// Returns openable addresses for `bound` on a host with these addresses.
fn openable(bound: SocketAddr, host: &[IpAddr]) -> Vec<SocketAddr> {
    if !bound.ip().is_unspecified() {
        return vec![bound];
    }
    // An IPv6 listener accepts IPv4, too. A link-local address needs its device, which URLs cannot
    // name.
    let is_heard = |ip: &IpAddr| bound.is_ipv6() || ip.is_ipv4();
    let is_usual = |ip: &IpAddr| match ip {
        IpAddr::V4(ip) => !ip.is_link_local(),
        IpAddr::V6(ip) => !ip.is_unicast_link_local(),
    };
    let mut found: Vec<IpAddr> =
        host.iter().copied().filter(|ip| is_heard(ip) && is_usual(ip)).collect();
    found.sort_by_key(|ip| (ip.is_loopback(), ip.is_ipv6(), is_unique_local(ip)));
    found.dedup();
    let outward = found.iter().filter(|ip| !ip.is_loopback()).count();
    // Without an outward address it can at least be opened on this host.
    found.truncate(outward.max(1));
    if found.is_empty() {
        found.push(if bound.is_ipv6() {
            Ipv6Addr::LOCALHOST.into()
        } else {
            Ipv4Addr::LOCALHOST.into()
        });
    }
    found.into_iter().map(|ip| SocketAddr::new(ip, bound.port())).collect()
}

fn is_unique_local(ip: &IpAddr) -> bool {
    matches!(ip, IpAddr::V6(ip) if ip.is_unique_local())
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::path::Path;
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

    use super::*;
    use crate::prefetch::Window;
    use crate::rtsp::player::play;
    use crate::turn::behind_others;

    static CLIP: &[u8] = include_bytes!("../../pagewire/assets/clip.ts");

    fn config(folder: &Path) -> Config {
        let mut config = Config::new(folder.join("served"));
        let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
        (config.rtsp, config.http) = (any, any);
        config.cache = Some(folder.join("cache"));
        config
    }

    fn folder(names: &[&str]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("served")).unwrap();
        for name in names {
            std::fs::write(folder.path().join("served").join(name), CLIP).unwrap();
        }
        folder
    }

    fn wanted(server: &Server, name: &str, seconds: u64) -> (String, Duration) {
        (format!("rtsp://{}/{name}", server.rtsp()), Duration::from_secs(seconds))
    }

    /// Waits for an event; panics with its name after a minute.
    async fn until(event: &str, holds: impl Fn() -> bool) {
        let wait = async {
            while !holds() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), wait).await.expect(event);
    }

    static DISK_WORKS: AtomicBool = AtomicBool::new(false);
    static FETCHES_STALLED: AtomicU32 = AtomicU32::new(0);

    /// Simulates a disk that does not answer for one file until it is released.
    fn stalled_fetch(window: &Window) -> bool {
        if window.source.asset.name.starts_with("cold") {
            FETCHES_STALLED.fetch_add(1, Ordering::Relaxed);
        }
        while window.source.asset.name.starts_with("cold") && !DISK_WORKS.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(5));
        }
        fetch(window)
    }

    #[test]
    fn addresses_told_can_be_opened() {
        let addresses = |bound: &str, host: &[&str]| {
            let host: Vec<IpAddr> = host.iter().map(|ip| ip.parse().unwrap()).collect();
            let addresses = openable(bound.parse().unwrap(), &host).into_iter();
            addresses.map(|address| address.to_string()).collect::<Vec<_>>().join(" ")
        };
        let host =
            ["127.0.0.1", "::1", "fe80::1", "fd00::5", "2001:db8::5", "10.0.0.7", "169.254.1.1"];
        assert_eq!(addresses("0.0.0.0:80", &host), "10.0.0.7:80");
        assert_eq!(addresses("[::]:80", &host), "10.0.0.7:80 [2001:db8::5]:80 [fd00::5]:80");
        assert_eq!(addresses("192.0.2.1:80", &host), "192.0.2.1:80");
        assert_eq!(addresses("127.0.0.1:80", &host), "127.0.0.1:80");
        assert_eq!(addresses("0.0.0.0:80", &host[..2]), "127.0.0.1:80");
        assert_eq!(addresses("[::]:80", &[]), "[::1]:80");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_stalled_disk_delays_its_own_sessions_and_nobody_else() {
        let folder = folder(&["cold.ts", "hot.ts"]);
        let server = Server::start_with(config(folder.path()), stalled_fetch, Clock::HOST).await;
        let server = server.unwrap();
        // More sessions wait for the stalled file than readers exist.
        let cold: Vec<_> = (0..6).map(|_| wanted(&server, "cold.ts", 2)).collect();
        let cold: Vec<_> = cold.into_iter().map(|c| tokio::spawn(play(c))).collect();
        until("readers wait", || FETCHES_STALLED.load(Ordering::Relaxed) > 0).await;
        let hot = play(wanted(&server, "hot.ts", 2)).await;
        assert!(hot.is_whole(), "{hot:?}");
        assert!(cold.iter().all(|play| !play.is_finished()), "they wait for their disk");
        DISK_WORKS.store(true, Ordering::Relaxed);
        for cold in cold {
            let cold = cold.await.unwrap();
            assert!(cold.is_whole(), "{cold:?}");
        }
        server.stop().await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_file_dropped_from_the_page_cache_streams_whole() {
        let folder = folder(&["clip.ts"]);
        let path = folder.path().join("served/clip.ts");
        let file = std::fs::File::open(&path).unwrap();
        file.sync_all().unwrap();
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
        let mut config = config(folder.path());
        // Sends from the file itself, which is the cold one.
        config.cache_bytes_max = 0;
        let server = Server::start(config).await.unwrap();
        let seen = play(wanted(&server, "clip.ts", 2)).await;
        assert!(seen.is_whole(), "{seen:?}");
        server.stop().await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn stopping_says_bye_and_leaves_nothing() {
        let folder = folder(&["clip.ts"]);
        let threads = || std::fs::read_dir("/proc/self/task").unwrap().count();
        let server = Server::start(config(folder.path())).await.unwrap();
        let playing = tokio::spawn(play(wanted(&server, "clip.ts", 10)));
        // A session counts from its SETUP; its packets begin behind the answer to its PLAY.
        until("a session plays", || server.report().packets > 0).await;
        let running = threads();
        let report = server.stop().await;
        assert_eq!(report.sessions, 0);
        assert!(threads() < running, "pacers and readers have ended");
        let seen = playing.await.unwrap();
        assert!(seen.bye, "{seen:?}");
    }

    /// Sends frames of unknown channels as fast as possible: between two turns of another task the
    /// connection processes at most the frames of one read.
    #[tokio::test]
    async fn a_peer_whose_input_never_runs_out_has_a_read_a_turn() {
        const FRAMES: usize = 200_000;
        let folder = folder(&[]);
        let mut config = config(folder.path());
        config.limits.requests_per_s = u32::MAX;
        let server = Server::start(config).await.unwrap();
        let rtsp = server.rtsp();
        let pouring = std::thread::spawn(move || {
            let mut peer = std::net::TcpStream::connect(rtsp).unwrap();
            peer.write_all(&b"$\x09\0\0".repeat(FRAMES)).unwrap();
            peer
        });
        let server = Arc::new(server);
        let seen = server.clone();
        // A task like the connection's: the runtime polls the test itself less often.
        let counting = tokio::spawn(async move {
            let (mut counted, mut most) = (0, 0);
            while counted < FRAMES as u64 {
                behind_others().await;
                let now = seen.report().frames_unexpected;
                (most, counted) = (most.max(now - counted), now);
            }
            most
        });
        let most = tokio::time::timeout(Duration::from_secs(60), counting).await;
        let most = most.expect("all frames are taken").unwrap();
        // One read of 2 KiB holds frames of 4 bytes, and the end of one whose start was read
        // before.
        assert!(most <= 513, "{most} frames in one turn");
        drop(pouring.join().unwrap());
        Arc::into_inner(server).unwrap().stop().await;
    }
}
