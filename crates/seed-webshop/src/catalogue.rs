//! All products, and finding them by text. Read once, shared by all episodes.
//!
//! Not for: prices and goals, which are drawn under a seed (see [`shop`](crate::shop)).

use std::path::{Path, PathBuf};

use rustc_hash::FxHashMap;
use seed_retrieval::{Bm25Builder, Bm25Index, Bm25Options, Document, TieOrder};
use serde::Deserialize;

use crate::nouns::NounTable;
use crate::product::Record;
use crate::{Instruction, OptionGroup, Product, TitleNouns, WebshopError, files};

/// Attribute list of a product that the attribute file does not know, as in the original.
const UNKNOWN_ATTRIBUTE: &str = "DUMMY_ATTR";

/// Products found by one search at most.
pub(crate) const MOST_HITS: usize = 50;

/// Products of a catalogue at most; places are 32-bit.
const MOST_PRODUCTS: u64 = u32::MAX as u64;

/// Products indexed at once: enough to use all threads, few enough to keep their texts out of memory.
const INDEXED_AT_ONCE: usize = 16_384;

/// Which of WebShop's two catalogues.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CatalogueSize {
    /// 1,000 products: `items_shuffle_1000.json` and `items_ins_v2_1000.json`.
    Small,
    /// All 1.18 million: `items_shuffle.json` and `items_ins_v2.json`.
    Full,
}

/// Where a catalogue's files are. Each may be gzip or plain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CatalogueFiles {
    /// A JSON list of products.
    pub products: PathBuf,
    /// A JSON object from asin to attributes and synthetic instruction.
    pub attributes: PathBuf,
    /// A JSON object from asin to instructions by people.
    pub human_instructions: Option<PathBuf>,
    /// A table of title nouns (see [`TitleNouns::read`]).
    pub title_nouns: Option<PathBuf>,
}

impl CatalogueFiles {
    /// The files in a folder under the names of WebShop's own release, or with `.gz` behind. `items_human_ins.json` and
    /// `title_nouns.jsonl` (or `title_nouns.json`) may be absent.
    ///
    /// # Errors
    /// [`WebshopError::MissingFile`] when products or attributes are absent.
    pub fn in_folder(folder: &Path, size: CatalogueSize) -> Result<Self, WebshopError> {
        let (products, attributes) = match size {
            CatalogueSize::Small => ("items_shuffle_1000.json", "items_ins_v2_1000.json"),
            CatalogueSize::Full => ("items_shuffle.json", "items_ins_v2.json"),
        };
        Ok(Self {
            products: files::require(folder, products)?,
            attributes: files::require(folder, attributes)?,
            human_instructions: files::find(folder, "items_human_ins.json"),
            title_nouns: files::find(folder, "title_nouns.jsonl")
                .or_else(|| files::find(folder, "title_nouns.json")),
        })
    }
}

/// What the attribute file says of a product.
#[derive(Deserialize)]
struct Known {
    attributes: Option<Vec<String>>,
    instruction: Option<String>,
    #[serde(rename = "instruction_attributes")]
    wanted: Option<Vec<String>>,
}

/// Products with their index. Immutable.
pub struct Catalogue {
    products: Vec<Product>,
    places: FxHashMap<String, u32>,
    index: Bm25Index,
    nouns: NounTable,
    digest: blake3::Hash,
}

impl Catalogue {
    /// Reads a catalogue.
    ///
    /// # Errors
    /// [`WebshopError`] naming the file, and the product where one is malformed.
    pub fn read(files: &CatalogueFiles) -> Result<Self, WebshopError> {
        let nouns = match &files.title_nouns {
            Some(path) => TitleNouns::read(path)?,
            None => TitleNouns::none(),
        };
        let mut attributes: FxHashMap<String, Known> = files::read_json(&files.attributes)?;
        let mut instructions: FxHashMap<String, Vec<Instruction>> = match &files.human_instructions {
            Some(path) => files::read_json(path)?,
            None => FxHashMap::default(),
        };
        let mut products: Vec<Product> = Vec::new();
        // The first of several products with one asin counts, and uses up its attributes.
        let mut places: FxHashMap<String, u32> = FxHashMap::default();
        files::read_products(&files.products, |record: Record| {
            let Some(mut product) = record.clean()? else {
                return Ok(());
            };
            if places.contains_key(&product.asin) {
                return Ok(());
            }
            let known = attributes.remove(&product.asin);
            describe(&mut product, known)?;
            product.human_instructions = instructions.remove(&product.asin).unwrap_or_default();
            places.insert(product.asin.clone(), products.len() as u32);
            products.push(product);
            Ok(())
        })?;
        Self::build(products, places, &nouns)
    }

