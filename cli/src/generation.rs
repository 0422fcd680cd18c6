//! Options and reports of generating text, shared by one answer and a chat.

use std::time::Duration;

use llamay_engine::sampling::SamplingParams;
use llamay_engine::{Finish, GenerateOptions, Stats};
use serde_json::{Value, json};

use crate::error::CliError;
use crate::output;

/// Options of generating text. The defaults of sampling are the engine's.
#[derive(clap::Args)]
#[command(next_help_heading = "Choosing tokens")]
pub(crate) struct GenerationArgs {
    /// Tokens to generate at most; 0 only computes the prompt, -1 goes on until the model ends
    #[arg(
        short = 'n', long, value_name = "N", default_value_t = -1, allow_negative_numbers = true,
        value_parser = clap::value_parser!(i64).range(-1..)
    )]
    pub(crate) n_predict: i64,
    /// Divide the logits by this; 0 takes the most likely token
    #[arg(long, value_name = "T", default_value_t = SamplingParams::default().temperature)]
    temp: f32,
    /// Keep this many of the most likely tokens; 0 keeps all
    #[arg(long, value_name = "N", default_value_t = SamplingParams::default().top_k)]
    top_k: usize,
    /// Keep the fewest tokens that have this probability together; 1 keeps all
    #[arg(long, value_name = "P", default_value_t = SamplingParams::default().top_p)]
    top_p: f32,
    /// Drop tokens less likely than this share of the most likely one; 0 keeps all
    #[arg(long, value_name = "P", default_value_t = SamplingParams::default().min_p)]
    min_p: f32,
    /// Keep the tokens closest to the expected information up to this probability; 1 keeps all
    #[arg(long, value_name = "P", default_value_t = SamplingParams::default().typical_p)]
    typical: f32,
    /// Make tokens that came up less likely by this factor; 1 changes nothing
    #[arg(long, value_name = "X", default_value_t = SamplingParams::default().repeat_penalty)]
    repeat_penalty: f32,
    /// Tokens that the penalties look back at; 0 turns them off, -1 looks at all
    #[arg(
        long, value_name = "N", default_value_t = SamplingParams::default().repeat_last_n as i64,
        allow_negative_numbers = true, value_parser = clap::value_parser!(i64).range(-1..)
    )]
    repeat_last_n: i64,
    /// Lower the logits of tokens that came up by this, once
    #[arg(
        long, value_name = "X", default_value_t = SamplingParams::default().presence_penalty,
        allow_negative_numbers = true
    )]
    presence_penalty: f32,
    /// Lower the logits of tokens that came up by this, each time
    #[arg(
        long, value_name = "X", default_value_t = SamplingParams::default().frequency_penalty,
        allow_negative_numbers = true
    )]
    frequency_penalty: f32,
    /// Add a number to a token's logit, such as `198=-2.5`; `=-inf` bans it; may be repeated
    #[arg(long, value_name = "ID=BIAS", value_parser = bias)]
    logit_bias: Vec<(u32, f32)>,
    /// Start of the random numbers; the same seed gives the same text [default: another each time]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// End the answer where this text comes up; may be repeated
    #[arg(long, value_name = "TEXT")]
    stop: Vec<String>,
    /// Go on where the model would end; use it with -n
    #[arg(long)]
    ignore_eos: bool,
}

fn bias(text: &str) -> Result<(u32, f32), String> {
    let parse = || {
        let (id, bias) = text.split_once('=')?;
        Some((id.trim().parse().ok()?, bias.trim().parse().ok()?))
    };
    parse().ok_or_else(|| "a token id and a number are wanted, such as 198=-2.5 or 198=-inf".to_owned())
}

impl GenerationArgs {
    /// The engine's options, checked as far as they can be without a model.
    pub(crate) fn options(&self) -> Result<GenerateOptions, CliError> {
        let sampling = SamplingParams {
            temperature: self.temp,
            top_k: self.top_k,
            top_p: self.top_p,
            min_p: self.min_p,
            typical_p: self.typical,
            repeat_penalty: self.repeat_penalty,
            // -1 does not convert, and means all.
            repeat_last_n: usize::try_from(self.repeat_last_n).unwrap_or(usize::MAX),
            presence_penalty: self.presence_penalty,
            frequency_penalty: self.frequency_penalty,
            logit_bias: self.logit_bias.clone(),
            seed: self.seed,
        };
        sampling.validate().map_err(|e| CliError::Usage(e.to_string()))?;
        if self.stop.iter().any(String::is_empty) {
            return Err(CliError::Usage("--stop wants a text that is not empty".to_owned()));
        }
        Ok(GenerateOptions {
            // -1 does not convert, and means no limit.
            max_tokens: usize::try_from(self.n_predict).ok(),
            sampling,
            stop: self.stop.clone(),
            ignore_eos: self.ignore_eos,
        })
    }
}

/// The name of what ended a generation, in JSON.
pub(crate) fn finish_name(finish: &Finish) -> &'static str {
    match finish {
        Finish::End => "end",
        Finish::Stop(_) => "stop",
        Finish::Length => "length",
        Finish::ContextFull => "context_full",
        Finish::Cancelled => "cancelled",
    }
}

/// Times of loading and generating, as JSON.
pub(crate) fn stats_json(load: Duration, stats: &Stats) -> Value {
    json!({
        "load_s": load.as_secs_f64(),
        "first_token_s": stats.first_token.as_secs_f64(),
        "prompt_tokens": stats.prompt_tokens,
        "prompt_s": stats.prompt_time.as_secs_f64(),
        "prompt_tokens_per_s": stats.prompt_rate(),
        "tokens": stats.tokens,
        "token_s": stats.token_time.as_secs_f64(),
        "tokens_per_s": stats.token_rate(),
        "drafts": stats.drafts.map(|drafts| json!({
            "drafts": drafts.drafts,
            "guessed_tokens": drafts.guessed,
            "accepted_tokens": drafts.accepted,
            "accepted_per_draft": drafts.mean_accepted(),
        })),
    })
}

/// Times of loading and generating, for people.
pub(crate) fn stats_text(load: Duration, stats: &Stats) -> String {
    let time = output::time;
    let rows = [
        vec!["load".to_owned(), time(load)],
        vec!["first token".to_owned(), time(stats.first_token)],
        vec![
            "prompt".to_owned(),
            time(stats.prompt_time),
            format!("{} tokens", stats.prompt_tokens),
            format!("{:.1} tokens/s", stats.prompt_rate()),
        ],
        vec![
            "generation".to_owned(),
            time(stats.token_time),
            format!("{} tokens", stats.tokens),
            format!("{:.1} tokens/s", stats.token_rate()),
        ],
    ];
    let table = output::table(&rows, &[1, 2, 3]);
    let table = table.trim_end();
    match &stats.drafts {
        None => table.to_owned(),
        Some(drafts) => format!(
            "{table}\n{} drafts: {} of {} guessed tokens accepted, {:.2} a draft",
            drafts.drafts,
            drafts.accepted,
            drafts.guessed,
            drafts.mean_accepted()
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bias_is_an_id_and_a_number() {
        assert_eq!(bias("5=-inf"), Ok((5, f32::NEG_INFINITY)));
        assert_eq!(bias("198=1.5"), Ok((198, 1.5)));
        assert!(bias("198").is_err() && bias("x=1").is_err() && bias("-1=1").is_err());
    }
}
