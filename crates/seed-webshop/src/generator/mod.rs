//! A shop that needs no download: products drawn from a seed.
//!
//! Products have what the original's have (title, description, features, price or price range, options, attributes,
//! category, search phrase) and carry synthetic instructions and instructions in other words; prices, goals, search and
//! reward follow the same rules. Product `i` depends on the seed and `i` alone.
//!
//! Not for: products that look real, or prices and goals (see [`Shop`](crate::Shop)).

mod kinds;

use seed_random::{Draw, RandomKey};

use self::kinds::{KINDS, Kind};
use crate::product::Price;
use crate::{Catalogue, Instruction, OptionGroup, Product, TitleNouns, WebshopError};

/// Products of the usual generated shop.
pub const GENERATED_PRODUCTS: usize = 1_000;

/// Attributes of a product: least and most.
const ATTRIBUTES: (usize, usize) = (3, 5);

/// Values of one option: least and most.
const VALUES: (usize, usize) = (2, 4);

/// Share of products without options, with a price range, and without a price.
const PLAIN_SHARE: f64 = 0.2;
const RANGE_SHARE: f64 = 0.1;
const UNPRICED_SHARE: f64 = 0.05;

const BRAND_STARTS: [&str; 16] = [
    "Al", "Ber", "Cor", "Dal", "El", "Fen", "Gal", "Hol", "Is", "Kor", "Lum", "Mor", "Nor", "Or", "Pel",
    "Ros",
];
const BRAND_ENDS: [&str; 16] = [
    "ano", "beck", "dane", "emi", "fort", "gard", "ica", "join", "kin", "lux", "mont", "nova", "oria",
    "pine", "rell", "via",
];
const LINES: [&str; 12] = [
    "Classic",
    "Studio",
    "Essential",
    "Premium",
    "Everyday",
    "Signature",
    "Heritage",
    "Modern",
    "Compact",
    "Deluxe",
    "Coastal",
    "Urban",
];

/// The catalogue of a generated shop.
///
/// # Errors
/// [`WebshopError::TooMany`] when there are more products than a catalogue holds.
pub fn generate_catalogue(products: usize, seed: u64) -> Result<Catalogue, WebshopError> {
    let key = RandomKey::new(seed).with_text("purpose", "generated shop");
    let products = (0..products).map(|index| product(index, &key)).collect();
    Catalogue::new(products, &TitleNouns::none())
}

fn product(index: usize, key: &RandomKey) -> Product {
    let kind = &KINDS[index % KINDS.len()];
    let mut draw = key.with("product", index as u64).generator();
    let attributes = several(kind.attributes, ATTRIBUTES, &mut draw);
    let pick = |list: &[&'static str], draw: &mut dyn FnMut(usize) -> usize| {
        list.get(draw(list.len())).copied().unwrap_or_default()
    };
    let mut below = |bound: usize| draw.below(bound);
    let brand = format!(
        "{}{}",
        pick(&BRAND_STARTS, &mut below),
        pick(&BRAND_ENDS, &mut below)
    );
    let line = pick(&LINES, &mut below);
    let options = options(kind, &mut draw);
    let price = price(kind, &mut draw);
    let noun = kind.noun.strip_prefix("pair of ").unwrap_or(kind.noun);
    // A title names some of what the product is; the rest stands behind it.
    let named = 1 + draw.below(2);
    let title = format!(
        "{brand} {line} {} with {}",
        capitalised(noun),
        attributes
            .iter()
            .take(named)
            .map(|text| capitalised(text))
            .collect::<Vec<_>>()
            .join(" and ")
    );
    let description = format!(
        "This {noun} by {brand} is part of the {} line. What it stands for: {}.",
        line.to_lowercase(),
        attributes.join(", ")
    );
    let bullets = attributes
        .iter()
        .map(|attribute| {
            format!(
                "{}: made for people who look for it in {}.",
                capitalised(attribute),
                kind.query
            )
        })
        .collect();
    let (instruction, human) = instructions(kind, &attributes, &options, &mut draw);
    Product {
        asin: format!("S{index:05}"),
        title,
        description,
        bullets,
        price,
        options,
        attributes: attributes.iter().map(|&text| text.to_owned()).collect(),
        category: kind.category.to_owned(),
        query: kind.query.to_owned(),
        product_category: kind.path.to_owned(),
        instruction: Some(instruction),
        human_instructions: vec![human],
    }
}

