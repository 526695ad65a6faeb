// SPDX-License-Identifier: MIT OR Apache-2.0
//! System calls that a server and the programs it starts may make, by purpose.
//!
//! Calls that load code into the kernel or trace, mount, change users, make namespaces, read other
//! processes' memory, or set clocks are not included. No rule inspects arguments, so the kernel
//! caches the decisions in a bitmap (Linux 5.11), and a call costs the look-up of one bit: `cargo
//! test -p sandbox -- --nocapture costs` shows it.
//!
//! Sources: syscalls(2); systemd.exec(5), `@system-service`; Linux `kernel/seccomp.c`,
//! `seccomp_cache_check_allow`.
//! Does not restrict the addresses or files that a call may use.

use libc::*;

use crate::architecture::SERVERS;
use crate::system_calls::CallFilter;

impl CallFilter {
    /// Returns the filter for the calls of a server and of the programs that it starts.
    pub fn of_servers() -> CallFilter {
        CallFilter::none().allowing(CALLS).allowing(SERVERS)
    }
}

/// Calls of all architectures, by purpose.
#[rustfmt::skip]
const CALLS: &[c_long] = &[
    // Input and output of bytes.
    SYS_read, SYS_readv, SYS_pread64, SYS_preadv, SYS_preadv2, SYS_write, SYS_writev,
    SYS_pwrite64, SYS_pwritev, SYS_pwritev2, SYS_lseek, SYS_close, SYS_close_range, SYS_dup,
    SYS_dup3, SYS_sendfile, SYS_splice, SYS_tee, SYS_vmsplice, SYS_copy_file_range, SYS_pipe2,
    SYS_readahead, SYS_fadvise64, SYS_io_uring_setup, SYS_io_uring_enter, SYS_io_uring_register,
    // Sockets.
    SYS_socket, SYS_socketpair, SYS_bind, SYS_listen, SYS_accept, SYS_accept4, SYS_connect,
    SYS_getsockname, SYS_getpeername, SYS_getsockopt, SYS_setsockopt, SYS_shutdown, SYS_sendto,
    SYS_sendmsg, SYS_sendmmsg, SYS_recvfrom, SYS_recvmsg, SYS_recvmmsg,
    // Files.
    SYS_openat, SYS_openat2, SYS_faccessat, SYS_faccessat2, SYS_fallocate, SYS_fchdir, SYS_chdir,
    SYS_fchmod, SYS_fchmodat, SYS_fcntl, SYS_flock, SYS_fstat, SYS_fstatfs, SYS_statfs,
    SYS_newfstatat, SYS_statx, SYS_ftruncate, SYS_truncate, SYS_getcwd, SYS_getdents64,
    SYS_getxattr, SYS_fgetxattr, SYS_lgetxattr, SYS_listxattr, SYS_flistxattr, SYS_llistxattr,
    SYS_inotify_init1, SYS_inotify_add_watch, SYS_inotify_rm_watch, SYS_linkat, SYS_mkdirat,
    SYS_readlinkat, SYS_renameat, SYS_renameat2, SYS_symlinkat, SYS_unlinkat, SYS_utimensat,
    SYS_umask, SYS_ioctl, SYS_fsync, SYS_fdatasync, SYS_sync_file_range, SYS_syncfs,
    // Memory.
    SYS_mmap, SYS_munmap, SYS_mremap, SYS_mprotect, SYS_madvise, SYS_brk, SYS_msync, SYS_mincore,
    SYS_mlock, SYS_mlock2, SYS_mlockall, SYS_munlock, SYS_munlockall, SYS_memfd_create,
    SYS_membarrier, SYS_get_mempolicy, SYS_mbind, SYS_set_mempolicy, SYS_pkey_alloc,
    SYS_pkey_free, SYS_pkey_mprotect,
    // Waiting and time.
    SYS_epoll_create1, SYS_epoll_ctl, SYS_epoll_pwait, SYS_epoll_pwait2, SYS_ppoll, SYS_pselect6,
    SYS_eventfd2, SYS_timerfd_create, SYS_timerfd_settime, SYS_timerfd_gettime,
    SYS_clock_getres, SYS_clock_gettime, SYS_clock_nanosleep, SYS_nanosleep, SYS_gettimeofday,
    SYS_timer_create, SYS_timer_settime, SYS_timer_gettime, SYS_timer_delete,
    SYS_timer_getoverrun, SYS_getitimer, SYS_setitimer, SYS_futex, SYS_futex_waitv,
    SYS_restart_syscall,
    // Threads, programs and signals.
    SYS_clone, SYS_clone3, SYS_execve, SYS_execveat, SYS_exit, SYS_exit_group, SYS_wait4,
    SYS_waitid, SYS_kill, SYS_tkill, SYS_tgkill, SYS_pidfd_open, SYS_pidfd_send_signal,
    SYS_prctl, SYS_prlimit64, SYS_getrlimit, SYS_setrlimit, SYS_getrusage, SYS_times, SYS_rseq,
    SYS_set_tid_address, SYS_set_robust_list, SYS_get_robust_list, SYS_sched_yield,
    SYS_sched_getaffinity, SYS_sched_setaffinity, SYS_sched_getattr, SYS_sched_setattr,
    SYS_sched_getparam, SYS_sched_setparam, SYS_sched_getscheduler, SYS_sched_setscheduler,
    SYS_sched_get_priority_max, SYS_sched_get_priority_min, SYS_getpriority, SYS_setpriority,
    SYS_ioprio_get, SYS_ioprio_set, SYS_getcpu, SYS_setpgid, SYS_getpgid, SYS_setsid, SYS_getsid,
    SYS_rt_sigaction, SYS_rt_sigpending, SYS_rt_sigprocmask, SYS_rt_sigqueueinfo,
    SYS_rt_sigreturn, SYS_rt_sigsuspend, SYS_rt_sigtimedwait, SYS_rt_tgsigqueueinfo,
    SYS_sigaltstack, SYS_signalfd4,
    // Information about the process and the host.
    SYS_getpid, SYS_getppid, SYS_gettid, SYS_getuid, SYS_geteuid, SYS_getgid, SYS_getegid,
    SYS_getresuid, SYS_getresgid, SYS_getgroups, SYS_capget, SYS_uname, SYS_sysinfo,
    SYS_getrandom,
    // Further sandboxes.
    SYS_seccomp, SYS_landlock_create_ruleset, SYS_landlock_add_rule, SYS_landlock_restrict_self,
];

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::time::Instant;

    use rustix::io::Errno;

    use super::*;

    /// Runs `work` in its own thread, so that only that thread is restricted.
    fn restricted(work: impl FnOnce() + Send + 'static) {
        let run = || {
            rustix::thread::set_no_new_privs(true).unwrap();
            CallFilter::of_servers().restrict().unwrap();
            work();
        };
        std::thread::spawn(run).join().unwrap();
    }

    #[test]
    fn calls_that_no_server_needs_are_absent() {
        restricted(|| {
            let absent = Err(Errno::NOSYS);
            assert_eq!(rustix::process::chroot("/"), absent);
            let own = rustix::process::getuid();
            assert_eq!(rustix::thread::set_thread_uid(own), absent);
        });
    }

    #[test]
    fn programs_run_and_inherit_the_list() {
        restricted(|| {
            let text = Command::new("grep")
                .args(["-E", "^(Seccomp|NoNewPrivs):", "/proc/self/status"])
                .output()
                .unwrap();
            let text = String::from_utf8(text.stdout).unwrap();
            assert!(text.contains("NoNewPrivs:\t1") && text.contains("Seccomp:\t2"), "{text}");
            let refused = Command::new("unshare").args(["-r", "true"]).output();
            let text = String::from_utf8(refused.unwrap().stderr).unwrap();
            assert!(text.contains("not implemented"), "{text}");
        });
    }

    #[test]
    fn list_has_no_call_twice() {
        let mut all: Vec<_> = CALLS.iter().chain(SERVERS).collect();
        let count = all.len();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), count);
    }

    /// Prints figures and asserts none: a machine that runs tests is busy.
    #[test]
    fn costs() {
        let reads = || {
            let file = std::fs::File::open("/dev/zero").unwrap();
            let began = Instant::now();
            for _ in 0..ROUNDS {
                rustix::io::read(&file, &mut [0; 1]).unwrap();
            }
            began.elapsed().as_secs_f64() * 1e9 / f64::from(ROUNDS)
        };
        let before = reads();
        restricted(move || {
            eprintln!("a read(2): {before:.0} ns, behind the filter {:.0} ns", reads());
        });
    }

    const ROUNDS: u32 = 100_000;
}
