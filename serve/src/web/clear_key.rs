// SPDX-License-Identifier: MIT OR Apache-2.0
//! Clear key: licences and descriptions of segments enciphered with cbcs, for players in browsers.
//!
//! Apple's players use the key itself (`KEYFORMAT="identity"`). In browsers the key reaches the
//! decoder through Encrypted Media Extensions, by the key system that every browser has: clear key.
//! MPDs name it and the address of its licence. A playlist names one format of keys, since players
//! use the first that they support: with the query `keyformat=org.w3.clearkey` the playlists of a
//! file and of a title name this one.
//!
//! A licence is a set of JSON Web Keys, `/keys/FILE/~I/0.jwk` of a file and `/keys/FOLDER/0.jwk` of
//! all renditions of a title, by GET or POST: players post the identifiers that they want, and get
//! all that there are.
//!
//! Sources: Encrypted Media Extensions §9.1 (clear key); RFC 7517 §5 (JWK set), §6.4 of RFC 7518;
//! DASH-IF, Content Protection and Security (ClearKey, Laurl); RFC 8216 §4.3.2.4.
//! Does not admit clients ([`crate::admission`] does).

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use quick_xml::escape::escape;
use serde_json::json;
use wire::http::Request;

use super::address::WebItem;
use super::protection::{AssetKeys, hex};
use crate::segment_key::KEY_BYTES;

/// Format of keys in playlists, and name of the key system.
pub(super) const CLEAR_KEY: &str = "org.w3.clearkey";

/// Extension of a licence's address.
pub(crate) const LICENCE: &str = "jwk";

/// Query of an address of playlists.
const QUERY: &str = "keyformat=org.w3.clearkey";

/// True when a request is for playlists with this format of keys.
pub(super) fn is_asked(request: &Request) -> bool {
    request.query.as_deref().is_some_and(|query| query.split('&').any(|field| field == QUERY))
}

/// Returns a playlist in the form for players in browsers.
pub(super) fn playlist(text: &[u8], item: &WebItem, keys: Option<&AssetKeys>) -> Vec<u8> {
    let text = String::from_utf8_lossy(text);
    let lines = text.lines().map(|line| match (keys, line.strip_suffix(".m3u8\"")) {
        (Some(keys), _) if line.starts_with("#EXT-X-KEY:") => keys.clear_key_tag(),
        _ if *item != WebItem::Master => line.to_owned(),
        // The address is the last attribute of its tag.
        (_, Some(before)) => format!("{before}.m3u8?{QUERY}\""),
        _ if line.starts_with('#') => line.to_owned(),
        _ => format!("{line}?{QUERY}"),
    });
    lines.fold(String::with_capacity(text.len()), |all, line| all + &line + "\n").into_bytes()
}

/// Returns a licence: keys, behind their identifiers.
pub(crate) fn licence(keys: &[([u8; KEY_BYTES], [u8; KEY_BYTES])]) -> Vec<u8> {
    let key = |(key_id, key): &([u8; KEY_BYTES], [u8; KEY_BYTES])| {
        let [key_id, key] = [key_id, key].map(|bytes| URL_SAFE_NO_PAD.encode(bytes));
        json!({"kty": "oct", "kid": key_id, "k": key})
    };
    let keys: Vec<_> = keys.iter().map(key).collect();
    json!({"keys": keys, "type": "temporary"}).to_string().into_bytes()
}

/// Namespaces of the elements here, as attributes of the MPD.
pub(super) const NAMESPACES: &str =
    "xmlns:cenc=\"urn:mpeg:cenc:2013\" xmlns:dashif=\"https://dashif.org/CPS\"";

/// Tag before the path of a licence in an MPD.
const LICENCE_TAG: &str = "<dashif:Laurl Lic_type=\"EME-1.0\">";

/// Returns the elements of an MPD for media with this key, with the address of its licence, or of
/// the licence for all keys of the title that its file belongs to. There is no `pssh` box: dash.js
/// parses it as JSON.
pub(super) fn elements(keys: &AssetKeys, is_of_title: bool) -> String {
    let id = hex(&keys.common_encryption().key_id);
    let parts = [&id[..8], &id[8..12], &id[12..16], &id[16..20], &id[20..]];
    let licence = if is_of_title { keys.licence_of_title() } else { keys.licence() };
    format!(
        "      <ContentProtection schemeIdUri=\"urn:mpeg:dash:mp4protection:2011\" value=\"cbcs\" \
         cenc:default_KID=\"{}\"/>\n      \
         <ContentProtection schemeIdUri=\"urn:uuid:e2719d58-a985-b3c9-781a-b030af78d30e\" \
         value=\"ClearKey1.0\">\n        {LICENCE_TAG}{licence}</dashif:Laurl>\n      \
         </ContentProtection>\n",
        parts.join("-")
    )
}

/// Returns an MPD with addresses of licences on this server (`http://host`): players resolve paths
/// against the page that they are in.
pub(super) fn with_origin(manifest: &[u8], origin: &str) -> Vec<u8> {
    let manifest = String::from_utf8_lossy(manifest);
    manifest.replace(LICENCE_TAG, &format!("{LICENCE_TAG}{}", escape(origin))).into_bytes()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::web::SegmentCipher;
    use crate::web::protection::Protection;
    use crate::web::ts_form::TsForm;

    fn keys() -> AssetKeys {
        let make = Arc::new(|film: &str, _: u64| [film.len() as u8; KEY_BYTES]);
        let protection = Protection::new(SegmentCipher::Cbcs, make);
        AssetKeys::new("a b.mp4/~1-2-3.1".to_owned(), &protection)
    }

    #[test]
    fn playlists_name_the_key_system_and_lead_to_those_that_do() {
        let master = "#EXTM3U\n#EXT-X-MEDIA:NAME=\"a.m3u8\",URI=\"~I/2.m3u8\"\n\
            #EXT-X-STREAM-INF:BANDWIDTH=1\n~I/1.m3u8\n";
        let expected = "#EXTM3U\n\
            #EXT-X-MEDIA:NAME=\"a.m3u8\",URI=\"~I/2.m3u8?keyformat=org.w3.clearkey\"\n\
            #EXT-X-STREAM-INF:BANDWIDTH=1\n~I/1.m3u8?keyformat=org.w3.clearkey\n";
        let made = playlist(master.as_bytes(), &WebItem::Master, None);
        assert_eq!(String::from_utf8(made).unwrap(), expected);
        // The grammar of Host permits it.
        let manifest = with_origin(LICENCE_TAG.as_bytes(), "http://a&b");
        assert_eq!(manifest, format!("{LICENCE_TAG}http://a&amp;b").as_bytes());
        let keys = keys();
        let media = format!("#EXTM3U\n{}#EXTINF:6,\n1/0.m4s\n", keys.tag(0));
        let made = playlist(media.as_bytes(), &WebItem::TsPlaylist(TsForm::Ranges), Some(&keys));
        let expected = "#EXTM3U\n#EXT-X-KEY:METHOD=SAMPLE-AES,\
            URI=\"/keys/a%20b.mp4/~1-2-3.1/0.jwk\",KEYID=0x14141414141414141414141414141414,\
            KEYFORMAT=\"org.w3.clearkey\",KEYFORMATVERSIONS=\"1\"\n#EXTINF:6,\n1/0.m4s\n";
        assert_eq!(String::from_utf8(made).unwrap(), expected);
    }
}
