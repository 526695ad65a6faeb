// SPDX-License-Identifier: MIT OR Apache-2.0
//! The `[[access]]` tables: paths, verbs, and the credentials that open them.
//!
//! The rule of the longest path that names the verb decides; others are ignored. A path without a
//! rule is refused. Where the file system does not distinguish upper and lower case, `/FILMS` would
//! be `/films` under another rule: so a path that matches a rule only in another case needs that
//! rule's permission as well.
//!
//! Costs two hash look-ups for each component of a path, as far as the deepest rule has components:
//! each hashes its prefix from the first byte. No rule opens a path of more than 4096 bytes, which
//! the file system would not open either.
//!
//! Sources: none; the order is that of Apache's `<Directory>` and nginx's `location`.
//! Does not verify credentials.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use crate::client_prefix::ClientPrefix;
use crate::paths::{canonical_of_written, first_components, upwards};

/// Use of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verb {
    /// Names in the index.
    List,
    /// Streams over RTSP, HLS and DASH, with their subtitles and pictures.
    Play,
    /// The file itself.
    Download,
    /// Keys of sealed films.
    Key,
    /// The interface for administrators.
    Admin,
}

impl Verb {
    /// Every member.
    pub const ALL: [Verb; 5] = [Verb::List, Verb::Play, Verb::Download, Verb::Key, Verb::Admin];

    /// Name in the configuration and in questions to the hook.
    pub fn name(self) -> &'static str {
        match self {
            Verb::List => "list",
            Verb::Play => "play",
            Verb::Download => "download",
            Verb::Key => "key",
            Verb::Admin => "admin",
        }
    }
}

/// Credentials that open a path: any one of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Allow {
    pub(crate) anyone: bool,
    pub(crate) signed: bool,
    pub(crate) token: bool,
    /// Any user.
    pub(crate) users: bool,
    pub(crate) named: Vec<String>,
    pub(crate) groups: Vec<String>,
    pub(crate) hook: bool,
    pub(crate) networks: Vec<ClientPrefix>,
}

impl Allow {
    /// Entries of a list as a regular expression, for editors.
    pub const PATTERN: &str = "anyone|users|signed|token|hook|(user|group|address):.+";

    /// True when a user name and a password may open the path.
    pub(crate) fn has_users(&self) -> bool {
        self.users || !self.named.is_empty() || !self.groups.is_empty()
    }
}

/// A checked rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// In its shortest spelling.
    pub(crate) path: String,
    pub(crate) verbs: Vec<Verb>,
    pub(crate) allow: Allow,
}

/// A rule as it is written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RuleDraft {
    /// Folder or file below the served folder; empty or `/` for everything.
    pub path: Option<String>,
    /// Name of a channel, in place of a path.
    pub channel: Option<String>,
    /// Names of [`Verb`]s.
    pub verbs: Vec<String>,
    /// `anyone`, `users`, `user:NAME`, `group:NAME`, `signed`, `token`, `hook`, `address:CIDR`.
    pub allow: Vec<String>,
}

/// Key of a rule's table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RuleSetting {
    /// [`RuleDraft::path`].
    Path,
    /// [`RuleDraft::channel`].
    Channel,
    /// [`RuleDraft::verbs`].
    Verbs,
    /// [`RuleDraft::allow`].
    Allow,
}

impl RuleSetting {
    /// Every member.
    pub const ALL: [RuleSetting; 4] =
        [RuleSetting::Path, RuleSetting::Channel, RuleSetting::Verbs, RuleSetting::Allow];

    /// Key in the file.
    pub fn key(self) -> &'static str {
        match self {
            RuleSetting::Path => "path",
            RuleSetting::Channel => "channel",
            RuleSetting::Verbs => "verbs",
            RuleSetting::Allow => "allow",
        }
    }
}

/// A fault of a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidRule {
    /// The setting at fault.
    pub setting: RuleSetting,
    /// Index in its list.
    pub item: Option<usize>,
    /// The value; empty where it is missing.
    pub found: String,
    /// Value to write.
    pub cure: String,
}

impl fmt::Display for InvalidRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (key, cure) = (self.setting.key(), &self.cure);
        match self.found.as_str() {
            "" => write!(f, "access: {key} is missing; {cure}"),
            found => write!(f, "access: {key} = {found:?}: {cure}"),
        }
    }
}

