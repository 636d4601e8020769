//! Rules on the value of one key, each able to say itself in words.

use toml::Value;

use super::value::NONE;

/// What a key's value must satisfy beyond its type. The word `"none"` passes: it means the key is not set.
/// In a list every item is checked.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rule {
    /// Anything of the right type.
    Any,
    /// A number not below this.
    AtLeast(f64),
    /// A number greater than this.
    Above(f64),
    /// A number between the two, both allowed.
    Between(f64, f64),
    /// A number greater than the first and at most the second.
    AboveUpTo(f64, f64),
    /// A number from the first up to but not including the second.
    FromBelow(f64, f64),
    /// A text or list with something in it.
    NotEmpty,
    /// The name of what computes.
    Device,
    /// The *name* of an environment variable, in capitals. A pasted secret fails this rule, and is not repeated in
    /// the message.
    EnvironmentVariable,
    /// An `http://` or `https://` address without a user name or password in it.
    WebAddress,
}

impl Rule {
    /// Whether `value` obeys the rule.
    pub fn accepts(self, value: &Value) -> bool {
        match value {
            Value::String(text) if text == NONE => return true,
            Value::Array(items) if self != Self::NotEmpty => {
                return items.iter().all(|item| self.accepts(item));
            }
            _ => {}
        }
        let number = value
            .as_float()
            .or_else(|| value.as_integer().map(|number| number as f64));
        match self {
            Self::Any => true,
            Self::AtLeast(low) => number.is_none_or(|number| number >= low),
            Self::Above(low) => number.is_none_or(|number| number > low),
            Self::Between(low, high) => number.is_none_or(|number| number >= low && number <= high),
            Self::AboveUpTo(low, high) => number.is_none_or(|number| number > low && number <= high),
            Self::FromBelow(low, high) => number.is_none_or(|number| number >= low && number < high),
            Self::NotEmpty => match value {
                Value::String(text) => !text.trim().is_empty(),
                Value::Array(items) => !items.is_empty(),
                _ => true,
            },
            Self::Device => value
                .as_str()
                .is_none_or(|text| text.parse::<seed_model::Device>().is_ok()),
            Self::EnvironmentVariable => value.as_str().is_none_or(is_variable_name),
            Self::WebAddress => value.as_str().is_none_or(is_plain_web_address),
        }
    }

    /// The rule in words that follow the type, such as `at least 2`; empty for [`Rule::Any`].
    pub fn describe(self) -> String {
        match self {
            Self::Any => String::new(),
            Self::AtLeast(low) => format!("at least {low}"),
            Self::Above(low) => format!("above {low}"),
            Self::Between(low, high) => format!("from {low} to {high}"),
            Self::AboveUpTo(low, high) => format!("above {low} and at most {high}"),
            Self::FromBelow(low, high) => format!("from {low} to below {high}"),
            Self::NotEmpty => "not empty".to_owned(),
            Self::Device => {
                "one of `cpu`, `candle-cpu`, `cuda:0`, `metal:0`, with the number of the GPU".to_owned()
            }
            Self::EnvironmentVariable => "the name of an environment variable, in capitals".to_owned(),
            Self::WebAddress => "starting with http:// or https://, without user name or password".to_owned(),
        }
    }

    /// Whether a refused value may be a secret and so must not be shown.
    pub fn hides_value(self) -> bool {
        matches!(self, Self::EnvironmentVariable | Self::WebAddress)
    }
}

fn is_variable_name(text: &str) -> bool {
    let mut characters = text.chars();
    characters
        .next()
        .is_some_and(|first| first.is_ascii_uppercase() || first == '_')
        && characters
            .all(|character| character.is_ascii_uppercase() || character.is_ascii_digit() || character == '_')
}

fn is_plain_web_address(text: &str) -> bool {
    let Some(rest) = text
        .strip_prefix("http://")
        .or_else(|| text.strip_prefix("https://"))
    else {
        return false;
    };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    !authority.is_empty() && !authority.contains('@') && !text.contains(char::is_whitespace)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Value {
        Value::String(text.to_owned())
    }

    #[test]
    fn ranges_hold_at_their_ends() {
        assert!(Rule::AtLeast(2.0).accepts(&Value::Integer(2)));
        assert!(!Rule::AtLeast(2.0).accepts(&Value::Integer(1)));
        assert!(!Rule::Above(0.0).accepts(&Value::Float(0.0)));
        assert!(Rule::AboveUpTo(0.0, 1.0).accepts(&Value::Float(1.0)));
        assert!(!Rule::FromBelow(0.0, 1.0).accepts(&Value::Float(1.0)));
        assert!(Rule::Between(0.0, 1.0).accepts(&Value::Integer(0)));
        assert!(Rule::AtLeast(5.0).accepts(&text("none")), "unset passes");
        assert!(!Rule::AtLeast(1.0).accepts(&Value::Array(vec![Value::Integer(1), Value::Integer(0)])));
        assert!(!Rule::NotEmpty.accepts(&Value::Array(Vec::new())));
    }

    #[test]
    fn a_pasted_key_is_no_variable_name() {
        assert!(Rule::EnvironmentVariable.accepts(&text("OPENAI_API_KEY")));
        assert!(!Rule::EnvironmentVariable.accepts(&text("sk-abc123")));
        assert!(!Rule::EnvironmentVariable.accepts(&text("hf_AbCdEf0123456789")));
        assert!(!Rule::EnvironmentVariable.accepts(&text("")));
        assert!(!Rule::EnvironmentVariable.accepts(&text("1KEY")));
    }

    #[test]
    fn addresses_carry_no_credentials() {
        assert!(Rule::WebAddress.accepts(&text("http://127.0.0.1:8000/v1")));
        assert!(Rule::WebAddress.accepts(&text("https://host/path@version")));
        assert!(!Rule::WebAddress.accepts(&text("https://user:secret@host/v1")));
        assert!(!Rule::WebAddress.accepts(&text("ftp://host")));
        assert!(!Rule::WebAddress.accepts(&text("http:///v1")));
    }
}
