//! The `openai` Python package against the server (`tests/openai_client.py`).
//!
//! Runs where the environment variable `SEED_OPENAI_PYTHON` names an interpreter that has the package.

use std::path::Path;
use std::process::Command;

use crate::support::{CONTEXT, Running};

#[test]
fn the_openai_client_drives_the_server() {
    let Some(python) = std::env::var_os("SEED_OPENAI_PYTHON") else {
        println!("skipped: SEED_OPENAI_PYTHON names no Python that has the package openai");
        return;
    };
    let server = Running::start(|options| options.token_variable = Some("CARGO_PKG_NAME".into()));
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/openai_client.py");
    let output = Command::new(python)
        .arg(script)
        .arg(format!("{}/v1", server.url))
        .arg(std::env::var("CARGO_PKG_NAME").unwrap())
        .arg(CONTEXT.to_string())
        .output()
        .unwrap();
    let (printed, errors) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(output.status.success(), "{printed}\n{errors}");
    assert_eq!(printed.trim(), "ok");
}
