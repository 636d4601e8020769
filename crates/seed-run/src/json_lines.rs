//! Values as lines of JSON, plain or compressed.
//!
//! Files are written whole and put in place at once. A name that ends in `.zst` is compressed with Zstandard; one that
//! ends in `.gz` is read as gzip, the form in which others publish such files.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::marker::PhantomData;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::durable::write_atomic_with;
use crate::error::RunError;

/// Compression level: a good part of what higher levels reach, at a speed that is never noticed.
const LEVEL: i32 = 3;

/// A longer line is refused: no record comes near it, and a small compressed file could otherwise fill the memory.
const LINE_LIMIT: u64 = 256 << 20;

/// Writes values as lines of JSON, replacing `path` in one step. The bytes depend on the values alone.
///
/// # Errors
/// The failed operation; the old file is then still there.
pub fn write_json_lines<T: Serialize>(
    path: &Path,
    values: impl IntoIterator<Item = T>,
) -> Result<(), RunError> {
    let mut values = Some(values);
    let mut lines = |out: &mut dyn Write| -> io::Result<()> {
        for value in values.take().into_iter().flatten() {
            serde_json::to_writer(&mut *out, &value)?;
            out.write_all(b"\n")?;
        }
        Ok(())
    };
    write_atomic_with(path, &mut |file| {
        if is_compressed(path) {
            let mut encoder = zstd::Encoder::new(file, LEVEL)?;
            encoder.include_checksum(true)?;
            lines(&mut encoder)?;
            encoder.finish()?.flush()
        } else {
            let mut buffered = io::BufWriter::new(file);
            lines(&mut buffered)?;
            buffered.flush()
        }
    })
}

/// Opens a file of lines of JSON; values are read as the iterator is advanced.
///
/// # Errors
/// [`RunError::Io`] when the file cannot be opened. Each item can be [`RunError::Text`] naming the line.
pub fn read_json_lines<T: DeserializeOwned>(path: &Path) -> Result<JsonLines<T>, RunError> {
    let failed = |source| RunError::io("read", path, 0, source);
    let file = fs_err::File::open(path).map_err(failed)?;
    let reader: Box<dyn BufRead + Send> = if is_compressed(path) {
        Box::new(BufReader::new(zstd::Decoder::new(file).map_err(failed)?))
    } else if path.extension().is_some_and(|extension| extension == "gz") {
        Box::new(BufReader::new(flate2::read::MultiGzDecoder::new(file)))
    } else {
        Box::new(BufReader::new(file))
    };
    Ok(JsonLines {
        path: path.to_owned(),
        reader,
        line: 0,
        is_done: false,
        value: PhantomData,
    })
}

fn is_compressed(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "zst")
}

/// Values of a file of lines of JSON. Empty lines are passed over; the first error ends the iteration.
pub struct JsonLines<T> {
    path: PathBuf,
    reader: Box<dyn BufRead + Send>,
    line: u64,
    is_done: bool,
    value: PhantomData<fn() -> T>,
}

impl<T> std::fmt::Debug for JsonLines<T> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("JsonLines")
            .field("path", &self.path)
            .field("line", &self.line)
            .finish_non_exhaustive()
    }
}

impl<T: DeserializeOwned> JsonLines<T> {
    fn read(&mut self) -> Result<Option<T>, RunError> {
        let mut bytes = Vec::new();
        loop {
            bytes.clear();
            self.line += 1;
            let count = (&mut self.reader)
                .take(LINE_LIMIT)
                .read_until(b'\n', &mut bytes)
                .map_err(|source| RunError::io("read", &self.path, 0, source))?;
            if count == 0 {
                return Ok(None);
            }
            if count as u64 == LINE_LIMIT && bytes.last() != Some(&b'\n') {
                return Err(self.wrong(format!("it is longer than {LINE_LIMIT} bytes")));
            }
            if !bytes.trim_ascii().is_empty() {
                return serde_json::from_slice(&bytes)
                    .map(Some)
                    .map_err(|error| self.wrong(error.to_string()));
            }
        }
    }

    fn wrong(&self, message: String) -> RunError {
        RunError::Text {
            path: self.path.clone(),
            line: self.line,
            message,
        }
    }
}

