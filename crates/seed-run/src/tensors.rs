//! Named f32 tensors as safetensors files.
//!
//! Writing streams: the tensors are converted in small pieces, so a checkpoint never needs a second copy of them.
//! Reading goes through the `safetensors` crate, which checks the header and every offset.

use std::io::{self, Write};
use std::path::Path;

use safetensors::{Dtype, SafeTensors};

use crate::error::RunError;

/// Numbers converted at once when writing.
const PIECE: usize = 4096;

/// A tensor to be written: row-major, `data.len()` is the product of `shape`.
#[derive(Clone, Debug)]
pub struct TensorView<'a> {
    /// Name in the file.
    pub name: String,
    /// Sizes, outermost first.
    pub shape: Vec<usize>,
    /// The numbers.
    pub data: &'a [f32],
}

/// A tensor that was read: row-major.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedTensor {
    /// Name in the file.
    pub name: String,
    /// Sizes, outermost first.
    pub shape: Vec<usize>,
    /// The numbers.
    pub data: Vec<f32>,
}

/// Checks that shapes fit the data and names are unique, and gives the tensors' order in the file: by name.
pub(crate) fn check(tensors: &[TensorView<'_>]) -> Result<Vec<usize>, RunError> {
    for tensor in tensors {
        let numbers = tensor
            .shape
            .iter()
            .try_fold(1_usize, |product, &size| product.checked_mul(size));
        if numbers != Some(tensor.data.len()) {
            return Err(RunError::TensorShape {
                name: tensor.name.clone(),
                shape: tensor.shape.clone(),
                length: tensor.data.len(),
            });
        }
    }
    let mut order: Vec<usize> = (0..tensors.len()).collect();
    order.sort_by(|&left, &right| name_of(tensors, left).cmp(name_of(tensors, right)));
    Ok(order)
}

fn name_of<'a>(tensors: &'a [TensorView<'_>], index: usize) -> &'a str {
    tensors.get(index).map_or("", |tensor| tensor.name.as_str())
}

/// Writes tensors in the given order. The bytes depend on nothing but the arguments.
pub(crate) fn write(out: &mut dyn Write, tensors: &[TensorView<'_>], order: &[usize]) -> io::Result<()> {
    let mut header = serde_json::Map::new();
    let mut offset = 0_u64;
    let ordered = || order.iter().filter_map(|&index| tensors.get(index));
    for tensor in ordered() {
        let end = offset + 4 * tensor.data.len() as u64;
        let entry =
            serde_json::json!({ "dtype": "F32", "shape": tensor.shape, "data_offsets": [offset, end] });
        if header.insert(tensor.name.clone(), entry).is_some() {
            let message = format!("two tensors are named `{}`", tensor.name);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        offset = end;
    }
    let mut text = serde_json::to_string(&header)?;
    // The format wants the numbers to begin at a multiple of eight bytes; the header is padded with spaces.
    while !text.len().is_multiple_of(8) {
        text.push(' ');
    }
    out.write_all(&(text.len() as u64).to_le_bytes())?;
    out.write_all(text.as_bytes())?;
    let mut piece = Vec::with_capacity(PIECE * 4);
    for tensor in ordered() {
        for numbers in tensor.data.chunks(PIECE) {
            piece.clear();
            for number in numbers {
                piece.extend_from_slice(&number.to_le_bytes());
            }
            out.write_all(&piece)?;
        }
    }
    Ok(())
}

/// Reads the tensors of a file's bytes, sorted by name; `path` is only for messages.
///
/// # Errors
/// [`RunError::Tensors`] when the bytes are no safetensors file or a tensor is not f32.
pub fn read_tensors(path: &Path, bytes: &[u8]) -> Result<Vec<NamedTensor>, RunError> {
    let wrong = |message: String| RunError::Tensors {
        path: path.to_owned(),
        message,
    };
    let file = SafeTensors::deserialize(bytes).map_err(|error| wrong(error.to_string()))?;
    let mut tensors = Vec::with_capacity(file.len());
    for (name, view) in file.iter() {
        if view.dtype() != Dtype::F32 {
            return Err(wrong(format!(
                "tensor `{name}` is {:?}, expected F32",
                view.dtype()
            )));
        }
        let data = view
            .data()
            .as_chunks::<4>()
            .0
            .iter()
            .map(|&number| f32::from_le_bytes(number))
            .collect();
        tensors.push(NamedTensor {
            name: name.to_owned(),
            shape: view.shape().to_vec(),
            data,
        });
    }
    tensors.sort_by(|left, right| left.name.cmp(&right.name));
    Ok(tensors)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bytes_of(tensors: &[TensorView<'_>]) -> Vec<u8> {
        let order = check(tensors).unwrap();
        let mut bytes = Vec::new();
        write(&mut bytes, tensors, &order).unwrap();
        bytes
    }

    fn view<'a>(name: &str, shape: &[usize], data: &'a [f32]) -> TensorView<'a> {
        TensorView {
            name: name.to_owned(),
            shape: shape.to_vec(),
            data,
        }
    }

    #[test]
    fn the_bytes_are_those_of_the_format() {
        let bytes = bytes_of(&[view("b", &[1], &[1.0]), view("a", &[2], &[-2.0, 0.5])]);
        let header = "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},\
                      \"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[8,12]}}";
        let padded = header.len().next_multiple_of(8);
        assert_eq!(bytes[..8], (padded as u64).to_le_bytes());
        assert_eq!(&bytes[8..8 + header.len()], header.as_bytes());
        assert_eq!(
            bytes[8 + padded..],
            [0, 0, 0, 0xc0, 0, 0, 0, 0x3f, 0, 0, 0x80, 0x3f],
            "-2, 0.5 and 1 as little-endian f32"
        );
    }

    #[test]
    fn wrong_shapes_names_and_types_are_refused() {
        assert!(check(&[view("a", &[3], &[1.0])]).is_err());
        assert!(
            check(&[view("a", &[usize::MAX, 2], &[])]).is_err(),
            "the product overflows"
        );
        let twice = [view("a", &[1], &[1.0]), view("a", &[1], &[2.0])];
        assert!(write(&mut Vec::new(), &twice, &[0, 1]).is_err());
        let half = "{\"a\":{\"dtype\":\"F16\",\"shape\":[2],\"data_offsets\":[0,4]}}";
        let mut bytes = (half.len() as u64).to_le_bytes().to_vec();
        bytes.extend_from_slice(half.as_bytes());
        bytes.extend_from_slice(&[0; 4]);
        let message = read_tensors(Path::new("x"), &bytes).unwrap_err().to_string();
        assert!(message.contains("`a` is F16"), "{message}");
    }

    proptest! {
        #[test]
        fn tensors_read_back_bit_for_bit(
            contents in prop::collection::btree_map("[a-z.]{1,8}", prop::collection::vec(any::<u32>(), 0..9000), 0..5)
        ) {
            let expected: Vec<NamedTensor> = contents
                .into_iter()
                .map(|(name, bits)| NamedTensor {
                    name,
                    shape: vec![bits.len(), 1],
                    data: bits.into_iter().map(f32::from_bits).collect(),
                })
                .collect();
            let views: Vec<_> = expected.iter().rev().map(|tensor| view(&tensor.name, &tensor.shape, &tensor.data)).collect();
            let read = read_tensors(Path::new("x"), &bytes_of(&views)).unwrap();
            prop_assert_eq!(read.len(), expected.len());
            for (read, expected) in read.iter().zip(&expected) {
                prop_assert_eq!(&read.name, &expected.name);
                // By bits: NaN payloads must survive too.
                let bits = |tensor: &NamedTensor| tensor.data.iter().map(|number| number.to_bits()).collect::<Vec<_>>();
                prop_assert_eq!(bits(read), bits(expected));
            }
        }

        #[test]
        fn no_bytes_make_reading_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = read_tensors(Path::new("x"), &bytes);
        }
    }
}
