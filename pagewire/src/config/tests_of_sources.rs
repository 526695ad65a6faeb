// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the sources of settings: their precedence, the place and cure of each refusal, and that
//! shown settings are read back unchanged.
//!
//! Does not start a server; `pagewire/tests/config` does.

use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;

use clap::Parser;
use tempfile::TempDir;

use super::sources::{Loaded, Origin, Sources};
use super::{example, schema, show};

/// A file in a folder of its own.
struct Written {
    folder: TempDir,
    path: PathBuf,
}

fn file(text: &str) -> Written {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pagewire.toml");
    fs::write(&path, text).unwrap();
    Written { folder, path }
}

/// Loads the settings of a `serve` command line with an environment.
fn load(line: &[&str], environment: &[(&str, &str)]) -> Result<Loaded, Vec<String>> {
    let line: Vec<OsString> =
        ["pagewire", "serve"].iter().chain(line).map(|word| (*word).into()).collect();
    let environment: Vec<(String, OsString)> =
        environment.iter().map(|(name, value)| ((*name).to_owned(), value.into())).collect();
    let find = move |name: &str| {
        environment.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone())
    };
    let sources = Sources::of_line(&line, Box::new(find)).expect("a line of serve");
    sources.load().map_err(|unusable| unusable.texts())
}

fn with_file(text: &str, line: &[&str], env: &[(&str, &str)]) -> Result<Loaded, Vec<String>> {
    let file = file(text);
    let path = file.path.to_str().unwrap();
    let whole: Vec<&str> = ["--config", path].iter().chain(line).copied().collect();
    load(&whole, env).map_err(|faults| {
        let folder = format!("{}/", file.folder.path().display());
        faults.iter().map(|fault| fault.replace(&folder, "")).collect()
    })
}

fn origin<'l>(loaded: &'l Loaded, key: &str) -> (&'l Origin, String) {
    let given = loaded.given.iter().find(|given| given.key.name == key).expect(key);
    let values: Vec<_> = given.values.iter().map(|value| value.to_string_lossy()).collect();
    (&given.origin, values.join(" "))
}

#[test]
fn command_line_wins_over_environment_and_that_over_the_file() {
    let text = "folder = \"films\"\nburst = 10\nsession_timeout = 30\npacers = 1\n\
                allow_low_ports = true\npath = [\"read_writev\", \"sendfile\"]\nlog = \"info\"\n\
                cache_size = 1_000\n";
    let file = file(text);
    let config = file.path.to_str().unwrap();
    let environment = [
        ("PAGEWIRE_CONFIG", config),
        ("PAGEWIRE_BURST", "11"),
        ("PAGEWIRE_SESSION_TIMEOUT", "31"),
        ("PAGEWIRE_ALLOW_LOW_PORTS", "no"),
        ("PAGEWIRE_HTTP", ""),
    ];
    let loaded = load(&["--burst=12"], &environment).unwrap();
    assert_eq!(origin(&loaded, "burst"), (&Origin::CommandLine, "12".to_owned()));
    let timeout = origin(&loaded, "session_timeout");
    let variable = Origin::Environment("PAGEWIRE_SESSION_TIMEOUT".to_owned());
    assert_eq!(timeout, (&variable, "31".to_owned()));
    let of_file = Origin::File { path: file.path.clone(), line: 4 };
    assert_eq!(origin(&loaded, "pacers"), (&of_file, "1".to_owned()));
    assert_eq!(origin(&loaded, "cache_size").1, "1000");
    let folder = file.folder.path().join("films").display().to_string();
    assert_eq!(origin(&loaded, "folder").1, folder, "relative to the file's folder");
    assert!(!loaded.given.iter().any(|given| given.key.name == "http"), "an empty variable");
    assert_eq!(loaded.log, "info");
    let config = loaded.options.config(loaded.file, false).unwrap();
    assert_eq!((config.burst.as_millis(), config.session_timeout.as_secs()), (12, 31));
    assert_eq!((config.pacers, config.cache_bytes_max), (Some(1), 1000));
    assert_eq!(config.paths, ["read_writev", "sendfile"]);
    assert!(!config.limits.low_ports, "the variable says no");
    assert_eq!(config.folder, file.folder.path().join("films"));
}

