// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pairs the two HTTP connections of an RTSP tunnel by cookie and host.
//!
//! The download half (GET) is answered and enters the table; it receives the upload halves (POST)
//! with its cookie from the same host. A half without the other is closed after
//! [`OTHER_HALF_WAIT`]. The table holds at most one entry a connection, so the limits on
//! connections bound it.
//!
//! Sources: `wire::rtsp::tunnel`.
//! Does not decode.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;
use wire::rtsp::Malformed;
use wire::rtsp::tunnel::{TunnelHalf, TunnelRequest, parse_tunnel_request};

use crate::rtsp::rtsp_input::read_some;

/// Tunnels that wait for upload halves.
#[derive(Default)]
pub(crate) struct Tunnels {
    waiting: Mutex<HashMap<(IpAddr, String), mpsc::Sender<UploadHalf>>>,
}

/// Upload half of a tunnel: the connection of a POST.
pub(crate) struct UploadHalf {
    pub(crate) stream: Arc<TcpStream>,
    /// Bytes of the body that were received with the head.
    pub(crate) first: Vec<u8>,
    /// Dropped when the tunnel leaves this half; the task of the POST waits for that.
    _held: oneshot::Sender<()>,
}

/// Place of a tunnel in the table; dropping it removes the entry.
pub(crate) struct TunnelPlace {
    tunnels: Arc<Tunnels>,
    key: (IpAddr, String),
    uploads: mpsc::Receiver<UploadHalf>,
}

impl TunnelPlace {
    /// Waits for the next upload half; never returns `None` while the entry is in the table.
    pub(crate) async fn next_upload(&mut self) -> Option<UploadHalf> {
        self.uploads.recv().await
    }
}

impl Drop for TunnelPlace {
    fn drop(&mut self) {
        self.tunnels.waiting.lock().remove(&self.key);
    }
}

impl Tunnels {
    /// Enters a download half; returns `None` if the table has one with the same cookie.
    pub(crate) fn enter(self: &Arc<Self>, peer: IpAddr, cookie: &str) -> Option<TunnelPlace> {
        let key = (peer.to_canonical(), cookie.to_owned());
        let (sender, uploads) = mpsc::channel(UPLOADS_WAITING_MAX);
        match self.waiting.lock().entry(key.clone()) {
            Entry::Occupied(_) => return None,
            Entry::Vacant(vacant) => vacant.insert(sender),
        };
        Some(TunnelPlace { tunnels: self.clone(), key, uploads })
    }

    /// Hands an upload half to its tunnel and waits until the tunnel leaves it; returns false if
    /// there is no such tunnel.
    pub(crate) async fn hand_over(
        &self,
        peer: IpAddr,
        cookie: &str,
        stream: Arc<TcpStream>,
        first: Vec<u8>,
    ) -> bool {
        let key = (peer.to_canonical(), cookie.to_owned());
        // A client may send its POST before the answer to its GET.
        let download = async {
            loop {
                if let Some(sender) = self.waiting.lock().get(&key).cloned() {
                    return sender;
                }
                tokio::time::sleep(LOOK_EVERY).await;
            }
        };
        let Ok(sender) = timeout(DOWNLOAD_WAIT, download).await else { return false };
        let (held, left) = oneshot::channel();
        let sent = sender.try_send(UploadHalf { stream, first, _held: held });
        drop(sender);
        if sent.is_err() {
            return false;
        }
        let _ = left.await;
        true
    }
}

/// Reads the head of a tunnel's half, which begins with the bytes of `first`. Returns the request
/// and the bytes behind the head, or `None` if the peer closes or needs longer than `wait`.
pub(crate) async fn read_head(
    stream: &TcpStream,
    first: Vec<u8>,
    wait: Duration,
) -> Option<Result<(TunnelRequest, Vec<u8>), Malformed>> {
    let mut head = first;
    let reading = async {
        loop {
            match parse_tunnel_request(&head) {
                Ok(Some(request)) => {
                    let rest = head.split_off(request.head_bytes);
                    return Some(Ok((request, rest)));
                }
                Ok(None) => {}
                Err(malformed) => return Some(Err(malformed)),
            }
            let mut buffer = [0; 2048];
            match read_some(stream, &mut buffer).await {
                0 => return None,
                bytes => head.extend_from_slice(&buffer[..bytes]),
            }
        }
    };
    timeout(wait, reading).await.unwrap_or(None)
}

/// Returns the status line and the reason for a refused half (RFC 9110 §15.5.5, §15.5.10).
pub(crate) fn without_partner(half: TunnelHalf) -> (&'static str, &'static str) {
    match half {
        TunnelHalf::Download => {
            ("409 Conflict", "a tunnel with this x-sessioncookie exists; choose another")
        }
        TunnelHalf::Upload => {
            ("404 Not Found", "no GET with this x-sessioncookie came from this address before")
        }
    }
}

/// Time for the upload half to follow the download half.
pub(crate) const OTHER_HALF_WAIT: Duration = Duration::from_secs(10);
/// Time for a download half to arrive after its upload half.
const DOWNLOAD_WAIT: Duration = Duration::from_secs(2);
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Most upload halves of a tunnel that wait in its queue.
const UPLOADS_WAITING_MAX: usize = 2;
