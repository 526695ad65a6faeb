// SPDX-License-Identifier: MIT OR Apache-2.0
//! hls.js in Chromium plays sealed titles of every kind: one sound, several of one codec and of
//! several, radio, several programmes. `seal hls` names streams that a browser cannot play.
//!
//! hls.js is installed by scripts/setup.sh with npm; it is copied beside the titles while a test
//! runs. ffmpeg makes the streams.
//!
//! Sources: RFC 8216 §4.3.4; hls.js, "API.md" (events, error details).

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;

use crate::ffmpeg::{Frame, frames};
use crate::harness::film;
use crate::harness::{PROGRAM, Place, Server, watchdog};
use crate::hls::browsed;

const HLS_JS: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../out/test-tools/node_modules/hls.js/dist/hls.min.js");

const H264: &[&str] =
    &["-c:v", "libx264", "-preset", "ultrafast", "-g", "50", "-pix_fmt", "yuv420p"];

/// Makes a stream of twelve seconds with these inputs of lavfi; returns none, with the reason
/// printed, where ffmpeg cannot make it.
fn made(
    test: &str,
    folder: &Path,
    name: &str,
    inputs: &[&str],
    options: &[&str],
) -> Option<PathBuf> {
    let mut command = Command::new("ffmpeg");
    command.args(["-hide_banner", "-loglevel", "error"]);
    for input in inputs {
        command.args(["-f", "lavfi", "-t", "12", "-i", input]);
    }
    for index in 0..inputs.len() {
        command.args(["-map", &index.to_string()]);
    }
    let path = folder.join(name);
    film::put(test, command.args(options).args(["-f", "mpegts"]), &path)?;
    Some(path)
}

const PICTURE: &str = "testsrc2=size=320x180:rate=25";
const SOUND: &str = "sine=frequency=440";
const OTHER_SOUND: &str = "sine=frequency=880";
const LANGUAGES: &[&str] = &["-metadata:s:a:0", "language=deu", "-metadata:s:a:1", "language=fra"];

/// A sealed and served title, and the output of `seal hls`.
struct Title {
    server: Server,
    source: PathBuf,
    messages: String,
    /// Kept alive for its files.
    secrets: TempDir,
}

fn sealed(test: &str, inputs: &[&str], options: &[&[&str]]) -> Option<Title> {
    let secrets = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let source = made(test, secrets.path(), "title.ts", inputs, &options.concat())?;
    let key = secrets.path().join("secret");
    fs::write(&key, "5a".repeat(32)).expect("written");
    fs::set_permissions(&key, PermissionsExt::from_mode(0o600)).expect("it is ours");
    let place = Place::new();
    let mut command = Command::new(PROGRAM);
    command.args(["seal", "hls", "--target-duration", "4", "--key-file"]).arg(&key);
    command.arg(&source).arg(place.folder());
    let outcome = watchdog::run(&mut command, LIMIT).expect("the program is there");
    assert!(outcome.status.success(), "{}", outcome.stderr);
    let shown = String::from_utf8_lossy(&outcome.stdout).into_owned();
    assert!(shown.contains("http://127.0.0.1:8080/title/master.m3u8\n"), "{shown}");
    assert!(shown.contains("pagewire serve ") && shown.contains(" --hls-key-file "), "{shown}");
    let messages = outcome.stderr;
    let key = key.display().to_string();
    let server = Server::at(&place, Command::new(PROGRAM), &["--hls-key-file", &key]);
    Some(Title { server, source, messages, secrets })
}

impl Title {
    /// Returns the text of a playlist of the title.
    fn master(&self, name: &str) -> String {
        fs::read_to_string(self.server.folder().join("title").join(name)).expect("a playlist")
    }

    /// Returns the result of hls.js with a multivariant playlist; `then` is the script that the
    /// page runs after two seconds of play, and reports by `tell`.
    fn played(&self, test: &str, master: &str, then: &str) -> Option<String> {
        if let Err(error) = fs::copy(HLS_JS, self.server.folder().join("hls.js")) {
            eprintln!("skip: {test}: {HLS_JS}: not installed: {error}; make setup");
            return None;
        }
        let page = |report: &str| {
            format!(
                "<!doctype html><video id=v muted></video><script src=hls.js></script><script>
                let told = false;
                const tell = (what) => {{
                    if (!told) fetch('http://{report}/' + encodeURIComponent(what),
                        {{mode: 'no-cors'}});
                    told = true;
                }};
                const v = document.getElementById('v');
                const hls = new Hls({{enableWorker: false}});
                hls.on(Hls.Events.ERROR, (_, data) => {{
                    if (data.fatal) tell('error ' + data.details);
                }});
                hls.on(Hls.Events.MANIFEST_PARSED, () => v.play());
                const sound = () => v.webkitAudioDecodedByteCount > 0 ? ' with sound' : ' silent';
                const state = () => v.videoWidth + 'x' + v.videoHeight + sound();
                let then = () => {{ {then} }};
                v.ontimeupdate = () => {{
                    if (v.currentTime > 2) then();
                }};
                hls.loadSource('title/{master}');
                hls.attachMedia(v);
                </script>"
            )
        };
        browsed(test, &self.server, page)
    }

