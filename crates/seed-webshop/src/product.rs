//! One product, cleaned as the original cleans it when it loads.
//!
//! Not for: reading files (see [`catalogue`](crate::catalogue)), or what a goal asks of a product.

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::python::{float_text, strip};

/// Longest asin of a product that counts, in characters; the original leaves out longer ones.
const LONGEST_ASIN: usize = 10;

/// The price of a product whose record has none.
const UNKNOWN_PRICE: f64 = 100.0;

/// What separates the levels of a product's category.
const LEVEL: char = '›';

/// A named choice, such as `size`, and its values in the order shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OptionGroup {
    /// Lower-cased name; no two groups of a product share one.
    pub name: String,
    /// Lower-cased values; may repeat.
    pub values: Vec<String>,
}

/// A price, or two between which it lies.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Price {
    /// One price in dollars.
    Single(f64),
    /// The first two prices of the record, in its order, in dollars.
    Range(f64, f64),
}

impl Price {
    /// The price as pages show it, such as `$59.5` or `$45.99 to $49.99`.
    pub fn tag(self) -> String {
        match self {
            Self::Single(price) => format!("${}", float_text(price)),
            Self::Range(first, second) => format!("${} to ${}", float_text(first), float_text(second)),
        }
    }
}

/// What people ask for when they want a product.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Instruction {
    /// The wish in words, without options and price.
    #[serde(rename = "instruction")]
    pub text: String,
    /// Attributes that are asked for.
    #[serde(rename = "instruction_attributes")]
    pub attributes: Vec<String>,
    /// Values of options that are asked for; only instructions by people have them.
    #[serde(rename = "instruction_options", default)]
    pub options: Vec<String>,
}

/// A product of the catalogue.
#[derive(Clone, Debug, PartialEq)]
pub struct Product {
    /// Identity, at most ten characters.
    pub asin: String,
    /// Title as shown.
    pub title: String,
    /// Description as shown; may be empty.
    pub description: String,
    /// Features as shown.
    pub bullets: Vec<String>,
    /// What it costs.
    pub price: Price,
    /// Choices in the order shown.
    pub options: Vec<OptionGroup>,
    /// What is known about it, for the reward.
    pub attributes: Vec<String>,
    /// Coarse category, such as `beauty`.
    pub category: String,
    /// The search phrase that found it, lower-cased.
    pub query: String,
    /// Fine category: levels joined by ` › `.
    pub product_category: String,
    /// The synthetic instruction, if it has one.
    pub instruction: Option<Instruction>,
    /// Instructions by people.
    pub human_instructions: Vec<Instruction>,
}

impl Product {
    /// The text that searches see.
    pub(crate) fn contents(&self) -> String {
        let options: Vec<String> = self
            .options
            .iter()
            .map(|group| format!("{}: {}", group.name, group.values.join(", ")))
            .collect();
        [
            self.title.as_str(),
            self.description.as_str(),
            self.bullets.first().map_or("", String::as_str),
            options.join(", and ").as_str(),
        ]
        .join(" ")
        .to_lowercase()
    }

    /// The levels of the fine category; may repeat.
    pub(crate) fn category_levels(&self) -> impl Iterator<Item = &str> {
        self.product_category.split(LEVEL).map(strip)
    }
}

/// The record of a product in the original's list. Everything is optional and untyped until the product counts.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Record {
    asin: Value,
    name: Value,
    full_description: Value,
    small_description: Value,
    pricing: Value,
    customization_options: Value,
    category: Value,
    query: Value,
    product_category: Value,
}

impl Record {
    /// The product of the record without attributes and instructions; `None` for a record that does not count.
    ///
    /// # Errors
    /// What is wrong, naming field and asin.
    pub(crate) fn clean(self) -> Result<Option<Product>, String> {
        let asin = text(self.asin, "asin")?;
        if asin == "nan" || asin.chars().count() > LONGEST_ASIN {
            return Ok(None);
        }
        let named = |reason| format!("asin `{asin}`: {reason}");
        let product = Product {
            title: text(self.name, "name").map_err(named)?,
            description: text(self.full_description, "full_description").map_err(named)?,
            bullets: bullets(self.small_description).map_err(named)?,
            price: price(self.pricing).map_err(named)?,
            options: options(self.customization_options).map_err(named)?,
            attributes: Vec::new(),
            category: text(self.category, "category").map_err(named)?,
            query: strip(&text(self.query, "query").map_err(named)?.to_lowercase()).to_owned(),
            product_category: text(self.product_category, "product_category").map_err(named)?,
            instruction: None,
            human_instructions: Vec::new(),
            asin,
        };
        Ok(Some(product))
    }
}

