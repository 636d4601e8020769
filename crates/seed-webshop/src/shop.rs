//! A catalogue with the prices and goals that a seed draws.
//!
//! The draws are those of the original under Python's `random.seed(seed)`: prices of products with a price range, in
//! catalogue order; then a price cap per instruction; then, seeded anew, a shuffle of all goals.
//!
//! Not for: which goals are trained on (see [`world`](crate::world)).

use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::product::Price;
use crate::python::PythonRandom;
use crate::{Catalogue, Instruction, OptionGroup, Product, WebshopError};

/// Cap of a goal that names no price.
const NO_CAP: f64 = 1_000_000.0;

/// Goals of one shop at most; templates make some eight million of the full catalogue.
const MOST_GOALS: u64 = 1 << 26;

/// How many caps above a price are considered.
const CAPS_CONSIDERED: usize = 4;

/// Which instructions goals are made from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GoalKind {
    /// One goal per combination of a product's options, from templates.
    Synthetic,
    /// One goal per instruction written by a person.
    Human,
}

impl GoalKind {
    /// The word used in configurations and messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Synthetic => "synthetic",
            Self::Human => "human",
        }
    }
}

/// The option values a goal asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GoalOptions {
    /// Name and value of each (synthetic goals).
    Named(Vec<(String, String)>),
    /// Values alone (goals by people).
    Values(Vec<String>),
}

impl GoalOptions {
    /// How many are asked for.
    pub fn len(&self) -> usize {
        match self {
            Self::Named(pairs) => pairs.len(),
            Self::Values(values) => values.len(),
        }
    }

    /// Whether none is asked for.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The values, without names.
    pub fn values(&self) -> impl Iterator<Item = &str> {
        let (pairs, values) = match self {
            Self::Named(pairs) => (pairs.as_slice(), &[] as &[String]),
            Self::Values(values) => (&[] as &[(String, String)], values.as_slice()),
        };
        pairs
            .iter()
            .map(|(_, value)| value)
            .chain(values)
            .map(String::as_str)
    }
}

/// What an episode is about.
#[derive(Clone, Debug, PartialEq)]
pub struct Goal {
    /// Place of the wanted product in the catalogue.
    pub product: usize,
    /// The task as the policy is told it.
    pub instruction: String,
    /// Attributes asked for.
    pub attributes: Vec<String>,
    /// Most that may be paid, in dollars; a million where nothing is said.
    pub price_upper: f64,
    /// Option values asked for.
    pub options: GoalOptions,
}

/// A goal before its text is written.
#[derive(Clone, Copy, Debug)]
struct Draft {
    product: u32,
    /// Number of the option combination, or of the person's instruction.
    variant: u32,
    price_upper: f64,
}

/// A catalogue with prices and goals. Immutable; shared by all episodes.
pub struct Shop {
    catalogue: Arc<Catalogue>,
    kind: GoalKind,
    prices: Vec<f64>,
    goals: Vec<Draft>,
    /// How often each attribute is asked for; never iterated.
    attribute_counts: FxHashMap<String, u64>,
}

impl Shop {
    /// Draws prices and goals.
    ///
    /// # Errors
    /// [`WebshopError::NoGoals`] when no product has an instruction of the kind, [`WebshopError::TooMany`] when there are
    /// more than 67 million goals.
    pub fn new(catalogue: Arc<Catalogue>, kind: GoalKind, seed: u64) -> Result<Self, WebshopError> {
        let mut random = PythonRandom::new(seed);
        let prices: Vec<f64> = catalogue
            .products()
            .iter()
            .map(|product| match product.price {
                Price::Single(price) => price,
                Price::Range(low, high) => random.uniform(low, high),
            })
            .collect();
        let mut goals = Vec::new();
        let mut attribute_counts: FxHashMap<String, u64> = FxHashMap::default();
        for (place, (product, &price)) in catalogue.products().iter().zip(&prices).enumerate() {
            let mut add = |variants: std::ops::Range<u64>, attributes: &[String], price_upper| {
                check_count((goals.len() as u64).saturating_add(variants.end - variants.start))?;
                for attribute in attributes {
                    *attribute_counts.entry(attribute.clone()).or_insert(0) += variants.end - variants.start;
                }
                goals.extend(variants.map(|variant| Draft {
                    product: place as u32,
                    // Fits, for there are no more goals than that.
                    variant: variant as u32,
                    price_upper,
                }));
                Ok::<(), WebshopError>(())
            };
            match kind {
                GoalKind::Synthetic => {
                    if let Some(instruction) = &product.instruction {
                        let price_upper = price_cap(price, &mut random);
                        add(
                            0..combinations(&product.options),
                            &instruction.attributes,
                            price_upper,
                        )?;
                    }
                }
                GoalKind::Human => {
                    for (variant, instruction) in product.human_instructions.iter().enumerate() {
                        if !instruction.attributes.is_empty() {
                            let price_upper = price_cap(price, &mut random);
                            let variant = variant as u64;
                            add(variant..variant + 1, &instruction.attributes, price_upper)?;
                        }
                    }
                }
            }
        }
        if goals.is_empty() {
            return Err(WebshopError::NoGoals { kind: kind.name() });
        }
        PythonRandom::new(seed).shuffle(&mut goals);
        Ok(Self {
            catalogue,
            kind,
            prices,
            goals,
            attribute_counts,
        })
    }

