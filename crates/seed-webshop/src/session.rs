//! A visit to the shop: which page is shown, what it says, what can be clicked, and what an action does.
//!
//! The original renders pages as HTML and strips them to text; here a page is the list of its texts from the start.
//!
//! Not for: reading actions (see [`action`](crate::action)), or prompts.

use std::borrow::Cow;

use seed_random::{Draw, RandomKey};

use crate::action::{Action, parse};
use crate::catalogue::MOST_HITS;
use crate::python::{float_text, json_text, strip};
use crate::reward::reward;
use crate::{Catalogue, Goal, Product, Reward, Shop};

/// Products on one page of results.
const HITS_PER_PAGE: usize = 10;

/// What joins the texts of a page.
pub(crate) const SEPARATOR: &str = " [SEP] ";

const BACK_TO_SEARCH: &str = "Back to Search";
const PREVIOUS: &str = "< Prev";
const NEXT: &str = "Next >";

/// The pages behind an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Details {
    Description,
    Features,
    Reviews,
}

#[derive(Clone, Debug, PartialEq)]
enum Page {
    Start,
    /// Counted from 1; may lie behind the last product.
    Results(usize),
    /// The item's place in the catalogue.
    Item(usize),
    Details(usize, Details),
    Done(Purchase),
}

/// Where a visit is, for those who play by script.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Place<'a> {
    Start,
    Results {
        page: usize,
        /// Places in the catalogue of the products shown.
        shown: &'a [u32],
        /// Whether the next page shows products too.
        more: bool,
    },
    Item {
        product: usize,
        chosen: &'a [(String, String)],
    },
    Details,
    Done,
}

/// A finished visit.
#[derive(Clone, Debug, PartialEq)]
pub struct Purchase {
    /// Place of the product bought.
    pub product: usize,
    /// Option names and values chosen, in the order of their first choice.
    pub options: Vec<(String, String)>,
    /// What it is worth.
    pub reward: Reward,
}

/// One visit. Starts at the search page.
#[derive(Clone, Debug)]
pub struct Session {
    page: Page,
    /// Places of the products found by the last search.
    hits: Vec<u32>,
    /// The page of results that `< Prev` of an item returns to.
    results_page: usize,
    chosen: Vec<(String, String)>,
    /// Where searches for random products draw from.
    random: RandomKey,
    searches: u64,
}

impl Session {
    /// A new visit. `random` serves searches that ask for random products (`<r>`), nothing else.
    pub fn new(random: RandomKey) -> Self {
        Self {
            page: Page::Start,
            hits: Vec::new(),
            results_page: 1,
            chosen: Vec::new(),
            random,
            searches: 0,
        }
    }

    /// The purchase, once there is one; nothing changes any more then.
    pub fn purchase(&self) -> Option<&Purchase> {
        match &self.page {
            Page::Done(purchase) => Some(purchase),
            _ => None,
        }
    }

