// SPDX-License-Identifier: MIT OR Apache-2.0
//! Log format of the program; escapes every field, so that no field can add a line.
//!
//! Costs one pass over the text of a field.
//!
//! Sources: [`terminal::escape`].
//! Does not choose what is logged.

use std::fmt::{self, Write};

use terminal::escape::Escaping;
use tracing_subscriber::fmt::FormatFields;
use tracing_subscriber::fmt::format::{Writer, debug_fn};

/// Formats the fields of an event and of its spans, the message included.
pub(crate) fn fields() -> impl for<'w> FormatFields<'w> + Send + Sync + 'static {
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
    fn no_field_of_the_log_adds_a_line() {
        use std::sync::{Arc, Mutex};
        #[derive(Clone, Default)]
        struct Log(Arc<Mutex<Vec<u8>>>);
        impl std::io::Write for Log {
            fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
                self.0.lock().expect("nobody panicked").write(bytes)
            }
            fn flush(&mut self) -> std::io::Result<()> {
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
