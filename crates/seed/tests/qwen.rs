//! The paper's configurations as a person runs them: demonstrations, `seed sft`, `seed train`, on random weights in the
//! layout of each Qwen model.
//!
//! Overrides replace only what a small machine and absent data force; [`Case`] lists them. With `SEED_QWEN3` the models
//! have Qwen3's own tokenizer (which Qwen2.5 shares but for four tokens), else a small one with the same special tokens.
//! With `SEED_SHARED` the worlds are ALFWorld and WebShop, else the generated ones.

#![allow(clippy::print_stdout, reason = "a skipped test says so")]
#![expect(clippy::unwrap_used, reason = "the helpers of these tests fail as tests do")]

mod common;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Child;

use common::{finish, lay_out_games, listening, program, shared_data};
use seed_env::Split;
use seed_model::{
    ChatTemplate, DecoderConfig, ElementType, ModelDirectory, Parameters, ShardOptions, Tokenizer,
    load_directory, save_directory, train_byte_level_bpe,
};
use seed_random::{Draw, RandomKey};
use seed_rollout::{FinishKind, Trajectory};
use seed_run::{read_json_lines, write_json_lines};
use seed_train::config::{Loaded, TrainConfig, differences};
use seed_train::examples::{ExampleRecord, Role, read_examples};
use seed_train::policy::Policy;
use seed_train::trainer::{batch, options};
use serde_json::{Value, json};

/// Qwen2.5's turns, with the system message that its template puts where there is none.
const QWEN2_TEMPLATE: &str = "\
{%- if messages[0].role != 'system' %}\
{{- '<|im_start|>system\\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>\\n' }}\
{%- endif %}\
{%- for m in messages %}{{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{%- endfor %}\
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}";

/// Qwen3's: earlier thinking is left out, and the answer begins behind an empty thought where thinking is off.
const QWEN3_TEMPLATE: &str = "\
{%- for m in messages %}\
{%- set text = m.content.split('</think>')[-1].lstrip('\\n') if m.role == 'assistant' else m.content %}\
{{- '<|im_start|>' + m.role + '\\n' + text + '<|im_end|>\\n' }}\
{%- endfor %}\
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}\
{%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}\
{%- endif %}";

/// What the models are taught to write wherever they are asked: a skill and an action. They learn the skill in seconds, which
/// stands first, so that every term of the loss has tokens; the action they mostly get wrong.
const ANSWER: &str = "{\"episode_skill\":\"Go on.\"}<think>a</think><action>look</action>";

/// The same with an action of the search world.
const SEARCHING_ANSWER: &str =
    "{\"episode_skill\":\"Go on.\"}<think>a</think><action>look</action><search>tea</search>";

const SPECIAL: [&str; 3] = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"];

/// A published model.
#[derive(Clone, Copy)]
struct Published {
    /// As the names of the configurations end.
    name: &'static str,
    model_type: &'static str,
    hidden_size: u64,
    intermediate_size: u64,
    layers: u64,
    query_heads: u64,
    key_value_heads: u64,
    /// Stated by Qwen3 alone.
    head_dim: Option<u64>,
    vocabulary_size: u64,
    positions: u64,
    tied: bool,
}

const QWEN25_3B: Published = Published {
    name: "qwen2.5-3b",
    model_type: "qwen2",
    hidden_size: 2048,
    intermediate_size: 11_008,
    layers: 36,
    query_heads: 16,
    key_value_heads: 2,
    head_dim: None,
    vocabulary_size: 151_936,
    positions: 32_768,
    tied: true,
};

const QWEN25_7B: Published = Published {
    name: "qwen2.5-7b",
    model_type: "qwen2",
    hidden_size: 3584,
    intermediate_size: 18_944,
    layers: 28,
    query_heads: 28,
    key_value_heads: 4,
    head_dim: None,
    vocabulary_size: 152_064,
    positions: 32_768,
    tied: false,
};

const QWEN3_1_7B: Published = Published {
    name: "qwen3-1.7b",
    model_type: "qwen3",
    hidden_size: 2048,
    intermediate_size: 6144,
    layers: 28,
    query_heads: 16,
    key_value_heads: 8,
    head_dim: Some(128),
    vocabulary_size: 151_936,
    positions: 40_960,
    tied: true,
};

