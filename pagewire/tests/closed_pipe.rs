// SPDX-License-Identifier: MIT OR Apache-2.0
//! A reader of standard output may stop reading: a verb then ends quietly, and a server continues.
//!
//! The pipe's reading end is closed before the program starts, so that its first write fails with
//! EPIPE. `println!` would panic with status 101 and a message.

#![forbid(unsafe_code)]

use std::fs;
use std::io::{Read, Write, pipe};
use std::net::{Ipv4Addr, TcpStream};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// Returns a command whose standard output is not read.
fn unread(arguments: &[&str]) -> Command {
    let (reader, writer) = pipe().expect("a pipe");
    drop(reader);
    let mut command = Command::new(env!("CARGO_BIN_EXE_pagewire"));
    command.args(arguments).stdin(Stdio::null()).stdout(writer).stderr(Stdio::piped());
    command
}

fn run(arguments: &[&str]) -> Output {
    unread(arguments).output().expect("the program runs")
}

/// Asserts the status of a program that SIGPIPE killed, as a shell shows it, and no output.
fn ends_quietly(arguments: &[&str]) {
    let output = run(arguments);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), stderr.as_ref()), (Some(141), ""), "{arguments:?}");
}

fn folder() -> TempDir {
    TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a temporary folder")
}

#[test]
fn verbs_that_print_end_quietly() {
    let keys = folder();
    let provider = keys.path().join("provider");
    ends_quietly(&["lcp", "keygen", provider.to_str().expect("a plain name")]);
    assert!(provider.join("provider.pem").exists(), "the keys were made before");
    let clip = concat!(env!("CARGO_MANIFEST_DIR"), "/assets/clip.ts");
    ends_quietly(&["inspect", clip]);
    ends_quietly(&["inspect", "--json", clip, clip]);
}

#[test]
fn a_full_device_is_an_error_with_its_reason() {
    let full = fs::File::options().write(true).open("/dev/full").expect("/dev/full");
    let keys = folder();
    let provider = keys.path().join("provider");
    let mut command = unread(&["lcp", "keygen", provider.to_str().expect("a plain name")]);
    let output = command.stdout(full).output().expect("the program runs");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.starts_with("pagewire: writing to standard output: No space left"), "{stderr}");
}

/// Returns the TCP port on which a process listens at this address: the line that names it is not
/// read.
fn listening_port(pid: u32, address: Ipv4Addr) -> Option<u16> {
    let links = fs::read_dir(format!("/proc/{pid}/fd")).ok()?;
    let links = links.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
    let own: Vec<_> = links.map(|link| link.to_string_lossy().into_owned()).collect();
    let table = fs::read_to_string(format!("/proc/{pid}/net/tcp")).ok()?;
    // proc_net(5): local address and port in hexadecimal, the state (0A: listening), and the inode
    // in the tenth field.
    let address = format!("{:08X}", u32::from_ne_bytes(address.octets()));
    table.lines().skip(1).find_map(|line| {
        let fields: Vec<_> = line.split_whitespace().collect();
        let (found, port) = fields[1].split_once(':')?;
        let is_own = own.contains(&format!("socket:[{}]", fields[9]));
        let is_it = is_own && found == address && fields[3] == "0A";
        is_it.then(|| u16::from_str_radix(port, 16).expect("hexadecimal"))
    })
}

#[test]
fn a_server_goes_on_and_a_download_is_whole() {
    let folder = folder();
    let library = folder.path().join("library");
    fs::create_dir(&library).expect("a folder");
    let bytes: Vec<u8> = (0..100_000_u32).map(|n| (n % 251) as u8).collect();
    fs::write(library.join("file.bin"), &bytes).expect("a file");
    let cache = folder.path().join("cache");
    let [library, cache] = [&library, &cache].map(|path| path.to_str().expect("a plain name"));
    let serve = ["serve", library, "--cache", cache, "--path", "mmap_writev"];
    let ports = ["--rtsp", "127.0.0.2:0", "--http", "127.0.0.1:0"];
    let mut server = unread(&[&serve[..], &ports].concat()).spawn().expect("it starts");
    let deadline = Instant::now() + Duration::from_secs(60);
    let http = loop {
        if let Some(port) = listening_port(server.id(), Ipv4Addr::LOCALHOST) {
            break format!("127.0.0.1:{port}");
        }
        assert!(server.try_wait().expect("its status").is_none(), "the server has ended");
        assert!(Instant::now() < deadline, "the server does not listen");
        std::thread::sleep(Duration::from_millis(20));
    };
    let target = folder.path().join("copy.bin");
    let url = format!("http://{http}/file.bin");
    ends_quietly(&["play", &url, "--output", target.to_str().expect("a plain name")]);
    assert!(fs::read(&target).expect("the download") == bytes, "byte for byte");
    let mut answer = String::new();
    let mut client = TcpStream::connect(&http).expect("the server is there");
    client.write_all(b"GET /file.bin HTTP/1.0\r\n\r\n").expect("a request");
    let _ = client.take(12).read_to_string(&mut answer);
    assert!(answer.ends_with(" 200"), "{answer}");
    let pid = Pid::from_child(&server);
    kill_process(pid, Signal::TERM).expect("its own child");
    assert_eq!(server.wait().expect("its status").code(), Some(0));
}
