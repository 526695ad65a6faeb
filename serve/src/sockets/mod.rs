// SPDX-License-Identifier: MIT OR Apache-2.0
//! The sockets that a server opens before anything else, or receives open.
//!
//! They have three sources: a service manager that listens in the server's place
//! ([`ListeningSockets::from_manager`]), the process that this one follows
//! ([`crate::Predecessor`]), or this host ([`ListeningSockets::open`]). A caller opens them before
//! it drops its privileges, so ports below 1024 need no privilege afterwards; a server that
//! receives none opens its own.
//!
//! Costs a descriptor a listener for as long as the server accepts: the duplicate that a successor
//! is given.
//!
//! Sources: sd_listen_fds(3), systemd.socket(5) (`FileDescriptorName=`), socket(7).
//! Does not accept ([`crate::listener`] does).

mod manager;

use std::io;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::sync::Arc;

use socket2::{Domain, Protocol, Socket, Type};

use crate::error::{Error, Setting};

/// Open sockets of a server, each by its purpose. The default has none.
#[derive(Debug, Clone, Default)]
pub struct ListeningSockets {
    sockets: [Option<GivenListener>; ListenerName::ALL.len()],
    /// RTP and RTCP port that all sessions share.
    pub(crate) media: Option<MediaPair>,
}

/// A listening socket, and whether it was given by a service manager.
#[derive(Debug, Clone)]
struct GivenListener {
    listener: Arc<TcpListener>,
    /// True when a service manager keeps it: then its address wins over the configured one.
    is_managed: bool,
}

/// RTP and RTCP socket of the port that all sessions share.
#[derive(Debug, Clone)]
pub(crate) struct MediaPair {
    pub(crate) rtp: Arc<UdpSocket>,
    pub(crate) rtcp: Arc<UdpSocket>,
}

/// Purpose of a listening socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListenerName {
    /// RTSP.
    Rtsp,
    /// HTTP.
    Http,
    /// HTTP over TLS.
    Https,
    /// RTSP over TLS.
    Rtsps,
    /// Administration.
    Admin,
}

impl ListenerName {
    /// All of them.
    pub const ALL: [ListenerName; 5] = [
        ListenerName::Rtsp,
        ListenerName::Http,
        ListenerName::Https,
        ListenerName::Rtsps,
        ListenerName::Admin,
    ];

    /// Returns the name, as in `FileDescriptorName=` of a socket unit.
    pub fn as_str(self) -> &'static str {
        match self {
            ListenerName::Rtsp => "rtsp",
            ListenerName::Http => "http",
            ListenerName::Https => "https",
            ListenerName::Rtsps => "rtsps",
            ListenerName::Admin => "admin",
        }
    }

    fn parse(name: &str) -> Option<ListenerName> {
        ListenerName::ALL.into_iter().find(|known| known.as_str() == name)
    }

    fn setting(self) -> Setting {
        match self {
            ListenerName::Rtsp => Setting::Rtsp,
            ListenerName::Http => Setting::Http,
            ListenerName::Https => Setting::Https,
            ListenerName::Rtsps => Setting::Rtsps,
            ListenerName::Admin => Setting::Admin,
        }
    }
}

impl ListeningSockets {
    /// Returns the address of a listener, if there is one.
    pub fn address(&self, name: ListenerName) -> Option<SocketAddr> {
        self.sockets[name as usize].as_ref().and_then(|given| given.listener.local_addr().ok())
    }

    /// Returns the address of a listener that a service manager keeps.
    pub fn managed_address(&self, name: ListenerName) -> Option<SocketAddr> {
        let is_managed = self.sockets[name as usize].as_ref().is_some_and(|given| given.is_managed);
        is_managed.then(|| self.address(name)).flatten()
    }

