// SPDX-License-Identifier: MIT OR Apache-2.0
//! Kernel TLS: passes the keys of a TCP connection to the kernel, which from then on encrypts the
//! bytes written to the socket and decrypts the bytes read from it, so that `sendfile` serves an
//! encrypted connection.
//!
//! A plain read returns the content of data records alone and fails with `EIO` at a record of
//! another type (alert, handshake), which [`receive_record`] reads. A record that cannot be
//! decrypted makes both fail with `EBADMSG`.
//!
//! Costs four system calls a connection, and one copy per byte sent, combined with the cipher, from
//! page cache to record, where encryption in the process needs three.
//!
//! In TLS 1.2 with AES-GCM the kernel increments the explicit part of nonces from the given value,
//! and rustls uses the exclusive or of its value and the sequence number. A nonce must never be
//! used twice with a key, so the kernel's count begins behind all nonces that the sequence numbers
//! before it may have used.
//!
//! Sources: Linux `Documentation/networking/tls.rst`, `net/tls/tls_sw.c` (`tls_fill_prepend`,
//! `tls_advance_record_sn`); RFC 5246 §6.2.3.3 and RFC 5288 §3 (nonces), RFC 8446 §5.
//!
//! Does not change keys: kernels before 6.14 cannot. Does not limit the records under a key.

use std::io::{self, Read, Write};
use std::mem::zeroed;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::Duration;

use crate::error::Errno;
use crate::send_stats::SendStats;
use crate::sys::{counted, last_errno, set_record};

/// Version of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsVersion {
    /// RFC 5246.
    Tls12,
    /// RFC 8446.
    Tls13,
}

/// Cipher of a connection's records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordCipher {
    /// AES-GCM with keys of 128 bits.
    Aes128Gcm,
    /// AES-GCM with keys of 256 bits.
    Aes256Gcm,
    /// ChaCha20-Poly1305 (RFC 7905).
    Chacha20Poly1305,
}

/// Keys of one direction of a connection.
pub struct TrafficKeys<'a> {
    /// Cipher that they are for.
    pub cipher: RecordCipher,
    /// 16 bytes for [`RecordCipher::Aes128Gcm`], otherwise 32.
    pub key: &'a [u8],
    /// Value from which nonces are made; of TLS 1.2 with AES-GCM the salt and the explicit part.
    pub iv: [u8; IV_BYTES],
    /// Number of the next record.
    pub sequence: u64,
}

/// Prepares a connection for [`start_kernel_tls`]; until then it is unchanged.
///
/// # Errors
/// `ENOENT`: the host has no kernel TLS. `ENOTCONN`: the peer has closed its side already.
pub fn ready_kernel_tls(socket: BorrowedFd<'_>) -> Result<(), Errno> {
    set_record(socket, libc::IPPROTO_TCP, libc::TCP_ULP, b"tls", &mut SendStats::default())
}

/// Passes the keys of a prepared connection to the kernel. No bytes behind the records that
/// `receiving.sequence` counts may have been read.
///
/// # Errors
/// `EINVAL`, `ENOENT`, `ENOTSUPP`: the host lacks the version or cipher, or a key has another
/// length. The connection is unusable afterwards: a direction may be encrypted.
pub fn start_kernel_tls(
    socket: BorrowedFd<'_>,
    version: TlsVersion,
    sending: &TrafficKeys<'_>,
    receiving: &TrafficKeys<'_>,
) -> Result<(), Errno> {
    set_keys(socket, libc::TLS_TX, version, sending)?;
    set_keys(socket, libc::TLS_RX, version, receiving)
}

/// Tries kernel TLS with a pair of connections over loopback, which exchange a message.
///
/// # Errors
/// As [`ready_kernel_tls`] and [`start_kernel_tls`], or the message did not arrive.
pub fn try_kernel_tls(version: TlsVersion, cipher: RecordCipher) -> io::Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let near = TcpStream::connect(listener.local_addr()?)?;
    let far = loop {
        // Another process may connect to the port first.
        let (far, from) = listener.accept()?;
        if from == near.local_addr()? {
            break far;
        }
    };
    let key = [7; 32];
    let key = if cipher == RecordCipher::Aes128Gcm { &key[..16] } else { &key };
    let of = |iv| TrafficKeys { cipher, key, iv: [iv; IV_BYTES], sequence: 1 };
    for (socket, sending, receiving) in [(&near, 1, 2), (&far, 2, 1)] {
        ready_kernel_tls(socket.as_fd())?;
        start_kernel_tls(socket.as_fd(), version, &of(sending), &of(receiving))?;
    }
    for (mut from, mut to) in [(&near, &far), (&far, &near)] {
        to.set_read_timeout(Some(TRIAL_WAIT))?;
        from.write_all(TRIAL)?;
        let mut received = [0; TRIAL.len()];
        to.read_exact(&mut received)?;
        if received != TRIAL {
            return Err(io::Error::other("another message arrived than was sent"));
        }
    }
    Ok(())
}