impl Published {
    /// The same structure in 2 narrow layers: heads of 4 instead of 128, and as few as their ratio allows.
    fn shrunk(self, vocabulary_size: u64) -> Self {
        let key_value_heads = if self.model_type == "qwen3" { 4 } else { 1 };
        let query_heads = self.query_heads / self.key_value_heads * key_value_heads;
        Self {
            hidden_size: 4 * query_heads,
            intermediate_size: self.intermediate_size * 4 * query_heads / self.hidden_size,
            layers: 2,
            query_heads,
            key_value_heads,
            head_dim: self.head_dim.map(|_| 4),
            vocabulary_size,
            ..self
        }
    }

    /// `config.json` as published, with these ids of `<|endoftext|>` and `<|im_end|>`.
    fn config(self, end_of_text: u32, end_of_turn: u32) -> Value {
        let mut config = json!({
            "architectures": [if self.model_type == "qwen3" { "Qwen3ForCausalLM" } else { "Qwen2ForCausalLM" }],
            "attention_dropout": 0.0,
            "bos_token_id": end_of_text,
            "eos_token_id": end_of_turn,
            "hidden_act": "silu",
            "hidden_size": self.hidden_size,
            "initializer_range": 0.02,
            "intermediate_size": self.intermediate_size,
            "max_position_embeddings": self.positions,
            "max_window_layers": self.layers,
            "model_type": self.model_type,
            "num_attention_heads": self.query_heads,
            "num_hidden_layers": self.layers,
            "num_key_value_heads": self.key_value_heads,
            "rms_norm_eps": 1e-6,
            "rope_theta": 1_000_000.0,
            "sliding_window": if self.model_type == "qwen3" { Value::Null } else { json!(32_768) },
            "tie_word_embeddings": self.tied,
            "torch_dtype": "bfloat16",
            "transformers_version": "4.43.1",
            "use_cache": true,
            "use_sliding_window": false,
            "vocab_size": self.vocabulary_size,
        });
        if let Some(head_dim) = self.head_dim {
            config["head_dim"] = json!(head_dim);
            config["attention_bias"] = json!(false);
            config["rope_scaling"] = Value::Null;
        }
        config
    }
}

/// Files of one test.
struct Place {
    folder: tempfile::TempDir,
    servers: Vec<Child>,
}

