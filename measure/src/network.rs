// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sinks: where the laboratory sends, made in a network namespace of its own and gone with it.
//!
//! An `ifb` device takes a packet at its driver's entry and drops it, so that what is measured is
//! sending and nothing else. It advertises UDP segmentation and swallows a super-packet whole,
//! which is what a card that segments costs the processor; with `gso_max_segs 1` the kernel
//! segments before the device, as for a card that cannot. A `veth` pair leads to sockets in a
//! second namespace, where every byte is checked; those sockets belong to this process, so that a
//! test needs no second program.
//!
//! Nothing here needs root: the program runs itself again by `unshare(1)`, where it may make
//! devices. Costs some twenty short programs (`ip`, `nsenter`) a run, all before the first figure.
//!
//! Sources: unshare(1), user_namespaces(7), ip-link(8), ip-neighbour(8), setns(2); Linux 6.18
//! `drivers/net/ifb.c` (`ifb_xmit`), `net/core/dev.c` (`gso_features_check`).
//! Does not do: namespaces by its own system calls; that would need `unsafe` and a process of one
//! thread. `unshare` of util-linux is on every Linux.

use std::fs::File;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::error::Error;

/// Where datagrams go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sink {
    /// An ifb device that cannot segment: the kernel does.
    IfbSoftware,
    /// An ifb device that swallows super-packets: a model of one that segments.
    IfbDevice,
    /// A veth pair to verifying sockets in a second namespace.
    Veth,
    /// A device of this machine, by name; needs a route by it to the address.
    Interface(String, Ipv4Addr),
}

impl Sink {
    /// The three that need no hardware.
    pub const MADE: [Self; 3] = [Self::IfbSoftware, Self::IfbDevice, Self::Veth];

    /// Its name on the command line and in results.
    pub fn name(&self) -> &str {
        match self {
            Self::IfbSoftware => "ifb-software",
            Self::IfbDevice => "ifb-device",
            Self::Veth => "veth",
            Self::Interface(name, _) => name,
        }
    }
}

/// The program that runs another in new namespaces: without user namespace for root, who needs none
/// and keeps all rights; with one for others, or where root may not.
///
/// # Errors
/// [`Error::Unavailable`] with what the host says and what to allow.
pub fn private() -> Result<Command, Error> {
    let kinds: [&[&str]; 2] = [&["--net", "--"], &["--user", "--map-root-user", "--net", "--"]];
    let first = usize::from(!rustix::process::geteuid().is_root());
    let mut said = String::new();
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
        said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    }
    Err(Error::Unavailable {
        need: "a network namespace of its own",
        found: format!(
            "{said}; run as root, or allow unprivileged user namespaces \
             (kernel.unprivileged_userns_clone, kernel.apparmor_restrict_unprivileged_userns, \
             user.max_net_namespaces)"
        ),
    })
}

/// The devices of a run.
pub struct Network {
    /// Whether this process is in a namespace of its own; the machine's own has no device added.
    own: bool,
    far: Option<Far>,
}

/// The second namespace.
struct Far {
    /// Keeps the namespace while it is set up; sockets keep it afterwards.
    holder: Child,
}

impl Network {
    /// Inside a new namespace: brings up loopback.
    pub fn new() -> Result<Network, Error> {
        ip(&["link", "set", "lo", "up"])?;
        Ok(Network { own: true, far: None })
    }

    /// The machine's own network, to measure a real card: nothing is made, and what is verified
    /// goes over loopback.
    pub fn of_machine() -> Network {
        Network { own: false, far: None }
    }