/// Sends a record of a type other than data, without waiting; returns the bytes that the kernel
/// accepted.
///
/// # Errors
/// `EAGAIN`: no room. `EPIPE`, `ECONNRESET`: the peer is gone.
pub fn send_record(socket: BorrowedFd<'_>, content_type: u8, bytes: &[u8]) -> Result<usize, Errno> {
    let mut control = Control([0; CONTROL_BYTES]);
    let mut slice =
        libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    // SAFETY: msghdr is pointers and numbers, for which all zeroes is a value.
    let mut message: libc::msghdr = unsafe { zeroed() };
    message.msg_iov = &raw mut slice;
    message.msg_iovlen = 1;
    message.msg_control = control.0.as_mut_ptr().cast();
    // SAFETY: CMSG_SPACE and CMSG_LEN are arithmetic. `control` is aligned and has room for a
    // header with a byte, so the first header and its data lie in it.
    unsafe {
        message.msg_controllen = libc::CMSG_SPACE(1) as _;
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        (*header).cmsg_level = libc::SOL_TLS;
        (*header).cmsg_type = libc::TLS_SET_RECORD_TYPE;
        (*header).cmsg_len = libc::CMSG_LEN(1) as _;
        libc::CMSG_DATA(header).write(content_type);
    }
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: the memory that `message` points to is alive; the kernel only reads it.
    counted(unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const message, flags) })
}

/// Reads the content of the next records of one type, without waiting; returns the type and the
/// number of bytes in `buffer`, 0 at the end of the connection. Content that does not fit remains.
///
/// # Errors
/// `EAGAIN`: none is whole. `EBADMSG`: it cannot be decrypted. `ECONNRESET`: the peer is gone.
pub fn receive_record(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> Result<(u8, usize), Errno> {
    let mut control = Control([0; CONTROL_BYTES]);
    let mut slice = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    // SAFETY: as in `send_record`.
    let mut message: libc::msghdr = unsafe { zeroed() };
    message.msg_iov = &raw mut slice;
    message.msg_iovlen = 1;
    message.msg_control = control.0.as_mut_ptr().cast();
    message.msg_controllen = CONTROL_BYTES as _;
    // SAFETY: the memory that `message` points to is alive, writable and of the lengths given.
    let received =
        unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, libc::MSG_DONTWAIT) };
    let received = counted(received)?;
    // SAFETY: the kernel has set `msg_controllen` to the bytes that it wrote; the header is read
    // where there is a whole one, and the byte behind it where its length includes one.
    let content_type = unsafe {
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        let is_type = !header.is_null()
            && (*header).cmsg_level == libc::SOL_TLS
            && (*header).cmsg_type == libc::TLS_GET_RECORD_TYPE
            && (*header).cmsg_len as usize >= libc::CMSG_LEN(1) as usize;
        if is_type { libc::CMSG_DATA(header).read() } else { CONTENT_TYPE_DATA }
    };
    Ok((content_type, received))
}

/// Sets the keys of a direction, `TLS_TX` or `TLS_RX`.
fn set_keys(
    socket: BorrowedFd<'_>,
    direction: libc::c_int,
    version: TlsVersion,
    keys: &TrafficKeys<'_>,
) -> Result<(), Errno> {
    let (cipher, key_bytes) = match keys.cipher {
        RecordCipher::Aes128Gcm => (libc::TLS_CIPHER_AES_GCM_128, 16),
        RecordCipher::Aes256Gcm => (libc::TLS_CIPHER_AES_GCM_256, 32),
        RecordCipher::Chacha20Poly1305 => (libc::TLS_CIPHER_CHACHA20_POLY1305, 32),
    };
    if keys.key.len() != key_bytes {
        return Err(Errno::new(libc::EINVAL));
    }
    let (salt, explicit) = keys.iv.split_first_chunk::<4>().expect("it has twelve bytes");
    let mut explicit: [u8; 8] = explicit.try_into().expect("eight of twelve bytes are left");
    let version = match version {
        TlsVersion::Tls12 => {
            let start = unused_nonce(u64::from_be_bytes(explicit), keys.sequence);
            explicit = start.to_be_bytes();
            libc::TLS_1_2_VERSION
        }
        TlsVersion::Tls13 => libc::TLS_1_3_VERSION,
    };
    let (iv, salt): (&[u8], &[u8]) = match keys.cipher {
        RecordCipher::Chacha20Poly1305 => (&keys.iv, &[]),
        RecordCipher::Aes128Gcm | RecordCipher::Aes256Gcm => (&explicit, salt),
    };
    // The fields of `tls12_crypto_info_*`, which have no padding, in one buffer that is wiped.
    let (version, cipher) = (version.to_ne_bytes(), cipher.to_ne_bytes());
    let sequence = keys.sequence.to_be_bytes();
    let fields: [&[u8]; 6] = [&version, &cipher, iv, keys.key, salt, &sequence];
    let (mut option, mut length) = ([0_u8; OPTION_BYTES_MAX], 0);
    for field in fields {
        option[length..length + field.len()].copy_from_slice(field);
        length += field.len();
    }
    let (level, value) = (libc::SOL_TLS, option.as_ptr().cast());
    // SAFETY: `option` is alive and has `length` bytes; the kernel only reads them.
    let set = unsafe {
        libc::setsockopt(socket.as_raw_fd(), level, direction, value, length as libc::socklen_t)
    };
    let set = if set == 0 { Ok(()) } else { Err(last_errno()) };
    for byte in &mut option {
        // SAFETY: the byte is alive and ours; volatile, as no code reads it afterwards.
        unsafe { std::ptr::from_mut(byte).write_volatile(0) };
    }
    set
}

