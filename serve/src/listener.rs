// SPDX-License-Identifier: MIT OR Apache-2.0
//! Accepts, counts and serves connections, each in a task of its own.
//!
//! When the process has no file descriptor left, a new client receives the reason and existing ones
//! are not disturbed. A connection over a limit on clients ([`crate::limits`]) receives the reason,
//! too, but at most [`REFUSING_MAX`] at once: in a flood the others are closed without an answer.
//!
//! Each listener reserves a descriptor for that: the new client occupies its place, is answered,
//! and is atomically replaced by the reserve again (dup2). While a reserve is free no other
//! listener accepts.
//!
//! Sources: accept(2) (EMFILE, ENFILE), dup(2) (dup3 closes and replaces atomically).
//! Does not count clients ([`crate::limits`] does).

use std::fs::File;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::limits::Refused;
use crate::meter::Meters;
use crate::rtsp::rtsp_input::read_some;
use crate::server_state::ServerState;
use crate::write_deadline::Allowance;

/// Serves connections until it is aborted, which also aborts them, or until a drain has begun and
/// they have ended. `connection` makes the task of one, and names the runtime that the task runs
/// on.
pub(crate) async fn serve<F>(
    listener: TcpListener,
    server: Arc<ServerState>,
    refusal: fn(Refused) -> Vec<u8>,
    connection: impl Fn(TcpStream, SocketAddr, Arc<ServerState>) -> (Handle, F),
) where
    F: Future<Output = ()> + Send + 'static,
{
    let mut reserve = Reserve::new();
    let mut warned_at: Option<Instant> = None;
    let mut served = JoinSet::new();
    let refusing = Arc::new(Semaphore::new(REFUSING_MAX));
    let draining = server.clone();
    let mut drained = pin!(draining.drain.begun());
    // `None` once a successor accepts in this one's place.
    let mut listener = Some(listener);
    loop {
        let Some(open) = &listener else {
            if served.join_next().await.is_none() {
                return;
            }
            continue;
        };
        tokio::select! {
            () = &mut drained => listener = None,
            accepted = accept(open) => match accepted {
                Ok((stream, peer)) => {
                    reserve.fill();
                    match server.limits.connect(peer.ip(), &stream) {
                        Ok(permit) => {
                            let (runtime, task) = connection(stream, peer, server.clone());
                            // The future is boxed: an async block stores an awaited future twice.
                            let task = Box::pin(task);
                            let counted = async move {
                                task.await;
                                drop(permit);
                            };
                            served.spawn_on(counted, &runtime);
                        }
                        Err(refused) => {
                            server.limits.refusals.note(refused, peer.ip());
                            Meters::count(&server.meters.connections_refused);
                            if let Ok(turn) = refusing.clone().try_acquire_owned() {
                                let mut stream = stream;
                                served.spawn(async move {
                                    turn_away(&mut stream, &refusal(refused)).await;
                                    drop(turn);
                                });
                            }
                        }
                    }
                }
                Err(error) if is_exhausted(&error) => {
                    if warned_at.is_none_or(|warned_at| warned_at.elapsed() > WARN_EVERY) {
                        warned_at = Some(Instant::now());
                        tracing::warn!(
                            "accept: {error}; refusing connections until one ends (raise ulimit -n)"
                        );
                    }
                    if reserve.refuse(open, &refusal(Refused::Connections)).await {
                        Meters::count(&server.meters.connections_refused);
                    }
                }
                // The peer left before accept.
                Err(error) => tracing::debug!("accept: {error}"),
            },
            Some(ended) = served.join_next() => {
                reserve.fill();
                if let Err(error) = ended
                    && error.is_panic()
                {
                    tracing::error!("a connection's task panicked: {error}");
                }
            }
        }
    }
}

/// Accepts a connection.
async fn accept(listener: &TcpListener) -> io::Result<(TcpStream, SocketAddr)> {
    poll_fn(|context| {
        let _turn = accepting();
        listener.poll_accept(context)
    })
    .await
}

/// Locks the process's descriptors while one is used for a new client.
fn accepting() -> MutexGuard<'static, ()> {
    static ACCEPTING: Mutex<()> = Mutex::new(());
    ACCEPTING.lock()
}

/// A reserved descriptor, for a new client when none is left.
struct Reserve {
    /// File copied into the reserve's place; `None` when the start found no free descriptor.
    null: Option<File>,
    held: Option<OwnedFd>,
}

impl Reserve {
    fn new() -> Reserve {
        let mut reserve = Reserve { null: File::open("/dev/null").ok(), held: None };
        reserve.fill();
        reserve
    }

