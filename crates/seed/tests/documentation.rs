//! The tables of `docs/configuration.md` are what `seed config reference` prints. `SEED_UPDATE_DOCS=1` writes them anew.

mod common;

use std::path::Path;

use common::seed;
use seed_train::config::{Document, Effect, SftConfig, TrainConfig};

const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/configuration.md");

#[test]
fn the_reference_of_keys_is_current() {
    let found = fs_err::read_to_string(PATH).unwrap();
    let mut expected = found.clone();
    for command in [
        "seed config reference",
        "seed config reference --for sft",
        "seed config reference --for demonstrate",
    ] {
        let mark = format!("<!-- reference: {command} -->\n");
        let start = expected.find(&mark).unwrap() + mark.len();
        let end = start + expected[start..].find("<!-- reference: ").unwrap();
        let words: Vec<&str> = command.split_whitespace().skip(1).collect();
        expected.replace_range(start..end, &format!("\n{}\n", seed(&words).output));
    }
    if std::env::var_os("SEED_UPDATE_DOCS").is_some() {
        seed_run::write_atomic(Path::new(PATH), expected.as_bytes()).unwrap();
        return;
    }
    assert!(
        found == expected,
        "docs/configuration.md is not what the program prints; write it with SEED_UPDATE_DOCS=1 cargo test -p seed"
    );
}

#[test]
fn configurations_named_in_the_documentation_are_there() {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let mut pages = vec![
        root.join("README.md"),
        root.join("ARCHITECTURE.md"),
        root.join("CONTRIBUTING.md"),
    ];
    pages.extend(
        fs_err::read_dir(root.join("docs"))
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.extension().is_some_and(|ending| ending == "md")),
    );
    let mut named = 0;
    for page in pages {
        let text = fs_err::read_to_string(&page).unwrap();
        for (start, _) in text.match_indices("configs/") {
            let path: String = text[start..]
                .chars()
                .take_while(|character| character.is_ascii_alphanumeric() || "/._-".contains(*character))
                .collect();
            let path = path.trim_end_matches('.');
            named += 1;
            assert!(root.join(path).exists(), "`{path}` in {}", page.display());
        }
    }
    assert!(named > 10, "{named}");
}

#[test]
fn the_keys_that_a_resumed_run_may_change_are_listed() {
    let text = fs_err::read_to_string(PATH).unwrap();
    let start = text.find("## Resuming").unwrap();
    let list = &text[start..start + text[start..].find("## Secrets").unwrap()];
    for field in TrainConfig::fields().into_iter().chain(SftConfig::fields()) {
        let whole_tables = ["evaluation", "checkpoint", "logging"];
        let by_table = whole_tables.contains(&field.section)
            || field.section == "endpoint" && !["base_url", "model", "parse_attempts"].contains(&field.name)
            || field.section == "engine" && field.name != "kind";
        let listed = by_table || list.contains(&format!("`{}`", field.key()));
        assert_eq!(listed, field.effect == Effect::Runtime, "`{}`", field.key());
    }
}
