// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parses the command line: jobs in their order, and settings for all of them.
//!
//! The words are those after `--` of a kernel's command line. All words are checked before the
//! first measurement. The kernel adds words of its own (`console=`, `root=`), which are skipped;
//! any other unknown word ends the run.
//!
//! A quoted part with spaces is one word to the kernel; `run=` takes both forms:
//! `run=/bin/check 3 fast then udp` and `"run=/bin/check 3 fast" udp`.
//!
//! Source: the kernel's `Documentation/admin-guide/kernel-parameters.rst` (words after `--`).

use crate::error::Error;
use crate::guest_job::GuestJob;
use crate::jobs::JOBS;
use crate::settings::GuestSettings;
use crate::workloads::{self, WorkloadSpec};

/// Parsed command line.
#[derive(Debug)]
pub(crate) struct CommandLine {
    /// Tasks, in this order.
    pub(crate) tasks: Vec<Task>,
    /// Settings of all tasks.
    pub(crate) settings: GuestSettings,
}

/// One task.
#[derive(Debug)]
pub(crate) enum Task {
    /// Successive workloads; each round runs all of them, so that they interleave.
    Workloads(Vec<&'static WorkloadSpec>),
    /// A member of the list of other jobs.
    Job(&'static GuestJob),
    /// A program and its arguments.
    Program(Vec<String>),
}

/// Words that the kernel adds to the arguments of the first process.
const WORDS_OF_KERNEL: &[&str] = &["console=", "root="];
/// Word that ends the arguments of `run=`.
const THEN: &str = "then";

impl CommandLine {
    /// Parses the words; an error names the word that is not understood.
    pub(crate) fn parse(words: impl IntoIterator<Item = String>) -> Result<CommandLine, Error> {
        let mut request = CommandLine { tasks: Vec::new(), settings: GuestSettings::default() };
        let of_kernel = |word: &String| WORDS_OF_KERNEL.iter().any(|own| word.starts_with(own));
        let mut words = words.into_iter().filter(|word| !of_kernel(word));
        while let Some(word) = words.next() {
            if let Some(program) = word.strip_prefix("run=") {
                let inside = program.split_whitespace().map(str::to_owned);
                let after = words.by_ref().take_while(|word| word != THEN);
                request.tasks.push(program_of(inside.chain(after).collect())?);
            } else if let Some((key, value)) = word.split_once('=') {
                request.settings.set(key, value)?;
            } else {
                request.add(&word)?;
            }
        }
        if request.settings.text("unixbench").is_some() {
            request.tasks.push(Task::Job(&crate::unixbench::JOB));
        }
        Ok(request)
    }

    fn add(&mut self, word: &str) -> Result<(), Error> {
        if let Some(job) = JOBS.iter().find(|job| job.name == word) {
            self.tasks.push(Task::Job(job));
            return Ok(());
        }
        let named = workloads::named(word);
        if named.is_empty() {
            return Err(Error::Word { word: word.to_owned(), known: known_words() });
        }
        match self.tasks.last_mut() {
            Some(Task::Workloads(list)) => list.extend(named),
            _ => self.tasks.push(Task::Workloads(named)),
        }
        Ok(())
    }
}

fn program_of(words: Vec<String>) -> Result<Task, Error> {
    if words.is_empty() {
        let need = "write run=PROGRAM with its arguments behind it".to_owned();
        return Err(Error::Setting { key: "run".into(), value: String::new(), need });
    }
    Ok(Task::Program(words))
}

/// Lists every word that stands alone, without `=`.
fn known_words() -> String {
    let jobs = JOBS.iter().map(|job| job.name);
    jobs.chain(workloads::names()).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<CommandLine, Error> {
        CommandLine::parse(line.split(' ').filter(|word| !word.is_empty()).map(str::to_owned))
    }

    fn refusal(line: &str) -> String {
        parse(line).expect_err(line).to_string()
    }

    #[test]
    fn workloads_in_a_row_are_one_task_and_settings_stand_anywhere() {
        let request = parse("pipe_4k rounds=3 udp_1400 bytes=64K console=tty0").expect("a request");
        assert_eq!(request.settings.number("rounds"), Some(3));
        assert_eq!(request.settings.number("bytes"), Some(65536));
        assert_eq!(request.settings.number("calls"), None);
        let [Task::Workloads(list)] = &request.tasks[..] else { panic!("one task") };
        assert_eq!(list.iter().map(|spec| spec.name).collect::<Vec<_>>(), ["pipe_4k", "udp_1400"]);
    }

    #[test]
    fn a_program_takes_what_follows_up_to_then() {
        let request = parse("run=/bin/check a=1 -v then pipe_4k").expect("a request");
        let [Task::Program(words), Task::Workloads(_)] = &request.tasks[..] else {
            panic!("{:?}", request.tasks)
        };
        assert_eq!(words[..], ["/bin/check", "a=1", "-v"]);
        let quoted =
            CommandLine::parse(["run=/bin/check 3 4".to_owned(), "console=tty0".to_owned()]);
        let tasks = quoted.expect("a request").tasks;
        assert!(
            matches!(&tasks[..], [Task::Program(words)] if words[..] == ["/bin/check", "3", "4"])
        );
    }

    #[test]
    fn what_is_not_known_is_refused_by_name() {
        for (line, begins, names) in [
            ("pipe_5k", "word pipe_5k: not known; write one of: ", "pipe_4k"),
            ("pipe_4k round=2", "setting round=2: no such setting; write one of run=, ", "rounds="),
            ("run=", "setting run=: write run=PROGRAM", "arguments"),
        ] {
            let text = refusal(line);
            assert!(text.starts_with(begins), "{line}: {text}");
            assert!(text.contains(names), "{line}: {text}");
        }
    }
}
