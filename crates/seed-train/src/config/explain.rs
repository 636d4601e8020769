//! What `seed config explain` shows: each key with type, default, meaning, current value and where that came from.

use toml::Value;

use super::error::ConfigError;
use super::loaded::{Loaded, suggestion};
use super::schema::{Document, FieldInfo};
use super::source::Origin;

/// One key as it stands.
#[derive(Clone, Debug)]
pub struct Explanation {
    /// The key's declaration.
    pub field: FieldInfo,
    /// Its value now.
    pub value: Value,
    /// What set it; `None` for the default.
    pub origin: Option<Origin>,
}

impl<C: Document> Loaded<C> {
    /// Explains one key (`rollout.temperature`), one table (`rollout`), or with `None` every key, in file order.
    ///
    /// # Errors
    /// [`ConfigError::UnknownKey`] with the nearest key.
    pub fn explain(&self, key: Option<&str>) -> Result<Vec<Explanation>, ConfigError> {
        let fields = C::fields();
        let found: Vec<Explanation> = fields
            .iter()
            .filter(|field| key.is_none_or(|key| field.key() == key || field.section == key))
            .filter_map(|field| {
                Some(Explanation {
                    value: self.config.get(field.section, field.name)?,
                    origin: self.origins.get(&field.key()).cloned(),
                    field: field.clone(),
                })
            })
            .collect();
        match key {
            Some(key) if found.is_empty() => Err(ConfigError::UnknownKey {
                suggestion: suggestion(&fields, key),
                key: key.to_owned(),
                kind: C::KIND,
            }),
            _ => Ok(found),
        }
    }
}

/// Explanations as text for a terminal.
pub fn explanation_text(explanations: &[Explanation]) -> String {
    let entries: Vec<String> = explanations
        .iter()
        .map(|explanation| {
            let field = &explanation.field;
            let origin = explanation
                .origin
                .as_ref()
                .map_or_else(|| "default".to_owned(), ToString::to_string);
            format!(
                "{}\n  {}\n  type     {}\n  default  {}\n  value    {}  ({origin})\n",
                field.key(),
                field.documentation,
                field.expectation(),
                field.default,
                explanation.value,
            )
        })
        .collect();
    entries.concat()
}

/// The reference of all keys of a document, as Markdown.
pub fn reference_markdown<C: Document>() -> String {
    let fields = C::fields();
    let mut lines = vec![format!("# Keys of a {}", C::KIND)];
    for (section, documentation) in C::sections() {
        lines.push(format!(
            "\n## `[{section}]`\n\n{documentation}\n\n| Key | Type | Default | Meaning |\n|---|---|---|---|"
        ));
        lines.extend(
            fields
                .iter()
                .filter(|field| field.section == section)
                .map(|field| {
                    format!(
                        "| `{}` | {} | `{}` | {} |",
                        field.name,
                        field.expectation().replace('|', "\\|"),
                        field.default,
                        field.documentation
                    )
                }),
        );
    }
    lines.join("\n") + "\n"
}
