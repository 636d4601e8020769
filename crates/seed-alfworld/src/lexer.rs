//! Tokens of PDDL's s-expressions: brackets and names, with `;` comments.
//!
//! Not for: numbers, strings or anything else that ALFWorld's problem sections never hold.

use crate::ProblemError;

/// One token. Names borrow from the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Token<'a> {
    /// `(`
    Open,
    /// `)`
    Close,
    /// A run of printable ASCII without brackets, semicolons or white space.
    Name(&'a str),
}

/// What a byte means outside a comment.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    Space,
    Bracket,
    Comment,
    Name,
    Invalid,
}

const CLASSES: [Class; 256] = {
    let mut classes = [Class::Invalid; 256];
    let mut byte = 0x21;
    while byte < 0x7f {
        classes[byte] = Class::Name;
        byte += 1;
    }
    classes[b' ' as usize] = Class::Space;
    classes[b'\t' as usize] = Class::Space;
    classes[b'\n' as usize] = Class::Space;
    classes[b'\r' as usize] = Class::Space;
    classes[b'(' as usize] = Class::Bracket;
    classes[b')' as usize] = Class::Bracket;
    classes[b';' as usize] = Class::Comment;
    classes
};

/// A cursor over the text of a problem, which must already be in lower case.
pub(crate) struct Lexer<'a> {
    text: &'a str,
    position: usize,
}

impl<'a> Lexer<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        Self { text, position: 0 }
    }

    /// The next token, or `None` at the end of the text.
    pub(crate) fn next(&mut self) -> Result<Option<Token<'a>>, ProblemError> {
        let bytes = self.text.as_bytes();
        while let Some(&byte) = bytes.get(self.position) {
            match CLASSES[usize::from(byte)] {
                Class::Space => self.position += 1,
                Class::Comment => {
                    let rest = &bytes[self.position..];
                    self.position += rest.iter().position(|&byte| byte == b'\n').unwrap_or(rest.len());
                }
                Class::Bracket => {
                    self.position += 1;
                    return Ok(Some(if byte == b'(' { Token::Open } else { Token::Close }));
                }
                Class::Name => {
                    let start = self.position;
                    while bytes
                        .get(self.position)
                        .is_some_and(|&byte| CLASSES[usize::from(byte)] == Class::Name)
                    {
                        self.position += 1;
                    }
                    // Every byte between is ASCII, so both ends are character boundaries.
                    return Ok(Some(Token::Name(&self.text[start..self.position])));
                }
                Class::Invalid => {
                    return Err(self.malformed(format!("byte `{byte:#04x}` is not allowed in names")));
                }
            }
        }
        Ok(None)
    }

    /// The next token, which must exist; `wanted` says what the caller is looking for.
    pub(crate) fn token(&mut self, wanted: &str) -> Result<Token<'a>, ProblemError> {
        self.next()?
            .ok_or_else(|| self.malformed(format!("the text ends where {wanted} is expected")))
    }

    /// The next token, which must be `(`.
    pub(crate) fn open(&mut self, wanted: &str) -> Result<(), ProblemError> {
        match self.token(wanted)? {
            Token::Open => Ok(()),
            other => Err(self.unexpected(other, wanted)),
        }
    }

    /// The next token, which must be `)`.
    pub(crate) fn close(&mut self, wanted: &str) -> Result<(), ProblemError> {
        match self.token(wanted)? {
            Token::Close => Ok(()),
            other => Err(self.unexpected(other, wanted)),
        }
    }

    /// The next token, which must be a name.
    pub(crate) fn name(&mut self, wanted: &str) -> Result<&'a str, ProblemError> {
        match self.token(wanted)? {
            Token::Name(name) => Ok(name),
            other => Err(self.unexpected(other, wanted)),
        }
    }

    /// The next token, which must be a name or a closing bracket (`None`).
    pub(crate) fn name_or_close(&mut self, wanted: &str) -> Result<Option<&'a str>, ProblemError> {
        match self.token(wanted)? {
            Token::Name(name) => Ok(Some(name)),
            Token::Close => Ok(None),
            Token::Open => Err(self.unexpected(Token::Open, wanted)),
        }
    }

    /// An error at the current position.
    pub(crate) fn malformed(&self, reason: String) -> ProblemError {
        ProblemError::Malformed {
            line: 1 + self.text[..self.position].matches('\n').count(),
            offset: self.position,
            reason,
        }
    }

    fn unexpected(&self, token: Token<'_>, wanted: &str) -> ProblemError {
        let found = match token {
            Token::Open => "(",
            Token::Close => ")",
            Token::Name(name) => name,
        };
        self.malformed(format!("found `{}` where {wanted} is expected", shorten(found)))
    }
}

/// At most 60 characters of a text that goes into an error message.
pub(crate) fn shorten(text: &str) -> String {
    const LIMIT: usize = 60;
    match text.char_indices().nth(LIMIT) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brackets_names_and_comments() {
        let mut lexer = Lexer::new("(a ;x ) y\n b_1)");
        let mut tokens = Vec::new();
        while let Some(token) = lexer.next().unwrap() {
            tokens.push(token);
        }
        assert_eq!(
            tokens,
            [Token::Open, Token::Name("a"), Token::Name("b_1"), Token::Close]
        );
    }

    #[test]
    fn errors_tell_line_and_offset() {
        let mut lexer = Lexer::new("(a\n é");
        lexer.open("start").unwrap();
        lexer.name("name").unwrap();
        let error = lexer.name("another name").unwrap_err();
        assert!(
            matches!(
                error,
                ProblemError::Malformed {
                    line: 2,
                    offset: 4,
                    ..
                }
            ),
            "{error:?}"
        );
    }
}