    /// Opens a listener at `address`, unless an existing one serves it already.
    ///
    /// # Errors
    /// [`Error::Listen`]: the address is in use, or not this host's.
    pub fn open(&mut self, name: ListenerName, address: SocketAddr) -> Result<(), Error> {
        let place = &mut self.sockets[name as usize];
        let serves = |given: &GivenListener| {
            given.is_managed || given.listener.local_addr().is_ok_and(|has| is_met(address, has))
        };
        if !place.as_ref().is_some_and(serves) {
            let listen = |source| Error::Listen { setting: name.setting(), address, source };
            let listener = Arc::new(listen_at(address).map_err(listen)?);
            *place = Some(GivenListener { listener, is_managed: false });
        }
        Ok(())
    }

    /// Closes the listeners whose purpose the configuration does not name.
    pub fn close(&mut self, name: ListenerName) {
        self.sockets[name as usize] = None;
    }

    /// Opens the listeners that have an address and are not open yet, and closes those without.
    pub(crate) fn open_missing(
        &mut self,
        wanted: [(ListenerName, Option<SocketAddr>); ListenerName::ALL.len()],
    ) -> Result<(), Error> {
        for (name, address) in wanted {
            match address {
                Some(address) => self.open(name, address)?,
                None => self.close(name),
            }
        }
        Ok(())
    }

    /// Returns a duplicate of a listener, for a tokio runtime.
    pub(crate) fn listener(&self, name: ListenerName) -> Result<Option<TcpListener>, Error> {
        let Some(given) = &self.sockets[name as usize] else { return Ok(None) };
        given.listener.try_clone().map(Some).map_err(|source| Error::Host {
            call: "dup",
            object: format!("listener of {}", name.as_str()),
            source,
        })
    }

    /// Enters a listening socket from elsewhere.
    pub(crate) fn give(&mut self, name: ListenerName, listener: TcpListener, is_managed: bool) {
        let listener = Arc::new(listener);
        self.sockets[name as usize] = Some(GivenListener { listener, is_managed });
    }

    /// Lists the listeners: name, socket, whether a service manager keeps it.
    pub(crate) fn list(&self) -> impl Iterator<Item = (ListenerName, &TcpListener, bool)> {
        ListenerName::ALL.into_iter().filter_map(|name| {
            let given = self.sockets[name as usize].as_ref()?;
            Some((name, &*given.listener, given.is_managed))
        })
    }
}

/// True if a socket bound to `bound` satisfies `wanted`.
fn is_met(wanted: SocketAddr, bound: SocketAddr) -> bool {
    wanted.ip() == bound.ip() && (wanted.port() == 0 || wanted.port() == bound.port())
}

fn listen_at(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    // Connections of a server that has just ended hold the port in TIME_WAIT (socket(7)).
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// Connections that wait to be accepted; the kernel grants at most net.core.somaxconn.
const BACKLOG: i32 = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    const ANY: &str = "127.0.0.1:0";

    #[test]
    fn an_open_listener_is_kept_where_it_serves_the_address() {
        let mut sockets = ListeningSockets::default();
        let any = ANY.parse().unwrap();
        sockets.open(ListenerName::Http, any).unwrap();
        let first = sockets.address(ListenerName::Http).unwrap();
        sockets.open(ListenerName::Http, any).unwrap();
        assert_eq!(sockets.address(ListenerName::Http), Some(first));
        let other = "127.0.0.2:0".parse().unwrap();
        sockets.open(ListenerName::Http, other).unwrap();
        assert_eq!(sockets.address(ListenerName::Http).unwrap().ip(), other.ip());
        // A service manager's socket is served regardless of the configuration.
        let managed = TcpListener::bind(ANY).unwrap();
        let address = managed.local_addr().ok();
        sockets.give(ListenerName::Http, managed, true);
        sockets.open(ListenerName::Http, other).unwrap();
        assert_eq!(sockets.managed_address(ListenerName::Http), address);
    }

    #[test]
    fn a_port_in_use_is_refused_by_the_name_of_its_setting() {
        let mut sockets = ListeningSockets::default();
        let occupied = TcpListener::bind(ANY).unwrap();
        let error = sockets.open(ListenerName::Rtsps, occupied.local_addr().unwrap()).unwrap_err();
        assert!(error.to_string().starts_with("RTSPS address 127.0.0.1:"), "{error}");
    }
}
