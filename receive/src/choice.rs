// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which way of receiving is taken: the first of those wanted that this host grants for all ports.
//!
//! A way that is refused (no right, an old kernel, a device that will not do) is named with the
//! reason and the next is tried; what a recording uses is never a guess.
//!
//! Does not do: measure (`pagewire lab receive` does).

use paths::{Host, Port, ReceivePath, ReceiveSpec, find_receive};

use crate::error::Error;

/// What `auto` tries, best first: fewest system calls and traversals of the stack for the same
/// bytes.
const AUTO: &[&str] = &["recvmmsg_gro", "recvmmsg", "recvfrom"];

/// A way that was granted.
pub(crate) struct Choice {
    pub(crate) spec: &'static ReceiveSpec,
    pub(crate) path: Box<dyn ReceivePath>,
    /// Those that were not, and why.
    pub(crate) refused: Vec<String>,
}

/// The names of a list such as `xdp,recvmmsg` or `auto`, as members, what `auto` would try behind.
pub(crate) fn wanted(list: &str) -> Result<Vec<&'static ReceiveSpec>, Error> {
    let mut specs: Vec<&'static ReceiveSpec> = Vec::new();
    let names = list.split(',').map(str::trim).filter(|name| *name != "auto");
    for name in names {
        specs.push(find_receive(name).ok_or_else(|| unknown(list))?);
    }
    for spec in AUTO.iter().filter_map(|name| find_receive(name)) {
        if !specs.iter().any(|known| known.name == spec.name) {
            specs.push(spec);
        }
    }
    Ok(specs)
}

fn unknown(list: &str) -> Error {
    let known: Vec<&str> = paths::RECEIVE_PATHS.iter().map(|spec| spec.name).collect();
    Error::Option {
        option: "--path",
        found: list.to_owned(),
        cure: format!("write auto or one of {}", known.join(", ")),
    }
}

/// Opens the first that takes all ports.
pub(crate) fn choose(
    wanted: &[&'static ReceiveSpec],
    ports: &[(u32, &Port)],
) -> Result<Choice, Error> {
    let host = Host::here();
    let mut refused = Vec::new();
    for spec in wanted {
        if let Err(unavailable) = (spec.probe)(&host) {
            refused.push(format!("{spec}: {unavailable}"));
            continue;
        }
        match open(spec, ports) {
            Ok(path) => return Ok(Choice { spec, path, refused }),
            Err(error) => refused.push(format!("{spec}: {error}")),
        }
    }
    // What the plainest was refused for is what is in the way of all.
    Err(Error::Path(refused.pop().unwrap_or_else(|| "no way to receive is built in".to_owned())))
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
        wanted(list).unwrap().iter().map(|spec| spec.name).collect()
    }

    #[test]
    fn what_is_named_comes_first_and_the_rest_behind() {
        assert_eq!(names("recvfrom")[..2], ["recvfrom", names("auto")[0]]);
        assert_eq!(names("auto").last(), Some(&"recvfrom"));
        let error = wanted("teleport").unwrap_err();
        assert!(error.is_caller());
        assert!(error.to_string().starts_with("--path: teleport; write auto or one of "));
    }

    #[test]
    fn an_address_of_another_host_is_told() {
        // TEST-NET-1, RFC 5737: nobody's.
        let address = "192.0.2.1:5004".parse().unwrap();
        let port = Port { address, sources: Vec::new(), interface: None, buffer_bytes: 0 };
        let error = choose(&wanted("auto").unwrap(), &[(0, &port)]).map(|_| ()).unwrap_err();
        let said = error.to_string();
        assert!(said.contains("bind on 192.0.2.1:5004: "), "{said}");
    }
}
