//! Words that names and texts are made of.
//!
//! Not for: which of them are drawn.

use std::collections::BTreeSet;

use seed_random::Draw;

const BEGINNINGS: [&str; 24] = [
    "Bal", "Bren", "Cor", "Dal", "Dor", "El", "Fal", "Gal", "Har", "Jor", "Kel", "Lor", "Mar", "Nor", "Or",
    "Per", "Quil", "Ros", "Sel", "Tar", "Ul", "Ver", "Wil", "Zan",
];
const MIDDLES: [&str; 16] = [
    "a", "e", "i", "o", "an", "en", "in", "on", "ad", "ed", "ib", "ov", "am", "em", "ist", "und",
];
const SURNAME_ENDINGS: [&str; 12] = [
    "berg", "dell", "ford", "gard", "holt", "kov", "ley", "man", "nes", "rick", "sen", "wick",
];
const TOWN_ENDINGS: [&str; 12] = [
    "bridge", "bury", "cliff", "dale", "field", "haven", "mouth", "port", "stead", "ton", "vale", "wold",
];
const COUNTRY_ENDINGS: [&str; 6] = ["aria", "esia", "land", "mark", "onia", "stan"];

pub(super) const GIVEN: [&str; 48] = [
    "Ada", "Agnes", "Albin", "Alma", "Anton", "Astrid", "Basil", "Bruno", "Cecil", "Clara", "Conrad", "Dora",
    "Edgar", "Edith", "Elias", "Emil", "Erna", "Felix", "Flora", "Gerda", "Gustav", "Hanna", "Hector",
    "Hugo", "Ida", "Igor", "Irma", "Ivan", "Jonas", "Julia", "Karin", "Leo", "Lydia", "Magda", "Martin",
    "Mina", "Nora", "Olga", "Oscar", "Paula", "Roland", "Rosa", "Simon", "Stella", "Theo", "Vera", "Viktor",
    "Wanda",
];
pub(super) const ADJECTIVES: [&str; 40] = [
    "Amber",
    "Ancient",
    "Blind",
    "Borrowed",
    "Bright",
    "Broken",
    "Burning",
    "Distant",
    "Empty",
    "Faithful",
    "Fallen",
    "Final",
    "Forgotten",
    "Frozen",
    "Gentle",
    "Gilded",
    "Golden",
    "Hidden",
    "Hollow",
    "Iron",
    "Ivory",
    "Lonely",
    "Lost",
    "Narrow",
    "Patient",
    "Purple",
    "Quiet",
    "Restless",
    "Scarlet",
    "Secret",
    "Seventh",
    "Silent",
    "Silver",
    "Sleeping",
    "Stolen",
    "Stubborn",
    "Wandering",
    "Whispering",
    "Wild",
    "Winter",
];
pub(super) const NOUNS: [&str; 40] = [
    "Anchor",
    "Bell",
    "Candle",
    "Carnival",
    "Clock",
    "Compass",
    "Crown",
    "Dancer",
    "Door",
    "Falcon",
    "Feather",
    "Ferry",
    "Forest",
    "Fountain",
    "Garden",
    "Harbour",
    "Harvest",
    "Horizon",
    "Lantern",
    "Letter",
    "Lighthouse",
    "Mirror",
    "Moon",
    "Mountain",
    "Orchard",
    "Palace",
    "Pilgrim",
    "River",
    "Sailor",
    "Shadow",
    "Shepherd",
    "Staircase",
    "Stranger",
    "Tower",
    "Valley",
    "Violin",
    "Voyage",
    "Watchman",
    "Well",
    "Window",
];

/// A name that is not yet in `taken`, which it enters.
pub(super) fn fresh(taken: &mut BTreeSet<String>, mut draw: impl FnMut() -> String) -> String {
    // There are many more names than a world asks for, so a free one is soon found.
    loop {
        let name = draw();
        if taken.insert(name.clone()) {
            return name;
        }
    }
}

fn pick<'a>(random: &mut impl Draw, words: &[&'a str]) -> &'a str {
    random.choose(words).copied().unwrap_or_default()
}

fn compound(random: &mut impl Draw, endings: &[&str]) -> String {
    let (beginning, middle, ending) = (
        pick(random, &BEGINNINGS),
        pick(random, &MIDDLES),
        pick(random, endings),
    );
    format!("{beginning}{middle}{ending}")
}

pub(super) fn surname(random: &mut impl Draw) -> String {
    compound(random, &SURNAME_ENDINGS)
}

pub(super) fn town(random: &mut impl Draw) -> String {
    compound(random, &TOWN_ENDINGS)
}

pub(super) fn country(random: &mut impl Draw) -> String {
    let (beginning, ending) = (pick(random, &BEGINNINGS), pick(random, &COUNTRY_ENDINGS));
    format!("{beginning}{ending}")
}

pub(super) fn person(random: &mut impl Draw) -> String {
    format!("{} {}", pick(random, &GIVEN), surname(random))
}

pub(super) fn title(random: &mut impl Draw) -> String {
    format!("The {} {}", pick(random, &ADJECTIVES), pick(random, &NOUNS))
}
