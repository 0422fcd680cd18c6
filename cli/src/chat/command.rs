//! What a line of a chat asks for.

/// An input: a command, or something to say.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Command {
    Say(String),
    Help,
    Clear,
    System(Option<String>),
    Save(String),
    Load(String),
    Stats,
    Exit,
}

pub(super) const HELP: &str = "\
/help          this list
/clear         forget the conversation, but not the system message
/system TEXT   set the system message; without TEXT, remove it
/save FILE     save the conversation as JSON
/load FILE     go on with a saved conversation
/stats         times of the last answer, and how full the context is
/exit          leave (also Ctrl-D)

A line that ends with \\ goes on in the next one. A line that begins with \"\"\" begins a message of several lines, which
ends with \"\"\". //text says /text. Ctrl-C stops an answer.
";

impl Command {
    /// The command of an input, or what is wrong with it.
    pub(super) fn parse(input: &str) -> Result<Command, String> {
        let text = input.trim();
        let Some(rest) = text.strip_prefix('/') else { return Ok(Command::Say(input.to_owned())) };
        if rest.starts_with('/') {
            return Ok(Command::Say(rest.to_owned()));
        }
        let (name, argument) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
        let argument = argument.trim();
        let given = || (!argument.is_empty()).then(|| argument.to_owned());
        let bare = |command: Command| match argument {
            "" => Ok(command),
            _ => Err(format!("/{name} takes no argument")),
        };
        let file = || given().ok_or_else(|| format!("/{name} wants a file: /{name} FILE"));
        match name {
            "help" | "?" => bare(Command::Help),
            "clear" => bare(Command::Clear),
            "system" => Ok(Command::System(given())),
            "save" => file().map(Command::Save),
            "load" => file().map(Command::Load),
            "stats" => bare(Command::Stats),
            "exit" | "quit" | "bye" => bare(Command::Exit),
            _ => Err(format!("there is no command /{name}; /help lists those that there are")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_begins_with_a_slash_is_a_command() {
        assert_eq!(Command::parse("hello /exit"), Ok(Command::Say("hello /exit".into())));
        assert_eq!(Command::parse(" /exit "), Ok(Command::Exit));
        assert_eq!(Command::parse("/system be brief"), Ok(Command::System(Some("be brief".into()))));
        assert_eq!(Command::parse("/system"), Ok(Command::System(None)));
        assert_eq!(Command::parse("/save my chat.json"), Ok(Command::Save("my chat.json".into())));
        assert_eq!(Command::parse("//etc"), Ok(Command::Say("/etc".into())));
    }

    #[test]
    fn wrong_commands_say_what_is_right() {
        assert!(Command::parse("/exi").unwrap_err().contains("/help"));
        assert!(Command::parse("/load").unwrap_err().contains("/load FILE"));
        assert!(Command::parse("/clear all").unwrap_err().contains("no argument"));
    }
}
