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

/// Renderings that differ from Jinja2's on purpose. One that no longer differs fails the test.
struct Exception {
    /// Why: not read by the test, but nothing differs without a reason.
    #[expect(dead_code)]
    reason: &'static str,
    /// The template, and the cases in which it differs.
    renderings: &'static [(&'static str, &'static [&'static str])],
}

const WITHOUT_TOOLS: &[&str] = &[
    "chat",
    "no_system",
    "no_generation_prompt",
    "prefill",
    "prefill_thought",
    "empty_content",
    "odd_text",
    "unknown_role",
    "reasoning",
    "thinking",
];

const EXCEPTIONS: &[Exception] = &[
    Exception {
        reason: "The template loops over tools or a content that is none, which Python cannot. llamay takes none as \
                 empty there, so that templates written for tool use serve conversations without tools too.",
        renderings: &[
            ("CohereForAI-c4ai-command-r-plus-tool_use.jinja", WITHOUT_TOOLS),
            ("CohereForAI-c4ai-command-r-plus-tool_use.jinja", &["missing_content"]),
            ("NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use.jinja", WITHOUT_TOOLS),
            ("NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use.jinja", &["no_messages"]),
            ("NousResearch-Hermes-3-Llama-3.1-8B-tool_use.jinja", WITHOUT_TOOLS),
            ("NousResearch-Hermes-3-Llama-3.1-8B-tool_use.jinja", &["no_messages"]),
            ("Cohere2MoE.jinja", &["missing_content"]),
            ("LFM2.5-8B-A1B.jinja", &["missing_content"]),
            ("Mistral-Small-3.2-24B-Instruct-2506.jinja", &["missing_content"]),
        ],
    },
    Exception {
        reason: "The template writes the result of `map` as JSON, which in Python is a generator and has no JSON form. \
                 It is a list here, as the template means it.",
        renderings: &[("llama-cpp-deepseek-r1.jinja", &["tools", "tool_turn", "tool_arguments_text"])],
    },
    Exception {
        reason: "The template adds text to `|safe` text, which makes Jinja2 escape the tools for HTML. A prompt is no \
                 HTML, so llamay leaves them as they are.",
        renderings: &[(
            "meetkai-functionary-medium-v3.1.jinja",
            &["tools", "tool_turn", "tool_arguments_text"],
        )],
    },
];

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
    #[serde(default)]
    add_generation_prompt: bool,
    #[serde(default)]
    continue_final_message: bool,
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
        continue_final_message: case.continue_final_message,
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
    let mut exceptions = BTreeSet::new();
    for (template, cases) in EXCEPTIONS.iter().flat_map(|exception| exception.renderings) {
        for case in *cases {
            assert!(exceptions.insert((*template, *case)), "{template}, {case} is excepted twice");
        }
    }

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
