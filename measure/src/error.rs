// SPDX-License-Identifier: MIT OR Apache-2.0
//! Why an experiment gave no figures.

/// See the variants.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A fact about the host.
    #[error("this needs {need}; {found}")]
    Unavailable {
        /// What is missing.
        need: &'static str,
        /// What was found instead, and what to do.
        found: String,
    },
    /// A call or a program failed.
    #[error("{what}: {found}")]
    Host {
        /// What was being done.
        what: String,
        /// What was found.
        found: String,
    },
    /// What was given cannot be used.
    #[error("{what}: {found}")]
    Caller {
        /// The setting or file.
        what: String,
        /// What is wrong with it, and what to give instead.
        found: String,
    },
    /// Bytes arrived that are not those that were sent: no figure is worth anything then.
    #[error("{member}: verification: {found}")]
    Wrong {
        /// The member.
        member: String,
        /// What differed.
        found: String,
    },
}

impl Error {
    /// No member fits what was asked for.
    pub fn nothing_to_measure(options: &crate::Options) -> Error {
        let known: Vec<String> = paths::PATHS.iter().map(|spec| spec.to_string()).collect();
        Error::Caller {
            what: format!("member {}", options.members.join(" ")),
            found: format!("no such path here; write a name of {}", known.join(", ")),
        }
    }

    /// Maps an I/O error to [`Error::Host`] with the action it interrupted.
    pub fn host(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Error {
        let what = what.into();
        move |error| Error::Host { what, found: error.to_string() }
    }
}
