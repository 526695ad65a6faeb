// SPDX-License-Identifier: MIT OR Apache-2.0
//! A private network for a test: a namespace, and two devices in it that are wired to each other.
//!
//! Both ends are in one namespace. Rules make the far end's address one of the network for sent
//! packets, and of this host for packets that arrive at the far end, so frames leave by one device
//! and arrive at the other.
//!
//! Sources: `unshare(1)`, `veth(4)`, `ip-rule(8)`.

use std::collections::BTreeSet;
use std::process::Command;
use std::sync::Mutex;

/// Sets up the pair `left`, 10.99.0.1, and `right`, 10.99.0.2, and waits until both devices send:
/// the kernel opens their queues a moment after their links are up.
pub(crate) const PAIR: &str = "\
    ip link add left address 02:00:00:00:00:01 type veth peer name right address 02:00:00:00:00:02
    ip addr add 10.99.0.1/24 dev left
    ip addr add 10.99.0.2/32 dev right
    ip link set left up
    ip link set right up
    ip link set lo up
    ip rule add pref 10 iif right lookup local
    ip rule add pref 11 to 10.99.0.2 lookup 200
    ip rule add pref 20 lookup local
    ip rule del pref 0
    ip route add 10.99.0.2 dev left table 200
    echo 1 > /proc/sys/net/ipv4/conf/right/accept_local
    ip neigh replace 10.99.0.2 lladdr 02:00:00:00:00:02 dev left nud permanent
    for device in left right; do
        until ip -o link show $device | grep -q 'state UP'; do sleep 0.01; done
    done";

/// Owner of the namespace, as options of `unshare(1)`.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Owner {
    /// A user of its own, made without rights.
    User,
    /// A user as [`Owner::User`], with mounts of its own.
    UserWithMounts,
    /// Real root where possible, because only there the kernel accepts XDP programs.
    RootIfAny,
}

impl Owner {
    fn options(self) -> &'static [&'static str] {
        match self {
            Self::User => &["-Urn"],
            Self::UserWithMounts => &["-Urnm"],
            Self::RootIfAny => &["-n", "-Urn"],
        }
    }
}

/// Returns the output of this program, run again with `words` in a network that `setup` makes.
/// `None`, with the reason printed as a skip, where the host does not allow a namespace or lacks a
/// need of `setup`. Skips of that run are printed here too.
pub(crate) fn inside(owner: Owner, setup: &str, words: &str) -> Option<String> {
    let program = std::env::current_exe().unwrap();
    let run = |options: &str, script: &str| {
        Command::new("unshare").args([options, "sh", "-ec", script]).arg(&program).output()
    };
    let mut refusals = Vec::new();
    for options in owner.options() {
        match run(options, setup) {
            Ok(output) if output.status.success() => {}
            Ok(output) => {
                refusals.push(String::from_utf8_lossy(&output.stderr).trim().to_string());
                continue;
            }
            Err(error) => {
                refusals.push(format!("unshare: {error}"));
                break;
            }
        }
        let output = run(options, &format!("{setup}\nexec \"$0\" {words}")).unwrap();
        let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{words}:\n{stdout}\n{stderr}");
        let skips = stderr.lines().filter_map(|line| line.strip_prefix("skip: "));
        skips.for_each(|what| skip(what.to_string()));
        return Some(stdout);
    }
    skip(format!("no network namespace: {}", refusals.join("; ")));
    None
}

/// Runs the ignored test `name` in a network that `setup` makes.
pub(crate) fn run(owner: Owner, setup: &str, name: &str) {
    if let Some(output) = inside(owner, setup, &format!("--exact {name} --ignored --nocapture")) {
        assert!(output.contains("1 passed"), "{name} was not found:\n{output}");
    }
}

/// Prints each skip once: every test iterates over the list, and all of them lack the same need.
pub(crate) fn skip(what: String) {
    static NAMED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let mut named = NAMED.lock().unwrap();
    if !named.contains(&what) {
        eprintln!("skip: {what}");
        named.insert(what);
    }
}

/// Runs a shell command that must succeed.
pub(crate) fn sh(script: &str) {
    let output = Command::new("sh").args(["-ec", script]).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{script}: {stderr}");
}
