// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds the server's processes, where they run on this machine and are visible to this user: their
//! CPU time is then measured and not inferred.
//!
//! They are the processes that hold the listening socket of the sessions, a master and its workers:
//! the kernel's table of TCP sockets contains the socket, and the descriptors of the processes
//! identify its holders. A server of another user or in another network namespace is not found.
//!
//! Sources: proc(5) /proc/net/tcp, /proc/PID/fd, /proc/PID/stat (utime, stime). Of workers with
//! listening sockets of their own (SO_REUSEPORT), finds only the first.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};

/// The processes of a server.
#[derive(Debug)]
pub(super) struct ServerProcess {
    stats: Vec<PathBuf>,
    /// CPU seconds when they were found.
    before: f64,
}

impl ServerProcess {
    /// Finds the processes that listen at this address, on this machine.
    pub(super) fn listening_at(address: SocketAddr) -> Option<ServerProcess> {
        let inode = ["/proc/net/tcp", "/proc/net/tcp6"].iter().find_map(|table| {
            let table = std::fs::read_to_string(table).ok()?;
            table.lines().skip(1).find_map(|line| listener(line, address))
        })?;
        let socket = format!("socket:[{inode}]");
        let all = std::fs::read_dir("/proc").ok()?.filter_map(Result::ok);
        // Only numeric names: `self` is a process too.
        let processes = all.filter(|it| it.file_name().to_str().is_some_and(is_number));
        let holders = processes.map(|it| it.path()).filter(|process| holds(process, &socket));
        let stats: Vec<_> = holders.map(|process| process.join("stat")).collect();
        let before = sum_of(&stats).filter(|_| !stats.is_empty())?;
        Some(ServerProcess { stats, before })
    }

    /// CPU seconds, user and system, since they were found; none if one process has ended.
    pub(super) fn seconds_since(&self) -> Option<f64> {
        Some((sum_of(&self.stats)? - self.before).max(0.0))
    }
}

/// Returns the inode of the line's socket if it listens at the address.
fn listener(line: &str, address: SocketAddr) -> Option<u64> {
    let mut words = line.split_ascii_whitespace().skip(1);
    let (host, port) = words.next()?.split_once(':')?;
    let state = words.nth(1)?;
    let inode = words.nth(5)?.parse().ok()?;
    let is_its_port = u16::from_str_radix(port, 16) == Ok(address.port());
    let host = host_of(host)?.to_canonical();
    let is_its_host = host.is_unspecified() || host == address.ip().to_canonical();
    (state == LISTEN && is_its_port && is_its_host).then_some(inode)
}

/// Parses words of 32 bits in host byte order, in which the kernel prints an address stored in
/// network order.
fn host_of(text: &str) -> Option<IpAddr> {
    let word = |at: usize| {
        let word = u32::from_str_radix(text.get(at * 8..at * 8 + 8)?, 16).ok()?;
        Some(word.to_ne_bytes())
    };
    match text.len() {
        8 => Some(Ipv4Addr::from(word(0)?).into()),
        32 => {
            let words = [word(0)?, word(1)?, word(2)?, word(3)?];
            let bytes: [u8; 16] = words.concat().try_into().ok()?;
            Some(Ipv6Addr::from(bytes).into())
        }
        _ => None,
    }
}

fn is_number(name: &str) -> bool {
    name.bytes().all(|byte| byte.is_ascii_digit())
}

fn holds(process: &Path, socket: &str) -> bool {
    let Ok(descriptors) = std::fs::read_dir(process.join("fd")) else { return false };
    descriptors.filter_map(Result::ok).any(|descriptor| {
        std::fs::read_link(descriptor.path()).is_ok_and(|link| link.as_os_str() == socket)
    })
}

fn sum_of(stats: &[PathBuf]) -> Option<f64> {
    stats.iter().map(|stat| processor_seconds(stat)).sum()
}

fn processor_seconds(stat: &Path) -> Option<f64> {
    seconds_of(&std::fs::read_to_string(stat).ok()?, rustix::param::clock_ticks_per_second())
}

fn seconds_of(stat: &str, ticks_per_second: u64) -> Option<f64> {
    // The name in brackets may contain any character, including brackets and spaces.
    let (_, rest) = stat.rsplit_once(')')?;
    let mut words = rest.split_ascii_whitespace().skip(11);
    let (user, system) = (words.next()?.parse::<u64>().ok()?, words.next()?.parse::<u64>().ok()?);
    Some((user + system) as f64 / ticks_per_second.max(1) as f64)
}

/// include/net/tcp_states.h: TCP_LISTEN.
const LISTEN: &str = "0A";

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn this_process_is_found_by_its_listener() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let found = ServerProcess::listening_at(listener.local_addr().unwrap()).unwrap();
        let own = std::fs::canonicalize("/proc/self").unwrap().join("stat");
        assert!(found.stats.contains(&own), "{found:?}");
        assert!(found.seconds_since().is_some());
        let everywhere = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
        let port = everywhere.local_addr().unwrap().port();
        assert!(ServerProcess::listening_at((Ipv4Addr::LOCALHOST, port).into()).is_some());
        let (_held, nobody) = crate::trial_sockets::nobody();
        assert!(ServerProcess::listening_at(nobody).is_none());
    }

    #[test]
    fn the_kernels_table_is_read() {
        let line = "   0: 0100007F:213A 00000000:0000 0A 00000000:00000000 00:00000000 00000000  \
            1000        0 4711 1 0000000000000000 100 0 0 10 0";
        let line = if cfg!(target_endian = "big") {
            line.replace("0100007F", "7F000001")
        } else {
            line.to_owned()
        };
        let at = |host: &str, port| listener(&line, SocketAddr::new(host.parse().unwrap(), port));
        assert_eq!(at("127.0.0.1", 8506), Some(4711));
        assert_eq!(at("::ffff:127.0.0.1", 8506), Some(4711));
        assert_eq!(at("127.0.0.1", 8507), None);
        assert_eq!(at("10.0.0.1", 8506), None);
        let connected = line.replace(" 0A ", " 01 ");
        assert_eq!(listener(&connected, ([127, 0, 0, 1], 8506).into()), None);
        assert_eq!(listener("nonsense", ([127, 0, 0, 1], 8506).into()), None);
    }

    #[test]
    fn a_process_with_an_odd_name_is_read() {
        let stat = "5 (a) (b c) S 1 5 5 0 -1 4194560 1 2 3 4 150 250 6 7 20 0 3";
        assert_eq!(seconds_of(stat, 100), Some(4.0));
        assert_eq!(seconds_of("5 (a", 100), None);
    }
}
