//! The server's limits as flags, one each, made of the server's own table of them.

use clap::builder::StyledStr;
use clap::error::ErrorKind;
use clap::{Arg, ArgMatches, Args, Command, Error, FromArgMatches};
use gannet_server::{Limit, Limits};

/// Bounds of what clients may do, those that aren't given as the server has them.
#[derive(Clone, Debug, Default)]
pub(super) struct LimitArguments {
    pub(super) limits: Limits,
}

impl Args for LimitArguments {
    fn augment_args(command: Command) -> Command {
        command.next_help_heading("Limits").args(Limits::ALL.iter().map(argument))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

/// The flag of a limit. All of them are too many for the short help.
fn argument(limit: &'static Limit) -> Arg {
    let check = |text: &str| (limit.set)(&mut Limits::default(), text).map(|()| text.to_owned());
    let help = format!("{} [default: {}]", limit.about.trim(), (limit.default)());
    Arg::new(limit.flag)
        .long(limit.flag)
        .value_name(limit.unit)
        .value_parser(check)
        .hide_short_help(true)
        .help(StyledStr::from(help))
}

impl FromArgMatches for LimitArguments {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let mut arguments = Self::default();
        arguments.update_from_arg_matches(matches)?;
        Ok(arguments)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        for limit in Limits::ALL {
            if let Some(text) = matches.get_one::<String>(limit.flag) {
                (limit.set)(&mut self.limits, text)
                    .map_err(|why| Error::raw(ErrorKind::ValueValidation, why))?;
            }
        }
        Ok(())
    }
}
