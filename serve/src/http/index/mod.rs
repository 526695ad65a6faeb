// SPDX-License-Identifier: MIT OR Apache-2.0
//! A paged list of every file with its download address and every asset with its stream, for people
//! (HTML) and for programs (JSON).
//!
//! The rows of a page, plain and compressed, are made once and shared by all clients, however
//! slowly they read, regardless of the `Host` that they name and of the start of their page. A
//! client that does not read holds a buffer of 16 KiB and a share of one page. The live counters
//! above the rows are made for each answer; an entity tag covers those of them that requests do not
//! change.
//!
//! A listing is made when the library has changed, and not before [`COST_SHARE`] times the cost of
//! the previous one has passed: a storm of changes and requests takes 5 % of one core. Unchanged
//! pages are reused. The memory is freed after [`IDLE`] without requests. Costs about 200 bytes a
//! file, and 400 per requested row and form.
//!
//! Where rules hide names from some clients, clients that may see the same names are a class with a
//! listing of its own ([`ListingClass`]), never one a client: rules with users, tokens and networks
//! make few. A look-up of the rules for each name is added to the cost of a listing.
//!
//! Rows are titles and downloads, ordered by name; on a page for people the titles come first. A
//! folder of renditions of one title has a row, too ([`renditions`]).
//! Files listed by a playlist (segments, further playlists) are part of a title and have no row,
//! unless `?all=1` asks for all files. `?below=FOLDER/` shows the files below a folder, as does the
//! folder's own address. `?after=NAME` begins behind a name, whether it still exists or not;
//! `&limit=N` shortens a page. A page ends after [`PAGE_ROWS`] rows and at boundaries of the whole
//! listing, so it may have fewer rows than `limit`; every page but the last has `next`.
//!
//! Does not answer ([`answer`] does), search, or order the whole listing except by the bytes of the
//! names ([`browse`] does).

mod answer;
mod body;
mod browse;
mod gzip;
mod pages;
mod renditions;
mod rows;
mod text;

use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use access::ListingClass;
use serde::Serialize;
use tokio::sync::Semaphore;
use wire::http::{decoded_path, escape_path};

pub(crate) use self::body::Body;
use self::browse::{BROWSED_AT_ONCE, Browse, Found};
use self::gzip::Packed;
use self::pages::{PAGE_ROWS, Page, PageWriter, Row};
use self::renditions::Folders;
use self::rows::RowFormat;
use self::text::{Slice, Text};
use crate::library::{Library, Listed, State};
use crate::random::random_bytes;
use crate::web::SegmentCipher;

/// The listing that clients share.
pub(crate) struct Index {
    /// Listings of titles and downloads, and listings of all files: one of each for each class of
    /// clients, those that were asked for last.
    kept: [tokio::sync::Mutex<Vec<Kept>>; 2],
    /// Allows one compression at a time; answers meanwhile are uncompressed.
    packing: Arc<Semaphore>,
    /// Allows few searches at a time; others wait.
    browsing: Arc<Semaphore>,
    /// Makes entity tags differ from those of an earlier process.
    start: u64,
    /// Cipher of segments: not every file has HLS and DASH with it.
    cipher: Option<SegmentCipher>,
}

struct Kept {
    class: Option<Arc<ListingClass>>,
    listing: Arc<Listing>,
    asked: Instant,
}

/// Snapshot of all files.
struct Listing {
    generation: u64,
    made: Instant,
    pages: Vec<Arc<Page>>,
    totals: Totals,
    /// Nanoseconds spent on making the listing and its rows.
    cost_ns: AtomicU64,
}

/// Counts over the whole listing. Each file is one of films, waiting, others and parts.
#[derive(Debug, Default, Serialize, Hash)]
struct Totals {
    /// Playable titles: streams and playlists.
    films: u64,
    /// Films with encrypted segments.
    sealed: u64,
    /// Films streamed over RTSP.
    streams: u64,
    /// Files that wait for their plan.
    waiting: u64,
    /// Files that can only be downloaded.
    others: u64,
    /// Files listed by a playlist.
    parts: u64,
    files: u64,
    bytes: u64,
}

