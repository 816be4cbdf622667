//! What is asked for: from the command line to a prompt, and from a prompt to token ids.

use super::RunArguments;
use crate::arguments::values::read_utf8;
use crate::failure::Failure;
use gannet_ops::TokenId;
use gannet_text::chat::{Message, RenderOptions};
use gannet_text::decode::Place;
use gannet_text::error::TextError;
use gannet_text::text::Text;
use std::io::stdin;

/// What to do.
#[derive(Debug, PartialEq)]
pub(crate) enum Task {
    /// One answer.
    Answer(Prompt),
    /// Answers until the person leaves.
    Chat,
}

/// Something to continue.
#[derive(Debug, PartialEq)]
pub(crate) enum Prompt {
    /// A conversation, for the chat template.
    Messages(Vec<Message>),
    /// Text as it is.
    Raw(String),
    /// Token ids.
    Ids(Vec<TokenId>),
}

impl Task {
    /// What the arguments ask for; reads standard input where they say so.
    pub(crate) fn choose(arguments: &RunArguments, on_terminal: bool) -> Result<Self, Failure> {
        if let Some(ids) = &arguments.ids {
            return Ok(Task::Answer(Prompt::Ids(ids.read()?)));
        }
        let text = match arguments.prompt.as_deref() {
            Some("-") => read_utf8(stdin().lock(), "standard input")?,
            Some(text) => text.to_owned(),
            None => return Self::without_prompt(arguments, on_terminal),
        };
        Ok(Task::Answer(match arguments.raw {
            true => Prompt::Raw(text),
            false => Prompt::Messages(conversation(arguments.system.as_deref(), &text)),
        }))
    }

    fn without_prompt(arguments: &RunArguments, on_terminal: bool) -> Result<Self, Failure> {
        if arguments.raw {
            return Err(Failure::usage(
                "--raw needs a PROMPT: without one a chat begins, which needs the chat template",
            ));
        }
        if arguments.json {
            return Err(Failure::usage("--json needs a PROMPT or --ids: a chat has no JSON form"));
        }
        if !on_terminal {
            return Err(Failure::usage(
                "without PROMPT a chat begins, which needs a terminal; give a PROMPT, or - to read it from standard input",
            ));
        }
        Ok(Task::Chat)
    }
}

/// The system's message, where there is one, and what the user says.
fn conversation(system: Option<&str>, text: &str) -> Vec<Message> {
    let system = system.map(|system| Message::new("system", system));
    system.into_iter().chain([Message::new("user", text)]).collect()
}

impl Prompt {
    /// Where the answer's text stands: a turn begins a text, other answers continue the prompt.
    pub(crate) fn place(&self) -> Place {
        match self {
            Prompt::Messages(_) => Place::Start,
            Prompt::Raw(_) | Prompt::Ids(_) => Place::Middle,
        }
    }
}

/// A prompt for the engine.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Encoded {
    pub(crate) ids: Vec<TokenId>,
    /// Where others are likely to branch off: numbers of ids.
    pub(crate) boundaries: Vec<u32>,
}

/// A conversation, up to where the answer begins. The next turn goes on from the ends of its messages.
pub(crate) fn encode_chat(text: &Text, messages: &[Message]) -> Result<Encoded, TextError> {
    let options = RenderOptions { boundaries: true, ..RenderOptions::default() };
    let rendered = text.require_template(&[])?.render(messages, &[], &options)?;
    let encoded = text.tokenizer.encode_chat_with_boundaries(&rendered)?;
    let boundaries = encoded.boundaries.iter().filter_map(|boundary| u32::try_from(boundary.tokens).ok());
    Ok(Encoded { boundaries: boundaries.collect(), ids: token_ids(encoded.ids) })
}

/// Text as it is.
pub(crate) fn encode_raw(text: &Text, raw: &str) -> Result<Encoded, TextError> {
    Ok(Encoded { ids: token_ids(text.tokenizer.encode_prompt(raw)?), boundaries: Vec::new() })
}

fn token_ids(ids: Vec<u32>) -> Vec<TokenId> {
    ids.into_iter().map(TokenId).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::{Arguments, Command};
    use clap::Parser;
    use gannet_text::text::{TextFiles, TokenizerFile};

    fn choose(line: &[&str], on_terminal: bool) -> Result<Task, Failure> {
        let words = ["gannet", "run", "model"].iter().chain(line);
        let command = Arguments::try_parse_from(words).map_err(Failure::Parsing)?.command;
        let Command::Run(arguments) = command else { panic!("`run` was parsed as {command:?}") };
        Task::choose(&arguments, on_terminal)
    }

    #[test]
    fn a_prompt_is_what_the_arguments_say() {
        let check =
            |line: &[&str], prompt: Prompt| assert_eq!(choose(line, false).unwrap(), Task::Answer(prompt));
        let [system, user] = [Message::new("system", "Be brief."), Message::new("user", "Hi")];
        check(&["Hi"], Prompt::Messages(vec![user.clone()]));
        check(&["Hi", "--system", "Be brief."], Prompt::Messages(vec![system, user]));
        check(&["--raw", "Hi"], Prompt::Raw("Hi".to_owned()));
        check(&["--ids", "1,2"], Prompt::Ids(vec![TokenId(1), TokenId(2)]));
    }

    #[test]
    fn a_chat_names_the_ends_of_its_messages_for_the_turns_that_follow() {
        let tokenizer = r#"{
            "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "<end>": 2}, "merges": []},
            "decoder": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false},
            "added_tokens": [{"id": 2, "content": "<end>", "special": true, "normalized": false,
                "single_word": false, "lstrip": false, "rstrip": false}]
        }"#;
        let text = Text::from_files(&TextFiles {
            tokenizer: TokenizerFile::Json(tokenizer.as_bytes()),
            tokenizer_config: None,
            chat_template: Some(b"{% for message in messages %}{{ message.content }}<end>{% endfor %}"),
        })
        .unwrap();
        let turns = [Message::new("user", "a"), Message::new("assistant", "b"), Message::new("user", "a")];
        let check = |messages: &[Message], ids: &[u32], boundaries: &[u32]| {
            let expected = Encoded { ids: token_ids(ids.to_vec()), boundaries: boundaries.to_vec() };
            assert_eq!(encode_chat(&text, messages).unwrap(), expected);
        };
        check(&turns[..1], &[0, 2], &[2]);
        check(&turns, &[0, 2, 1, 2, 0, 2], &[2, 4, 6]);
    }

    #[test]
    fn a_chat_needs_a_terminal_and_the_template() {
        assert_eq!(choose(&[], true).unwrap(), Task::Chat);
        for (line, on_terminal) in [(&[][..], false), (&["--raw"], true), (&["--json"], true)] {
            assert!(matches!(choose(line, on_terminal), Err(Failure::Usage(_))), "{line:?}");
        }
    }

    #[test]
    fn contradictions_are_refused() {
        for line in [
            &["Hi", "--ids", "1"][..],
            &["Hi", "--raw", "--system", "x"],
            &["--ids", "1", "--raw"],
            &["--ids", "1", "--system", "x"],
            &["Hi", "--max-tokens", "0"],
            &["Hi", "--stop", ""],
        ] {
            assert!(matches!(choose(line, true), Err(Failure::Parsing(_))), "{line:?}");
        }
    }
}
