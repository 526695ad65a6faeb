// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sinks: destinations of measured traffic, made in a network namespace and removed with it.
//!
//! An `ifb` device accepts a packet at its driver's entry and drops it, so that only sending is
//! measured. It advertises UDP segmentation and accepts a super-packet whole, which costs the
//! processor as much as a card that segments; with `gso_max_segs 1` the kernel segments before the
//! device, as for a card that cannot. A `veth` pair leads to sockets in a second namespace, where
//! every byte is checked; those sockets belong to this process, so that a test needs no second
//! program.
//!
//! Needs no root: the program runs itself again by `unshare(1)`, which lets it make devices. Costs
//! some twenty short programs (`ip`, `nsenter`) a run, all before the first figure.
//!
//! Sources: unshare(1), user_namespaces(7), ip-link(8), ip-neighbour(8), setns(2); Linux 6.18
//! `drivers/net/ifb.c` (`ifb_xmit`), `net/core/dev.c` (`gso_features_check`).
//! Does not make namespaces by its own system calls; that would need `unsafe` and a single-threaded
//! process. `unshare` of util-linux is on every Linux.

use std::fs::File;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::error::Error;

/// Destination of datagrams.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sink {
    /// An ifb device that cannot segment, so the kernel does.
    IfbSoftware,
    /// An ifb device that accepts super-packets: a model of a card that segments.
    IfbDevice,
    /// A veth pair to verifying sockets in a second namespace.
    Veth,
    /// A device of this machine, by name, and an address that is routed by it.
    Interface(String, Ipv4Addr),
}

impl Sink {
    /// The three sinks that need no hardware.
    pub const MADE: [Self; 3] = [Self::IfbSoftware, Self::IfbDevice, Self::Veth];

    /// Returns its name on the command line and in results.
    pub fn name(&self) -> &str {
        match self {
            Self::IfbSoftware => "ifb-software",
            Self::IfbDevice => "ifb-device",
            Self::Veth => "veth",
            Self::Interface(name, _) => name,
        }
    }
}

/// Returns the command that runs a program in new namespaces: for root without a user namespace,
/// which keeps all rights; with one for other users, or where root may not do without.
///
/// # Errors
/// [`Error::Unavailable`] with the host's message and the setting to change.
pub fn private() -> Result<Command, Error> {
    let kinds: [&[&str]; 2] = [&["--net", "--"], &["--user", "--map-root-user", "--net", "--"]];
    let first = usize::from(!rustix::process::geteuid().is_root());
    let mut stderr = String::new();
    for kind in &kinds[first..] {
        let tried = Command::new("unshare").args(*kind).arg("true").output();
        let output = tried.map_err(|error| Error::Unavailable {
            need: "the program unshare (util-linux)",
            found: format!("{error}; install util-linux"),
        })?;
        if output.status.success() {
            let mut command = Command::new("unshare");
            command.args(*kind);
            return Ok(command);
        }
        stderr = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    }
    Err(Error::Unavailable {
        need: "a network namespace of its own",
        found: format!(
            "{stderr}; run as root, or allow unprivileged user namespaces \
             (kernel.unprivileged_userns_clone, kernel.apparmor_restrict_unprivileged_userns, \
             user.max_net_namespaces)"
        ),
    })
}

/// Devices of a run.
pub struct Network {
    /// True when this process is in a namespace of its own; no device is added outside of one.
    own: bool,
    far: Option<Far>,
}

/// The second namespace.
struct Far {
    /// Keeps the namespace alive during set-up; sockets keep it afterwards.
    holder: Child,
}

impl Network {
    /// Brings up loopback in a new namespace, which this process must be in.
    pub fn new() -> Result<Network, Error> {
        ip(&["link", "set", "lo", "up"])?;
        Ok(Network { own: true, far: None })
    }

    /// Uses the machine's own network, to measure a real card: makes no device; verification uses
    /// loopback.
    pub fn of_machine() -> Network {
        Network { own: false, far: None }
    }

