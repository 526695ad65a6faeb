// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rows of the listing as the page asks for them: a folder's direct children, files that contain
//! words, one file, recordings in progress; in an order of the client's choice.
//!
//! | query | rows |
//! |---|---|
//! | `folder=NAME/` | direct children; subfolders with counts of all that lies below them |
//! | `q=WORDS` | files whose path contains all words, in any case; the best match first |
//! | `name=NAME` | this file or folder of renditions |
//! | `live=1` | recordings that are still written |
//! | `sort=ORDER` | of these, or of all: `name`, `newest`, `duration`, `size`; `-` reverses |
//! | `offset=N` | rows behind the first N |
//!
//! A request costs a look at every row of the listing (of the folder, with `folder` or `below`),
//! and a text to compare for each row that is found, of [`KEYED_MAX`] rows at most: more of them
//! stay in the listing's order where names decide. Optimized build with overflow checks, 100,000
//! files, one core of an EPYC: 8 ms for a folder with all of them below it, 12 ms for a search or
//! for the newest. [`BROWSED_AT_ONCE`] request is worked on at a time, the others wait in order, so
//! a storm of them takes one core; nothing is kept between requests. An answer has [`PAGE_ROWS`]
//! files and as many folders at most.
//!
//! Sources: none; natural order is that of file managers (numbers by value).
//! Does not fold accents, nor look into files.

use std::cmp::Reverse;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;
use wire::http::escape_path;

use super::pages::{PAGE_ROWS, Page, Row};
use super::rows::is_title;
use super::{Query, decoded};
use crate::library::State;

/// Requests that are worked on at a time: the other cores stay free.
pub(super) const BROWSED_AT_ONCE: usize = 1;
/// Rows found whose names are compared as people do, 1 µs each.
const KEYED_MAX: usize = 10_000;

/// Question of a client about the listing.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Browse {
    /// Folder whose direct children are requested; the top is empty.
    folder: Option<String>,
    name: Option<String>,
    /// In lower case.
    words: Vec<String>,
    is_live: bool,
    order: Option<RowOrder>,
    offset: usize,
}

/// Order of rows, and whether it is reversed.
#[derive(Debug, Clone, Copy, PartialEq)]
struct RowOrder {
    by: OrderKey,
    is_reversed: bool,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum OrderKey {
    Name,
    Newest,
    /// The longest first.
    Duration,
    /// The largest first.
    Size,
}

/// Figures about what was found, beside its rows.
#[derive(Debug, Serialize)]
pub(super) struct Found {
    /// Files before `offset` and `limit`.
    files: usize,
    folders_total: usize,
    folders: Vec<FolderRow>,
}

/// A folder with all that lies below it.
#[derive(Debug, Clone, Serialize)]
struct FolderRow {
    name: String,
    files: u64,
    films: u64,
    bytes: u64,
    /// Time of the newest file, in seconds since 1970.
    modified: u64,
    /// First film below it.
    #[serde(skip_serializing_if = "Option::is_none")]
    first: Option<String>,
}

impl Browse {
    /// Parses the parameters; `None` where none of them is there.
    ///
    /// # Errors
    /// An unreadable value; the message names the value to write.
    pub(super) fn parse(query: &str) -> Result<Option<Browse>, &'static str> {
        let (mut browse, mut is_asked) = (Browse::default(), false);
        for (name, value) in query.split('&').filter_map(|field| field.split_once('=')) {
            match name {
                "folder" => {
                    let folder = decoded(value);
                    let folder = folder.trim_matches('/');
                    let slash = if folder.is_empty() { "" } else { "/" };
                    browse.folder = Some(format!("{folder}{slash}"));
                }
                "name" => browse.name = Some(decoded(value)),
                "q" => {
                    let words = decoded(value).to_lowercase();
                    let words = words.split_whitespace().take(WORDS_MAX);
                    browse.words = words.map(str::to_owned).collect();
                }
                "live" => browse.is_live = value == "1",
                "sort" => browse.order = Some(RowOrder::parse(value).ok_or(WRONG_SORT)?),
                "offset" => {
                    let is_number = !value.is_empty() && value.bytes().all(|b| b.is_ascii_digit());
                    let offset = is_number.then(|| value.parse().unwrap_or(usize::MAX));
                    browse.offset = offset.ok_or(WRONG_OFFSET)?;
                    // Alone it selects nothing.
                    continue;
                }
                _ => continue,
            }
            is_asked = true;
        }
        Ok(is_asked.then_some(browse))
    }

