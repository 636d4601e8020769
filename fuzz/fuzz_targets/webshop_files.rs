//! WebShop's files: a list of products, their attributes, people's instructions, a table of title nouns; and actions.
#![no_main]

use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use seed_random::RandomKey;
use seed_webshop::{Catalogue, CatalogueFiles, GoalKind, Session, Shop};

fuzz_target!(|input: ([&[u8]; 4], [&str; 6])| {
    let (contents, actions) = input;
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str, content: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, content).unwrap();
        path
    };
    let [products, attributes, instructions, nouns] = contents;
    let files = CatalogueFiles {
        products: path("products.json", products),
        attributes: path("attributes.json", attributes),
        human_instructions: Some(path("instructions.json", instructions)),
        title_nouns: Some(path("nouns.jsonl", nouns)),
    };
    let Ok(catalogue) = Catalogue::read(&files) else { return };
    let catalogue = Arc::new(catalogue);
    for kind in [GoalKind::Synthetic, GoalKind::Human] {
        let Ok(shop) = Shop::new(Arc::clone(&catalogue), kind, 0) else { continue };
        let goal = shop.goal(0).unwrap();
        let mut session = Session::new(RandomKey::new(0));
        for action in actions {
            session.act(&shop, &goal, action);
            assert!(!session.texts(&shop, &goal).is_empty());
            for text in session.clickables(&shop).iter().take(20) {
                let mut next = session.clone();
                next.act(&shop, &goal, &format!("click[{text}]"));
                if let Some(purchase) = next.purchase() {
                    assert!((0.0..=1.0).contains(&purchase.reward.score));
                }
            }
        }
    }
});
