//! The GGUF container: a header of typed keys and a list of tensors, then the tensors' bytes.
//!
//! Integers are little-endian. The file begins with `GGUF`, the version, the numbers of tensors and of keys; a key is its
//! name, a type and a value; a tensor is its name, sizes (innermost first), element type and offset. The bytes of the
//! tensors begin at the next multiple of `general.alignment`. Versions 2 and 3 do not differ in this.
//!
//! Files come from strangers: every length is compared with what is left of the file before anything is allocated for
//! it. Not for: what keys and tensors mean.

use std::collections::{BTreeMap, HashSet};
use std::io::Read;

use super::blocks::TensorType;
use crate::error::ModelError;

const MAGIC: [u8; 4] = *b"GGUF";

/// Largest header that is read, in bytes: those of vocabularies of 250,000 tokens have about 12 MB.
const LARGEST_HEADER: u64 = 256 << 20;

/// Where `general.alignment` is absent.
const DEFAULT_ALIGNMENT: u64 = 32;

/// Sizes that one tensor may have.
const MOST_DIMENSIONS: u32 = 4;

/// The value of a key.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    Integer(i64),
    /// Above the range of signed numbers.
    Large(u64),
    Number(f64),
    Flag(bool),
    Text(String),
    Integers(Vec<i64>),
    Numbers(Vec<f64>),
    Flags(Vec<bool>),
    Texts(Vec<String>),
}

impl Value {
    fn kind(&self) -> &'static str {
        match self {
            Self::Integer(_) | Self::Large(_) => "an integer",
            Self::Number(_) => "a number",
            Self::Flag(_) => "a flag",
            Self::Text(_) => "a text",
            Self::Integers(_) => "an array of integers",
            Self::Numbers(_) => "an array of numbers",
            Self::Flags(_) => "an array of flags",
            Self::Texts(_) => "an array of texts",
        }
    }
}

/// One tensor of the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Tensor {
    pub(super) name: String,
    /// Sizes, outermost first, as everywhere else in this crate.
    pub(super) shape: Vec<usize>,
    pub(super) element_type: TensorType,
    /// Where its bytes begin, counted from the first byte of the file.
    pub(super) start: u64,
}

impl Tensor {
    /// Number of values.
    pub(super) fn elements(&self) -> usize {
        // The product has been checked when the tensor was read.
        self.shape.iter().product()
    }
}

/// The header of a file.
#[derive(Debug)]
pub(super) struct Container {
    keys: BTreeMap<String, Value>,
    /// In the order of their bytes.
    pub(super) tensors: Vec<Tensor>,
}

/// What does not hold in a file.
pub(super) enum Problem {
    Broken(String),
    ElementType { name: String, found: String },
}

impl From<String> for Problem {
    fn from(text: String) -> Self {
        Self::Broken(text)
    }
}

impl Container {
    /// The tensor of a name.
    pub(super) fn tensor(&self, name: &str) -> Option<&Tensor> {
        self.tensors.iter().find(|tensor| tensor.name == name)
    }

    /// Reads the header of a file of `size` bytes.
    pub(super) fn read(reader: impl Read, size: u64) -> Result<Self, Problem> {
        let mut source = Source {
            reader,
            position: 0,
            limit: size.min(LARGEST_HEADER),
            truncated: size <= LARGEST_HEADER,
        };
        let magic = source.array::<4>("its first bytes")?;
        if magic != MAGIC {
            return Err(format!("it begins with {magic:?} and not with `GGUF`: it is no GGUF file").into());
        }
        let version = source.u32("its version")?;
        if (1..=3).contains(&version.swap_bytes()) {
            return Err("it is in big-endian byte order, which is not read"
                .to_owned()
                .into());
        }
        if !(2..=3).contains(&version) {
            return Err(format!("its version is `{version}`; versions 2 and 3 are read").into());
        }
        let tensor_count = source.count("the number of tensors", 8 + 4 + 4 + 8)?;
        let key_count = source.count("the number of keys", 8 + 4 + 1)?;
        let mut keys = BTreeMap::new();
        for _ in 0..key_count {
            let key = source.text("the name of a key")?;
            let value = source.value(&key)?;
            if keys.insert(key.clone(), value).is_some() {
                return Err(format!("it holds key `{key}` twice").into());
            }
        }
        let alignment = match keys.get("general.alignment") {
            None => DEFAULT_ALIGNMENT,
            Some(&Value::Integer(alignment)) if alignment > 0 && alignment & (alignment - 1) == 0 => {
                alignment as u64
            }
            Some(_) => return Err("its `general.alignment` is no power of two".to_owned().into()),
        };
        let mut tensors = Vec::new();
        for _ in 0..tensor_count {
            tensors.push(source.tensor(alignment)?);
        }
        place(&mut tensors, source.position, alignment, size)?;
        Ok(Self { keys, tensors })
    }

