//! What a purchase is worth for a goal, as the original scores it.
//!
//! ```text
//! score = type · (attributes met + options met + [price within cap]) / (attributes + options + 1)
//! ```
//!
//! Not for: what a training algorithm makes of the score (see [`environment`](crate::environment)).

use std::collections::BTreeSet;

use crate::fuzzy::Words;
use crate::python::repr;
use crate::{Goal, GoalOptions, Product, Shop};

/// Scores above this count as the same attribute or option.
const ALIKE: u8 = 85;

/// Common category levels from which two products are of one category.
const COMMON_LEVELS: usize = 2;

/// Colour words in the order in which the original tries them.
const COLOURS: [&str; 102] = [
    "alabaster",
    "apricot",
    "aqua",
    "ash",
    "asphalt",
    "azure",
    "banana",
    "beige",
    "black",
    "blue",
    "blush",
    "bordeaux",
    "bronze",
    "brown",
    "burgundy",
    "camel",
    "camo",
    "caramel",
    "champagne",
    "charcoal",
    "cheetah",
    "chestnut",
    "chocolate",
    "christmas",
    "coffee",
    "cognac",
    "copper",
    "coral",
    "cranberry",
    "cream",
    "crystal",
    "dark",
    "denim",
    "eggplant",
    "elephant",
    "espresso",
    "fuchsia",
    "gold",
    "granite",
    "grape",
    "graphite",
    "grass",
    "gray",
    "green",
    "grey",
    "heather",
    "indigo",
    "ivory",
    "ivy",
    "khaki",
    "lavender",
    "lemon",
    "leopard",
    "light",
    "lilac",
    "lime",
    "magenta",
    "maroon",
    "mauve",
    "merlot",
    "midnight",
    "mint",
    "mocha",
    "multicolor",
    "mushroom",
    "mustard",
    "natural",
    "navy",
    "nude",
    "olive",
    "orange",
    "peach",
    "pewter",
    "pink",
    "plum",
    "purple",
    "rainbow",
    "red",
    "rose",
    "royal",
    "rust",
    "sand",
    "sapphire",
    "seashell",
    "silver",
    "skull",
    "slate",
    "steel",
    "stone",
    "stonewash",
    "sunflower",
    "tan",
    "taupe",
    "teal",
    "tiger",
    "turquoise",
    "violet",
    "walnut",
    "wheat",
    "white",
    "wine",
    "yellow",
];

/// A purchase's score and what it is made of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reward {
    /// The score, 0 to 1; 1 exactly when everything fits.
    pub score: f64,
    /// How well the kind of product fits: 0, 0.1, 0.5 or 1.
    pub kind: f64,
    /// Whether both products were found by one search phrase.
    pub query_match: bool,
    /// Whether they share two levels of category.
    pub category_match: bool,
    /// Share of the wanted title's nouns that the bought title has.
    pub title_score: f64,
    /// Attributes met.
    pub attributes_met: usize,
    /// Attributes asked for.
    pub attributes: usize,
    /// Options met.
    pub options_met: usize,
    /// Options asked for.
    pub options: usize,
    /// Whether the price is within the cap.
    pub price_met: bool,
}

impl Reward {
    /// Whether everything fits.
    pub fn is_perfect(&self) -> bool {
        self.score == 1.0
    }
}

/// The score of buying the product at place `bought` with these option values; `None` when there is no such product.
pub fn reward<'a>(
    shop: &Shop,
    goal: &Goal,
    bought: usize,
    options: impl IntoIterator<Item = &'a str>,
) -> Option<Reward> {
    let catalogue = shop.catalogue();
    let product = catalogue.product(bought)?;
    let wanted = catalogue.product(goal.product)?;
    let query_match = product.query == wanted.query;
    let levels: BTreeSet<&str> = product.category_levels().collect();
    let wanted_levels: BTreeSet<&str> = wanted.category_levels().collect();
    let category_match = levels.intersection(&wanted_levels).count() >= COMMON_LEVELS;
    let title_score = catalogue.nouns().share(bought, goal.product);
    let kind = kind(query_match || category_match, title_score);
    let attributes_met = attributes_met(product, &goal.attributes);
    let options_met = options_met(options, &goal.options);
    let price_met = shop.price(bought)? <= goal.price_upper;
    let (attributes, asked) = (goal.attributes.len(), goal.options.len());
    let met = attributes_met + options_met + usize::from(price_met);
    Some(Reward {
        score: met as f64 / (attributes + asked + 1) as f64 * kind,
        kind,
        query_match,
        category_match,
        title_score,
        attributes_met,
        attributes,
        options_met,
        options: asked,
        price_met,
    })
}