impl RuleDraft {
    /// Checks a rule.
    ///
    /// # Errors
    /// Every fault of the rule.
    pub fn check(self) -> Result<Rule, Vec<InvalidRule>> {
        let mut faults = Vec::new();
        let path = self.checked_path(&mut faults);
        let mut verbs = Vec::new();
        for (item, name) in self.verbs.iter().enumerate() {
            match Verb::ALL.into_iter().find(|verb| verb.name() == name) {
                Some(verb) => verbs.push(verb),
                None => faults.push(InvalidRule {
                    setting: RuleSetting::Verbs,
                    item: Some(item),
                    found: name.clone(),
                    cure: format!("write {VERBS}"),
                }),
            }
        }
        if self.verbs.is_empty() {
            faults.push(missing(RuleSetting::Verbs, format!("write {VERBS} in a list")));
        }
        let mut allow = Allow::default();
        for (item, text) in self.allow.iter().enumerate() {
            if let Err(cure) = allow.add(text) {
                faults.push(InvalidRule {
                    setting: RuleSetting::Allow,
                    item: Some(item),
                    found: text.clone(),
                    cure,
                });
            }
        }
        if self.allow.is_empty() {
            faults.push(missing(RuleSetting::Allow, format!("write {ALLOWED} in a list")));
        }
        if faults.is_empty() { Ok(Rule { path, verbs, allow }) } else { Err(faults) }
    }

    fn checked_path(&self, faults: &mut Vec<InvalidRule>) -> String {
        let wrong = |setting, found: &str, cure: &str| InvalidRule {
            setting,
            item: None,
            found: found.to_owned(),
            cure: cure.to_owned(),
        };
        match (&self.path, &self.channel) {
            (Some(path), None) => match canonical_of_written(path) {
                Some(path) => return path,
                None => {
                    let cure = "write a path below the served folder without ..";
                    faults.push(wrong(RuleSetting::Path, path, cure));
                }
            },
            (None, Some(name)) if !name.is_empty() && !name.contains('/') => {
                return format!("channel/{name}");
            }
            (None, Some(name)) => {
                let cure = "write the name of a channel";
                faults.push(wrong(RuleSetting::Channel, name, cure));
            }
            (Some(_), Some(name)) => {
                let cure = "a rule has a path or a channel; leave one out";
                faults.push(wrong(RuleSetting::Channel, name, cure));
            }
            (None, None) => {
                let cure = "write a folder or file such as \"films\", or \"\" for everything";
                faults.push(missing(RuleSetting::Path, cure.to_owned()));
            }
        }
        String::new()
    }
}

fn missing(setting: RuleSetting, cure: String) -> InvalidRule {
    InvalidRule { setting, item: None, found: String::new(), cure }
}

impl Allow {
    /// Adds one entry of a list.
    fn add(&mut self, text: &str) -> Result<(), String> {
        match text.split_once(':') {
            None => match text {
                "anyone" => self.anyone = true,
                "signed" => self.signed = true,
                "token" => self.token = true,
                "users" => self.users = true,
                "hook" => self.hook = true,
                _ => return Err(format!("write {ALLOWED}")),
            },
            Some(("user", name)) if !name.is_empty() => self.named.push(name.to_owned()),
            Some(("group", name)) if !name.is_empty() => self.groups.push(name.to_owned()),
            Some(("address", network)) => {
                let network = network.parse().map_err(|_| {
                    "write address: and a network such as 10.0.0.0/8 or fd00::/8".to_owned()
                })?;
                self.networks.push(network);
            }
            Some(_) => return Err(format!("write {ALLOWED}")),
        }
        Ok(())
    }
}

/// Rules in order of look-up.
#[derive(Debug, Default)]
pub(crate) struct Rules {
    by_path: HashMap<Box<str>, Entry>,
    /// Paths in lower case, with all entries that have this spelling; empty where no two spellings
    /// can meet.
    folded: HashMap<Box<str>, Vec<Box<str>>>,
    /// Rules that name [`Verb::List`], by number.
    listing: Vec<Arc<Allow>>,
    /// Most components of a rule's path.
    depth: usize,
}

