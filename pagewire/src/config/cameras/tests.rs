// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the file of cameras: its settings are applied, and each fault has its line and cure.
//!
//! Does not connect to cameras.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use client::{RecordedMedia, StreamTransport, TransportChoice};
use tempfile::TempDir;

use super::*;

const PRINT: &str = "BA:78:16:BF:8F:01:CF:EA:41:41:40:DE:5D:AE:22:23:B0:03:61:A3:96:17:7A:9C:B4:10:\
                     FF:61:F2:00:15:AD";
const OTHER_PRINT: &str = "00:78:16:BF:8F:01:CF:EA:41:41:40:DE:5D:AE:22:23:B0:03:61:A3:96:17:7A:9C:\
                           B4:10:FF:61:F2:00:15:AD";

/// All settings, one a line; the files and folders are those of [`Site`].
const ALL: &str = r#"# All of it.
folder = "recordings"
credentials = "cameras.secret"
rotate_at_minutes = 30
time_zone = "Europe/Berlin"
keep_days = 30
keep_free_gb = 20.5
transport = "tcp"
form = "mp4"

[camera.yard]
url = "rtsps://192.168.1.21/stream1"
fingerprint = "PRINT"
folder = "big/yard"
allow_basic = true
keep_gb = 500
keep_days = 0.5
rotate_seconds = 90.5
rotate_bytes = 1_000_000
time_zone = "America/New_York"
on_file = ["bin/upload", "{file}"]

[camera.door]
url = "rtsp://192.168.1.20/stream1"
transport = "udp"
form = "ts"
tracks = "audio"

[camera."studio 1"]
url = "udp://239.1.1.1:5004"

[camera.remote]
sdp = "remote.sdp"
on_file = "logger"
"#;

/// Folder of a configuration file, with the files that [`ALL`] names.
struct Site {
    folder: TempDir,
}

impl Site {
    fn new() -> Site {
        let site = Site { folder: tempfile::tempdir().expect("a folder") };
        for folder in ["recordings", "big", "bin"] {
            fs::create_dir(site.path(folder)).unwrap();
        }
        site.write("cameras.secret", "rtsp://anna:pw-of-anna@192.168.1.20\n", 0o600);
        site.write("remote.sdp", "v=0\n", 0o644);
        site.write("bin/upload", "#!/bin/sh\n", 0o755);
        site
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, text: &str, mode: u32) {
        fs::write(self.path(name), text).unwrap();
        fs::set_permissions(self.path(name), fs::Permissions::from_mode(mode)).unwrap();
    }

    fn parse(&self, text: &str) -> Result<Vec<StreamOptions>, Vec<String>> {
        self.parse_with_mode(text, None)
    }

    fn parse_with_mode(
        &self,
        text: &str,
        mode_for_others: Option<u32>,
    ) -> Result<Vec<StreamOptions>, Vec<String>> {
        let text = text.replace("OTHER_PRINT", OTHER_PRINT).replace("PRINT", PRINT);
        parse(&FileText { shown: "c.toml".into(), text, mode_for_others }, self.folder.path())
    }

    /// Faults, with the folder of the site left out.
    #[track_caller]
    fn faults(&self, text: &str) -> Vec<String> {
        self.without_folder(self.parse(text).expect_err("a fault"))
    }

    fn without_folder(&self, faults: Vec<String>) -> Vec<String> {
        let folder = format!("{}/", self.folder.path().display());
        faults.into_iter().map(|fault| fault.replace(&folder, "")).collect()
    }
}

fn files(stream: &StreamOptions) -> &CameraFiles {
    match &stream.output {
        StreamOutputFiles::Camera(files) => files,
        other => panic!("{other:?}"),
    }
}

/// A transport stream is recorded with all that is in it.
const TRACKS_OF_UDP: &str =
    "30: camera.studio 1: tracks: video: it sends a transport stream, which";

