// SPDX-License-Identifier: MIT OR Apache-2.0
//! Requests for segments and parts that a recording or channel does not have yet.
//!
//! A low-latency player requests the playlist that has the next part (`_HLS_msn`, `_HLS_part`),
//! or the part that the playlist announces; the answer is sent when it is available. Nothing is
//! polled meanwhile: the thread that follows the media wakes all waiting requests when it has a
//! new plan. A request waits for three target durations at most, and then gets the playlist as
//! it is: so a player of a source that is silent for a while keeps asking (the draft suggests
//! 503, which players treat as a fault of the server). A request beyond those that may wait at
//! once ([`super::web_assets`]) is refused and may be retried.
//!
//! Sources: draft-pantos-hls-rfc8216bis §6.2.5.2 (blocking reload), §6.2.5.1 (updates), §6.2.6.
//! Does not notice that a client hangs up ([`crate::http::connection`] ends the request then).

use std::time::SystemTime;

use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};
use wire::http::{Request, Response, error};

use super::address::{WebAddress, WebItem};
use super::live::LiveAsset;
use super::live_state::{LiveState, Reached};
use crate::channel::window::WindowLive;

/// Query of a request for a playlist.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct ReloadQuery {
    /// Media sequence number of a segment that the playlist must have, and of a part of it.
    segment: Option<usize>,
    part: Option<usize>,
    /// True when segments may be left out that the player has.
    pub(super) is_update: bool,
}

/// Outcome of waiting.
pub(crate) enum LiveWait {
    /// There was nothing to wait for.
    Ready,
    /// The recording is longer now than when its file was opened.
    Waited,
    Refused(Response),
}

impl ReloadQuery {
    /// Parses the query of an address; ignores parameters that are not of HLS.
    ///
    /// # Errors
    /// A value is none that a player may send.
    pub(super) fn parse(query: Option<&str>) -> Result<ReloadQuery, &'static str> {
        let mut asked = ReloadQuery::default();
        for (name, value) in query.unwrap_or_default().split('&').filter_map(|p| p.split_once('='))
        {
            let is_number = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
            let number = || value.parse().ok().filter(|_| is_number);
            match name {
                "_HLS_msn" => asked.segment = Some(number().ok_or("_HLS_msn is no number")?),
                "_HLS_part" => asked.part = Some(number().ok_or("_HLS_part is no number")?),
                "_HLS_skip" => asked.is_update = matches!(value, "YES" | "v2"),
                _ => {}
            }
        }
        match asked {
            ReloadQuery { segment: None, part: Some(_), .. } => Err("_HLS_part without _HLS_msn"),
            asked => Ok(asked),
        }
    }
}

/// True for a request whose answer may wait.
pub(crate) fn may_wait(request: &Request) -> bool {
    let is_query = |query: &str| query.contains("_HLS_msn=");
    let is_picture = |name: &str| name == "poster.jpg" || name.starts_with("thumbnails");
    request.query.as_deref().is_some_and(is_query)
        || request.path.ends_with(".ts") && request.path.contains("/live/")
        || request.path.rsplit('/').next().is_some_and(is_picture)
        // A user who types a search abandons one request for each letter.
        || request.path == "/index.json"
}

/// The item that a request waits for.
enum Wanted {
    Nothing,
    /// It is available.
    Listed,
    /// A segment, or a part of it.
    Coming(usize, Option<usize>),
}

/// Returns the item that a request waits for.
///
/// # Errors
/// The answer to an invalid request.
fn wanted(
    request: &Request,
    address: &WebAddress<'_>,
    state: &LiveState,
    now: SystemTime,
) -> Result<Wanted, Response> {
    let refuse = |what| Err(error(request, 400, what, now));
    let (segment, part) = match address.item {
        WebItem::LivePlaylist => match ReloadQuery::parse(request.query.as_deref()) {
            Ok(ReloadQuery { segment: Some(segment), part, .. }) => (segment, part),
            Ok(_) => return Ok(Wanted::Nothing),
            Err(what) => return refuse(what),
        },
        WebItem::LivePart(segment, part) if state.is_announced(segment, part) => {
            (segment, Some(part))
        }
        _ => return Ok(Wanted::Nothing),
    };
    match state.reached(segment, part) {
        Reached::Listed => Ok(Wanted::Listed),
        Reached::TooFar => refuse("_HLS_msn or _HLS_part is too far ahead of the playlist"),
        Reached::Expected => Ok(Wanted::Coming(segment, part)),
    }
}