#[test]
fn secrets_come_from_files_and_are_not_shown() {
    let secrets = tempfile::tempdir().unwrap();
    let origin_file = secrets.path().join("origin");
    fs::write(&origin_file, "https://example.org\n").unwrap();
    fs::write(secrets.path().join("tls_key"), "key").unwrap();
    let folder = secrets.path().to_str().unwrap();
    let environment = [
        ("PAGEWIRE_ALLOW_ORIGIN_FILE", origin_file.to_str().unwrap()),
        ("CREDENTIALS_DIRECTORY", folder),
        ("PAGEWIRE_HTTPS", "127.0.0.1:0"),
        ("PAGEWIRE_TLS_CERT", "cert.pem"),
    ];
    let loaded = load(&["."], &environment).unwrap();
    assert_eq!(origin(&loaded, "allow_origin").1, "https://example.org");
    let key = secrets.path().join("tls_key");
    assert_eq!(*origin(&loaded, "tls_key").0, Origin::Credential(key));
    for text in [show::toml(&loaded), show::json(&loaded)] {
        assert!(!text.contains("example.org"), "{text}");
        assert!(text.contains("PAGEWIRE_ALLOW_ORIGIN_FILE"), "{text}");
    }
    fs::write(&origin_file, "https://example.org\nsecond\n").unwrap();
    let faults = load(&["."], &environment).err().expect("two lines");
    assert!(faults[0].contains("not one line") && !faults[0].contains("example.org"), "{faults:?}");
    let faults = load(&["."], &[("PAGEWIRE_BURST_FILE", "/none")]).err().expect("no such file");
    assert!(faults[0].starts_with("PAGEWIRE_BURST_FILE=/none: No such file"), "{faults:?}");
}

#[test]
fn faults_have_their_place_and_cure() {
    for (text, line, expected) in [
        ("burts = 1\n", &["."][..], "pagewire.toml:1: burts: no such setting; write burst"),
        ("\nburst = \"1\"\n", &["."], "pagewire.toml:2: burst = \"1\": a string; write a whole"),
        ("allow_low_ports = 1\n", &["."], "pagewire.toml:1: allow_low_ports = 1: an integer; "),
        ("http = true\n", &["."], "pagewire.toml:1: http = true: a boolean; write text in quotes"),
        (
            "sessions = 0\n",
            &["."],
            "pagewire.toml:1: sessions = 0: out of range; write 1 to 1000000",
        ),
        ("cache_size = \"10X\"\n", &["."], "pagewire.toml:1: cache_size = 10X: unit X; write K, M"),
        ("kernel_tls = \"on\"\n", &["."], "pagewire.toml:1: kernel_tls = on: no such value; write"),
        ("burst = 1\nburst = 2\n", &["."], "pagewire.toml:2: burst stands twice; leave one out"),
        ("log = \"serve=loud\"\n", &["."], "pagewire.toml:1: log = serve=loud: unusable: "),
        ("burst = 1\n", &[], "pagewire.toml: folder: none to serve; write folder = "),
        (
            "\nhttps = \"[::]:1\"\n",
            &["."],
            "pagewire.toml:2: https: needs tls_cert or tls_self_sig",
        ),
        ("tls_cert = \"a\"\n", &["."], "pagewire.toml:1: tls_cert: needs tls_key; write it, too"),
        (
            "keys = \"a\"\nhls_key_file = \"b\"\n",
            &["."],
            "pagewire.toml:2: hls_key_file: cannot stand beside keys (pagewire.toml:1); leave one",
        ),
        ("burst = 1\n", &[".", "--pacers=x"], "invalid value 'x' for '--pacers <N>'"),
    ] {
        let faults = with_file(text, line, &[]).err().expect(text);
        assert!(faults[0].starts_with(expected), "{text}: {faults:?}");
        assert_eq!(faults.len(), 1, "{faults:?}");
    }
    let both = with_file("https = \"[::]:1\"\nkeys = \"a\"\nhls_key_file = \"b\"\n", &["."], &[]);
    assert_eq!(both.err().expect("two").len(), 2);
    for (name, value, expected) in [
        ("PAGEWIRE_BURST", "x", "PAGEWIRE_BURST=x: invalid digit found in string; write MS"),
        ("PAGEWIRE_ALLOW_LOW_PORTS", "2", "PAGEWIRE_ALLOW_LOW_PORTS=2: no switch; write true"),
    ] {
        let faults = load(&["."], &[(name, value)]).err().expect(name);
        assert!(faults[0].starts_with(expected), "{faults:?}");
    }
}

#[test]
fn files_that_are_none_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let large = folder.path().join("large.toml");
    fs::write(&large, "# ".repeat(1 << 20)).unwrap();
    let binary = folder.path().join("binary.toml");
    fs::write(&binary, b"burst = 1\n\xff\n").unwrap();
    for (path, expected) in [
        (folder.path().join("none.toml"), "No such file"),
        (folder.path().to_owned(), "Is a directory"),
        (large, "larger than 1048576 bytes"),
        (binary, ":2: text that is not UTF-8; save it as UTF-8"),
    ] {
        let faults = load(&["--config", path.to_str().unwrap(), "."], &[]).err().expect(expected);
        assert!(faults.len() == 1 && faults[0].contains(expected), "{faults:?}");
    }
}

