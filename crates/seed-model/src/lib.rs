//! Decoder models: configuration, weights, tokenizer, chat template, generation, scoring and optimiser.
