//! The decoder against its twin composed of candle operations.

use candle_core::Device;
use seed_model::composed::ComposedDecoder;
use seed_model::config::Family;
use seed_model::{Gradients, TokenSequence};
use seed_random::RandomKey;

use crate::support::{decoder, derivatives, largest_difference, norm, positions, tokens};

#[test]
fn logits_scores_and_every_gradient_agree_with_the_twin() {
    for (family, tied) in Family::ALL
        .into_iter()
        .flat_map(|family| [(family, false), (family, true)])
    {
        let label = format!("{family:?}, tied {tied}");
        let decoder = decoder(family, tied, 11);
        let twin = ComposedDecoder::new(decoder.config(), decoder.parameters(), &Device::Cpu).unwrap();
        let mut generator = RandomKey::new(12).generator();
        let lists: Vec<(Vec<u32>, Vec<u32>)> = [2, 19, 37, 5]
            .into_iter()
            .map(|length| {
                (
                    tokens(&mut generator, length),
                    positions(&mut generator, length, 0.7),
                )
            })
            .collect();
        let sequences: Vec<TokenSequence<'_>> = lists
            .iter()
            .map(|(tokens, scored)| TokenSequence { tokens, scored })
            .collect();

        let logits = largest_difference(
            &decoder.logits(&lists[2].0).unwrap(),
            &twin.logits(&lists[2].0).unwrap(),
        );
        assert!(logits < 1e-4, "{label}: logits differ by {logits}");

        let ours = decoder.score(&sequences, 0.7).unwrap();
        let theirs = twin.score(&sequences, 0.7).unwrap();
        for (ours, theirs) in ours.iter().zip(&theirs) {
            let log_probs = largest_difference(&ours.log_probs, &theirs.log_probs);
            let entropies = largest_difference(&ours.entropies, &theirs.entropies);
            assert!(
                log_probs < 1e-4 && entropies < 1e-4,
                "{label}: {log_probs} {entropies}"
            );
        }

        let mut ours = Gradients::zeros(decoder.config());
        decoder
            .accumulate_gradient(&sequences, 0.7, &mut ours, &mut derivatives, false)
            .unwrap();
        let mut theirs = Gradients::zeros(decoder.config());
        twin.accumulate_gradient(&sequences, 0.7, &mut theirs, &mut derivatives)
            .unwrap();
        let whole = theirs.global_norm();
        for (ours, theirs) in ours.values().iter().zip(theirs.values().iter()) {
            let difference = norm(
                ours.values
                    .iter()
                    .zip(theirs.values)
                    .map(|(left, right)| left - right),
            );
            let scale = norm(theirs.values.iter().copied());
            assert!(scale > 1e-6 * whole, "{label} `{}`: no gradient", ours.name);
            assert!(
                difference <= 1e-4 * scale + 1e-6 * whole,
                "{label} `{}`: gradient differs by {difference} of {scale}",
                ours.name
            );
        }
    }
}