fn text(value: Value, field: &str) -> Result<String, String> {
    match value {
        Value::String(text) => Ok(text),
        Value::Null => Err(format!("`{field}` is missing")),
        other => Err(format!("`{field}` is {}, not a text", kind(&other))),
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a truth value",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

fn bullets(value: Value) -> Result<Vec<String>, String> {
    match value {
        Value::Array(items) => items
            .into_iter()
            .map(|item| text(item, "small_description"))
            .collect(),
        other => Ok(vec![text(other, "small_description")?]),
    }
}

fn price(value: Value) -> Result<Price, String> {
    let text = match value {
        Value::Null => return Ok(Price::Single(UNKNOWN_PRICE)),
        other => text(other, "pricing")?,
    };
    if text.is_empty() {
        return Ok(Price::Single(UNKNOWN_PRICE));
    }
    let prices = text
        .split('$')
        .skip(1)
        .map(|piece| {
            let digits: String = piece
                .chars()
                .filter(|&character| character.is_ascii_digit() || character == '.')
                .collect();
            digits
                .parse::<f64>()
                .ok()
                .filter(|price| price.is_finite())
                .ok_or_else(|| format!("`pricing` is `{text}`, in which `${piece}` is no price"))
        })
        .collect::<Result<Vec<f64>, String>>()?;
    match *prices.as_slice() {
        [] => Err(format!("`pricing` is `{text}`, which holds no price after a `$`")),
        [price] => Ok(Price::Single(price)),
        [first, second, ..] => Ok(Price::Range(first, second)),
    }
}

fn options(value: Value) -> Result<Vec<OptionGroup>, String> {
    let groups = match value {
        Value::Null => return Ok(Vec::new()),
        Value::String(text) if text.is_empty() => return Ok(Vec::new()),
        Value::Array(items) if items.is_empty() => return Ok(Vec::new()),
        Value::Object(groups) => groups,
        other => {
            return Err(format!(
                "`customization_options` is {}, not an object",
                kind(&other)
            ));
        }
    };
    let mut cleaned: Vec<OptionGroup> = Vec::with_capacity(groups.len());
    for (name, contents) in groups {
        let contents = match contents {
            Value::Null => continue,
            Value::Array(contents) => contents,
            other => return Err(format!("the option `{name}` is {}, not a list", kind(&other))),
        };
        let values = contents
            .into_iter()
            .map(|content| match content {
                Value::Object(fields) => option_value(fields, &name),
                other => Err(format!(
                    "a value of the option `{name}` is {}, not an object",
                    kind(&other)
                )),
            })
            .collect::<Result<Vec<String>, String>>()?;
        let name = name.to_lowercase();
        // Names that differ in case only are one group: the later values, at the earlier place.
        match cleaned.iter_mut().find(|group| group.name == name) {
            Some(group) => group.values = values,
            None => cleaned.push(OptionGroup { name, values }),
        }
    }
    Ok(cleaned)
}

fn option_value(mut fields: Map<String, Value>, name: &str) -> Result<String, String> {
    let value = fields.remove("value").unwrap_or_default();
    let value = text(value, "value").map_err(|reason| format!("the option `{name}`: {reason}"))?;
    Ok(strip(&value).replace('/', " | ").to_lowercase())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn clean(changes: &Value) -> Result<Option<Product>, String> {
        let mut record = json!({
            "asin": "B01", "name": "Tea Pot", "full_description": "Holds tea.", "small_description": ["Blue ", "Big"],
            "pricing": "$59.50", "customization_options": "", "category": "garden", "query": " Tea Pots ",
            "product_category": "Home › Kitchen",
        });
        for (key, value) in changes.as_object().unwrap() {
            record[key] = value.clone();
        }
        serde_json::from_value::<Record>(record).unwrap().clean()
    }

    fn cleaned(changes: &Value) -> Product {
        clean(changes).unwrap().unwrap()
    }

    #[test]
    fn prices_are_read_as_the_original_reads_them() {
        for (pricing, expected, tag) in [
            (json!("$59.50"), Price::Single(59.5), "$59.5"),
            (json!("$1,299.00"), Price::Single(1299.0), "$1299.0"),
            (
                json!("$3.78$11.38$20"),
                Price::Range(3.78, 11.38),
                "$3.78 to $11.38",
            ),
            (
                json!("$19.99 - $27.99"),
                Price::Range(19.99, 27.99),
                "$19.99 to $27.99",
            ),
            (json!(""), Price::Single(100.0), "$100.0"),
            (json!(null), Price::Single(100.0), "$100.0"),
        ] {
            let product = cleaned(&json!({ "pricing": pricing }));
            assert_eq!(product.price, expected);
            assert_eq!(product.price.tag(), tag);
        }
    }

    #[test]
    fn options_are_lower_cased_and_slashes_spaced() {
        let product = cleaned(&json!({"customization_options": {
            "Size": [{"value": " 7/8 Wide "}, {"value": "9"}], "Color": null, "SIZE": [{"value": "L", "image": null}],
            "Style": [],
        }}));
        let group = |name: &str, values: &[&str]| OptionGroup {
            name: name.to_owned(),
            values: values.iter().map(|&value| value.to_owned()).collect(),
        };
        assert_eq!(product.options, [group("size", &["l"]), group("style", &[])]);
        let product = cleaned(
            &json!({"customization_options": {"A": [{"value": " 7/8 Wide "}], "B": [{"value": "x"}]}}),
        );
        assert_eq!(product.options[0], group("a", &["7 | 8 wide"]));
        assert_eq!(
            product.contents(),
            "tea pot holds tea. blue  a: 7 | 8 wide, and b: x"
        );
    }

    #[test]
    fn records_that_do_not_count_may_be_malformed() {
        assert_eq!(clean(&json!({"asin": "nan", "name": null})), Ok(None));
        assert_eq!(clean(&json!({"asin": "B0123456789", "pricing": 5})), Ok(None));
        assert_eq!(cleaned(&json!({"small_description": "one"})).bullets, ["one"]);
        assert_eq!(cleaned(&json!({})).query, "tea pots");
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (changes, expected) in [
            (json!({"asin": null}), "`asin` is missing"),
            (json!({"name": null}), "asin `B01`: `name` is missing"),
            (json!({"query": 5}), "asin `B01`: `query` is a number, not a text"),
            (
                json!({"pricing": "free"}),
                "asin `B01`: `pricing` is `free`, which holds no price after a `$`",
            ),
            (
                json!({"pricing": "$1$x"}),
                "asin `B01`: `pricing` is `$1$x`, in which `$x` is no price",
            ),
            (
                json!({"small_description": [1]}),
                "asin `B01`: `small_description` is a number, not a text",
            ),
            (
                json!({"customization_options": {"Size": [{"image": "x"}]}}),
                "asin `B01`: the option `Size`: `value` is missing",
            ),
            (
                json!({"customization_options": {"Size": "L"}}),
                "asin `B01`: the option `Size` is a text, not a list",
            ),
            (
                json!({"customization_options": "Size"}),
                "asin `B01`: `customization_options` is a text, not an object",
            ),
        ] {
            assert_eq!(clean(&changes).unwrap_err(), expected);
        }
    }

    proptest! {
        #[test]
        fn any_price_text_gives_a_finite_price_or_a_reason(pricing in "[$0-9., x-]{0,12}") {
            if let Ok(Some(product)) = clean(&json!({ "pricing": pricing })) {
                let prices = match product.price {
                    Price::Single(price) => [price, price],
                    Price::Range(first, second) => [first, second],
                };
                prop_assert!(prices.iter().all(|price| price.is_finite() && *price >= 0.0));
            }
        }
    }
}