/// Returns a value from which nonces can be counted up without reaching one of `first ^ 0` to
/// `first ^ (count - 1)`: those lie in one aligned block.
fn unused_nonce(first: u64, count: u64) -> u64 {
    let block = count.checked_next_power_of_two().map_or(u64::MAX, |size| size - 1);
    (first | block).wrapping_add(1)
}

/// Buffer for one control message, aligned for its header.
#[repr(align(8))]
struct Control([u8; CONTROL_BYTES]);

/// Room for a header of 16 bytes and a byte, rounded up.
const CONTROL_BYTES: usize = 32;
/// The longest `tls12_crypto_info_*`.
const OPTION_BYTES_MAX: usize = 56;
/// Type of a record of data (RFC 8446 §5.1).
const CONTENT_TYPE_DATA: u8 = 23;
/// Bytes of [`TrafficKeys::iv`].
const IV_BYTES: usize = 12;
const TRIAL: &[u8] = b"pagewire";
const TRIAL_WAIT: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn nonces_of_the_kernel_are_none_that_were_used() {
        for first in [0, 1, 6, 7, 0xffff_fff0, u64::MAX - 1, u64::MAX] {
            for count in 0..70 {
                let used: HashSet<u64> = (0..count).map(|sequence| first ^ sequence).collect();
                let start = unused_nonce(first, count);
                let is_met = (0..200).any(|step| used.contains(&start.wrapping_add(step)));
                assert!(!is_met, "{first:#x} {count}: {start:#x}");
            }
        }
    }

    #[test]
    fn keys_of_another_length_are_refused_before_the_kernel_has_them() {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let (cipher, iv) = (RecordCipher::Aes256Gcm, [0; IV_BYTES]);
        let keys = TrafficKeys { cipher, key: &[0; 16], iv, sequence: 0 };
        let refused = set_keys(socket.as_fd(), libc::TLS_TX, TlsVersion::Tls13, &keys);
        assert_eq!(refused, Err(Errno::new(libc::EINVAL)));
    }

    #[test]
    fn fields_lie_where_the_kernel_looks_for_them() {
        use libc::{
            tls12_crypto_info_aes_gcm_128 as Gcm128, tls12_crypto_info_aes_gcm_256 as Gcm256,
            tls12_crypto_info_chacha20_poly1305 as Chacha,
        };
        use std::mem::offset_of;
        assert_eq!([size_of::<Gcm128>(), size_of::<Gcm256>(), size_of::<Chacha>()], [40, 56, 56]);
        let of_128 = [offset_of!(Gcm128, iv), offset_of!(Gcm128, key), offset_of!(Gcm128, salt)];
        assert_eq!((of_128, offset_of!(Gcm128, rec_seq)), ([4, 12, 28], 32));
        let of_256 = [offset_of!(Gcm256, iv), offset_of!(Gcm256, key), offset_of!(Gcm256, salt)];
        assert_eq!((of_256, offset_of!(Gcm256, rec_seq)), ([4, 12, 44], 48));
        assert_eq!([offset_of!(Chacha, iv), offset_of!(Chacha, key)], [4, 16]);
        assert_eq!(offset_of!(Chacha, rec_seq), 48);
    }

    /// Where the host has no kernel TLS, the trial must return that error, as the server then
    /// encrypts by itself.
    #[test]
    fn a_trial_exchanges_a_message_or_says_that_the_host_has_none() {
        use RecordCipher::{Aes128Gcm, Aes256Gcm, Chacha20Poly1305};
        for version in [TlsVersion::Tls12, TlsVersion::Tls13] {
            for cipher in [Aes128Gcm, Aes256Gcm, Chacha20Poly1305] {
                if let Err(error) = try_kernel_tls(version, cipher) {
                    assert_eq!(error.raw_os_error(), Some(libc::ENOENT), "{cipher:?}: {error}");
                }
            }
        }
    }
}
