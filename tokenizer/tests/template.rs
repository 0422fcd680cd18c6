//! Chat templates are untrusted programs: what they may do, and what is said when they fail.

use llamay_tokenizer::template::{
    ChatTemplate, LocalTime, MAX_SOURCE_BYTES, MAX_SOURCE_TOKENS, Message, RenderOptions, TemplateError,
};
use proptest::prelude::*;
use serde_json::json;

fn compile(source: &str) -> ChatTemplate {
    ChatTemplate::new(source, "<s>", "</s>").unwrap()
}

fn hello() -> [Message; 2] {
    [Message::new("system", "Be kind."), Message::new("user", "Hello")]
}

fn render(source: &str) -> Result<String, TemplateError> {
    compile(source).render(&hello(), &RenderOptions::generation())
}

#[test]
fn any_role_reaches_the_template() {
    let template = compile("{% for m in messages %}{{ m.role }}={{ m.content }};{% endfor %}");
    let messages = [Message::new("ünknown role", "a"), Message::new("", "b")];
    assert_eq!(template.render(&messages, &RenderOptions::default()), Ok("ünknown role=a;=b;".to_owned()));
}

#[test]
fn system_support_is_found_out_by_rendering() {
    let keeps = "{% for m in messages %}{{ m.role }}{{ m.content }}{% endfor %}";
    let drops = "{% for m in messages if m.role == 'user' %}{{ m.content }}{% endfor %}";
    let refuses = "{% if messages[0].role == 'system' %}{{ raise_exception('no') }}{% endif %}{{ messages[0].content }}";
    let merges = "{{ messages[0].content + '\n' + messages[1].content }}";
    assert!(compile(keeps).supports_system());
    assert!(!compile(drops).supports_system());
    assert!(!compile(refuses).supports_system());
    assert!(compile(merges).supports_system());
}

#[test]
fn a_prefill_ends_the_prompt_within_the_last_message() {
    let options = RenderOptions { continue_final_message: true, ..RenderOptions::default() };
    let messages = [Message::new("user", "Hello"), Message::new("assistant", "Well, ")];
    let render = |source: &str, messages: &[Message]| compile(source).render(messages, &options);
    let keeps = "{% for m in messages %}<{{ m.content }}>{% endfor %}";
    let trims = "{% for m in messages %}<{{ m.content | trim }}>{% endfor %}";
    let drops = "{{ messages[0].content }}";
    assert_eq!(render(keeps, &messages), Ok("<Hello><Well, ".to_owned()));
    assert_eq!(render(trims, &messages), Ok("<Hello><Well,".to_owned()));
    assert!(matches!(render(drops, &messages), Err(TemplateError::Prefill(_))));
    assert!(matches!(render(keeps, &[]), Err(TemplateError::Prefill(_))));
    let parts = json!([{"type": "text", "text": "Well, "}, {"type": "image"}]);
    let in_parts = Message { content: Some(parts), ..Message::new("assistant", "") };
    let source = "{% for part in messages[0].content %}{{ part.text }}|{% endfor %}";
    assert_eq!(render(source, &[in_parts]), Ok("Well, ".to_owned()));
}

