//! What `seed env verify` is given: transcripts, plain or gzip, and archives of games.
#![no_main]

use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;
use seed_alfworld::{CacheFolder, Library, LibraryOptions, verify_archive, verify_transcripts};

/// A library without games: every episode ends at its game's name.
fn library() -> &'static Library {
    static LIBRARY: OnceLock<Library> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("train")).unwrap();
        let options = LibraryOptions {
            cache: CacheFolder::Disabled,
            ..LibraryOptions::default()
        };
        Library::open(folder.path(), &options).unwrap()
    })
}

fuzz_target!(|input: (u8, &[u8])| {
    let (choice, bytes) = input;
    let folder = tempfile::tempdir().unwrap();
    let path = folder
        .path()
        .join(["t.jsonl", "t.jsonl.gz", "train.tar.zst", "packed.tar.zst"][usize::from(choice % 4)]);
    match choice % 4 {
        0 | 1 => {
            std::fs::write(&path, bytes).unwrap();
            // Without games only blank lines pass.
            if let Ok(report) = verify_transcripts(&path, library()) {
                assert_eq!(report.episodes, 0);
            }
        }
        2 => {
            std::fs::write(&path, bytes).unwrap();
            let _ = verify_archive(&path);
        }
        _ => {
            std::fs::write(&path, zstd::encode_all(bytes, 1).unwrap()).unwrap();
            let _ = verify_archive(&path);
        }
    }
});
