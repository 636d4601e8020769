//! Against recordings of the original Python environment on its 1,000 products.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod common;

use std::collections::BTreeMap;

use common::{RECORDINGS, catalogue, lines, shop, text};
use seed_webshop::{GoalOptions, Reward, reward, token_set_ratio, verify_transcripts};
use serde::Deserialize;
use serde_json::{Value, json};

fn options(options: &GoalOptions) -> Value {
    match options {
        GoalOptions::Named(pairs) => pairs
            .iter()
            .map(|(name, value)| (name.clone(), json!(value)))
            .collect(),
        GoalOptions::Values(values) => json!(values),
    }
}

fn assert_breakdown(reward: &Reward, recorded: &Value, what: &str) {
    let share = |met: usize, all: usize| met as f64 / all as f64;
    let all = (reward.attributes + reward.options + 1) as f64;
    let mut found = json!({
        "r_type": reward.kind,
        "r_att": share(reward.attributes_met, reward.attributes),
        "w_att": reward.attributes as f64 / all,
        "query_match": reward.query_match,
        "category_match": reward.category_match,
        "title_score": reward.title_score,
        "r_price": reward.price_met,
        "w_price": 1.0 / all,
    });
    if reward.options > 0 {
        found["r_option"] = json!(share(reward.options_met, reward.options));
        found["w_option"] = json!(reward.options as f64 / all);
    }
    let fields = |value: &Value| -> BTreeMap<String, Value> {
        value
            .as_object()
            .unwrap()
            .iter()
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect()
    };
    assert_eq!(fields(&found), fields(recorded), "{what}");
}

#[test]
fn products_are_cleaned_and_priced_as_recorded() {
    let Some(catalogue) = catalogue() else { return };
    assert_eq!(catalogue.titles_by_rule(), 0);
    let documents: Vec<Value> = lines("products_1k.documents.jsonl.gz");
    assert_eq!(catalogue.products().len(), documents.len());
    for (product, document) in catalogue.products().iter().zip(&documents) {
        let recorded = &document["product"];
        let groups: serde_json::Map<String, Value> = product
            .options
            .iter()
            .map(|group| (group.name.clone(), json!(group.values)))
            .collect();
        assert_eq!(
            json!([
                product.asin,
                product.title,
                product.description,
                product.bullets,
                product.price.tag(),
                Value::Object(groups),
                product.attributes,
                product.category,
                product.query,
                product.product_category,
            ]),
            json!([
                recorded["asin"],
                recorded["Title"],
                recorded["Description"],
                recorded["BulletPoints"],
                recorded["Price"],
                recorded["options"],
                recorded["Attributes"],
                recorded["category"],
                recorded["query"],
                recorded["product_category"],
            ])
        );
    }
    for (recording, _) in RECORDINGS {
        let shop = shop(&catalogue, recording);
        let prices: BTreeMap<String, f64> =
            serde_json::from_str(&text(&format!("golden_prices_{recording}.json"))).unwrap();
        assert_eq!(prices.len(), 1_000);
        for (asin, price) in prices {
            assert_eq!(shop.price(catalogue.place(&asin).unwrap()), Some(price), "{asin}");
        }
    }
}

#[test]
fn goals_are_drawn_as_recorded() {
    let Some(catalogue) = catalogue() else { return };
    for (recording, count) in RECORDINGS {
        let shop = shop(&catalogue, recording);
        let goals: Vec<Value> = lines(&format!("golden_goals_{recording}.jsonl.gz"));
        assert_eq!((shop.goal_count(), goals.len()), (count, count));
        for (index, recorded) in goals.iter().enumerate() {
            let goal = shop.goal(index).unwrap();
            assert_eq!(shop.goal_product(index), Some(goal.product));
            let product = catalogue.product(goal.product).unwrap();
            assert_eq!(
                json!([
                    index,
                    product.asin,
                    product.category,
                    product.query,
                    product.title,
                    product.product_category,
                    goal.instruction,
                    goal.attributes,
                    options(&goal.options),
                ]),
                json!([
                    recorded["idx"],
                    recorded["asin"],
                    recorded["category"],
                    recorded["query"],
                    recorded["name"],
                    recorded["product_category"],
                    recorded["instruction_text"],
                    recorded["attributes"],
                    recorded["goal_options"],
                ])
            );
            assert_eq!(Some(goal.price_upper), recorded["price_upper"].as_f64());
            assert_eq!(shop.goal_weight(index), recorded["weight"].as_f64(), "{index}");
        }
        assert_eq!(shop.goal(count), None);
    }
}

#[test]
fn episodes_go_as_recorded() {
    let Some(catalogue) = catalogue() else { return };
    let folder = common::folder().unwrap();
    let paths =
        RECORDINGS.map(|(recording, _)| folder.join(format!("golden_transcripts_{recording}.jsonl.gz")));
    let report = verify_transcripts(&paths, &catalogue).unwrap();
    assert!(
        report.is_exact(),
        "{} differences: {:#?}",
        report.differences,
        report.first_differences
    );
    assert_eq!((report.episodes, report.steps), (245, 2_150));
}

#[test]
fn a_difference_is_found_and_named() {
    let Some(catalogue) = catalogue() else { return };
    let recorded = text("golden_transcripts_human_seed0.jsonl.gz");
    let first = recorded.lines().next().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("changed.jsonl");
    let changed = first.replacen("\"has_search_bar\": true", "\"has_search_bar\": false", 1);
    fs_err::write(&path, format!("{changed}\n")).unwrap();
    let report = verify_transcripts(std::slice::from_ref(&path), &catalogue).unwrap();
    assert_eq!((report.episodes, report.differences), (1, 1));
    assert!(report.first_differences[0].ends_with(
        "changed.jsonl`, line 1: first list is (true, [\"search\"]), recorded (false, [\"search\"])"
    ));
    fs_err::write(&path, "{}\n").unwrap();
    let error = verify_transcripts(&[path], &catalogue).unwrap_err().to_string();
    assert!(
        error.ends_with("changed.jsonl`, line 1: not a recorded episode"),
        "{error}"
    );
}

#[test]
fn purchases_are_scored_as_recorded() {
    #[derive(Deserialize)]
    struct Case {
        goal_idx: usize,
        asin: String,
        options: BTreeMap<String, String>,
        price: f64,
        reward: f64,
        info: Value,
    }
    let Some(catalogue) = catalogue() else { return };
    let shop = shop(&catalogue, "synthetic_seed0");
    let cases: Vec<Case> = lines("reward_golden.jsonl.gz");
    assert_eq!(cases.len(), 4_000);
    for case in cases {
        let goal = shop.goal(case.goal_idx).unwrap();
        let bought = catalogue.place(&case.asin).unwrap();
        assert_eq!(shop.price(bought), Some(case.price));
        let found = reward(&shop, &goal, bought, case.options.values().map(String::as_str)).unwrap();
        assert_eq!(
            found.score, case.reward,
            "{} for goal {}",
            case.asin, case.goal_idx
        );
        assert_breakdown(&found, &case.info, &case.asin);
    }
}

#[test]
fn texts_are_compared_as_recorded() {
    if common::folder().is_none() {
        return;
    }
    let cases: Vec<(String, String, u8)> = lines("token_set_ratio_golden.jsonl.gz");
    assert_eq!(cases.len(), 3_000);
    for (left, right, score) in cases {
        assert_eq!(token_set_ratio(&left, &right), score, "{left} / {right}");
    }
}
