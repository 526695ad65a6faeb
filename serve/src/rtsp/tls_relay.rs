// SPDX-License-Identifier: MIT OR Apache-2.0
//! Serves RTSP over TLS (RTSPS) by a relay between the client's connection and a plain one within
//! this process.
//!
//! Pacer threads send media on an RTSP connection by paths that write to a socket (`writev`,
//! `sendfile`); the relay's loop encrypts the bytes received at the other end of that socket. So
//! every path, tunnel and limit works unchanged over TLS. The socket pair is a connection over
//! loopback, and the relay verifies that this process opened its other end.
//!
//! Costs, beside the cipher, two copies and two system calls per [`RELAY_BYTES`], and two more
//! descriptors a connection, which is counted as three ([`crate::limits`]). Media over UDP bypasses
//! the relay and is not encrypted (RFC 2326 defines no encryption for it; SRTP would be needed).
//!
//! Sources: RFC 7826 §19.2 (`rtsps`, which RTSP 1.0 servers use alike).
//! Does not encrypt in the kernel.

use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::copy_bidirectional_with_sizes;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::runtime::Handle;
use tokio::time::timeout;

use crate::http::event_loops::LoopPlace;
use crate::meter::Meters;
use crate::rtsp::{Endpoints, serve_stream};
use crate::server_state::ServerState;
use crate::tls::{self, TlsUse};

/// Serves one connection to its end: relays on this loop, and serves RTSP on `control`.
pub(crate) async fn connection(
    stream: TcpStream,
    peer: SocketAddr,
    server: Arc<ServerState>,
    _place: LoopPlace,
    control: Handle,
) {
    let Ok(local) = stream.local_addr() else { return };
    let _ = stream.set_nodelay(true);
    let terms = server.tls.as_ref().expect("a listener of RTSPS has terms");
    let wait = server.config.timeouts.first_request;
    let mut client = match Box::pin(tls::accept(stream, terms, TlsUse::Rtsps, wait)).await {
        Ok(client) => client,
        Err(failure) => return tracing::debug!("rtsps {peer}: {failure}"),
    };
    // The pacer cannot see bytes that wait in this socket, so they are limited.
    let _ = paths::limit_unsent_bytes(client.get_ref().0.as_fd(), SOCKET_BYTES);
    let (mut relayed, served) = match timeout(PAIR_WAIT, pair()).await {
        Ok(Ok(pair)) => pair,
        Ok(Err(error)) => return tracing::warn!("rtsps {peer}: a pair on loopback: {error}"),
        Err(_) => return tracing::warn!("rtsps {peer}: a pair on loopback: not connected in time"),
    };
    // The pair counts as two connections; over a limit the client is refused.
    let permits = (|| {
        let limits = &server.limits;
        Ok((limits.connect(peer.ip(), &relayed)?, limits.connect(peer.ip(), &served)?))
    })();
    let _permits = match permits {
        Ok(permits) => permits,
        Err(refused) => {
            server.limits.refusals.note(refused, peer.ip());
            return Meters::count(&server.meters.connections_refused);
        }
    };
    let endpoints = Endpoints { local, peer };
    let mut serving = control.spawn(async move {
        match TcpStream::from_std(served) {
            Ok(served) => serve_stream(served, endpoints, server).await,
            Err(error) => tracing::warn!("rtsps {peer}: {error}"),
        }
    });
    let _ended = AbortOnDrop(serving.abort_handle());
    // Both connections close when this task ends.
    let mut relaying = Box::pin(async move {
        let (client, relayed) = (&mut client, &mut relayed);
        let relay = copy_bidirectional_with_sizes(client, relayed, RELAY_BYTES, RELAY_BYTES);
        if let Err(error) = relay.await {
            tracing::debug!("rtsps {peer}: {error}");
        }
    });
    tokio::select! {
        // The session ends by itself once its connection has closed.
        _ = &mut relaying => drop(timeout(LINGER, &mut serving).await),
        // The last bytes sent may still be in flight to the client.
        _ = &mut serving => drop(timeout(LINGER, &mut relaying).await),
    }
}

/// Aborts the serving task when the relay is dropped.
struct AbortOnDrop(tokio::task::AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Connects two sockets over loopback; the second is registered with no runtime yet.
async fn pair() -> std::io::Result<(TcpStream, std::net::TcpStream)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let socket = TcpSocket::new_v4()?;
    // The pacer cannot see bytes between it and the client, so these buffers are small.
    socket.set_send_buffer_size(SOCKET_BYTES)?;
    socket.set_recv_buffer_size(SOCKET_BYTES)?;
    let ours = socket.connect(listener.local_addr()?).await?;
    let own = ours.local_addr()?;
    loop {
        // Another process may connect to the port first.
        let (other, from) = listener.accept().await?;
        if from == own {
            ours.set_nodelay(true)?;
            return Ok((ours, other.into_std()?));
        }
    }
}

const RELAY_BYTES: usize = 64 << 10;
/// A few hundred milliseconds of media.
const SOCKET_BYTES: u32 = 256 << 10;
const PAIR_WAIT: Duration = Duration::from_secs(5);
/// Time for the last bytes to reach the client.
const LINGER: Duration = Duration::from_millis(500);