#[test]
fn all_settings_of_cameras_arrive_in_the_order_of_the_file() {
    let site = Site::new();
    let streams = site.parse(ALL).unwrap();
    let [yard, door, studio, remote] = &streams[..] else { panic!("{streams:?}") };
    let names = streams.iter().map(|stream| files(stream).camera.as_str());
    assert_eq!(names.collect::<Vec<_>>(), ["yard", "door", "studio 1", "remote"]);
    assert!(streams.iter().all(|stream| stream.live));

    assert_eq!(yard.url, "rtsps://192.168.1.21/stream1");
    assert_eq!(yard.transport, TransportChoice::Only(StreamTransport::Tcp));
    assert!(yard.login.allows_basic && yard.login.credentials.is_none());
    assert!(format!("{:?}", yard.login.trust).contains("is_pinned: true"), "{yard:?}");
    let time = Some(Duration::from_millis(90_500));
    assert_eq!((yard.rotation.bytes, yard.rotation.time), (Some(1_000_000), time));
    assert_eq!((files(yard).is_mp4, files(yard).clock_minutes), (true, None));
    assert_eq!(files(yard).folder, site.path("big/yard"));
    assert_eq!(files(yard).time_zone.iana_name(), Some("America/New_York"));
    let kept = Retention {
        age: Some(Duration::from_secs(43_200)),
        bytes: Some(500_000_000_000),
        free_bytes: Some(20_500_000_000),
    };
    assert_eq!(files(yard).retention, kept);
    let upload = site.path("bin/upload").display().to_string();
    assert_eq!(files(yard).on_file, [upload, "{file}".to_owned()]);

    assert_eq!(door.transport, TransportChoice::Only(StreamTransport::Udp));
    let login = client::UserCredentials::new("anna", "pw-of-anna").unwrap();
    assert_eq!(door.login.credentials, Some(login));
    assert!(!door.login.allows_basic && door.login.trust.is_none());
    assert!(door.rotation.is_never());
    assert_eq!((files(door).is_mp4, files(door).clock_minutes), (false, Some(30)));
    assert_eq!(files(door).folder, site.path("recordings/door"));
    assert_eq!(files(door).time_zone.iana_name(), Some("Europe/Berlin"));
    let age = Some(Duration::from_secs(30 * 86_400));
    assert_eq!(files(door).retention, Retention { age, bytes: None, ..kept });
    assert!(files(door).on_file.is_empty());

    assert_eq!(studio.url, "udp://239.1.1.1:5004");
    assert_eq!((studio.transport, files(studio).is_mp4), (TransportChoice::Auto, false));
    assert_eq!(files(studio).folder, site.path("recordings/studio 1"));
    assert_eq!(remote.url, format!("sdp:{}", site.path("remote.sdp").display()));
    assert_eq!((remote.transport, files(remote).is_mp4), (TransportChoice::Auto, true));
    assert_eq!(files(remote).on_file, ["logger"]);
    assert_eq!((door.media, yard.media), (RecordedMedia::Audio, RecordedMedia::All));
}

#[test]
fn a_camera_with_a_source_alone_has_the_usual_settings() {
    let site = Site::new();
    let streams = site.parse("[camera.a]\nurl = \"rtsp://cam/a\"\n").unwrap();
    let [stream] = &streams[..] else { panic!("{streams:?}") };
    assert_eq!((stream.url.as_str(), stream.transport), ("rtsp://cam/a", TransportChoice::Auto));
    assert!(stream.rotation.is_never());
    let files = files(stream);
    assert_eq!((files.is_mp4, files.clock_minutes), (true, Some(60)));
    assert_eq!(files.folder, site.path("a"));
    assert_eq!(files.time_zone, jiff::tz::TimeZone::UTC);
    assert_eq!(files.retention, Retention::default());
    assert!(files.on_file.is_empty() && !site.path("a").exists());
}

#[test]
fn a_rule_for_the_length_of_files_replaces_the_defaults_of_both() {
    let site = Site::new();
    let minute = Some(Duration::from_secs(60));
    for (top, own, clock, length) in [
        ("", "", Some(60), None),
        ("rotate_seconds = 60", "", None, minute),
        ("rotate_seconds = 60", "rotate_at_minutes = 15", Some(15), None),
        ("rotate_at_minutes = 15", "rotate_seconds = 60", None, minute),
        ("rotate_at_minutes = 15", "rotate_at_minutes = 1_440", Some(1440), None),
        ("rotate_at_minutes = 15", "rotate_bytes = 188", Some(15), None),
    ] {
        let text = format!("{top}\n[camera.a]\nurl = \"rtsp://cam/a\"\n{own}\n");
        let streams = site.parse(&text).unwrap();
        let found = (files(&streams[0]).clock_minutes, streams[0].rotation.time);
        assert_eq!(found, (clock, length), "{text}");
    }
}

