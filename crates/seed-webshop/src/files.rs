//! Reading the files of a WebShop data set, gzip or plain.
//!
//! Not for: what the records mean.

use std::fmt;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use flate2::bufread::MultiGzDecoder;
use fs_err::File;
use serde::Deserializer as _;
use serde::de::{DeserializeOwned, Error as _, SeqAccess, Visitor};

use crate::WebshopError;
use crate::product::Record;

/// Bytes read of one file at most, after decompression: three times the largest file there is.
const MOST_BYTES: u64 = 16 << 30;

/// First bytes of a gzip file.
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// Opens a file; what is inside decides whether it is decompressed.
pub(crate) fn open(path: &Path) -> Result<Box<dyn BufRead>, WebshopError> {
    let mut file = BufReader::with_capacity(1 << 16, File::open(path)?);
    let compressed = file.fill_buf()?.starts_with(&GZIP);
    Ok(if compressed {
        Box::new(BufReader::with_capacity(
            1 << 16,
            MultiGzDecoder::new(file).take(MOST_BYTES),
        ))
    } else {
        Box::new(file.take(MOST_BYTES))
    })
}

/// The file `name` or `name.gz` in a folder.
pub(crate) fn find(folder: &Path, name: &str) -> Option<PathBuf> {
    [folder.join(name), folder.join(format!("{name}.gz"))]
        .into_iter()
        .find(|path| path.is_file())
}

/// Like [`find`], for a file that must be there.
pub(crate) fn require(folder: &Path, name: &str) -> Result<PathBuf, WebshopError> {
    find(folder, name).ok_or_else(|| WebshopError::MissingFile {
        folder: folder.to_path_buf(),
        wanted: name.to_owned(),
    })
}

/// Reads a whole JSON file.
pub(crate) fn read_json<T: DeserializeOwned>(path: &Path) -> Result<T, WebshopError> {
    serde_json::from_reader(open(path)?).map_err(|source| json_error(path, source))
}

fn json_error(path: &Path, source: serde_json::Error) -> WebshopError {
    WebshopError::Json {
        path: path.to_path_buf(),
        source,
    }
}

/// Reads a JSON list of products, one after the other, and gives each to `accept` with its place.
pub(crate) fn read_products(
    path: &Path,
    accept: impl FnMut(Record) -> Result<(), String>,
) -> Result<(), WebshopError> {
    let mut list = ProductList {
        accept,
        index: 0,
        reason: None,
    };
    let mut deserializer = serde_json::Deserializer::from_reader(open(path)?);
    let result = deserializer
        .deserialize_seq(&mut list)
        .and_then(|()| deserializer.end());
    match (result, list.reason) {
        (_, Some(reason)) => Err(WebshopError::Product {
            path: path.to_path_buf(),
            index: list.index,
            reason,
        }),
        (Err(source), None) => Err(json_error(path, source)),
        (Ok(()), None) => Ok(()),
    }
}

struct ProductList<F> {
    accept: F,
    /// Place of the product being read.
    index: usize,
    /// What is wrong with it.
    reason: Option<String>,
}

impl<'de, F: FnMut(Record) -> Result<(), String>> Visitor<'de> for &mut ProductList<F> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a list of products")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<(), A::Error> {
        loop {
            let record = match sequence.next_element::<Record>() {
                Ok(Some(record)) => record,
                Ok(None) => return Ok(()),
                Err(error) => {
                    self.reason = Some(error.to_string());
                    return Err(error);
                }
            };
            if let Err(reason) = (self.accept)(record) {
                self.reason = Some(reason);
                return Err(A::Error::custom("malformed product"));
            }
            self.index += 1;
        }
    }
}
