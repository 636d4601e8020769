//! Shops as worlds: splits, episodes through the general interface, generated products, bad files.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod common;

use std::collections::BTreeSet;
use std::io::Write as _;
use std::sync::Arc;

use seed_env::{EnvironmentError, Split, TaskId, World};
use seed_random::RandomKey;
use seed_webshop::{
    Catalogue, CatalogueFiles, CatalogueSize, EpisodeReward, GoalKind, GoalSplit, Shop, Shopper,
    WebshopStyle, WebshopWorld, WorldOptions, generate_catalogue, play,
};
use serde_json::{Value, json};

fn generated(products: usize, seed: u64, kind: GoalKind) -> Shop {
    let catalogue = Arc::new(generate_catalogue(products, seed).unwrap());
    Shop::new(catalogue, kind, seed).unwrap()
}

fn world(shop: Shop, split: GoalSplit, reward: EpisodeReward) -> WebshopWorld {
    let options = WorldOptions {
        name: "shop".to_owned(),
        split,
        reward,
        style: WebshopStyle::Full,
    };
    WebshopWorld::new(Arc::new(shop), options)
}

/// Pinned: a generator that moves makes every recorded run irreproducible.
#[test]
fn generated_shops_are_seed_exact() {
    let shop = generated(60, 0, GoalKind::Synthetic);
    insta::assert_snapshot!(format!("{:#?}", shop.catalogue().product(7).unwrap()));
    let goals: Vec<String> = [0, 1, 100]
        .map(|index| shop.goal(index).unwrap().instruction)
        .into();
    insta::assert_snapshot!(goals.join("\n"));
    let human = generated(60, 0, GoalKind::Human);
    let goals: Vec<String> = [0, 1, 30]
        .map(|index| human.goal(index).unwrap().instruction)
        .into();
    insta::assert_snapshot!(goals.join("\n"));
    let digest = |seed| {
        world(
            generated(60, seed, GoalKind::Synthetic),
            GoalSplit::Order,
            EpisodeReward::Score,
        )
        .digest()
    };
    assert_eq!(digest(0), digest(0));
    assert_ne!(digest(0), digest(1));
}

#[test]
fn a_generated_product_depends_on_seed_and_index_alone() {
    let (few, many) = (
        generate_catalogue(20, 3).unwrap(),
        generate_catalogue(90, 3).unwrap(),
    );
    assert_eq!(few.products(), &many.products()[..20]);
}

#[test]
fn splits_share_no_goal_and_unseen_products_are_wanted_nowhere_else() {
    let world = world(
        generated(1_000, 0, GoalKind::Synthetic),
        GoalSplit::Product,
        EpisodeReward::Success,
    );
    let mut ids = BTreeSet::new();
    let mut products: Vec<BTreeSet<usize>> = Vec::new();
    for split in Split::ALL {
        let tasks = world.tasks(split);
        products.push(
            tasks
                .iter()
                .map(|task| world.goal(&task.id).unwrap().product)
                .collect(),
        );
        for task in tasks {
            assert!(task.id.as_str().starts_with(&format!("shop/{}/", split.name())));
            assert!(ids.insert(task.id.clone()), "{}", task.id);
        }
    }
    assert_eq!(ids.len(), world.shop().goal_count());
    let counts = Split::ALL.map(|split| world.tasks(split).len());
    assert_eq!((counts[1], counts[2]), (1_000, 500));
    assert!(counts[0] > 2_000 && counts[3] > 200, "{counts:?}");
    let (unseen, others) = products.split_last().unwrap();
    assert!(others.iter().all(|others| others.is_disjoint(unseen)));
    assert!(unseen.len() > 50, "{}", unseen.len());
}