#[test]
fn faults_have_their_line_and_cure() {
    let site = Site::new();
    let cases = [
        ("keep_days = 30", "keep_day = 30", "6: keep_day: no such setting; write keep_days"),
        (
            "keep_days = 30",
            "colour = 30",
            "6: colour: no such setting; write one of folder, form, ",
        ),
        ("keep_days = 30", "url = \"a\"", "6: url: a setting of one camera; write it below its ["),
        ("keep_days = 30", "fingerprint = 1", "6: fingerprint: a setting of one camera; write it"),
        ("keep_days = 30", "keep_days = 0", "6: keep_days: 0; write a number above 0, at most 36"),
        ("keep_days = 30", "keep_days = 36501", "6: keep_days: 36501; write a number above 0, at "),
        ("keep_days = 30", "keep_days = nan", "6: keep_days: NaN; write a number above 0, at most"),
        ("keep_days = 30", "keep_days = 1e-15", "6: keep_days: 0.000000000000001; write a number "),
        ("keep_days = 30", "keep_days = \"1\"", "6: keep_days = \"1\": a string; write a number, "),
        ("keep_gb = 500", "keep_gb = -1", "16: camera.yard: keep_gb: -1; write a number above 0, "),
        ("keep_gb = 500", "keep_gb = 1e-10", "16: camera.yard: keep_gb: 0.0000000001; write a nu"),
        ("keep_gb = 500", "keep_gb = inf", "16: camera.yard: keep_gb: inf; write a number above 0"),
        ("= 30\ntime", "= 7\ntime", "4: rotate_at_minutes: 7: no divisor of the 1440 minutes of "),
        ("= 30\ntime", "= 0\ntime", "4: rotate_at_minutes: 0: no divisor of the 1440 minutes of "),
        ("= 30\ntime", "= 2880\ntime", "4: rotate_at_minutes: 2880: no divisor of the 1440 minut"),
        ("= 30\ntime", "= 1.5\ntime", "4: rotate_at_minutes = 1.5: a float; write a whole number"),
        ("= 30\ntime", "= 30\nrotate_seconds = 5\ntime", "5: rotate_seconds: beside rotate_at_mi"),
        (
            "= 90.5",
            "= 90.5\nrotate_at_minutes = 5",
            "19: camera.yard: rotate_at_minutes: beside ro",
        ),
        ("= 90.5", "= 0.0", "18: camera.yard: rotate_seconds: 0; write a number above 0, at most "),
        ("= 90.5", "= \"1h\"", "18: camera.yard: rotate_seconds = \"1h\": a string; write a numb"),
        ("1_000_000", "187", "19: camera.yard: rotate_bytes: 187; write 188 or more"),
        ("America/New_York", "Berlin", "20: camera.yard: time_zone: Berlin: no time zone that th"),
        ("[\"bin/upload\", \"{file}\"]", "[]", "21: camera.yard: on_file: no program; write a pr"),
        ("\"bin/upload\"", "\"\"", "21: camera.yard: on_file: no program; write a program and it"),
        ("{file}", "{file}\\u0000", "21: camera.yard: on_file: a NUL character; leave it out"),
        ("\"bin/upload\"", "5", "21: camera.yard: on_file = 5: an integer; write texts in quotes"),
        ("bin/upload", "bin/none", "21: camera.yard: on_file: bin/none: no such file or director"),
        ("bin/upload", "./bin", "21: camera.yard: on_file: ./bin: a folder; name a program"),
        ("bin/upload", "./remote.sdp", "21: camera.yard: on_file: ./remote.sdp: not executable; "),
        ("PRINT", "AA:BB", "13: camera.yard: fingerprint: AA:BB; write the SHA-256 fingerprint o"),
        ("PRINT", "cam=PRINT", "13: camera.yard: fingerprint: cam=BA:78:16:BF:8F:01:CF:EA:41:41:"),
        ("allow_basic = true", "allow_basic = 1", "15: camera.yard: allow_basic = 1: an integer;"),
        ("tracks = \"audio\"", "tracks = \"sound\"", "27: camera.door: tracks: sound; write all, "),
        ("\"udp\"", "\"multicast\"", "25: camera.door: transport: multicast; write auto, udp, tc"),
        ("\"udp\"", "\"quic\"", "25: camera.door: transport: quic; write auto, udp, tcp, http or "),
        ("\"tcp\"", "\"udp\"", "12: camera.yard: transport: udp; with rtsps:// media is on the c"),
        ("\"ts\"", "\"avi\"", "26: camera.door: form: avi: no such form; write mp4 or ts"),
        ("5004\"", "5004\"\nform = \"mp4\"", "31: camera.studio 1: form: mp4: it sends a transpo"),
        ("5004\"", "5004\"\ntransport = \"tcp\"", "31: camera.studio 1: transport: it is for RTS"),
        ("5004\"", "5004\"\ncredentials = \"a\"", "31: camera.studio 1: credentials: it is for R"),
        ("5004\"", "5004\"\nallow_basic = true", "31: camera.studio 1: allow_basic: it is for RTS"),
        ("5004\"", "5004\"\nca = \"a\"", "31: camera.studio 1: ca: no server with TLS; leave it"),
        (
            "form = \"ts\"",
            "fingerprint = \"PRINT\"",
            "26: camera.door: fingerprint: no server with TLS; leave it out, or write an rtsps:/",
        ),
        ("udp://239.1.1.1:5004", "udp://239.1.1.1", "30: camera.studio 1: url: udp://239.1.1.1; "),
        ("udp://239", "http://239", "30: camera.studio 1: url: http://239.1.1.1:5004; write udp:/"),
        ("udp://239", "sdp:239", "30: camera.studio 1: url: sdp:239.1.1.1:5004; write sdp = \"FI"),
        ("rtsp://192.168.1.20/stream1", "rtsp:///a", "24: camera.door: url: no host and port of a"),
        ("url = \"udp://239.1.1.1:5004\"", "", "29: camera.studio 1: url: missing; write url = \""),
        ("url = \"udp://239", "tracks = \"video\"\nurl = \"udp://239", TRACKS_OF_UDP),
        ("url = \"udp://239.1.1.1:5004\"", "ulr = 1", "30: camera.studio 1: ulr: no such setting;"),
        ("url = \"udp://239.1.1.1:5004\"", "url = 1", "30: camera.studio 1: url = 1: an integer; "),
        ("sdp =", "url = \"udp://[::]:1\"\nsdp =", "34: camera.remote: sdp: beside url; leave one"),
        ("\"remote.sdp\"", "\"none.sdp\"", "33: camera.remote: sdp: none.sdp: no such file or di"),
        ("\"remote.sdp\"", "\"bin\"", "33: camera.remote: sdp: bin: a folder; name a file of a s"),
        ("\"remote.sdp\"", "\"\"", "33: camera.remote: sdp: empty; name a file"),
        ("\"remote.sdp\"", "\"udp://a\"", "33: camera.remote: sdp: udp://a: an address; name a f"),
        ("[camera.remote]", "[camera.door]", "32: [camera.door] stands twice; give each camera i"),
        ("[camera.remote]", "[cameras.remote]", "32: cameras: no such setting; write camera"),
        ("form = \"mp4\"", "form = ", "9: "),
    ];
    for (from, to, expected) in cases {
        assert!(ALL.contains(from), "{from}");
        let found = site.faults(&ALL.replacen(from, to, 1));
        assert!(found[0].starts_with(&format!("c.toml:{expected}")), "{to}: {found:#?}");
        assert_eq!(found.len(), 1, "{to}: {found:#?}");
    }
}

