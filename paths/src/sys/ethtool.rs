// SPDX-License-Identifier: MIT OR Apache-2.0
//! Query of a device's segmentation of UDP.
//!
//! Four calls, once: the number of features that devices have names for, their names, and the
//! active ones. The names are the kernel's interface, their numbers are not.
//!
//! Sources: `netdevice(7)`, Linux `include/uapi/linux/ethtool.h`, `net/ethtool/common.c`
//! (`netdev_features_strings`).
//!
//! Does not change a feature.

use std::ffi::c_void;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use crate::error::Errno;
use crate::sys::last_errno;

const ETHTOOL_GSTRINGS: u32 = 0x1b;
const ETHTOOL_GSSET_INFO: u32 = 0x37;
const ETHTOOL_GFEATURES: u32 = 0x3a;
const ETH_SS_FEATURES: u32 = 4;
const ETH_GSTRING_LEN: usize = 32;
/// Twice the number of 6.18; the kernel reports the number first.
const FEATURES_MAX: u32 = 256;

/// True when the device of that name has the feature of that name, and it is on.
pub(crate) fn has_feature(device: &str, feature: &str) -> Result<bool, Errno> {
    let socket = control_socket()?;
    // struct ethtool_sset_info: command, reserved, mask of sets, a length a set.
    let mut info = [0_u32; 5];
    info[0] = ETHTOOL_GSSET_INFO;
    info[2] = 1 << ETH_SS_FEATURES;
    ask(&socket, device, &mut info)?;
    let count = info[4];
    if count == 0 || count > FEATURES_MAX {
        return Err(Errno::new(libc::EOPNOTSUPP));
    }
    // struct ethtool_gstrings: command, set, count, then the names, 32 bytes each.
    let mut names = vec![0_u32; 3 + count as usize * ETH_GSTRING_LEN / 4];
    names[..3].copy_from_slice(&[ETHTOOL_GSTRINGS, ETH_SS_FEATURES, count]);
    ask(&socket, device, &mut names)?;
    let bytes: Vec<u8> = names[3..].iter().flat_map(|word| word.to_ne_bytes()).collect();
    let number = bytes.chunks(ETH_GSTRING_LEN).position(|name| {
        let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
        &name[..end] == feature.as_bytes()
    });
    let Some(number) = number else { return Ok(false) };
    // struct ethtool_gfeatures: command, size in blocks of 32 features, then blocks of available,
    // requested, active, never changed.
    let blocks = count.div_ceil(32) as usize;
    let mut state = vec![0_u32; 2 + 4 * blocks];
    state[..2].copy_from_slice(&[ETHTOOL_GFEATURES, blocks as u32]);
    ask(&socket, device, &mut state)?;
    Ok(state[2 + 4 * (number / 32) + 2] & (1 << (number % 32)) != 0)
}

fn control_socket() -> Result<OwnedFd, Errno> {
    // SAFETY: socket takes no pointer.
    let socket = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
    if socket < 0 {
        return Err(last_errno());
    }
    // SAFETY: the descriptor was just made and is owned by no other code.
    Ok(unsafe { OwnedFd::from_raw_fd(socket) })
}

/// Makes one query; `words` is the structure of its command, answered in place. Its length must
/// agree with the command and the counts in it.
fn ask(socket: &OwnedFd, device: &str, words: &mut [u32]) -> Result<(), Errno> {
    // SAFETY: ifreq is plain numbers, characters and pointers, for which all zeroes is a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    let name = device.as_bytes();
    if name.len() >= request.ifr_name.len() || name.contains(&0) {
        return Err(Errno::new(libc::ENODEV));
    }
    for (target, source) in request.ifr_name.iter_mut().zip(name) {
        *target = *source as libc::c_char;
    }
    request.ifr_ifru.ifru_data = words.as_mut_ptr().cast::<c_void>().cast();
    // SAFETY: `request` is a live ifreq whose name ends in a zero within its array; the structure
    // it points to is `words`, which has room for the bytes that its command and counts, set by the
    // callers above, make the kernel write.
    let done = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL as _, &raw mut request) };
    if done == 0 { Ok(()) } else { Err(last_errno()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_has_features_and_no_device_has_none() {
        assert_eq!(has_feature("lo", "loopback"), Ok(true));
        assert_eq!(has_feature("lo", "tx-teleport"), Ok(false));
        assert_eq!(has_feature("no-such-device", "loopback"), Err(Errno::new(libc::ENODEV)));
        assert!(has_feature("a-name-longer-than-a-device-has", "loopback").is_err());
    }
}