    /// Returns the rows of an answer, in order, and figures about all that was found in a listing,
    /// which has the names that the client may know.
    pub(super) fn select<'a>(
        &'a self,
        pages: &'a [Arc<Page>],
        query: &'a Query,
    ) -> (Vec<&'a Row>, Found) {
        let top = self.folder.as_deref().or(query.below.as_deref()).unwrap_or_default();
        let rows = rows_below(pages, self.name.as_deref().unwrap_or(top));
        let (mut found, mut folders) = (Vec::new(), Vec::<FolderRow>::new());
        let mut renditions: &[String] = &[];
        for row in rows {
            if let Some(folder) = &self.folder {
                // Rows that a name chose may lie elsewhere.
                let Some(rest) = row.name.strip_prefix(folder.as_str()) else { continue };
                // A title of renditions is no folder, though its name is that of one.
                match rest.split_once('/') {
                    Some(("", _)) => continue,
                    Some((_, behind)) if !behind.is_empty() || row.renditions.is_empty() => {
                        let end = row.name.len() - behind.len();
                        count(&mut folders, &row.name[..end], row);
                        continue;
                    }
                    _ if rest.is_empty() => continue,
                    _ => {}
                }
            } else if self.name.as_ref().is_some_and(|name| row.name != *name) {
                // Rows are in order of their names: the first is the one, or there is none.
                break;
            } else if self.name.is_none() && renditions.contains(&row.name) {
                continue;
            }
            if !self.matches(row) {
                continue;
            }
            // A title that is found stands for its files.
            if !row.renditions.is_empty() {
                renditions = &row.renditions;
            }
            found.push(row);
        }
        let titles = found.iter().filter(|row| !row.renditions.is_empty());
        let titles: HashSet<&str> = titles.map(|row| row.name.as_str()).collect();
        folders.retain(|folder| !titles.contains(&folder.name[..]));
        self.sort(&mut found);
        self.sort_folders(&mut folders);
        let (files, folders_total) = (found.len(), folders.len());
        folders.truncate(if self.offset == 0 { PAGE_ROWS } else { 0 });
        let found = found.into_iter().skip(self.offset).take(query.limit).collect();
        (found, Found { files, folders_total, folders })
    }

    fn matches(&self, row: &Row) -> bool {
        if self.is_live && !row.entry.is_live {
            return false;
        }
        if self.words.is_empty() {
            return true;
        }
        let name = row.name.to_lowercase();
        self.words.iter().all(|word| name.contains(word.as_str()))
    }

    fn sort(&self, rows: &mut [&Row]) {
        let by_name = RowOrder { by: OrderKey::Name, is_reversed: false };
        let Some(order) = self.order.or(self.words.is_empty().then_some(by_name)) else {
            if rows.len() <= KEYED_MAX {
                rows.sort_by_cached_key(|row| (self.distance(row), natural_key(&row.name)));
            }
            return;
        };
        match order.by {
            OrderKey::Name if rows.len() > KEYED_MAX => {}
            OrderKey::Name => rows.sort_by_cached_key(|row| natural_key(file_name(&row.name))),
            OrderKey::Newest => rows.sort_by_key(|row| Reverse(row.entry.modified)),
            OrderKey::Size => rows.sort_by_key(|row| Reverse(bytes(row))),
            OrderKey::Duration => rows.sort_by_key(|row| Reverse(duration_ms(row))),
        }
        if order.is_reversed {
            rows.reverse();
        }
    }

    fn sort_folders(&self, folders: &mut [FolderRow]) {
        if folders.len() <= KEYED_MAX {
            folders.sort_by_cached_key(|folder| natural_key(&folder.name));
        }
        match self.order.map(|order| order.by) {
            Some(OrderKey::Newest) => folders.sort_by_key(|folder| Reverse(folder.modified)),
            Some(OrderKey::Size) => folders.sort_by_key(|folder| Reverse(folder.bytes)),
            Some(OrderKey::Name | OrderKey::Duration) | None => {}
        }
        if self.order.is_some_and(|order| order.is_reversed) {
            folders.reverse();
        }
    }

    /// Returns how far a row is from the meaning of the words; films come before other files.
    fn distance(&self, row: &Row) -> (bool, u8) {
        let name = file_name(&row.name).to_lowercase();
        let first = self.words.first().map_or("", String::as_str);
        let distance = match () {
            () if name.starts_with(first) => 0,
            () if self.words.iter().all(|word| name.contains(word.as_str())) => 1,
            () => 2,
        };
        (!is_title(row), distance)
    }

    /// Returns the query of the rows that follow these; `None` behind the last.
    pub(super) fn next(&self, query: &Query, found: &Found) -> Option<String> {
        let end = self.offset.saturating_add(query.limit);
        if end >= found.files {
            return None;
        }
        let mut next = format!("offset={end}");
        let mut push = |name: &str, value: &str| {
            next.push_str(&format!("&{name}={}", escape_path(value)));
        };
        let words = self.words.join(" ");
        let below = query.below.as_deref().unwrap_or_default();
        let limit = query.limit_asked.map(|limit| limit.to_string()).unwrap_or_default();
        for (name, value) in [("q", &words[..]), ("below", below), ("limit", &limit[..])] {
            if !value.is_empty() {
                push(name, value);
            }
        }
        if let Some(folder) = &self.folder {
            push("folder", folder);
        }
        for (name, is_set) in [("live", self.is_live), ("all", query.all)] {
            if is_set {
                push(name, "1");
            }
        }
        if let Some(order) = self.order {
            // Its sign is not escaped.
            next.push_str(&format!("&sort={}", order.text()));
        }
        Some(next)
    }
}

