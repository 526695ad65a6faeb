// SPDX-License-Identifier: MIT OR Apache-2.0
//! System calls that programs and the C library make on one architecture only, besides the common
//! ones: old calls of x86-64, for which the other architectures have newer calls.

use libc::c_long;

/// Calls of a decoder.
#[cfg(target_arch = "x86_64")]
pub(crate) const DECODERS: &[c_long] =
    &[libc::SYS_access, libc::SYS_arch_prctl, libc::SYS_poll, libc::SYS_readlink];

/// Calls of a server.
#[cfg(target_arch = "x86_64")]
#[rustfmt::skip]
pub(crate) const SERVERS: &[c_long] = &[
    libc::SYS_open, libc::SYS_stat, libc::SYS_lstat, libc::SYS_access, libc::SYS_readlink,
    libc::SYS_rename, libc::SYS_unlink, libc::SYS_mkdir, libc::SYS_rmdir, libc::SYS_link,
    libc::SYS_symlink, libc::SYS_chmod, libc::SYS_utimes, libc::SYS_getdents, libc::SYS_pipe,
    libc::SYS_dup2, libc::SYS_poll, libc::SYS_select, libc::SYS_epoll_create,
    libc::SYS_epoll_wait, libc::SYS_eventfd, libc::SYS_inotify_init, libc::SYS_fork,
    libc::SYS_vfork, libc::SYS_getpgrp, libc::SYS_pause, libc::SYS_alarm, libc::SYS_time,
    libc::SYS_arch_prctl,
];

/// None.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) const DECODERS: &[c_long] = &[];

/// None.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) const SERVERS: &[c_long] = &[];
