// SPDX-License-Identifier: MIT OR Apache-2.0
//! Root opens the ports and then becomes the user of `--user` permanently.
//!
//! The kernel keeps user, groups and capabilities per thread, and the safe functions change only
//! the calling thread. The change is therefore made before another thread starts, and refused
//! afterwards. Changing from root to another user drops all capabilities (capabilities(7));
//! supplementary groups become those of the user, and no program started later can gain privileges
//! (`PR_SET_NO_NEW_PRIVS`). Root first raises the limit of nice values, which the pacers need.
//!
//! Sources: setresuid(2), setgroups(2), capabilities(7), passwd(5), group(5), getrlimit(2). Does
//! not query name services such as LDAP: their users are named by numbers, `UID:GID`.

use std::fs;
use std::path::PathBuf;

use rustix::process::{Gid, Resource, Uid, getgid, getrlimit, getuid, setrlimit};
use rustix::thread::{
    set_no_new_privs, set_thread_groups, set_thread_res_gid, set_thread_res_uid, set_thread_uid,
};
use serve::Error;

/// A user of this host.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Account {
    user: u32,
    group: u32,
    groups: Vec<u32>,
    /// Home folder; `None` for a user named by number.
    pub(super) home: Option<PathBuf>,
}

/// Checks that this host has such a user, who is not root.
pub(super) fn check(name: &str) -> Result<(), Error> {
    find_other(name).map(drop)
}

/// Becomes the user of `--user` permanently.
///
/// # Errors
/// No such user, no right to become it, or another thread runs.
pub(super) fn become_user(name: &str) -> Result<Account, Error> {
    let account = find_other(name)?;
    let (user, group) = (getuid().as_raw(), getgid().as_raw());
    if (user, group) == (account.user, account.group) {
        // Happens after an upgrade: the predecessor had already dropped its privileges.
        set_no_new_privs(true).map_err(|error| host("prctl PR_SET_NO_NEW_PRIVS", name, error))?;
        return Ok(account);
    }
    if user != 0 {
        let found = format!("this process is of user {user}, who cannot become another");
        return Err(wrong(name, &found, "start the server as root, or leave --user out"));
    }
    let threads = fs::read_dir("/proc/self/task").map(Iterator::count);
    if threads.as_ref().is_ok_and(|threads| *threads != 1) {
        let error = rustix::io::Errno::BUSY;
        return Err(host("setresuid beside other threads", name, error));
    }
    leave_priority();
    let groups: Vec<Gid> = account.groups.iter().map(|id| Gid::from_raw(*id)).collect();
    set_thread_groups(&groups).map_err(|error| host("setgroups", name, error))?;
    let gid = Gid::from_raw(account.group);
    set_thread_res_gid(gid, gid, gid).map_err(|error| host("setresgid", name, error))?;
    let uid = Uid::from_raw(account.user);
    set_thread_res_uid(uid, uid, uid).map_err(|error| host("setresuid", name, error))?;
    set_no_new_privs(true).map_err(|error| host("prctl PR_SET_NO_NEW_PRIVS", name, error))?;
    assert!(set_thread_uid(Uid::ROOT).is_err(), "a user without rights cannot become root");
    Ok(account)
}

/// Finds a user who is not root.
fn find_other(name: &str) -> Result<Account, Error> {
    let account = Account::find(name)?;
    if account.user == 0 {
        return Err(wrong(name, "is root, whose rights are to be dropped", "name another user"));
    }
    Ok(account)
}

/// Lets the pacers raise their priority later (RLIMIT_NICE, getrlimit(2)).
fn leave_priority() {
    let mut limit = getrlimit(Resource::Nice);
    limit.current = Some(NICE_CEILING);
    limit.maximum = Some(NICE_CEILING.max(limit.maximum.unwrap_or(NICE_CEILING)));
    if let Err(error) = setrlimit(Resource::Nice, limit) {
        tracing::warn!("setrlimit RLIMIT_NICE: {error}; pacers have no priority");
    }
}

impl Account {
    fn find(name: &str) -> Result<Account, Error> {
        if let Some((user, group)) = name.split_once(':') {
            let number = |text: &str| text.parse::<u32>().ok().filter(|id| *id != u32::MAX);
            return match (number(user), number(group)) {
                (Some(user), Some(group)) => {
                    Ok(Account { user, group, groups: vec![group], home: None })
                }
                _ => Err(wrong(name, "is no pair of numbers", "write a name, or UID:GID")),
            };
        }
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        let found = Account::in_files(name, &read("/etc/passwd"), &read("/etc/group"));
        found.ok_or_else(|| {
            wrong(
                name,
                "no such user in /etc/passwd",
                "make one (adduser --system), or write UID:GID",
            )
        })
    }

    /// Finds a user in the text of passwd(5), with the groups of group(5).
    fn in_files(name: &str, passwd: &str, group: &str) -> Option<Account> {
        let fields = |line: &str| line.split(':').map(str::to_owned).collect::<Vec<_>>();
        let entry = passwd.lines().map(fields).find(|f| f.len() >= 7 && f[0] == name)?;
        let (user, own_group) = (entry[2].parse().ok()?, entry[3].parse().ok()?);
        let is_member = |f: &Vec<String>| f.len() >= 4 && f[3].split(',').any(|m| m == name);
        let others =
            group.lines().map(fields).filter(is_member).filter_map(|f| f[2].parse::<u32>().ok());
        let mut groups = vec![own_group];
        groups.extend(others.filter(|id| *id != own_group));
        let home = Some(PathBuf::from(&entry[5]));
        Some(Account { user, group: own_group, groups, home })
    }
}

fn wrong(name: &str, found: &str, cure: &str) -> Error {
    Error::Option { option: "--user", found: format!("{name}: {found}"), cure: cure.to_owned() }
}

fn host(call: &'static str, name: &str, error: rustix::io::Errno) -> Error {
    Error::Host { call, object: format!("--user {name}"), source: error.into() }
}

/// Nice value -15 at most, as 20 minus it (getrlimit(2)); the pacers' own is less urgent.
const NICE_CEILING: u64 = 35;

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &str = "root:x:0:0:root:/:/bin/sh\nbroken\npagewire:x:990:991:a \
        server:/var/lib/pagewire:/usr/sbin/nologin\nother:x:no:1:::\n";
    const GROUP: &str = "root:x:0:\nmedia:x:44:backup,pagewire\nvideo:x:45:pagewires\n\
        pagewire:x:991:pagewire\n";

    #[test]
    fn users_are_found_with_their_groups() {
        let account = Account::in_files("pagewire", PASSWD, GROUP).unwrap();
        assert_eq!((account.user, account.group), (990, 991));
        assert_eq!(account.groups, [991, 44]);
        assert_eq!(account.home.unwrap().to_str(), Some("/var/lib/pagewire"));
        for name in ["", "page", "other", "broken", "nobody"] {
            assert_eq!(Account::in_files(name, PASSWD, GROUP), None, "{name}");
        }
        let numbers = Account::find("12:34").unwrap();
        assert_eq!((numbers.user, numbers.group, numbers.groups), (12, 34, vec![34]));
        for wrong in ["12:", ":34", "a:b", "4294967295:1", "-1:2"] {
            let error = Account::find(wrong).unwrap_err().to_string();
            assert!(error.contains("write a name, or UID:GID"), "{error}");
        }
    }
}