    /// Returns the frames of a playlist, or of one track of the source.
    fn frames_of(&self, test: &str, playlist: &str) -> Option<Vec<Frame>> {
        let url = self.server.http_url(&format!("title/{playlist}"));
        frames(test, &["-copyts"], OsStr::new(&url), &[])
    }

    /// Opens all sealed files with OpenSSL and compares them with the source.
    fn assert_verified(&self) {
        let mut command = Command::new(PROGRAM);
        command.args(["seal", "verify", "hls", "--key-file"]);
        command.arg(self.secrets.path().join("secret")).arg("--source").arg(&self.source);
        command.arg(self.server.folder().join("title"));
        watchdog::run(&mut command, LIMIT).expect("the program is there").succeeded();
    }
}

const AS_IT_IS: &str = "tell('played ' + state());";

/// Without the times of a stream, which begin where its first segment does.
fn hashes(frames: &[Frame]) -> Vec<&str> {
    frames.iter().map(|frame| frame.hash.as_str()).collect()
}

/// Returns the frames of one track of the source.
fn track(test: &str, title: &Title, map: &str) -> Vec<Frame> {
    // The last map replaces the map of all.
    let copy = title.source.with_extension("track.ts");
    let mut command = Command::new("ffmpeg");
    command.args(["-hide_banner", "-loglevel", "error", "-y", "-i"]).arg(&title.source);
    command.args(["-map", map, "-c", "copy"]).arg(&copy);
    watchdog::run(&mut command, LIMIT).expect("ffmpeg made the source").succeeded();
    frames(test, &[], copy.as_os_str(), &[]).expect("ffmpeg made the source")
}

#[test]
fn one_sound_plays_and_the_playlist_has_size_and_rate() {
    let test = "hls_js::one_sound_plays_and_the_playlist_has_size_and_rate";
    let Some(title) = sealed(test, &[PICTURE, SOUND], &[H264, &["-c:a", "aac"]]) else { return };
    let master = title.master("master.m3u8");
    assert!(master.contains(",RESOLUTION=320x180,FRAME-RATE=25.000\nmedia.m3u8"), "{master}");
    assert_eq!(title.messages, "", "nothing to be named");
    let Some(report) = title.played(test, "master.m3u8", AS_IT_IS) else { return };
    assert_eq!(report, "played 320x180 with sound");
    title.server.stop();
}

#[test]
fn of_two_codecs_the_one_that_a_browser_has_plays_and_the_other_is_named() {
    let test = "hls_js::of_two_codecs_the_one_that_a_browser_has_plays_and_the_other_is_named";
    for (first, second, named) in
        [("aac", "ac3", "AC-3 sound (ac-3,"), ("mp2", "aac", "MP2 sound (mp4a.40.33,")]
    {
        let codecs = ["-c:a:0", first, "-c:a:1", second];
        let inputs = [PICTURE, SOUND, OTHER_SOUND];
        let Some(title) = sealed(test, &inputs, &[H264, &codecs, LANGUAGES]) else { return };
        assert!(title.messages.contains(named), "{}", title.messages);
        let master = title.master("master.m3u8");
        let groups = master.matches("#EXT-X-MEDIA:TYPE=AUDIO").count();
        let variants: Vec<_> =
            master.lines().filter(|line| line.starts_with("#EXT-X-STREAM-INF")).collect();
        assert_eq!((groups, variants.len()), (2, 2), "{master}");
        for variant in variants {
            let codecs = variant.split_once("CODECS=\"").expect("codecs").1;
            let (codecs, _) = codecs.split_once('"').expect("quoted");
            assert_eq!(codecs.split(',').count(), 2, "a picture and one sound: {variant}");
        }
        for what in ["LANGUAGE=\"de\"", "LANGUAGE=\"fr\"", "CHANNELS=\"1\"", "audio-258.m3u8"] {
            assert!(master.contains(what), "{what}: {master}");
        }
        // The rendition equals that sound, frame by frame.
        let Some(rendition) = title.frames_of(test, "audio-258.m3u8") else { return };
        let sent = track(test, &title, "0:a:1");
        assert!(sent.len() > 300, "{} frames", sent.len());
        assert_eq!(hashes(&rendition), hashes(&sent));
        title.assert_verified();
        let Some(report) = title.played(test, "master.m3u8", AS_IT_IS) else { return };
        assert_eq!(report, "played 320x180 with sound", "{first} and {second}");
        title.server.stop();
    }
}

