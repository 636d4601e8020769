//! The command line's words. Each command's arguments say what they are for; nothing here does anything.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use seed_run::ProfileOptions;

/// Post-trains LLM agents with SEED: act, look back, write a skill, re-score, update.
#[derive(Parser, Debug)]
#[command(name = "seed", version, about, max_term_width = 100, propagate_version = true)]
pub(crate) struct Arguments {
    /// How progress and results are shown.
    #[command(flatten)]
    pub output: Output,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Args, Debug, Clone, Copy)]
pub(crate) struct Output {
    /// Print machine-readable JSON lines on standard output.
    #[arg(long, global = true)]
    pub json: bool,
    /// Print results only.
    #[arg(long, short, global = true)]
    pub quiet: bool,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Train the built-in small policy with GRPO and with SEED, side by side (about ten minutes on two cores).
    Demo(Demo),
    /// Train a policy: `algorithm.name` is `grpo` or `seed`.
    Train(Train),
    /// Play fixed panels with the plain prompt and report success with intervals.
    Eval(Eval),
    /// Let a policy play tasks and record its trajectories.
    Collect(Collect),
    /// Turn recorded trajectories into hindsight-skill records for fine-tuning.
    Annotate(Annotate),
    /// Record scripted demonstrations: noisy play, following skills, writing skills.
    Demonstrate(Demonstrate),
    /// Fine-tune a policy on prompt and response pairs, also from a random initialisation.
    Sft(Sft),
    /// Talk with a policy: one message a line, answered as it is generated.
    Chat(Chat),
    /// Convert a model in GGUF (llama.cpp's format) to a Hugging Face directory.
    Import(Import),
    /// Merge an adapter into its base: a model in the Hugging Face layout that needs no adapter.
    Merge(Merge),
    /// Put runs side by side: a table with intervals and a picture of the learning curves.
    Compare(Compare),
    /// Train a matrix of arms, bases and seeds; call it again to go on.
    Study(Study),
    /// Answer over HTTP with a model, in OpenAI's form.
    Serve(Serve),
    /// Look at the machine, a model, environment data and an endpoint, and say what is wrong and what to do.
    Doctor(Doctor),
    /// Play, measure, check or generate environments.
    #[command(subcommand)]
    Env(Env),
    /// Index passages, and serve them to whoever searches.
    #[command(subcommand)]
    Retrieve(Retrieve),
    /// Explain configuration keys.
    #[command(subcommand)]
    Config(Config),
}

/// A configuration file and changes to it.
#[derive(Args, Debug, Clone)]
pub(crate) struct ConfigFile {
    /// Configuration in TOML.
    pub config: PathBuf,
    /// Change a key: `--set rollout.temperature=0.7`. May be given more than once.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub set: Vec<String>,
}

#[derive(Args, Debug)]
pub(crate) struct Merge {
    /// The adapter's folder, in PEFT's layout.
    pub adapter: PathBuf,
    /// Folder to write the merged model to; must not exist.
    pub out: PathBuf,
    /// Folder of the base, when it is not where the adapter says.
    #[arg(long, value_name = "DIR")]
    pub base: Option<PathBuf>,
}

/// A trace of a training program.
#[derive(Args, Debug)]
pub(crate) struct Profiling {
    /// Write a trace of what runs when here (Chrome's trace format, for ui.perfetto.dev or chrome://tracing).
    #[arg(long, value_name = "FILE")]
    pub profile: Option<PathBuf>,
    /// Iterations (of `sft`: updates) in which the trace shows engine steps, packs and operations too; phases are
    /// shown to the end.
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub profile_iterations: u64,
}

impl Profiling {
    /// What to record; `iteration` is the name of the program's iterations.
    pub(crate) fn options(&self, iteration: &'static str) -> ProfileOptions {
        ProfileOptions {
            iteration,
            detailed_iterations: Some(self.profile_iterations),
            ..ProfileOptions::default()
        }
    }
}

#[derive(Args, Debug)]
pub(crate) struct Demo {
    /// Folder for the two runs.
    #[arg(long, default_value = "runs/demo")]
    pub directory: PathBuf,
    /// Seed of both arms.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Iterations of each arm; unset uses the configuration's.
    #[arg(long)]
    pub iterations: Option<usize>,
    /// Change a key of both arms.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub set: Vec<String>,
}

