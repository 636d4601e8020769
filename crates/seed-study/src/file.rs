//! The study file: a TOML text becomes names, lists and configuration keys, each knowing its line.
//!
//! What is no key of the study itself is a table of the training configuration: `seed.beta = 2.0` under an arm changes
//! that key in that arm. Those entries are handed on as they are; whether they fit shows when a cell's configuration is
//! made ([`crate::plan`]).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use seed_env::Split;
use seed_train::config::{EvaluationPrompt, Origin, RawEntry, line_of, nearest, to_value};
use toml::Value;
use toml::de::{DeTable, DeValue};

use crate::StudyError;
use crate::panel::Weights;

/// No study file comes near this size.
const SIZE_LIMIT: u64 = 1 << 20;
/// Most seeds of one arm.
const SEED_LIMIT: usize = 1000;

/// A study file as written.
#[derive(Clone, Debug)]
pub(crate) struct StudyFile {
    pub(crate) name: String,
    pub(crate) config: PathBuf,
    pub(crate) directory: PathBuf,
    pub(crate) seeds: Vec<u64>,
    /// Split on whose curve arms are compared; unset is the first of `evaluation.splits`.
    pub(crate) primary: Option<Split>,
    pub(crate) shared: Vec<RawEntry>,
    pub(crate) bases: Vec<BaseEntry>,
    pub(crate) arms: Vec<ArmEntry>,
    pub(crate) panels: Vec<PanelEntry>,
}

/// One `[[base]]`.
#[derive(Clone, Debug)]
pub(crate) struct BaseEntry {
    pub(crate) name: String,
    /// Weights by the name arms choose them by, in order of name.
    pub(crate) starts: BTreeMap<String, PathBuf>,
    pub(crate) settings: Vec<RawEntry>,
}

/// One `[[arm]]`.
#[derive(Clone, Debug)]
pub(crate) struct ArmEntry {
    pub(crate) name: String,
    pub(crate) is_baseline: bool,
    /// Arms it is compared with besides the baseline.
    pub(crate) against: Vec<String>,
    /// Bases it is run on; unset is all.
    pub(crate) bases: Option<Vec<String>>,
    pub(crate) seeds: Option<Vec<u64>>,
    pub(crate) start: Option<String>,
    pub(crate) settings: Vec<RawEntry>,
}

/// One `[[panel]]`.
#[derive(Clone, Debug)]
pub(crate) struct PanelEntry {
    pub(crate) name: String,
    /// Arms whose final weights play it; unset is all.
    pub(crate) arms: Option<Vec<String>>,
    pub(crate) splits: Vec<Split>,
    pub(crate) temperatures: Vec<f64>,
    pub(crate) tasks: Option<usize>,
    pub(crate) samples_per_task: usize,
    pub(crate) prompts: Vec<EvaluationPrompt>,
    pub(crate) weights: Vec<Weights>,
    pub(crate) settings: Vec<RawEntry>,
}

impl StudyFile {
    /// Reads and checks a file.
    pub(crate) fn read(path: &Path) -> Result<Self, StudyError> {
        let read = |source| StudyError::Read { source };
        let bytes = fs_err::metadata(path).map_err(read)?.len();
        let invalid = |problems| StudyError::Invalid {
            path: path.to_owned(),
            problems,
        };
        if bytes > SIZE_LIMIT {
            let problem = format!("it has {bytes} bytes; a study has at most {SIZE_LIMIT}");
            return Err(invalid(vec![problem]));
        }
        let text = fs_err::read_to_string(path).map_err(read)?;
        Self::parse(&path.display().to_string(), &text).map_err(invalid)
    }

    /// Checks a text; `name` stands for the file in messages. The error is everything that is wrong.
    pub(crate) fn parse(name: &str, text: &str) -> Result<Self, Vec<String>> {
        let table = DeTable::parse(text).map_err(|error| {
            let line = error.span().map_or(1, |span| line_of(text, &span));
            vec![format!("{name}:{line}: {}", error.message().trim_end())]
        })?;
        let mut reader = Reader {
            name,
            text,
            problems: Vec::new(),
        };
        let file = reader.study(table.get_ref());
        if reader.problems.is_empty() {
            Ok(file)
        } else {
            Err(reader.problems)
        }
    }
}

/// Reads tables and collects what is wrong.
struct Reader<'a> {
    name: &'a str,
    text: &'a str,
    problems: Vec<String>,
}