impl Drop for Place {
    fn drop(&mut self) {
        for server in &mut self.servers {
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}

/// A configuration with what its run cannot do without here.
struct Case {
    config: &'static str,
    /// Key and value of overrides that absent data force.
    data: Vec<(&'static str, String)>,
    /// Overrides under which the world is played by script.
    demonstrated: Vec<(&'static str, String)>,
}

/// What a small machine forces.
const SMALL: [(&str, &str); 8] = [
    ("world.max_steps", "2"),
    ("rollout.tasks_per_iteration", "2"),
    ("rollout.samples_per_task", "2"),
    ("rollout.max_response_tokens", "48"),
    ("seed.max_analysis_tokens", "48"),
    ("algorithm.iterations", "2"),
    ("evaluation.tasks", "1"),
    // Every row is scored again, not one in a hundred.
    ("rollout.self_check_share", "1.0"),
];

fn shipped(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../configs")
        .join(format!("{name}.toml"))
}

fn run(arguments: &[&str], set: &[(&str, String)]) -> String {
    let mut command = program();
    command.args(arguments);
    for (key, value) in set {
        command.arg("--set").arg(format!("{key}={value}"));
    }
    let ended = finish(&mut command);
    assert_eq!(ended.code, Some(0), "{arguments:?}: {}", ended.errors);
    ended.output
}

impl Place {
    fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
            servers: Vec::new(),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The paper's first world: a dozen of the original's games, or generated households.
    fn alfworld(&self, config: &'static str) -> Case {
        let Some(shared) = shared_data() else {
            let world = vec![("world.name", "household-full".to_owned())];
            return Case {
                config,
                data: world.clone(),
                demonstrated: world,
            };
        };
        let root = self.path("alfworld");
        if !root.exists() {
            let splits = [
                "train",
                "train",
                "train",
                "valid_seen",
                "valid_unseen",
                "valid_unseen",
            ];
            lay_out_games(&shared, &splits, &root);
        }
        let data = vec![("world.data", root.display().to_string())];
        let mut demonstrated = data.clone();
        demonstrated.push(("world.name", "alfworld".to_owned()));
        Case {
            config,
            data,
            demonstrated,
        }
    }

    /// The second: its thousand products, or generated ones.
    fn webshop(&self, config: &'static str) -> Case {
        let Some(shared) = shared_data() else {
            let world = vec![("world.name", "shop".to_owned())];
            return Case {
                config,
                data: world.clone(),
                demonstrated: world,
            };
        };
        let files = shared.parent().unwrap().join("webshop");
        let root = self.path("webshop");
        fs_err::create_dir_all(&root).unwrap();
        for (from, to) in [
            (
                "items_shuffle_1000.reconstructed.json.gz",
                "items_shuffle_1000.json.gz",
            ),
            ("items_ins_v2_1000.json", "items_ins_v2_1000.json"),
        ] {
            fs_err::copy(files.join(from), root.join(to)).unwrap();
        }
        let data = vec![("world.data", root.display().to_string())];
        let mut demonstrated = data.clone();
        demonstrated.push(("world.name", "webshop".to_owned()));
        Case {
            config,
            data,
            demonstrated,
        }
    }

    /// The third, with a few questions in the layout of Search-R1 and a server of a few passages in wiki-18's place.
    fn search(&mut self, config: &'static str) -> Case {
        let root = self.path("questions");
        fs_err::create_dir_all(&root).unwrap();
        let question = |source: &str, question: &str, answer: &str| json!({"question": question, "golden_answers": [answer], "data_source": source});
        let questions = [
            question("nq", "which city is the capital of italy", "Rome"),
            question("hotpotqa", "which drink is made of leaves", "tea"),
            question("nq", "who painted the ceiling", "Michelangelo"),
        ];
        let unseen = question("bamboogle", "Who wrote The Silent Harbour?", "Ada Corenford");
        write_json_lines(&root.join("train.jsonl"), &questions).unwrap();
        write_json_lines(&root.join("test.jsonl"), [&questions[0], &unseen]).unwrap();
        let passages = self.path("passages.jsonl");
        let passage = |id: usize, title: &str, text: &str| json!({"id": id.to_string(), "contents": format!("\"{title}\"\n{text}")});
        let served = [
            passage(0, "Rome", "The capital of Italy."),
            passage(1, "Tea", "A hot drink made of leaves."),
            passage(2, "The Silent Harbour", "A novel by Ada Corenford."),
        ];
        write_json_lines(&passages, &served).unwrap();
        let (server, line) = listening(&["retrieve", "serve", passages.to_str().unwrap()]);
        self.servers.push(server);
        let url = line.strip_prefix("3 passages at ").unwrap().to_owned();
        Case {
            config,
            data: vec![
                ("world.data", root.display().to_string()),
                ("search.urls", format!("[{url:?}]")),
            ],
            // Nobody answers questions from files by script.
            demonstrated: vec![("world.name", "knowledge".to_owned())],
        }
    }

    /// A turn and an analysis of a world, in the wording of its configuration, with the answer that is taught.
    fn demonstrations(&self, case: &Case, taught: &str) -> Vec<ExampleRecord> {
        let config = Loaded::<TrainConfig>::from_file(&shipped(case.config), &[])
            .unwrap()
            .config;
        let out = self.path(&format!("{}.jsonl", case.config));
        let file = self.path("demonstrations.toml");
        fs_err::write(&file, "").unwrap();
        let mut set = case.demonstrated.clone();
        set.extend([
            ("world.context", "windowed".to_owned()),
            ("world.history_length", config.world.history_length.to_string()),
            ("world.max_steps", "3".to_owned()),
            ("demonstrations.examples", "12".to_owned()),
            ("demonstrations.act_with_skill_share", "0".to_owned()),
            ("demonstrations.act_with_other_skill_share", "0".to_owned()),
            ("demonstrations.out", out.display().to_string()),
        ]);
        run(&["demonstrate", file.to_str().unwrap()], &set);
        let records = read_examples(&out).unwrap();
        let of = |kind: &str| {
            let mut record = records.iter().find(|record| record.kind == kind).unwrap().clone();
            let answer = record.messages.last_mut().unwrap();
            assert_eq!(answer.role, Role::Assistant);
            taught.clone_into(&mut answer.content);
            record
        };
        vec![of("act"), of("analyse")]
    }

    /// A folder as the hub has it, with random weights.
    fn random(&self, model: Published, records: &[ExampleRecord]) -> PathBuf {
        let (tokenizer, template) = tokenizer(model, records);
        let id = |token: &str| tokenizer.token_id(token).unwrap();
        let vocabulary_size = if std::env::var_os("SEED_QWEN3").is_some() {
            model.vocabulary_size
        } else {
            // Rows beyond the tokenizer, as the published ones have.
            tokenizer.vocabulary_size() as u64 + 37
        };
        let published = model
            .shrunk(vocabulary_size)
            .config(id(SPECIAL[0]), id(SPECIAL[2]));
        let config = DecoderConfig::from_json(&published.to_string()).unwrap();
        let mut wide = config.clone();
        // Narrow layers learn nothing in a few updates from the weights of wide ones.
        wide.initializer_range = 0.15;
        let mut parameters = Parameters::initialise(&wide, RandomKey::new(3));
        // What sharpens predictions, which so few numbers could not do.
        let last_norm = parameters.index_of("model.norm.weight").unwrap();
        parameters.get_mut(last_norm).fill(4.0);
        let mut generator = RandomKey::new(4).generator();
        for index in 0..parameters.len() {
            if parameters.shape(index).len() == 1 {
                for value in parameters.get_mut(index) {
                    *value += (0.2 * generator.unit() - 0.1) as f32;
                }
            }
        }
        let chat = ChatTemplate::new(&template, &tokenizer).unwrap();
        let directory = ModelDirectory::new(config, parameters, tokenizer, Some(chat)).unwrap();
        let place = self.path("published");
        let shards = ShardOptions {
            max_shard_bytes: 4 * directory.parameters.total() as u64 / 5,
            element_type: ElementType::Bf16,
        };
        save_directory(&place, directory.contents(), shards).unwrap();
        assert!(place.join("model.safetensors.index.json").is_file());
        let write =
            |name: &str, value: &Value| fs_err::write(place.join(name), format!("{value:#}")).unwrap();
        write("config.json", &published);
        let id = |token: &str| directory.tokenizer.token_id(token).unwrap();
        // Settings of generation that are for chats and must not reach a rollout.
        let generation = json!({
            "bos_token_id": id(SPECIAL[0]), "pad_token_id": id(SPECIAL[0]), "do_sample": true,
            "eos_token_id": [id(SPECIAL[2]), id(SPECIAL[0])],
            "repetition_penalty": 1.05, "temperature": 0.7, "top_p": 0.8, "top_k": 20,
            "transformers_version": "4.37.0",
        });
        write("generation_config.json", &generation);
        let text = fs_err::read_to_string(place.join("tokenizer_config.json")).unwrap();
        let mut options: Value = serde_json::from_str(&text).unwrap();
        options["chat_template"] = json!(template);
        options["eos_token"] = json!(SPECIAL[2]);
        options["pad_token"] = json!(SPECIAL[0]);
        write("tokenizer_config.json", &options);
        let _ = fs_err::remove_file(place.join("chat_template.jinja"));
        place
    }

    /// Fine-tunes on the demonstrations.
    fn fine_tune(&self, base: &Path, records: &[ExampleRecord]) -> PathBuf {
        let data = self.path("demonstrations.jsonl");
        write_json_lines(&data, records).unwrap();
        let config = self.path("sft.toml");
        // A small vocabulary makes an update cheap.
        let updates = if std::env::var_os("SEED_QWEN3").is_some() {
            24
        } else {
            72
        };
        let text = format!(
            "[run]\ndirectory = \"{}\"\n[model]\npath = \"{}\"\n[sft]\ndata = [\"{}\"]\nvalidation_fraction = 0.0\n\
             max_length = 160\nepochs = 36\nmax_updates = {updates}\nbatch_rows = 2\nlearning_rate = 3e-2\n",
            self.path("sft").display(),
            base.display(),
            data.display(),
        );
        fs_err::write(&config, text).unwrap();
        let output = run(&["sft", config.to_str().unwrap(), "--json"], &[]);
        let last: Value = serde_json::from_str(output.lines().last().unwrap()).unwrap();
        let summary = &last["summary"];
        assert_eq!(summary["training_examples"], records.len(), "{summary}");
        let metrics = lines(&self.path("sft/metrics.jsonl"));
        check_finite(&metrics);
        self.path("sft/model")
    }

    /// Trains as a configuration says and looks at what was done.
    fn train(&self, case: &Case, model: &Path, before: &Before) {
        let name = case.config;
        let directory = self.path(name);
        let mut set = vec![
            ("run.directory", directory.display().to_string()),
            ("model.path", model.display().to_string()),
        ];
        set.extend(SMALL.map(|(key, value)| (key, value.to_owned())));
        set.extend(case.data.clone());
        run(&["train", shipped(name).to_str().unwrap(), "--json"], &set);

        // Nothing but the overrides is other than what is shipped.
        let shipped = Loaded::<TrainConfig>::from_file(&shipped(name), &[])
            .unwrap()
            .config;
        let resolved = directory.join("config.resolved.toml");
        let config = Loaded::<TrainConfig>::from_file(&resolved, &[]).unwrap().config;
        let changed: BTreeSet<String> = differences(&shipped, &config)
            .into_iter()
            .map(|difference| difference.key)
            .collect();
        let asked: BTreeSet<String> = set.iter().map(|(key, _)| (*key).to_owned()).collect();
        assert_eq!(changed, asked, "{name}");

        assert!(!config.model.thinking);
        let metrics = lines(&directory.join("metrics.jsonl"));
        assert_eq!(metrics.len(), 2, "{name}");
        check_finite(&metrics);
        for (record, iteration) in metrics.iter().zip(1..) {
            let value = |metric: &str| record["metrics"][metric].as_f64().unwrap();
            let path = directory.join(format!("trajectories/iteration-{iteration:06}.jsonl.zst"));
            let trajectories = trajectories(&path);
            assert_eq!(trajectories.len(), 4, "{name}");
            let rows = check_rows(&config, &before.policy, &trajectories);
            assert_eq!(value("policy/rows"), rows as f64, "{name}");
            assert_eq!(value("self_check/rows"), rows as f64, "{name}");
            assert_eq!(value("policy/updates"), 1.0, "{name}");
            assert_eq!(
                value("policy/learning_rate"),
                config.optimiser.learning_rate,
                "{name}"
            );
            assert_eq!(value("analysis/requests"), 4.0, "{name}");
            // Every term of the loss has something to say.
            for metric in [
                "analysis/accepted_share",
                "seed/row_share",
                "policy/gradient_norm",
            ] {
                assert!(value(metric) > 0.0, "{name}: `{metric}`");
            }
        }
        let evaluated = metrics[1]["metrics"].as_object().unwrap();
        for split in &config.evaluation.splits {
            let split = Split::from(*split).name();
            assert_eq!(evaluated[&format!("evaluation/{split}/episodes")], 1.0, "{name}");
        }
        check_written(&directory.join("checkpoints/step-00000002/model"), before);
    }
}

fn lines(path: &Path) -> Vec<Value> {
    read_json_lines(path).unwrap().map(Result::unwrap).collect()
}

fn trajectories(path: &Path) -> Vec<Trajectory> {
    read_json_lines(path).unwrap().map(Result::unwrap).collect()
}

fn check_finite(metrics: &[Value]) {
    assert!(!metrics.is_empty());
    for record in metrics {
        for (name, value) in record["metrics"].as_object().unwrap() {
            // What is not finite is written as null.
            assert!(value.as_f64().is_some_and(f64::is_finite), "`{name}` is {value}");
        }
    }
}

/// The tokenizer and chat template of a model.
fn tokenizer(model: Published, records: &[ExampleRecord]) -> (Tokenizer, String) {
    let is_third = model.model_type == "qwen3";
    let own = if is_third { QWEN3_TEMPLATE } else { QWEN2_TEMPLATE };
    let Some(folder) = std::env::var_os("SEED_QWEN3").map(PathBuf::from) else {
        println!(
            "skipped: SEED_QWEN3 names no folder with Qwen3's tokenizer.json; a small one stands in for it"
        );
        let texts = records.iter().flat_map(|record| &record.messages);
        let texts = texts.map(|message| message.content.as_str());
        return (
            train_byte_level_bpe(texts, 800, &SPECIAL).unwrap(),
            own.to_owned(),
        );
    };
    let read = |name: &str| fs_err::read_to_string(folder.join(name)).unwrap();
    let options: Value = serde_json::from_str(&read("tokenizer_config.json")).unwrap();
    let mut options = options.as_object().unwrap().clone();
    let theirs = options.remove("chat_template").unwrap();
    let template = if is_third { theirs.as_str().unwrap() } else { own };
    let tokenizer = Tokenizer::from_json_with_options(&read("tokenizer.json"), options).unwrap();
    (tokenizer, template.to_owned())
}

/// The rows of an update: their ids are those that were sampled, after the prompt that the template makes. Returns their
/// number.
fn check_rows(config: &TrainConfig, policy: &Policy, trajectories: &[Trajectory]) -> usize {
    let advantages = options::advantage_options(&config.advantage);
    let (rows, _) = batch::build(trajectories, &advantages, None).unwrap();
    let steps: Vec<_> = trajectories
        .iter()
        .flat_map(|trajectory| &trajectory.steps)
        .collect();
    assert_eq!(rows.len(), steps.len(), "one row a step");
    let end = policy.tokenizer.token_id(SPECIAL[2]).unwrap();
    let opening = policy.conversation.opening("");
    let generation_prompt = policy.tokenizer.decode(&opening, false);
    let generation_prompt = generation_prompt.rsplit_once("<|im_end|>\n").unwrap().1;
    let thought = if policy.decoder.config().query_key_norm {
        "<think>\n\n</think>\n\n"
    } else {
        ""
    };
    assert_eq!(generation_prompt, format!("<|im_start|>assistant\n{thought}"));
    for (row, step) in rows.iter().zip(steps) {
        let ids: Vec<u32> = row
            .scored
            .iter()
            .map(|&position| row.sequence.tokens[position as usize])
            .collect();
        assert_eq!(ids, step.response_ids);
        assert_eq!(
            row.sequence.tokens,
            [&step.prompt_ids[..], &step.response_ids].concat()
        );
        assert_eq!(row.old, step.log_probs);
        assert!(row.mask.iter().all(|&trains| trains));
        let whole = policy.conversation.opening(&step.prompt_text);
        let limit = config.rollout.max_prompt_tokens;
        assert_eq!(step.prompt_ids, whole[whole.len().saturating_sub(limit)..]);
        assert_eq!(step.prompt_ids_truncated, whole.len().saturating_sub(limit));
        assert!(ids.len() <= config.rollout.max_response_tokens);
        let stops = ids.iter().position(|id| policy.end_tokens.contains(id));
        match step.finish {
            FinishKind::Stop => assert_eq!(stops, Some(ids.len() - 1)),
            _ => assert_eq!((stops, ids.len()), (None, config.rollout.max_response_tokens)),
        }
        // Qwen's turns end with `<|im_end|>`, whose id ends nothing else.
        assert!(policy.end_tokens.contains(&end));
    }
    rows.len()
}

/// What a training run begins from.
struct Before {
    /// The random weights.
    published: ModelDirectory,
    /// Their `config.json`.
    config: Value,
    /// The fine-tuned ones.
    policy: Policy,
}

fn config_file(folder: &Path) -> Value {
    serde_json::from_str(&fs_err::read_to_string(folder.join("config.json")).unwrap()).unwrap()
}

/// The trained model is one of the same family, with other weights.
fn check_written(written: &Path, before: &Before) {
    let found = load_directory(written).unwrap();
    let published = &before.published;
    assert_eq!(found.config, published.config);
    assert_eq!(found.end_tokens, published.end_tokens);
    assert_eq!(found.end_tokens.len(), 2, "`<|im_end|>` and `<|endoftext|>`");
    assert_eq!(
        found.tokenizer.to_json().unwrap(),
        published.tokenizer.to_json().unwrap()
    );
    let names = |model: &ModelDirectory| -> Vec<String> {
        model
            .parameters
            .iter()
            .map(|tensor| tensor.name.to_owned())
            .collect()
    };
    assert_eq!(names(&found), names(published));
    let has = |name: &str| names(&found).iter().any(|found| found.ends_with(name));
    let config = &found.config;
    assert_eq!(has("q_proj.bias"), config.attention_bias);
    assert_eq!(has("q_norm.weight"), config.query_key_norm);
    assert_ne!(has("lm_head.weight"), config.tied_embeddings);
    let tuned = before.policy.decoder.parameters().digest();
    assert_ne!(found.parameters.digest(), tuned);
    assert_ne!(tuned, published.parameters.digest());
    let written = config_file(written);
    for key in [
        "architectures",
        "model_type",
        "vocab_size",
        "hidden_size",
        "num_attention_heads",
        "num_key_value_heads",
        "tie_word_embeddings",
        "max_position_embeddings",
        "rope_theta",
        "use_sliding_window",
        "bos_token_id",
        "eos_token_id",
    ] {
        assert_eq!(written[key], before.config[key], "`{key}`");
    }
}

/// The whole way of one model through the worlds of its configurations.
fn check(model: Published, place: &Place, cases: &[Case]) {
    let searches = cases.iter().any(|case| case.config.starts_with("search-qa"));
    let taught = if searches { SEARCHING_ANSWER } else { ANSWER };
    let records: Vec<ExampleRecord> = cases
        .iter()
        .flat_map(|case| place.demonstrations(case, taught))
        .collect();
    let base = place.random(model, &records);
    let tuned = place.fine_tune(&base, &records);
    let before = Before {
        published: load_directory(&base).unwrap(),
        config: config_file(&base),
        policy: Policy::load(&tuned, false).unwrap(),
    };
    for case in cases {
        assert!(case.config.ends_with(model.name));
        place.train(case, &tuned, &before);
    }
}

#[test]
fn qwen2_5_3b() {
    let mut place = Place::new();
    let cases = [
        place.alfworld("alfworld-qwen2.5-3b"),
        place.webshop("webshop-qwen2.5-3b"),
        place.search("search-qa-qwen2.5-3b"),
    ];
    check(QWEN25_3B, &place, &cases);
}

#[test]
fn qwen2_5_7b() {
    let place = Place::new();
    let cases = [
        place.alfworld("alfworld-qwen2.5-7b"),
        place.webshop("webshop-qwen2.5-7b"),
    ];
    check(QWEN25_7B, &place, &cases);
}

#[test]
fn qwen3_1_7b() {
    let place = Place::new();
    let cases = [
        place.alfworld("alfworld-qwen3-1.7b"),
        place.webshop("webshop-qwen3-1.7b"),
    ];
    check(QWEN3_1_7B, &place, &cases);
}

/// Memory follows from `config.json` alone: whoever plans a machine needs no weights. docs/models.md has these numbers.
#[test]
fn what_the_published_sizes_need_is_known_without_weights() {
    let place = Place::new();
    let mut table = String::new();
    for (model, config) in [
        (QWEN3_1_7B, "alfworld-qwen3-1.7b"),
        (QWEN3_1_7B, "webshop-qwen3-1.7b"),
        (QWEN25_3B, "alfworld-qwen2.5-3b"),
        (QWEN25_3B, "webshop-qwen2.5-3b"),
        (QWEN25_3B, "search-qa-qwen2.5-3b"),
        (QWEN25_7B, "alfworld-qwen2.5-7b"),
        (QWEN25_7B, "webshop-qwen2.5-7b"),
    ] {
        let folder = place.path(model.name);
        fs_err::create_dir_all(&folder).unwrap();
        fs_err::write(
            folder.join("config.json"),
            model.config(151_643, 151_645).to_string(),
        )
        .unwrap();
        let mut command = program();
        command.arg("train").arg(shipped(config)).arg("--dry-run");
        command
            .arg("--set")
            .arg(format!("model.path={}", folder.display()));
        let ended = finish(&mut command);
        assert_eq!(ended.code, Some(0), "{}", ended.errors);
        table.push_str(config);
        table.push('\n');
        let memory = ended.errors.lines().filter(|line| line.starts_with("memory:"));
        for line in memory {
            table.push_str("  ");
            table.push_str(line);
            table.push('\n');
        }
    }
    insta::assert_snapshot!(table);
}
