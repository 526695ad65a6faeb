// SPDX-License-Identifier: MIT OR Apache-2.0
//! Choice of the receive path: the first preferred one that this host grants for all ports.
//!
//! `auto` means the socket paths, ordered by their CPU cost on this machine ([`ReceiveCost`], from
//! a calibration). A receiver cannot predict its senders, so GSO batches and single packets have
//! equal weight: each cost is divided by the lowest cost for that way of sending, and the smallest
//! sum wins. Without costs the order is [`AUTO`], that of a machine measured before. Paths that
//! read frames from the device (`packet_ring`, `xdp`) bypass the firewall and are used only when
//! named.
//!
//! A refused path (missing privilege, old kernel, unsuitable device) is reported with the reason,
//! and the next is tried.
//!
//! Sources: `pagewire lab receive`.
//! Does not measure (the calibration does).

use paths::{Host, Port, ReceivePath, ReceiveSpec, Via, find_receive};

use crate::error::{Error, PathRefusal, RecordSetting, RefusedPath};

/// CPU cost of a receive path on this machine.
#[derive(Debug, Clone)]
pub struct ReceiveCost {
    /// Name of the path.
    pub path: String,
    /// CPU seconds of both ends per 10⁹ bytes, one figure for each way of sending.
    pub seconds_per_gb: Vec<f64>,
}

/// Order of `auto` without costs, best first: fewest system calls and traversals of the stack for
/// the same bytes.
const AUTO: &[&str] = &["recvmmsg_gro", "recvmmsg", "recvfrom"];

/// A granted path.
pub(crate) struct ChosenPath {
    pub(crate) spec: &'static ReceiveSpec,
    pub(crate) path: Box<dyn ReceivePath>,
    /// Paths that were tried before it and refused.
    pub(crate) refused: Vec<RefusedPath>,
}

/// Returns the paths of a list such as `xdp,recvmmsg` or `auto`, followed by the other paths of
/// `auto`.
pub(crate) fn wanted(
    list: &str,
    costs: &[ReceiveCost],
) -> Result<Vec<&'static ReceiveSpec>, Error> {
    let mut specs: Vec<&'static ReceiveSpec> = Vec::new();
    let names = list.split(',').map(str::trim).filter(|name| *name != "auto");
    for name in names {
        specs.push(find_receive(name).ok_or_else(|| unknown(list))?);
    }
    // Unmeasured paths follow at the end: the host may still grant them.
    let usual = AUTO.iter().filter_map(|name| find_receive(name));
    for spec in ranked(costs).into_iter().chain(usual) {
        if !specs.iter().any(|known| known.name == spec.name) {
            specs.push(spec);
        }
    }
    Ok(specs)
}

/// Returns the socket paths that have costs, cheapest first.
fn ranked(costs: &[ReceiveCost]) -> Vec<&'static ReceiveSpec> {
    let by_socket = |known_cost: &ReceiveCost| {
        find_receive(&known_cost.path).filter(|spec| spec.via == Via::Socket)
    };
    let known = costs.iter().filter(|known_cost| !known_cost.seconds_per_gb.is_empty());
    let known: Vec<_> =
        known.filter_map(|known_cost| Some((by_socket(known_cost)?, known_cost))).collect();
    let lowest = |sending: usize| {
        let costs =
            known.iter().filter_map(|(_, known_cost)| known_cost.seconds_per_gb.get(sending));
        costs.copied().fold(f64::INFINITY, f64::min)
    };
    let relative = |known_cost: &ReceiveCost| -> f64 {
        (0..).zip(&known_cost.seconds_per_gb).map(|(sending, cost)| cost / lowest(sending)).sum()
    };
    let mut ranked: Vec<_> =
        known.iter().map(|(spec, known_cost)| (relative(known_cost), *spec)).collect();
    ranked.sort_by(|a, b| a.0.total_cmp(&b.0));
    for (spec, known_cost) in &known {
        let costs: Vec<String> =
            known_cost.seconds_per_gb.iter().map(|s| format!("{s:.3}")).collect();
        tracing::info!("{spec}: {} CPU seconds per GB, by way of sending", costs.join(" and "));
    }
    ranked.into_iter().map(|(_, spec)| spec).collect()
}