/// The keys of one table of the study file.
struct Scope {
    /// How the table is called in messages.
    what: String,
    line: usize,
    fields: BTreeMap<String, (Value, usize)>,
    settings: Vec<RawEntry>,
}

/// The keys of the top of the file.
const TOP: [&str; 9] = [
    "name",
    "config",
    "directory",
    "seeds",
    "primary",
    "set",
    "base",
    "arm",
    "panel",
];
const BASE: [&str; 2] = ["name", "start"];
const ARM: [&str; 7] = ["name", "like", "baseline", "against", "bases", "seeds", "start"];
const PANEL: [&str; 8] = [
    "name",
    "arms",
    "splits",
    "temperatures",
    "tasks",
    "samples_per_task",
    "prompts",
    "weights",
];

impl Reader<'_> {
    fn study(&mut self, table: &DeTable<'_>) -> StudyFile {
        let mut top = self.scope("the study", 1, table, &TOP);
        for entry in std::mem::take(&mut top.settings) {
            self.problem(&entry.origin, &unknown(&entry.path.join("."), "the study", &TOP));
        }
        let name = self.name_of(&mut top);
        let config = self.text_of(&mut top, "config").map(PathBuf::from);
        if config.is_none() {
            self.problems.push(format!(
                "{}: `config` is missing; it names the training configuration that all cells begin from",
                self.name
            ));
        }
        let directory = self.text_of(&mut top, "directory").map(PathBuf::from);
        let seeds = self.seeds_of(&mut top);
        let primary = self
            .words_of(&mut top, "primary", &split_words())
            .and_then(|found| found.first().copied());
        let shared = self
            .sub_scope(table, "set", "`[set]`", &[])
            .map(|scope| scope.settings)
            .unwrap_or_default();
        let bases: Vec<BaseEntry> = self
            .list(table, "base", &BASE)
            .into_iter()
            .map(|scope| self.base(scope))
            .collect();
        let mut arms: Vec<ArmEntry> = Vec::new();
        for scope in self.list(table, "arm", &ARM) {
            let arm = self.arm(scope, &arms);
            arms.push(arm);
        }
        let panels: Vec<PanelEntry> = self
            .list(table, "panel", &PANEL)
            .into_iter()
            .map(|scope| self.panel(scope))
            .collect();
        self.check_arms(&arms, seeds.as_deref());
        self.check_contrasts(&arms);
        self.check_names("base", bases.iter().map(|base| base.name.as_str()));
        self.check_names("arm", arms.iter().map(|arm| arm.name.as_str()));
        let base_names: Vec<&str> = bases.iter().map(|base| base.name.as_str()).collect();
        let arm_names: Vec<&str> = arms.iter().map(|arm| arm.name.as_str()).collect();
        for arm in &arms {
            let who = format!("arm `{}`", arm.name);
            self.check_named(&who, "bases", arm.bases.as_deref(), &base_names);
            if arm.is_baseline && arm.bases.is_some() {
                self.problems.push(format!(
                    "{}: {who} is the baseline and is run on every base; leave `bases` out",
                    self.name
                ));
            }
        }
        for panel in &panels {
            let who = format!("panel `{}`", panel.name);
            self.check_named(&who, "arms", panel.arms.as_deref(), &arm_names);
        }
        self.check_names("panel", panels.iter().map(|panel| panel.name.as_str()));
        self.check_settings(&shared, &bases, &arms, &panels);
        StudyFile {
            directory: directory.unwrap_or_else(|| Path::new("runs").join(&name)),
            name,
            config: config.unwrap_or_default(),
            seeds: seeds.unwrap_or_default(),
            primary,
            shared,
            bases,
            arms,
            panels,
        }
    }

    fn base(&mut self, mut scope: Scope) -> BaseEntry {
        let name = self.name_of(&mut scope);
        let mut starts = BTreeMap::new();
        if let Some((value, line)) = scope.fields.remove("start") {
            match value {
                Value::Table(table) if !table.is_empty() => {
                    for (start, path) in table {
                        match path.as_str() {
                            Some(path) if is_name(&start) => {
                                starts.insert(start, PathBuf::from(path));
                            }
                            _ => self.at(
                                line,
                                &format!("`start.{start}` of {} is no name with a path", scope.what),
                            ),
                        }
                    }
                }
                _ => self.at(
                    line,
                    &format!("`start` of {} is a table of names and model folders", scope.what),
                ),
            }
        }
        BaseEntry {
            name,
            starts,
            settings: scope.settings,
        }
    }

    /// An arm; those `above` it may serve as its model.
    fn arm(&mut self, mut scope: Scope, above: &[ArmEntry]) -> ArmEntry {
        let name = self.name_of(&mut scope);
        let like = self.like_of(&mut scope, above);
        let mut seeds = self.seeds_of(&mut scope);
        let mut start = self.text_of(&mut scope, "start");
        let against = self.names_of(&mut scope, "against").unwrap_or_default();
        let mut bases = self.names_of(&mut scope, "bases");
        let is_baseline = match scope.fields.remove("baseline") {
            None => false,
            Some((Value::Boolean(is_baseline), _)) => is_baseline,
            Some((_, line)) => {
                self.at(line, &format!("`baseline` of {} is true or false", scope.what));
                false
            }
        };
        let mut settings = scope.settings;
        if let Some(like) = like {
            bases = bases.or(like.bases);
            seeds = seeds.or(like.seeds);
            start = start.or(like.start);
            settings.splice(0..0, like.settings);
        }
        ArmEntry {
            name,
            is_baseline,
            against,
            bases,
            seeds,
            start,
            settings,
        }
    }

    /// The arm whose keys another begins from.
    fn like_of(&mut self, scope: &mut Scope, above: &[ArmEntry]) -> Option<ArmEntry> {
        let line = scope.fields.get("like").map_or(scope.line, |field| field.1);
        let like = self.text_of(scope, "like")?;
        let found = above.iter().find(|arm| arm.name == like);
        if found.is_none() {
            let near = hint(&like, above.iter().map(|arm| arm.name.as_str()));
            let what = &scope.what;
            let text = format!("`like` of {what} is `{like}`, and no arm of that name stands above it{near}");
            self.at(line, &text);
        }
        found.cloned()
    }

    /// One name or a list of names.
    fn names_of(&mut self, scope: &mut Scope, key: &str) -> Option<Vec<String>> {
        let (value, line) = scope.fields.remove(key)?;
        let items = match value {
            Value::Array(items) => items,
            one => vec![one],
        };
        let names: Option<Vec<String>> = items
            .iter()
            .map(|item| item.as_str().map(str::to_owned))
            .collect();
        if names.as_ref().is_none_or(Vec::is_empty) {
            self.at(line, &format!("`{key}` of {} is a list of names", scope.what));
        }
        names
    }

    /// What `key` of `who` names must be one of `known`.
    fn check_named(&mut self, who: &str, key: &str, names: Option<&[String]>, known: &[&str]) {
        for name in names.unwrap_or_default() {
            if !known.contains(&name.as_str()) {
                let near = hint(name, known.iter().copied());
                self.problems.push(format!(
                    "{}: `{key}` of {who} names `{name}`, which is not there{near}",
                    self.name
                ));
            }
        }
    }

    /// Whoever is compared with must exist, and the comparison say something new.
    fn check_contrasts(&mut self, arms: &[ArmEntry]) {
        for arm in arms {
            for against in &arm.against {
                let problem = match arms.iter().find(|other| other.name == *against) {
                    None => {
                        let near = hint(against, arms.iter().map(|arm| arm.name.as_str()));
                        format!("there is no such arm{near}")
                    }
                    Some(other) if other.name == arm.name => "that is the arm itself".to_owned(),
                    Some(other) if other.is_baseline => {
                        "every arm is compared with the baseline; leave it out".to_owned()
                    }
                    Some(_) => continue,
                };
                self.problems.push(format!(
                    "{}: `against` of arm `{}` names `{against}`: {problem}",
                    self.name, arm.name
                ));
            }
        }
    }

    fn panel(&mut self, mut scope: Scope) -> PanelEntry {
        let name = self.name_of(&mut scope);
        let arms = self.names_of(&mut scope, "arms");
        let splits = self
            .words_of(&mut scope, "splits", &split_words())
            .unwrap_or_else(|| vec![Split::Seen, Split::Unseen]);
        let prompts = self
            .words_of(&mut scope, "prompts", &prompt_words())
            .unwrap_or_else(|| vec![EvaluationPrompt::Plain]);
        let weights = self
            .words_of(&mut scope, "weights", &Weights::WORDS)
            .unwrap_or_else(|| vec![Weights::Final]);
        let temperatures = match scope.fields.remove("temperatures") {
            None => vec![1.0],
            Some((value, line)) => {
                let read = value
                    .as_array()
                    .and_then(|items| items.iter().map(number).collect::<Option<Vec<f64>>>());
                match read {
                    Some(list) if !list.is_empty() && list.iter().all(|number| *number >= 0.0) => list,
                    _ => {
                        let what = &scope.what;
                        self.at(
                            line,
                            &format!("`temperatures` of {what} is a list of numbers, none below 0"),
                        );
                        Vec::new()
                    }
                }
            }
        };
        PanelEntry {
            name,
            arms,
            splits,
            temperatures,
            tasks: self.count_of(&mut scope, "tasks"),
            samples_per_task: self.count_of(&mut scope, "samples_per_task").unwrap_or(1),
            prompts,
            weights,
            settings: scope.settings,
        }
    }

    /// Sorts the keys of a table: those in `known` are the study's, tables are the configuration's.
    fn scope(&mut self, what: &str, line: usize, table: &DeTable<'_>, known: &[&str]) -> Scope {
        let mut scope = Scope {
            what: what.to_owned(),
            line,
            fields: BTreeMap::new(),
            settings: Vec::new(),
        };
        // The parser keeps keys in alphabetical order; people read a file from its top.
        let mut keys: Vec<_> = table.iter().collect();
        keys.sort_by_key(|(key, _)| key.span().start);
        for (key, value) in keys {
            let line = line_of(self.text, &key.span());
            let word = key.get_ref().as_ref();
            if known.contains(&word) {
                // Lists of tables are read by `list`, with the lines of their keys.
                if !(matches!(word, "base" | "arm" | "panel" | "set") && known.len() == TOP.len()) {
                    match to_value(value.get_ref()) {
                        Ok(value) => {
                            scope.fields.insert(word.to_owned(), (value, line));
                        }
                        Err(message) => self.at(line, &message),
                    }
                }
            } else if let DeValue::Table(keys) = value.get_ref() {
                let mut keys: Vec<_> = keys.iter().collect();
                keys.sort_by_key(|(key, _)| key.span().start);
                for (key, value) in keys {
                    let line = line_of(self.text, &key.span());
                    match to_value(value.get_ref()) {
                        Ok(value) => scope.settings.push(RawEntry {
                            path: vec![word.to_owned(), key.get_ref().to_string()],
                            value,
                            plain: None,
                            origin: self.origin(line),
                        }),
                        Err(message) => self.at(line, &message),
                    }
                }
            } else if known.is_empty() || (nearest(word, known.iter().copied()).is_none() && known != TOP) {
                // The reader of configurations says best what is wrong with it.
                if let Ok(value) = to_value(value.get_ref()) {
                    scope.settings.push(RawEntry {
                        path: vec![word.to_owned()],
                        value,
                        plain: None,
                        origin: self.origin(line),
                    });
                }
            } else {
                self.at(line, &unknown(word, what, known));
            }
        }
        scope
    }

    fn sub_scope(&mut self, table: &DeTable<'_>, key: &str, what: &str, known: &[&str]) -> Option<Scope> {
        let (key, value) = table.iter().find(|(found, _)| found.get_ref() == key)?;
        let line = line_of(self.text, &key.span());
        if let DeValue::Table(table) = value.get_ref() {
            return Some(self.scope(what, line, table, known));
        }
        self.at(line, &format!("{what} is a table"));
        None
    }

    fn list(&mut self, table: &DeTable<'_>, key: &str, known: &[&str]) -> Vec<Scope> {
        let Some((found, value)) = table.iter().find(|(found, _)| found.get_ref() == key) else {
            return Vec::new();
        };
        let line = line_of(self.text, &found.span());
        let DeValue::Array(items) = value.get_ref() else {
            self.at(line, &format!("`{key}` stands as `[[{key}]]`, once for each"));
            return Vec::new();
        };
        let mut scopes = Vec::new();
        for item in items {
            let line = line_of(self.text, &item.span());
            let DeValue::Table(table) = item.get_ref() else {
                self.at(line, &format!("`{key}` stands as `[[{key}]]`, once for each"));
                continue;
            };
            let name = table
                .iter()
                .find(|(key, _)| key.get_ref() == "name")
                .and_then(|(_, value)| value.get_ref().as_str())
                .map(|name| format!("{key} `{name}`"));
            scopes.push(self.scope(
                &name.unwrap_or_else(|| format!("`[[{key}]]`")),
                line,
                table,
                known,
            ));
        }
        scopes
    }

    fn name_of(&mut self, scope: &mut Scope) -> String {
        match scope.fields.remove("name") {
            None => {
                self.at(scope.line, &format!("`name` of {} is missing", scope.what));
                String::new()
            }
            Some((value, line)) => match value.as_str() {
                Some(name) if is_name(name) => name.to_owned(),
                _ => {
                    let text = "a name has letters, digits and `.`, `_`, `-`, `+`, and begins with a letter or digit: \
                                it is a folder";
                    self.at(line, &format!("`name` is {value}; {text}"));
                    String::new()
                }
            },
        }
    }

    fn text_of(&mut self, scope: &mut Scope, key: &str) -> Option<String> {
        let (value, line) = scope.fields.remove(key)?;
        match value.as_str() {
            Some(text) if !text.trim().is_empty() => Some(text.to_owned()),
            _ => {
                self.at(
                    line,
                    &format!("`{key}` of {} is {value}, expected text", scope.what),
                );
                None
            }
        }
    }

    fn count_of(&mut self, scope: &mut Scope, key: &str) -> Option<usize> {
        let (value, line) = scope.fields.remove(key)?;
        match value.as_integer().and_then(|number| usize::try_from(number).ok()) {
            Some(count) if count > 0 => Some(count),
            _ => {
                let what = &scope.what;
                self.at(
                    line,
                    &format!("`{key}` of {what} is {value}, expected a whole number, at least 1"),
                );
                None
            }
        }
    }

    /// `[1, 2, 5]` or `"1-8"`.
    fn seeds_of(&mut self, scope: &mut Scope) -> Option<Vec<u64>> {
        let (value, line) = scope.fields.remove("seeds")?;
        let seeds = match &value {
            Value::Array(items) => items
                .iter()
                .map(|item| item.as_integer().and_then(|number| u64::try_from(number).ok()))
                .collect::<Option<Vec<u64>>>(),
            Value::String(range) => range.split_once('-').and_then(|(first, last)| {
                let range = first.trim().parse::<u64>().ok()?..=last.trim().parse::<u64>().ok()?;
                Some(range.take(SEED_LIMIT + 1).collect())
            }),
            _ => None,
        };
        match seeds {
            Some(seeds) if (1..=SEED_LIMIT).contains(&seeds.len()) && distinct(&seeds) => Some(seeds),
            _ => {
                self.at(
                    line,
                    &format!(
                        "`seeds` of {} is {value}, expected a list such as `[1, 2, 3]` or a range such as `\"1-8\"`, \
                         each seed once, at most {SEED_LIMIT}",
                        scope.what
                    ),
                );
                None
            }
        }
    }

    /// One word or a list of words.
    fn words_of<T: Copy + PartialEq>(
        &mut self,
        scope: &mut Scope,
        key: &str,
        words: &[(&'static str, T)],
    ) -> Option<Vec<T>> {
        let (value, line) = scope.fields.remove(key)?;
        let items = match &value {
            Value::Array(items) if !items.is_empty() && key != "primary" => items.clone(),
            one => vec![one.clone()],
        };
        let mut found = Vec::new();
        for item in &items {
            let word = item.as_str().unwrap_or_default();
            match words.iter().find(|known| known.0 == word) {
                Some(known) if !found.contains(&known.1) => found.push(known.1),
                Some(_) => {}
                None => {
                    let near = hint(word, words.iter().map(|known| known.0));
                    let list: Vec<String> = words.iter().map(|known| format!("\"{}\"", known.0)).collect();
                    let what = &scope.what;
                    self.at(
                        line,
                        &format!("`{key}` of {what} is {item}, expected {}{near}", list.join(" | ")),
                    );
                    return None;
                }
            }
        }
        Some(found)
    }

    fn check_arms(&mut self, arms: &[ArmEntry], seeds: Option<&[u64]>) {
        let baselines = arms.iter().filter(|arm| arm.is_baseline).count();
        if baselines != 1 {
            let name = self.name;
            self.problems.push(format!(
                "{name}: {baselines} arms say `baseline = true`; one arm must, with which the others are compared"
            ));
        }
        if seeds.is_none() && arms.iter().any(|arm| arm.seeds.is_none()) {
            let known = "set `seeds = \"1-8\"` at the top, or `seeds` in every arm";
            self.problems
                .push(format!("{}: there are no seeds; {known}", self.name));
        }
    }

    fn check_names<'b>(&mut self, what: &str, names: impl Iterator<Item = &'b str>) {
        let mut seen = Vec::new();
        for name in names.filter(|name| !name.is_empty()) {
            if seen.contains(&name) {
                self.problems
                    .push(format!("{}: two of `[[{what}]]` are called `{name}`", self.name));
            }
            seen.push(name);
        }
    }

    /// What the study sets itself may not be set beside it.
    fn check_settings(
        &mut self,
        shared: &[RawEntry],
        bases: &[BaseEntry],
        arms: &[ArmEntry],
        panels: &[PanelEntry],
    ) {
        let weights_of_arms = arms
            .iter()
            .flat_map(|arm| &arm.settings)
            .chain(panels.iter().flat_map(|panel| &panel.settings))
            .filter(|entry| entry.path == ["model", "path"]);
        for entry in weights_of_arms {
            let text = "weights belong to the bases: name them in `start` of a base, and choose with `start` of an arm";
            self.problem(&entry.origin, text);
        }
        let reserved = |entry: &RawEntry, is_shared: bool| match entry.path.first().map(String::as_str) {
            Some("run") if !(is_shared && entry.path.last().is_some_and(|key| key == "threads")) => Some(
                "the study sets names, folders and seeds of its cells; of `[run]` only `set.run.threads` can be given",
            ),
            _ => None,
        };
        for entry in shared {
            if let Some(text) = reserved(entry, true) {
                self.problem(&entry.origin, text);
            }
        }
        let of_bases = bases.iter().flat_map(|base| &base.settings);
        let of_arms = arms.iter().flat_map(|arm| &arm.settings);
        let of_panels = panels.iter().flat_map(|panel| &panel.settings);
        for entry in of_bases.chain(of_arms).chain(of_panels) {
            if let Some(text) = reserved(entry, false) {
                self.problem(&entry.origin, text);
            }
        }
        for entry in panels.iter().flat_map(|panel| &panel.settings) {
            if entry.path.first().is_some_and(|section| section == "evaluation") {
                let keys =
                    "`splits`, `temperatures`, `tasks` and `samples_per_task` stand in the panel itself";
                self.problem(&entry.origin, keys);
            }
        }
        for base in bases.iter().filter(|base| !base.starts.is_empty()) {
            if let Some(entry) = base.settings.iter().find(|entry| entry.path == ["model", "path"]) {
                let text = format!("base `{}` has both `start` and `model.path`; keep one", base.name);
                self.problem(&entry.origin, &text);
            }
        }
    }

    fn origin(&self, line: usize) -> Origin {
        Origin::File {
            name: self.name.to_owned(),
            line,
        }
    }

    fn at(&mut self, line: usize, text: &str) {
        self.problems.push(format!("{}:{line}: {text}", self.name));
    }

    fn problem(&mut self, origin: &Origin, text: &str) {
        self.problems.push(format!("{origin}: {text}"));
    }
}

