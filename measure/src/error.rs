// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reasons why an experiment returned no figures.

/// Reason why an experiment returned no figures.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The host lacks a feature.
    #[error("this needs {need}; {found}")]
    Unavailable {
        /// The missing feature.
        need: &'static str,
        /// The state found, and the remedy.
        found: String,
    },
    /// A call or a program failed.
    #[error("{what}: {found}")]
    Host {
        /// The action that failed.
        what: String,
        /// The error.
        found: String,
    },
    /// An option or file that cannot be used.
    #[error("{what}: {found}")]
    Caller {
        /// The setting or file.
        what: String,
        /// The mistake, and the value to write instead.
        found: String,
    },
    /// Bytes arrived that differ from those sent, so no figure is valid.
    #[error("{member}: verification: {found}")]
    Wrong {
        /// Name of the member.
        member: String,
        /// The difference.
        found: String,
    },
}

impl Error {
    /// Returns the error for a `--member` that matches no path.
    pub fn nothing_to_measure(options: &crate::Options) -> Error {
        let known: Vec<String> = paths::PATHS.iter().map(|spec| spec.to_string()).collect();
        Error::Caller {
            what: format!("member {}", options.members.join(" ")),
            found: format!("no such path here; write a name of {}", known.join(", ")),
        }
    }

    /// Maps an I/O error to [`Error::Host`] with the interrupted action.
    pub fn host(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Error {
        let what = what.into();
        move |error| Error::Host { what, found: error.to_string() }
    }
}