    pub(crate) fn place(&self) -> Place<'_> {
        match self.page {
            Page::Start => Place::Start,
            Page::Results(page) => Place::Results {
                page,
                shown: self.shown(page),
                more: !self.shown(page + 1).is_empty(),
            },
            Page::Item(product) => Place::Item {
                product,
                chosen: &self.chosen,
            },
            Page::Details(..) => Place::Details,
            Page::Done(_) => Place::Done,
        }
    }

    /// Whether the page shown has a search bar. A search works on every other page too.
    pub fn has_search_bar(&self) -> bool {
        self.page == Page::Start
    }

    /// Performs an action. One that cannot be read, or a click on what is not there, does nothing.
    pub fn act(&mut self, shop: &Shop, goal: &Goal, action: &str) {
        if self.purchase().is_some() {
            return;
        }
        match parse(action) {
            Some(Action::Search(words)) => self.search(shop.catalogue(), &words),
            Some(Action::Click(text)) => self.click(shop, goal, &text),
            None => {}
        }
    }

    fn search(&mut self, catalogue: &Catalogue, words: &str) {
        self.searches += 1;
        self.hits = self.find(catalogue, words);
        self.show_results(1);
    }

    fn show_results(&mut self, page: usize) {
        self.chosen.clear();
        self.results_page = page;
        self.page = Page::Results(page);
    }

    /// The products a search finds. A first word in angle brackets asks for something else than text.
    fn find(&self, catalogue: &Catalogue, words: &str) -> Vec<u32> {
        let where_product = |test: &dyn Fn(&Product) -> bool| {
            let products = catalogue.products().iter().enumerate();
            products
                .filter(|(_, product)| test(product))
                .map(|(place, _)| place as u32)
                .collect()
        };
        let mut parts = words.split(' ');
        match parts.next() {
            Some("<r>") => self.random_products(catalogue),
            Some("<c>") => match parts.next().map(strip) {
                Some(category) => where_product(&|product| product.category == category),
                None => Vec::new(),
            },
            Some("<q>") => {
                let query = words.split_once(' ').map_or("", |(_, rest)| strip(rest));
                where_product(&|product| product.query == query)
            }
            // The original fails here when it runs without a table of attributes, as it does in training.
            Some("<a>") => Vec::new(),
            _ => catalogue.search(words),
        }
    }

    fn random_products(&self, catalogue: &Catalogue) -> Vec<u32> {
        let mut places: Vec<u32> = (0..catalogue.products().len() as u32).collect();
        self.random
            .with("random products", self.searches)
            .generator()
            .shuffle(&mut places);
        places.truncate(MOST_HITS);
        places
    }

    fn click(&mut self, shop: &Shop, goal: &Goal, text: &str) {
        let catalogue = shop.catalogue();
        let back = text == "back to search";
        match self.page {
            Page::Start | Page::Done(_) => {}
            Page::Results(page) => match text {
                _ if back => self.leave(),
                "next >" => self.show_results(page + 1),
                "< prev" if page > 1 => self.show_results(page - 1),
                _ => {
                    let mut shown = self.shown(page).iter().map(|&place| place as usize);
                    // Of two products that read alike the original's table keeps the last.
                    let opened = shown.rfind(|&place| {
                        catalogue
                            .product(place)
                            .is_some_and(|product| product.asin.to_lowercase() == text)
                    });
                    if let Some(place) = opened {
                        self.page = Page::Item(place);
                    }
                }
            },
            Page::Item(place) => match text {
                _ if back => self.leave(),
                "< prev" => self.show_results(self.results_page),
                "description" => self.page = Page::Details(place, Details::Description),
                "features" => self.page = Page::Details(place, Details::Features),
                "reviews" => self.page = Page::Details(place, Details::Reviews),
                "buy now" => self.buy(shop, goal, place),
                _ => self.choose(catalogue, place, text),
            },
            Page::Details(place, _) => match text {
                _ if back => self.leave(),
                "< prev" => self.page = Page::Item(place),
                _ => {}
            },
        }
    }

    fn leave(&mut self) {
        self.chosen.clear();
        self.hits.clear();
        self.page = Page::Start;
    }

    /// Chooses an option value; where several groups have it, the last one.
    fn choose(&mut self, catalogue: &Catalogue, place: usize, value: &str) {
        let groups = catalogue
            .product(place)
            .map_or(&[] as &[_], |product| &product.options);
        let has_value = |values: &[String]| values.iter().any(|other| other == value);
        let Some(group) = groups.iter().rev().find(|group| has_value(&group.values)) else {
            return;
        };
        match self.chosen.iter_mut().find(|(name, _)| *name == group.name) {
            Some((_, chosen)) => value.clone_into(chosen),
            None => self.chosen.push((group.name.clone(), value.to_owned())),
        }
    }

    fn buy(&mut self, shop: &Shop, goal: &Goal, place: usize) {
        let values = self.chosen.iter().map(|(_, value)| value.as_str());
        // The page shows a product of the catalogue, so there is a reward.
        if let Some(reward) = reward(shop, goal, place, values) {
            self.page = Page::Done(Purchase {
                product: place,
                options: std::mem::take(&mut self.chosen),
                reward,
            });
        }
    }

    fn shown(&self, page: usize) -> &[u32] {
        let first = page
            .saturating_sub(1)
            .saturating_mul(HITS_PER_PAGE)
            .min(self.hits.len());
        let last = first.saturating_add(HITS_PER_PAGE).min(self.hits.len());
        self.hits.get(first..last).unwrap_or_default()
    }

    /// The texts of the page shown, in order.
    pub fn texts<'a>(&'a self, shop: &'a Shop, goal: &'a Goal) -> Vec<Cow<'a, str>> {
        let catalogue = shop.catalogue();
        if let Page::Done(purchase) = &self.page {
            return done(catalogue, purchase);
        }
        let mut page = Texts(Vec::with_capacity(48));
        if self.page == Page::Start {
            page.fixed("WebShop");
        }
        page.fixed("Instruction:");
        page.content(&goal.instruction);
        match self.page {
            Page::Start => page.fixed("Search"),
            Page::Results(number) => {
                page.fixed(BACK_TO_SEARCH);
                page.owned(format!("Page {number} (Total results: {})", self.hits.len()));
                if number > 1 {
                    page.fixed(PREVIOUS);
                }
                page.fixed(NEXT);
                for product in self
                    .shown(number)
                    .iter()
                    .filter_map(|&place| catalogue.product(place as usize))
                {
                    page.content(&product.asin);
                    page.content(&product.title);
                    page.owned(product.price.tag());
                }
            }
            Page::Item(place) => {
                page.fixed(BACK_TO_SEARCH);
                page.fixed(PREVIOUS);
                if let Some(product) = catalogue.product(place) {
                    page.item(product);
                }
            }
            Page::Details(place, details) => {
                page.fixed(BACK_TO_SEARCH);
                page.fixed(PREVIOUS);
                if let Some(product) = catalogue.product(place) {
                    match details {
                        Details::Description => page.content(&product.description),
                        Details::Features => product.bullets.iter().for_each(|bullet| page.bullet(bullet)),
                        Details::Reviews => {}
                    }
                }
            }
            Page::Done(_) => {}
        }
        page.0
    }

    /// What verl-agent's wrapper shows a policy of the page: the texts after the instruction, each in quotes; a page
    /// without the instruction (the last one) as it is.
    pub(crate) fn observation(&self, shop: &Shop, goal: &Goal) -> String {
        let texts = self.texts(shop, goal);
        let task = texts.iter().position(|text| *text == goal.instruction.trim());
        let Some(after) = task.and_then(|task| texts.get(task + 1..)) else {
            return texts.join(SEPARATOR);
        };
        let mut shown = String::with_capacity(after.iter().map(|text| text.len() + 9).sum());
        for text in after {
            if !shown.is_empty() {
                shown.push_str(SEPARATOR);
            }
            shown.push('\'');
            shown.push_str(text);
            shown.push('\'');
        }
        shown
    }

    /// `search[<your query>]` where there is a search bar, then a click on everything that can be clicked; among them
    /// `click[search]`, which does nothing, as in the reference.
    pub(crate) fn admissible_actions(&self, shop: &Shop) -> Vec<String> {
        let search = self.has_search_bar().then(|| "search[<your query>]".to_owned());
        let clickables = self.clickables(shop);
        search
            .into_iter()
            .chain(clickables.iter().map(|text| format!("click[{text}]")))
            .collect()
    }

    /// What can be clicked on the page shown, in the original's order, each text once. Empty after the purchase.
    pub fn clickables(&self, shop: &Shop) -> Vec<String> {
        let catalogue = shop.catalogue();
        match &self.page {
            Page::Start => vec!["search".to_owned()],
            Page::Results(page) => {
                let shown = self
                    .shown(*page)
                    .iter()
                    .filter_map(|&place| catalogue.product(place as usize));
                ["back to search"]
                    .into_iter()
                    .chain((*page > 1).then_some("< prev"))
                    .chain(["next >"])
                    .map(str::to_owned)
                    .chain(shown.map(|product| product.asin.to_lowercase()))
                    .collect()
            }
            Page::Item(place) => {
                let mut texts: Vec<String> = [
                    "back to search",
                    "< prev",
                    "description",
                    "features",
                    "reviews",
                    "buy now",
                ]
                .map(str::to_owned)
                .into();
                let groups = catalogue
                    .product(*place)
                    .map_or(&[] as &[_], |product| &product.options);
                for value in groups.iter().flat_map(|group| &group.values) {
                    if !texts.contains(value) {
                        texts.push(value.clone());
                    }
                }
                texts
            }
            Page::Details(..) => ["back to search", "< prev"].map(str::to_owned).into(),
            Page::Done(_) => Vec::new(),
        }
    }
}

