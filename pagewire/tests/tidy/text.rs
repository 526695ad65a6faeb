// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rust source as text: comments and literals blanked, declarations found.
//!
//! No parser: lines, words and quotes are enough for the rules of the tidy test.
//!
//! Sources: The Rust Reference, "Tokens", "Comments".
//! Does not read files.

/// Line number and name of each `mod NAME`, with a body or without.
pub(crate) fn declared_modules(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (index, line) in code_of(text).lines().enumerate() {
        let mut words = words(line);
        while let Some(word) = words.next() {
            if word == "mod"
                && let Some(name) = words.next()
            {
                found.push((index + 1, name.to_owned()));
            }
        }
    }
    found
}

/// The identifiers and keywords of a line of code.
pub(crate) fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

/// True when the line has an absolute path below `folder`; a URL with such a part is none.
pub(crate) fn names_folder(line: &str, folder: &str) -> bool {
    let before = |at: usize| line[..at].chars().next_back();
    line.match_indices(folder)
        .any(|(at, _)| !before(at).is_some_and(|c| c.is_alphanumeric() || "._-~$}".contains(c)))
}

/// The text with comments and literals blanked, line by line where it was.
pub(crate) fn code_of(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    for piece in pieces(text) {
        match piece {
            Piece::Code(letter) => code.push(letter),
            Piece::Literal(text) => {
                code.extend(text.chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
            }
        }
    }
    code
}

/// Line number and text, from the slashes on, of each comment that ends with its line.
pub(crate) fn line_comments(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut line = 1;
    for piece in pieces(text) {
        match piece {
            Piece::Code(letter) => line += usize::from(letter == '\n'),
            Piece::Literal(text) => {
                if text.starts_with("//") {
                    found.push((line, text));
                }
                line += text.matches('\n').count();
            }
        }
    }
    found
}

/// A letter of code, or a whole comment, string or character literal.
enum Piece<'a> {
    Code(char),
    Literal(&'a str),
}

fn pieces(text: &str) -> impl Iterator<Item = Piece<'_>> {
    let (mut rest, mut before) = (text, ' ');
    std::iter::from_fn(move || {
        let c = rest.chars().next()?;
        let length = literal_bytes(rest, before.is_alphanumeric() || before == '_');
        before = c;
        let piece;
        (piece, rest) = rest.split_at(length.max(c.len_utf8()));
        Some(if length == 0 { Piece::Code(c) } else { Piece::Literal(piece) })
    })
}

/// Bytes of the comment, string or character literal that `text` begins with; 0 for none.
fn literal_bytes(text: &str, in_word: bool) -> usize {
    let until = |end: &str, from: usize| {
        text[from..].find(end).map_or(text.len(), |at| from + at + end.len())
    };
    if text.starts_with("//") {
        return text.find('\n').unwrap_or(text.len());
    }
    if text.starts_with("/*") {
        return block_comment_bytes(text);
    }
    if in_word {
        return quoted_bytes(text);
    }
    let unprefixed = text.strip_prefix(['b', 'c']).unwrap_or(text);
    if let Some(raw) = unprefixed.strip_prefix('r') {
        let hashes = raw.len() - raw.trim_start_matches('#').len();
        if raw[hashes..].starts_with('"') {
            let opening = text.len() - raw.len() + hashes + 1;
            return until(&format!("\"{}", "#".repeat(hashes)), opening);
        }
    }
    match quoted_bytes(unprefixed) {
        0 => 0,
        length => text.len() - unprefixed.len() + length,
    }
}

/// Bytes of the string or character literal that `text` opens with, escapes respected; 0 for none.
fn quoted_bytes(text: &str) -> usize {
    let mut letters = text.char_indices();
    let quote = match letters.next() {
        Some((_, '"')) => '"',
        // A quote is a character when what follows is escaped or closed; else it is a lifetime.
        Some((_, '\'')) if text[1..].starts_with('\\') || text.chars().nth(2) == Some('\'') => '\'',
        _ => return 0,
    };
    let mut escaped = false;
    for (at, c) in letters {
        if c == quote && !escaped {
            return at + 1;
        }
        escaped = c == '\\' && !escaped;
    }
    text.len()
}

/// Bytes of the block comment that `text` opens with; they nest.
fn block_comment_bytes(text: &str) -> usize {
    let mut depth = 0_usize;
    let mut at = 0;
    while at < text.len() {
        if text[at..].starts_with("/*") {
            depth += 1;
            at += 2;
        } else if text[at..].starts_with("*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += text[at..].chars().next().map_or(1, char::len_utf8);
        }
    }
    text.len()
}

/// Line number and name of each `pub` struct, enum, trait and type alias; items that only their
/// crate sees (`pub(crate)`) are left out.
pub(crate) fn public_types(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (index, line) in code_of(text).lines().enumerate() {
        let Some(rest) = line.trim_start().strip_prefix("pub ") else { continue };
        let mut words = words(rest).skip_while(|word| *word == "unsafe");
        if words.next().is_some_and(|word| TYPE_KEYWORDS.contains(&word))
            && let Some(name) = words.next()
        {
            found.push((index + 1, name.to_owned()));
        }
    }
    found
}

const TYPE_KEYWORDS: &[&str] = &["struct", "enum", "trait", "type", "union"];

#[test]
fn code_is_told_from_comments_and_literals() {
    let cases = [
        ("a // unsafe\nb", "a          \nb"),
        ("a /* un /* nested */ safe */ b", "a                            b"),
        (r#"f("unsafe \" {", x)"#, r#"f(             , x)"#),
        (r##"f(r#"un"safe"#, x)"##, r##"f(            , x)"##),
        ("f(b\"un\", br\"sa\\\", 'f', b'\\'', 'a)", "f(     ,        ,    ,      , 'a)"),
        ("for<'a> Fn(&'a str)", "for<'a> Fn(&'a str)"),
        ("\"über\nunsafe\" c", "     \n        c"),
    ];
    for (text, expected) in cases {
        assert_eq!(code_of(text), expected, "{text:?}");
    }
}

#[test]
fn comments_are_found_with_their_lines() {
    let text = "//! a\nb(\"// c\\n\", 'd'); // e\n/* f\n*/ g r#\"// h\n\"# // i";
    assert_eq!(line_comments(text), [(1, "//! a"), (2, "// e"), (5, "// i")]);
}

#[test]
fn absolute_paths_are_told_from_addresses() {
    assert!(names_folder("cd /opt/someone", "/opt/"));
    assert!(names_folder("path=\"/opt/a\"", "/opt/"));
    assert!(!names_folder("https://example.org/opt/", "/opt/"));
    assert!(!names_folder("target/opt/a $HOME/opt/b", "/opt/"));
}

#[test]
fn module_declarations_are_found() {
    let text = "mod a;\n#[cfg(test)] pub(crate) mod b;\n// mod c;\npub mod d { }\n\
        let s = \"mod e;\";\nmodest();\n";
    let found: Vec<_> = declared_modules(text);
    let expected = [(1, "a"), (2, "b"), (4, "d")];
    assert_eq!(found, expected.map(|(line, name)| (line, name.to_owned())));
}

#[test]
fn public_types_are_found() {
    let text = "pub struct A;\n    pub enum B { }\npub(crate) struct C;\n// pub struct D;\n\
        pub trait E {}\npub type F = A;\npub fn struct_g() {}\nstruct H;\n";
    let expected = [(1, "A"), (2, "B"), (5, "E"), (6, "F")];
    assert_eq!(public_types(text), expected.map(|(line, name)| (line, name.to_owned())));
}
