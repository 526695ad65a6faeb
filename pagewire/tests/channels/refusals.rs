// SPDX-License-Identifier: MIT OR Apache-2.0
//! An unusable configuration is refused at the start, each fault with its line and its cure: exit
//! status 2, and no ready line is printed.

use std::fs;
use std::process::Command;
use std::time::Duration;

use crate::harness::watchdog::{self, Outcome};
use crate::harness::{PROGRAM, Place};

fn refused(bytes: &[u8]) -> Outcome {
    let place = Place::new();
    let path = place.top().join("c.toml");
    fs::write(&path, bytes).expect("room for a configuration");
    let mut command = Command::new(PROGRAM);
    command.args(["serve", "--rtsp=127.0.0.1:0", "--http=127.0.0.1:0", "--cache"]);
    command.arg(place.cache()).arg("--config").arg(path).arg(place.folder());
    let outcome = watchdog::run(&mut command, LIMIT).expect("the program is there");
    assert!(!String::from_utf8_lossy(&outcome.stdout).contains("ready"), "{outcome:?}");
    outcome
}

const CASES: &[(&str, &[&str])] = &[
    ("[chanel.a]\n", &["c.toml:1: ", "chanel", "channel"]),
    (
        "[channel.a]\nplaylist = [\"a.ts\"]\nplaylst = [\"b.ts\"]\n",
        &["c.toml:3: ", "playlst", "playlist"],
    ),
    (
        "[channel.a]\nplaylist = [\"a.ts\"]\nsend = [\"rtp://239.1.1.1:5005\"]\n",
        &["c.toml:3: ", "odd port", "write 5004"],
    ),
    (
        "[channel.a]\nplaylist = [\"a.ts\"]\nsend = [\n\"udp://239.1.1.1:5004\",\n\
         \"udp://news.example:5004\"]\n",
        &["c.toml:5: ", "no numeric address"],
    ),
    (
        "[channel.a]\nplaylist = [\"a.ts\"]\nsend = [\"udp://224.0.0.5:5004\"]\n",
        &["c.toml:3: ", "224.0.0.5"],
    ),
    (
        "[channel.a]\nplaylist = [\"a.ts\"]\nsend = [\"rtp://239.1.1.1:5004\"]\n\
         [channel.b]\nplaylist = [\"a.ts\"]\nsend = [\"udp://239.1.1.1:5005\"]\n",
        &["c.toml:6: ", "channel.a sends to the same ports", "another address or port"],
    ),
    (
        "[channel.a]\nplaylist = [\"../a.ts\"]\nsend = [\"udp://127.0.0.1:5004\"]\n",
        &["c.toml:2: ", "../a.ts"],
    ),
    (
        "[channel.a]\nplaylist = [\"a.ts\"]\nttl = 256\nsend = [\"udp://127.0.0.1:5004\"]\n",
        &["c.toml:3: ", "write 1 to 255"],
    ),
    ("[channel.a]\nsend = [\"udp://127.0.0.1:5004\"]\n", &["c.toml:1: ", "nothing to play"]),
    (
        "[channel.a]\nplaylist = [\"a.ts\"]\norder = \"random\"\n",
        &["c.toml:3: ", "random", "shuffle"],
    ),
    (
        "[channel.a]\nplaylist = [\"a.ts\"]\n[[channel.a.at]]\ntime = \"24:00\"\n\
         play = [\"b.ts\"]\n",
        &["c.toml:4: ", "24:00"],
    ),
    ("[channel.a]\nplaylist = \"a.ts\nttl = 3\n", &["c.toml:2: ", "TOML"]),
    ("[channel.a]\n[channel.a]\n", &["c.toml:2: ", "[channel.a] stands twice", "its own name"]),
    ("[channel.a]\nplaylist = [\"a.ts\"\nttl = 3\n", &["c.toml:3: ", "], line 2 or before"]),
    (
        "[channel.a]\nplaylist = [\"a.ts\"]\nrole = \"standby\"\n\
         send = [\"udp://127.0.0.1:5004\"]\n",
        &["c.toml:3: ", "role = \"standby\"", "no multicast group", "rtp://239.1.1.1:5004"],
    ),
    (
        "[channel.a]\nplaylist = [\"a.ts\"]\ninterface = \"none0\"\nrole = \"standby\"\n\
         send = [\"udp://239.1.1.1:5004\"]\n",
        &["channel.a", "none0", "interface"],
    ),
];

#[test]
fn faults_of_a_configuration_are_named_with_line_and_cure() {
    for (config, words) in CASES {
        let outcome = refused(config.as_bytes());
        assert_eq!(outcome.status.code(), Some(2), "{config}: {outcome:?}");
        for word in *words {
            assert!(outcome.stderr.contains(word), "{config}: {word}: {}", outcome.stderr);
        }
    }
}

#[test]
fn all_faults_of_a_file_are_named_at_once() {
    let config = "[channel.a]\nplaylist = [\"a.ts\"]\nttl = 0\ndscp = 64\norder = \"random\"\n\
                  send = [\"rtp://239.1.1.1:5005\"]\nannounce = true\n[[channel.a.at]]\n\
                  time = \"24:00\"\nplay = [\"/b.ts\"]\n[channel.b]\nplaylist = 7\nttl = 256\n\
                  [channel.\"c d\"]\nplaylist = [\"a.ts\"]\n";
    let outcome = refused(config.as_bytes());
    let mut rest = &*outcome.stderr;
    for line in [3, 4, 5, 6, 9, 10, 12, 13, 14] {
        let line = format!("c.toml:{line}: ");
        let at = rest.find(&line);
        rest = &rest[at.unwrap_or_else(|| panic!("{line}: {}", outcome.stderr)) + 1..];
    }
    assert_eq!(outcome.stderr.matches("c.toml:").count(), 9, "{}", outcome.stderr);
}

#[test]
fn files_that_are_no_configuration_are_refused() {
    for (bytes, words) in [
        (&b"[channel.a]\n\xff\n"[..], "c.toml:2: text that is not UTF-8; save it as UTF-8"),
        (&vec![b'#'; (1 << 20) + 1], "larger than 1048576 bytes; name a file that can be read"),
        (&[0; 4096], "c.toml:1: "),
    ] {
        let outcome = refused(bytes);
        assert_eq!(outcome.status.code(), Some(2), "{outcome:?}");
        assert!(outcome.stderr.contains(words), "{words}: {}", outcome.stderr);
    }
}

const LIMIT: Duration = Duration::from_secs(60);