/// Permissions of one path, by verb.
#[derive(Debug, Default)]
struct Entry {
    by_verb: [Option<Arc<Allow>>; Verb::ALL.len()],
    /// Number in [`Rules::listing`].
    listing: Option<usize>,
}

impl Rules {
    pub(crate) fn new(rules: &[Rule]) -> Rules {
        let mut made = Rules::default();
        for rule in rules {
            let entry = made.by_path.entry(rule.path.as_str().into()).or_default();
            for verb in &rule.verbs {
                let slot = &mut entry.by_verb[*verb as usize];
                // Two tables of one path and verb are merged into one list.
                let allow = match slot.take() {
                    Some(earlier) => earlier.joined(&rule.allow),
                    None => rule.allow.clone(),
                };
                *slot = Some(Arc::new(allow));
            }
        }
        for (path, entry) in &mut made.by_path {
            let components = path.split('/').filter(|part| !part.is_empty()).count();
            made.depth = made.depth.max(components);
            if let Some(allow) = &entry.by_verb[Verb::List as usize] {
                entry.listing = Some(made.listing.len());
                made.listing.push(allow.clone());
            }
            let folded = path.to_lowercase().into_boxed_str();
            made.folded.entry(folded).or_default().push(path.clone());
        }
        made
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_path.is_empty()
    }

    /// Returns the permissions that a use of a path needs, all of them; empty where no rule names
    /// it. `path` is in its shortest spelling.
    pub(crate) fn find(&self, path: &str, verb: Verb) -> Vec<&Arc<Allow>> {
        let entries = self.entries(path, verb);
        entries.into_iter().filter_map(|entry| entry.by_verb[verb as usize].as_ref()).collect()
    }

    /// Returns the entries that decide about a path.
    fn entries(&self, path: &str, verb: Verb) -> Vec<&Entry> {
        if path.len() > PATH_BYTES_MAX {
            return Vec::new();
        }
        let path = first_components(path, self.depth);
        let names = |entry: &&Entry| entry.by_verb[verb as usize].is_some();
        let exact = upwards(path).find_map(|part| self.by_path.get(part).filter(names));
        let mut found: Vec<&Entry> = exact.into_iter().collect();
        let lower = path.to_lowercase();
        for part in upwards(&lower) {
            let Some(spellings) = self.folded.get(part) else { continue };
            let mut is_named = false;
            for entry in spellings.iter().filter_map(|path| self.by_path.get(path)).filter(names) {
                is_named = true;
                if !found.iter().any(|known| std::ptr::eq(*known, entry)) {
                    found.push(entry);
                }
            }
            if is_named {
                break;
            }
        }
        // Rules of other spellings only restrict; only the exact rule may open a path.
        if exact.is_none() { Vec::new() } else { found }
    }

    /// Permissions of listing, by number.
    pub(crate) fn listing(&self) -> &[Arc<Allow>] {
        &self.listing
    }

    /// True when a client that has these permissions of listing may see a name.
    pub(crate) fn is_listed(&self, path: &str, has: &[bool]) -> bool {
        let entries = self.entries(path, Verb::List);
        let is_open = |entry: &&Entry| entry.listing.is_some_and(|number| has[number]);
        !entries.is_empty() && entries.iter().all(is_open)
    }
}

impl Allow {
    fn joined(&self, other: &Allow) -> Allow {
        let mut joined = self.clone();
        joined.anyone |= other.anyone;
        joined.signed |= other.signed;
        joined.token |= other.token;
        joined.users |= other.users;
        joined.hook |= other.hook;
        joined.named.extend_from_slice(&other.named);
        joined.groups.extend_from_slice(&other.groups);
        joined.networks.extend_from_slice(&other.networks);
        joined
    }
}

