// SPDX-License-Identifier: MIT OR Apache-2.0
//! Recordings of cameras: the files of each by name and time, an index of them, and cuts between
//! two times of the clock.
//!
//! A camera's recordings are its files ([`CameraFiles`]): their names tell the start, their media
//! the length. [`list`] finds them. The lengths of complete files are kept in an index, because
//! each costs a few reads; the recorder adds to it what it completes ([`file_completed`]).
//! [`export`] cuts a time out of one or more files, from a place where play can start, and joins it
//! to one file: headers of fragments are renumbered, media are copied by the kernel, and nothing is
//! decoded or encoded.
//!
//! Does not record or delete: the crate `receive` does.

#![forbid(unsafe_code)]

mod camera_files;
mod error;
mod export;
mod index;
mod length;
mod list;
mod recording;

pub use camera_files::{CameraFiles, FileStartName, Retention, make_folder, shown_time};
pub use error::Error;
pub use export::{Exported, export, in_range};
pub use list::{CameraListing, FoundFile, file_completed, files, list};
pub use recording::{CameraFile, RecordedTime, gaps};