#[test]
fn all_faults_of_a_file_are_reported_at_once() {
    let site = Site::new();
    let text = "keep_days = 0\ncolour = 1\n[camera.b]\nkeep_gb = 0\n[camera.a]\nsdp = 5\n\
                folder = \"none/a\"\n[camera.\".c\"]\nurl = \"ftp://a\"\nform = 1\n";
    let starts = [
        "c.toml:1: keep_days: 0;",
        "c.toml:2: colour: no such setting;",
        "c.toml:3: camera.b: url: missing;",
        "c.toml:4: camera.b: keep_gb: 0;",
        "c.toml:6: camera.a: sdp = 5: an integer;",
        "c.toml:7: camera.a: folder: none/a: ",
        "c.toml:8: camera..c: a dot or dash in front;",
        "c.toml:9: camera..c: url: ftp://a; write udp://",
        "c.toml:10: camera..c: form = 1: an integer;",
    ];
    let found = site.faults(text);
    assert_eq!(found.len(), starts.len(), "{found:#?}");
    let pairs = found.iter().zip(starts);
    pairs.for_each(|(found, start)| assert!(found.starts_with(start), "{found}"));
}

#[test]
fn a_file_has_one_to_a_thousand_cameras() {
    let site = Site::new();
    let none = "c.toml:1: camera: no camera; write a table [camera.NAME] for each";
    assert_eq!(site.faults("keep_days = 1\n"), [none]);
    assert_eq!(site.faults("[camera]\n"), [none]);
    let found = site.faults("camera = 5\n");
    assert_eq!(found, ["c.toml:1: camera = 5: an integer; write tables [camera.NAME]"]);
    let found = site.faults("[camera]\ndoor = 5\n");
    assert_eq!(found, ["c.toml:2: camera.door = 5: an integer; write tables [camera.NAME]"]);
    let cameras = |count: usize| {
        let table = |n| format!("[camera.c{n}]\nurl = \"udp://239.1.1.1:{}\"\n", 1000 + n);
        (0..count).map(table).collect::<String>()
    };
    assert_eq!(site.parse(&cameras(CAMERAS_MAX)).unwrap().len(), 1000);
    let found = site.faults(&cameras(CAMERAS_MAX + 2));
    assert_eq!(found, ["c.toml:2001: camera: 1002 cameras; write 1000 at most in a file"]);
}

