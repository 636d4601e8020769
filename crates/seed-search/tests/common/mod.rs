//! Where recorded data lies.

use std::path::{Path, PathBuf};

/// The recorded data, or `None` with a message.
pub(crate) fn recorded(name: &str) -> Option<PathBuf> {
    let root = std::env::var_os("SEED_SHARED").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared"),
        PathBuf::from,
    );
    let path = root.join("data/searchqa").join(name);
    if path.is_file() {
        return Some(path);
    }
    println!("skipped: there is no `{}`", path.display());
    None
}
