//! A model's `config.json`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use seed_model::DecoderConfig;

fuzz_target!(|text: &str| {
    let Ok(config) = DecoderConfig::from_json(text) else {
        return;
    };
    config.validate().expect("what was read is valid");
    assert_eq!(
        DecoderConfig::from_json(&config.to_json()).expect("what was written is valid"),
        config
    );
    if config.head_dim <= 512 {
        let (frequencies, scale) = config.inverse_frequencies();
        assert_eq!(frequencies.len(), config.head_dim / 2);
        assert!(
            frequencies.iter().all(|frequency| frequency.is_finite()) && scale > 0.0 && scale.is_finite()
        );
    }
});