#[test]
fn names_are_fit_for_files() {
    let site = Site::new();
    let parse = |name: &str| site.parse(&format!("[camera.{name:?}]\nurl = \"udp://[::]:1\"\n"));
    for name in ["a", "front door", "Tür-2_a.b", &"x".repeat(64)] {
        let streams = parse(name).unwrap();
        assert_eq!(files(&streams[0]).folder, site.path(name));
    }
    for (name, fault) in [
        ("", "camera.: no letter; write a name of 1 to 64 letters (200 bytes), without / { "),
        (".a", "camera..a: a dot or dash in front; write"),
        ("-a", "camera.-a: a dot or dash in front; write"),
        ("a/b", "camera.a/b: a letter that names of files do not have; write"),
        ("{a", "camera.{a: a letter that names of files do not have; write"),
        ("a}", "camera.a}: a letter that names of files do not have; write"),
        ("a\n", "camera.a: a letter that names of files do not have; write"),
        (&"x".repeat(65), "camera.xxxxxxxx"),
        (&"\u{1f3a5}".repeat(51), "camera.\u{1f3a5}"),
    ] {
        let found = site.without_folder(parse(name).unwrap_err());
        assert!(found[0].starts_with(&format!("c.toml:1: {fault}")), "{name:?}: {found:#?}");
    }
}

