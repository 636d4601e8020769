//! The list of a checkpoint's files with their sizes and digests, itself sealed by a digest.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Name of the manifest inside a checkpoint.
pub(crate) const MANIFEST: &str = "MANIFEST.json";

/// Version of the layout; a reader refuses others.
const VERSION: u32 = 1;

/// Size and digest of one file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileRecord {
    /// Size in bytes.
    pub bytes: u64,
    /// BLAKE3 digest, 64 lower-case hexadecimal digits.
    pub blake3: String,
}

/// What a complete checkpoint consists of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// Version of the layout.
    version: u32,
    /// The step the checkpoint was taken after.
    pub step: u64,
    /// Every file by its name; folder and file are separated by `/`.
    pub files: BTreeMap<String, FileRecord>,
}

/// A manifest with the digest of its own text, as stored.
#[derive(Serialize, Deserialize)]
struct Sealed {
    manifest: Manifest,
    blake3: String,
}

impl Manifest {
    pub(crate) fn new(step: u64, files: BTreeMap<String, FileRecord>) -> Self {
        Self {
            version: VERSION,
            step,
            files,
        }
    }

    /// The manifest file's bytes.
    pub(crate) fn seal(&self) -> Result<Vec<u8>, serde_json::Error> {
        let digest = blake3::hash(serde_json::to_string(self)?.as_bytes());
        let sealed = Sealed {
            manifest: self.clone(),
            blake3: digest.to_hex().to_string(),
        };
        let mut bytes = serde_json::to_vec_pretty(&sealed)?;
        bytes.push(b'\n');
        Ok(bytes)
    }

    /// Reads a manifest file. Every byte counts: text that means the same but is written otherwise is refused too,
    /// so no flipped bit passes.
    pub(crate) fn open(bytes: &[u8]) -> Result<Self, String> {
        let sealed: Sealed = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        if sealed.manifest.version != VERSION {
            return Err(format!(
                "its layout has version {}, this program reads version {VERSION}",
                sealed.manifest.version
            ));
        }
        let expected = sealed.manifest.seal().map_err(|error| error.to_string())?;
        if expected != bytes {
            return Err("its digest does not match".to_owned());
        }
        Ok(sealed.manifest)
    }
}