#[test]
fn an_episode_through_the_general_interface() {
    for (kind, pay) in [(EpisodeReward::Success, 10.0), (EpisodeReward::Score, 10.0)] {
        let world = world(generated(60, 0, GoalKind::Synthetic), GoalSplit::Order, kind);
        let task = world.tasks(Split::Seen)[3].clone();
        let goal = world.goal(&task.id).unwrap();
        let mut environment = world.environment();
        assert!(matches!(
            environment.step("search[a]"),
            Err(EnvironmentError::NotReset)
        ));
        let opening = environment.reset(&task.id, 5).unwrap();
        assert_eq!(opening.text, "'Search'");
        assert_eq!(
            environment.admissible_actions(),
            ["search[<your query>]", "click[search]"]
        );
        assert_eq!(
            (environment.task_description(), environment.score()),
            (goal.instruction.clone(), Some(0.0))
        );
        let visit = play(world.shop(), &goal, Shopper::Oracle, &RandomKey::new(0), 15);
        let mut last: Option<bool> = None;
        for step in &visit.steps {
            assert!(last.is_none_or(|over| !over));
            let transition = environment.step(&step.action).unwrap();
            last = Some(transition.terminated);
            assert_eq!(transition.reward, if transition.terminated { pay } else { 0.0 });
            assert_eq!(transition.won, transition.terminated);
        }
        assert_eq!((last, environment.score()), (Some(true), Some(1.0)));
        let after = environment.step("search[tea]").unwrap();
        assert_eq!(
            (after.reward, after.terminated),
            (0.0, true),
            "nothing is earned twice"
        );
    }
}

#[test]
fn a_partial_purchase_earns_its_score_only_where_asked() {
    for (kind, expected) in [(EpisodeReward::Success, false), (EpisodeReward::Score, true)] {
        let world = world(generated(60, 0, GoalKind::Synthetic), GoalSplit::Order, kind);
        let with_options = |task: &&seed_env::Task| !world.goal(&task.id).unwrap().options.is_empty();
        let task = world
            .tasks(Split::Seen)
            .iter()
            .find(with_options)
            .unwrap()
            .clone();
        let goal = world.goal(&task.id).unwrap();
        let title = world.shop().catalogue().product(goal.product).unwrap();
        let mut environment = world.environment();
        environment.reset(&task.id, 0).unwrap();
        environment.step(&format!("search[{}]", title.title)).unwrap();
        environment
            .step(&format!("click[{}]", title.asin.to_lowercase()))
            .unwrap();
        let bought = environment.step("click[buy now]").unwrap();
        let score = environment.score().unwrap();
        assert!(
            bought.terminated && !bought.won && score > 0.0 && score < 1.0,
            "{score}"
        );
        assert_eq!(bought.reward, if expected { 10.0 * score } else { 0.0 });
    }
}

#[test]
fn ids_of_other_worlds_and_spellings_are_refused() {
    let world = world(
        generated(60, 0, GoalKind::Synthetic),
        GoalSplit::Order,
        EpisodeReward::Success,
    );
    let mut environment = world.environment();
    for id in [
        "shop/seen/3",
        "shop/train/000003",
        "shop/seen/999999",
        "webshop/seen/000003",
        "",
        "shop/seen/+00003",
    ] {
        let error = environment.reset(&TaskId::new(id), 0).unwrap_err();
        assert!(matches!(error, EnvironmentError::UnknownTask { .. }), "{id}");
    }
    environment.reset(&TaskId::new("shop/seen/000003"), 0).unwrap();
}

#[test]
fn shoppers_are_as_good_as_what_they_know() {
    let shop = generated(300, 1, GoalKind::Synthetic);
    let wins = |shop: &Shop, shopper: Shopper| {
        let goals = (0..100).map(|index| shop.goal(index).unwrap());
        goals
            .enumerate()
            .filter(|(index, goal)| {
                let key = RandomKey::new(9).with("goal", *index as u64);
                let visit = play(shop, goal, shopper, &key, 15);
                visit
                    .purchase
                    .is_some_and(|purchase| purchase.reward.score == 1.0)
            })
            .count()
    };
    let (oracle, noisy, random) = (
        wins(&shop, Shopper::Oracle),
        wins(&shop, Shopper::Noisy(0.2)),
        wins(&shop, Shopper::Random),
    );
    assert!(
        oracle >= 98 && noisy < oracle && noisy > 20 && random < 5,
        "{oracle} {noisy} {random}"
    );
    let human = generated(300, 1, GoalKind::Human);
    assert!(wins(&human, Shopper::Oracle) >= 98);
    if let Some(catalogue) = common::catalogue() {
        let oracle = wins(&common::shop(&catalogue, "synthetic_seed0"), Shopper::Oracle);
        assert!(oracle >= 90, "{oracle}");
    }
}

