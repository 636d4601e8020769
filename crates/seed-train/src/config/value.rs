//! Values of configuration keys: how a TOML value becomes a typed field and back.
//!
//! Not for: rules about a value's range ([`super::rule`]) or about several keys together ([`super::validate`]).

use std::path::PathBuf;

use toml::Value;

/// The text that stands for "not set" in a key that may be unset; TOML has no null.
pub(crate) const NONE: &str = "none";

/// A type a configuration key can have.
pub(crate) trait ConfigValue: Sized + Clone {
    /// The type as a person would write it, such as `whole number` or `"step" | "trajectory"`.
    fn type_name() -> String;

    /// The accepted words, where the type is a choice.
    fn words() -> &'static [&'static str] {
        &[]
    }

    /// Reads a TOML value; `None` when it is of another type.
    fn read(value: &Value) -> Option<Self>;

    /// The TOML value that [`ConfigValue::read`] turns back into this one.
    fn write(&self) -> Value;
}

impl ConfigValue for bool {
    fn type_name() -> String {
        "true | false".to_owned()
    }

    fn read(value: &Value) -> Option<Self> {
        value.as_bool()
    }

    fn write(&self) -> Value {
        Value::Boolean(*self)
    }
}

impl ConfigValue for usize {
    fn type_name() -> String {
        "whole number".to_owned()
    }

    fn read(value: &Value) -> Option<Self> {
        // A count above 32 bits is a slip of the keyboard; refusing it keeps sums of counts from overflowing.
        let count = u32::try_from(value.as_integer()?).ok()?;
        Self::try_from(count).ok()
    }

    fn write(&self) -> Value {
        Value::Integer(i64::try_from(*self).unwrap_or(i64::MAX))
    }
}

impl ConfigValue for u64 {
    fn type_name() -> String {
        "whole number".to_owned()
    }

    fn read(value: &Value) -> Option<Self> {
        // TOML's integers are signed, so the upper half of the range cannot be written.
        value.as_integer().and_then(|number| Self::try_from(number).ok())
    }

    fn write(&self) -> Value {
        Value::Integer(i64::try_from(*self).unwrap_or(i64::MAX))
    }
}

impl ConfigValue for f64 {
    fn type_name() -> String {
        "number".to_owned()
    }

    fn read(value: &Value) -> Option<Self> {
        // A whole number may be written without a point; infinities and NaN are never meant.
        value
            .as_float()
            .or_else(|| value.as_integer().map(|number| number as f64))
            .filter(|number| number.is_finite())
    }

    fn write(&self) -> Value {
        Value::Float(*self)
    }
}

impl ConfigValue for String {
    fn type_name() -> String {
        "text".to_owned()
    }

    fn read(value: &Value) -> Option<Self> {
        value.as_str().map(str::to_owned)
    }

    fn write(&self) -> Value {
        Value::String(self.clone())
    }
}

impl ConfigValue for PathBuf {
    fn type_name() -> String {
        "path".to_owned()
    }

    fn read(value: &Value) -> Option<Self> {
        value.as_str().map(Self::from)
    }

    fn write(&self) -> Value {
        // A path comes from a TOML string and so is valid text.
        Value::String(self.to_string_lossy().into_owned())
    }
}

impl<T: ConfigValue> ConfigValue for Option<T> {
    fn type_name() -> String {
        format!("{} | \"{NONE}\"", T::type_name())
    }

    fn words() -> &'static [&'static str] {
        T::words()
    }

    fn read(value: &Value) -> Option<Self> {
        if value.as_str() == Some(NONE) {
            return Some(None);
        }
        T::read(value).map(Some)
    }

    fn write(&self) -> Value {
        self.as_ref()
            .map_or_else(|| Value::String(NONE.to_owned()), ConfigValue::write)
    }
}

impl<T: ConfigValue> ConfigValue for Vec<T> {
    fn type_name() -> String {
        format!("list of {}", T::type_name())
    }

    fn words() -> &'static [&'static str] {
        T::words()
    }

    fn read(value: &Value) -> Option<Self> {
        // One item may be written without brackets.
        value.as_array().map_or_else(
            || T::read(value).map(|item| vec![item]),
            |items| items.iter().map(T::read).collect(),
        )
    }

    fn write(&self) -> Value {
        Value::Array(self.iter().map(ConfigValue::write).collect())
    }
}

/// Declares an enum whose variants are words in a configuration file.
macro_rules! choice {
    ($(#[$meta:meta])* $name:ident { $($(#[doc = $doc:literal])+ $variant:ident = $word:literal),+ $(,)? }) => {
        $(#[$meta])*
        #[derive(
            Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
        )]
        pub enum $name {
            $($(#[doc = $doc])+ #[serde(rename = $word)] $variant),+
        }

        impl $name {
            /// Every choice with its word and its meaning, in order.
            pub const CHOICES: &'static [(Self, &'static str, &'static str)] =
                &[$((Self::$variant, $word, concat!($($doc),+))),+];

            /// Every choice, in order.
            pub fn all() -> impl Iterator<Item = Self> {
                Self::CHOICES.iter().map(|choice| choice.0)
            }

            /// The word that names this choice in a configuration.
            pub fn word(self) -> &'static str {
                match self {
                    $(Self::$variant => $word),+
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                formatter.write_str(self.word())
            }
        }

        impl $crate::config::value::ConfigValue for $name {
            fn type_name() -> String {
                [$(concat!("\"", $word, "\"")),+].join(" | ")
            }

            fn words() -> &'static [&'static str] {
                &[$($word),+]
            }

            fn read(value: &toml::Value) -> Option<Self> {
                let word = value.as_str()?;
                Self::CHOICES.iter().find(|choice| choice.1 == word).map(|choice| choice.0)
            }

            fn write(&self) -> toml::Value {
                toml::Value::String(self.word().to_owned())
            }
        }
    };
}
pub(crate) use choice;