    /// A catalogue of products made in memory. Of several with one asin the first counts.
    ///
    /// # Errors
    /// [`WebshopError::TooMany`] when there are too many.
    pub fn new(products: Vec<Product>, nouns: &TitleNouns) -> Result<Self, WebshopError> {
        let mut places: FxHashMap<String, u32> = FxHashMap::default();
        let mut kept: Vec<Product> = Vec::with_capacity(products.len());
        for product in products {
            if !places.contains_key(&product.asin) {
                places.insert(product.asin.clone(), kept.len() as u32);
                kept.push(product);
            }
        }
        Self::build(kept, places, nouns)
    }

    fn build(
        products: Vec<Product>,
        places: FxHashMap<String, u32>,
        nouns: &TitleNouns,
    ) -> Result<Self, WebshopError> {
        if products.len() as u64 > MOST_PRODUCTS {
            return Err(WebshopError::TooMany {
                what: "products",
                found: products.len() as u64,
                limit: MOST_PRODUCTS,
            });
        }
        let mut builder = Bm25Builder::new(Bm25Options {
            ties: TieOrder::Id,
            ..Bm25Options::default()
        })?;
        for part in products.chunks(INDEXED_AT_ONCE) {
            let texts: Vec<String> = part.iter().map(Product::contents).collect();
            let documents: Vec<Document<'_>> = part
                .iter()
                .zip(&texts)
                .map(|(product, text)| Document {
                    id: &product.asin,
                    text,
                })
                .collect();
            builder.add(&documents)?;
        }
        let titles = products
            .iter()
            .map(|product| (product.asin.as_str(), product.title.as_str()));
        let nouns = NounTable::new(titles, nouns);
        Ok(Self {
            index: builder.finish(),
            digest: digest(&products, &nouns),
            nouns,
            places,
            products,
        })
    }

    /// All products in their order.
    pub fn products(&self) -> &[Product] {
        &self.products
    }

    /// The product at a place.
    pub fn product(&self, place: usize) -> Option<&Product> {
        self.products.get(place)
    }

    /// The place of the product with an asin.
    pub fn place(&self, asin: &str) -> Option<usize> {
        self.places.get(asin).map(|&place| place as usize)
    }

    /// How many titles had no entry in the table of nouns and went by the rule. Rewards of purchases other than the
    /// wanted product can then differ from the original's in a few of a hundred cases.
    pub fn titles_by_rule(&self) -> usize {
        self.nouns.by_rule()
    }

    /// Places of the 50 products that a text finds, best first.
    pub(crate) fn search(&self, text: &str) -> Vec<u32> {
        let hits = self.index.search(text, MOST_HITS);
        // Places fit: they were counted when the catalogue was built.
        hits.into_iter().map(|hit| hit.document as u32).collect()
    }

    pub(crate) fn nouns(&self) -> &NounTable {
        &self.nouns
    }

    /// Digest of everything that decides about an episode.
    pub(crate) fn digest(&self) -> blake3::Hash {
        self.digest
    }
}

/// Adds what the attribute file says.
fn describe(product: &mut Product, known: Option<Known>) -> Result<(), String> {
    let Some(known) = known else {
        product.attributes = vec![UNKNOWN_ATTRIBUTE.to_owned()];
        return Ok(());
    };
    product.attributes = known
        .attributes
        .unwrap_or_else(|| vec![UNKNOWN_ATTRIBUTE.to_owned()]);
    if let Some(text) = known.instruction {
        let attributes = known.wanted.unwrap_or_default();
        if attributes.is_empty() {
            return Err(format!(
                "asin `{}`: its instruction in the attribute file has no `instruction_attributes`",
                product.asin
            ));
        }
        product.instruction = Some(Instruction {
            text,
            attributes,
            options: Vec::new(),
        });
    }
    Ok(())
}

fn digest(products: &[Product], nouns: &NounTable) -> blake3::Hash {
    let mut hasher = blake3::Hasher::new();
    for place in 0..products.len() {
        for noun in nouns.of(place) {
            hasher.update(&noun.to_le_bytes());
        }
        hasher.update(&u32::MAX.to_le_bytes());
    }
    // Lengths in front keep the parts apart.
    let mut text = |text: &str| {
        hasher
            .update(&(text.len() as u64).to_le_bytes())
            .update(text.as_bytes());
    };
    for product in products {
        text(&product.asin);
        text(&product.title);
        text(&product.description);
        text(&product.price.tag());
        text(&product.category);
        text(&product.query);
        text(&product.product_category);
        let instructions = product.instruction.iter().chain(&product.human_instructions);
        let wishes: Vec<&str> = instructions
            .flat_map(|wish| {
                std::iter::once(&wish.text)
                    .chain(&wish.attributes)
                    .chain(&wish.options)
                    .map(String::as_str)
                    .chain(["\n"])
            })
            .collect();
        let lists = [&product.bullets, &product.attributes]
            .into_iter()
            .flat_map(|list| list.iter().map(String::as_str).chain(["\n"]));
        let options = product.options.iter().flat_map(|OptionGroup { name, values }| {
            std::iter::once(name.as_str())
                .chain(values.iter().map(String::as_str))
                .chain(["\n"])
        });
        lists.chain(options).chain(wishes).for_each(&mut text);
    }
    hasher.finalize()
}
