use super::*;

#[test]
fn scale_is_alpha_over_the_rank_or_its_root() {
    let options = |rank_stabilised| AdapterOptions {
        targets: Target::ALL.to_vec(),
        rank: 16,
        alpha: 8.0,
        rank_stabilised,
    };
    assert_eq!(options(false).scale(), 0.5);
    assert_eq!(options(true).scale(), 2.0);
}

#[test]
fn settings_out_of_range_are_named() {
    let options = AdapterOptions {
        targets: vec![Target::Key],
        rank: 2,
        alpha: 1.0,
        rank_stabilised: false,
    };
    let refused = |options: AdapterOptions| options.validated().unwrap_err().to_string();
    let no_targets = AdapterOptions {
        targets: Vec::new(),
        ..options.clone()
    };
    assert_eq!(
        refused(no_targets),
        "adapter: `targets` is empty, it must be at least one matrix"
    );
    let no_rank = AdapterOptions {
        rank: 0,
        ..options.clone()
    };
    assert_eq!(refused(no_rank), "adapter: `rank` is 0, it must be at least 1");
    let no_alpha = AdapterOptions {
        alpha: f64::NAN,
        ..options
    };
    assert_eq!(
        refused(no_alpha),
        "adapter: `alpha` is NaN, it must be a positive number"
    );
}

#[test]
fn names_are_those_of_peft() {
    for target in Target::ALL {
        assert_eq!(Target::named(target.name()), Some(target));
        assert_eq!(Target::ALL[target.index()], target);
    }
    assert_eq!(Target::named("lm_head"), None);
    assert_eq!(Target::Down.module(3), "model.layers.3.mlp.down_proj");
}
