//! The reference of metrics in `docs/` is the registry's. `SEED_UPDATE_DOCS=1` writes it anew.

use std::path::Path;

use seed_run::metrics::reference_markdown;

#[test]
fn the_reference_of_metrics_is_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/metrics.md");
    let expected = reference_markdown();
    if std::env::var_os("SEED_UPDATE_DOCS").is_some() {
        seed_run::write_atomic(&path, expected.as_bytes()).unwrap();
    }
    let found = fs_err::read_to_string(&path).unwrap();
    assert!(
        found == expected,
        "docs/metrics.md is not what the registry says; write it with SEED_UPDATE_DOCS=1 cargo test -p seed-run"
    );
}
