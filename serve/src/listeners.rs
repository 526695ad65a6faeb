// SPDX-License-Identifier: MIT OR Apache-2.0
//! listeners: opens the listening sockets of a server and places their connections.
//!
//! RTSP is served on the caller's runtime. Connections of HTTP, HTTPS and RTSPS are accepted on the
//! first event loop and handed to the loop that has the fewest.
//!
//! Does not accept ([`crate::listener`] does).

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use crate::config::Config;
use crate::error::{Error, Setting};
use crate::http::event_loops::{EventLoop, EventLoops, LoopPlace};
use crate::limits::Refused;
use crate::rtsp::tls_relay;
use crate::server_state::ServerState;
use crate::{http, listener, rtsp};

/// Open listening sockets.
pub(crate) struct Listeners {
    rtsp: TcpListener,
    http: TcpListener,
    https: Option<TcpListener>,
    rtsps: Option<TcpListener>,
}

/// Addresses that they are bound to.
#[derive(Clone, Copy)]
pub(crate) struct BoundAddresses {
    pub(crate) rtsp: SocketAddr,
    pub(crate) http: SocketAddr,
    pub(crate) https: Option<SocketAddr>,
    pub(crate) rtsps: Option<SocketAddr>,
}

impl Listeners {
    /// Opens the sockets that the configuration names.
    ///
    /// # Errors
    /// [`Error::Listen`]: an address is in use or not this host's.
    pub(crate) async fn open(
        config: &Config,
        event_loops: &EventLoops,
    ) -> Result<Listeners, Error> {
        let on_loop = async |setting, address| {
            let opened = event_loops.first().spawn(listener::open(setting, address)).await;
            opened.expect("opening a listener does not panic")
        };
        let rtsp = listener::open(Setting::Rtsp, config.rtsp).await?;
        let http = on_loop(Setting::Http, config.http).await?;
        let https = match config.https {
            Some(address) => Some(on_loop(Setting::Https, address).await?),
            None => None,
        };
        let rtsps = match config.rtsps {
            Some(address) => Some(on_loop(Setting::Rtsps, address).await?),
            None => None,
        };
        Ok(Listeners { rtsp, http, https, rtsps })
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
