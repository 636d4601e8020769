//! Configuration files and `--set` overrides: TOML, then one override a line after a NUL byte.
#![no_main]

use libfuzzer_sys::fuzz_target;
use seed_train::config::{DemonstrateConfig, Document, Loaded, SftConfig, TrainConfig, differences, to_toml};

fn check<C: Document + PartialEq + std::fmt::Debug>(text: &str, overrides: &[String]) {
    match Loaded::<C>::from_text("fuzz.toml", text, overrides) {
        Ok(loaded) => {
            let written = to_toml(&loaded.config);
            let again =
                Loaded::<C>::from_text("written.toml", &written, &[]).expect("a written file is valid");
            assert_eq!(again.config, loaded.config);
            assert!(differences(&loaded.config, &again.config).is_empty());
            assert_eq!(to_toml(&again.config), written);
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

fuzz_target!(|input: &str| {
    let (text, overrides) = input.split_once('\0').unwrap_or((input, ""));
    let overrides: Vec<String> = overrides.lines().map(str::to_owned).collect();
    check::<TrainConfig>(text, &overrides);
    check::<SftConfig>(text, &overrides);
    check::<DemonstrateConfig>(text, &overrides);
});