#[derive(Args, Debug)]
pub(crate) struct Train {
    #[command(flatten)]
    pub config: ConfigFile,
    /// Continue the run in `run.directory` from its newest whole checkpoint.
    #[arg(long)]
    pub resume: bool,
    /// Print every derived quantity and stop before the first episode.
    #[arg(long)]
    pub dry_run: bool,
    /// Also load the model, measure it for some seconds, and print how long the run takes at most.
    #[arg(long)]
    pub time_plan: bool,
    #[command(flatten)]
    pub profiling: Profiling,
}

#[derive(Args, Debug)]
pub(crate) struct Eval {
    #[command(flatten)]
    pub config: ConfigFile,
    /// Weights to evaluate: a Hugging Face folder, such as the `model` folder of a checkpoint; unset uses `model.path`.
    #[arg(long)]
    pub model: Option<PathBuf>,
    /// Write the played trajectories here (JSONL, zstd).
    #[arg(long)]
    pub trajectories: Option<PathBuf>,
    /// Write the result as JSON here.
    #[arg(long)]
    pub out: Option<PathBuf>,
    /// Also play with skills in the prompt, to measure what they are worth: a static library's, the policy's own, a
    /// perfect episode's, and another task's.
    #[arg(long)]
    pub with_skills: bool,
    /// Exit with status 1 when overall success on any panel is below this share.
    #[arg(long)]
    pub min: Option<f64>,
    /// Write a trace of what runs when here (Chrome's trace format, for ui.perfetto.dev or chrome://tracing).
    #[arg(long, value_name = "FILE")]
    pub profile: Option<PathBuf>,
}

#[derive(Args, Debug)]
pub(crate) struct Collect {
    #[command(flatten)]
    pub config: ConfigFile,
    /// Where the trajectories go (JSONL, zstd).
    #[arg(long)]
    pub out: PathBuf,
    /// Tasks to play, the first so many of the split.
    #[arg(long, default_value_t = 180)]
    pub tasks: usize,
    /// Split to play.
    #[arg(long, default_value = "train")]
    pub split: String,
    /// Write a trace of what runs when here (Chrome's trace format, for ui.perfetto.dev or chrome://tracing).
    #[arg(long, value_name = "FILE")]
    pub profile: Option<PathBuf>,
}

