// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command lines of a document, in order, and the output it shows for them.
//!
//! A command is in an indented block or in a fenced block of `sh`. It is alone in its line or
//! beside a second one (three blanks between them), may have a comment behind it, and may continue
//! in the next line after `\`. Other lines of such a block are output of the command above them, so
//! a figure or a message that the program no longer prints is found as well. Blocks between
//! generated markers are not commands, and neither are fenced blocks of other languages.
//!
//! Does not parse any other Markdown.

/// A command as written, without its comment.
#[derive(Debug, PartialEq)]
pub(crate) struct Shown {
    /// Line in the document, from 1.
    pub(crate) line: usize,
    /// Heading above it.
    pub(crate) section: String,
    pub(crate) command: String,
    /// Lines of the block behind it that are not commands.
    pub(crate) output: Vec<String>,
}

/// Returns all commands of a document.
///
/// # Panics
/// On a line of a block that is neither a command nor the output of one.
pub(crate) fn commands(name: &str, text: &str) -> Vec<Shown> {
    let mut shown: Vec<Shown> = Vec::new();
    let (mut section, mut fence, mut generated, mut goes_on) = (String::new(), None, false, false);
    // True when the block has had a command.
    let mut begun = false;
    for (index, line) in text.lines().enumerate() {
        if let Some(language) = line.strip_prefix("```") {
            fence = if fence.is_none() { Some(language) } else { None };
            begun = false;
            continue;
        }
        generated = match line {
            _ if line.starts_with("<!-- end of ") => false,
            _ => generated || (line.starts_with("<!-- ") && line.contains("made by")),
        };
        if let (None, Some(heading)) = (fence, line.strip_prefix("## ")) {
            heading.clone_into(&mut section);
        }
        let inside = match fence {
            Some(language) => language == "sh",
            None => line.starts_with("    ") || (begun && line.is_empty()),
        };
        if !inside || generated {
            begun = false;
            continue;
        }
        if std::mem::take(&mut goes_on) {
            let last = shown.last_mut().expect("a line before");
            last.command.push(' ');
            let (rest, more) = continued(line);
            last.command.push_str(rest.trim());
            goes_on = more;
            continue;
        }
        let (words, more) = continued(line);
        if is_command(words) {
            for command in side_by_side(words) {
                let (section, command) = (section.clone(), command.to_owned());
                shown.push(Shown { line: index + 1, section, command, output: Vec::new() });
            }
            goes_on = more;
            begun = true;
        } else if begun && !words.is_empty() {
            shown.last_mut().expect("it has begun").output.push(words.to_owned());
        } else {
            let known = PROGRAMS.join(", ");
            assert!(
                words.is_empty(),
                "{name}:{}: {words:?}: begins with none of {known}",
                index + 1
            );
        }
    }
    shown
}

/// Returns a line without its comment and its continuation mark, and true where it has the mark.
fn continued(line: &str) -> (&str, bool) {
    let line = match line.find(" #") {
        Some(at) => &line[..at],
        None => line,
    };
    let line = line.trim();
    match line.strip_suffix('\\') {
        Some(line) => (line.trim_end(), true),
        None => (line, false),
    }
}

/// Variables of the environment may precede the program; `pagewire ready:` is output.
fn is_command(words: &str) -> bool {
    let mut words = words.split_whitespace().skip_while(|word| word.contains('='));
    let program = words.next().unwrap_or("");
    let is_label = words.next().is_some_and(|word| word.ends_with(':'));
    PROGRAMS.contains(&program) && !is_label
}

/// Returns the commands that share one line.
fn side_by_side(words: &str) -> Vec<&str> {
    let parts: Vec<&str> =
        words.split("   ").map(str::trim).filter(|part| !part.is_empty()).collect();
    if parts.iter().all(|part| is_command(part)) { parts } else { vec![words] }
}

/// First words of the documents' commands.
const PROGRAMS: &[&str] = &[
    "apt",
    "cargo",
    "curl",
    "echo",
    "editor",
    "ffplay",
    "go",
    "gst-launch-1.0",
    "java",
    "make",
    "mkdir",
    "mpv",
    "npm",
    "openssl",
    "pagewire",
    "pip",
    "printf",
    "python3",
    "sudo",
    "systemctl",
    "vlc",
];

#[test]
fn commands_are_told_from_output_and_comments() {
    let text = "## Serving\n\n    pagewire serve DIR      # all\n\n    pagewire ready: there\n\
                \n    vlc a://b            ffplay a://b\n    pagewire seal a \\\n        --b c\n\
                words\n<!-- x: made by y -->\n    4 of 5\n<!-- end of x -->\n```c\nint x;\n```\n\
                ```sh\nUPDATE=1 cargo test\n```\n";
    let shown = commands("text", text);
    let found: Vec<_> = shown.iter().map(|one| (one.line, one.command.as_str())).collect();
    let expected = [
        (3, "pagewire serve DIR"),
        (7, "vlc a://b"),
        (7, "ffplay a://b"),
        (8, "pagewire seal a --b c"),
        (18, "UPDATE=1 cargo test"),
    ];
    assert_eq!(found, expected);
    assert_eq!(shown[0].output, ["pagewire ready: there"]);
    assert_eq!(shown[0].section, "Serving");
}
