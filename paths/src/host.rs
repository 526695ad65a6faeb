// SPDX-License-Identifier: MIT OR Apache-2.0
//! Facts about the host that decide which paths are available.
//!
//! Read once at start and handed to each path's probe, so a test can probe for another host. Costs
//! a few system calls, the reading of one file of proc, the setting up of a small `io_uring` and a
//! query of its operations, the loading of an XDP program of two instructions, and a call on the
//! device of the RTP engine where there is one; all are closed again.
//!
//! Sources: `uname(2)`, `proc_pid_status(5)`, `capabilities(7)`, `io_uring_register(2)`
//! (`IORING_REGISTER_PROBE`).
//!
//! Reads the kernel's release and features and this process's rights alone. Sending discovers facts
//! that vary with the device (UDP segmentation) ([`crate::Destination`]).

use crate::error::{Errno, Unavailable};
use crate::sys;

/// Facts about the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// The kernel's release as `uname(2)` returns it, such as `6.18.44-1-amd64`.
    pub kernel_release: String,
    /// True when this process has `CAP_NET_RAW` in its network namespace: packet and XDP sockets.
    pub raw_frames: bool,
    /// True when the kernel was built with XDP sockets (`AF_XDP`).
    pub xdp_sockets: bool,
    /// `Ok` when this process may load XDP programs, otherwise the error.
    pub xdp_programs: Result<(), Errno>,
    /// Operations of `io_uring` that this process may use, or the error.
    pub io_uring: Result<Uring, Errno>,
    /// `Ok` when this process may use the in-kernel RTP engine, otherwise the error on opening its
    /// device.
    pub engine: Result<(), Errno>,
}

/// Operations of `io_uring`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Uring {
    /// `IORING_OP_SEND`, `IORING_OP_SENDMSG` and reads into registered buffers.
    pub sends: bool,
    /// `IORING_OP_SEND_ZC` and `IORING_OP_SENDMSG_ZC`.
    pub zero_copy: bool,
    /// `IORING_OP_RECVMSG`; multishot support follows from the kernel's version.
    pub receives: bool,
}

impl Host {
    /// Reads the facts of this host.
    pub fn here() -> Self {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
        Self {
            kernel_release: sys::kernel_release(),
            raw_frames: has_net_raw(&status),
            xdp_sockets: sys::has_xdp_sockets(),
            xdp_programs: sys::may_load_xdp(),
            io_uring: sys::offer(),
            engine: sys::may_use_engine(),
        }
    }