    /// The products.
    pub fn catalogue(&self) -> &Arc<Catalogue> {
        &self.catalogue
    }

    /// Which goals these are.
    pub fn kind(&self) -> GoalKind {
        self.kind
    }

    /// The price of the product at a place, in dollars.
    pub fn price(&self, product: usize) -> Option<f64> {
        self.prices.get(product).copied()
    }

    /// Number of goals.
    pub fn goal_count(&self) -> usize {
        self.goals.len()
    }

    /// The place in the catalogue of the product that goal `index` wants.
    pub fn goal_product(&self, index: usize) -> Option<usize> {
        self.goals.get(index).map(|goal| goal.product as usize)
    }

    /// Goal `index`, in the order in which the original numbers them.
    pub fn goal(&self, index: usize) -> Option<Goal> {
        let draft = self.goals.get(index)?;
        let place = draft.product as usize;
        let product = self.catalogue.product(place)?;
        let wish = self.instruction(product, *draft)?;
        let cap = price_text(draft.price_upper);
        let (options, instruction) = match self.kind {
            GoalKind::Synthetic => {
                let chosen = combination(&product.options, draft.variant)?;
                let pairs: Vec<String> = chosen
                    .iter()
                    .map(|(name, value)| format!("{name}: {value}"))
                    .collect();
                let with = if pairs.is_empty() { "" } else { " with " };
                let text = format!("{}{with}{}{cap}", wish.text, pairs.join(", and "));
                (GoalOptions::Named(chosen), text)
            }
            GoalKind::Human => {
                let text = format!("{}{cap}", wish.text.trim_matches('.'));
                (GoalOptions::Values(wish.options.clone()), text)
            }
        };
        Some(Goal {
            product: place,
            instruction,
            attributes: wish.attributes.clone(),
            price_upper: draft.price_upper,
            options,
        })
    }

    /// How likely goal `index` is drawn, relative to others, where goals are drawn by weight: for synthetic goals the
    /// mean over its attributes of 1 / (how many goals ask for the attribute).
    pub fn goal_weight(&self, index: usize) -> Option<f64> {
        let draft = self.goals.get(index)?;
        if self.kind == GoalKind::Human {
            return Some(1.0);
        }
        let product = self.catalogue.product(draft.product as usize)?;
        let attributes = &self.instruction(product, *draft)?.attributes;
        let sum: f64 = attributes
            .iter()
            .filter_map(|attribute| self.attribute_counts.get(attribute))
            .map(|&count| 1.0 / count as f64)
            .sum();
        Some(sum / attributes.len() as f64)
    }

    fn instruction<'a>(&self, product: &'a Product, draft: Draft) -> Option<&'a Instruction> {
        match self.kind {
            GoalKind::Synthetic => product.instruction.as_ref(),
            GoalKind::Human => product.human_instructions.get(draft.variant as usize),
        }
    }
}

/// Draws the cap of a goal on a product of some price: the larger of two of the first four multiples of ten above it.
fn price_cap(price: f64, random: &mut PythonRandom) -> f64 {
    let caps: Vec<f64> = (1..100)
        .map(|tens| f64::from(tens) * 10.0)
        .filter(|&cap| cap > price)
        .take(CAPS_CONSIDERED)
        .collect();
    random
        .pair(&caps)
        .map_or(NO_CAP, |(first, second)| first.max(second))
}

fn price_text(price_upper: f64) -> String {
    if price_upper == NO_CAP {
        return String::new();
    }
    format!(", and price lower than {price_upper:.2} dollars")
}

fn check_count(found: u64) -> Result<(), WebshopError> {
    if found <= MOST_GOALS {
        return Ok(());
    }
    Err(WebshopError::TooMany {
        what: "goals",
        found,
        limit: MOST_GOALS,
    })
}

fn combinations(groups: &[OptionGroup]) -> u64 {
    groups
        .iter()
        .fold(1, |count, group| count.saturating_mul(group.values.len() as u64))
}

/// Combination `number` of all options: groups sorted by name, the last one's values change fastest.
fn combination(groups: &[OptionGroup], number: u32) -> Option<Vec<(String, String)>> {
    let mut sorted: Vec<&OptionGroup> = groups.iter().collect();
    sorted.sort_unstable_by(|left, right| left.name.cmp(&right.name));
    let mut rest = number as usize;
    let mut chosen = Vec::with_capacity(sorted.len());
    for group in sorted.into_iter().rev() {
        let count = group.values.len();
        let value = group.values.get(rest.checked_rem(count)?)?;
        rest /= count;
        chosen.push((group.name.clone(), value.clone()));
    }
    chosen.reverse();
    Some(chosen)
}