impl RowOrder {
    fn parse(text: &str) -> Option<RowOrder> {
        let (name, is_reversed) = match text.strip_prefix('-') {
            Some(name) => (name, true),
            None => (text, false),
        };
        let (_, by) = ORDERS.iter().find(|(known, _)| *known == name)?;
        Some(RowOrder { by: *by, is_reversed })
    }

    fn text(self) -> String {
        let (name, _) = ORDERS.iter().find(|(_, by)| *by == self.by).expect("all are listed");
        format!("{}{name}", if self.is_reversed { "-" } else { "" })
    }
}

/// Returns the rows whose names begin so, in their order.
fn rows_below<'a>(pages: &'a [Arc<Page>], prefix: &'a str) -> impl Iterator<Item = &'a Row> {
    let is_before = move |row: &Row| row.name.as_str() < prefix;
    let at = pages.partition_point(|page| page.rows.last().is_some_and(is_before));
    let rows = pages[at..].iter().flat_map(|page| &page.rows);
    let rows = rows.skip_while(move |row| is_before(row));
    rows.take_while(move |row| row.name.starts_with(prefix))
}

/// Counts a row in its folder, which is the last one or a new one: names are in order.
fn count(folders: &mut Vec<FolderRow>, folder: &str, row: &Row) {
    if folders.last().is_none_or(|last| last.name != folder) {
        let (name, first) = (folder.to_owned(), None);
        folders.push(FolderRow { name, files: 0, films: 0, bytes: 0, modified: 0, first });
    }
    let last = folders.last_mut().expect("one was pushed");
    let is_film = is_title(row);
    // The files of renditions have rows of their own.
    if row.renditions.is_empty() {
        last.files += 1;
        last.bytes += bytes(row);
        last.films += u64::from(is_film);
    }
    last.modified = last.modified.max(seconds(row.entry.modified));
    if is_film && last.first.is_none() {
        last.first = Some(row.name.clone());
    }
}

fn bytes(row: &Row) -> u64 {
    row.title.map_or(row.entry.bytes, |title| title.bytes)
}