    /// Returns major and minor number of the kernel; 0.0 when the release does not begin with
    /// numbers.
    pub fn kernel(&self) -> (u32, u32) {
        let mut numbers = self
            .kernel_release
            .split(|c: char| !c.is_ascii_digit())
            .map_while(|digits| digits.parse::<u32>().ok())
            .fuse();
        (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
    }

    /// Requires a kernel of at least `major.minor`.
    pub fn needs_kernel(&self, major: u32, minor: u32) -> Result<(), Unavailable> {
        if self.kernel() >= (major, minor) {
            return Ok(());
        }
        Err(Unavailable {
            need: format!("kernel {major}.{minor}"),
            found: format!("kernel {}", self.kernel_release),
        })
    }

    /// Requires `CAP_NET_RAW`, to put frames onto a device.
    pub fn needs_raw_frames(&self) -> Result<(), Unavailable> {
        if self.raw_frames {
            return Ok(());
        }
        Err(Unavailable {
            need: "CAP_NET_RAW".to_string(),
            found: "none; run as root or in the laboratory's namespace".to_string(),
        })
    }

    /// Requires XDP sockets.
    pub fn needs_xdp_sockets(&self) -> Result<(), Unavailable> {
        if self.xdp_sockets {
            return Ok(());
        }
        let need = "XDP sockets (CONFIG_XDP_SOCKETS)".to_string();
        Err(Unavailable { need, found: "a kernel without".to_string() })
    }

    /// Requires the right to load XDP programs.
    pub fn needs_xdp_programs(&self) -> Result<(), Unavailable> {
        let Err(errno) = self.xdp_programs else { return Ok(()) };
        let why = match errno.code() {
            libc::EPERM => " (rights in a user namespace do not suffice)",
            libc::ENOSYS => " (a kernel built without it, or a container's filter)",
            _ => "",
        };
        let need = "CAP_BPF and CAP_NET_ADMIN for an XDP program".to_string();
        Err(Unavailable { need, found: format!("bpf refused: {errno}{why}") })
    }

    /// Requires `io_uring` with sends.
    pub fn needs_io_uring(&self) -> Result<(), Unavailable> {
        self.needs_of_io_uring("io_uring with sends (kernel 5.19)", |offer| offer.sends)
    }

    /// Requires `io_uring` with zero-copy sends that are reported.
    pub fn needs_io_uring_zero_copy(&self) -> Result<(), Unavailable> {
        let need = "io_uring with SEND_ZC and SENDMSG_ZC (kernel 6.2)";
        self.needs_of_io_uring(need, |offer| offer.zero_copy)?;
        self.needs_kernel(6, 2)
    }

    /// Requires `io_uring` with multishot receives.
    pub fn needs_io_uring_receives(&self) -> Result<(), Unavailable> {
        let need = "io_uring with multishot RECVMSG (kernel 6.0)";
        self.needs_of_io_uring(need, |offer| offer.receives)?;
        self.needs_kernel(6, 0)
    }

    /// Requires the in-kernel RTP engine, usable by this process.
    pub fn needs_engine(&self) -> Result<(), Unavailable> {
        let Err(errno) = self.engine else { return Ok(()) };
        let device = sys::ENGINE_DEVICE;
        let found = match errno.code() {
            libc::ENOENT => format!("no {device}: load the module, see docs/kernel.md"),
            libc::EACCES | libc::EPERM => format!("{device} refused: {errno}; join group pagewire"),
            libc::ENOTTY => format!("{device} of another version: install the one of this release"),
            _ => format!("{device} refused: {errno}"),
        };
        Err(Unavailable { need: "the kernel module pagewire_rtp".to_string(), found })
    }

    fn needs_of_io_uring(
        &self,
        need: &str,
        has: impl Fn(&Uring) -> bool,
    ) -> Result<(), Unavailable> {
        let found = match &self.io_uring {
            Ok(offer) if has(offer) => return Ok(()),
            Ok(_) => format!("io_uring without them, kernel {}", self.kernel_release),
            Err(errno) => format!("io_uring refused: {errno}{}", why_refused(*errno)),
        };
        Err(Unavailable { need: need.to_string(), found })
    }
}

/// Returns the usual cause of a refusal to set up a ring.
fn why_refused(errno: Errno) -> &'static str {
    match errno.code() {
        libc::EPERM => " (kernel.io_uring_disabled, or a container's filter)",
        libc::ENOSYS => " (a kernel built without it, or a container's filter)",
        libc::EINVAL => " (kernel before 5.19)",
        libc::ENOMEM => " (ulimit -l)",
        _ => "",
    }
}

/// True when the device of that name segments super-packets of UDP into datagrams itself; otherwise
/// the kernel does so before the device.
///
/// # Errors
/// `ENODEV`: there is no such device. `EOPNOTSUPP`: the kernel does not report it.
pub fn segments_udp(device: &str) -> Result<bool, Errno> {
    sys::has_feature(device, "tx-udp-segmentation")
}

/// True when the effective capabilities in a thread's status have `CAP_NET_RAW`.
fn has_net_raw(status: &str) -> bool {
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let bits = effective.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok());
    bits.is_some_and(|bits| bits & CAP_NET_RAW != 0)
}

/// Number 13 in `capabilities(7)`.
const CAP_NET_RAW: u64 = 1 << 13;

#[cfg(test)]
mod tests {
    use super::*;

    fn host(release: &str) -> Host {
        let io_uring = Err(Errno::new(libc::ENOSYS));
        let kernel_release = release.to_string();
        let (raw_frames, xdp_sockets) = (false, false);
        let xdp_programs = Err(Errno::new(libc::EPERM));
        let engine = Err(Errno::new(libc::ENOENT));
        Host { kernel_release, raw_frames, xdp_sockets, xdp_programs, io_uring, engine }
    }

