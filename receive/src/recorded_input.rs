// SPDX-License-Identifier: MIT OR Apache-2.0
//! The inputs of a recording, checked.
//!
//! Does not open ports or files, except the folders of cameras.

use client::{RecordedMedia, StreamTransport, TrackContainer, TransportChoice};
use media::mux::{FileRequest, WriterKind};
use paths::Port;
use recordings::CameraFiles;

use crate::error::{Error, RecordSetting};
use crate::file_names::{self, FileNames};
use crate::recording::RecordOptions;
use crate::stream_options::{StreamOptions, StreamOutputFiles};
use crate::stream_source::StreamSource;

/// An input of a recording.
pub(crate) struct RecordedInput {
    pub(crate) source: StreamSource,
    pub(crate) options: StreamOptions,
}

impl RecordedInput {
    /// Checks the settings of all streams, and makes the folders of cameras.
    ///
    /// # Errors
    /// Caller: a wrong setting.
    pub(crate) fn all(options: &RecordOptions) -> Result<Vec<RecordedInput>, Error> {
        let inputs = options.streams.iter().map(RecordedInput::new);
        let inputs = inputs.collect::<Result<Vec<_>, Error>>()?;
        let wrong = |found: String, cure: &str| {
            let cure = cure.to_owned();
            Err(Error::Setting { setting: RecordSetting::Url, found, cure })
        };
        if inputs.is_empty() || inputs.len() > STREAMS_MAX {
            return wrong(format!("{} of them", inputs.len()), "write 1 to 4096");
        }
        for (index, input) in inputs.iter().enumerate() {
            // Only ports must be distinct: an RTSP source may be recorded twice.
            let is_same = |other: &RecordedInput| {
                matches!(input.source, StreamSource::Udp(_)) && other.source == input.source
            };
            if inputs[..index].iter().any(is_same) {
                return wrong(input.options.url.clone(), "it is there twice; write it once");
            }
        }
        for input in &inputs {
            input.check_transport()?;
            input.check_media()?;
            if let Some(pattern) = input.pattern() {
                let patterns = inputs.iter().filter_map(RecordedInput::pattern);
                file_names::check(pattern, patterns.filter(|of| *of == pattern).count())?;
            }
            input.check_container(!options.relay.is_empty())?;
        }
        Ok(inputs)
    }

    /// Checks the URL of a stream, and makes the folder of a camera.
    ///
    /// # Errors
    /// Caller: the URL. Host: the folder.
    pub(crate) fn new(options: &StreamOptions) -> Result<RecordedInput, Error> {
        let (source, mut options) = (StreamSource::parse(&options.url)?, options.clone());
        if let StreamOutputFiles::Camera(files) = &mut options.output {
            let refused = |source| Error::Host {
                call: "making the folder",
                object: files.folder.display().to_string(),
                source,
            };
            recordings::make_folder(&files.folder).map_err(refused)?;
            // The server finds plans by paths without symbolic links.
            files.folder = files.folder.canonicalize().map_err(refused)?;
            options.rotation.request = Some(FileRequest::default());
        }
        Ok(RecordedInput { source, options })
    }

    fn pattern(&self) -> Option<&String> {
        match &self.options.output {
            StreamOutputFiles::Pattern(pattern) => Some(pattern),
            _ => None,
        }
    }

    /// The port that is bound when the recording starts; that of a camera is bound when it can be.
    pub(crate) fn port(&self) -> Option<&Port> {
        match &self.source {
            StreamSource::Udp(port) if self.camera().is_none() => Some(port),
            _ => None,
        }
    }

    /// Name in the log.
    pub(crate) fn shown(&self) -> String {
        match self.camera() {
            Some(files) => format!("camera {}: {}", files.camera, self.options.url),
            None => self.options.url.clone(),
        }
    }

    /// Files of a camera that is recorded for long.
    pub(crate) fn camera(&self) -> Option<&CameraFiles> {
        match &self.options.output {
            StreamOutputFiles::Camera(files) => Some(files),
            _ => None,
        }
    }

    /// The container of the files; `None` if no file is written.
    pub(crate) fn kind(&self) -> Option<WriterKind> {
        match &self.options.output {
            StreamOutputFiles::None => None,
            StreamOutputFiles::Pattern(pattern) => Some(file_names::kind(pattern)),
            StreamOutputFiles::Camera(files) => Some(files.kind()),
        }
    }

    /// The container of a camera's tracks.
    pub(crate) fn container(&self) -> TrackContainer {
        match self.kind() {
            Some(WriterKind::FragmentedMp4) => {
                TrackContainer::FragmentedMp4(self.options.rotation.clone())
            }
            _ => TrackContainer::TransportStream,
        }
    }

    /// Names of the files of the stream at this index; `None` if no file is written.
    pub(crate) fn file_names(&self, index: usize) -> Option<FileNames> {
        match &self.options.output {
            StreamOutputFiles::None => None,
            StreamOutputFiles::Pattern(pattern) => {
                Some(FileNames::new(pattern, &self.source.label(), index))
            }
            StreamOutputFiles::Camera(files) => Some(FileNames::of_camera(files)),
        }
    }

    /// Refuses sources that cannot be recorded in such files: only tracks are put into MP4.
    fn check_container(&self, is_relayed: bool) -> Result<(), Error> {
        if self.kind() != Some(WriterKind::FragmentedMp4) {
            return Ok(());
        }
        let pattern = self.pattern();
        let found = pattern.or_else(|| Some(&self.camera()?.camera)).cloned().unwrap_or_default();
        let wrong = |cure: String| {
            let (setting, found) = (RecordSetting::Output, found.clone());
            Err(Error::Setting { setting, found, cure })
        };
        if matches!(self.source, StreamSource::Udp(_)) {
            let url = &self.options.url;
            return wrong(format!("{url} is a transport stream: name its recording .ts"));
        }
        if is_relayed {
            return wrong("transport streams are relayed: name the recording .ts".to_owned());
        }
        let is_file =
            |pattern: &String| std::fs::metadata(pattern).map_or(true, |found| found.is_file());
        if pattern.is_some_and(|pattern| !is_file(pattern)) {
            let cure = "a pipe or a device takes one file alone: name the recording .ts";
            return wrong(cure.to_owned());
        }
        Ok(())
    }

    /// Refuses a port where one medium alone is recorded: it receives a transport stream.
    fn check_media(&self) -> Result<(), Error> {
        let StreamOptions { media, url, .. } = &self.options;
        if !matches!(self.source, StreamSource::Udp(_)) || *media == RecordedMedia::All {
            return Ok(());
        }
        let cure = format!(
            "{url} is a transport stream, which is recorded as it is, with all that is in it: \
             leave --tracks out"
        );
        Err(Error::Setting { setting: RecordSetting::Tracks, found: media.to_string(), cure })
    }

    /// Refuses a transport that a recorder does not support, or that the URL contradicts.
    fn check_transport(&self) -> Result<(), Error> {
        let TransportChoice::Only(transport) = self.options.transport else { return Ok(()) };
        let wrong = |cure: String| {
            let (setting, found) = (RecordSetting::Transport, transport.to_string());
            Err(Error::Setting { setting, found, cure })
        };
        if transport == StreamTransport::Multicast {
            let cure = "write auto, udp, tcp or http; a group is recorded by udp://GROUP:PORT";
            return wrong(cure.to_owned());
        }
        match client::check_transport(&self.options.url, transport) {
            Err(client::Error::Setting { cure, .. }) => wrong(cure),
            _ => Ok(()),
        }
    }
}

/// Bounds the descriptors and the socket memory that are requested from the host.
const STREAMS_MAX: usize = 4096;