#[test]
fn special_searches_find_by_category_phrase_or_chance() {
    let shop = generated(90, 0, GoalKind::Synthetic);
    let goal = shop.goal(0).unwrap();
    let total = |query: &str| {
        let mut session = seed_webshop::Session::new(RandomKey::new(0));
        session.act(&shop, &goal, &format!("search[{query}]"));
        session
            .texts(&shop, &goal)
            .into_iter()
            .find(|text| text.starts_with("Page 1"))
            .unwrap()
            .into_owned()
    };
    assert_eq!(total("<c> beauty"), "Page 1 (Total results: 18)");
    assert_eq!(total("<q> herbal teas"), "Page 1 (Total results: 3)");
    assert_eq!(total("<r>"), "Page 1 (Total results: 50)");
    assert_eq!(total("<a> gluten free"), "Page 1 (Total results: 0)");
    assert_eq!(total("<c>"), "Page 1 (Total results: 0)");
}

struct Data(tempfile::TempDir);

impl Data {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn with(self, name: &str, content: &str) -> Self {
        fs_err::write(self.0.path().join(name), content).unwrap();
        self
    }

    fn compressed(self, name: &str, content: &str) -> Self {
        let file = fs_err::File::create(self.0.path().join(name)).unwrap();
        let mut encoder = flate2::write::GzEncoder::new(file, flate2::Compression::fast());
        encoder.write_all(content.as_bytes()).unwrap();
        encoder.finish().unwrap();
        self
    }

    fn read(&self) -> Result<Catalogue, String> {
        let files = CatalogueFiles::in_folder(self.0.path(), CatalogueSize::Small);
        files.and_then(|files| Catalogue::read(&files)).map_err(|error| {
            let source =
                std::error::Error::source(&error).map_or_else(String::new, |source| format!(": {source}"));
            let message = format!("{error}{source}").replace(&self.0.path().display().to_string(), "DATA");
            // Where in its line a JSON parser stops is its own affair.
            match message.split_once(" at line 1 column") {
                Some((what, _)) => what.to_owned(),
                None => message,
            }
        })
    }
}

fn record(asin: &str) -> Value {
    json!({
        "asin": asin, "name": "Blue Tea Pot", "full_description": "Holds tea.", "small_description": ["Big"],
        "pricing": "$20.0", "customization_options": {"Color": [{"value": "Blue"}]}, "category": "garden",
        "query": "tea pots", "product_category": "Home › Kitchen", "images": [], "brand": "x",
    })
}

#[test]
fn files_are_found_plain_or_compressed() {
    let products = json!([record("A1"), record("nan"), record("A1"), record("A2")]).to_string();
    let attributes = json!({"A1": {"attributes": ["big"], "instruction": "Find me big tea pots",
        "instruction_attributes": ["big"]}})
    .to_string();
    let data = Data::new()
        .compressed("items_shuffle_1000.json.gz", &products)
        .with("items_ins_v2_1000.json", &attributes)
        .with(
            "title_nouns.jsonl",
            "{\"asin\": \"A1\", \"nouns\": [\"tea\", \"pot\"]}\n\n",
        );
    let catalogue = data.read().unwrap();
    let asins: Vec<&str> = catalogue
        .products()
        .iter()
        .map(|product| product.asin.as_str())
        .collect();
    assert_eq!(asins, ["A1", "A2"], "records named nan and repeats do not count");
    assert_eq!(catalogue.products()[1].attributes, ["DUMMY_ATTR"]);
    assert_eq!(catalogue.titles_by_rule(), 1);
    let catalogue = Arc::new(catalogue);
    let shop = Shop::new(Arc::clone(&catalogue), GoalKind::Synthetic, 0).unwrap();
    assert_eq!(shop.goal_count(), 1);
    let error = Shop::new(catalogue, GoalKind::Human, 0)
        .map(drop)
        .unwrap_err()
        .to_string();
    assert_eq!(
        error,
        "the catalogue has no human goals; it needs products with instructions"
    );
}