impl<T: DeserializeOwned> Iterator for JsonLines<T> {
    type Item = Result<T, RunError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_done {
            return None;
        }
        let item = self.read().transpose();
        self.is_done = !matches!(item, Some(Ok(_)));
        item
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::num::f64::{NORMAL, SUBNORMAL, ZERO};
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn values_return_and_bytes_repeat() {
        let folder = tempfile::tempdir().unwrap();
        let values: Vec<(u32, String)> = (0..500)
            .map(|index| (index, format!("line\n{index} é")))
            .collect();
        for name in ["plain.jsonl", "packed.jsonl.zst"] {
            let path = folder.path().join(name);
            write_json_lines(&path, &values).unwrap();
            let bytes = fs_err::read(&path).unwrap();
            let read: Result<Vec<(u32, String)>, _> = read_json_lines(&path).unwrap().collect();
            assert_eq!(read.unwrap(), values);
            write_json_lines(&path, &values).unwrap();
            assert_eq!(fs_err::read(&path).unwrap(), bytes, "{name}");
        }
        let size = |name: &str| fs_err::metadata(folder.path().join(name)).unwrap().len();
        assert!(size("packed.jsonl.zst") * 3 < size("plain.jsonl"));
        assert_eq!(
            fs_err::read_dir(folder.path()).unwrap().count(),
            2,
            "nothing temporary is left"
        );
    }

    #[test]
    fn a_gzip_file_is_read_through_all_its_members() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("values.jsonl.gz");
        let mut bytes = Vec::new();
        for part in ["1\n2", "2\n3\n"] {
            let mut encoder = flate2::write::GzEncoder::new(&mut bytes, flate2::Compression::default());
            encoder.write_all(part.as_bytes()).unwrap();
            encoder.finish().unwrap();
        }
        fs_err::write(&path, &bytes).unwrap();
        let read: Result<Vec<u32>, _> = read_json_lines(&path).unwrap().collect();
        assert_eq!(read.unwrap(), [1, 22, 3]);
        fs_err::write(&path, &bytes[..bytes.len() - 3]).unwrap();
        let read: Result<Vec<u32>, _> = read_json_lines(&path).unwrap().collect();
        assert!(read.is_err(), "a cut file");
    }

    proptest! {
        /// Log-probs, losses and rates are read back to resume and to replay: a last bit would be another run.
        #[test]
        fn numbers_return_bit_for_bit(doubles in vec(NORMAL | SUBNORMAL | ZERO, 200), singles in vec(any::<f32>(), 200)) {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("numbers.jsonl");
            let singles: Vec<f32> = singles.into_iter().filter(|number| number.is_finite()).collect();
            write_json_lines(&path, [(&doubles, &singles)]).unwrap();
            let read: Vec<(Vec<f64>, Vec<f32>)> = read_json_lines(&path).unwrap().collect::<Result<_, _>>().unwrap();
            let (found, short) = &read[0];
            prop_assert!(found.iter().zip(&doubles).all(|(found, number)| found.to_bits() == number.to_bits()));
            prop_assert!(short.iter().zip(&singles).all(|(found, number)| found.to_bits() == number.to_bits()));
            prop_assert_eq!((found.len(), short.len()), (doubles.len(), singles.len()));
        }
    }

    #[test]
    fn a_wrong_line_is_named_and_ends_the_reading() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("values.jsonl");
        fs_err::write(&path, "1\n\n2\nthree\n4\n").unwrap();
        let read: Vec<_> = read_json_lines::<u32>(&path).unwrap().collect();
        assert_eq!(read.len(), 3);
        let message = read[2].as_ref().unwrap_err().to_string();
        assert!(message.contains("values.jsonl` line 4"), "{message}");
    }

    #[test]
    fn a_cut_or_flipped_compressed_file_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("values.jsonl.zst");
        write_json_lines(&path, 0..1000_u32).unwrap();
        let whole = fs_err::read(&path).unwrap();
        for damaged in [
            whole[..whole.len() - 3].to_vec(),
            whole[..whole.len() / 2].to_vec(),
            {
                let mut flipped = whole.clone();
                flipped[whole.len() / 2] ^= 4;
                flipped
            },
        ] {
            fs_err::write(&path, damaged).unwrap();
            let read: Result<Vec<u32>, _> = read_json_lines(&path).unwrap().collect();
            assert!(read.is_err());
        }
    }
}
