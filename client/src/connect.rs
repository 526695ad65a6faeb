// SPDX-License-Identifier: MIT OR Apache-2.0
//! Opens the TCP connections of the client, and names their servers.
//!
//! Does not retry.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

use crate::error::Error;

/// Opens a TCP connection to the first address of a name that accepts it.
pub(super) async fn connect(host: &str, port: u16) -> Result<TcpStream, Error> {
    connected(authority(host, port), TcpStream::connect((host, port))).await
}

/// Opens a TCP connection to an address, from `source` where that is given.
pub(super) async fn connect_from(
    source: Option<IpAddr>,
    to: SocketAddr,
) -> Result<TcpStream, Error> {
    let connecting = async {
        let socket = if to.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        if let Some(source) = source {
            socket.bind(SocketAddr::new(source, 0))?;
        }
        socket.connect(to).await
    };
    let from = source.map_or_else(String::new, |source| format!(" from {source}"));
    connected(format!("{to}{from}"), connecting).await
}

async fn connected(
    object: String,
    connecting: impl Future<Output = io::Result<TcpStream>>,
) -> Result<TcpStream, Error> {
    let failed = |source| Error::Host { call: "connect", object: object.clone(), source };
    let late = || {
        let waited =
            format!("no answer in {} s; is it on, and no firewall between?", CONNECT_WAIT_S);
        io::Error::new(io::ErrorKind::TimedOut, waited)
    };
    let connecting = timeout(Duration::from_secs(CONNECT_WAIT_S), connecting);
    let stream = connecting.await.unwrap_or_else(|_| Err(late())).map_err(failed)?;
    // Requests are small, and each one is awaited.
    stream.set_nodelay(true).map_err(failed)?;
    Ok(stream)
}

pub(super) fn authority(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

const CONNECT_WAIT_S: u64 = 5;