/// The answer when too many wait.
fn crowded(request: &Request, now: SystemTime) -> LiveWait {
    let refused = error(request, 503, "too many requests wait for recordings and channels", now);
    LiveWait::Refused(refused.with_field("Retry-After", "1"))
}

/// Waits until the recording has the requested item.
pub(crate) async fn awaited(
    request: &Request,
    address: &WebAddress<'_>,
    live: &LiveAsset,
    waits: &Semaphore,
    now: SystemTime,
) -> LiveWait {
    if address.identity != Some(live.recorded.identity()) {
        return LiveWait::Ready;
    }
    let wanted = wanted(request, address, &live.state(), now);
    let (segment, part) = match wanted {
        Err(refused) => return LiveWait::Refused(refused),
        Ok(Wanted::Nothing) => return LiveWait::Ready,
        Ok(Wanted::Listed) => {
            // The player will request the next segment or part.
            live.recorded.growth().iter().for_each(|growth| growth.note_watched());
            return LiveWait::Ready;
        }
        Ok(Wanted::Coming(segment, part)) => (segment, part),
    };
    let Ok(_place) = waits.try_acquire() else { return crowded(request, now) };
    wait(live, || live.state().reached(segment, part) != Reached::Expected).await;
    LiveWait::Waited
}

/// Waits until the channel has the requested item.
pub(super) async fn awaited_of_channel(
    request: &Request,
    address: &WebAddress<'_>,
    live: &WindowLive,
    waits: &Semaphore,
    now: SystemTime,
) -> LiveWait {
    let identity = address.identity.unwrap_or_default();
    let wanted = live.with(identity, |state, _| {
        (wanted(request, address, state, now), Instant::now() + state.wait_max())
    });
    let Some((wanted, deadline)) = wanted else { return LiveWait::Ready };
    let (segment, part) = match wanted {
        Err(refused) => return LiveWait::Refused(refused),
        Ok(Wanted::Nothing) => return LiveWait::Ready,
        Ok(Wanted::Listed) => {
            live.note_watched();
            return LiveWait::Ready;
        }
        Ok(Wanted::Coming(segment, part)) => (segment, part),
    };
    let Ok(_place) = waits.try_acquire() else { return crowded(request, now) };
    loop {
        // Created before the look, so that nothing is missed.
        let grown = live.grown();
        live.note_watched();
        let expected = |state: &mut LiveState, _| state.reached(segment, part) == Reached::Expected;
        // A channel that has begun anew has other addresses.
        let is_expected = live.with(identity, expected).unwrap_or(false);
        if !is_expected || timeout_at(deadline, grown).await.is_err() {
            return LiveWait::Waited;
        }
    }
}

async fn wait(live: &LiveAsset, is_there: impl Fn() -> bool) {
    let Some(growth) = live.recorded.growth() else { return };
    let deadline = Instant::now() + live.state().wait_max();
    loop {
        // Created before the look, so that no plan is missed.
        let grown = growth.grown();
        growth.note_asked();
        growth.note_watched();
        match growth.newest_stream() {
            Some(newest) => live.extend(&newest.asset),
            None => return,
        }
        if is_there() || timeout_at(deadline, grown).await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_read_and_nonsense_refused() {
        let parse = |query| ReloadQuery::parse(Some(query));
        let asked = |segment, part, is_update| Ok(ReloadQuery { segment, part, is_update });
        for (query, expected) in [
            ("", asked(None, None, false)),
            ("token=a&_HLS_msn=7", asked(Some(7), None, false)),
            ("_HLS_msn=7&_HLS_part=0&_HLS_skip=YES", asked(Some(7), Some(0), true)),
            ("_HLS_skip=v2", asked(None, None, true)),
            ("_HLS_skip=no", asked(None, None, false)),
            ("_HLS_msn=", Err("_HLS_msn is no number")),
            ("_HLS_msn=-1", Err("_HLS_msn is no number")),
            ("_HLS_msn=+1", Err("_HLS_msn is no number")),
            ("_HLS_msn=99999999999999999999999", Err("_HLS_msn is no number")),
            ("_HLS_msn=1&_HLS_part=x", Err("_HLS_part is no number")),
            ("_HLS_part=1", Err("_HLS_part without _HLS_msn")),
        ] {
            assert_eq!(parse(query), expected, "{query}");
        }
        assert_eq!(ReloadQuery::parse(None), asked(None, None, false));
    }
}