fn unknown(list: &str) -> Error {
    let known: Vec<&str> = paths::RECEIVE_PATHS.iter().map(|spec| spec.name).collect();
    Error::Setting {
        setting: RecordSetting::Path,
        found: list.to_owned(),
        cure: format!("write auto or one of {}", known.join(", ")),
    }
}

/// Opens the first path that accepts all ports.
pub(crate) fn choose(
    wanted: &[&'static ReceiveSpec],
    ports: &[(u32, &Port)],
) -> Result<ChosenPath, Error> {
    let host = Host::here();
    let mut refused = Vec::new();
    for spec in wanted {
        if let Err(unavailable) = (spec.probe)(&host) {
            let reason = PathRefusal::Unavailable(unavailable);
            refused.push(RefusedPath { path: spec, reason });
            continue;
        }
        match open(spec, ports) {
            Ok(path) => return Ok(ChosenPath { spec, path, refused }),
            Err(error) => {
                refused.push(RefusedPath { path: spec, reason: PathRefusal::Failed(error) });
            }
        }
    }
    Err(Error::NoPath(refused.pop().expect("AUTO names paths that are built in")))
}

fn open(spec: &ReceiveSpec, ports: &[(u32, &Port)]) -> Result<Box<dyn ReceivePath>, paths::Error> {
    let mut path = (spec.open)()?;
    for (key, port) in ports {
        path.add(port, *key)?;
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(list: &str) -> Vec<&'static str> {
        wanted(list, &[]).unwrap().iter().map(|spec| spec.name).collect()
    }

    #[test]
    fn what_is_named_comes_first_and_the_rest_behind() {
        assert_eq!(names("recvfrom")[..2], ["recvfrom", names("auto")[0]]);
        assert_eq!(names("auto").last(), Some(&"recvfrom"));
        let error = wanted("teleport", &[]).unwrap_err();
        assert!(error.is_caller());
        assert!(error.to_string().starts_with("receive path: teleport; write auto or one of "));
    }

    #[test]
    fn auto_never_takes_what_is_dearer_here() {
        let known_cost = |path: &str, seconds_per_gb: [f64; 2]| ReceiveCost {
            path: path.to_owned(),
            seconds_per_gb: seconds_per_gb.to_vec(),
        };
        let costs = [
            known_cost("recvmmsg_gro", [0.2, 1.9]),
            known_cost("recvmmsg", [0.6, 1.2]),
            known_cost("uring_multishot", [0.18, 1.6]),
            known_cost("xdp", [0.01, 0.01]),
        ];
        let order = |list: &str| -> Vec<&str> {
            wanted(list, &costs).unwrap().iter().map(|spec| spec.name).collect()
        };
        let measured = ["uring_multishot", "recvmmsg_gro", "recvmmsg", "recvfrom"];
        assert_eq!(order("auto"), measured);
        assert_eq!(order("xdp,auto")[..2], ["xdp", "uring_multishot"]);
        assert_eq!(names("auto"), AUTO);
    }

    #[test]
    fn an_address_of_another_host_is_told() {
        // TEST-NET-1 (RFC 5737) belongs to no host.
        let address = "192.0.2.1:5004".parse().unwrap();
        let port = Port { address, sources: Vec::new(), interface: None, buffer_bytes: 0 };
        let error = choose(&wanted("auto", &[]).unwrap(), &[(0, &port)]).map(|_| ()).unwrap_err();
        let message = error.to_string();
        assert!(message.contains("bind on 192.0.2.1:5004: "), "{message}");
        assert!(message.contains("that address: write one that `ip address` lists"), "{message}");

        let address = "127.0.0.1:0".parse().unwrap();
        let interface = Some("eth-none".to_owned());
        let port = Port { address, sources: Vec::new(), interface, buffer_bytes: 0 };
        let error = choose(&wanted("auto", &[]).unwrap(), &[(0, &port)]).map(|_| ()).unwrap_err();
        let message = error.to_string();
        assert!(message.ends_with("interface=NAME with a name that `ip link` lists"), "{message}");
    }
}
