//! The machinery under the tables of keys: one declaration gives a key's field, type, default, rule and documentation.
//!
//! Not for: the keys themselves ([`super::sections`], [`super::fine_tuning`]).

use std::collections::BTreeMap;
use std::fmt::Debug;

use toml::Value;

use super::rule::Rule;
use super::source::Origin;

/// What changing a key does to a run that is resumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The trained parameters depend on it: a resumed run must keep it.
    Result,
    /// It changes speed, memory, reporting or storage, never the parameters: free to change on resume.
    Runtime,
}

/// All that is known of one key, from its single declaration.
#[derive(Clone, Debug)]
pub struct FieldInfo {
    /// Table the key stands in.
    pub section: &'static str,
    /// Name inside the table.
    pub name: &'static str,
    /// One line of documentation.
    pub documentation: String,
    /// Type as a person would write it.
    pub type_name: String,
    /// The accepted words, where the type is a choice.
    pub words: &'static [&'static str],
    /// Rule on the value.
    pub rule: Rule,
    /// Value when nothing sets the key.
    pub default: Value,
    /// What changing it does to a resumed run.
    pub effect: Effect,
}

impl FieldInfo {
    /// `section.name`.
    pub fn key(&self) -> String {
        format!("{}.{}", self.section, self.name)
    }

    /// Type and rule in one phrase, such as `whole number, at least 2`.
    pub fn expectation(&self) -> String {
        match self.rule.describe() {
            rule if rule.is_empty() => self.type_name.clone(),
            rule => format!("{}, {rule}", self.type_name),
        }
    }
}

/// One table of a configuration.
pub(crate) trait Section: Default {
    fn fields() -> Vec<FieldInfo>;
    fn documentation() -> String;
    fn set(&mut self, name: &str, value: &Value) -> bool;
    fn get(&self, name: &str) -> Option<Value>;
}

/// Where every key's value came from; keys that nothing set are absent.
pub type Origins = BTreeMap<String, Origin>;

/// Findings about several keys together.
#[derive(Debug, Default)]
pub struct Findings {
    /// Combinations that cannot run, as sentences.
    pub errors: Vec<String>,
    /// Combinations that run but hardly mean what was written.
    pub warnings: Vec<String>,
}

/// A whole configuration: a fixed set of tables.
pub trait Document: Default + Clone + Debug + PartialEq {
    /// What the file is called in messages, such as `training configuration`.
    const KIND: &'static str;

    /// Every key in file order.
    fn fields() -> Vec<FieldInfo>;

    /// Every table with its documentation, in file order.
    fn sections() -> Vec<(&'static str, String)>;

    /// Sets a key; false when the value is of another type or there is no such key.
    fn set(&mut self, section: &str, name: &str, value: &Value) -> bool;

    /// The current value of a key.
    fn get(&self, section: &str, name: &str) -> Option<Value>;

    /// Checks what no single key can: `origins` tells which keys someone set.
    fn check(&self, origins: &Origins) -> Findings;
}

/// Text of doc comments as one line.
pub(crate) fn one_line(lines: &[&str]) -> String {
    lines
        .iter()
        .map(|line| line.trim())
        .collect::<Vec<_>>()
        .join(" ")
        .trim()
        .to_owned()
}

/// Declares a table: `field: type = default, rule[, Effect];` under a doc comment that becomes its documentation.
macro_rules! section {
    (@effect) => { $crate::config::schema::Effect::Result };
    (@effect $effect:ident) => { $crate::config::schema::Effect::$effect };
    ($(#[doc = $section_doc:literal])+ $struct:ident = $table:literal {
        $($(#[doc = $doc:literal])+ $field:ident: $type:ty = $default:expr, $rule:expr $(, $effect:ident)?;)+
    }) => {
        $(#[doc = $section_doc])+
        #[derive(Clone, Debug, PartialEq)]
        pub struct $struct {
            $($(#[doc = $doc])+ pub $field: $type,)+
        }

        impl Default for $struct {
            fn default() -> Self {
                Self { $($field: $default,)+ }
            }
        }

        impl $crate::config::schema::Section for $struct {
            fn fields() -> Vec<$crate::config::schema::FieldInfo> {
                use $crate::config::value::ConfigValue;
                let default = Self::default();
                vec![$($crate::config::schema::FieldInfo {
                    section: $table,
                    name: stringify!($field),
                    documentation: $crate::config::schema::one_line(&[$($doc),+]),
                    type_name: <$type>::type_name(),
                    words: <$type>::words(),
                    rule: $rule,
                    default: default.$field.write(),
                    effect: section!(@effect $($effect)?),
                },)+]
            }

            fn documentation() -> String {
                $crate::config::schema::one_line(&[$($section_doc),+])
            }

            fn set(&mut self, name: &str, value: &toml::Value) -> bool {
                use $crate::config::value::ConfigValue;
                match name {
                    $(stringify!($field) => match <$type>::read(value) {
                        Some(read) => {
                            self.$field = read;
                            true
                        }
                        None => false,
                    },)+
                    _ => false,
                }
            }

            fn get(&self, name: &str) -> Option<toml::Value> {
                use $crate::config::value::ConfigValue;
                match name {
                    $(stringify!($field) => Some(self.$field.write()),)+
                    _ => None,
                }
            }
        }
    };
}
pub(crate) use section;

/// Declares a document from its tables; the table's name is the field's name.
macro_rules! document {
    ($(#[$meta:meta])* $struct:ident = $kind:literal, check: $check:path, {
        $($section:ident: $type:ty),+ $(,)?
    }) => {
        $(#[$meta])*
        #[derive(Clone, Debug, Default, PartialEq)]
        pub struct $struct {
            $(#[doc = concat!("The `[", stringify!($section), "]` table.")] pub $section: $type,)+
        }

        impl $crate::config::schema::Document for $struct {
            const KIND: &'static str = $kind;

            fn fields() -> Vec<$crate::config::schema::FieldInfo> {
                use $crate::config::schema::Section;
                [$(<$type>::fields()),+].concat()
            }

            fn sections() -> Vec<(&'static str, String)> {
                use $crate::config::schema::Section;
                vec![$((stringify!($section), <$type>::documentation())),+]
            }

            fn set(&mut self, section: &str, name: &str, value: &toml::Value) -> bool {
                use $crate::config::schema::Section;
                match section {
                    $(stringify!($section) => self.$section.set(name, value),)+
                    _ => false,
                }
            }

            fn get(&self, section: &str, name: &str) -> Option<toml::Value> {
                use $crate::config::schema::Section;
                match section {
                    $(stringify!($section) => self.$section.get(name),)+
                    _ => None,
                }
            }

            fn check(
                &self,
                origins: &$crate::config::schema::Origins,
            ) -> $crate::config::schema::Findings {
                $check(self, origins)
            }
        }
    };
}
pub(crate) use document;
