//! Running the program: with a scratch folder, without anything of the person's own environment.

#![allow(dead_code, reason = "each test file uses a part")]
#![allow(clippy::print_stdout, reason = "a skipped test says so")]
#![expect(clippy::unwrap_used, reason = "the helpers of these tests fail as tests do")]

#[path = "../../../seed-train/tests/support/mod.rs"]
pub(crate) mod support;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use self::support::TinyModel;

/// A scratch folder with a tiny model and an analyst's address.
pub(crate) struct Scratch {
    pub(crate) model: TinyModel,
    pub(crate) base_url: String,
    folder: tempfile::TempDir,
}

impl Scratch {
    pub(crate) fn new(base_url: &str) -> Self {
        Self {
            model: TinyModel::new(),
            base_url: base_url.to_owned(),
            folder: tempfile::tempdir().unwrap(),
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes the configuration of a short run in the folder `name` and returns the file's path.
    pub(crate) fn config(&self, name: &str) -> PathBuf {
        let path = self.path(&format!("{name}.toml"));
        let text = support::config_text(&self.path(name), &self.model.path(), &self.base_url);
        fs_err::write(&path, text).unwrap();
        path
    }

    /// A text with the names of this scratch folder replaced.
    pub(crate) fn shown(&self, text: &str) -> String {
        text.replace(&self.model.path().display().to_string(), "[model]")
            .replace(&self.folder.path().display().to_string(), "[scratch]")
    }
}

/// What a command did.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) output: String,
    pub(crate) errors: String,
}

impl From<Output> for Ended {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code(),
            output: String::from_utf8(output.stdout).unwrap(),
            errors: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

/// The program, to be given arguments.
pub(crate) fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_seed"));
    isolate(&mut command);
    command
}

/// Takes a command out of the person's environment.
pub(crate) fn isolate(command: &mut Command) {
    command.stdin(Stdio::null());
    command
        .env("COLUMNS", "100")
        .env("NO_COLOR", "1")
        .env("CARGO_PKG_VERSION", "a-key");
    for variable in [
        "ALFWORLD_DATA",
        "CLICOLOR_FORCE",
        "OPENAI_API_KEY",
        "RAYON_NUM_THREADS",
    ] {
        command.env_remove(variable);
    }
    // Nothing may end up in the person's own cache, and no folder can be made here.
    command.env("XDG_CACHE_HOME", "/dev/null");
}

pub(crate) fn finish(command: &mut Command) -> Ended {
    Ended::from(command.output().unwrap())
}

/// Runs a command that finds `text` on its standard input.
pub(crate) fn typed(command: &mut Command, text: &str) -> Ended {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    Ended::from(child.wait_with_output().unwrap())
}

/// Starts a server on a free port of this machine; returns it with the line it prints when it listens.
pub(crate) fn listening(arguments: &[&str]) -> (Child, String) {
    let mut server = program()
        .args(arguments)
        .args(["--address", "127.0.0.1:0"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(server.stdout.as_mut().unwrap())
        .read_line(&mut line)
        .unwrap();
    (server, line.trim_end().to_owned())
}

/// Sends a request in JSON to a server and reads the whole answer.
pub(crate) fn exchange(host: &str, method: &str, path: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(host).unwrap();
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// Runs the program with words as its arguments.
pub(crate) fn seed(arguments: &[&str]) -> Ended {
    finish(program().args(arguments))
}

/// Trains by a configuration file.
pub(crate) fn train(config: &Path, more: &[&str]) -> Ended {
    finish(program().arg("train").arg(config).args(more))
}

/// Exit code and messages of a failed command, for snapshots.
pub(crate) fn failure(ended: &Ended) -> String {
    assert!(
        ended.output.is_empty(),
        "results of a failed command: {}",
        ended.output
    );
    format!(
        "exit code {}\n{}",
        ended.code.unwrap_or(-1),
        ended.errors.trim_end()
    )
}

/// The same, without the table of derived quantities that `seed train` begins with.
pub(crate) fn last_lines(ended: &Ended) -> String {
    let start = ended
        .errors
        .find("error: ")
        .or_else(|| ended.errors.find("stopped: "))
        .unwrap_or(0);
    format!(
        "exit code {}\n{}",
        ended.code.unwrap_or(-1),
        ended.errors[start..].trim_end()
    )
}

/// The recorded games and episodes, or `None` (and a line that says so) on machines that do not have them.
pub(crate) fn shared_data() -> Option<PathBuf> {
    let root = std::env::var_os("SEED_SHARED").map_or_else(
        || PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared")),
        PathBuf::from,
    );
    let path = root.join("data").join("alfworld");
    if path.is_dir() {
        return Some(path);
    }
    println!("skipped: shared data not found at {}", path.display());
    None
}

/// Lays out the first few of ALFWorld's sample games as its data is, one for each of `splits`.
pub(crate) fn lay_out_games(shared: &Path, splits: &[&str], root: &Path) {
    let games = shared.join("sample/json_2.1.1/valid_unseen");
    let mut tasks: Vec<PathBuf> = fs_err::read_dir(games)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    tasks.sort();
    for (task, split) in tasks.iter().zip(splits) {
        let target = root.join("json_2.1.1").join(split);
        copy(task, &target.join(task.file_name().unwrap()));
    }
}

fn copy(from: &Path, to: &Path) {
    fs_err::create_dir_all(to).unwrap();
    for entry in fs_err::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copy(&path, &target);
        } else {
            fs_err::copy(&path, &target).unwrap();
        }
    }
}
