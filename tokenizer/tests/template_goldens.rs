//! Chat templates render as Jinja2 renders them under transformers.
//!
//! `templates/cases.json` has the conversations. `templates/own.json` has the full texts for the templates kept here;
//! `templates/real.json` has digests for the templates of published models, which are fetched, not kept. Both are
//! made by `tools/templates/render.py`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use llamay_tokenizer::template::{ChatTemplate, LocalTime, Message, RenderOptions, TemplateError};
use serde::Deserialize;
use serde_json::Value;
use sha2::{Digest, Sha256};

/// (template, case, why llamay differs from Jinja2 there). An entry that no longer differs fails the test.
const EXCEPTIONS: &[(&str, &str, &str)] = &[];

#[derive(Deserialize)]
struct Suite {
    bos: String,
    eos: String,
    cases: Vec<Case>,
    tools: Value,
}

#[derive(Deserialize)]
struct Case {
    name: String,
    messages: Vec<Message>,
    add_generation_prompt: bool,
    #[serde(default)]
    tools: Option<String>,
    #[serde(default)]
    variables: BTreeMap<String, Value>,
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/templates")
}

fn read_json<T: serde::de::DeserializeOwned>(name: &str) -> T {
    let text = fs::read_to_string(folder().join(name)).unwrap();
    serde_json::from_str(&text).unwrap()
}

fn render(source: &str, suite: &Suite, case: &Case) -> Result<String, TemplateError> {
    let options = RenderOptions {
        add_generation_prompt: case.add_generation_prompt,
        tools: case.tools.as_ref().map(|_| suite.tools.clone()),
        variables: case.variables.clone(),
        now: LocalTime::new(2026, 7, 4, 9, 5, 3),
    };
    ChatTemplate::new(source, &suite.bos, &suite.eos)?.render(&case.messages, &options)
}

fn digest(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn own_templates_render_as_in_jinja2() {
    let suite: Suite = read_json("cases.json");
    let goldens: BTreeMap<String, BTreeMap<String, Value>> = read_json("own.json");
    assert!(goldens.len() >= 5);
    for (template, cases) in goldens {
        let source = fs::read_to_string(folder().join(&template)).unwrap();
        assert_eq!(cases.len(), suite.cases.len(), "{template}: run tools/templates/render.py own");
        for case in &suite.cases {
            let got = render(&source, &suite, case);
            match (&cases[&case.name], got) {
                (Value::String(expected), Ok(got)) => assert_eq!(got, *expected, "{template}, {}", case.name),
                (Value::Object(_), Err(_)) => {}
                (expected, got) => panic!("{template}, {}: {got:?}, not {expected}", case.name),
            }
        }
    }
}

/// The folder with the templates of published models, if it has been filled (`tools/fetch.py`).
fn real_templates() -> Option<PathBuf> {
    let cache = std::env::var_os("LLAMAY_CACHE").map(PathBuf::from).or_else(|| {
        let home = std::env::var_os("HOME").or_else(|| std::env::var_os("USERPROFILE"))?;
        Some(PathBuf::from(home).join(".cache/llamay"))
    })?;
    let folder = cache.join("templates");
    folder.is_dir().then_some(folder)
}

#[test]
fn real_templates_render_as_in_jinja2() {
    let Some(folder) = real_templates() else {
        let required = std::env::var_os("LLAMAY_REQUIRE_MODELS").is_some_and(|value| value == "1");
        assert!(!required, "the cache has no templates folder; run tools/fetch.py");
        println!("skipped: the cache has no templates folder");
        return;
    };
    let suite: Suite = read_json("cases.json");
    let goldens: BTreeMap<String, BTreeMap<String, String>> = read_json("real.json");
    let mut exceptions: BTreeSet<(&str, &str)> =
        EXCEPTIONS.iter().map(|&(template, case, _)| (template, case)).collect();
    assert_eq!(exceptions.len(), EXCEPTIONS.len(), "an exception is listed twice");

    let mut problems = Vec::new();
    let mut agreed = 0;
    for (template, cases) in &goldens {
        let source = match fs::read_to_string(folder.join(template)) {
            Ok(source) => source,
            Err(error) => {
                problems.push(format!("{template}: {error}"));
                continue;
            }
        };
        if digest(&source) != cases["source"] {
            problems.push(format!("{template}: not the source that the goldens were made from"));
            continue;
        }
        for case in &suite.cases {
            let expected = cases[&case.name].as_str();
            let got = render(&source, &suite, case);
            let agrees = match &got {
                Ok(text) => expected == digest(text),
                Err(_) => expected == "error",
            };
            let excepted = exceptions.remove(&(template.as_str(), case.name.as_str()));
            agreed += usize::from(agrees);
            match (agrees, excepted) {
                (true, true) => {
                    problems.push(format!("{template}, {}: agrees, so it is no exception", case.name))
                }
                (false, false) => {
                    let got =
                        got.map_or_else(|error| error.to_string(), |text| format!("{} bytes", text.len()));
                    problems.push(format!("{template}, {}: {got}; Jinja2: {expected}", case.name));
                }
                _ => {}
            }
        }
    }
    problems.extend(exceptions.iter().map(|(template, case)| format!("{template}, {case}: no such case")));
    println!("{agreed} of {} renderings agree", goldens.len() * suite.cases.len());
    assert!(problems.is_empty(), "{} problems:\n{}", problems.len(), problems.join("\n"));
}
