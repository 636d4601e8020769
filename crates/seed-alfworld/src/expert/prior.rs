//! Where things of a class are likely to lie, before anything was seen.
//!
//! Not for: what was seen; that is the memory's.

use std::cmp::Reverse;

use super::memory::Memory;
use super::reading::class_word;
use crate::Family;
use crate::household::{ObjectClass, ReceptacleClass};

/// The receptacles not yet seen inside, the best chance per command first. `sought` is a class word; `tie` orders equally
/// good ones.
pub(super) fn promising(memory: &Memory, sought: &str, tie: impl Fn(&str) -> u64) -> Vec<String> {
    let places = ObjectClass::parse(sought)
        .map(ObjectClass::places)
        .unwrap_or_default();
    // Were one in a target already, the simple task would be done.
    let simple =
        (memory.request.as_ref()).is_some_and(|request| request.family == Family::PickAndPlaceSimple);
    let mut ranked: Vec<&String> = memory
        .receptacles
        .iter()
        .filter(|name| !memory.is_searched(name) && (!simple || !memory.is_target(name)))
        .collect();
    ranked.sort_by_cached_key(|name| {
        let word = class_word(name);
        let class = ReceptacleClass::parse(word);
        let weight = (places.iter())
            .find(|&&(place, _)| Some(place) == class)
            .map_or(0, |&(_, weight)| weight);
        let alike = (memory.receptacles.iter())
            .filter(|other| class_word(other) == word)
            .count() as u32;
        let here = memory.here.as_deref() == Some(name.as_str());
        let openable = class.is_some_and(ReceptacleClass::openable);
        // What one stands before is one command away, open or closed; a closed one elsewhere is two.
        let commands = if openable && !here { 2 } else { 1 };
        // A class never thought of still has a small chance. Scaled so that integer division keeps order.
        let chance = (20 * weight + 3) * 1_000 / (alike * commands);
        (Reverse(chance), tie(name))
    });
    ranked.into_iter().cloned().collect()
}