    /// The value of `key`, if present and of the kind that `take` accepts.
    fn get<'a, T>(
        &'a self,
        key: &str,
        wanted: &str,
        take: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, ModelError> {
        let Some(value) = self.keys.get(key) else {
            return Ok(None);
        };
        match take(value) {
            Some(value) => Ok(Some(value)),
            None => Err(wrong(key, format!("is {}, it must be {wanted}", value.kind()))),
        }
    }

    pub(super) fn text(&self, key: &str) -> Result<Option<&str>, ModelError> {
        self.get(key, "a text", |value| match value {
            Value::Text(text) => Some(text.as_str()),
            _ => None,
        })
    }

    pub(super) fn size(&self, key: &str) -> Result<Option<usize>, ModelError> {
        self.get(key, "an integer of at least 0", |value| match *value {
            Value::Integer(integer) => usize::try_from(integer).ok(),
            _ => None,
        })
    }

    pub(super) fn token(&self, key: &str) -> Result<Option<u32>, ModelError> {
        self.get(key, "the id of a token", |value| match *value {
            Value::Integer(integer) => u32::try_from(integer).ok(),
            _ => None,
        })
    }

    pub(super) fn number(&self, key: &str) -> Result<Option<f64>, ModelError> {
        self.get(key, "a number", |value| match *value {
            Value::Number(number) => Some(number),
            Value::Integer(integer) => Some(integer as f64),
            _ => None,
        })
    }

    pub(super) fn flag(&self, key: &str) -> Result<Option<bool>, ModelError> {
        self.get(key, "a flag", |value| match *value {
            Value::Flag(flag) => Some(flag),
            _ => None,
        })
    }

    pub(super) fn texts(&self, key: &str) -> Result<Option<&[String]>, ModelError> {
        self.get(key, "an array of texts", |value| match value {
            Value::Texts(texts) => Some(texts.as_slice()),
            _ => None,
        })
    }

    pub(super) fn integers(&self, key: &str) -> Result<Option<&[i64]>, ModelError> {
        self.get(key, "an array of integers", |value| match value {
            Value::Integers(integers) => Some(integers.as_slice()),
            _ => None,
        })
    }
}

/// Turns offsets into places in the file and checks that each tensor lies in it, on bytes of its own.
fn place(tensors: &mut [Tensor], header: u64, alignment: u64, size: u64) -> Result<(), Problem> {
    let data = header
        .checked_next_multiple_of(alignment)
        .ok_or_else(|| "its `general.alignment` is too large".to_owned())?;
    tensors.sort_by(|left, right| (left.start, &left.name).cmp(&(right.start, &right.name)));
    let mut names = HashSet::new();
    let mut free = data;
    for tensor in tensors {
        if !names.insert(tensor.name.clone()) {
            return Err(format!("it holds tensor `{}` twice", tensor.name).into());
        }
        let bytes = tensor.element_type.bytes_of(tensor.elements());
        let end = data
            .checked_add(tensor.start)
            .and_then(|start| start.checked_add(bytes));
        let Some(end) = end.filter(|&end| end <= size) else {
            return Err(format!(
                "tensor `{}` has `{bytes}` bytes from `{}` of the tensors' on, but the file ends after `{}`: it is truncated",
                tensor.name,
                tensor.start,
                size.saturating_sub(data)
            )
            .into());
        };
        tensor.start += data;
        if tensor.start < free {
            return Err(format!("tensor `{}` begins within the one before it", tensor.name).into());
        }
        free = end;
    }
    Ok(())
}