    #[test]
    fn rights_are_read_from_the_effective_set() {
        let status = |effective| format!("CapPrm:\t000001ffffffffff\nCapEff:\t{effective}\n");
        assert!(has_net_raw(&status("000001ffffffffff")));
        assert!(has_net_raw(&status("0000000000002000")));
        assert!(!has_net_raw(&status("0000000000001000")));
        assert!(!has_net_raw(&status("none")));
        assert!(!has_net_raw(""));
    }

    #[test]
    fn frames_need_a_right() {
        let refusal = host("6.18").needs_raw_frames().unwrap_err().to_string();
        let expected =
            "needs CAP_NET_RAW, found none; run as root or in the laboratory's namespace";
        assert_eq!(refusal, expected);
        assert!(Host { raw_frames: true, ..host("6.18") }.needs_raw_frames().is_ok());
    }

    #[test]
    fn a_program_of_xdp_needs_rights_of_the_whole_host() {
        let refusal = host("6.18").needs_xdp_programs().unwrap_err().to_string();
        let expected = "needs CAP_BPF and CAP_NET_ADMIN for an XDP program, found bpf refused: \
                        EPERM (rights in a user namespace do not suffice)";
        assert_eq!(refusal, expected);
        assert_eq!(Host { xdp_programs: Ok(()), ..host("6.18") }.needs_xdp_programs(), Ok(()));
        assert!(host("6.18").needs_xdp_sockets().is_err());
    }

    #[test]
    fn releases_of_all_kinds_are_compared_as_numbers() {
        assert_eq!(host("6.18.44-fc").kernel(), (6, 18));
        assert_eq!(host("5.4-rc1").kernel(), (5, 4));
        assert_eq!(host("7").kernel(), (7, 0));
        assert_eq!(host("99999999999.1").kernel(), (0, 0));
        assert_eq!(host("").kernel(), (0, 0));
        assert!(host("6.18.44").needs_kernel(6, 5).is_ok());
        assert!(host("10.0").needs_kernel(6, 5).is_ok());
        let refusal = host("6.1.0-21-amd64").needs_kernel(6, 5).unwrap_err();
        assert_eq!(refusal.to_string(), "needs kernel 6.5, found kernel 6.1.0-21-amd64");
    }

    #[test]
    fn a_refused_ring_says_what_refuses_it() {
        let refused = |errno| Host { io_uring: Err(Errno::new(errno)), ..host("6.18.44") };
        let reason = refused(libc::EPERM).needs_io_uring_zero_copy().unwrap_err();
        assert_eq!(
            reason.to_string(),
            "needs io_uring with SEND_ZC and SENDMSG_ZC (kernel 6.2), found io_uring refused: \
             EPERM (kernel.io_uring_disabled, or a container's filter)"
        );
        let offer = Uring { sends: true, zero_copy: false, receives: true };
        let old = Host { io_uring: Ok(offer), ..host("5.19.0") };
        assert_eq!(old.needs_io_uring(), Ok(()));
        let reason = old.needs_io_uring_zero_copy().unwrap_err();
        assert!(reason.to_string().ends_with("found io_uring without them, kernel 5.19.0"));
        let reason = old.needs_io_uring_receives().unwrap_err();
        assert_eq!(reason.to_string(), "needs kernel 6.0, found kernel 5.19.0");
    }

    #[test]
    fn an_engine_that_cannot_be_used_says_what_to_do() {
        let message = |errno| {
            let engine = Err(Errno::new(errno));
            Host { engine, ..host("6.12.0") }.needs_engine().unwrap_err().to_string()
        };
        let need = "needs the kernel module pagewire_rtp, found";
        let found = "no /dev/pagewire_rtp: load the module, see docs/kernel.md";
        assert_eq!(message(libc::ENOENT), format!("{need} {found}"));
        let found = "/dev/pagewire_rtp refused: EACCES; join group pagewire";
        assert_eq!(message(libc::EACCES), format!("{need} {found}"));
        assert!(message(libc::ENOTTY).contains("another version"));
        assert!(message(libc::EMFILE).ends_with("refused: EMFILE"));
        assert_eq!(Host { engine: Ok(()), ..host("6.12.0") }.needs_engine(), Ok(()));
    }

    #[test]
    fn this_host_has_a_kernel() {
        assert!(Host::here().kernel() > (2, 0), "{:?}", Host::here());
    }
}
