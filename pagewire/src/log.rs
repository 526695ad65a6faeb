// SPDX-License-Identifier: MIT OR Apache-2.0
//! Log of the program: its level, which a reload changes, and its format, which escapes every
//! field, so that no field can add a line.
//!
//! Costs one pass over the text of a field.
//!
//! Sources: [`terminal::escape`]. Does not select the logged events.

use std::fmt::{self, Write};
use std::io::{self, IsTerminal};
use std::sync::OnceLock;

use clap::ValueEnum;
use terminal::escape::Escaping;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::FormatFields;
use tracing_subscriber::fmt::format::{Writer, debug_fn};
use tracing_subscriber::reload::Handle;

/// Default level of the log.
pub(crate) const LEVEL: &str = "warn";

/// Form of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// A line for people.
    Text,
    /// An object of JSON a line.
    Json,
}

/// Starts the log on standard error.
///
/// # Errors
/// The fault of the level, and the level to write.
pub(crate) fn start(level: &str, format: LogFormat) -> Result<(), String> {
    let filter = filter(level)?;
    match format {
        LogFormat::Text => {
            let log = tracing_subscriber::fmt()
                .with_env_filter(filter)
                .fmt_fields(fields())
                .with_writer(io::stderr)
                .with_target(false)
                .with_ansi(io::stderr().is_terminal())
                .with_filter_reloading();
            replace_by(log.reload_handle());
            log.init();
        }
        LogFormat::Json => {
            let log = tracing_subscriber::fmt()
                .with_env_filter(filter)
                .json()
                .flatten_event(true)
                .with_writer(|| AsciiJson(io::stderr()))
                .with_target(false)
                .with_filter_reloading();
            replace_by(log.reload_handle());
            log.init();
        }
    }
    Ok(())
}

/// Keeps the handle that changes the level. The log is started once per process.
fn replace_by<S: 'static>(handle: Handle<EnvFilter, S>) {
    let replace = move |filter| handle.reload(filter).map_err(|error| error.to_string());
    let _ = REPLACE.set(Box::new(replace));
}

/// Changes the level of the running log.
///
/// # Errors
/// The fault of the level, and the level to write.
pub(crate) fn set(level: &str) -> Result<(), String> {
    let filter = filter(level)?;
    REPLACE.get().map_or(Ok(()), |replace| replace(filter))
}

/// Judges a level.
///
/// # Errors
/// The fault of the level, and the level to write.
pub(crate) fn check(level: &str) -> Result<(), String> {
    filter(level).map(|_| ())
}

fn filter(level: &str) -> Result<EnvFilter, String> {
    // A file can make mp4_atom log a line per byte, without the file's name; the reader of the file
    // logs its faults once. A client can make h2 log a warning per frame.
    EnvFilter::try_new(format!("{level},mp4_atom=off,h2=error"))
        .map_err(|error| format!("unusable: {error}; write {LEVEL}"))
}

type ReplaceFilter = dyn Fn(EnvFilter) -> Result<(), String> + Send + Sync;
static REPLACE: OnceLock<Box<ReplaceFilter>> = OnceLock::new();

/// Writes lines of JSON with all characters outside ASCII as escapes: JSON itself permits
/// characters that end a line for some readers or that control a terminal.
struct AsciiJson<W>(W);

impl<W: io::Write> io::Write for AsciiJson<W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let mut text = String::with_capacity(line.len());
        let mut units = [0; 2];
        for character in String::from_utf8_lossy(line).chars() {
            if character == '\n' || (' '..='~').contains(&character) {
                text.push(character);
                continue;
            }
            for unit in character.encode_utf16(&mut units) {
                // Writing to a string has no error.
                let _ = write!(text, "\\u{unit:04x}");
            }
        }
        self.0.write_all(text.as_bytes())?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Formats the fields of an event and of its spans, the message included.
fn fields() -> impl for<'w> FormatFields<'w> + Send + Sync + 'static {
    use tracing_subscriber::field::MakeExt;
    let format =
        |writer: &mut Writer<'_>, field: &tracing::field::Field, value: &dyn fmt::Debug| {
            let mut escaping = Escaping { target: writer, keeps_lines: false };
            match field.name() {
                "message" => write!(escaping, "{value:?}"),
                name => write!(escaping, "{name}={value:?}"),
            }
        };
    debug_fn(format).delimited(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOSTILE: &str =
        "a\n2026 ERROR b\r\u{1b}[2K\u{7f}\u{9b}1m\u{2028}\u{202e}st.b\u{2066}\t\0c";

    #[test]
    fn json_is_ascii_and_one_line() {
        let mut out = Vec::new();
        let line = serde_json::json!({ "message": HOSTILE, "film": "\u{1f600}" });
        io::Write::write_all(&mut AsciiJson(&mut out), format!("{line}\n").as_bytes()).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.bytes().all(|byte| byte == b'\n' || (b' '..=b'~').contains(&byte)), "{text}");
        assert_eq!((text.lines().count(), serde_json::from_str(&text).ok()), (1, Some(line)));
    }

    #[test]
    fn no_field_of_the_log_adds_a_line() {
        use std::sync::{Arc, Mutex};
        #[derive(Clone, Default)]
        struct Log(Arc<Mutex<Vec<u8>>>);
        impl io::Write for Log {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                self.0.lock().expect("nobody panicked").write(bytes)
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let log = Log::default();
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt()
            .fmt_fields(fields())
            .with_ansi(false)
            .with_writer(move || writer.clone())
            .finish();
        tracing::subscriber::with_default(subscriber, || {
            let span = tracing::error_span!("outer", name = %HOSTILE);
            let _inside = span.enter();
            tracing::error!(shown = %HOSTILE, quoted = ?HOSTILE, text = HOSTILE, "{HOSTILE}");
            tracing::error!("second");
        });
        let log = String::from_utf8(log.0.lock().expect("nobody panicked").clone()).expect("UTF-8");
        assert_eq!(log.lines().count(), 2, "{log}");
        assert!(
            !log.chars()
                .any(|c| (c.is_control() && c != '\n') || matches!(c, '\u{2028}' | '\u{202e}')),
            "{log:?}"
        );
        assert!(log.matches("2026 ERROR b\\r\\u001b[2K").count() >= 4, "{log}");
    }
}
