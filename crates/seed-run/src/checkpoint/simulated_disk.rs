//! A disk in memory that fails at a chosen call, dies with the process, or loses its power.
//!
//! After a loss of power only what was synced is certain. A file holds its synced content or any beginning of what was
//! written since; in a folder each name that changed since the last sync holds, independently, its old or its new entry,
//! so that renames may be lost, reordered or half done. That is worse than real file systems, and deliberately so.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Cursor, Read, Write};
use std::path::{Component, Path};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::file_system::{DurableFile, FileSystem};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Node {
    File(usize),
    Directory(usize),
}

#[derive(Clone, Debug, Default)]
struct File {
    data: Vec<u8>,
    synced: Vec<u8>,
}

#[derive(Clone, Debug, Default)]
struct Directory {
    names: BTreeMap<String, Node>,
    synced: BTreeMap<String, Node>,
}

/// What happens at the chosen call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The call fails once with this error; the process goes on.
    Error(io::ErrorKind),
    /// The process dies: this and every later call fail.
    Death,
}

#[derive(Clone, Debug, Default)]
struct State {
    files: Vec<File>,
    directories: Vec<Directory>,
    calls: usize,
    fault: Option<(usize, Fault)>,
}

/// The disk; clones are the same disk.
#[derive(Clone, Debug)]
pub(crate) struct SimulatedDisk(Arc<Mutex<State>>);

impl SimulatedDisk {
    /// An empty disk.
    pub(crate) fn new() -> Self {
        Self(Arc::new(Mutex::new(State {
            directories: vec![Directory::default()],
            ..State::default()
        })))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An independent disk of the same content, with its calls counted from zero and `fault` at that call.
    pub(crate) fn copy_with(&self, fault: Option<(usize, Fault)>) -> Self {
        let mut state = self.lock().clone();
        state.calls = 0;
        state.fault = fault;
        Self(Arc::new(Mutex::new(state)))
    }

    /// The disk as a new process finds it after the old one died.
    pub(crate) fn after_death(&self) -> Self {
        self.copy_with(None)
    }

    /// The disk as it may be found after a loss of power; `choice` selects among the possibilities.
    pub(crate) fn after_power_loss(&self, choice: u64) -> Self {
        let disk = self.copy_with(None);
        {
            let mut state = disk.lock();
            let mut draws = choice.wrapping_mul(2).wrapping_add(1);
            // A multiplicative generator is random enough to pick among possibilities.
            let mut draw = |limit: usize| {
                draws = draws.wrapping_mul(0xd134_2543_de82_ef95).wrapping_add(1);
                (draws >> 33) as usize % limit
            };
            for file in &mut state.files {
                if file.data != file.synced {
                    file.data = match draw(2) {
                        0 => file.synced.clone(),
                        _ => file.data[..draw(file.data.len() + 1)].to_vec(),
                    };
                    file.synced = file.data.clone();
                }
            }
            for directory in &mut state.directories {
                let names: BTreeSet<String> = directory
                    .names
                    .keys()
                    .chain(directory.synced.keys())
                    .cloned()
                    .collect();
                let mut survivors = BTreeMap::new();
                for name in names {
                    let (new, old) = (directory.names.get(&name), directory.synced.get(&name));
                    let survivor = if new == old || draw(2) == 0 { new } else { old };
                    if let Some(node) = survivor {
                        survivors.insert(name, *node);
                    }
                }
                directory.names.clone_from(&survivors);
                directory.synced = survivors;
            }
        }
        disk
    }

    /// Calls made so far.
    pub(crate) fn calls(&self) -> usize {
        self.lock().calls
    }

    /// Flips one bit of a file, behind everyone's back.
    pub(crate) fn flip(&self, path: &Path, bit: usize) {
        let mut state = self.lock();
        let file = state.file(path).unwrap();
        state.files[file].data[bit / 8] ^= 1 << (bit % 8);
    }

    /// Replaces a file's content, behind everyone's back.
    pub(crate) fn change(&self, path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
        let mut state = self.lock();
        let file = state.file(path).unwrap();
        change(&mut state.files[file].data);
    }
}

fn not_found() -> io::Error {
    io::ErrorKind::NotFound.into()
}

fn parts(path: &Path) -> Vec<String> {
    path.components()
        .filter_map(|component| match component {
            Component::Normal(name) => Some(name.to_str().unwrap().to_owned()),
            _ => None,
        })
        .collect()
}

impl State {
    /// Counts a call; true when it is the one that fails with the given fault.
    fn step(&mut self) -> io::Result<()> {
        let call = self.calls;
        self.calls += 1;
        match self.fault {
            Some((at, Fault::Error(kind))) if call == at => Err(kind.into()),
            Some((at, Fault::Death)) if call >= at => Err(io::Error::other("the process is dead")),
            _ => Ok(()),
        }
    }

