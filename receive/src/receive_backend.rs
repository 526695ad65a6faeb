// SPDX-License-Identifier: MIT OR Apache-2.0
//! Backend of a recording: receive paths for files, a relay for streams that are only forwarded.
//!
//! Does not choose among paths ([`crate::path_choice`] does).

use paths::{Port, ReceiveSpec, Relay, RelayTarget};

use crate::error::Error;
use crate::path_choice::{ChosenPath, choose};
use crate::recorded_input::RecordedInput;
use crate::relay;

/// Backend of a recording.
pub(crate) enum ReceiveBackend {
    /// One path for each receiving thread, with its share of the ports.
    Paths(Vec<ChosenPath>),
    /// A relay: no file is written, and all streams arrive at ports, so no byte is copied to user
    /// memory.
    Relay(Box<Relay>),
}

impl ReceiveBackend {
    pub(crate) fn open(
        wanted: &[&'static ReceiveSpec],
        inputs: &[RecordedInput],
        targets: &[RelayTarget],
        (is_written, threads): (bool, usize),
    ) -> Result<ReceiveBackend, Error> {
        let port =
            |(key, input): (usize, &RecordedInput)| Some((key as u32, input.port()?.clone()));
        let ports: Vec<(u32, Port)> = inputs.iter().enumerate().filter_map(port).collect();
        if !is_written && !targets.is_empty() && ports.len() == inputs.len() {
            let routes = ports.iter().zip(targets);
            let routes: Vec<_> = routes.map(|((key, port), to)| (*key, port, to)).collect();
            return relay::open(&routes).map(Box::new).map(ReceiveBackend::Relay);
        }
        let threads = threads.clamp(1, inputs.len());
        let of = |number: usize| {
            let ports = ports.iter().filter(move |(key, _)| *key as usize % threads == number);
            ports.map(|(key, port)| (*key, port)).collect::<Vec<_>>()
        };
        let choices = (0..threads).map(|number| choose(wanted, &of(number)));
        choices.collect::<Result<_, Error>>().map(ReceiveBackend::Paths)
    }

    pub(crate) fn name(&self) -> String {
        match self {
            ReceiveBackend::Paths(choices) => choices[0].spec.name.to_owned(),
            ReceiveBackend::Relay(relay) => format!("relay ({})", relay.method()),
        }
    }

    pub(crate) fn refused(&self) -> Vec<String> {
        match self {
            ReceiveBackend::Paths(choices) => {
                choices[0].refused.iter().map(ToString::to_string).collect()
            }
            ReceiveBackend::Relay(_) => Vec::new(),
        }
    }
}