    /// Makes a sink's device unless it exists; returns the address to send to.
    pub fn make(&mut self, sink: &Sink) -> Result<SocketAddr, Error> {
        match sink {
            // Loopback stands in for the far end.
            Sink::Veth if !self.own => Ok(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), SINK_PORT)),
            Sink::IfbSoftware => make_ifb(SOFTWARE, Some("1"), 1),
            Sink::IfbDevice => make_ifb(DEVICE, None, 1),
            Sink::Veth => self.make_veth(),
            Sink::Interface(name, to) => check_route(name, *to),
        }
    }

    /// The near end of the veth pair, where a server may listen.
    pub const NEAR: Ipv4Addr = VETH.address(1);
    /// A far address whose datagrams arrive through the veth pair.
    pub const SAMPLED: Ipv4Addr = VETH.address(2);
    /// A far address whose RTP ends in the sink; other traffic arrives through the veth pair.
    pub const SUNK: Ipv4Addr = VETH.address(3);

    /// Prepares a server with many clients: a policy rule leads datagrams from `rtp_port` to
    /// [`Network::SUNK`] into the ifb device that cannot segment, invisibly to the sockets.
    /// The sink has a queue a core, as cards have: with a single queue, a core that sends leaves
    /// its packets to the core that holds the queue, and that one to ksoftirqd.
    pub fn split(&mut self, rtp_port: u16, queues: usize) -> Result<(), Error> {
        self.make(&Sink::Veth)?;
        make_ifb(SOFTWARE, Some("1"), queues)?;
        let far = self.far.as_ref().expect("just made");
        let sunk = Self::SUNK.to_string();
        far.ip(&["addr", "add", &format!("{sunk}/24"), "dev", "far"])?;
        let (device, table) = (SOFTWARE.device, "100");
        ip(&["route", "add", &sunk, "dev", device, "table", table])?;
        let there = hardware(SOFTWARE.number, 3);
        ip(&["neigh", "add", &sunk, "lladdr", &there, "dev", device, "nud", "permanent"])?;
        let port = rtp_port.to_string();
        ip(&["rule", "add", "ipproto", "udp", "sport", &port, "to", &sunk, "lookup", table])
    }

    /// Makes the kernel segment runs longer than `segments` before a sink's device.
    pub fn limit_segments(&self, sink: &Sink, segments: u32) -> Result<(), Error> {
        ip(&["link", "set", "dev", device(sink), "gso_max_segs", &segments.to_string()])
    }

    /// Disables segmentation of UDP on a sink's device, and that of TCP unless `keep_tso` is set:
    /// the kernel still makes super-packets and segments each before the device, as for a card that
    /// cannot.
    ///
    /// # Errors
    /// [`Error::Host`] with the kernel's answer.
    pub fn segment_in_software(&self, sink: &Sink, keep_tso: bool) -> Result<(), Error> {
        let tso = if keep_tso { "on" } else { "off" };
        call("ethtool", &["-K", device(sink), "tso", tso, "tx-udp-segmentation", "off"])
    }

    /// Makes the far end of the veth pair join received packets (GRO), as the cards of most clients
    /// do, or receive them one by one.
    ///
    /// # Errors
    /// [`Error::Host`] with the kernel's answer.
    pub fn join_received(&self, joins: bool) -> Result<(), Error> {
        let far = self.far.as_ref().expect("the veth pair is made first");
        far.call("ethtool", &["-K", FAR_DEVICE, "gro", if joins { "on" } else { "off" }])
    }

    /// Sets a queueing discipline, such as `fq`, on a sink's device.
    ///
    /// # Errors
    /// [`Error::Host`] with the kernel's answer where it was built without that discipline.
    pub fn set_queue(&self, sink: &Sink, discipline: &str) -> Result<(), Error> {
        call("tc", &["qdisc", "replace", "dev", device(sink), "root", discipline])
    }

    /// Returns a command that runs `program` in the second namespace.
    pub fn far_command(&self, program: &std::path::Path) -> Command {
        let far = self.far.as_ref().expect("the veth pair is made first");
        let id = far.holder.id().to_string();
        let mut command = Command::new("nsenter");
        command.args(["--target", &id, "--net", "--"]).arg(program);
        command
    }

    /// Returns the address of a sink that has been made.
    pub fn address(&self, sink: &Sink) -> Result<SocketAddr, Error> {
        match sink {
            Sink::IfbSoftware => Ok(SOFTWARE.sink()),
            Sink::IfbDevice => Ok(DEVICE.sink()),
            Sink::Veth => Ok(VETH.sink()),
            Sink::Interface(name, to) => check_route(name, *to),
        }
    }

    fn make_veth(&mut self) -> Result<SocketAddr, Error> {
        if self.far.is_none() {
            let holder = Command::new("unshare")
                // `cat` ends with this process in any case, and ignores the terminal's Ctrl-C.
                .args(["--net", "--", "cat"])
                .process_group(0)
                .stdin(Stdio::piped())
                .stdout(Stdio::null())
                .spawn()
                .map_err(Error::host("unshare --net"))?;
            self.far = Some(Far { holder });
            let far = self.far.as_ref().expect("just made");
            far.wait_for_namespace()?;
            let id = far.holder.id().to_string();
            let (near, there) = (VETH.device, FAR_DEVICE);
            ip(&["link", "add", near, "type", "veth", "peer", "name", there])?;
            ip(&["link", "set", near, "address", &hardware(VETH.number, 1)])?;
            ip(&["link", "set", there, "address", &hardware(VETH.number, 2)])?;
            ip(&["link", "set", there, "netns", &id])?;
            ip(&["addr", "add", &format!("{}/24", VETH.address(1)), "dev", near])?;
            ip(&["link", "set", near, "up"])?;
            far.ip(&["link", "set", "lo", "up"])?;
            far.ip(&["addr", "add", &format!("{}/24", VETH.address(2)), "dev", there])?;
            far.ip(&["link", "set", there, "up"])?;
            neighbour(&VETH)?;
        }
        Ok(VETH.sink())
    }

    /// Runs `make` in the second namespace; returns the socket that it makes.
    pub fn in_far<T: Send>(
        &self,
        make: impl FnOnce() -> std::io::Result<T> + Send,
    ) -> Result<T, Error> {
        let Some(far) = self.far.as_ref() else {
            assert!(!self.own, "the veth pair is made first");
            return make().map_err(Error::host("a socket on loopback"));
        };
        let path = format!("/proc/{}/ns/net", far.holder.id());
        let namespace = File::open(&path).map_err(Error::host(path))?;
        let made = std::thread::scope(|scope| {
            let thread = scope.spawn(move || {
                // setns(2) moves this thread only, and the thread ends here.
                let kind = Some(LinkNameSpaceType::Network);
                move_into_link_name_space(namespace.as_fd(), kind)?;
                make()
            });
            thread.join().expect("it does not panic")
        });
        made.map_err(Error::host("a socket in the second namespace"))
    }

    /// Binds a datagram socket behind the veth pair.
    pub fn far_udp(&self, port: u16) -> Result<UdpSocket, Error> {
        let address = self.far_address();
        self.in_far(move || UdpSocket::bind((address, port)))
    }

    /// Binds a listening socket behind the veth pair.
    pub fn far_tcp(&self) -> Result<TcpListener, Error> {
        let address = self.far_address();
        self.in_far(move || TcpListener::bind((address, 0)))
    }

    /// IPv4 address of the far end of the veth pair.
    pub fn far_address(&self) -> Ipv4Addr {
        if self.own { VETH.address(2) } else { Ipv4Addr::LOCALHOST }
    }
}