#[test]
fn bad_files_are_named_with_the_place() {
    let attributes = "{}";
    let products = |list: &Value| Data::new().with("items_shuffle_1000.json", &list.to_string());
    let mut unnamed = record("A2");
    unnamed["name"] = Value::Null;
    for (data, expected) in [
        (
            Data::new(),
            "`DATA` has no `items_shuffle_1000.json` (nor `items_shuffle_1000.json.gz`); put WebShop's data files there, or \
             use the world `shop`, which needs none",
        ),
        (
            products(&json!([])),
            "`DATA` has no `items_ins_v2_1000.json` (nor `items_ins_v2_1000.json.gz`); put WebShop's data files there, or \
             use the world `shop`, which needs none",
        ),
        (
            products(&json!([record("A1"), unnamed])).with("items_ins_v2_1000.json", attributes),
            "`DATA/items_shuffle_1000.json`: product 1 (from 0): asin `A2`: `name` is missing",
        ),
        (
            products(&json!([record("A1"), 5])).with("items_ins_v2_1000.json", attributes),
            "`DATA/items_shuffle_1000.json`: product 1 (from 0): invalid type: integer `5`, expected struct Record",
        ),
        (
            products(&json!({"A1": 1})).with("items_ins_v2_1000.json", attributes),
            "`DATA/items_shuffle_1000.json` is not the JSON expected of it; it may be cut short, download it again: invalid \
             type: map, expected a list of products",
        ),
        (
            products(&json!([])).with("items_ins_v2_1000.json", "[]"),
            "`DATA/items_ins_v2_1000.json` is not the JSON expected of it; it may be cut short, download it again: invalid \
             type: sequence, expected a map",
        ),
        (
            products(&json!([record("A1")])).with(
                "items_ins_v2_1000.json",
                r#"{"A1": {"attributes": [], "instruction": "Find me"}}"#,
            ),
            "`DATA/items_shuffle_1000.json`: product 0 (from 0): asin `A1`: its instruction in the attribute file has no \
             `instruction_attributes`",
        ),
        (
            products(&json!([]))
                .with("items_ins_v2_1000.json", attributes)
                .with("title_nouns.jsonl", "{}"),
            "`DATA/title_nouns.jsonl`, line 1: not a JSON object with `asin` and `nouns`: missing field `asin`",
        ),
    ] {
        assert_eq!(data.read().map(drop).unwrap_err(), expected);
    }
}

#[test]
fn a_product_with_too_many_combinations_is_refused() {
    let values: Vec<Value> = (0..100)
        .map(|value| json!({"value": value.to_string()}))
        .collect();
    let mut product = record("A1");
    for name in ["a", "b", "c", "d", "e"] {
        product["customization_options"][name] = json!(values);
    }
    let attributes = json!({"A1": {"attributes": ["big"], "instruction": "Find me big tea pots",
        "instruction_attributes": ["big"]}});
    let data = Data::new()
        .with("items_shuffle_1000.json", &json!([product]).to_string())
        .with("items_ins_v2_1000.json", &attributes.to_string());
    let error = Shop::new(Arc::new(data.read().unwrap()), GoalKind::Synthetic, 0);
    let error = error.map(drop).unwrap_err().to_string();
    assert_eq!(
        error,
        "there are `10000000000` goals, more than the limit of `67108864`"
    );
}