    fn find(&self, path: &Path) -> io::Result<Node> {
        parts(path)
            .iter()
            .try_fold(Node::Directory(0), |node, name| match node {
                Node::Directory(directory) => self.directories[directory]
                    .names
                    .get(name)
                    .copied()
                    .ok_or_else(not_found),
                Node::File(_) => Err(not_found()),
            })
    }

    fn file(&self, path: &Path) -> io::Result<usize> {
        match self.find(path)? {
            Node::File(file) => Ok(file),
            Node::Directory(_) => Err(io::ErrorKind::IsADirectory.into()),
        }
    }

    fn directory(&self, path: &Path) -> io::Result<usize> {
        match self.find(path)? {
            Node::Directory(directory) => Ok(directory),
            Node::File(_) => Err(io::ErrorKind::NotADirectory.into()),
        }
    }

    /// The folder that holds `path`, and its name there.
    fn place(&self, path: &Path) -> io::Result<(usize, String)> {
        let directory = self.directory(path.parent().unwrap())?;
        Ok((directory, path.file_name().unwrap().to_str().unwrap().to_owned()))
    }
}

struct OpenFile {
    disk: SimulatedDisk,
    file: usize,
}

impl Write for OpenFile {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        let mut state = self.disk.lock();
        let step = state.step();
        // A write that fails may have got half-way.
        let count = if step.is_ok() {
            buffer.len()
        } else {
            buffer.len() / 2
        };
        state.files[self.file].data.extend_from_slice(&buffer[..count]);
        step.map(|()| count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl DurableFile for OpenFile {
    fn sync(&mut self) -> io::Result<()> {
        let mut state = self.disk.lock();
        state.step()?;
        let file = &mut state.files[self.file];
        file.synced.clone_from(&file.data);
        Ok(())
    }
}

impl FileSystem for SimulatedDisk {
    fn create_directories(&self, path: &Path) -> io::Result<()> {
        let mut state = self.lock();
        state.step()?;
        let mut directory = 0;
        for name in parts(path) {
            directory = match state.directories[directory].names.get(&name) {
                Some(Node::Directory(next)) => *next,
                Some(Node::File(_)) => return Err(io::ErrorKind::NotADirectory.into()),
                None => {
                    let next = state.directories.len();
                    state.directories.push(Directory::default());
                    state.directories[directory]
                        .names
                        .insert(name, Node::Directory(next));
                    next
                }
            };
        }
        Ok(())
    }

    fn create_file(&self, path: &Path) -> io::Result<Box<dyn DurableFile>> {
        let mut state = self.lock();
        state.step()?;
        let (directory, name) = state.place(path)?;
        if state.directories[directory].names.contains_key(&name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let file = state.files.len();
        state.files.push(File::default());
        state.directories[directory].names.insert(name, Node::File(file));
        Ok(Box::new(OpenFile {
            disk: self.clone(),
            file,
        }))
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn Read>> {
        let mut state = self.lock();
        state.step()?;
        let file = state.file(path)?;
        Ok(Box::new(Cursor::new(state.files[file].data.clone())))
    }

    fn sync_file(&self, path: &Path) -> io::Result<()> {
        let mut state = self.lock();
        state.step()?;
        let file = state.file(path)?;
        let file = &mut state.files[file];
        file.synced.clone_from(&file.data);
        Ok(())
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        let mut state = self.lock();
        state.step()?;
        let directory = state.directory(path)?;
        let directory = &mut state.directories[directory];
        directory.synced.clone_from(&directory.names);
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.lock();
        state.step()?;
        let (source, old) = state.place(from)?;
        let (target, new) = state.place(to)?;
        if let Ok(Node::Directory(existing)) = state.find(to)
            && !state.directories[existing].names.is_empty()
        {
            return Err(io::ErrorKind::DirectoryNotEmpty.into());
        }
        let node = state.directories[source]
            .names
            .remove(&old)
            .ok_or_else(not_found)?;
        state.directories[target].names.insert(new, node);
        Ok(())
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        let mut state = self.lock();
        state.step()?;
        state.file(path)?;
        let (directory, name) = state.place(path)?;
        state.directories[directory].names.remove(&name);
        Ok(())
    }

    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        let mut state = self.lock();
        state.step()?;
        // Removal goes entry by entry, so a folder may lose its files before its name.
        let inside = state.directory(path)?;
        state.directories[inside].names.clear();
        state.step()?;
        let (directory, name) = state.place(path)?;
        state.directories[directory].names.remove(&name);
        Ok(())
    }

    fn list(&self, path: &Path) -> io::Result<Vec<(String, bool)>> {
        let mut state = self.lock();
        state.step()?;
        let directory = state.directory(path)?;
        Ok(state.directories[directory]
            .names
            .iter()
            .map(|(name, node)| (name.clone(), matches!(node, Node::Directory(_))))
            .collect())
    }
}