impl Totals {
    fn count(&mut self, file: &Listed) {
        let Listed { entry, title, is_part, .. } = file;
        let is_stream = entry.is_live || matches!(entry.state, State::Ready(_));
        let kind = match &entry.state {
            _ if *is_part => &mut self.parts,
            _ if is_stream || title.is_some() => &mut self.films,
            State::Waiting => &mut self.waiting,
            _ => &mut self.others,
        };
        *kind += 1;
        self.streams += u64::from(is_stream && !is_part);
        self.sealed += u64::from(title.is_some_and(|title| title.is_sealed));
        self.files += 1;
        self.bytes += entry.bytes;
    }
}

impl Index {
    pub(crate) fn new(cipher: Option<SegmentCipher>) -> Index {
        let packing = Arc::new(Semaphore::new(1));
        let browsing = Arc::new(Semaphore::new(BROWSED_AT_ONCE));
        let start = u64::from_ne_bytes(random_bytes());
        Index { kept: Default::default(), packing, browsing, start, cipher }
    }

    /// Drops the listings that were not requested for [`IDLE`].
    pub(crate) fn drop_idle(&self) {
        for kept in &self.kept {
            // A locked listing is in use.
            if let Ok(mut kept) = kept.try_lock() {
                kept.retain(|kept| kept.asked.elapsed() <= IDLE);
            }
        }
    }

    /// Returns the page that a query names, with its text; `None` after a panic, which was logged.
    async fn view(
        &self,
        query: &Query,
        form: RowFormat,
        (library, class): (&Arc<Library>, Option<&Arc<ListingClass>>),
    ) -> Option<View> {
        let listing = self.listing(library, query.all, class).await?;
        let after = query.after.as_deref();
        let below = query.below.as_deref();
        let is_before = |row: &Row| {
            after.is_some_and(|after| row.name.as_str() <= after)
                || below.is_some_and(|below| row.name.as_str() < below)
        };
        let is_within = |row: &Row| below.is_none_or(|below| row.name.starts_with(below));
        let at = listing.pages.partition_point(|page| page.rows.last().is_some_and(is_before));
        let Some(page) = listing.pages.get(at).cloned() else {
            let (text, rows) = (Arc::new(form.render(&[], None)), 0..0);
            return Some(View { listing, page: None, text, rows, next: None, found: None });
        };
        let first = page.rows.partition_point(is_before);
        let most = page.rows.partition_point(|row| is_before(row) || is_within(row));
        let end = most.min(first.saturating_add(query.limit));
        let goes_on = || listing.pages.get(at + 1).is_some_and(|page| is_within(&page.rows[0]));
        let is_last = end == most && (most < page.rows.len() || !goes_on());
        let next = (!is_last).then(|| query.next(&page.rows[end - 1].name));
        let text = match page.text(form).get() {
            Some(text) => text.clone(),
            None => {
                let (page, listing) = (page.clone(), listing.clone());
                let cipher = self.cipher;
                let render = move || listing.paid(|| page.rendered(form, cipher));
                logged(tokio::task::spawn_blocking(render).await)?
            }
        };
        Some(View { listing, page: Some(page), text, rows: first..end, next, found: None })
    }

    /// Returns the rows found by a search, as JSON; `None` after a panic, which was logged.
    async fn browsed(
        &self,
        browse: Browse,
        query: Query,
        (library, class): (&Arc<Library>, Option<&Arc<ListingClass>>),
    ) -> Option<View> {
        let listing = self.listing(library, query.all, class).await?;
        let turn = self.browsing.clone().acquire_owned().await.ok()?;
        let (searched, cipher) = (listing.clone(), self.cipher);
        let select = move || {
            let _turn = turn;
            let (rows, found) = browse.select(&searched.pages, &query);
            let next = browse.next(&query, &found);
            let text = Arc::new(RowFormat::Json.render(rows.iter().copied(), cipher));
            (text, 0..rows.len(), next, found)
        };
        let (text, rows, next, found) = logged(tokio::task::spawn_blocking(select).await)?;
        Some(View { listing, page: None, text, rows, next, found: Some(found) })
    }