/// PATH_MAX of Linux.
const PATH_BYTES_MAX: usize = 4096;
const VERBS: &str = "list, play, download, key or admin";
const ALLOWED: &str = "anyone, users, user:NAME, group:NAME, signed, token, hook or address:CIDR";

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(path: &str, verbs: &[&str], allow: &[&str]) -> Rule {
        let texts = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect();
        let path = Some(path.to_owned());
        RuleDraft { path, channel: None, verbs: texts(verbs), allow: texts(allow) }.check().unwrap()
    }

    #[test]
    fn longest_path_that_names_the_verb_decides() {
        let rules = Rules::new(&[
            rule("/", &["list", "play"], &["anyone"]),
            rule("private", &["play"], &["user:anna"]),
            rule("/private/open/", &["download"], &["anyone"]),
        ]);
        let anyone = |path, verb| {
            let found = rules.find(path, verb);
            !found.is_empty() && found.iter().all(|allow| allow.anyone)
        };
        assert!(anyone("a.ts", Verb::Play) && anyone("private2/a.ts", Verb::Play));
        assert!(!anyone("private/a.ts", Verb::Play) && !anyone("private", Verb::Play));
        assert!(!anyone("private/open/a.ts", Verb::Play), "it names another verb");
        assert!(anyone("private/open/a.ts", Verb::Download));
        assert!(anyone("private/a.ts", Verb::List));
        assert!(rules.find("a.ts", Verb::Download).is_empty(), "no rule names it");
    }

    #[test]
    fn path_in_another_case_needs_the_permission_of_its_rule_too() {
        let rules = Rules::new(&[
            rule("", &["play"], &["anyone"]),
            rule("Films", &["play"], &["users"]),
            rule("films/new", &["play"], &["token"]),
        ]);
        for path in ["films/a.ts", "FILMS/a.ts", "fIlMs"] {
            let found = rules.find(path, Verb::Play);
            assert!(found.len() == 2 && found.iter().any(|allow| allow.users), "{path}");
        }
        let found = rules.find("FILMS/NEW/a.ts", Verb::Play);
        assert!(found.iter().any(|allow| allow.token), "{found:?}");
        let only = Rules::new(&[rule("films", &["play"], &["anyone"])]);
        assert!(only.find("FILMS/a.ts", Verb::Play).is_empty(), "another case opens nothing");
    }

    #[test]
    fn names_are_listed_by_the_rules_of_their_folders() {
        let rules =
            Rules::new(&[rule("", &["list"], &["anyone"]), rule("private", &["list"], &["users"])]);
        let stranger: Vec<bool> = rules.listing().iter().map(|allow| allow.anyone).collect();
        assert!(rules.is_listed("a.ts", &stranger) && rules.is_listed("privatea", &stranger));
        assert!(!rules.is_listed("private/a.ts", &stranger));
        assert!(!rules.is_listed("PRIVATE/a.ts", &stranger));
        assert!(rules.is_listed("private/a.ts", &[true, true]));
    }

    #[test]
    fn long_paths_find_the_rule_above_and_longer_ones_none() {
        let rules = Rules::new(&[rule("", &["play"], &["anyone"])]);
        let path = "a/".repeat(PATH_BYTES_MAX / 2 - 1) + "a";
        assert_eq!(rules.find(&path, Verb::Play).len(), 1);
        assert!(rules.find(&"a/".repeat(PATH_BYTES_MAX), Verb::Play).is_empty());
        let rules =
            Rules::new(&[rule("", &["play"], &["anyone"]), rule("a/a/B", &["play"], &["users"])]);
        assert_eq!(rules.find(&path, Verb::Play).len(), 1);
        let found = rules.find("a/a/B/a/a", Verb::Play);
        assert!(found.len() == 1 && found[0].users, "{found:?}");
        assert_eq!(rules.find("a/a/b/a/a", Verb::Play).len(), 2, "both rules");
    }

    #[test]
    fn faults_name_the_setting_and_the_cure() {
        let draft = RuleDraft {
            path: Some("../x".into()),
            channel: None,
            verbs: vec!["watch".into()],
            allow: vec!["user:".into(), "address:10.0.0.0/40".into()],
        };
        let faults = draft.check().unwrap_err();
        let texts: Vec<String> = faults.iter().map(ToString::to_string).collect();
        assert_eq!(texts.len(), 4, "{texts:?}");
        assert!(texts[1].contains("\"watch\": write list, play"), "{texts:?}");
        assert!(texts[3].contains("10.0.0.0/8"), "{texts:?}");
        let empty = RuleDraft::default().check().unwrap_err();
        assert_eq!(empty.len(), 3);
        let channel = RuleDraft {
            channel: Some("news".into()),
            verbs: vec!["play".into()],
            allow: vec!["signed".into()],
            ..RuleDraft::default()
        };
        assert_eq!(channel.check().unwrap().path, "channel/news");
    }
}
