//! The text of a response as its tokens come: characters that lie in several tokens are put together, and what may yet
//! become a stop text is held back.
//!
//! Texts do not depend on how they are cut into tokens: the response ends where the first stop text is complete.
//!
//! Not for: stop tokens, which the engine looks for.

use std::sync::Arc;

/// The text of one response.
#[derive(Debug)]
pub(crate) struct TextStream {
    stops: Arc<[String]>,
    /// Bytes that are no whole character yet.
    bytes: Vec<u8>,
    /// Text that may be the beginning of a stop text.
    held: String,
    /// Characters so far, held ones included.
    characters: usize,
}

/// What more tokens brought.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Piece {
    /// Text that is certain.
    pub(crate) text: String,
    /// The stop text that ended the response, by its place in the list. Nothing more is to be pushed.
    pub(crate) stopped: Option<usize>,
}

impl TextStream {
    /// An empty text that ends before any of `stops`, none of which is empty.
    pub(crate) fn new(stops: Arc<[String]>) -> Self {
        Self {
            stops,
            bytes: Vec::new(),
            held: String::new(),
            characters: 0,
        }
    }

    /// Characters so far.
    pub(crate) fn characters(&self) -> usize {
        self.characters
    }

    /// Goes on with the bytes of a token.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Piece {
        self.bytes.extend_from_slice(bytes);
        let whole = whole_characters(&self.bytes);
        let decoded: Vec<u8> = self.bytes.drain(..whole).collect();
        self.text(&String::from_utf8_lossy(&decoded))
    }

    /// Ends the text: an unfinished character becomes a replacement character, and what was held is given out, unless
    /// that completes a stop text.
    pub(crate) fn finish(&mut self) -> Piece {
        let rest = std::mem::take(&mut self.bytes);
        let mut piece = self.text(&String::from_utf8_lossy(&rest));
        if piece.stopped.is_none() {
            piece.text.push_str(&std::mem::take(&mut self.held));
        }
        piece
    }

    fn text(&mut self, text: &str) -> Piece {
        self.characters += text.chars().count();
        if self.stops.is_empty() {
            return Piece {
                text: text.to_owned(),
                stopped: None,
            };
        }
        for character in text.chars() {
            self.held.push(character);
            let ended = |stop: &&String| self.held.ends_with(stop.as_str());
            // Of stop texts that end at one place the longest takes most away.
            if let Some(stop) = self.stops.iter().filter(ended).max_by_key(|stop| stop.len()) {
                let stopped = self.stops.iter().position(|other| other == stop);
                self.held.truncate(self.held.len() - stop.len());
                return Piece {
                    text: std::mem::take(&mut self.held),
                    stopped,
                };
            }
        }
        let certain = self.held.len() - self.longest_beginning();
        Piece {
            text: self.held.drain(..certain).collect(),
            stopped: None,
        }
    }

    /// Bytes at the end of the held text that are the beginning of a stop text.
    fn longest_beginning(&self) -> usize {
        let ends = self.held.char_indices().map(|(start, _)| &self.held[start..]);
        let mut ends = ends.filter(|end| self.stops.iter().any(|stop| stop.starts_with(end)));
        ends.next().map_or(0, str::len)
    }
}

/// Bytes up to an unfinished character at the end.
fn whole_characters(bytes: &[u8]) -> usize {
    let mut start = 0;
    loop {
        match std::str::from_utf8(&bytes[start..]) {
            Ok(_) => return bytes.len(),
            Err(error) => {
                start += error.valid_up_to();
                match error.error_len() {
                    Some(wrong) => start += wrong,
                    None => return start,
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// All text of `parts`, with the stop text that ended it.
    fn run(parts: &[&[u8]], stops: &[&str]) -> (Vec<String>, Option<usize>) {
        let stops: Vec<String> = stops.iter().map(|&stop| stop.to_owned()).collect();
        let mut stream = TextStream::new(stops.into());
        let mut texts = Vec::new();
        for part in parts {
            let piece = stream.push(part);
            texts.push(piece.text);
            if piece.stopped.is_some() {
                return (texts, piece.stopped);
            }
        }
        let piece = stream.finish();
        texts.push(piece.text);
        (texts, piece.stopped)
    }

    #[test]
    fn characters_wait_until_they_are_whole() {
        let (texts, stopped) = run(&[b"a\xf0\x9f", b"\x99", b"\x82b", b"\xff\xe4\xb8"], &[]);
        assert_eq!(texts, ["a", "", "\u{1f642}b", "\u{fffd}", "\u{fffd}"]);
        assert_eq!(stopped, None);
    }

    #[test]
    fn what_may_become_a_stop_text_is_held() {
        let (texts, stopped) = run(&[b"go to </", b"ac", b"x </act", b"ion> rest"], &["</action>"]);
        assert_eq!(texts, ["go to ", "", "</acx ", ""]);
        assert_eq!(stopped, Some(0));
        let (texts, stopped) = run(&[b"one </ac"], &["</action>"]);
        assert_eq!((texts.concat().as_str(), stopped), ("one </ac", None));
    }

    #[test]
    fn the_stop_text_that_is_complete_first_counts() {
        assert_eq!(
            run(&[b"xabcd"], &["abcd", "bc"]),
            (vec!["xa".to_owned()], Some(1))
        );
        assert_eq!(run(&[b"xabc"], &["bc", "abc"]), (vec!["x".to_owned()], Some(1)));
        // A replacement character at the very end can complete one too.
        assert_eq!(run(&[b"x\xe4"], &["\u{fffd}"]).0.concat(), "x");
    }

    proptest! {
        #[test]
        fn texts_do_not_depend_on_the_cut(
            text in "[abc\u{e9}\u{1f642}]{0,24}",
            stops in prop::collection::vec("[abc\u{e9}]{1,4}", 0..3),
            cuts in prop::collection::vec(0usize..60, 0..8),
        ) {
            let stops: Vec<&str> = stops.iter().map(String::as_str).collect();
            let bytes = text.as_bytes();
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
            cuts.push(0);
            cuts.push(bytes.len());
            cuts.sort_unstable();
            let parts: Vec<&[u8]> = cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect();
            let (texts, stopped) = run(&parts, &stops);
            // The same by looking at the whole text.
            let end = stops
                .iter()
                .filter_map(|stop| text.find(stop).map(|start| (start + stop.len(), start)))
                .min();
            prop_assert_eq!(stopped.is_some(), end.is_some());
            prop_assert_eq!(texts.concat(), &text[..end.map_or(text.len(), |(_, start)| start)]);
        }
    }
}