impl Far {
    /// Waits for `unshare`, which makes the namespace some time after its start.
    fn wait_for_namespace(&self) -> Result<(), Error> {
        let link = |id: &str| std::fs::read_link(format!("/proc/{id}/ns/net"));
        let id = self.holder.id().to_string();
        for _ in 0..NAMESPACE_LOOKS {
            if let (Ok(own), Ok(there)) = (link("self"), link(&id))
                && own != there
            {
                return Ok(());
            }
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
        Err(Error::Unavailable {
            need: "a second network namespace",
            found: "unshare --net made none; see user.max_net_namespaces".to_owned(),
        })
    }

    fn ip(&self, arguments: &[&str]) -> Result<(), Error> {
        self.call("ip", arguments)
    }

    fn call(&self, program: &str, arguments: &[&str]) -> Result<(), Error> {
        let id = self.holder.id().to_string();
        let enter = ["--target", &id, "--net", "--", program];
        call("nsenter", &[&enter, arguments].concat())
    }
}

impl Drop for Far {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

/// A device made here and its network: 10.99.`number`.0/24, in which this end is .1.
struct Made {
    device: &'static str,
    number: u8,
}

impl Made {
    const fn address(&self, host: u8) -> Ipv4Addr {
        Ipv4Addr::new(10, 99, self.number, host)
    }

