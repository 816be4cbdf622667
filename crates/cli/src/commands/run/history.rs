//! Where the lines of earlier chats are kept.

use anyhow::Context;
use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;

/// The folder of the variable that names the user's state, or that of the home folder, with what follows in it.
const PLACES: [(&str, &str); 3] = [("XDG_STATE_HOME", ""), ("HOME", ".local/state"), ("LOCALAPPDATA", "")];

/// The history file, in a folder that exists; none where the system names no place for it.
pub(crate) fn file() -> anyhow::Result<Option<PathBuf>> {
    let Some(folder) = place() else { return Ok(None) };
    fs::create_dir_all(&folder).with_context(|| format!("can't make the folder `{}`", folder.display()))?;
    Ok(Some(folder.join("history")))
}

/// The folder of the history file, which may not exist yet.
pub(crate) fn place() -> Option<PathBuf> {
    folder(|name| env::var_os(name))
}

/// The first place that is named by an absolute path, as the XDG base directory specification asks.
fn folder(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let place = |(name, rest): (&str, &str)| {
        let base = PathBuf::from(variable(name)?);
        base.is_absolute().then(|| base.join(rest).join("gannet"))
    };
    PLACES.into_iter().find_map(place)
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn the_state_folder_goes_before_the_home_folder() {
        let check = |variables: &[(&str, &str)], expected: Option<&str>| {
            let find =
                |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| value.into());
            assert_eq!(folder(find), expected.map(PathBuf::from));
        };
        check(&[("HOME", "/people/x"), ("XDG_STATE_HOME", "/state")], Some("/state/gannet"));
        check(&[("HOME", "/people/x")], Some("/people/x/.local/state/gannet"));
        check(
            &[("HOME", "/people/x"), ("XDG_STATE_HOME", "relative")],
            Some("/people/x/.local/state/gannet"),
        );
        check(&[], None);
    }
}