    /// Makes a sink's device, unless it is there; returns where to send to.
    pub fn make(&mut self, sink: &Sink) -> Result<SocketAddr, Error> {
        match sink {
            // Its users ask for the far end, which loopback stands in for.
            Sink::Veth if !self.own => Ok(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), SINK_PORT)),
            Sink::IfbSoftware => make_ifb(SOFTWARE, Some("1"), 1),
            Sink::IfbDevice => make_ifb(DEVICE, None, 1),
            Sink::Veth => self.make_veth(),
            Sink::Interface(name, to) => check_route(name, *to),
        }
    }

    /// The near end of the veth pair, where a server may listen.
    pub const NEAR: Ipv4Addr = VETH.address(1);
    /// A far address whose datagrams come through the veth pair.
    pub const SAMPLED: Ipv4Addr = VETH.address(2);
    /// A far address whose RTP ends in the sink; everything else comes through the veth pair.
    pub const SUNK: Ipv4Addr = VETH.address(3);

    /// For a server with many clients: what it sends from `rtp_port` to [`Network::SUNK`] goes into
    /// the ifb device that cannot segment, by a policy rule. To the sockets nothing of it shows.
    /// The sink has a queue a core, as cards have: with one, a core that sends leaves its packets
    /// to whichever holds the queue, and that one to ksoftirqd.
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

    /// A command that runs `program` in the second namespace.
    pub fn far_command(&self, program: &std::path::Path) -> Command {
        let far = self.far.as_ref().expect("the veth pair is made first");
        let id = far.holder.id().to_string();
        let mut command = Command::new("nsenter");
        command.args(["--target", &id, "--net", "--"]).arg(program);
        command
    }

    /// Where a sink is that has been made.
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
                // Ends when this process does, however that ends; not by the terminal's Ctrl-C.
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
            let (near, there) = (VETH.device, "far");
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

    /// Makes a socket of the second namespace: `make` runs there.
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
                // The thread ends with its namespace; the others never leave theirs.
                let kind = Some(LinkNameSpaceType::Network);
                move_into_link_name_space(namespace.as_fd(), kind)?;
                make()
            });
            thread.join().expect("it does not panic")
        });
        made.map_err(Error::host("a socket in the second namespace"))
    }

    /// A datagram socket behind the veth pair.
    pub fn far_udp(&self, port: u16) -> Result<UdpSocket, Error> {
        let address = self.far_address();
        self.in_far(move || UdpSocket::bind((address, port)))
    }

    /// A listening socket behind the veth pair.
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
    /// `unshare` makes the namespace a moment after it was started.
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
        let id = self.holder.id().to_string();
        let enter = ["--target", &id, "--net", "--", "ip"];
        call("nsenter", &[&enter, arguments].concat())
    }
}

impl Drop for Far {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

/// A device of ours and its network: number 10.99.n.0/24, ours is .1.
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

/// The device of a sink, as `ip link` calls it.
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
    // Not by /sys, which shows the namespace it was mounted in.
    if ip(&["link", "show", "dev", device]).is_ok() {
        return Ok(made.sink());
    }
    ip(&["link", "add", device, "numtxqueues", &queues.to_string(), "type", "ifb"])?;
    if let Some(segments) = gso_max_segs {
        ip(&["link", "set", "dev", device, "gso_max_segs", segments])?;
    }
    // Without it the kernel asks for IPv6 routers now and then, and the device counts that.
    ip(&["link", "set", "dev", device, "addrgenmode", "none"])?;
    ip(&["addr", "add", &format!("{}/24", made.address(1)), "dev", device])?;
    ip(&["link", "set", device, "up"])?;
    neighbour(&made)?;
    Ok(made.sink())
}

/// A permanent entry: a sink answers no question.
fn neighbour(made: &Made) -> Result<(), Error> {
    let (there, hardware) = (made.address(2).to_string(), hardware(made.number, 2));
    ip(&["neigh", "replace", &there, "lladdr", &hardware, "dev", made.device, "nud", "permanent"])
}

fn hardware(network: u8, host: u8) -> String {
    format!("02:00:00:63:{network:02x}:{host:02x}")
}

/// That `to` is reached by that device and no other: load goes nowhere it was not sent.
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

/// The largest IP packet of a sink's device; Ethernet's where it does not say.
pub fn mtu_bytes(sink: &Sink) -> u32 {
    let file = format!("/sys/class/net/{}/mtu", device(sink));
    let found = std::fs::read_to_string(file).ok().and_then(|text| text.trim().parse().ok());
    match sink {
        Sink::Interface(..) => found.unwrap_or(MTU_BYTES),
        // Made here; and what /sys shows may be another namespace's.
        _ => MTU_BYTES,
    }
}

/// Packets and bytes that a sink's device was given so far: proof that they were sent.
pub fn taken(sink: &Sink) -> Result<(u64, u64), Error> {
    let device = device(sink);
    // What an ifb device is given to transmit it counts as received.
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
        need: "the programs ip (iproute2) and nsenter (util-linux)",
        found: format!("{program}: {error}; install iproute2 and util-linux"),
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
/// Ethernet's, and that of the devices made here.
pub const MTU_BYTES: u32 = 1500;
const SINK_PORT: u16 = 5004;
/// Two milliseconds each.
const NAMESPACE_LOOKS: u32 = 1000;
