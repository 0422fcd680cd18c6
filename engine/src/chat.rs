//! A conversation: messages, the template that turns them into a prompt, and the session that has seen it.

use llamay_tokenizer::EncodeOptions;
use llamay_tokenizer::template::{ChatTemplate, Message, RenderOptions};

use crate::{Cancel, Error, Finish, GenerateOptions, Generation, Model, Session, Speculator};

/// A chat with a model. What the session has seen already is not computed again.
pub struct Chat {
    session: Session,
    template: ChatTemplate,
    messages: Vec<Message>,
}

/// A reply, and what had to go to make room for it.
#[derive(Clone, Debug)]
pub struct Reply {
    /// The assistant's answer.
    pub generation: Generation,
    /// Messages that were dropped from the beginning of the conversation (never the system message).
    pub dropped: usize,
}

/// Tokens that an answer should at least have room for.
const ANSWER_ROOM: usize = 32;

impl Chat {
    /// An empty conversation.
    ///
    /// # Errors
    /// A model without a chat template, or with one that cannot be compiled.
    pub fn new(model: &Model) -> Result<Chat, Error> {
        let template = model.chat_template()?.ok_or(Error::NoTemplate)?;
        Ok(Chat { session: model.session(), template, messages: Vec::new() })
    }

    /// The messages so far.
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// Replaces the conversation.
    pub fn set_messages(&mut self, messages: Vec<Message>) {
        self.messages = messages;
    }

    /// The session.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// Lets answers guess tokens ahead; see [`Session::set_speculator`].
    pub fn set_speculator(&mut self, speculator: Option<Speculator>) {
        self.session.set_speculator(speculator);
    }

    /// Sets the system message, or with `None` removes it.
    ///
    /// # Errors
    /// A template that has no place for a system message.
    pub fn set_system(&mut self, text: Option<&str>) -> Result<(), Error> {
        if text.is_some() && !self.template.supports_system() {
            return Err(Error::Unfit(
                "the model's chat template has no place for a system message".to_owned(),
            ));
        }
        if self.messages.first().is_some_and(|m| m.role == "system") {
            self.messages.remove(0);
        }
        if let Some(text) = text {
            self.messages.insert(0, Message::new("system", text));
        }
        Ok(())
    }

    /// Forgets all messages but the system message.
    pub fn clear(&mut self) {
        self.messages.retain(|m| m.role == "system");
    }

    /// Says `user` and generates the answer. Where the conversation does not fit the context, its oldest turns go.
    ///
    /// A cancelled or cut answer stays in the conversation; after an error the conversation is as before.
    ///
    /// # Errors
    /// A message that does not fit the context even alone, a template that objects, a failed step.
    pub fn say(
        &mut self,
        user: &str,
        options: &GenerateOptions,
        cancel: &Cancel,
        on_text: &mut dyn FnMut(&str),
    ) -> Result<Reply, Error> {
        let before = self.messages.clone();
        self.messages.push(Message::new("user", user));
        let result = self.answer(options, cancel, on_text);
        if result.is_err() {
            self.messages = before;
        }
        result
    }

    fn answer(
        &mut self,
        options: &GenerateOptions,
        cancel: &Cancel,
        on_text: &mut dyn FnMut(&str),
    ) -> Result<Reply, Error> {
        let context = self.session.model().context();
        let mut dropped = 0;
        let tokens = loop {
            let tokens = self.prompt()?;
            let room = ANSWER_ROOM.min(context / 4);
            if tokens.len() + room <= context || !self.drop_oldest(&mut dropped) {
                break tokens;
            }
        };
        if tokens.len() >= context {
            return Err(Error::ContextFull { needed: tokens.len() + 1, limit: context });
        }
        // The last token is always fed, since its logits are wanted.
        let same = self.session.tokens().iter().zip(&tokens).take_while(|(a, b)| a == b).count();
        self.session.truncate(same.min(tokens.len() - 1));
        let from = self.session.len();
        let generation = self.session.generate(&tokens[from..], options, cancel, on_text)?;
        if generation.finish != Finish::Cancelled || !generation.text.is_empty() {
            self.messages.push(Message::new("assistant", generation.text.clone()));
        } else {
            // Nothing was said: the question is taken back, so that turns still alternate.
            self.messages.pop();
        }
        Ok(Reply { generation, dropped })
    }

    /// The tokens of the conversation, up to where the answer begins.
    fn prompt(&self) -> Result<Vec<u32>, Error> {
        let text = self.template.render(&self.messages, &RenderOptions::generation())?;
        let tokenizer = self.session.model().tokenizer();
        // A template that writes BOS itself must not get a second one.
        let bos = tokenizer.bos().map_or("", |id| tokenizer.token(id));
        let add_special = bos.is_empty() || !text.starts_with(bos);
        let tokens = tokenizer.encode(&text, EncodeOptions { add_special, parse_special: true });
        if tokens.is_empty() { Err(Error::EmptyPrompt) } else { Ok(tokens) }
    }

    /// Drops the oldest turn (a question and its answer) but never the system message or the newest message.
    fn drop_oldest(&mut self, dropped: &mut usize) -> bool {
        let first = usize::from(self.messages.first().is_some_and(|m| m.role == "system"));
        let next_user = self.messages.iter().skip(first + 1).position(|m| m.role == "user");
        let Some(n) = next_user.map(|n| n + 1) else { return false };
        self.messages.drain(first..first + n);
        *dropped += n;
        true
    }
}