    /// Returns the listing; makes a new one if the library has changed and the pause is over.
    async fn listing(
        &self,
        library: &Arc<Library>,
        all: bool,
        class: Option<&Arc<ListingClass>>,
    ) -> Option<Arc<Listing>> {
        let mut kept = self.kept[usize::from(all)].lock().await;
        let at = kept.iter().position(|kept| kept.class.as_ref() == class);
        let known = at.map(|at| kept.swap_remove(at).listing);
        let is_current = |known: &Arc<Listing>| {
            known.generation == library.generation() || known.made.elapsed() < known.rest()
        };
        let listing = match known {
            Some(known) if is_current(&known) => known,
            known => {
                let library = library.clone();
                let class = class.cloned();
                let class = move |name: &str| class.as_ref().is_none_or(|c| c.is_listed(name));
                let make =
                    move || Arc::new(Listing::make(&library, (all, &class), known.as_deref()));
                logged(tokio::task::spawn_blocking(make).await)?
            }
        };
        if kept.len() >= CLASSES_MAX
            && let Some(oldest) = (0..kept.len()).min_by_key(|&at| kept[at].asked)
        {
            kept.swap_remove(oldest);
        }
        let class = class.cloned();
        kept.push(Kept { class, listing: listing.clone(), asked: Instant::now() });
        Some(listing)
    }

    /// Returns the compressed rows, unless they are few or another page is being compressed.
    async fn packed(
        &self,
        page: Option<&Arc<Page>>,
        form: RowFormat,
        slice: &Slice,
        listing: &Arc<Listing>,
    ) -> Option<Arc<Packed>> {
        if slice.bytes() < PACKED_BYTES_MIN {
            return None;
        }
        // Rows found by a search belong to no page, and are not kept.
        let page = page.cloned();
        let key = (form, slice.rows.start, slice.rows.end, slice.authorities.clone());
        if let Some(packed) = page.as_ref().and_then(|page| page.find_packed(&key)) {
            return Some(packed);
        }
        let permit = self.packing.clone().try_acquire_owned().ok()?;
        let slice = slice.clone();
        let listing = listing.clone();
        let pack = move || {
            let _permit = permit;
            // Writing into memory cannot fail.
            let packed = Arc::new(listing.paid(|| Packed::new(slice.pieces())).ok()?);
            if let Some(page) = page {
                page.keep_packed(key, &packed);
            }
            Some(packed)
        };
        logged(tokio::task::spawn_blocking(pack).await)?
    }
}

/// Rows selected by a query.
struct View {
    listing: Arc<Listing>,
    page: Option<Arc<Page>>,
    text: Arc<Text>,
    rows: std::ops::Range<usize>,
    next: Option<String>,
    /// Figures about rows found by a search.
    found: Option<Found>,
}

/// Parameters of a query.
struct Query {
    after: Option<String>,
    /// Folder, with a trailing `/`.
    below: Option<String>,
    /// True when parts of titles are listed, too.
    all: bool,
    limit: usize,
    /// `limit` as requested.
    limit_asked: Option<usize>,
}

impl Query {
    /// Parses `after`, `below`, `all` and `limit`; ignores other names.
    ///
    /// # Errors
    /// An unreadable value; the message names the value to write.
    fn parse(query: &str) -> Result<Query, &'static str> {
        let (after, below) = (None, None);
        let mut parsed = Query { after, below, all: false, limit: PAGE_ROWS, limit_asked: None };
        for (name, value) in query.split('&').filter_map(|field| field.split_once('=')) {
            match name {
                "after" => parsed.after = Some(decoded(value)),
                "below" => {
                    let folder = decoded(value);
                    let folder = folder.trim_matches('/');
                    parsed.below = (!folder.is_empty()).then(|| format!("{folder}/"));
                }
                "all" => parsed.all = value == "1",
                "limit" => {
                    let is_number = !value.is_empty() && value.bytes().all(|b| b.is_ascii_digit());
                    // A number too long for `usize` is more than the rows of a page.
                    let limit = is_number.then(|| value.parse().unwrap_or(usize::MAX));
                    let limit = limit.filter(|limit| *limit > 0).ok_or(WRONG_LIMIT)?;
                    parsed.limit_asked = Some(limit);
                    parsed.limit = limit.min(PAGE_ROWS);
                }
                _ => {}
            }
        }
        Ok(parsed)
    }

    /// Returns the query of the page that begins behind `last`.
    fn next(&self, last: &str) -> String {
        let mut query = format!("after={}", escape_path(last));
        if let Some(limit) = self.limit_asked {
            query.push_str(&format!("&limit={limit}"));
        }
        if let Some(below) = &self.below {
            query.push_str(&format!("&below={}", escape_path(below)));
        }
        if self.all {
            query.push_str("&all=1");
        }
        query
    }
}

