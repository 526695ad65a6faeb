// SPDX-License-Identifier: MIT OR Apache-2.0
//! Every address of the API answers as its description states.

use std::process::Command;

use serde_json::Value;

use crate::harness::rtsp::Player;
use crate::harness::{PROGRAM, Server};
use crate::{ask, await_session, get, serve, short_clip};

/// Requests that a client of the description makes, with those that change state last.
#[test]
fn every_described_address_answers_in_its_described_form() {
    let server = serve(short_clip(), &[]);
    let mut player = Player::set_up(server.rtsp, "film.ts");
    player.play();
    let row = await_session(&server, "the player is listed", |row| row["asset"] == "film.ts");
    let id = row["id"].as_str().expect("text");
    let api = get(&server, "/openapi.json");
    let mut requests = Vec::new();
    for (path, item) in api["paths"].as_object().expect("paths") {
        for (method, operation) in item.as_object().expect("operations") {
            requests.push((method.to_uppercase(), path, operation));
        }
    }
    requests.sort_by_key(|(method, ..)| method != "GET");
    assert!(requests.len() > 10, "{requests:?}");
    for (method, path, operation) in requests {
        let target = path.replace("{id}", id);
        let target = if path.ends_with("/trace") { format!("{target}?seconds=1") } else { target };
        let answer = ask(&server, &method, &target, &["X-Pagewire: 1"]);
        let status = answer.status.to_string();
        let described = &operation["responses"][&status];
        assert!(described.is_object(), "{method} {target}: {status} is not described: {answer:?}");
        assert_eq!(answer.status, 200, "{method} {target}: {answer:?}");
        let kind = answer.header("Content-Type").expect("a type").to_owned();
        let kind = kind.split(';').next().expect("a first part");
        let content = &described["content"][kind];
        assert!(content.is_object(), "{method} {target}: {kind} is not described");
        if kind == "application/json" {
            let value: Value = serde_json::from_slice(&answer.body).expect("JSON");
            let faults = faults(&value, &content["schema"], &api);
            assert!(faults.is_empty(), "{method} {target}: {faults:?} in {value:#}");
        }
    }
    server.stop();
}

/// Returns the places where a value violates its schema: types, required and unknown fields,
/// enumerations.
fn faults(value: &Value, schema: &Value, api: &Value) -> Vec<String> {
    if let Some(name) = schema["$ref"].as_str() {
        let pointer = name.strip_prefix('#').expect("a reference within");
        return faults(value, api.pointer(pointer).expect("it is defined"), api);
    }
    if let Some(options) = schema["oneOf"].as_array() {
        let fitting = options.iter().filter(|option| faults(value, option, api).is_empty()).count();
        return if fitting == 1 {
            vec![]
        } else {
            vec![format!("{value} fits {fitting} of oneOf")]
        };
    }
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_u64() || number.is_i64() => "integer",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    let types: Vec<&str> = match &schema["type"] {
        Value::String(one) => vec![one],
        Value::Array(several) => several.iter().filter_map(Value::as_str).collect(),
        _ => return vec![format!("a schema without a type: {schema}")],
    };
    let is_number = kind == "integer" && types.contains(&"number");
    if !types.contains(&kind) && !is_number {
        return vec![format!("{value} is {kind}, not {types:?}")];
    }
    let mut found = Vec::new();
    if let Some(names) = schema["enum"].as_array()
        && !names.contains(value)
    {
        found.push(format!("{value} is none of {names:?}"));
    }
    let (fields, properties) = (value.as_object(), schema["properties"].as_object());
    for name in schema["required"].as_array().into_iter().flatten() {
        if fields.is_none_or(|fields| !fields.contains_key(name.as_str().expect("a name"))) {
            found.push(format!("{name} is missing"));
        }
    }
    for (name, field) in fields.into_iter().flatten() {
        match properties.map(|properties| properties.get(name)) {
            Some(Some(property)) => found.extend(faults(field, property, api)),
            Some(None) => found.push(format!("{name} is not described")),
            None => {}
        }
    }
    for item in value.as_array().into_iter().flatten() {
        found.extend(faults(item, &schema["items"], api));
    }
    found
}

#[test]
fn reload_by_the_api_puts_a_changed_file_into_force_or_names_its_faults() {
    let place = crate::Place::new();
    let file = place.top().join("pagewire.toml");
    let write = |text: &str| std::fs::write(&file, text).expect("a file");
    write("session_timeout = 60\n");
    let options = ["--admin", "127.0.0.1:0", "--config", file.to_str().expect("UTF-8")];
    let server = Server::at(&place, Command::new(PROGRAM), &options);
    let reload = || ask(&server, "POST", "/v1/reload", &["X-Pagewire: 1"]);
    write("session_timeout = 70\nburst = 10\n");
    let answer = reload();
    assert_eq!(answer.status, 200, "{answer:?}");
    let outcome: Value = serde_json::from_slice(&answer.body).expect("JSON");
    let expected = serde_json::json!({"changed": ["session_timeout"], "needs_restart": ["burst"]});
    assert_eq!(outcome, expected);
    write("session_timeout = \"long\"\n");
    let answer = reload();
    assert_eq!(answer.status, 422, "{answer:?}");
    assert!(answer.text().contains("pagewire.toml:1"), "{answer:?}");
    server.stop();
}

#[test]
fn schemas_find_faults() {
    let api = get_schema();
    let sample = &api["components"]["schemas"]["Readiness"];
    assert_eq!(faults(&serde_json::json!({"ready": true, "faults": ["a"]}), sample, &api).len(), 0);
    for wrong in [
        serde_json::json!({"ready": 1, "faults": []}),
        serde_json::json!({"ready": true}),
        serde_json::json!({"ready": true, "faults": [1]}),
        serde_json::json!({"ready": true, "faults": [], "more": 1}),
    ] {
        assert_eq!(faults(&wrong, sample, &api).len(), 1, "{wrong}");
    }
}

fn get_schema() -> Value {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/openapi.json");
    serde_json::from_str(&std::fs::read_to_string(path).expect("the description")).expect("JSON")
}

#[test]
fn readiness_names_the_folder_that_is_gone() {
    let server = serve(short_clip(), &[]);
    assert_eq!(get(&server, "/readyz")["ready"], true);
    let moved = server.place.top().join("moved");
    std::fs::rename(server.folder(), &moved).expect("one file system");
    let answer = ask(&server, "GET", "/readyz", &[]);
    assert_eq!(answer.status, 503, "{answer:?}");
    assert!(answer.text().contains("No such file or directory"), "{answer:?}");
    let metrics = ask(&server, "GET", "/metrics", &[]).text();
    assert!(metrics.contains("\npagewire_ready 0\n"), "{metrics}");
    assert_eq!(ask(&server, "GET", "/healthz", &[]).status, 200);
    std::fs::rename(&moved, server.folder()).expect("one file system");
    assert_eq!(get(&server, "/readyz")["ready"], true);
    server.stop();
}

#[test]
fn index_of_the_api_has_addresses_of_the_public_listeners() {
    let server = serve(short_clip(), &[]);
    let assets = get(&server, "/v1/assets");
    let row = &assets["files"][0];
    assert_eq!(row["name"], "film.ts");
    let text = row.to_string();
    let (http, rtsp) = (server.http_url("film.ts"), server.rtsp_url("film.ts"));
    assert!(text.contains(&http) && text.contains(&rtsp), "{row:#}");
    assert_eq!(get(&server, "/v1/assets?limit=1")["files"].as_array().map(Vec::len), Some(1));
    server.stop();
}