/// Between `least` and `most` different items, in drawn order.
fn several(items: &[&'static str], (least, most): (usize, usize), draw: &mut impl Draw) -> Vec<&'static str> {
    let mut items = items.to_vec();
    draw.shuffle(&mut items);
    items.truncate(least + draw.below(most - least + 1));
    items
}

/// The product's choices, values in the kind's order.
fn options(kind: &Kind, draw: &mut impl Draw) -> Vec<OptionGroup> {
    if draw.chance(PLAIN_SHARE) {
        return Vec::new();
    }
    kind.options
        .iter()
        .map(|(name, all)| {
            let chosen = several(all, VALUES, draw);
            OptionGroup {
                name: (*name).to_owned(),
                values: all
                    .iter()
                    .filter(|value| chosen.contains(value))
                    .map(|&value| value.to_owned())
                    .collect(),
            }
        })
        .collect()
}

fn price(kind: &Kind, draw: &mut impl Draw) -> Price {
    if draw.chance(UNPRICED_SHARE) {
        return Price::Single(100.0);
    }
    let (low, high) = kind.price;
    let cents = |draw: &mut dyn FnMut(usize) -> usize| {
        let dollars = low as usize + draw((high - low) as usize);
        // Prices end in 9, as prices do.
        (dollars * 100 + draw(10) * 10 + 9) as f64 / 100.0
    };
    let range = draw.chance(RANGE_SHARE);
    let mut below = |bound: usize| draw.below(bound);
    let first = cents(&mut below);
    if !range {
        return Price::Single(first);
    }
    let second = cents(&mut below);
    Price::Range(first.min(second), first.max(second))
}

/// A wish from a template, whose options and price a goal adds, and one in other words with its own options.
fn instructions(
    kind: &Kind,
    attributes: &[&'static str],
    options: &[OptionGroup],
    draw: &mut impl Draw,
) -> (Instruction, Instruction) {
    let asked = |draw: &mut dyn FnMut(usize) -> usize| -> Vec<String> {
        let count = 1 + draw(2);
        let mut asked: Vec<String> = attributes.iter().map(|&text| text.to_owned()).collect();
        asked.rotate_left(draw(attributes.len()));
        asked.truncate(count);
        asked
    };
    let mut below = |bound: usize| draw.below(bound);
    let wanted = asked(&mut below);
    let instruction = Instruction {
        text: format!("Find me {} {}", wanted.join(", "), kind.query),
        attributes: wanted,
        options: Vec::new(),
    };
    let wanted = asked(&mut below);
    let chosen: Vec<String> = options
        .iter()
        .filter_map(|group| group.values.get(below(group.values.len())).cloned())
        .collect();
    let plea = ["i need", "i am looking for", "i want to buy", "show me"];
    let plea = plea.get(below(plea.len())).copied().unwrap_or_default();
    let article = if kind.noun.starts_with(['a', 'e', 'i', 'o', 'u', 'h']) && !kind.noun.starts_with("hair") {
        "an"
    } else {
        "a"
    };
    let mut text = format!(
        "{plea} {article} {} that stands for {}",
        kind.noun,
        wanted.join(" and ")
    );
    if !chosen.is_empty() {
        text.push_str(". it should come in ");
        text.push_str(&chosen.join(" and "));
    }
    text.push('.');
    let human = Instruction {
        text,
        attributes: wanted,
        options: chosen,
    };
    (instruction, human)
}

/// The text with every word's first letter in upper case.
fn capitalised(text: &str) -> String {
    text.split(' ')
        .map(|word| {
            let mut characters = word.chars();
            characters.next().map_or_else(String::new, |first| {
                first.to_uppercase().chain(characters).collect()
            })
        })
        .collect::<Vec<String>>()
        .join(" ")
}
