// SPDX-License-Identifier: MIT OR Apache-2.0
//! A network of one's own: the experiment is run again by a child in new user and network
//! namespaces, where it may make devices without being root anywhere else, and everything is gone
//! when it ends.
//!
//! The sink is an `ifb` device: it takes a packet at its driver's entry and drops it, so that what
//! is measured is sending and nothing else. It advertises UDP segmentation and would swallow a
//! super-packet whole; `gso_max_segs 1` makes the kernel segment in software before the device, as
//! for a card that cannot.
//!
//! Sources: unshare(1), user_namespaces(7), ip-link(8).
//! Does not do: user namespaces by its own system calls; that would need `unsafe`, and a process of
//! one thread. `unshare` of util-linux is on every Linux.

use std::io::Read;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Command, Stdio};

use crate::error::Error;
use crate::table::Table;

/// Where the sink's neighbour would be.
pub(crate) const SINK: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 2);

/// Runs this program again, with these arguments, in its own namespaces; its standard output is the
/// table.
pub(crate) fn run_again(arguments: &[String]) -> Result<Table, Error> {
    let program = std::env::current_exe().map_err(Error::host("the path of this program"))?;
    let mut child = Command::new("unshare")
        .args(["--user", "--map-root-user", "--net", "--"])
        .arg(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| Error::Unavailable {
            need: "the program unshare (util-linux)",
            found: format!("{error}; install util-linux"),
        })?;
    let mut output = String::new();
    let stdout = child.stdout.as_mut().expect("it is piped");
    stdout.read_to_string(&mut output).map_err(Error::host("reading the child's table"))?;
    let finished = child.wait_with_output().map_err(Error::host("waiting for the child"))?;
    if !finished.status.success() {
        let said = String::from_utf8_lossy(&finished.stderr).trim().to_owned();
        return Err(Error::Unavailable {
            need: "user and network namespaces, and ip (iproute2)",
            found: format!(
                "the child said: {said}; allow unprivileged user namespaces \
                 (kernel.unprivileged_userns_clone, AppArmor) or run as root"
            ),
        });
    }
    serde_json::from_str(&output).map_err(|error| Error::Host {
        what: "the child's table".to_owned(),
        found: error.to_string(),
    })
}

/// Inside: brings up loopback and the sink. Returns the sink's address.
pub(crate) fn make_sink() -> Result<SocketAddr, Error> {
    ip(&["link", "set", "lo", "up"])?;
    ip(&["link", "add", "sink", "type", "ifb"])?;
    ip(&["link", "set", "dev", "sink", "gso_max_segs", "1"])?;
    ip(&["addr", "add", "10.99.0.1/24", "dev", "sink"])?;
    ip(&["link", "set", "sink", "up"])?;
    let neighbour = SINK.to_string();
    let hardware = "02:00:00:00:00:02";
    ip(&["neigh", "add", &neighbour, "lladdr", hardware, "dev", "sink", "nud", "permanent"])?;
    Ok(SocketAddr::new(SINK.into(), SINK_PORT))
}

/// Packets the sink took and dropped so far: proof that they were sent.
pub(crate) fn sunk_packets() -> Result<u64, Error> {
    let listed = Command::new("ip")
        .args(["-json", "-stats", "link", "show", "dev", "sink"])
        .output()
        .map_err(Error::host("ip -stats link show sink"))?;
    let facts: serde_json::Value = serde_json::from_slice(&listed.stdout).map_err(|error| {
        Error::Host { what: "ip -json -stats link show sink".to_owned(), found: error.to_string() }
    })?;
    // What an ifb device is given to transmit it counts as received.
    Ok(facts[0]["stats64"]["rx"]["packets"].as_u64().unwrap_or(0))
}

fn ip(arguments: &[&str]) -> Result<(), Error> {
    let output =
        Command::new("ip").args(arguments).output().map_err(|error| Error::Unavailable {
            need: "the program ip (iproute2)",
            found: format!("{error}; install iproute2"),
        })?;
    if output.status.success() {
        return Ok(());
    }
    Err(Error::Host {
        what: format!("ip {}", arguments.join(" ")),
        found: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
    })
}

const SINK_PORT: u16 = 5004;
