// SPDX-License-Identifier: MIT OR Apache-2.0
//! Versions, ciphers, curves and known attacks, on both ports.
//!
//! The reference is Mozilla's configuration "intermediate", which sslyze compares with: TLS 1.2 and
//! 1.3, forward secrecy, no weak cipher or curve, a chain that clients can verify. The certificate
//! is of an authority that sslyze is configured to trust: for a self-signed one its chain is the
//! only finding. Named tests of sslyze cover attacks that the configuration does not.
//!
//! Sources: wiki.mozilla.org/Security/Server_Side_TLS.

use std::process::Command;

use serde_json::Value;

use crate::{TlsServer, run, test_tool};

#[test]
fn both_ports_comply_with_mozillas_configuration() {
    let test = "clients::scan::both_ports_comply_with_mozillas_configuration";
    let TlsServer { server, authority } = TlsServer::start(&[]);
    let report = server.place.top().join("scan.json");
    let mut command = Command::new(test_tool("python/bin/sslyze"));
    command
        .args(["--mozilla_config=intermediate", "--early_data", "--certinfo_ca_file"])
        .arg(authority.root());
    command.arg(format!("--json_out={}", report.display()));
    for port in [server.https, server.rtsps] {
        command.arg(port.expect("it listens").to_string());
    }
    let Some(outcome) = run(test, &mut command) else { return };
    let stdout = String::from_utf8_lossy(&outcome.stdout).into_owned();
    let report = std::fs::read(&report).unwrap_or_else(|error| panic!("{error}: {stdout}"));
    let report: Value = serde_json::from_slice(&report).expect("JSON");
    let scans = report["server_scan_results"].as_array().expect("a list of scans");
    assert_eq!(scans.len(), 2, "{stdout}");
    for scan in scans {
        assert_clean(&scan["scan_result"]);
    }
    assert_eq!(stdout.matches("OK - Compliant").count(), 2, "{stdout}");
    outcome.succeeded();
    server.stop();
}

/// Asserts the findings of sslyze about a port, beside Mozilla's configuration.
#[track_caller]
fn assert_clean(scan: &Value) {
    let found = |name: &str, field: &str| {
        assert_eq!(scan[name]["status"], "COMPLETED", "{name}: {:#}", scan[name]);
        scan[name]["result"][field].clone()
    };
    for version in ["ssl_2_0", "ssl_3_0", "tls_1_0", "tls_1_1"] {
        let name = format!("{version}_cipher_suites");
        assert_eq!(found(&name, "accepted_cipher_suites"), Value::Array(vec![]), "{version}");
    }
    for version in ["tls_1_2", "tls_1_3"] {
        let name = format!("{version}_cipher_suites");
        let accepted = found(&name, "accepted_cipher_suites");
        let accepted = accepted.as_array().expect("a list of suites");
        assert!(!accepted.is_empty(), "{version}");
        for suite in accepted {
            let key = &suite["ephemeral_key"];
            assert!(!key.is_null(), "{version}: without forward secrecy: {suite:#}");
        }
    }
    for (name, field, expected) in [
        ("heartbleed", "is_vulnerable_to_heartbleed", false),
        ("openssl_ccs_injection", "is_vulnerable_to_ccs_injection", false),
        ("tls_compression", "supports_compression", false),
        ("session_renegotiation", "is_vulnerable_to_client_renegotiation_dos", false),
        ("session_renegotiation", "supports_secure_renegotiation", true),
        ("tls_1_3_early_data", "supports_early_data", false),
        ("tls_fallback_scsv", "supports_fallback_scsv", true),
        ("tls_extended_master_secret", "supports_ems_extension", true),
    ] {
        assert_eq!(found(name, field), expected, "{name}: {field}");
    }
    let robot = found("robot", "robot_result");
    assert_eq!(robot, "NOT_VULNERABLE_RSA_NOT_SUPPORTED");
}
