//! From finished episodes to skills: analysis prompt, tolerant parser, filters, prompt augmentation, analysers.
