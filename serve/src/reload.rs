// SPDX-License-Identifier: MIT OR Apache-2.0
//! Another configuration for a running server, without the end of a session.
//!
//! The reload first opens everything that a host or a file can refuse; then each part adopts its
//! new value. So a configuration with a fault changes nothing. The reload replaces limits, pace and
//! rates ([`ClientLimits`](crate::ClientLimits)), the time-out of new sessions, the allowed origin,
//! rules and credentials of access, tokens and sources of keys, the certificate's files, and
//! channels. Everything else of [`Config`] (addresses, folder, cache, ports, paths, pacers, cipher
//! of segments) stays unchanged: the caller compares the configurations and names the values that
//! need a restart.
//!
//! Costs nothing to sessions that play: nothing here is read for a packet.
//!
//! Does not read a configuration file or receive signals: the program does.

use access::Policy;

use crate::channel::playout::{ChannelHost, OpenedChannels};
use crate::config::Config;
use crate::error::Error;
use crate::http::cors::warn_of_any_origin;
use crate::http::film_keys::{FilmKeys, KeySource};
use crate::live_settings::LiveSettings;
use crate::server::Server;
use crate::server_state::ServerState;

/// Result of a reload.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reloaded {
    /// Channels that began.
    pub channels_added: Vec<String>,
    /// Channels that ended.
    pub channels_removed: Vec<String>,
    /// Channels that began anew with other settings; their viewers ended.
    pub channels_changed: Vec<String>,
    /// True where the keys of films are others and segments are enciphered with the old ones, which
    /// players hold: they stay until a restart.
    pub keys_kept: bool,
}

impl Server {
    /// Puts another configuration into force, as far as a running server can; waits for the end of
    /// removed channels. A concurrent call waits for this one.
    ///
    /// # Errors
    /// See [`Error`]; nothing has changed.
    pub async fn reload(&self, mut config: Config) -> Result<Reloaded, Error> {
        let _turn = self.reloading.lock().await;
        self.check(&mut config)?;
        let state = &*self.state;
        let keys_kept = state.keeps_keys(config.keys.as_ref());
        let keys = config.keys.as_ref().filter(|_| !keys_kept);
        let keys = keys.map(|source| FilmKeys::open(source, state.library.folder.path()));
        let keys = keys.transpose()?;
        let certificate = match (&state.tls, &config.tls) {
            (Some(terms), Some(source)) => terms.load(source)?,
            _ => None,
        };
        let policy = Policy::load(&config.access)?;
        let fixed = &state.config;
        let cache = fixed.cache.as_deref();
        let host = ChannelHost { burst: fixed.burst, cache, clock: &state.clock };
        let channels = OpenedChannels::open(&state.channels, &config.channels, host)?;

        // Nothing fails from here on.
        state.limits.replace(config.limits.clone());
        state.admission.access().replace(policy);
        state.admission.replace_tokens(config.key_tokens.clone());
        state.live.replace(LiveSettings::of(&config));
        warn_of_any_origin(state);
        if !keys_kept {
            state.keys.replace(keys);
            state.key_source.replace(config.keys);
        }
        if let (Some(terms), Some(certificate)) = (&state.tls, certificate) {
            terms.replace(certificate);
        }
        let changes = channels.begin(&state.channels, &state.library).await;
        Ok(Reloaded {
            channels_added: changes.added,
            channels_removed: changes.removed,
            channels_changed: changes.changed,
            keys_kept,
        })
    }
}

impl Server {
    /// Checks a configuration for the listeners that this server has, which no reload moves: a
    /// service manager's listeners win over addresses of the file, as at the start, and the
    /// administrator's listener stays open to the same clients, even if the file names it no more.
    fn check(&self, config: &mut Config) -> Result<(), Error> {
        config.enter_managed(&self.sockets);
        config.check()?;
        self.admin().map_or(Ok(()), |address| config.check_open_admin(address))
    }
}

impl ServerState {
    /// True where segments are enciphered with keys that this source does not give.
    fn keeps_keys(&self, source: Option<&KeySource>) -> bool {
        let in_use = self.key_source.current();
        let is_same = in_use
            .as_ref()
            .as_ref()
            .zip(source)
            .is_some_and(|(one, other)| one.gives_the_same(other));
        self.config.segment_cipher.is_some() && !is_same
    }
}
