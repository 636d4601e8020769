//! An OpenAI-compatible endpoint: whether it is there, lets the key in, and serves the model.

use std::time::Duration;

use seed_http::{Address, Secret, agent, excerpt, redacted};
use serde_json::Value;

use crate::Finding;

const AREA: &str = "endpoint";

/// Longest list of models read, in bytes.
const LONGEST_LIST: u64 = 4 << 20;

/// Where to ask for what.
#[derive(Clone, Debug)]
pub struct Endpoint {
    /// The part of the address before `/models`, such as `http://127.0.0.1:8000/v1`.
    pub base_url: String,
    /// The model that must be served; empty = any.
    pub model: String,
    /// Environment variable with the key; `None` = no key is sent.
    pub key_variable: Option<String>,
    /// How long to wait for the answer.
    pub timeout: Duration,
}

/// Asks an endpoint for its models.
pub fn examine_endpoint(endpoint: &Endpoint) -> Vec<Finding> {
    match ask(endpoint) {
        Ok(findings) => findings,
        Err(finding) => vec![finding],
    }
}

fn wrong(text: impl Into<String>, remedy: impl Into<String>) -> Finding {
    Finding::wrong(AREA, text, remedy)
}

fn ask(endpoint: &Endpoint) -> Result<Vec<Finding>, Finding> {
    let url = format!("{}/models", endpoint.base_url.trim_end_matches('/'));
    let address = Address::read(&url).map_err(|_| {
        wrong(
            "the address is no URL with http or https, a host, and neither user nor password",
            "name the part before `/chat/completions`, such as `http://127.0.0.1:8000/v1`",
        )
    })?;
    let key = match &endpoint.key_variable {
        None => None,
        Some(variable) => {
            let key = std::env::var(variable).ok().and_then(|text| Secret::read(&text));
            let key = key.ok_or_else(|| {
                wrong(
                    format!("environment variable `{variable}` holds no key"),
                    "set it to the key, one word of visible ASCII characters",
                )
            })?;
            if !address.is_encrypted && !address.is_loopback {
                return Err(wrong(
                    format!("the key would go to `{url}` unencrypted"),
                    "use https, or an address on this machine",
                ));
            }
            Some(key)
        }
    };
    let mut request = agent(endpoint.timeout, address.is_loopback).get(&url);
    if let Some(key) = &key {
        request = request.header("authorization", key.bearer());
    }
    let unreachable = |error: &ureq::Error| {
        wrong(
            format!(
                "`{url}` cannot be reached: {}",
                redacted(&error.to_string(), key.as_ref())
            ),
            "start the server, or correct the address",
        )
    };
    let mut response = request.call().map_err(|error| unreachable(&error))?;
    let status = response.status().as_u16();
    let body = response
        .body_mut()
        .with_config()
        .limit(LONGEST_LIST)
        .read_to_vec();
    let body = body.map_err(|error| unreachable(&error))?;
    if status != 200 {
        let remedy = match status {
            401 | 403 => "put a valid key into the environment variable that is named for it",
            404 => "name the part of the address before `/chat/completions`",
            _ => "look at the server's own log",
        };
        let said = excerpt(&body, 200, key.as_ref());
        return Err(wrong(
            format!("`{url}` answers with status {status}: {said}"),
            remedy,
        ));
    }
    let names: Option<Vec<String>> = serde_json::from_slice::<Value>(&body).ok().and_then(|list| {
        let models = list.get("data")?.as_array()?;
        let name = |model: &Value| Some(model.get("id")?.as_str()?.to_owned());
        models.iter().map(name).collect()
    });
    let Some(names) = names else {
        return Err(wrong(
            format!("`{url}` answers with something that is no list of models"),
            "name an OpenAI-compatible endpoint",
        ));
    };
    if endpoint.model.is_empty() || names.contains(&endpoint.model) {
        let model = if endpoint.model.is_empty() {
            names.join("`, `")
        } else {
            endpoint.model.clone()
        };
        return Ok(vec![Finding::fine(AREA, format!("`{url}` serves `{model}`"))]);
    }
    Err(wrong(
        format!(
            "`{url}` does not serve `{}`; it has `{}`",
            endpoint.model,
            names.join("`, `")
        ),
        "name one of these as the model",
    ))
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;

    use super::*;
    use crate::Level;

    /// An endpoint that answers once, with a status and a body.
    fn answering(status: u16, body: &'static str) -> Endpoint {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let base_url = format!("http://{}/v1/", listener.local_addr().unwrap());
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                stream.read_exact(&mut byte).unwrap();
                request.push(byte[0]);
            }
            assert!(request.starts_with(b"GET /v1/models HTTP/1.1\r\n"));
            write!(
                stream,
                "HTTP/1.1 {status} x\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
                body.len()
            )
            .unwrap();
        });
        Endpoint {
            base_url,
            model: "analyst".into(),
            key_variable: None,
            timeout: Duration::from_secs(10),
        }
    }

    fn only(endpoint: &Endpoint) -> (Level, String) {
        let finding = examine_endpoint(endpoint).remove(0);
        let url = endpoint.base_url.trim_end_matches('/');
        (finding.level, finding.text.replace(url, "URL"))
    }

    #[test]
    fn the_model_is_there_or_not() {
        let list = r#"{"object": "list", "data": [{"id": "other"}, {"id": "analyst"}]}"#;
        assert_eq!(
            only(&answering(200, list)),
            (Level::Fine, "`URL/models` serves `analyst`".to_owned())
        );
        let without = r#"{"data": [{"id": "other"}]}"#;
        assert_eq!(
            only(&answering(200, without)),
            (
                Level::Wrong,
                "`URL/models` does not serve `analyst`; it has `other`".to_owned()
            )
        );
    }

    #[test]
    fn what_is_in_the_way_is_told() {
        let (level, text) = only(&answering(401, r#"{"error": "no key"}"#));
        assert_eq!(level, Level::Wrong);
        assert_eq!(
            text,
            r#"`URL/models` answers with status 401: {"error": "no key"}"#
        );
        let (level, text) = only(&answering(200, "<html>"));
        assert_eq!(level, Level::Wrong);
        assert!(text.ends_with("no list of models"), "{text}");
        // A port that was free a moment ago.
        let mut nobody = answering(200, "");
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        nobody.base_url = format!("http://{free}/v1");
        let (level, text) = only(&nobody);
        assert_eq!(level, Level::Wrong);
        assert!(text.contains("cannot be reached"), "{text}");
        nobody.base_url = "http://user:word@host/v1".into();
        assert!(!only(&nobody).1.contains("word@"));
        nobody.base_url = "http://192.0.2.1/v1".into();
        nobody.key_variable = Some("CARGO_PKG_NAME".into());
        assert!(only(&nobody).1.contains("unencrypted"));
        nobody.key_variable = Some("SEED_TEST_TOKEN_THAT_IS_NOT_SET".into());
        assert!(only(&nobody).1.contains("holds no key"));
    }
}