#[test]
fn shown_settings_are_read_back_as_they_were() {
    let text = "folder = \"/srv/a \\\"b\\\"\"\nburst = 7\nallow_low_ports = true\n\
                exempt_from_limits = \"10.0.0.0/8\"\npath = [\"sendfile\"]\n\
                [channel.news]\nplaylist = [\"a.ts\"]\nttl = 3\n[[channel.news.at]]\n\
                time = \"20:00\"\nplay = \"b.ts\"\n";
    let first = with_file(text, &["--cache", "/var/cache/p", "--http-rate=1G"], &[]).unwrap();
    let shown = show::toml(&first);
    let second = with_file(&shown, &[], &[]).expect(&shown);
    assert_eq!(second.file.channels, first.file.channels);
    let plain = |loaded: &Loaded| -> Vec<String> {
        let of = |line: &str| line.split("  # ").next().unwrap_or_default().to_owned();
        show::toml(loaded).lines().map(of).collect()
    };
    assert_eq!(plain(&second), plain(&first));
    assert!(shown.contains("burst = 7  # "), "{shown}");
    let config =
        |loaded: Loaded| format!("{:?}", loaded.options.config(loaded.file, false).unwrap());
    assert_eq!(config(second), config(first));
}

#[test]
fn a_line_without_file_and_variables_is_clap_s_own() {
    let line = ["pagewire", "serve", "--https", "0.0.0.0:1", "films"].map(OsString::from);
    let sources = Sources::of_line(&line, Box::new(|_| None)).unwrap();
    let found = sources.load().err().expect("no certificate").texts();
    let expected = crate::Arguments::try_parse_from(&line).err().unwrap().render().to_string();
    assert_eq!(found, [expected]);
    for line in [&["pagewire", "play", "rtsp://a"][..], &["pagewire", "serve", "--brst=1"]] {
        let line: Vec<OsString> = line.iter().map(OsString::from).collect();
        assert!(Sources::of_line(&line, Box::new(|_| None)).is_none(), "{line:?}");
    }
}

/// The example names every key, and its commented defaults are true.
#[test]
fn the_example_is_whole_and_usable() {
    let text = example::example();
    assert!(text.lines().all(|line| line.len() <= 100), "{text}");
    let loaded = with_file(&text, &[], &[]).expect("the example as printed");
    assert_eq!(loaded.given.len(), 1, "the folder");
    let uncommented: String = text
        .lines()
        .filter_map(|line| {
            let line = line.strip_prefix("# ").unwrap_or(line);
            let key = line.split(" = ").next()?;
            let conflicts = ["hls_cipher", "keys", "tls_self_signed"];
            let is_setting = super::keys::named(key).is_some() && line.contains(" = ");
            (is_setting && !conflicts.contains(&key)).then(|| format!("{line}\n"))
        })
        .collect();
    let found = super::parse("pagewire.toml", &uncommented, std::path::Path::new("/"));
    let settings = found.expect("values of the example are usable").settings;
    assert_eq!(settings.len(), super::keys::all().len() - 3);
}

/// Compares a document with its generated text, or writes it.
fn is_current(path: &str, made: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..").join(path);
    if std::env::var_os("UPDATE").is_some() {
        fs::write(&path, made).unwrap();
    }
    let found = fs::read_to_string(&path).unwrap_or_default();
    let cure = "UPDATE=1 cargo test -p pagewire --bin pagewire config";
    assert!(found == made, "{} is old; {cure} writes it", path.display());
}

#[test]
fn the_schema_is_current_and_knows_every_key() {
    let text = schema::schema();
    is_current("docs/pagewire.schema.json", &text);
    let schema: serde_json::Value = serde_json::from_str(&text).unwrap();
    let properties = schema["properties"].as_object().unwrap();
    for key in super::keys::all() {
        let of = &properties[&key.name];
        assert!(of["description"].as_str().is_some_and(|words| words.len() > 10), "{}", key.name);
    }
    assert_eq!(properties.len(), super::keys::all().len() + super::TABLES.len());
    let channel = &properties["channel"]["additionalProperties"]["properties"];
    assert_eq!(channel["ttl"]["maximum"], 255);
    assert!(channel["playlist"]["description"].as_str().unwrap().contains("files and folders"));
    assert_eq!(properties["session_timeout"]["maximum"], 86_400);
    assert_eq!(properties["kernel_tls"]["enum"], serde_json::json!(["auto", "off"]));
}

#[test]
fn the_table_of_keys_is_current() {
    const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/configuration.md");
    const BEGIN: &str =
        "<!-- keys: made by `UPDATE=1 cargo test -p pagewire --bin pagewire config` -->\n";
    let document = fs::read_to_string(PATH).unwrap();
    let (before, rest) = document.split_once(BEGIN).expect("its marker");
    let (_, after) = rest.split_once("<!-- end of keys -->").expect("its other marker");
    let made = format!("{before}{BEGIN}{}<!-- end of keys -->{after}", example::table());
    is_current("docs/configuration.md", &made);
}