#[test]
fn folders_above_exist_and_nothing_else_has_their_name() {
    let site = Site::new();
    site.write("taken", "", 0o644);
    let camera = "[camera.door]\nurl = \"udp://[::]:1\"\n";
    let mkdir = |path: &str| format!("mkdir -p {}", site.path(path).display());
    for (text, expected) in [
        (
            format!("folder = \"none\"\n{camera}"),
            "c.toml:1: folder: none: no such folder; mount its disk, or mkdir -p none",
        ),
        (
            format!("folder = \"taken\"\n{camera}"),
            "c.toml:1: folder: taken: no folder; name another",
        ),
        (
            format!("{camera}folder = \"none/door\"\n"),
            "c.toml:3: camera.door: folder: none/door: none: no such folder; mount its disk, or \
             mkdir -p none",
        ),
        (
            format!("{camera}folder = \"taken\"\n"),
            "c.toml:3: camera.door: folder: taken: no folder; name another, or move the file away",
        ),
        (
            format!("{camera}folder = \"taken/door\"\n"),
            "c.toml:3: camera.door: folder: taken/door: not a directory; name another",
        ),
        ("[camera.taken]\nurl = \"udp://[::]:1\"\n".to_owned(), "c.toml:1: camera.taken: folder: "),
        (format!("folder = 5\n{camera}"), "c.toml:1: folder = 5: an integer; write text in quotes"),
        (format!("{camera}folder = \"\"\n"), "c.toml:3: camera.door: folder: empty; name a folder"),
    ] {
        let found = site.faults(&text);
        assert!(found.len() == 1 && found[0].starts_with(expected), "{found:#?}");
    }
    let found = site.parse(&format!("folder = \"none\"\n{camera}")).unwrap_err();
    assert!(found[0].ends_with(&mkdir("none")), "{found:?}");
    // An absolute folder is as written; a camera's own may exist, and two may have the same.
    let big = site.path("big").display().to_string();
    let text = format!(
        "[camera.a]\nurl = \"udp://[::]:1\"\nfolder = {big:?}\n[camera.b]\nurl = \"udp://[::]:2\"\n\
         folder = {big:?}\n"
    );
    let streams = site.parse(&text).unwrap();
    assert!(streams.iter().all(|stream| files(stream).folder == site.path("big")));
}

#[test]
fn cameras_of_one_server_share_a_login() {
    let site = Site::new();
    let text = "credentials = \"cameras.secret\"\n\
                [camera.a]\nurl = \"rtsp://192.168.1.20/1\"\n\
                [camera.b]\nurl = \"rtsp://anna@192.168.1.20:554/2\"\ncredentials = \
                \"./cameras.secret\"\n\
                [camera.c]\nurl = \"rtsp://192.168.1.20/3\"\n\
                [camera.d]\nurl = \"rtsp://eve:x@192.168.1.20/4\"\n\
                [camera.e]\nurl = \"rtsp://192.168.1.20/5\"\nallow_basic = true\n\
                [camera.f]\nurl = \"rtsp://anna@192.168.1.20/6\"\n";
    let streams = site.parse(text).unwrap();
    let is_shared = |a: usize, b: usize| streams[a].login.is_shared_with(&streams[b].login);
    assert!([1, 2, 5].iter().all(|other| is_shared(0, *other)), "one server, user and settings");
    assert!(!is_shared(0, 3), "another user");
    assert!(!is_shared(0, 4), "another rule for Basic");
    assert!(streams[4].login.allows_basic && !streams[0].login.allows_basic);
    assert_eq!(streams[3].url, "rtsp://192.168.1.20/4");
    assert_eq!(streams[5].url, "rtsp://192.168.1.20/6");
    assert!(streams.iter().all(|stream| stream.login.credentials.is_some()));
}

#[test]
fn a_fingerprint_is_for_all_cameras_of_its_server() {
    let site = Site::new();
    let made = rcgen::generate_simple_self_signed(["cam".to_owned()]).expect("a name");
    site.write("ca.pem", &made.cert.pem(), 0o644);
    let text = "ca = \"ca.pem\"\n\
                [camera.a]\nurl = \"rtsps://cam/1\"\nfingerprint = \"PRINT\"\n\
                [camera.b]\nurl = \"rtsps://CAM:322/2\"\nfingerprint = \"SHA256=PRINT\"\n\
                [camera.c]\nurl = \"rtsps://cam/3\"\n\
                [camera.d]\nurl = \"rtsps://other/1\"\n\
                [camera.e]\nurl = \"rtsp://other/1\"\n";
    let streams = site.parse(text).unwrap();
    let trusts = streams.iter().map(|stream| {
        let trust = stream.login.trust.as_ref();
        trust.map(|trust| format!("{trust:?}").contains("is_pinned: true"))
    });
    let trusts: Vec<_> = trusts.collect();
    assert_eq!(trusts, [Some(true), Some(true), Some(true), Some(false), None]);
    assert!(streams[0].login.is_shared_with(&streams[2].login));
    let found = site.faults(&text.replace("SHA256=PRINT", "OTHER_PRINT"));
    let start = "c.toml:7: camera.b: fingerprint: camera.a has another for the same server, \
                 cam:322; write that";
    assert!(found.len() == 1 && found[0].starts_with(start), "{found:#?}");
    let found = site.faults(&text.replace("cam/3\"", "cam/3\"\nca = \"ca.pem\""));
    let start =
        "c.toml:10: camera.c: ca: camera.a has a fingerprint for the same server, cam:322; ";
    assert!(found.len() == 1 && found[0].starts_with(start), "{found:#?}");
}

