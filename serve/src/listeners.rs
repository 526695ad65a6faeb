// SPDX-License-Identifier: MIT OR Apache-2.0
//! Registers the listening sockets of a server and places their connections.
//!
//! RTSP and the administrator are served on the caller's runtime. Connections of HTTP, HTTPS and
//! RTSPS are accepted on the first event loop and handed to the loop that has the fewest.
//!
//! Does not open sockets ([`crate::sockets`] does) nor accept ([`crate::listener`] does).

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use crate::error::Error;
use crate::http::event_loops::{EventLoop, EventLoops, LoopPlace};
use crate::limits::Refused;
use crate::rtsp::tls_relay;
use crate::server_state::ServerState;
use crate::sockets::{ListenerName, ListeningSockets};
use crate::{admin, http, listener, rtsp};

/// Open listening sockets.
pub(crate) struct Listeners {
    rtsp: TcpListener,
    http: TcpListener,
    https: Option<TcpListener>,
    rtsps: Option<TcpListener>,
    admin: Option<TcpListener>,
}

/// Addresses that they are bound to.
#[derive(Clone, Copy)]
pub(crate) struct BoundAddresses {
    pub(crate) rtsp: SocketAddr,
    pub(crate) http: SocketAddr,
    pub(crate) https: Option<SocketAddr>,
    pub(crate) rtsps: Option<SocketAddr>,
    pub(crate) admin: Option<SocketAddr>,
}

impl Listeners {
    /// Registers the sockets with the runtimes that accept.
    ///
    /// # Errors
    /// No descriptor is left for a duplicate.
    pub(crate) fn register(
        sockets: &ListeningSockets,
        event_loops: &EventLoops,
    ) -> Result<Listeners, Error> {
        let on = |runtime: &Handle, name| {
            let Some(listener) = sockets.listener(name)? else { return Ok(None) };
            let _entered = runtime.enter();
            let registered = TcpListener::from_std(listener).map_err(|source| Error::Host {
                call: "epoll_ctl",
                object: format!("listener of {}", ListenerName::as_str(name)),
                source,
            });
            registered.map(Some)
        };
        let (control, first) = (Handle::current(), event_loops.first());
        Ok(Listeners {
            rtsp: on(&control, ListenerName::Rtsp)?.expect("it is always open"),
            http: on(first, ListenerName::Http)?.expect("it is always open"),
            https: on(first, ListenerName::Https)?,
            rtsps: on(first, ListenerName::Rtsps)?,
            admin: on(&control, ListenerName::Admin)?,
        })
    }

    /// Returns the addresses, with the ports that were picked.
    pub(crate) fn addresses(&self) -> Result<BoundAddresses, Error> {
        let local = |listener: &TcpListener| {
            listener.local_addr().map_err(|source| Error::Host {
                call: "getsockname",
                object: "listener".to_owned(),
                source,
            })
        };
        Ok(BoundAddresses {
            rtsp: local(&self.rtsp)?,
            http: local(&self.http)?,
            https: self.https.as_ref().map(local).transpose()?,
            rtsps: self.rtsps.as_ref().map(local).transpose()?,
            admin: self.admin.as_ref().map(local).transpose()?,
        })
    }

    /// Starts accepting; returns the tasks, which end their connections when they are aborted.
    pub(crate) fn serve(
        self,
        server: &Arc<ServerState>,
        event_loops: &EventLoops,
    ) -> Vec<JoinHandle<()>> {
        let mut tasks = vec![tokio::spawn(listener::serve(
            self.rtsp,
            server.clone(),
            rtsp::connection_refusal,
            |stream, peer, server| (Handle::current(), rtsp::connection(stream, peer, server)),
        ))];
        let (first, loops) = (event_loops.first(), || event_loops.loops());
        let refusal = http::connection_refusal;
        let serving = serve_on_loops(self.http, server.clone(), loops(), refusal, http::connection);
        tasks.push(first.spawn(serving));
        if let Some(https) = self.https {
            let serving =
                serve_on_loops(https, server.clone(), loops(), no_refusal, http::tls_connection);
            tasks.push(first.spawn(serving));
        }
        if let Some(rtsps) = self.rtsps {
            let control = Handle::current();
            let relay = move |stream, peer, server, place| {
                tls_relay::connection(stream, peer, server, place, control.clone())
            };
            let serving = serve_on_loops(rtsps, server.clone(), loops(), no_refusal, relay);
            tasks.push(first.spawn(serving));
        }
        if let Some(listener) = self.admin {
            tasks.push(tokio::spawn(admin::serve(listener, server.clone())));
        }
        tasks
    }
}

/// Accepts connections and hands each to a loop, where `connection` serves it.
async fn serve_on_loops<C, F>(
    listener: TcpListener,
    server: Arc<ServerState>,
    loops: Vec<Arc<EventLoop>>,
    refusal: fn(Refused) -> Vec<u8>,
    connection: C,
) where
    C: Fn(TcpStream, SocketAddr, Arc<ServerState>, LoopPlace) -> F + Clone + Send + 'static,
    F: Future<Output = ()> + Send + 'static,
{
    let placed = |stream: TcpStream, peer, server| {
        let place = EventLoop::least_busy(&loops);
        let runtime = place.handle().clone();
        let (moved, connection) = (moved(stream, &runtime), connection.clone());
        let task = async move {
            match moved() {
                Ok(stream) => connection(stream, peer, server, place).await,
                Err(error) => tracing::warn!("{peer}: handing it to a loop: {error}"),
            }
        };
        (runtime, task)
    };
    listener::serve(listener, server, refusal, placed).await;
}

/// Returns nothing: a refused client of TLS has no handshake in which to read a reason.
fn no_refusal(_: Refused) -> Vec<u8> {
    Vec::new()
}

/// Returns a function that registers an accepted socket with the runtime that calls it.
fn moved(
    stream: TcpStream,
    runtime: &Handle,
) -> impl FnOnce() -> std::io::Result<TcpStream> + use<> {
    // A socket wakes the loop that it is registered with.
    let is_here = runtime.id() == Handle::current().id();
    move || match is_here {
        true => Ok(stream),
        false => stream.into_std().and_then(TcpStream::from_std),
    }
}