/// The texts of a page as they are put together.
struct Texts<'a>(Vec<Cow<'a, str>>);

impl<'a> Texts<'a> {
    fn fixed(&mut self, text: &'static str) {
        self.0.push(Cow::Borrowed(text));
    }

    fn owned(&mut self, text: String) {
        self.0.push(Cow::Owned(text));
    }

    /// Text of a product: an empty one makes no node of its page.
    fn content(&mut self, text: &'a str) {
        if !text.is_empty() {
            self.bullet(text);
        }
    }

    /// Text of a product that is there even when empty. White space with a line break in it is part of the layout and
    /// dropped.
    fn bullet(&mut self, text: &'a str) {
        let inner = strip(text);
        if !inner.is_empty() || !text.contains('\n') {
            self.0.push(Cow::Borrowed(inner));
        }
    }

    fn item(&mut self, product: &'a Product) {
        for group in &product.options {
            self.content(&group.name);
            for value in &group.values {
                self.content(value);
            }
        }
        self.content(&product.title);
        self.owned(format!("Price: {}", product.price.tag()));
        for text in ["Rating: N.A.", "Description", "Features", "Reviews", "Buy Now"] {
            self.fixed(text);
        }
    }
}

/// The page after a purchase, hidden parts included, as the original's text mode shows it.
fn done<'a>(catalogue: &'a Catalogue, purchase: &'a Purchase) -> Vec<Cow<'a, str>> {
    let mut page = Texts(Vec::with_capacity(32));
    let fixed = |page: &mut Texts<'a>, texts: &[&'static str]| {
        for text in texts {
            page.fixed(text);
        }
    };
    let thanks = [
        "Thank you for shopping with us!",
        "Your code:",
        "None",
        "(Paste it in your MTurk interface.)",
        "Purchased",
        "asin",
    ];
    fixed(&mut page, &thanks);
    page.content(
        catalogue
            .product(purchase.product)
            .map_or("", |product| &product.asin),
    );
    page.fixed("options");
    let options = purchase
        .options
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()));
    page.owned(json_text(options));
    let fields = [
        "attrs",
        "None",
        "category",
        "None",
        "query",
        "None",
        "product category",
        "None",
    ];
    fixed(&mut page, &fields);
    // `instuction` is the original's spelling.
    let target = [
        "Target",
        "asin",
        "options",
        "attrs",
        "price upper",
        "instuction text",
        "category",
        "product category",
        "query",
        "Goal",
        "None",
        "Reward",
        "Your score (min 0.0, max 1.0)",
    ];
    fixed(&mut page, &target);
    page.owned(float_text(purchase.reward.score));
    fixed(&mut page, &["Reward Details", "None"]);
    page.0
}
