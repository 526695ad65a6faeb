// SPDX-License-Identifier: MIT OR Apache-2.0
//! Listening sockets from a service manager, as systemd passes them.
//!
//! `LISTEN_PID` is the process they are for, `LISTEN_FDS` their number, from descriptor 3 on, and
//! `LISTEN_FDNAMES` their names, with colons between. Each is checked: it must be a listening TCP
//! socket with a name that a server uses, and no name may occur twice.
//!
//! Sources: sd_listen_fds(3); systemd.socket(5).
//! Does not remove the variables from the environment; callers that start programs omit them.

use std::ffi::OsString;
use std::net::TcpListener;
use std::os::fd::{AsFd, OwnedFd, RawFd};

use rustix::net::sockopt::{socket_acceptconn, socket_domain, socket_type};
use rustix::net::{AddressFamily, SocketType};

use super::{ListenerName, ListeningSockets};
use crate::error::Error;

impl ListeningSockets {
    /// Adopts the sockets that a service manager has opened for this process; none without one.
    /// Must be called once, before the process starts others.
    ///
    /// # Errors
    /// [`Error::Option`]: a descriptor does not exist, is no listening TCP socket, or has a name
    /// without a use.
    pub fn from_manager() -> Result<ListeningSockets, Error> {
        let variable = |name| std::env::var_os(name).map(OsString::into_string);
        let text = |name| variable(name).and_then(Result::ok);
        // The variables may be inherited and meant for another process.
        let own = std::process::id().to_string();
        if text("LISTEN_PID").as_deref() != Some(own.as_str()) {
            return Ok(ListeningSockets::default());
        }
        let count = text(COUNT).unwrap_or_default();
        let names = text(NAMES).unwrap_or_default();
        let mut sockets = ListeningSockets::default();
        for (number, name) in numbered(&count, &names)? {
            let inherited = paths::take_inherited(number).map_err(|error| Error::Option {
                option: COUNT,
                found: format!("descriptor {number}: {error}"),
                cure: "the service manager has to pass it on; remove the variable otherwise".into(),
            })?;
            sockets.give(name, listener(inherited, number, name)?, true);
        }
        Ok(sockets)
    }
}

/// Returns number and purpose of each descriptor.
fn numbered(count: &str, names: &str) -> Result<Vec<(RawFd, ListenerName)>, Error> {
    let found: usize =
        count.parse().ok().filter(|count| *count <= ListenerName::ALL.len()).ok_or_else(|| {
            Error::Option {
                option: COUNT,
                found: format!("{count:?}"),
                cure: format!("a server has a use for 1 to {} sockets", ListenerName::ALL.len()),
            }
        })?;
    let mut descriptors = Vec::with_capacity(found);
    let mut words = names.split(':');
    for number in FIRST..FIRST + found as RawFd {
        let word = words.next().unwrap_or_default();
        let fault = |found: String| Error::Option {
            option: NAMES,
            found,
            cure: format!(
                "write FileDescriptorName= with one of {} into the socket unit",
                ListenerName::ALL.map(ListenerName::as_str).join(", ")
            ),
        };
        let Some(name) = ListenerName::parse(word) else {
            return Err(fault(format!("descriptor {number} is named {word:?}")));
        };
        if descriptors.iter().any(|(_, other)| *other == name) {
            return Err(fault(format!("descriptor {number} is a second {word:?}")));
        }
        descriptors.push((number, name));
    }
    Ok(descriptors)
}

/// Checks that a descriptor is a TCP socket that listens.
fn listener(descriptor: OwnedFd, number: RawFd, name: ListenerName) -> Result<TcpListener, Error> {
    let socket = descriptor.as_fd();
    let is_stream = socket_type(socket) == Ok(SocketType::STREAM);
    let domain = socket_domain(socket);
    let is_internet = domain == Ok(AddressFamily::INET) || domain == Ok(AddressFamily::INET6);
    let listens = socket_acceptconn(socket) == Ok(true);
    let found = match (is_stream && is_internet, listens) {
        (false, _) => "no TCP socket",
        (true, false) => "a TCP socket that does not listen",
        (true, true) => {
            let listener = TcpListener::from(descriptor);
            let prepared = listener.set_nonblocking(true);
            return prepared.map(|()| listener).map_err(|source| Error::Host {
                call: "ioctl FIONBIO",
                object: format!("descriptor {number}"),
                source,
            });
        }
    };
    Err(Error::Option {
        option: COUNT,
        found: format!("descriptor {number}, {}: {found}", name.as_str()),
        cure: "write ListenStream= with a port, and Accept=no, into the socket unit".to_owned(),
    })
}

/// SD_LISTEN_FDS_START.
const FIRST: RawFd = 3;
const COUNT: &str = "LISTEN_FDS";
const NAMES: &str = "LISTEN_FDNAMES";

#[cfg(test)]
mod tests {
    use std::net::{TcpStream, UdpSocket};
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn descriptors_are_told_by_their_names() {
        let found = numbered("3", "http:rtsp:admin").unwrap();
        let expected = [ListenerName::Http, ListenerName::Rtsp, ListenerName::Admin];
        assert_eq!(found, [3, 4, 5].into_iter().zip(expected).collect::<Vec<_>>());
        for (count, names, words) in [
            ("", "", "LISTEN_FDS: \"\"; a server has a use for 1 to 5 sockets"),
            ("-1", "", "LISTEN_FDS: \"-1\""),
            ("6", "", "LISTEN_FDS: \"6\""),
            ("1", "", "LISTEN_FDNAMES: descriptor 3 is named \"\"; write FileDescriptorName="),
            ("2", "http:pagewire.socket", "descriptor 4 is named \"pagewire.socket\""),
            ("2", "http:http", "descriptor 4 is a second \"http\""),
        ] {
            let error = numbered(count, names).unwrap_err().to_string();
            assert!(error.contains(words), "{count} {names}: {error}");
        }
    }

    #[test]
    fn only_tcp_sockets_that_listen_are_taken() {
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = tcp.local_addr().unwrap();
        let connected = TcpStream::connect(address).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let local = UnixListener::bind(folder.path().join("socket")).unwrap();
        let cases: [(OwnedFd, &str); 4] = [
            (connected.into(), "a TCP socket that does not listen"),
            (UdpSocket::bind("127.0.0.1:0").unwrap().into(), "no TCP socket"),
            (local.into(), "no TCP socket"),
            (std::fs::File::open("/dev/null").unwrap().into(), "no TCP socket"),
        ];
        for (descriptor, words) in cases {
            let error = listener(descriptor, 3, ListenerName::Http).unwrap_err().to_string();
            assert!(error.contains(&format!("descriptor 3, http: {words}; write")), "{error}");
        }
        let accepted = listener(tcp.into(), 3, ListenerName::Http).unwrap();
        assert_eq!(accepted.local_addr().unwrap(), address);
        assert_eq!(accepted.accept().map(|_| ()).unwrap_or_default(), ());
    }
}
