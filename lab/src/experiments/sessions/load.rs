// SPDX-License-Identifier: MIT OR Apache-2.0
//! Clients of the experiment: this program, started as `load` behind the veth pair, and its output.
//!
//! It prints an object a line: `playing` when all sessions play and measuring begins, `measured`
//! when measuring has ended, and finally `result`.

use std::io::{BufRead, BufReader, Read};
use std::net::Ipv4Addr;
use std::process::{Child, ChildStdout, Command, Stdio};

use serde_json::Value;

use crate::installed;
use measure::Error;
use measure::meter::Cores;
use measure::network::Network;

/// A running load.
pub(crate) struct Load {
    child: Child,
    lines: BufReader<ChildStdout>,
    what: String,
}

/// Options of the load.
pub(crate) struct Asked<'a> {
    pub(crate) url: &'a str,
    pub(crate) sessions: usize,
    /// True to verify every packet; otherwise the sink drops RTP and only RTSP and RTCP are
    /// answered.
    pub(crate) verified: bool,
    pub(crate) source: Ipv4Addr,
    pub(crate) seconds: f64,
    /// Value of the option `--transport` of `load`.
    pub(crate) transport: &'static str,
}

impl Load {
    pub(crate) fn start(
        network: &Network,
        asked: &Asked<'_>,
        cores: &Cores,
    ) -> Result<Load, Error> {
        let program = installed::pagewire()?;
        let what = format!("{} sessions of {}", asked.sessions, asked.source);
        let mut command: Command = network.far_command(&program);
        command.args(["load", asked.url, "--json", "-"]);
        command.args(["--sessions", &asked.sessions.to_string()]);
        command.args(["--sample", if asked.verified { "1" } else { "0" }]);
        command.args(["--transport", asked.transport]);
        command.args(["--source", &asked.source.to_string()]);
        command.args(["--seconds", &format!("{:.1}", asked.seconds)]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = cores.start(&mut command).map_err(Error::host(what.clone()))?;
        let lines = BufReader::new(child.stdout.take().expect("it is piped"));
        Ok(Load { child, lines, what })
    }

    /// Reads lines until the event of that name.
    pub(crate) fn await_event(&mut self, name: &str) -> Result<Value, Error> {
        let mut line = String::new();
        loop {
            line.clear();
            let read = self.lines.read_line(&mut line).map_err(Error::host(self.what.clone()))?;
            if read == 0 {
                let mut stderr_text = String::new();
                if let Some(mut stderr) = self.child.stderr.take() {
                    let _ = stderr.read_to_string(&mut stderr_text);
                }
                let found = format!("no {name}; the load ended: {}", stderr_text.trim());
                return Err(Error::Host { what: self.what.clone(), found });
            }
            let event: Value = serde_json::from_str(&line).unwrap_or_default();
            if event["event"] == name {
                return Ok(event);
            }
        }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        // After its result it has ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
