//! Whether the chat template renders what people say, and whether an answer's end is known.

use super::Check;
use super::vocabulary::spelling;
use crate::commands::end_token_ids;
use gannet_loader::Opened;
use gannet_ops::TokenId;
use gannet_text::chat::{ChatTemplate, Message, RenderOptions};
use gannet_text::error::TextError;
use gannet_text::text::Text;

const NAME: &str = "chat template";
const QUESTION: &str = "Why is the sky blue?";
const ANSWER: &str = "Light is scattered.";
const RULE: &str = "Be brief.";

/// All checks of the template.
pub(super) fn checks(opened: &Opened, text: &Text) -> Vec<Check> {
    if let Some(fault) = &text.template_fault {
        return vec![Check::fault(
            NAME,
            format!("{fault}; plain text works (`gannet run MODEL --raw TEXT`)"),
        )];
    }
    let Some(template) = &text.template else {
        return vec![Check::note(NAME, "none: answers to plain text only (`gannet run MODEL --raw TEXT`)")];
    };
    let mut checks = vec![conversation(template), system(template)];
    checks.extend(turn_end(opened, text, template));
    checks
}

/// A question, and a question after an answer.
fn conversation(template: &ChatTemplate) -> Check {
    let question = || Message::new("user", QUESTION);
    let turns = [question(), Message::new("assistant", ANSWER), question()];
    for messages in [&turns[..1], &turns] {
        let count = messages.len();
        let prompt = match render(template, messages, true) {
            Ok(prompt) => prompt,
            Err(error) => {
                return Check::fault(NAME, format!("a conversation of {count} messages fails: {error}"));
            }
        };
        if messages
            .iter()
            .any(|message| !prompt.contains(if message.role == "user" { QUESTION } else { ANSWER }))
        {
            return Check::fault(
                NAME,
                format!("a conversation of {count} messages loses what one of them says"),
            );
        }
    }
    match render(template, &turns[..1], false) {
        Ok(text) if Ok(&text) == render(template, &turns[..1], true).as_ref() => Check::note(
            NAME,
            "renders, and says nowhere that an answer begins (add_generation_prompt changes nothing)",
        ),
        Ok(_) | Err(_) => Check::ok(NAME, "renders a question, and one after an answer"),
    }
}

fn system(template: &ChatTemplate) -> Check {
    const NAME: &str = "system message";
    match render(template, &[Message::new("system", RULE), Message::new("user", QUESTION)], true) {
        Ok(prompt) if prompt.contains(RULE) => Check::ok(NAME, "the template prints it"),
        Ok(_) => Check::note(NAME, "the template leaves it out"),
        Err(error) => Check::note(NAME, error),
    }
}

/// The special token after an answer in the template must be one that ends an answer, else the model talks on.
fn turn_end(opened: &Opened, text: &Text, template: &ChatTemplate) -> Option<Check> {
    const NAME: &str = "turn end";
    let turns = [Message::new("user", QUESTION), Message::new("assistant", ANSWER)];
    let options = RenderOptions { add_generation_prompt: false, ..RenderOptions::default() };
    let rendered = template.render(&turns, &[], &options).ok()?;
    let answer_ends = rendered.text.rfind(ANSWER)? + ANSWER.len();
    let rest = rendered.text[answer_ends..].to_owned();
    let ids = text.tokenizer.encode(&rest, gannet_text::tokenizer::Specials::Parse).ok()?;
    let Some(first) = ids.into_iter().find(|id| text.tokenizer.is_special(*id)) else {
        return Some(Check::note(NAME, "the template puts no control token after an answer"));
    };
    let ends = end_token_ids(&opened.model, Some(text));
    let shown = spelling(text, TokenId(first));
    Some(match ends.contains(&TokenId(first)) {
        true => Check::ok(NAME, format!("{shown} stands after an answer and ends it")),
        false => Check::fault(NAME, format!("{shown} stands after an answer and isn't among the end tokens")),
    })
}

/// The rendered text, or why there is none.
fn render(
    template: &ChatTemplate,
    messages: &[Message],
    add_generation_prompt: bool,
) -> Result<String, String> {
    let options = RenderOptions { add_generation_prompt, ..RenderOptions::default() };
    let rendered = template.render(messages, &[], &options).map_err(|error: TextError| error.to_string())?;
    Ok(rendered.text)
}