#[test]
fn a_player_changes_between_two_languages() {
    let test = "hls_js::a_player_changes_between_two_languages";
    let inputs = [PICTURE, SOUND, OTHER_SOUND];
    let Some(title) = sealed(test, &inputs, &[H264, &["-c:a", "aac"], LANGUAGES]) else { return };
    // Played for two seconds more after the change, with more sound decoded.
    let then = "
        const tracks = hls.audioTracks.map((t) => t.lang).join(' ');
        const before = hls.audioTrack;
        hls.audioTrack = 1 - before;
        hls.on(Hls.Events.FRAG_BUFFERED, (_, data) => {
            if (data.frag.type != 'audio') return;
            const at = v.currentTime, bytes = v.webkitAudioDecodedByteCount;
            then = () => {
                if (v.currentTime > at + 2 && v.webkitAudioDecodedByteCount > bytes)
                    tell(tracks + ' ' + before + ' to ' + hls.audioTrack + ' ' + state());
            };
        });
        then = () => {};";
    let Some(report) = title.played(test, "master.m3u8", then) else { return };
    assert_eq!(report, "de fr 0 to 1 320x180 with sound");
    title.server.stop();
}

#[test]
fn radio_plays_in_aac_and_what_no_browser_plays_is_named() {
    let test = "hls_js::radio_plays_in_aac_and_what_no_browser_plays_is_named";
    let Some(radio) = sealed(test, &[SOUND], &[&["-c:a", "aac"]]) else { return };
    let Some(report) = radio.played(test, "master.m3u8", AS_IT_IS) else { return };
    assert_eq!((report.as_str(), radio.messages.as_str()), ("played 0x0 with sound", ""));
    radio.server.stop();

    let hevc = ["-c:v", "libx265", "-preset", "ultrafast", "-x265-params", "log-level=none"];
    let mpeg2 = ["-c:v", "mpeg2video", "-g", "25"];
    let no_decoder = "browsers have no decoder for it";
    for (inputs, options, named, why) in [
        (&[SOUND][..], &["-c:a", "mp2"][..], "MP2 sound (mp4a.40.33,", no_decoder),
        (&[PICTURE], &mpeg2, "MPEG-1/2 video (mp4v.61,", no_decoder),
        (&[PICTURE], &hevc, "HEVC video (hvc1.1.6.L60.90,", "where the device has a decoder"),
    ] {
        let Some(title) = sealed(test, inputs, &[options]) else { return };
        assert!(
            title.messages.contains(named) && title.messages.contains(why),
            "{}",
            title.messages
        );
        let name = named.split_once('(').expect("a name").1.trim_end_matches(',');
        let master = title.master("master.m3u8");
        assert!(master.contains(&format!("CODECS=\"{name}\"")), "{master}");
        let Some(report) = title.played(test, "master.m3u8", AS_IT_IS) else { return };
        let is_hevc = name.starts_with("hvc1");
        let refused = report == "error manifestIncompatibleCodecsError";
        assert!(refused || is_hevc && report == "played 320x180 silent", "{name}: {report}");
        title.server.stop();
    }
}

#[test]
fn programmes_are_titles_and_the_first_is_the_master() {
    let test = "hls_js::programmes_are_titles_and_the_first_is_the_master";
    let other = "testsrc2=size=480x270:rate=25";
    let programmes = ["-program", "title=One:st=0:st=1", "-program", "title=Two:st=2:st=3"];
    let inputs = [PICTURE, SOUND, other, OTHER_SOUND];
    let Some(title) = sealed(test, &inputs, &[H264, &["-c:a", "aac"], &programmes]) else { return };
    let expected = "2 programmes, each a title: program-1.m3u8, program-2.m3u8";
    assert!(title.messages.contains(expected), "{}", title.messages);
    assert_eq!(title.master("master.m3u8"), title.master("program-1.m3u8"));
    title.assert_verified();
    for (programme, maps) in [(1, ["0:0", "0:1"]), (2, ["0:2", "0:3"])] {
        let media = format!("program-{programme}-media.m3u8");
        let Some(played) = title.frames_of(test, &media) else { return };
        for (stream, map) in maps.into_iter().enumerate() {
            let played = crate::ffmpeg::of_stream(&played, stream);
            let sent = track(test, &title, map);
            assert!(sent.len() >= 300, "{} frames", sent.len());
            assert_eq!(hashes(&played), hashes(&sent), "{media} {map}");
        }
    }
    for (master, size) in [("master.m3u8", "320x180"), ("program-2.m3u8", "480x270")] {
        let Some(report) = title.played(test, master, AS_IT_IS) else { return };
        assert_eq!(report, format!("played {size} with sound"));
    }
    title.server.stop();
}

const LIMIT: Duration = Duration::from_secs(120);