#[test]
fn faults_of_logins_name_keys_and_no_flags() {
    let site = Site::new();
    site.write("open", "rtsp://a:pw-of-a@cam\n", 0o644);
    site.write("odd", "rtsp://a:pw-of-a@cam\nanna\n", 0o600);
    let text = "[camera.a]\nurl = \"rtsp://cam/1\"\n[camera.b]\nurl = \"rtsps://cam/1\"\n";
    let at_top = |key: &str| site.faults(&format!("{key}\n{text}"));
    let at_b = |key: &str| site.faults(&format!("{text}{key}\nfingerprint = \"PRINT\"\n"));
    for (found, start) in [
        (at_top("credentials = \"none\""), "1: credentials: none: No such file or directory"),
        (at_top("credentials = \"open\""), "1: credentials: open: others can read it (mode 0644);"),
        (at_b("credentials = \"odd\""), "5: camera.b: credentials: odd: line 2; write rtsp://US"),
        (at_top("ca = \"none\""), "1: ca: none: No such file or directory (os error 2); name a "),
        (at_top("ca = \"open\""), "1: ca: open: "),
    ] {
        assert!(found.len() == 1 && found[0].starts_with(&format!("c.toml:{start}")), "{found:#?}");
        assert!(!found[0].contains("--") && !found[0].contains("pw-of"), "{found:#?}");
    }
    let text = "[camera.a]\nurl = \"rtsp://anna@cam/1\"\n[camera.b]\nurl = \"rtsp://eve@cam/2\"\n\
                [camera.c]\nurl = \"rtsp://cam/3\"\n";
    let found = site.faults(text);
    let [a, b] = &found[..] else { panic!("{found:#?}") };
    assert!(a.starts_with("c.toml:2: camera.a: url: rtsp://…@cam/1; no password for"), "{a}");
    assert!(b.starts_with("c.toml:4: camera.b: url: rtsp://…@cam/2; no password for"), "{b}");
    assert!(a.contains("a file of credentials") && !a.contains("--"), "{a}");
}