#[derive(Args, Debug)]
pub(crate) struct Annotate {
    #[command(flatten)]
    pub config: ConfigFile,
    /// Trajectories written by `seed collect`.
    #[arg(long)]
    pub trajectories: PathBuf,
    /// Where the fine-tuning records go (JSONL; a name ending in .zst is compressed).
    #[arg(long)]
    pub out: PathBuf,
    /// Who writes the skills.
    #[arg(long, value_enum, default_value_t = Annotator::Endpoint)]
    pub annotator: Annotator,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Annotator {
    /// The OpenAI-compatible endpoint of `[endpoint]`.
    Endpoint,
    /// The policy itself.
    Policy,
    /// Rules over the household's texts; no model.
    Rules,
}

#[derive(Args, Debug)]
pub(crate) struct Demonstrate {
    #[command(flatten)]
    pub config: ConfigFile,
}

#[derive(Args, Debug)]
pub(crate) struct Sft {
    #[command(flatten)]
    pub config: ConfigFile,
    /// Continue the run in `run.directory` from its newest whole checkpoint.
    #[arg(long)]
    pub resume: bool,
    #[command(flatten)]
    pub profiling: Profiling,
}

#[derive(Args, Debug)]
pub(crate) struct Chat {
    /// The model: a Hugging Face directory, a `.gguf` file, or `embedded:household-tiny`.
    pub model: PathBuf,
    /// Sampling temperature; 0 takes the most probable token.
    #[arg(long, default_value_t = 0.0)]
    pub temperature: f32,
    /// Sample from the most probable tokens that together have this share.
    #[arg(long, default_value_t = 1.0)]
    pub top_p: f32,
    /// Most tokens of one answer.
    #[arg(long, value_name = "N", default_value_t = 256)]
    pub max_new_tokens: usize,
    /// Seed of the drawn tokens.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Sets `enable_thinking` in the chat template.
    #[arg(long)]
    pub thinking: bool,
    /// Worker threads, 0 for one per core.
    #[arg(long, default_value_t = 0)]
    pub threads: usize,
}

#[derive(Args, Debug)]
pub(crate) struct Import {
    /// The model in GGUF.
    pub file: PathBuf,
    /// Directory to write, which must not exist.
    pub out: PathBuf,
    /// How the weights are written.
    #[arg(long, value_enum, default_value_t = WeightType::F32)]
    pub weights: WeightType,
    /// Replace the model directory that is there.
    #[arg(long)]
    pub force: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum WeightType {
    /// Exactly as they are computed with; four bytes each.
    F32,
    /// Rounded to 8 bits of precision; two bytes each.
    Bf16,
    /// Rounded to 11 bits of precision, in a smaller range; two bytes each.
    F16,
}

#[derive(Args, Debug)]
pub(crate) struct Compare {
    /// Run directories. Runs with equal `run.name` are seeds of one arm.
    #[arg(required = true)]
    pub runs: Vec<PathBuf>,
    /// Where the picture goes.
    #[arg(long, default_value = "compare.svg")]
    pub picture: PathBuf,
}

#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct Study {
    #[command(subcommand)]
    pub command: Option<StudyCommand>,
    /// The study in TOML: a configuration, and the arms, bases, seeds and panels.
    #[arg(value_name = "STUDY", required = true)]
    pub file: Option<PathBuf>,
    /// Run only cells of these arms: `--arms GRPO,SEED`. The report is of all that are there.
    #[arg(long, value_name = "ARM", value_delimiter = ',')]
    pub arms: Vec<String>,
    /// Print the matrix with what is done and what is left, and stop.
    #[arg(long)]
    pub dry_run: bool,
}

#[derive(Subcommand, Debug)]
pub(crate) enum StudyCommand {
    /// Write the report of a study: tables with intervals, and pictures.
    Report(StudyReport),
}

#[derive(Args, Debug)]
pub(crate) struct StudyReport {
    /// The study in TOML, or its directory.
    pub study: PathBuf,
    /// Folder of the report; unset is `report` in the study's directory.
    #[arg(long)]
    pub out: Option<PathBuf>,
}

#[derive(Args, Debug)]
pub(crate) struct Serve {
    /// Model to serve: a Hugging Face folder, such as the `model` folder of a checkpoint, a `.gguf` file, or
    /// `embedded:household-tiny`.
    pub model: PathBuf,
    /// Name under which clients ask for it; unset is the name of the folder or file.
    #[arg(long)]
    pub name: Option<String>,
    /// Where to listen; port 0 takes a free one.
    #[arg(long, default_value = "127.0.0.1:8000")]
    pub address: SocketAddr,
    /// Environment variable with the token that requests must carry; needed unless the address is a loopback one.
    #[arg(long, value_name = "VARIABLE")]
    pub token_env: Option<String>,
    /// Sequences generated at a time.
    #[arg(long, value_name = "N", default_value_t = 64)]
    pub sequences: usize,
    /// Sequences that may wait besides; further requests are told to come back later.
    #[arg(long, value_name = "N", default_value_t = 1024)]
    pub waiting: usize,
    /// Prompt tokens read between two tokens of the responses.
    #[arg(long, value_name = "N", default_value_t = 1024)]
    pub prefill_chunk: usize,
    /// Longest request body in bytes.
    #[arg(long, value_name = "BYTES", default_value_t = 8 << 20)]
    pub max_body: usize,
    /// Seconds that requests in progress may go on after a signal to stop.
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    pub drain: u64,
    /// Folder below which `POST /update_weights_from_disk` may read weights; unset refuses it.
    #[arg(long, value_name = "FOLDER")]
    pub weights_from: Option<PathBuf>,
    /// Seed of the requests that bring none.
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// Worker threads; 0 is one per core.
    #[arg(long, default_value_t = 0)]
    pub threads: usize,
}

#[derive(Args, Debug)]
pub(crate) struct Doctor {
    /// Configuration whose model, world, endpoint and memory are examined.
    pub config: Option<PathBuf>,
    /// Change a key: `--set rollout.temperature=0.7`. May be given more than once.
    #[arg(long = "set", value_name = "KEY=VALUE", requires = "config")]
    pub set: Vec<String>,
    /// Model to examine: a Hugging Face folder, a `.gguf` file, or `embedded:household-tiny`; instead of the
    /// configuration's.
    #[arg(long)]
    pub model: Option<PathBuf>,
    /// Endpoint to examine: the part of its address before `/chat/completions`.
    #[arg(long, value_name = "URL", conflicts_with = "config")]
    pub endpoint: Option<String>,
    /// Model that the endpoint must serve.
    #[arg(long, value_name = "NAME", requires = "endpoint")]
    pub endpoint_model: Option<String>,
    /// Environment variable with the endpoint's key.
    #[arg(long, value_name = "VARIABLE", requires = "endpoint")]
    pub key_env: Option<String>,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Env {
    /// Play a task yourself, or watch a scripted player.
    Play(Play),
    /// Measure parsing, resets and steps.
    Bench(Bench),
    /// Replay recorded transcripts and compare every observation, command list and flag.
    Verify(Verify),
    /// Write generated games to a folder.
    Generate(Generate),
    /// List the tasks of a world.
    Tasks(Tasks),
}

#[derive(Args, Debug)]
pub(crate) struct Play {
    /// World: household-studio, household-full, alfworld, shop, webshop, knowledge or search-qa.
    #[arg(default_value = "household-studio")]
    pub world: String,
    /// Task id; unset plays the split's first task.
    #[arg(long)]
    pub task: Option<String>,
    /// Split the task is taken from.
    #[arg(long, default_value = "seen")]
    pub split: String,
    /// Let a scripted player play.
    #[arg(long, value_enum)]
    pub player: Option<ScriptedPlayer>,
    /// Data folder of ALFWorld or WebShop, or for search-qa the folder of question files.
    #[arg(long)]
    pub data: Option<PathBuf>,
    /// Change a key of the world, such as `search.passages=FILE`. May be given more than once.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub set: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ScriptedPlayer {
    /// Knows the game, or the product wanted.
    Optimal,
    /// Knows what it has seen (households).
    Searching,
    /// Errs at a rate of 0.3.
    Noisy,
    /// Any possible command.
    Random,
}

#[derive(Args, Debug)]
pub(crate) struct Bench {
    /// World: household-studio, household-full, alfworld, shop or webshop.
    #[arg(default_value = "household-full")]
    pub world: String,
    /// Data folder of ALFWorld or WebShop.
    #[arg(long)]
    pub data: Option<PathBuf>,
    /// Games to measure on.
    #[arg(long, default_value_t = 64)]
    pub games: usize,
    /// Seconds to measure each of resets and steps for.
    #[arg(long, default_value_t = 2.0)]
    pub seconds: f64,
}

#[derive(Args, Debug)]
pub(crate) struct Verify {
    /// Transcript files (JSONL, optionally gzip), or folders of them (alfworld).
    #[arg(required = true)]
    pub transcripts: Vec<PathBuf>,
    /// World the transcripts are of: alfworld or webshop.
    #[arg(long, default_value = "alfworld")]
    pub world: String,
    /// Folder with the games (`json_2.1.1`, its parent, or a folder of .tar.zst archives), or with WebShop's products.
    #[arg(long)]
    pub data: Option<PathBuf>,
    /// Also replay the walkthrough stored in every game.
    #[arg(long)]
    pub walkthroughs: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Generate {
    /// Folder to write to.
    pub out: PathBuf,
    /// Size: studio or full.
    #[arg(long, default_value = "full")]
    pub size: String,
    /// Split the games are drawn from.
    #[arg(long, default_value = "train")]
    pub split: String,
    /// Games to write.
    #[arg(long, default_value_t = 60)]
    pub games: usize,
    /// Seed of the generator.
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// A real `game.tw-pddl`, whose domain and grammar are put into the files so that the original engine plays them.
    #[arg(long, value_name = "GAME")]
    pub engine_files_from: Option<PathBuf>,
}

#[derive(Args, Debug)]
pub(crate) struct Tasks {
    /// World: household-studio, household-full, alfworld, shop, webshop, knowledge or search-qa.
    pub world: String,
    /// Split to list.
    #[arg(long, default_value = "seen")]
    pub split: String,
    /// Data folder of ALFWorld or WebShop, or for search-qa the folder of question files.
    #[arg(long)]
    pub data: Option<PathBuf>,
    /// Change a key of the world, such as `search.passages=FILE`. May be given more than once.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub set: Vec<String>,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Retrieve {
    /// Encode passages into a dense index.
    Index(RetrieveIndex),
    /// Answer `POST /retrieve` as Search-R1's retrieval server does, from BM25 or a dense index.
    Serve(RetrieveServe),
}

/// How a sentence encoder is used.
#[derive(Args, Debug)]
pub(crate) struct EncoderArguments {
    /// Put in front of every query, such as `query: ` for e5.
    #[arg(long, default_value = "")]
    pub query_prefix: String,
    /// Put in front of every passage, such as `passage: ` for e5.
    #[arg(long, default_value = "")]
    pub passage_prefix: String,
    /// Longest text in tokens; unset takes the folder's own limit.
    #[arg(long)]
    pub max_tokens: Option<usize>,
}

#[derive(Args, Debug)]
pub(crate) struct RetrieveIndex {
    /// Passages: JSON lines with `id` and `contents`, plain, .gz or .zst.
    pub passages: PathBuf,
    /// Hugging Face folder of a BERT sentence encoder.
    #[arg(long = "encoder", value_name = "FOLDER")]
    pub encoder_path: PathBuf,
    #[command(flatten)]
    pub encoder: EncoderArguments,
    /// Folder for the index.
    #[arg(long)]
    pub out: PathBuf,
}

#[derive(Args, Debug)]
pub(crate) struct RetrieveServe {
    /// Passages: JSON lines with `id` and `contents`, plain, .gz or .zst.
    pub passages: PathBuf,
    /// Dense index of these passages, made by `seed retrieve index`; unset ranks by BM25.
    #[arg(long, requires = "encoder_path")]
    pub index: Option<PathBuf>,
    /// Hugging Face folder of the encoder that made the index.
    #[arg(long = "encoder", value_name = "FOLDER", requires = "index")]
    pub encoder_path: Option<PathBuf>,
    #[command(flatten)]
    pub encoder: EncoderArguments,
    /// Let words be found with their accents only, as Anserini does.
    #[arg(long, conflicts_with = "index")]
    pub keep_accents: bool,
    /// Where to listen. An address that other machines can reach needs `--token-env`.
    #[arg(long, default_value = "127.0.0.1:8000")]
    pub address: SocketAddr,
    /// Passages per query where a request does not say.
    #[arg(long, default_value_t = 3)]
    pub top_k: usize,
    /// Requests worked on at a time.
    #[arg(long, default_value_t = 2)]
    pub concurrency: usize,
    /// Environment variable with a token that every request must carry as `Authorization: Bearer TOKEN`.
    #[arg(long, value_name = "VARIABLE")]
    pub token_env: Option<String>,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Config {
    /// Say what keys mean, their type, default and current value.
    Explain {
        /// A table (`rollout`) or a key (`rollout.top_p`); unset explains all.
        key: Option<String>,
        /// Configuration whose values are shown.
        #[arg(long)]
        config: Option<PathBuf>,
        /// Whose configuration is explained.
        #[arg(long = "for", value_name = "COMMAND", value_enum, default_value_t)]
        reader: ConfigReader,
        /// Change a key.
        #[arg(long = "set", value_name = "KEY=VALUE")]
        set: Vec<String>,
    },
    /// Print the reference of all metrics as Markdown.
    Metrics,
    /// Print the reference of all keys as Markdown.
    Reference {
        /// Whose configuration is described.
        #[arg(long = "for", value_name = "COMMAND", value_enum, default_value_t)]
        reader: ConfigReader,
    },
}

/// The command that reads a configuration, which decides what may stand in it.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub(crate) enum ConfigReader {
    /// `train`, `eval`, `collect` and `annotate`.
    #[default]
    Train,
    /// `sft`.
    Sft,
    /// `demonstrate`.
    Demonstrate,
}