#[test]
fn standard_variables_are_always_defined() {
    let source = "{{ bos_token }}{{ eos_token }} {{ tools }} {{ documents }} {{ add_generation_prompt }}";
    assert_eq!(render(source), Ok("<s></s> None None True".to_owned()));
    let mut options = RenderOptions { tools: Some(json!([{"z": 1, "a": 2}])), ..RenderOptions::default() };
    options.variables.insert("bos_token".to_owned(), json!("other"));
    options.variables.insert("depth".to_owned(), json!(3));
    let rendered = compile("{{ bos_token }} {{ depth + 1 }} {{ tools | tojson }}").render(&[], &options);
    assert_eq!(rendered, Ok(r#"other 4 [{"z": 1, "a": 2}]"#.to_owned()));
}

#[test]
fn the_time_can_be_given() {
    let options = RenderOptions { now: LocalTime::new(2024, 2, 29, 0, 0, 0), ..RenderOptions::default() };
    let template = compile("{{ strftime_now('%d %b %Y') }}, {{ strftime_now('%-d.%-m.%y') }}");
    assert_eq!(template.render(&[], &options), Ok("29 Feb 2024, 29.2.24".to_owned()));
    assert_eq!(LocalTime::new(2023, 2, 29, 0, 0, 0), None);
    let year: i32 = render("{{ strftime_now('%Y') }}").unwrap().parse().unwrap();
    assert!(year >= 2024);
}

#[test]
fn generation_tags_mark_a_scope_and_print_nothing() {
    let source = "a {%- generation -%} {% set x = 1 %} b{{ x }} {%- endgeneration %} {{ x is defined }} {% generation %}\n\
                  c{% endgeneration %}";
    assert_eq!(render(source), Ok("a b1 False c".to_owned()));
}

#[test]
fn a_message_keeps_its_json_form() {
    let text = r#"{"role":"assistant","content":null,"tool_calls":[{"id":"1"}]}"#;
    let message: Message = serde_json::from_str(text).unwrap();
    assert_eq!(message.content, Some(json!(null)));
    assert_eq!(serde_json::to_string(&message).unwrap(), text);
    let message: Message = serde_json::from_str(r#"{"role":"user"}"#).unwrap();
    assert_eq!(message.content, None);
    assert_eq!(serde_json::to_string(&message).unwrap(), r#"{"role":"user"}"#);
    assert_eq!(Message::new("tool", "4").with("name", "sum").extra["name"], "sum");
}

#[test]
fn a_refusal_carries_the_templates_words() {
    let error = render("line\n{{ raise_exception('no ' ~ messages[0].role) }}").unwrap_err();
    assert_eq!(error, TemplateError::Refused("no system".to_owned()));
    assert_eq!(error.to_string(), "the chat template refuses this conversation: no system");
    let inside_a_macro = "{% macro m() %}{{ raise_exception('deep') }}{% endmacro %}{{ m() }}";
    assert_eq!(render(inside_a_macro), Err(TemplateError::Refused("deep".to_owned())));
}

#[test]
fn errors_name_the_line_and_the_reason() {
    let error = ChatTemplate::new("ok\n{% for %}", "", "").unwrap_err();
    assert!(matches!(error, TemplateError::Syntax { line: 2, .. }), "{error}");
    assert!(error.to_string().starts_with("the chat template has a syntax error in line 2: "), "{error}");
    let error = render("ok\n\n{{ messages[0].nothing.more }}").unwrap_err();
    assert!(matches!(error, TemplateError::Failed { line: 3, .. }), "{error}");
    assert!(!error.to_string().contains('\n'), "{error}");
}

#[test]
fn changing_methods_are_forbidden_as_in_the_sandbox() {
    for source in
        ["{{ messages.append(1) }}", "{{ messages[0].pop('role') }}", "{{ messages[0].update({}) }}"]
    {
        assert!(matches!(render(source), Err(TemplateError::Failed { .. })), "{source}");
    }
}

#[test]
fn nothing_outside_the_template_can_be_reached() {
    for source in
        ["{% include 'Cargo.toml' %}", "{% extends 'x' %}", "{% import '/etc/passwd' as p %}{{ p }}"]
    {
        let outcome = ChatTemplate::new(source, "", "")
            .and_then(|template| template.render(&[], &RenderOptions::default()));
        assert!(outcome.is_err(), "{source}");
    }
}

#[test]
fn a_long_source_is_refused() {
    assert!(ChatTemplate::new(&" ".repeat(MAX_SOURCE_BYTES), "", "").is_ok());
    let error = ChatTemplate::new(&" ".repeat(MAX_SOURCE_BYTES + 1), "", "").unwrap_err();
    assert_eq!(error.to_string(), "the chat template has 262145 bytes, more than the 262144 allowed");
    assert!(ChatTemplate::new(&"word ".repeat(MAX_SOURCE_TOKENS), "", "").is_ok());
    let error = ChatTemplate::new(&"word ".repeat(MAX_SOURCE_TOKENS + 1), "", "").unwrap_err();
    assert_eq!(error.to_string(), "the chat template has 12001 tokens, more than the 12000 allowed");
}

#[test]
fn endless_templates_run_into_a_limit() {
    for source in [
        "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
        "{% for a in range(100000) %}{% for b in range(100000) %}xxxxxxxxxxxxxxxx{% endfor %}{% endfor %}",
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
        "{% macro m() %}{{ m() }}{{ m() }}{% endmacro %}{{ m() }}",
        "{{ 'x' * 1000000000000 }}",
        "{% set ns = namespace(s='xxxxxxxx') %}{% for i in range(64) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
        "{% set ns = namespace(s='xxxxxxxx') %}{% for i in range(64) %}{% set ns.s = ns.s.replace('x', 'xxxx') %}{% endfor %}",
        "{% set ns = namespace(l=[]) %}{% for i in range(1000) %}{% set ns.l = [ns.l] %}{% endfor %}{{ ns.l | tojson }}",
        "{% set ns = namespace(l=[1]) %}{% for i in range(40) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l | tojson }}",
        "{% set ns = namespace(l=[1]) %}{% for i in range(40) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l }}",
    ] {
        let error = render(source).expect_err(source);
        assert!(
            matches!(
                error,
                TemplateError::TooManySteps { .. }
                    | TemplateError::OutputTooLong { .. }
                    | TemplateError::Failed { .. }
            ),
            "{source}: {error}"
        );
    }
}

/// `n` times `open`, then `middle`, then `n` times `close`, with as large an `n` as the limits allow.
fn nested(start: &str, open: &str, middle: &str, close: &str, end: &str) -> String {
    // No pattern below has words of several characters only, so its length in bytes bounds its tokens.
    let n = (MAX_SOURCE_TOKENS - 40) / (open.trim().len() + close.trim().len());
    [start, &open.repeat(n), middle, &close.repeat(n), end].concat()
}

#[test]
fn long_chains_and_deep_nesting_in_the_source_do_not_overflow_the_stack() {
    for source in [
        nested("{{ ", "(", "1", ")", " }}"),
        nested("{{ ", "[", "1", "]", " }}"),
        nested("{{ ", "-", "1", "", " }}"),
        nested("{{ ", "not ", "1", "", " }}"),
        nested("{{ 1", " + 1", "", "", " }}"),
        nested("{{ 1", " and 1", "", "", " }}"),
        nested("{{ messages", ".a", "", "", " }}"),
        nested("{{ messages", "()", "", "", " }}"),
        nested("{{ messages", "[0]", "", "", " }}"),
        nested("{{ 1", "|e", "", "", " }}"),
        nested("{{ 1", " if 1", "", "", " }}"),
        nested("{% set ", "(", "a", ")", " = 1 %}"),
        nested("{% set ", "(", "", "", ""),
        nested("{% if 1 %}", "{%if 1%}", "", "", "{% endif %}"),
        nested("{% if 0 %}", "{%elif 0%}", "", "", "{% endif %}"),
    ] {
        // Some of these are legal and some are not: what counts is that there is an answer.
        if let Ok(template) = ChatTemplate::new(&source, "", "") {
            let _ = template.render(&hello(), &RenderOptions::default());
        }
    }
}

#[test]
fn deeply_nested_values_do_not_overflow_the_stack() {
    let nest =
        "{% set ns = namespace(a=[], b=[]) %}{% for i in range(14000) %}{% set ns.a = [ns.a] %}{% endfor %}";
    assert_eq!(render(&format!("{nest}dropped")), Ok("dropped".to_owned()));
    assert_eq!(render(&format!("{nest}{{{{ ns.a | string | length }}}}")), Ok("28002".to_owned()));
    assert!(matches!(render(&format!("{nest}{{{{ ns.a | tojson }}}}")), Err(TemplateError::Failed { .. })));
    // The same again until the steps run out.
    for body in ["[ns.a]", "{'k': ns.a}", "namespace(a=ns.a)", "(ns.a,)"] {
        let source = format!(
            "{{% set ns = namespace(a=[]) %}}{{% for i in range(90000) %}}{{% set ns.a = {body} %}}{{% endfor %}}"
        );
        assert!(matches!(render(&source), Err(TemplateError::TooManySteps { .. })), "{body}");
    }
}

#[test]
fn a_long_conversation_is_within_the_limits() {
    let messages: Vec<Message> = (0..2000)
        .map(|i| Message::new(if i % 2 == 0 { "user" } else { "assistant" }, "word ".repeat(200)))
        .collect();
    let template = compile(
        "{% for m in messages %}{% set words = m.content.split() %}<{{ m.role }}>{{ m.content | trim }} {{ words | length }}\
         {% endfor %}",
    );
    let prompt = template.render(&messages, &RenderOptions::generation()).unwrap();
    assert!(prompt.len() > 1_900_000);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]

    #[test]
    fn no_source_panics(parts in prop::collection::vec(prop::sample::select(PIECES), 0..24)) {
        let source = parts.concat();
        if let Ok(template) = ChatTemplate::new(&source, "<s>", "</s>") {
            let _ = template.render(&hello(), &RenderOptions::generation());
            template.supports_system();
        }
    }

    #[test]
    fn tojson_writes_what_serde_json_reads(text: String, number: i64, eighths: i32) {
        let value = json!({"text": text, "list": [number, null, true, {}], "float": f64::from(eighths) / 8.0, "empty": []});
        let options = RenderOptions { tools: Some(value.clone()), ..RenderOptions::default() };
        for filter in ["tojson", "tojson(indent=2)", "tojson(ensure_ascii=true)", "tojson(separators=(',', ':'))"] {
            let prompt = compile(&format!("{{{{ tools | {filter} }}}}")).render(&[], &options).unwrap();
            prop_assert_eq!(&serde_json::from_str::<serde_json::Value>(&prompt).unwrap(), &value, "{}", filter);
        }
    }
}

/// What templates are made of, to be put together at random.
const PIECES: &[&str] = &[
    "{{",
    "}}",
    "{%",
    "%}",
    "{%-",
    "-%}",
    "{#",
    "#}",
    " for m in messages ",
    " endfor ",
    " if ",
    " else ",
    " endif ",
    " set x = ",
    " messages ",
    "[0]",
    "[-1]",
    "[::0]",
    "[9223372036854775807:]",
    ".role",
    ".content",
    " | tojson ",
    " | length ",
    " | tojson(indent=9999999999) ",
    "(",
    ")",
    " namespace(a=1) ",
    " range(-1, 10, 0) ",
    " 0 ",
    " // ",
    " % ",
    " ** ",
    " * ",
    " - ",
    "'a'",
    "\"",
    "é🦙",
    "\n",
    " generation ",
    " endgeneration ",
    " raw ",
    " endraw ",
    " macro m() ",
    " endmacro ",
    " loop.index ",
    " break ",
    ".split('')",
    ".format(1)",
    " 9223372036854775807 ",
    " 1e308 ",
    " in ",
    " is ",
    " strftime_now('%', '%Q') ",
    " strftime_now('%Q') ",
    " strftime_now('%99999999999Y') ",
];