#[test]
fn a_password_needs_a_private_file_and_is_not_repeated() {
    let site = Site::new();
    let text = "[camera.a]\nurl = \"rtsp://anna:secret@cam/1\"\n";
    let streams = site.parse(text).unwrap();
    assert_eq!(streams[0].url, "rtsp://cam/1");
    let login = client::UserCredentials::new("anna", "secret").unwrap();
    assert_eq!(streams[0].login.credentials, Some(login));
    let found = site.parse_with_mode(text, Some(0o640)).unwrap_err();
    let start = "c.toml:2: camera.a: url: a password, and others can read this file (mode 0640); \
                 chmod 600 it, and";
    assert!(found.len() == 1 && found[0].starts_with(start), "{found:#?}");
    let without = text.replace("anna:secret@", "");
    assert!(site.parse_with_mode(&without, Some(0o640)).is_ok());
    let program = format!("on_file = \"logger\"\n{without}");
    assert!(site.parse_with_mode(&program, Some(0o644)).is_ok());
    let found = site.parse_with_mode(&program, Some(0o664)).unwrap_err();
    assert_eq!(found, ["c.toml:1: on_file: others can write this file (mode 0664); chmod go-w it"]);
    let secret = "\"rtsp://anna:secret@cam/1\"";
    for text in [
        format!("[camera.a]\nurl = [{secret}]\n"),
        format!("[camera.a]\nurl = [\n \"a\", {secret}]\n"),
        "[camera.a]\nurl = [\"anna:secret@cam/1\"]\n".to_owned(),
        "[camera.a]\nurl = rtsp://anna:secret@cam/1\n".to_owned(),
        format!("[camera.a]\nurl = {secret} x\n"),
        "[camera.a]\nurl = \"rtsp://anna:secret@cam/1\nsdp = 1\n".to_owned(),
        format!("[camera.a]\nurl = {secret}\nurl = {secret}\n"),
        format!("[camera.a]\nurl = {secret}\nsdp = {secret}\nfolder = {secret}\n"),
        format!("[camera.a]\nform = {secret}\ntransport = {secret}\nca = {secret}\n"),
        format!("[camera.a]\nkeep_days = {secret}\ntime_zone = {secret}\non_file = {secret}\n"),
        format!("[camera.a]\nfingerprint = {secret}\ncredentials = {secret}\n{secret} = 1\n"),
        format!("[camera.{secret}]\nkeep_gb = {secret}\n[camera.{secret}]\n"),
        format!("[camera.{secret}]\nkeep_gb = \"{}{}\n", "x".repeat(70), &secret[1..]),
        format!("{secret} = 1\n"),
        text.replace("cam/1", "/1"),
        text.replace("secret", "1/secret"),
        text.replace("secret", "secret%FF"),
        text.replace("rtsp:", "udp:"),
        text.replace("rtsp://", ""),
        text.replace("rtsp:", "ftp:"),
        text.replace("rtsp:", "sdp:rtsp:"),
    ] {
        let found = site.parse(&text).expect_err("a fault");
        assert!(found.iter().all(|fault| !fault.contains("secret")), "{text}: {found:#?}");
    }
}

#[test]
fn a_file_is_read_with_its_mode_and_from_its_folder() {
    let site = Site::new();
    let text = "folder = \"recordings\"\n[camera.a]\nurl = \"rtsp://anna:secret@cam/1\"\n";
    site.write("c.toml", text, 0o600);
    let streams = super::super::read_cameras(&site.path("c.toml")).unwrap();
    assert_eq!(files(&streams[0]).folder, site.path("recordings/a"));
    site.write("c.toml", text, 0o604);
    let found = super::super::read_cameras(&site.path("c.toml")).unwrap_err();
    assert!(found[0].contains("c.toml:3: camera.a: url: a password, and others"), "{found:?}");
    let found = super::super::read_cameras(&site.path("none.toml")).unwrap_err();
    assert!(found[0].starts_with("--config ") && found[0].contains("; name a file"), "{found:?}");
}

#[test]
fn a_port_is_for_one_camera() {
    let site = Site::new();
    let text = "[camera.a]\nurl = \"udp://[::]:1\"\n[camera.b]\nurl = \"rtp://[0:0::]:1\"\n";
    let fault = "c.toml:4: camera.b: url: camera.a has the same port; leave one of the two out";
    assert_eq!(site.faults(text), [fault]);
}

#[test]
fn the_documents_have_every_key_and_a_file_that_is_right() {
    let site = Site::new();
    let document = include_str!("../../../../docs/receiving.md");
    for key in CameraKey::ALL {
        let name = format!("`{}`", key.name());
        assert!(
            document.lines().any(|line| line.starts_with('|') && line.contains(&name)),
            "{name}"
        );
    }
    let (_, example) = document.split_once("```toml\n").expect("an example");
    let (example, _) = example.split_once("```").expect("its end");
    let folder = site.path("recordings").display().to_string();
    let example = example
        .replace("/srv/recordings", &folder)
        .replace("/usr/local/bin/upload", "bin/upload")
        .replace("5E:1B:…", &"5E:1B:".repeat(16)[..95])
        .replace("\ncredentials", "\n# credentials");
    let streams = site.parse(&example).unwrap();
    let [door, yard] = &streams[..] else { panic!("{streams:?}") };
    assert_eq!((door.media, yard.media), (RecordedMedia::Video, RecordedMedia::All));
    assert_eq!(files(yard).retention.bytes, Some(500_000_000_000));
    assert_eq!(files(door).clock_minutes, Some(60));
}
