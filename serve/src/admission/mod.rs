// SPDX-License-Identifier: MIT OR Apache-2.0
//! Decides about every request, in one place.
//!
//! HTTP calls it for the index, for files and for keys, RTSP for streams, before anything is
//! opened. The rules and credentials are those of the crate `access`; this module translates a
//! request into its terms: the verb (listing, playing, downloading, fetching a key) and the path.
//! Keys of sealed films can be bound to tokens of a file as well ([`KeyTokens`]).
//!
//! Costs one atomic load on a server without rules. Credentials and rules can be replaced while
//! clients are served; sessions that were admitted play on.
//!
//! Sources: RFC 9110 §15.5.2 (401), §15.5.4 (403), RFC 6585 §4 (429), RFC 6750.
//! Does not confine requests to the served folder ([`crate::library::served_folder`] does).

mod key_tokens;

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;

use access::rules::Verb;
use access::{
    Access, AccessRequest, AccessVerdict, Grant, ListingClass, Protocol, RequestCredentials,
    canonical, carried, without_credentials,
};
use wire::http::{Credentials, Request, query_token};

pub use self::key_tokens::KeyTokens;
use crate::library::Library;
use crate::swapped::Swapped;
use crate::web;

/// Requested resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Subject<'a> {
    /// A file, by its path in a request; not opened yet, so it need not exist.
    File(&'a str),
    /// Names below a folder.
    Names(&'a str),
    /// A key of a sealed film.
    Key(&'a str),
    /// A stream over RTSP.
    Stream(&'a str),
}

/// Credentials of a request and what they are bound to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked<'a> {
    pub(crate) method: &'a str,
    /// Path of the request, decoded.
    pub(crate) target: &'a str,
    pub(crate) query: Option<&'a str>,
    pub(crate) credentials: Option<&'a Credentials>,
    pub(crate) address: IpAddr,
    /// Results of earlier decisions about the same request.
    pub(crate) known: Option<&'a RequestCredentials>,
}

impl<'a> Asked<'a> {
    /// The parts of a request over HTTP.
    pub(crate) fn of_http(request: &'a Request, address: IpAddr) -> Asked<'a> {
        Asked {
            method: request.method.name(),
            target: &request.path,
            query: request.query.as_deref(),
            credentials: request.credentials.as_ref(),
            address,
            known: None,
        }
    }

    /// Adds the results of earlier decisions about the request: a digest response is accepted once.
    pub(crate) fn knowing(self, known: Option<&'a RequestCredentials>) -> Asked<'a> {
        Asked { known, ..self }
    }

    fn request<'r>(
        &'r self,
        verb: Verb,
        (path, asset): (&'r str, &'r str),
        protocol: Protocol,
    ) -> AccessRequest<'r> {
        AccessRequest {
            verb,
            path,
            asset,
            target: self.target,
            method: self.method,
            query: self.query,
            authorization: self.credentials.map(Credentials::as_bytes),
            address: self.address,
            protocol,
            known: self.known,
        }
    }
}

/// Admission policy of a server.
pub(crate) struct Admission {
    access: Arc<Access>,
    tokens: Swapped<Option<KeyTokens>>,
}

impl Admission {
    pub(crate) fn new(access: Arc<Access>, tokens: Option<KeyTokens>) -> Self {
        Self { access, tokens: Swapped::new(tokens) }
    }

    /// Rules and credentials.
    pub(crate) fn access(&self) -> &Arc<Access> {
        &self.access
    }

    /// Replaces the tokens for keys.
    pub(crate) fn replace_tokens(&self, tokens: Option<KeyTokens>) {
        self.tokens.replace(tokens);
    }

    /// True where requests need no check of their resource.
    pub(crate) fn is_open(&self) -> bool {
        self.access.is_open()
    }

    /// Returns the place for results about the credentials of one request; `None` where none are
    /// verified.
    pub(crate) fn request_credentials(&self) -> Option<Arc<RequestCredentials>> {
        (!self.access.is_open()).then(Arc::default)
    }

    /// True where credentials in a query may open something, so that playlists carry them.
    pub(crate) fn carries(&self) -> bool {
        !self.access.is_open() || self.tokens.current().is_some()
    }

    /// Returns a request without the credentials of its query where nothing here verifies them:
    /// they would be written behind each address of a playlist needlessly. `None` for the same
    /// request.
    pub(crate) fn without_unused_credentials(&self, request: &Request) -> Option<Request> {
        let query = request.query.as_deref().filter(|query| carried(query).is_some())?;
        if self.carries() {
            return None;
        }
        let query = without_credentials(query);
        let mut plain = request.clone();
        plain.query = Some(query);
        Some(plain)
    }

    /// Decides about a request. Called for every request before anything is opened.
    pub(crate) async fn decide(
        &self,
        subject: Subject<'_>,
        asked: &Asked<'_>,
        library: &Library,
    ) -> AccessVerdict {
        match subject {
            Subject::Key(film) => self.decide_key(film, asked).await,
            _ if self.access.is_open() => AccessVerdict::Admitted(Grant::default()),
            Subject::File(path) => {
                let (verb, asset) = used(path, library);
                let asked = asked.request(verb, (path, &asset), Protocol::Http);
                self.access.decide(&asked).await
            }
            Subject::Names(folder) => {
                let asked = asked.request(Verb::List, (folder, folder), Protocol::Http);
                self.access.decide(&asked).await
            }
            Subject::Stream(path) => {
                let asset = wire::rtsp::asset_path(path);
                let asked = asked.request(Verb::Play, (path, asset), Protocol::Rtsp);
                self.access.decide(&asked).await
            }
        }
    }

    async fn decide_key(&self, film: &str, asked: &Asked<'_>) -> AccessVerdict {
        let bearer = asked.credentials.and_then(Credentials::bearer);
        let shown = bearer.or_else(|| asked.query.and_then(query_token));
        let tokens = self.tokens.current();
        let held = tokens.as_ref().as_ref();
        let is_right = held.zip(shown).is_some_and(|(held, token)| held.holds(token));
        if is_right {
            return AccessVerdict::Admitted(Grant::default());
        }
        if held.is_some() && self.access.is_open() {
            let challenge = match shown {
                Some(_) => "Bearer realm=\"keys\", error=\"invalid_token\"",
                None => "Bearer realm=\"keys\"",
            };
            let challenges = vec![challenge.to_owned()];
            return AccessVerdict::Unauthorized { challenges, reason: "a token is needed" };
        }
        // Rules and the hook identify the film by its name, whatever its content is now.
        let asset = web::address::identity_of(film).map_or(film, |(file, _)| file);
        let asked = asked.request(Verb::Key, (film, asset), Protocol::Http);
        self.access.decide(&asked).await
    }

    /// Identifies the user of a client; the refusal asks for credentials.
    pub(crate) async fn identify(&self, asked: &Asked<'_>) -> AccessVerdict {
        let request = asked.request(Verb::List, ("", ""), Protocol::Http);
        self.access.identify(&request).await
    }

    /// Returns the names that a client may see; `None` for all.
    ///
    /// # Errors
    /// The verdict about a client that may see no name.
    pub(crate) async fn listing(
        &self,
        asked: &Asked<'_>,
    ) -> Result<Option<Arc<ListingClass>>, AccessVerdict> {
        let request = asked.request(Verb::List, ("", ""), Protocol::Http);
        match self.access.listing(&request).await {
            Some(class) if class.is_empty() => match self.access.decide(&request).await {
                AccessVerdict::Admitted(_) => Ok(Some(Arc::new(class))),
                refused => Err(refused),
            },
            class => Ok(class.map(Arc::new)),
        }
    }
}

/// Returns the use of a file's address, and the file that it is of: a playlist or a segment of a
/// film is played, also where they are files themselves.
fn used<'p>(path: &'p str, library: &Library) -> (Verb, Cow<'p, str>) {
    let Some(plain) = canonical(path) else { return (Verb::Download, Cow::Borrowed(path)) };
    if let Some(address) = web::address::parse(&plain) {
        return (Verb::Play, Cow::Owned(address.file.to_owned()));
    }
    let is_listing = [".m3u8", ".mpd"].iter().any(|ending| plain.ends_with(ending));
    let verb = match is_listing || library.is_part(&plain) {
        true => Verb::Play,
        false => Verb::Download,
    };
    (verb, plain)
}