/// Names become folders.
fn is_name(name: &str) -> bool {
    name.len() <= 60
        && name.starts_with(|first: char| first.is_ascii_alphanumeric())
        && name
            .chars()
            .all(|letter| letter.is_ascii_alphanumeric() || "._-+".contains(letter))
}

fn prompt_words() -> Vec<(&'static str, EvaluationPrompt)> {
    EvaluationPrompt::all()
        .map(|prompt| (prompt.word(), prompt))
        .collect()
}

fn split_words() -> [(&'static str, Split); 4] {
    Split::ALL.map(|split| (split.name(), split))
}

fn number(value: &Value) -> Option<f64> {
    value
        .as_float()
        .or_else(|| value.as_integer().map(|number| number as f64))
        .filter(|number| number.is_finite())
}

fn distinct(seeds: &[u64]) -> bool {
    let mut sorted = seeds.to_vec();
    sorted.sort_unstable();
    sorted.windows(2).all(|pair| pair.first() != pair.last())
}

/// The end of a message about an unknown word: the known one that is most like it, if any is.
fn hint<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> String {
    nearest(word, known)
        .map(|near| format!("; did you mean `{near}`?"))
        .unwrap_or_default()
}

/// The message for a key that is neither the study's nor a table.
fn unknown(key: &str, what: &str, known: &[&str]) -> String {
    let first = key.split('.').next().unwrap_or(key);
    if let Some(near) = nearest(first, known.iter().copied()) {
        return format!("unknown key `{key}` of {what}; did you mean `{near}`?");
    }
    let list: Vec<String> = known.iter().map(|key| format!("`{key}`")).collect();
    format!(
        "unknown key `{key}` of {what}; its keys are {}, and keys of the configuration go under `[set]`, an arm, a base \
         or a panel",
        list.join(", ")
    )
}