    /// Opens a free descriptor if the reserve is empty.
    fn fill(&mut self) {
        if self.held.is_none() {
            let null = self.null.as_ref().and_then(|null| null.try_clone().ok());
            self.held = null.map(OwnedFd::from);
        }
    }

    /// Answers the connection that could not be accepted; false if there is none. Without a free
    /// descriptor accept fails before it checks for a waiting client, so it is called once more,
    /// without blocking.
    async fn refuse(&mut self, listener: &TcpListener, refusal: &[u8]) -> bool {
        let accepted = poll_fn(|context| {
            let _turn = accepting();
            drop(self.held.take());
            let accepted = listener.poll_accept(context);
            if accepted.is_pending() {
                self.fill();
            }
            Poll::Ready(accepted)
        });
        match accepted.await {
            Poll::Ready(Ok((mut stream, _))) => {
                turn_away(&mut stream, refusal).await;
                self.replace(stream);
                true
            }
            // Still none: a file was opened meanwhile. The wait keeps the caller from spinning.
            Poll::Ready(Err(_)) => {
                tokio::time::sleep(REFUSAL).await;
                self.fill();
                false
            }
            Poll::Pending => false,
        }
    }

    /// Closes the connection and reserves its descriptor, in one step.
    fn replace(&mut self, stream: TcpStream) {
        let (Some(null), Ok(stream)) = (&self.null, stream.into_std()) else { return };
        let mut descriptor = OwnedFd::from(stream);
        if rustix::io::dup3(null, &mut descriptor, rustix::io::DupFlags::CLOEXEC).is_ok() {
            self.held = Some(descriptor);
        }
    }
}

/// True if descriptors are exhausted, of the process or of the whole system.
pub(crate) fn is_exhausted(error: &io::Error) -> bool {
    let exhausted = [rustix::io::Errno::MFILE, rustix::io::Errno::NFILE];
    error.raw_os_error().is_some_and(|code| exhausted.iter().any(|e| e.raw_os_error() == code))
}

/// Sends `refusal` to a peer that is not served.
async fn turn_away(stream: &mut TcpStream, refusal: &[u8]) {
    // The refusal is optional: a peer that does not accept it loses nothing.
    let _ = timeout(REFUSAL, stream.write_all(refusal)).await;
    // Unread bytes would turn the close into a reset, and the answer would be lost.
    let _ = timeout(REFUSAL, stream.read(&mut [0; 4096])).await;
}

/// Writes an answer; false when the peer does not accept it.
pub(crate) async fn write(stream: &TcpStream, bytes: &[u8], wait: Duration) -> bool {
    Allowance::new(wait).write(stream, bytes).await
}

/// Shuts down the sending side and lets the peer read the answer for a limited time.
pub(crate) async fn close(mut stream: impl AsyncRead + AsyncWrite + Unpin) {
    // The shutdown of TLS sends an alert, which a peer that reads nothing does not accept.
    if let Ok(Ok(())) = timeout(LINGER, stream.shutdown()).await {
        let mut sink = [0; 4096];
        let drain = async {
            let mut drained = 0;
            while let Ok(bytes @ 1..) = stream.read(&mut sink).await
                && drained < DRAINED_BYTES_MAX
            {
                drained += bytes;
            }
        };
        // Unread bytes at close would cause a reset that overtakes the answer.
        let _ = timeout(LINGER, drain).await;
    }
}

/// Closes like [`close`] a connection that other holders may still refer to.
pub(crate) async fn close_shared(stream: &TcpStream) {
    use rustix::net::{Shutdown, shutdown};
    if shutdown(stream, Shutdown::Write).is_ok() {
        let mut sink = [0; 4096];
        let drain = async {
            let mut drained = 0;
            while let bytes @ 1.. = read_some(stream, &mut sink).await
                && drained < DRAINED_BYTES_MAX
            {
                drained += bytes;
            }
        };
        let _ = timeout(LINGER, drain).await;
    }
    // A pacer may hold the socket for a moment; the client sees the end now.
    let _ = shutdown(stream, Shutdown::Both);
}

const REFUSAL: Duration = Duration::from_millis(50);
/// Most peers of one listener being refused at once; half of the least reserve of descriptors.
const REFUSING_MAX: usize = 8;
/// Least time between two warnings.
const WARN_EVERY: Duration = Duration::from_secs(60);
/// Most bytes read from a peer that keeps sending: more than it has in flight.
const DRAINED_BYTES_MAX: usize = 16 << 20;
const LINGER: Duration = Duration::from_millis(500);