fn duration_ms(row: &Row) -> u64 {
    match &row.entry.state {
        State::Ready(summary) => (summary.duration_s * 1e3) as u64,
        _ => 0,
    }
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Last component of a name.
fn file_name(name: &str) -> &str {
    let name = name.trim_end_matches('/');
    name.rsplit_once('/').map_or(name, |(_, last)| last)
}

/// Key of the natural order: in lower case, a number behind the count of its digits.
fn natural_key(name: &str) -> String {
    let mut key = String::with_capacity(name.len() + 8);
    let mut rest = name;
    while let Some(first) = rest.chars().next() {
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        if digits == 0 {
            key.extend(first.to_lowercase());
            rest = &rest[first.len_utf8()..];
            continue;
        }
        let number = rest[..digits].trim_start_matches('0');
        key.push(char::from(b'0' + number.len().min(64) as u8));
        key.push_str(number);
        rest = &rest[digits..];
    }
    key
}

const ORDERS: &[(&str, OrderKey)] = &[
    ("name", OrderKey::Name),
    ("newest", OrderKey::Newest),
    ("duration", OrderKey::Duration),
    ("size", OrderKey::Size),
];
/// Words of a search; further ones are ignored.
const WORDS_MAX: usize = 16;
const WRONG_SORT: &str = "sort is no order; write name, newest, duration or size, or -name";
const WRONG_OFFSET: &str = "offset is no number of rows; write 0 or more, such as offset=100";

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::http::index::pages::PageWriter;
    use crate::library::LibraryEntry;

    fn listed(names: &[&str]) -> Vec<Arc<Page>> {
        let mut names = names.to_vec();
        names.sort_unstable();
        let mut pages = PageWriter::new(&[]);
        for (place, name) in names.iter().enumerate() {
            let name = (*name).to_owned();
            let bytes = 1000 - place as u64;
            let modified = UNIX_EPOCH + Duration::from_secs(place as u64);
            let state = match name.ends_with(".txt") {
                true => State::Download,
                false => State::Waiting,
            };
            let renditions = match name.ends_with('/') {
                true => vec![format!("{name}1.ts"), format!("{name}2.ts")],
                false => Vec::new(),
            };
            let entry = LibraryEntry { bytes, modified, state, is_live: false };
            pages.row(Row { name, entry, title: None, renditions });
        }
        pages.finish()
    }

    fn asked(pages: &[Arc<Page>], text: &str) -> (Vec<String>, Vec<String>, Found) {
        let (query, browse) = (Query::parse(text).unwrap(), Browse::parse(text).unwrap().unwrap());
        let (rows, found) = browse.select(pages, &query);
        let rows = rows.iter().map(|row| row.name.clone()).collect();
        (rows, found.folders.iter().map(|folder| folder.name.clone()).collect(), found)
    }

    #[test]
    fn folder_has_its_direct_children_and_counts_of_what_lies_below() {
        let pages = listed(&["a/1.ts", "a/b/2.ts", "a/b/3.txt", "a-b/4.ts", "a.ts", "z10", "z9"]);
        let (rows, folders, found) = asked(&pages, "folder=");
        assert_eq!(rows, ["a.ts", "z9", "z10"], "numbers by value");
        assert_eq!(folders, ["a-b/", "a/"]);
        let a = &found.folders[1];
        assert_eq!((a.files, a.films, a.first.as_deref()), (3, 2, Some("a/1.ts")));
        let (rows, folders, _) = asked(&pages, "folder=a%2F");
        assert_eq!((rows, folders), (vec!["a/1.ts".into()], vec!["a/b/".to_owned()]));
        let (rows, folders, _) = asked(&pages, "folder=nowhere");
        assert!(rows.is_empty() && folders.is_empty());
        assert_eq!(asked(&pages, "folder=/&sort=-newest").0, ["a.ts", "z10", "z9"]);
    }

    #[test]
    fn folder_of_renditions_is_one_film() {
        let pages = listed(&["film/", "film/1.ts", "film/2.ts", "other/3.ts"]);
        let (rows, folders, _) = asked(&pages, "folder=");
        assert_eq!((rows, folders), (vec!["film/".into()], vec!["other/".to_owned()]));
        assert_eq!(asked(&pages, "q=film").0, ["film/"]);
        assert_eq!(asked(&pages, "q=film+2").0, ["film/2.ts"]);
        assert_eq!(asked(&pages, "name=film%2F").0, ["film/"]);
        assert_eq!(asked(&pages, "folder=film").0, ["film/1.ts", "film/2.ts"]);
    }

    #[test]
    fn words_are_found_in_any_case_and_the_best_match_stands_first() {
        let names = ["Sea/Big_Buck.ts", "buck/x.ts", "x/The Buck.ts", "x/y.ts", "x/buck.txt"];
        let pages = listed(&names);
        let (rows, _, found) = asked(&pages, "q=BUCK");
        assert_eq!(rows, ["Sea/Big_Buck.ts", "x/The Buck.ts", "buck/x.ts", "x/buck.txt"]);
        assert_eq!(found.files, 4);
        assert_eq!(asked(&pages, "q=big+sea").0, ["Sea/Big_Buck.ts"]);
        assert_eq!(asked(&pages, "q=buck&below=x").0, ["x/The Buck.ts", "x/buck.txt"]);
        assert_eq!(asked(&pages, "q=buck&sort=size").0[0], "Sea/Big_Buck.ts");
        assert_eq!(asked(&pages, "name=x/y.ts").0, ["x/y.ts"]);
        assert_eq!(asked(&pages, "name=x/y").0, [""; 0]);
    }

    #[test]
    fn rows_come_in_parts_each_once() {
        let names: Vec<String> = (0..7).map(|n| format!("f{n}.ts")).collect();
        let pages = listed(&names.iter().map(String::as_str).collect::<Vec<_>>());
        let (mut text, mut seen) = ("q=F&sort=-name&limit=3".to_owned(), Vec::new());
        loop {
            let (query, browse) = (Query::parse(&text).unwrap(), Browse::parse(&text).unwrap());
            let browse = browse.unwrap();
            let (rows, found) = browse.select(&pages, &query);
            seen.extend(rows.iter().map(|row| row.name.clone()));
            let Some(next) = browse.next(&query, &found) else { break };
            text = next;
        }
        assert_eq!(seen, names.iter().rev().cloned().collect::<Vec<_>>());
    }

    #[test]
    fn wrong_values_are_refused_with_what_to_write() {
        assert_eq!(Browse::parse("sort=best").err(), Some(WRONG_SORT));
        assert_eq!(Browse::parse("folder=&offset=-1").err(), Some(WRONG_OFFSET));
        for other in ["", "after=a", "offset=3", "limit=7&all=1"] {
            assert_eq!(Browse::parse(other), Ok(None), "{other}");
        }
    }
}
