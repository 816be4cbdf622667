//! A chat on a terminal: lines in, answers out, until the person leaves.
//!
//! Every answer continues the whole conversation, rendered anew. A message that can't be answered is taken back, so
//! that the conversation goes on as if it had not been said.

use super::answer::{Answer, Ending};
use super::history;
use super::session::Session;
use crate::failure::{Failure, one_line};
use crate::output;
use crate::report::Timings;
use gannet_text::chat::Message;
use gannet_text::decode::Place;
use rustyline::DefaultEditor;
use rustyline::error::ReadlineError;
use std::path::PathBuf;

const PROMPT: &str = "> ";
const HELP: &str = "\
/help   this list
/reset  forget the conversation
/stats  how long the last answer took, and how full the context is
/exit   leave, as Ctrl-D does
Ctrl-C  stops an answer, or clears the line";

/// What a line asks for.
#[derive(Debug, PartialEq, Eq)]
enum Line<'a> {
    Nothing,
    Say(&'a str),
    Help,
    Reset,
    Stats,
    Exit,
    Unknown(&'a str),
}

impl<'a> Line<'a> {
    /// A command is a slash and one word; anything else is said to the model, such as a path.
    fn parse(line: &'a str) -> Self {
        match line.trim() {
            "" => Line::Nothing,
            "/help" | "/?" => Line::Help,
            "/reset" => Line::Reset,
            "/stats" => Line::Stats,
            "/exit" | "/quit" | "/bye" => Line::Exit,
            word if is_command(word) => Line::Unknown(word),
            text => Line::Say(text),
        }
    }
}

fn is_command(text: &str) -> bool {
    text.strip_prefix('/')
        .is_some_and(|word| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_lowercase()))
}

/// A conversation so far.
struct Chat<'a> {
    session: &'a Session,
    system: Option<Message>,
    messages: Vec<Message>,
    last: Option<Answer>,
}

/// Chats until the person leaves.
pub(crate) fn run(session: &Session, system: Option<&str>) -> Result<(), Failure> {
    session.text()?.require_template(&[])?;
    let system = system.map(|system| Message::new("system", system));
    let mut chat = Chat { session, system, messages: Vec::new(), last: None };
    let mut editor = DefaultEditor::new()?;
    let history = open_history(&mut editor);
    eprintln!("/help lists the commands; Ctrl-D leaves");
    loop {
        let line = match editor.readline(PROMPT) {
            Ok(line) => line,
            Err(ReadlineError::Interrupted) => continue,
            Err(ReadlineError::Eof) => break,
            Err(error) => return Err(error.into()),
        };
        if !line.trim().is_empty() {
            editor.add_history_entry(&line)?;
        }
        match Line::parse(&line) {
            Line::Nothing => {}
            Line::Exit => break,
            Line::Say(text) => chat.say(text)?,
            Line::Help => eprintln!("{HELP}"),
            Line::Reset => chat.messages.clear(),
            Line::Stats => eprintln!("{}", chat.stats()),
            Line::Unknown(word) => eprintln!("`{word}` is no command; /help lists them"),
        }
    }
    if let Some(file) = history.filter(|file| editor.save_history(file).is_err()) {
        eprintln!("gannet: note: the history can't be kept in `{}`", file.display());
    }
    Ok(())
}

/// Reads the lines of earlier chats. A chat works without them.
fn open_history(editor: &mut DefaultEditor) -> Option<PathBuf> {
    match history::file() {
        Ok(Some(file)) => {
            if file.exists() && editor.load_history(&file).is_err() {
                eprintln!("gannet: note: the history in `{}` can't be read", file.display());
            }
            Some(file)
        }
        Ok(None) => None,
        Err(error) => {
            eprintln!("gannet: note: no history is kept: {}", one_line(&error));
            None
        }
    }
}

impl Chat<'_> {
    /// Says something to the model and shows its answer.
    fn say(&mut self, text: &str) -> Result<(), Failure> {
        self.messages.push(Message::new("user", text));
        match self.answer() {
            Ok(answer) if answer.ending == Ending::Interrupted && answer.text.is_empty() => {
                self.messages.pop();
                Ok(())
            }
            Ok(answer) => {
                self.messages.push(Message::new("assistant", &answer.text));
                self.last = Some(answer);
                Ok(())
            }
            Err(Failure::Failed(error)) => {
                self.messages.pop();
                eprintln!("gannet: {}", one_line(&error));
                Ok(())
            }
            Err(failure) => Err(failure),
        }
    }

    fn answer(&self) -> Result<Answer, Failure> {
        let messages: Vec<Message> = self.system.iter().chain(&self.messages).cloned().collect();
        let prompt = self.session.encode_chat(&messages)?;
        let answer = self.session.answer(&prompt, Place::Start, &mut output::show)?;
        output::show("\n")?;
        if !matches!(answer.ending, Ending::EndToken(_)) {
            eprintln!("[ended by {}]", self.session.describe(&answer));
        }
        Ok(answer)
    }

    fn stats(&self) -> String {
        let context = self.session.context();
        match &self.last {
            None => format!("nothing was answered yet; the context holds {context} tokens"),
            Some(answer) => {
                let used = answer.usage.prompt_tokens + answer.usage.generated_tokens;
                let timings = Timings::new(self.session.load_time, &answer.usage).line();
                format!("{timings}; {used} of {context} tokens of the context were used")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_command_or_is_said() {
        let check = |line: &str, expected: Line<'_>| assert_eq!(Line::parse(line), expected, "{line:?}");
        check("  ", Line::Nothing);
        check(" Hello! ", Line::Say("Hello!"));
        check("/help", Line::Help);
        check("/reset ", Line::Reset);
        check("/stats", Line::Stats);
        check("/exit", Line::Exit);
        check("/restet", Line::Unknown("/restet"));
        check("/usr/bin is what?", Line::Say("/usr/bin is what?"));
        check("/", Line::Say("/"));
    }
}