/// A reader that knows how much is left.
struct Source<R> {
    reader: R,
    position: u64,
    limit: u64,
    /// Whether the limit is the end of the file, and not that of headers.
    truncated: bool,
}

impl<R: Read> Source<R> {
    /// Claims `count` bytes before anything is allocated for them.
    fn claim(&mut self, count: u64, what: &str) -> Result<(), Problem> {
        let left = self.limit - self.position;
        if count > left {
            return Err(if self.truncated {
                format!("{what} needs `{count}` bytes, the file ends after `{left}`: it is truncated")
            } else {
                format!("its header is longer than `{LARGEST_HEADER}` bytes, at {what}")
            }
            .into());
        }
        self.position += count;
        Ok(())
    }

    fn fill(&mut self, bytes: &mut [u8], what: &str) -> Result<(), Problem> {
        self.reader
            .read_exact(bytes)
            .map_err(|error| Problem::Broken(format!("{what} cannot be read ({error})")))
    }

    fn array<const N: usize>(&mut self, what: &str) -> Result<[u8; N], Problem> {
        self.claim(N as u64, what)?;
        let mut bytes = [0; N];
        self.fill(&mut bytes, what)?;
        Ok(bytes)
    }

    fn u32(&mut self, what: &str) -> Result<u32, Problem> {
        Ok(u32::from_le_bytes(self.array(what)?))
    }

    fn u64(&mut self, what: &str) -> Result<u64, Problem> {
        Ok(u64::from_le_bytes(self.array(what)?))
    }

    /// A number of things of which each takes at least `least` bytes of what is left.
    fn count(&mut self, what: &str, least: u64) -> Result<usize, Problem> {
        let count = self.u64(what)?;
        let left = self.limit - self.position;
        if count > left / least {
            return Err(format!("{what} is `{count}`, too many for the `{left}` bytes left").into());
        }
        Ok(count as usize)
    }

    fn text(&mut self, what: &str) -> Result<String, Problem> {
        let length = self.u64(what)?;
        self.claim(length, what)?;
        let mut bytes = vec![0; length as usize];
        self.fill(&mut bytes, what)?;
        String::from_utf8(bytes).map_err(|error| Problem::Broken(format!("{what} is not UTF-8 ({error})")))
    }

    fn value(&mut self, key: &str) -> Result<Value, Problem> {
        let what = format!("key `{key}`");
        let kind = self.u32(&what)?;
        if kind == ARRAY {
            let kind = self.u32(&what)?;
            let least = scalar_bytes(kind)
                .ok_or_else(|| format!("{what} is an array of values of type `{kind}`, which is not read"))?;
            let count = self.count(&what, least)?;
            return self.values(kind, count, &what);
        }
        self.scalar(kind, &what)
    }

    fn scalar(&mut self, kind: u32, what: &str) -> Result<Value, Problem> {
        Ok(match kind {
            TEXT => Value::Text(self.text(what)?),
            FLAG => Value::Flag(self.flag(what)?),
            F32 | F64 => Value::Number(self.number(kind, what)?),
            U64 => {
                let number = self.u64(what)?;
                i64::try_from(number).map_or(Value::Large(number), Value::Integer)
            }
            _ => Value::Integer(self.integer(kind, what)?),
        })
    }

    fn values(&mut self, kind: u32, count: usize, what: &str) -> Result<Value, Problem> {
        Ok(match kind {
            TEXT => Value::Texts((0..count).map(|_| self.text(what)).collect::<Result<_, _>>()?),
            FLAG => Value::Flags((0..count).map(|_| self.flag(what)).collect::<Result<_, _>>()?),
            F32 | F64 => Value::Numbers(
                (0..count)
                    .map(|_| self.number(kind, what))
                    .collect::<Result<_, _>>()?,
            ),
            _ => Value::Integers(
                (0..count)
                    .map(|_| self.integer(kind, what))
                    .collect::<Result<_, _>>()?,
            ),
        })
    }

    fn flag(&mut self, what: &str) -> Result<bool, Problem> {
        match self.array(what)? {
            [0] => Ok(false),
            [1] => Ok(true),
            [other] => Err(format!("{what} is a flag of value `{other}`").into()),
        }
    }