    fn sink(&self) -> SocketAddr {
        SocketAddr::new(IpAddr::V4(self.address(2)), SINK_PORT)
    }
}

/// Returns the name of a sink's device in `ip link`.
pub fn device(sink: &Sink) -> &str {
    match sink {
        Sink::IfbSoftware => SOFTWARE.device,
        Sink::IfbDevice => DEVICE.device,
        Sink::Veth => VETH.device,
        Sink::Interface(name, _) => name,
    }
}

fn make_ifb(made: Made, gso_max_segs: Option<&str>, queues: usize) -> Result<SocketAddr, Error> {
    let device = made.device;
    // /sys is unusable here: it shows the namespace that it was mounted in.
    if ip(&["link", "show", "dev", device]).is_ok() {
        return Ok(made.sink());
    }
    ip(&["link", "add", device, "numtxqueues", &queues.to_string(), "type", "ifb"])?;
    if let Some(segments) = gso_max_segs {
        ip(&["link", "set", "dev", device, "gso_max_segs", segments])?;
    }
    // Otherwise the kernel sends IPv6 router solicitations, and the device counts them.
    ip(&["link", "set", "dev", device, "addrgenmode", "none"])?;
    ip(&["addr", "add", &format!("{}/24", made.address(1)), "dev", device])?;
    ip(&["link", "set", device, "up"])?;
    neighbour(&made)?;
    Ok(made.sink())
}

/// Adds a permanent neighbour entry: a sink does not answer ARP.
fn neighbour(made: &Made) -> Result<(), Error> {
    let (there, hardware) = (made.address(2).to_string(), hardware(made.number, 2));
    ip(&["neigh", "replace", &there, "lladdr", &hardware, "dev", made.device, "nud", "permanent"])
}

fn hardware(network: u8, host: u8) -> String {
    format!("02:00:00:63:{network:02x}:{host:02x}")
}

/// Checks that `to` is routed by that device, so that no load leaves by another one.
fn check_route(name: &str, to: Ipv4Addr) -> Result<SocketAddr, Error> {
    let address = to.to_string();
    let output = Command::new("ip")
        .args(["-json", "route", "get", &address])
        .output()
        .map_err(Error::host("ip route get"))?;
    let routes: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    match routes[0]["dev"].as_str() {
        Some(device) if device == name => Ok(SocketAddr::new(to.into(), SINK_PORT)),
        found => Err(Error::Caller {
            what: format!("interface {name}, address {to}"),
            found: format!(
                "the route to {to} leads by {}; write an address behind {name}",
                found.unwrap_or("no device")
            ),
        }),
    }
}

/// Returns the MTU of a sink's device; Ethernet's where it is unknown.
pub fn mtu_bytes(sink: &Sink) -> u32 {
    let file = format!("/sys/class/net/{}/mtu", device(sink));
    let found = std::fs::read_to_string(file).ok().and_then(|text| text.trim().parse().ok());
    match sink {
        Sink::Interface(..) => found.unwrap_or(MTU_BYTES),
        // Devices made here have this MTU, and /sys may show another namespace.
        _ => MTU_BYTES,
    }
}

/// Returns packets and bytes that a sink's device has accepted so far: proof that they were sent.
pub fn sink_counts(sink: &Sink) -> Result<(u64, u64), Error> {
    let device = device(sink);
    // An ifb device counts packets that it is to transmit as received.
    let column = if matches!(sink, Sink::IfbSoftware | Sink::IfbDevice) { 0 } else { 8 };
    let table = std::fs::read_to_string("/proc/thread-self/net/dev")
        .map_err(Error::host("/proc/thread-self/net/dev"))?;
    let line = table.lines().find_map(|line| line.trim().strip_prefix(device)?.strip_prefix(':'));
    let columns: Vec<u64> =
        line.unwrap_or("").split_whitespace().filter_map(|word| word.parse().ok()).collect();
    match (columns.get(column), columns.get(column + 1)) {
        (Some(&bytes), Some(&packets)) => Ok((packets, bytes)),
        _ => Err(Error::Host {
            what: format!("counters of {device} in /proc/thread-self/net/dev"),
            found: "no such line; the device is gone".to_owned(),
        }),
    }
}

fn ip(arguments: &[&str]) -> Result<(), Error> {
    call("ip", arguments)
}

fn call(program: &'static str, arguments: &[&str]) -> Result<(), Error> {
    let output = Command::new(program).args(arguments).output();
    let output = output.map_err(|error| Error::Unavailable {
        need: "the programs ip and tc (iproute2), nsenter (util-linux) and ethtool",
        found: format!("{program}: {error}; install iproute2, util-linux and ethtool"),
    })?;
    if output.status.success() {
        return Ok(());
    }
    Err(Error::Host {
        what: format!("{program} {}", arguments.join(" ")),
        found: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
    })
}

const SOFTWARE: Made = Made { device: "software", number: 1 };
const DEVICE: Made = Made { device: "device", number: 2 };
const VETH: Made = Made { device: "near", number: 3 };
/// The far end of the veth pair.
const FAR_DEVICE: &str = "far";
/// MTU of Ethernet, and of the devices made here.
pub const MTU_BYTES: u32 = 1500;
const SINK_PORT: u16 = 5004;
/// Tries of two milliseconds each.
const NAMESPACE_LOOKS: u32 = 1000;