fn kind(matches: bool, title_score: f64) -> f64 {
    // The last two override what comes before, as in the original.
    if title_score == 0.0 {
        0.0
    } else if title_score < 0.1 {
        0.1
    } else if matches || title_score > 0.2 {
        1.0
    } else {
        0.5
    }
}

/// How many attributes the product has, in its list or in words.
fn attributes_met(product: &Product, wanted: &[String]) -> usize {
    let known: Vec<Words> = product
        .attributes
        .iter()
        .map(|attribute| Words::new(attribute))
        .collect();
    let mut texts: Option<[String; 3]> = None;
    wanted
        .iter()
        .filter(|attribute| {
            let words = Words::new(attribute);
            known.iter().any(|other| other.ratio(&words) > ALIKE)
                || texts
                    .get_or_insert_with(|| {
                        [
                            product.title.to_lowercase(),
                            product.bullets.join(" ").to_lowercase(),
                            product.description.to_lowercase(),
                        ]
                    })
                    .iter()
                    .any(|text| text.contains(attribute.as_str()))
        })
        .count()
}

/// How many of a goal's options some chosen value is like.
fn options_met<'a>(chosen: impl IntoIterator<Item = &'a str>, wanted: &GoalOptions) -> usize {
    let chosen: Vec<Words> = chosen
        .into_iter()
        .map(|value| Words::new(colour_or(value)))
        .collect();
    let met = |wanted: &str| {
        let words = Words::new(wanted);
        chosen.iter().any(|value| value.ratio(&words) > ALIKE)
    };
    match wanted {
        GoalOptions::Values(values) => values.iter().filter(|value| met(colour_or(value))).count(),
        // The original passes pairs where it means values: a pair is a colour only if name or value is one, else its
        // Python representation is compared, name included.
        GoalOptions::Named(pairs) => pairs
            .iter()
            .filter(
                |(name, value)| match COLOURS.iter().find(|colour| *colour == name || *colour == value) {
                    Some(colour) => met(colour),
                    None => met(&format!("({}, {})", repr(name), repr(value))),
                },
            )
            .count(),
    }
}

/// The first colour word that a value holds, else the value.
fn colour_or(value: &str) -> &str {
    COLOURS
        .iter()
        .find(|colour| value.contains(**colour))
        .map_or(value, |colour| colour)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn little_in_common_overrides_a_match() {
        let kinds = [
            (true, 0.0),
            (true, 0.05),
            (true, 0.1),
            (false, 0.15),
            (false, 0.2),
            (false, 0.21),
        ]
        .map(|(matches, title_score)| kind(matches, title_score));
        assert_eq!(kinds, [0.0, 0.1, 1.0, 0.5, 0.5, 1.0]);
    }

    #[test]
    fn a_value_whose_words_are_in_the_pair_meets_the_option() {
        let wanted = GoalOptions::Named(vec![
            ("color".into(), "coal grey".into()),
            ("size".into(), "36w x 32l".into()),
            ("style".into(), "red".into()),
        ]);
        assert_eq!(options_met(["coal grey", "36w x 32l", "red"], &wanted), 3);
        assert_eq!(options_met(["grey"], &wanted), 1);
        assert_eq!(
            options_met(["dark red"], &wanted),
            0,
            "`dark` is the first colour word in it"
        );
        let values = GoalOptions::Values(vec!["dark red".into(), "x-large".into()]);
        assert_eq!(options_met(["dark green", "large"], &values), 2);
    }
}