/// Decodes a name in a query.
fn decoded(value: &str) -> String {
    // HTML's forms write a space as a plus sign.
    decoded_path(&value.replace('+', " "))
}

impl Listing {
    fn make(
        library: &Library,
        (all, is_seen): (bool, &dyn Fn(&str) -> bool),
        before: Option<&Listing>,
    ) -> Listing {
        let made = Instant::now();
        // Read before the rows: later changes are seen the next time.
        let generation = library.generation();
        let mut totals = Totals::default();
        let before = before.map_or(&[][..], |before| &before.pages);
        let (mut rows, mut folders) = (Vec::new(), Folders::default());
        for file in library.entries().into_iter().filter(|file| is_seen(&file.name)) {
            totals.count(&file);
            folders.add(&file);
            let Listed { name, entry, is_part, title } = file;
            if all || !is_part {
                rows.push(Row { name, entry, title, renditions: Vec::new() });
            }
        }
        let mut pages = PageWriter::new(before);
        folders.joined(rows).for_each(|row| pages.row(row));
        let pages = pages.finish();
        let cost_ns = AtomicU64::new(made.elapsed().as_nanos() as u64);
        Listing { generation, made, pages, totals, cost_ns }
    }

    /// Runs `work` and adds its time to the cost of this listing.
    fn paid<T>(&self, work: impl FnOnce() -> T) -> T {
        let began = Instant::now();
        let result = work();
        self.cost_ns.fetch_add(began.elapsed().as_nanos() as u64, Ordering::Relaxed);
        result
    }

    /// Returns how long the listing is shown although the library has changed.
    fn rest(&self) -> Duration {
        let cost = Duration::from_nanos(self.cost_ns.load(Ordering::Relaxed));
        cost.saturating_mul(COST_SHARE).min(REST_MAX)
    }
}

fn logged<T>(done: Result<T, tokio::task::JoinError>) -> Option<T> {
    done.inspect_err(|panic| tracing::error!("http index: {panic}")).ok()
}

/// Least bytes to compress: fewer fit a packet or two.
const PACKED_BYTES_MIN: u64 = 2048;
/// Pause after making a listing, in times of its cost: 5 % of one core.
const COST_SHARE: u32 = 20;
/// Longest pause: greatest age of an outdated listing.
const REST_MAX: Duration = Duration::from_secs(5);
const WRONG_LIMIT: &str =
    "limit is no number of rows; write 1 or more, such as limit=100 (a page has 1000 at most)";
/// Classes of clients whose listings are kept at a time.
const CLASSES_MAX: usize = 16;
/// Time without requests after which a listing is dropped.
const IDLE: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_name_a_page() {
        let query = Query::parse("after=a%2Fb+c.ts&limit=7&x=y").unwrap();
        assert_eq!((query.after.as_deref(), query.limit), (Some("a/b c.ts"), 7));
        assert_eq!(query.next("ä&.ts"), "after=%C3%A4%26.ts&limit=7");
        for odd in ["", "limit=99999999999999999999", "limit=1000000", "after", "x=%ff"] {
            let query = Query::parse(odd).unwrap();
            assert_eq!((query.after.as_deref(), query.limit), (None, PAGE_ROWS), "{odd}");
        }
    }

    #[test]
    fn a_value_that_cannot_be_read_is_refused_with_what_to_write() {
        for wrong in ["limit=0", "limit=-1", "limit=abc", "limit=", "after=a&limit=+7"] {
            assert_eq!(Query::parse(wrong).err(), Some(WRONG_LIMIT), "{wrong}");
        }
        assert!(WRONG_LIMIT.contains(&PAGE_ROWS.to_string()));
        let bytes = Query::parse("after=caf%e9&below=%ff").unwrap();
        assert_eq!(bytes.after.as_deref(), Some("caf\u{10ffe9}"));
        assert_eq!(bytes.next("caf\u{10ffe9}"), "after=caf%E9&below=%FF/");
    }

    #[test]
    fn queries_name_a_folder() {
        let query = Query::parse("below=a%2Fb%2F&all=1").unwrap();
        assert_eq!((query.below.as_deref(), query.all), (Some("a/b/"), true));
        assert_eq!(query.next("a/b/c"), "after=a/b/c&below=a/b/&all=1");
        let top = Query::parse("below=%2f").unwrap();
        assert_eq!(top.below, None, "the top is no folder below it");
    }
}
