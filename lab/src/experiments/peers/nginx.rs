// SPDX-License-Identifier: MIT OR Apache-2.0
//! Downloads by sendfile, one worker, with the settings that its documentation recommends for
//! files.

use super::peer::{HTTP_PORT, Peer, Running, Setting, Streams, version};
use super::process::Processes;
use measure::Error;

pub(crate) static PEER: Peer = Peer {
    name: "nginx",
    differs: "HTTP alone; one worker, sendfile and tcp_nopush on, no access log",
    streams: Streams::No,
    interleaves: false,
    downloads: true,
    probe: || version(PROGRAM, &["-v"], "version"),
    install: "apt install nginx-light",
    start: |setting| start(setting, &Directives::default()),
    is_prepared: |_, _| true,
};

/// Directives beside those of the plain server.
#[derive(Clone, Default)]
pub(crate) struct Directives {
    /// In the block `http`.
    pub(crate) http: String,
    /// In the block `server`.
    pub(crate) server: String,
}

/// Starts nginx with more directives.
pub(crate) fn start(setting: &Setting<'_>, more: &Directives) -> Result<Running, Error> {
    let folder = setting.folder.display();
    let configuration = setting.folder.join("nginx.conf");
    let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
    let temporary = temporary.map(|name| format!("  {name}_temp_path {folder}/nginx-{name};\n"));
    let text = format!(
        "daemon off; master_process off; pid {folder}/nginx.pid; error_log stderr;\n\
         events {{ worker_connections 16384; }}\nhttp {{\n{}  access_log off; sendfile on; \
         tcp_nopush on; keepalive_requests 100000000; keepalive_timeout 60s; {}\n  \
         server {{ listen 127.0.0.1:{HTTP_PORT}; root {}; {} }}\n}}\n",
        temporary.concat(),
        more.http,
        setting.served.display(),
        more.server,
    );
    std::fs::write(&configuration, text).map_err(Error::host("writing nginx.conf"))?;
    let mut processes = Processes::new(PEER.name, setting.folder);
    let mut command = Processes::command(PROGRAM);
    command.arg("-p").arg(setting.folder).arg("-c").arg(&configuration);
    processes.start(&mut command, setting.cores)?;
    let http_port = processes.await_port(&[HTTP_PORT])?;
    Ok(Running { http_port, ..Running::new(processes) })
}

/// Path outside most users' PATH.
const PROGRAM: &str = "/usr/sbin/nginx";