    fn number(&mut self, kind: u32, what: &str) -> Result<f64, Problem> {
        Ok(match kind {
            F32 => f64::from(f32::from_le_bytes(self.array(what)?)),
            _ => f64::from_le_bytes(self.array(what)?),
        })
    }

    fn integer(&mut self, kind: u32, what: &str) -> Result<i64, Problem> {
        Ok(match kind {
            U8 => i64::from(u8::from_le_bytes(self.array(what)?)),
            I8 => i64::from(i8::from_le_bytes(self.array(what)?)),
            U16 => i64::from(u16::from_le_bytes(self.array(what)?)),
            I16 => i64::from(i16::from_le_bytes(self.array(what)?)),
            U32 => i64::from(u32::from_le_bytes(self.array(what)?)),
            I32 => i64::from(i32::from_le_bytes(self.array(what)?)),
            I64 => i64::from_le_bytes(self.array(what)?),
            U64 => i64::try_from(self.u64(what)?)
                .map_err(|_| format!("{what} holds a number above `{}`", i64::MAX))?,
            _ => {
                return Err(
                    format!("{what} has a value of type `{kind}`, which the format does not know").into(),
                );
            }
        })
    }

    fn tensor(&mut self, alignment: u64) -> Result<Tensor, Problem> {
        let name = self.text("the name of a tensor")?;
        let what = format!("the entry of tensor `{name}`");
        let dimensions = self.u32(&what)?;
        if !(1..=MOST_DIMENSIONS).contains(&dimensions) {
            return Err(
                format!("tensor `{name}` has `{dimensions}` sizes; 1 to {MOST_DIMENSIONS} are read").into(),
            );
        }
        let mut shape = Vec::new();
        for _ in 0..dimensions {
            let size = self.u64(&what)?;
            shape.push(
                usize::try_from(size)
                    .ok()
                    .filter(|&size| size > 0)
                    .ok_or_else(|| format!("tensor `{name}` has a size of `{size}`"))?,
            );
        }
        let kind = self.u32(&what)?;
        let Some(element_type) = TensorType::of(kind) else {
            return Err(Problem::ElementType {
                name,
                found: TensorType::name_of(kind),
            });
        };
        let start = self.u64(&what)?;
        shape
            .iter()
            .try_fold(1usize, |product, &size| product.checked_mul(size))
            .filter(|&elements| elements <= isize::MAX as usize / 4)
            .ok_or_else(|| format!("tensor `{name}` has sizes {shape:?}, too many values"))?;
        if !shape[0].is_multiple_of(element_type.block_values()) {
            return Err(format!(
                "tensor `{name}` has rows of `{}` values, which are no whole blocks of `{}`",
                shape[0],
                element_type.block_values()
            )
            .into());
        }
        if !start.is_multiple_of(alignment) {
            return Err(format!("tensor `{name}` begins at `{start}`, no multiple of `{alignment}`").into());
        }
        shape.reverse();
        Ok(Tensor {
            name,
            shape,
            element_type,
            start,
        })
    }
}

const U8: u32 = 0;
const I8: u32 = 1;
const U16: u32 = 2;
const I16: u32 = 3;
const U32: u32 = 4;
const I32: u32 = 5;
const F32: u32 = 6;
const FLAG: u32 = 7;
const TEXT: u32 = 8;
const ARRAY: u32 = 9;
const U64: u32 = 10;
const I64: u32 = 11;
const F64: u32 = 12;

/// Bytes that a value of a type takes at least; none for arrays and unknown types.
fn scalar_bytes(kind: u32) -> Option<u64> {
    match kind {
        U8 | I8 | FLAG => Some(1),
        U16 | I16 => Some(2),
        U32 | I32 | F32 => Some(4),
        U64 | I64 | F64 | TEXT => Some(8),
        _ => None,
    }
}

pub(super) fn wrong(key: &str, problem: impl Into<String>) -> ModelError {
    ModelError::GgufKey {
        key: key.to_owned(),
        problem: problem.into(),
    }
}

pub(super) fn missing(key: &str) -> ModelError {
    wrong(key, "is missing: convert the model to GGUF again")
}
